//! Conversion of Envoy's host sets to an assignment of the engine.
//!
//! Envoy has two lists per priority: all hosts, and the healthy ones in the same order. A policy
//! may only return hosts of the second list, so membership in it is what this module calls healthy;
//! the health flags of a host may be ahead of the list. Hosts without an IP address (pipes,
//! internal listeners) are left out: the engine knows hosts by address.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::net::SocketAddr;
use std::sync::Arc;

use plimsoll_core::model::assignment::{
    AssignmentParts, ClusterLoadAssignment, LbEndpoint, LocalityParts,
};
use plimsoll_core::model::health::HealthStatus;
use plimsoll_core::model::locality::Locality;
use plimsoll_core::units::FieldError;
use plimsoll_xds::wire::HEALTH_STATUS;

/// The hosts of a cluster as one thread of Envoy sees them. Numbers out of range yield empty
/// values, as in Envoy.
pub trait HostSets {
    fn priorities(&self) -> u32;
    /// Number of hosts; the methods with `index` use the order of this list.
    fn hosts(&self, priority: u32) -> usize;
    fn healthy_hosts(&self, priority: u32) -> usize;
    fn address(&self, priority: u32, index: usize) -> &str;
    /// Address by index in the list of healthy hosts.
    fn healthy_address(&self, priority: u32, index: usize) -> &str;
    fn weight(&self, priority: u32, index: usize) -> u32;
    fn is_degraded(&self, priority: u32, index: usize) -> bool;
    /// Value of a string in the endpoint's metadata for this module; empty if it has none.
    fn metadata(&self, priority: u32, index: usize, key: &str) -> &str;
    /// Region, zone and sub-zone.
    fn locality(&self, priority: u32, index: usize) -> [&str; 3];
    /// Number of localities, in Envoy's order.
    fn localities(&self, priority: u32) -> usize;
    /// Weight of a locality from EDS; 0 if it has none.
    fn locality_weight(&self, priority: u32, locality: usize) -> u32;
    /// Address of the first healthy host of a locality; empty if it has none.
    fn locality_member(&self, priority: u32, locality: usize) -> &str;
    /// Envoy's gauge of active requests, over all workers.
    fn active_requests(&self, priority: u32, index: usize) -> u64;
}

/// A host in both of Envoy's lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostEntry<'a> {
    pub priority: u32,
    /// Index in the list of all hosts.
    pub index: usize,
    /// Index in the list of healthy hosts; `None` if the host is not healthy.
    pub healthy_index: Option<u32>,
    pub address: &'a str,
}

/// Calls `visit` for every host of a priority, with its index in both lists. The healthy list is a
/// subsequence of the other, so one pass over both is enough.
pub fn for_each_host<'a, S: HostSets>(
    hosts: &'a S,
    priority: u32,
    mut visit: impl FnMut(HostEntry<'a>),
) {
    let healthy_count = hosts.healthy_hosts(priority);
    let healthy = |at: usize| (at < healthy_count).then(|| hosts.healthy_address(priority, at));
    let mut next = 0;
    let mut next_address = healthy(0);
    for index in 0..hosts.hosts(priority) {
        let address = hosts.address(priority, index);
        let is_healthy = next_address == Some(address);
        visit(HostEntry {
            priority,
            index,
            healthy_index: u32::try_from(next).ok().filter(|_| is_healthy),
            address,
        });
        if is_healthy {
            next += 1;
            next_address = healthy(next);
        }
    }
}

/// Converts the host sets. Of hosts with the same address, the first one counts.
pub fn assignment<S: HostSets>(
    hosts: &S,
    cluster: &str,
) -> Result<ClusterLoadAssignment, FieldError> {
    let mut seen = HashSet::new();
    let mut endpoints = Vec::new();
    for priority in 0..hosts.priorities() {
        convert_priority(hosts, priority, &mut seen, &mut endpoints);
    }
    ClusterLoadAssignment::try_new(AssignmentParts::new(cluster, endpoints))
}

