//! `load_assignment` from files.

use std::net::{IpAddr, SocketAddr};

use plimsoll_core::model::assignment::{DropOverloadParts, LocalityParts};
use plimsoll_core::model::health::HealthStatus;
use plimsoll_core::model::locality::Locality;
use plimsoll_core::units::FieldError;
use serde::Deserialize;
use serde::de::IgnoredAny;

use super::super::proto_json::{Double, FractionalPercent, Named, ProtoDuration, ProtoEnum, Uint};
use super::number;
use crate::upstream::{EndpointExtras, LoadAssignment, NamedEndpoint, NamedLocality};

/// `ClusterLoadAssignment`. `named_endpoints` is not here.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct LoadAssignmentYaml {
    cluster_name: String,
    endpoints: Vec<LocalityLbEndpoints>,
    policy: Policy,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Policy {
    drop_overloads: Vec<DropOverload>,
    overprovisioning_factor: Option<Uint<u32>>,
    weighted_priority_health: bool,
    // Nobody sends updates of what stands in a file.
    endpoint_stale_after: Option<ProtoDuration>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct DropOverload {
    category: String,
    drop_percentage: FractionalPercent,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct LocalityLbEndpoints {
    locality: LocalityYaml,
    metadata: Metadata,
    lb_endpoints: Vec<LbEndpointYaml>,
    load_balancing_weight: Option<Uint<u32>>,
    priority: Uint<u32>,
    observed_traffic_fraction: Option<Uint<u64>>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct LocalityYaml {
    region: String,
    zone: String,
    sub_zone: String,
}

/// `Metadata`; what filters of Envoy read is passed over.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Metadata {
    filter_metadata: FilterMetadata,
    typed_filter_metadata: Option<IgnoredAny>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct FilterMetadata {
    #[serde(rename = "envoy.lb")]
    envoy_lb: EnvoyLb,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct EnvoyLb {
    hash_key: Option<String>,
    observed_traffic_fraction: Option<Double>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct LbEndpointYaml {
    endpoint: EndpointYaml,
    #[serde(default)]
    health_status: Named<HealthStatus>,
    #[serde(default)]
    metadata: Metadata,
    load_balancing_weight: Option<Uint<u32>>,
}

impl ProtoEnum for HealthStatus {
    const VALUES: &'static [(&'static str, i64, Self)] = &[
        ("UNKNOWN", 0, Self::Unknown),
        ("HEALTHY", 1, Self::Healthy),
        ("UNHEALTHY", 2, Self::Unhealthy),
        ("DRAINING", 3, Self::Draining),
        ("TIMEOUT", 4, Self::Timeout),
        ("DEGRADED", 5, Self::Degraded),
    ];
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct EndpointYaml {
    address: AddressYaml,
    #[serde(default)]
    health_check_config: HealthCheckConfig,
    #[serde(default)]
    hostname: String,
    #[serde(default)]
    additional_addresses: Vec<AdditionalAddress>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct AdditionalAddress {
    address: AddressYaml,
}

/// `Address`: a socket and nothing else.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct AddressYaml {
    socket_address: SocketAddressYaml,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "present so that they are known fields")]
struct SocketAddressYaml {
    protocol: Option<Named<Protocol>>,
    address: String,
    port_value: Uint<u32>,
    // An address of version 4 is one, whatever the socket.
    #[serde(default)]
    ipv4_compat: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Protocol;

impl ProtoEnum for Protocol {
    const VALUES: &'static [(&'static str, i64, Self)] = &[("TCP", 0, Self)];
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct HealthCheckConfig {
    port_value: Uint<u32>,
    hostname: String,
    disable_active_health_check: bool,
}

impl LoadAssignmentYaml {
    /// The endpoints; the path of an error starts inside the message.
    pub(crate) fn checked(self) -> Result<LoadAssignment, FieldError> {
        let mut endpoints = Vec::with_capacity(self.endpoints.len());
        for (index, entry) in self.endpoints.into_iter().enumerate() {
            let locality = entry.checked();
            endpoints.push(locality.map_err(|error| error.under(&format!("endpoints[{index}]")))?);
        }
        let drops = self.policy.drop_overloads.into_iter();
        Ok(LoadAssignment {
            cluster_name: self.cluster_name,
            endpoints,
            drop_overloads: drops.map(DropOverload::parts).collect(),
            overprovisioning_factor: number(self.policy.overprovisioning_factor),
            weighted_priority_health: self.policy.weighted_priority_health,
        })
    }
}

impl DropOverload {
    fn parts(self) -> DropOverloadParts {
        DropOverloadParts {
            category: self.category,
            numerator: self.drop_percentage.numerator(),
            denominator: self.drop_percentage.denominator(),
        }
    }
}

impl LocalityLbEndpoints {
    fn checked(self) -> Result<NamedLocality, FieldError> {
        let at = &self.locality;
        let envoy_lb = self.metadata.filter_metadata.envoy_lb;
        let parts = LocalityParts {
            locality: Locality::new(&at.region, &at.zone, &at.sub_zone),
            priority: self.priority.0,
            load_balancing_weight: number(self.load_balancing_weight),
            lb_endpoints: Vec::new(),
            observed_traffic_fraction: self.observed_traffic_fraction.map(|value| value.0),
            metadata_traffic_fraction: envoy_lb.observed_traffic_fraction.map(|value| value.0),
        };
        let endpoints = self.lb_endpoints.into_iter().enumerate();
        let endpoints = endpoints.map(|(position, endpoint)| {
            let path = format!("lb_endpoints[{position}]");
            endpoint.checked().map_err(|error| error.under(&path))
        });
        Ok(NamedLocality {
            parts,
            endpoints: endpoints.collect::<Result<_, _>>()?,
        })
    }
}

impl LbEndpointYaml {
    fn checked(self) -> Result<NamedEndpoint, FieldError> {
        let extras = self.endpoint.extras();
        let extras = extras.map_err(|error| error.under("endpoint"))?;
        let address = self.endpoint.address.socket_address;
        let hash_key = self.metadata.filter_metadata.envoy_lb.hash_key;
        Ok(NamedEndpoint {
            port: port(
                address.port_value,
                "endpoint.address.socket_address.port_value",
            )?,
            host: address.address,
            hostname: self.endpoint.hostname.into(),
            health_status: self.health_status.0,
            load_balancing_weight: number(self.load_balancing_weight),
            hash_key: hash_key.map(Into::into),
            extras,
        })
    }
}

impl EndpointYaml {
    fn extras(&self) -> Result<EndpointExtras, FieldError> {
        let mut additional_addresses = Vec::new();
        for (index, additional) in self.additional_addresses.iter().enumerate() {
            let place = format!("additional_addresses[{index}].address.socket_address");
            let address = &additional.address.socket_address;
            let Ok(ip) = address.address.parse::<IpAddr>() else {
                let reason = format!("{:?} is not an IP address", address.address);
                return Err(FieldError::new(format!("{place}.address"), reason));
            };
            let port = port(address.port_value, &format!("{place}.port_value"))?;
            additional_addresses.push(SocketAddr::new(ip, port));
        }
        let check = &self.health_check_config;
        let port = match check.port_value.0 {
            0 => None,
            _ => Some(port(check.port_value, "health_check_config.port_value")?),
        };
        Ok(EndpointExtras {
            additional_addresses,
            health_check_port: port,
            health_check_hostname: check.hostname.clone(),
            disable_active_health_check: check.disable_active_health_check,
        })
    }
}

fn port(value: Uint<u32>, path: &str) -> Result<u16, FieldError> {
    match u16::try_from(value.0) {
        Ok(port @ 1..) => Ok(port),
        _ => Err(FieldError::new(path, "must be a port from 1 to 65535")),
    }
}
