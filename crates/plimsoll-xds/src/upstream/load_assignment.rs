//! Inline endpoints of a cluster, by IP address or DNS name (`load_assignment`).
//!
//! The caller resolves names; the resulting addresses become [`ClusterEndpoints`].

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

/// Endpoints of a cluster, for load balancing and for connecting to them.
#[derive(Clone, Debug, PartialEq)]
pub struct ClusterEndpoints {
    pub assignment: ClusterLoadAssignment,
    /// Connection settings by address; endpoints without any are omitted.
    pub extras: Arc<BTreeMap<SocketAddr, EndpointExtras>>,
}

impl From<ClusterLoadAssignment> for ClusterEndpoints {
    fn from(assignment: ClusterLoadAssignment) -> Self {
        Self {
            assignment,
            extras: Arc::default(),
        }
    }
}

/// Endpoints by IP address or DNS name, unchecked until they are resolved.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct LoadAssignment {
    pub cluster_name: String,
    pub endpoints: Vec<NamedLocality>,
    pub drop_overloads: Vec<DropOverloadParts>,
    /// In percent; the default is 140.
    pub overprovisioning_factor: Option<u32>,
    pub weighted_priority_health: bool,
}

/// `LocalityLbEndpoints` with unresolved endpoints.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct NamedLocality {
    pub parts: LocalityParts,
    pub endpoints: Vec<NamedEndpoint>,
}

/// `LbEndpoint` with an unresolved host.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct NamedEndpoint {
    /// IP address or DNS name.
    pub host: String,
    pub port: u16,
    /// `endpoint.hostname`, may be empty.
    pub hostname: Arc<str>,
    pub health_status: HealthStatus,
    /// At least 1 if set.
    pub load_balancing_weight: Option<u32>,
    pub hash_key: Option<Arc<str>>,
    /// `filter_metadata["envoy.lb"]`, used to form subsets.
    pub metadata: Metadata,
    pub extras: EndpointExtras,
}

/// Connection and health check settings of an endpoint, which the core does not need.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EndpointExtras {
    /// Other addresses of the same host, tried in order.
    pub additional_addresses: Vec<SocketAddr>,
    /// `health_check_config.port_value`; overrides the endpoint's port.
    pub health_check_port: Option<u16>,
    /// `health_check_config.hostname`; host header of checks, unless empty.
    pub health_check_hostname: String,
    /// `health_check_config.disable_active_health_check`; the host always counts as healthy.
    pub disable_active_health_check: bool,
    /// Keeps literals open for new fields: write `..Default::default()`.
    #[doc(hidden)]
    pub _non_exhaustive: (),
}

impl LoadAssignment {
    /// Checks that `discovery` can use the endpoints.
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
        // A placeholder address per name allows to check everything else now.
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

    /// Returns the names to resolve, each with its field path.
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

    /// Resolves the endpoints with the addresses that `lookup` returns for a name. Endpoints
    /// without address are omitted, and an address is used only once.
    pub fn resolve<'a>(
        &self,
        lookup: impl Fn(&str) -> &'a [IpAddr],
    ) -> Result<ClusterEndpoints, FieldError> {
        let literals = self.endpoints.iter().flat_map(|entry| &entry.endpoints);
        let mut seen: BTreeSet<(IpAddr, u16)> = literals
            .filter_map(|endpoint| Some((endpoint.host.parse().ok()?, endpoint.port)))
            .collect();
        let mut endpoints = Vec::with_capacity(self.endpoints.len());
        let mut extras = BTreeMap::new();
        for entry in &self.endpoints {
            let mut parts = entry.parts.clone();
            let mut add = |endpoint: &NamedEndpoint, ip| {
                let found = endpoint.at(ip);
                if endpoint.extras != EndpointExtras::default() {
                    extras.insert(found.address, endpoint.extras.clone());
                }
                parts.lb_endpoints.push(found);
            };
            for endpoint in &entry.endpoints {
                if let Ok(ip) = endpoint.host.parse::<IpAddr>() {
                    add(endpoint, ip);
                    continue;
                }
                for &ip in lookup(&endpoint.host) {
                    if seen.insert((ip, endpoint.port)) {
                        add(endpoint, ip);
                    }
                }
            }
            endpoints.push(parts);
        }
        let assignment = ClusterLoadAssignment::try_new(AssignmentParts {
            cluster_name: self.cluster_name.clone(),
            endpoints,
            drop_overloads: self.drop_overloads.clone(),
            overprovisioning_factor: self.overprovisioning_factor,
            weighted_priority_health: self.weighted_priority_health,
            // Inline endpoints are never refreshed.
            endpoint_stale_after: None,
            _non_exhaustive: (),
        })?;
        Ok(ClusterEndpoints {
            assignment,
            extras: Arc::new(extras),
        })
    }
}

impl NamedEndpoint {
    /// Creates an endpoint of weight 1 at `host`, an IP address or DNS name.
    pub fn new(host: impl Into<String>, port: u16) -> Self {
        Self {
            host: host.into(),
            port,
            hostname: "".into(),
            health_status: HealthStatus::Unknown,
            load_balancing_weight: None,
            hash_key: None,
            metadata: Metadata::default(),
            extras: EndpointExtras::default(),
        }
    }

    /// Returns the endpoint at `ip`. A resolved endpoint has its name as hostname, as in Envoy.
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
    /// Creates a locality without endpoints.
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
