//! Instances of a service and their checks as endpoints.
//!
//! An instance with a critical check stays an endpoint, as unhealthy: if checks of all instances
//! fail at once, for example because agents are overloaded, data planes panic and use them all,
//! instead of having no hosts.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use crate::objects::{CheckJson, EntryJson, ServiceJson};

/// Prefixes of the ids of the checks that `consul maint` adds, for a node and for a service.
const MAINTENANCE: [&str; 2] = ["_node_maintenance", "_service_maintenance:"];
const CRITICAL: &str = "critical";
const WARNING: &str = "warning";

/// Which instances are endpoints, and in which zone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MergeOptions {
    /// Tags that an instance must have.
    pub tags: Vec<String>,
    /// Key of the metadata of an instance, or else of its node, with the zone.
    pub zone_meta: String,
    /// What a tag starts with that has the zone of an instance without such metadata.
    pub zone_tag: Option<String>,
    /// Zone of instances that have none.
    pub fallback_zone: Option<Arc<str>>,
}

/// Whether an endpoint gets requests. The variants are in the order in which one of two instances
/// with the same address is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum EndpointState {
    Unhealthy,
    /// In maintenance: no new requests.
    Draining,
    Ready,
}

/// An endpoint of a service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    pub region: Arc<str>,
    pub zone: Option<Arc<str>>,
    pub state: EndpointState,
    pub weight: u32,
}

/// Endpoints of a service, by their addresses.
pub type Endpoints = BTreeMap<SocketAddr, Endpoint>;

/// Merges the answer to a health query. Also returns why an instance is left out, if one is that
/// should not be. `region` overrides the name of the datacenter.
pub fn merge(
    entries: &[EntryJson],
    region: Option<&str>,
    options: &MergeOptions,
) -> (Endpoints, Option<String>) {
    let mut endpoints = Endpoints::new();
    let mut invalid = None;
    for entry in entries
        .iter()
        .filter(|entry| is_used(&entry.service, options))
    {
        let address = match address(entry) {
            Ok(address) => address,
            Err(reason) => {
                invalid.get_or_insert(reason);
                continue;
            }
        };
        let (state, weight) = state(entry);
        let endpoint = Endpoint {
            region: region.unwrap_or(&entry.node.datacenter).into(),
            zone: zone(entry, options),
            state,
            weight,
        };
        let better = |other: &Endpoint| (state, weight) > (other.state, other.weight);
        if endpoints.get(&address).is_none_or(better) {
            endpoints.insert(address, endpoint);
        }
    }
    (endpoints, invalid)
}

/// Proxies and gateways of the mesh speak its protocol, which clients of the service do not.
fn is_used(service: &ServiceJson, options: &MergeOptions) -> bool {
    let tags = service.tags.as_deref().unwrap_or_default();
    service.kind.is_empty() && has_tags(tags, &options.tags)
}

/// Whether `tags` has all that are wanted.
pub(crate) fn has_tags(tags: &[String], wanted: &[String]) -> bool {
    wanted.iter().all(|tag| tags.contains(tag))
}

fn address(entry: &EntryJson) -> Result<SocketAddr, String> {
    let (service, node) = (&entry.service, &entry.node);
    let instance = || format!("instance {} of node {}", service.id, node.node);
    let host = if service.address.is_empty() {
        &node.address
    } else {
        &service.address
    };
    let address: IpAddr = host
        .parse()
        .map_err(|_| format!("{}: {host:?} is not an IP address", instance()))?;
    match u16::try_from(service.port) {
        Ok(port) if port > 0 => Ok(SocketAddr::new(address, port)),
        _ => Err(format!("{}: has no port", instance())),
    }
}

fn state(entry: &EntryJson) -> (EndpointState, u32) {
    let checks = entry.checks.as_deref().unwrap_or_default();
    let is_maintenance =
        |check: &CheckJson| MAINTENANCE.iter().any(|start| check.id.starts_with(start));
    let has = |status: &str| checks.iter().any(|check| check.status == status);
    let weights = entry.service.weights.unwrap_or_default();
    let weight = if has(WARNING) {
        weights.warning
    } else {
        weights.passing
    };
    let state = if checks.iter().any(is_maintenance) {
        EndpointState::Draining
    } else if has(CRITICAL) || weight < 1 {
        // As in Consul's own data planes, a weight of 0 keeps requests away.
        EndpointState::Unhealthy
    } else {
        EndpointState::Ready
    };
    (state, u32::try_from(weight).unwrap_or(0).max(1))
}

fn zone(entry: &EntryJson, options: &MergeOptions) -> Option<Arc<str>> {
    let metas = [&entry.service.meta, &entry.node.meta];
    let mut metas = metas.into_iter().flatten();
    let of_meta =
        metas.find_map(|meta| meta.get(&options.zone_meta).filter(|zone| !zone.is_empty()));
    if let Some(zone) = of_meta {
        return Some(zone.as_str().into());
    }
    let prefix = options.zone_tag.as_deref();
    let mut tags = entry.service.tags.iter().flatten();
    let tagged = prefix.and_then(|prefix| tags.find_map(|tag| tag.strip_prefix(prefix)));
    let of_tag = tagged.filter(|zone| !zone.is_empty()).map(Arc::from);
    of_tag.or_else(|| options.fallback_zone.clone())
}

#[cfg(test)]
mod tests;