fn convert_priority<S: HostSets>(
    hosts: &S,
    priority: u32,
    seen: &mut HashSet<SocketAddr>,
    endpoints: &mut Vec<LocalityParts>,
) {
    let no_name: Arc<str> = "".into();
    let mut by_locality: BTreeMap<[&str; 3], Vec<LbEndpoint>> = BTreeMap::new();
    for_each_host(hosts, priority, |entry| {
        let Some(address) = parse_address(entry.address).filter(|address| seen.insert(*address))
        else {
            return;
        };
        let index = entry.index;
        let endpoint = LbEndpoint {
            hostname: Arc::clone(&no_name),
            health_status: match entry.healthy_index {
                Some(_) => HealthStatus::Healthy,
                None if hosts.is_degraded(priority, index) => HealthStatus::Degraded,
                None => unusable(hosts.metadata(priority, index, HEALTH_STATUS)),
            },
            load_balancing_weight: Some(hosts.weight(priority, index).max(1)),
            ..LbEndpoint::new(address)
        };
        let locality = hosts.locality(priority, index);
        by_locality.entry(locality).or_default().push(endpoint);
    });
    let weights = locality_weights(hosts, priority);
    endpoints.extend(by_locality.into_iter().map(|(locality, lb_endpoints)| {
        let [region, zone, sub_zone] = locality;
        let weight = lb_endpoints
            .iter()
            .find_map(|one| weights.get(&one.address));
        LocalityParts {
            locality: Locality::new(region, zone, sub_zone),
            priority,
            load_balancing_weight: weight.copied(),
            lb_endpoints,
            ..Default::default()
        }
    }));
}

/// Envoy tells policies of modules that a host is unhealthy, not why. Draining hosts do not count
/// in the denominators of health and panic, so the control plane repeats the status in their
/// metadata.
fn unusable(written: &str) -> HealthStatus {
    if written == "DRAINING" {
        HealthStatus::Draining
    } else {
        HealthStatus::Unhealthy
    }
}

/// Returns the weights from EDS by the first healthy host of a locality: Envoy gives weights by
/// position, and does not name the locality.
fn locality_weights<S: HostSets>(hosts: &S, priority: u32) -> HashMap<SocketAddr, u32> {
    let weight_of = |locality: usize| {
        let member = parse_address(hosts.locality_member(priority, locality))?;
        let weight = hosts.locality_weight(priority, locality);
        (weight > 0).then_some((member, weight))
    };
    (0..hosts.localities(priority))
        .filter_map(weight_of)
        .collect()
}

/// Parses `ip:port`, by hand for IPv4: ten thousand addresses are parsed while a worker waits.
pub fn parse_address(text: &str) -> Option<SocketAddr> {
    parse_v4(text.as_bytes()).or_else(|| text.parse().ok())
}

fn parse_v4(text: &[u8]) -> Option<SocketAddr> {
    let mut octets = [0_u8; 4];
    let mut rest = text;
    for (position, octet) in octets.iter_mut().enumerate() {
        let end = if position < 3 { b'.' } else { b':' };
        let at = rest.iter().take(4).position(|&byte| byte == end)?;
        *octet = u8::try_from(decimal(&rest[..at])?).ok()?;
        rest = &rest[at + 1..];
    }
    let port = u16::try_from(decimal(rest)?).ok()?;
    Some(SocketAddr::from((octets, port)))
}

/// Parses up to five digits without a leading zero.
fn decimal(digits: &[u8]) -> Option<u32> {
    if digits.is_empty() || digits.len() > 5 || (digits.len() > 1 && digits[0] == b'0') {
        return None;
    }
    digits.iter().try_fold(0, |value, digit| {
        let digit = digit.wrapping_sub(b'0');
        (digit < 10).then(|| value * 10 + u32::from(digit))
    })
}

#[cfg(test)]
pub(crate) mod tests;
