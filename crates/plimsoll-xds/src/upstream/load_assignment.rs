//! [`LoadAssignment`]: the endpoints that a cluster itself lists, by address or by name.
//!
//! Envoy's `load_assignment` is an assignment whose hosts may be names that DNS knows. Looking them
//! up is the caller's; here the answers become the core's [`ClusterLoadAssignment`].

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use plimsoll_core::model::assignment::{
    AssignmentParts, ClusterLoadAssignment, DropOverloadParts, LbEndpoint, LocalityParts,
};
use plimsoll_core::model::health::HealthStatus;
use plimsoll_core::model::locality::Locality;
use plimsoll_core::model::metadata::Metadata;
use plimsoll_core::units::FieldError;

use super::Discovery;

/// Endpoints by address or name, unchecked until they are resolved.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LoadAssignment {
    /// Name of the cluster.
    pub cluster_name: String,
    /// Entries, in any order.
    pub endpoints: Vec<NamedLocality>,
    /// Shares of requests to drop.
    pub drop_overloads: Vec<DropOverloadParts>,
    /// Percent; default 140.
    pub overprovisioning_factor: Option<u32>,
    /// Health of a priority by host weights instead of host counts.
    pub weighted_priority_health: bool,
}

/// `LocalityLbEndpoints`, by address or name.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NamedLocality {
    /// Everything but the endpoints, of which it has none.
    pub parts: LocalityParts,
    /// The endpoints.
    pub endpoints: Vec<NamedEndpoint>,
}

/// `LbEndpoint`, by address or name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedEndpoint {
    /// An address, or a name.
    pub host: String,
    /// The port.
    pub port: u16,
    /// `endpoint.hostname`, may be empty.
    pub hostname: Arc<str>,
    /// Health as the assignment says it.
    pub health_status: HealthStatus,
    /// At least 1 when set.
    pub load_balancing_weight: Option<u32>,
    /// Overrides the key of consistent hashing.
    pub hash_key: Option<Arc<str>>,
    /// `filter_metadata["envoy.lb"]`: what subsets are made of.
    pub metadata: Metadata,
    /// What connections and checks need to know.
    pub extras: EndpointExtras,
}

/// What an assignment says about an endpoint and the core has no use for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EndpointExtras {
    /// `additional_addresses`: the same host at other addresses, to be tried one after another.
    pub additional_addresses: Vec<SocketAddr>,
    /// `health_check_config.port_value`: port to check instead of the endpoint's.
    pub health_check_port: Option<u16>,
    /// `health_check_config.hostname`: host header of checks, when not empty.
    pub health_check_hostname: String,
    /// `health_check_config.disable_active_health_check`: always taken for healthy.
    pub disable_active_health_check: bool,
}

impl LoadAssignment {
    /// Checks that the endpoints are such as `discovery` can use.
    pub fn check(&self, discovery: &Discovery) -> Result<(), FieldError> {
        if self.cluster_name.is_empty() {
            return Err(FieldError::new("cluster_name", "must not be empty"));
        }
        let count: usize = self
            .endpoints
            .iter()
            .map(|entry| entry.endpoints.len())
            .sum();
        if matches!(discovery, Discovery::LogicalDns(_)) && count != 1 {
            let reason = format!("LOGICAL_DNS needs exactly one endpoint, not {count}");
            return Err(FieldError::new("endpoints", reason));
        }
        let dns = matches!(
            discovery,
            Discovery::StrictDns(_) | Discovery::LogicalDns(_)
        );
        // Names stand for one address each, so that everything else is checked now.
        let placeholder = [IpAddr::from([0x100, 0, 0, 0, 0, 0, 0, 1])];
        self.resolve(|_| if dns { &placeholder } else { &[] })?;
        match self.names().first() {
            Some((path, name)) if !dns => {
                let reason = format!("{name:?} is not an IP address; names need STRICT_DNS");
                Err(FieldError::new(path, reason))
            }
            _ => Ok(()),
        }
    }

    /// Names to be looked up, each with the path to it.
    pub fn names(&self) -> Vec<(String, &str)> {
        let mut names = Vec::new();
        for (index, entry) in self.endpoints.iter().enumerate() {
            for (position, endpoint) in entry.endpoints.iter().enumerate() {
                if endpoint.host.parse::<IpAddr>().is_err() {
                    let place = format!("endpoints[{index}].lb_endpoints[{position}]");
                    let path = format!("{place}.endpoint.address.socket_address.address");
                    names.push((path, endpoint.host.as_str()));
                }
            }
        }
        names
    }

    /// The assignment, with every address that `lookup` has for a name. Without any the endpoint is
    /// left out, and an address that came up before is not taken twice.
    pub fn resolve<'a>(
        &self,
        lookup: impl Fn(&str) -> &'a [IpAddr],
    ) -> Result<ClusterLoadAssignment, FieldError> {
        let literals = self.endpoints.iter().flat_map(|entry| &entry.endpoints);
        let mut seen: BTreeSet<(IpAddr, u16)> = literals
            .filter_map(|endpoint| Some((endpoint.host.parse().ok()?, endpoint.port)))
            .collect();
        let mut endpoints = Vec::with_capacity(self.endpoints.len());
        for entry in &self.endpoints {
            let mut parts = entry.parts.clone();
            for endpoint in &entry.endpoints {
                if let Ok(ip) = endpoint.host.parse::<IpAddr>() {
                    parts.lb_endpoints.push(endpoint.at(ip));
                    continue;
                }
                for &ip in lookup(&endpoint.host) {
                    if seen.insert((ip, endpoint.port)) {
                        parts.lb_endpoints.push(endpoint.at(ip));
                    }
                }
            }
            endpoints.push(parts);
        }
        ClusterLoadAssignment::try_new(AssignmentParts {
            cluster_name: self.cluster_name.clone(),
            endpoints,
            drop_overloads: self.drop_overloads.clone(),
            overprovisioning_factor: self.overprovisioning_factor,
            weighted_priority_health: self.weighted_priority_health,
            // Nobody sends it again.
            endpoint_stale_after: None,
        })
    }

    /// What connections and checks need to know of endpoints with an address; those without
    /// anything special are left out.
    pub fn extras(&self) -> BTreeMap<SocketAddr, EndpointExtras> {
        let entries = self.endpoints.iter().flat_map(|entry| &entry.endpoints);
        let special = entries.filter(|endpoint| endpoint.extras != EndpointExtras::default());
        let at_address = special.filter_map(|endpoint| {
            let ip: IpAddr = endpoint.host.parse().ok()?;
            Some((SocketAddr::new(ip, endpoint.port), endpoint.extras.clone()))
        });
        at_address.collect()
    }
}

impl NamedEndpoint {
    /// An endpoint that was looked up goes by its name, as in Envoy.
    fn at(&self, ip: IpAddr) -> LbEndpoint {
        let named = self.hostname.is_empty() && self.host.parse::<IpAddr>().is_err();
        LbEndpoint {
            address: SocketAddr::new(ip, self.port),
            hostname: if named {
                self.host.as_str().into()
            } else {
                Arc::clone(&self.hostname)
            },
            health_status: self.health_status,
            load_balancing_weight: self.load_balancing_weight,
            hash_key: self.hash_key.clone(),
            metadata: self.metadata.clone(),
        }
    }
}

impl NamedLocality {
    /// An entry without endpoints.
    pub fn new(locality: Locality) -> Self {
        Self {
            parts: LocalityParts {
                locality,
                ..Default::default()
            },
            endpoints: Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests;
