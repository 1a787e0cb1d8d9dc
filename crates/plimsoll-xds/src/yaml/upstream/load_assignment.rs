//! `load_assignment` from files.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use plimsoll_core::model::assignment::{DropOverloadParts, LocalityParts};
use plimsoll_core::model::health::HealthStatus;
use plimsoll_core::model::locality::Locality;
use plimsoll_core::model::metadata::{Metadata, MetadataValue};
use plimsoll_core::units::FieldError;
use serde::Deserialize;

use super::super::metadata::MetadataYaml;
use super::super::proto_json::{
    Double, FractionalPercent, Ignored, Named, ProtoDuration, ProtoEnum, Uint,
};
use super::number;
use crate::upstream::{EndpointExtras, LoadAssignment, NamedEndpoint, NamedLocality};

/// `ClusterLoadAssignment`. `named_endpoints` is not here.
#[derive(Clone, Debug, Default, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub(crate) struct LoadAssignmentYaml {
    /// Name of the assignment; only a name.
    cluster_name: String,
    /// Endpoints by locality and priority.
    endpoints: Vec<LocalityLbEndpoints>,
    /// What holds for all of them.
    policy: Policy,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[cfg_attr(
    feature = "schema",
    derive(schemars::JsonSchema),
    schemars(rename = "AssignmentPolicy")
)]
#[serde(default, deny_unknown_fields)]
struct Policy {
    /// Shares of requests that are dropped.
    drop_overloads: Vec<DropOverload>,
    /// Percent by which healthy hosts may stand for others, above 0. Default 140.
    overprovisioning_factor: Option<Uint<u32>>,
    /// Health of a priority by weights instead of by number of hosts.
    weighted_priority_health: bool,
    // Nobody sends updates of what stands in a file.
    /// Without effect: nobody sends updates of what stands in a file.
    endpoint_stale_after: Option<ProtoDuration>,
}

#[derive(Clone, Debug, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
struct DropOverload {
    /// Its name in load reports.
    category: String,
    /// The share.
    drop_percentage: FractionalPercent,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
struct LocalityLbEndpoints {
    /// Where they are.
    locality: LocalityYaml,
    /// Metadata of the locality.
    metadata: LocalityMetadata,
    /// The endpoints.
    lb_endpoints: Vec<LbEndpointYaml>,
    /// Weight of the locality, where localities are chosen by weights.
    load_balancing_weight: Option<Uint<u32>>,
    /// 0 is used first. Default 0.
    priority: Uint<u32>,
    /// Measured share of demand in basis points, on the assignment of the own fleet.
    observed_traffic_fraction: Option<Uint<u64>>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
struct LocalityYaml {
    /// Region.
    region: String,
    /// Zone.
    zone: String,
    /// Part of the zone.
    sub_zone: String,
}

/// `Metadata` of a locality; what filters of Envoy read is passed over.
#[derive(Clone, Debug, Default, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
struct LocalityMetadata {
    /// Metadata by reader.
    filter_metadata: LocalityFilterMetadata,
    /// Without effect: read by filters of Envoy.
    typed_filter_metadata: Option<Ignored>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
struct LocalityFilterMetadata {
    /// What balancing reads.
    #[serde(rename = "envoy.lb")]
    envoy_lb: LocalityEnvoyLb,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
struct LocalityEnvoyLb {
    /// The measured share of demand, for `fraction_source: LOCALITY_METADATA`.
    observed_traffic_fraction: Option<Double>,
}

#[derive(Clone, Debug, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
struct LbEndpointYaml {
    /// Where it is.
    endpoint: EndpointYaml,
    /// What discovery says of its health. Default `UNKNOWN`, which counts as healthy.
    #[serde(default)]
    health_status: Named<HealthStatus>,
    /// Metadata of the endpoint: what subsets are made of, and `hash_key`, which is hashed instead
    /// of the address.
    #[serde(default)]
    metadata: MetadataYaml,
    /// Its weight, at least 1. Default 1.
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
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
struct EndpointYaml {
    /// Its address.
    address: AddressYaml,
    /// What checks of it do differently.
    #[serde(default)]
    health_check_config: HealthCheckConfig,
    /// Its name, for health checks and `auto_host_sni`.
    #[serde(default)]
    hostname: String,
    /// Further addresses of the same endpoint.
    #[serde(default)]
    additional_addresses: Vec<AdditionalAddress>,
}

#[derive(Clone, Debug, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
struct AdditionalAddress {
    /// The address.
    address: AddressYaml,
}

/// `Address`: a socket and nothing else.
#[derive(Clone, Debug, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
struct AddressYaml {
    /// Host and port.
    socket_address: SocketAddressYaml,
}

#[derive(Clone, Debug, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "present so that they are known fields")]
struct SocketAddressYaml {
    /// Only `TCP`. Default `TCP`.
    protocol: Option<Named<Protocol>>,
    /// An IP address, or a name with the DNS types.
    address: String,
    /// The port.
    port_value: Uint<u32>,
    // An address of version 4 is one, whatever the socket.
    /// Without effect: an address of version 4 is one, whatever the socket.
    #[serde(default)]
    ipv4_compat: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Protocol;

impl ProtoEnum for Protocol {
    const VALUES: &'static [(&'static str, i64, Self)] = &[("TCP", 0, Self)];
}

#[derive(Clone, Debug, Default, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
struct HealthCheckConfig {
    /// Port to check instead of the endpoint's.
    port_value: Uint<u32>,
    /// Host of checks, instead of the endpoint's.
    hostname: String,
    /// Leave this endpoint unchecked.
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
        let metadata = self.metadata.into_envoy_lb().unwrap_or_default();
        Ok(NamedEndpoint {
            port: port(
                address.port_value,
                "endpoint.address.socket_address.port_value",
            )?,
            host: address.address,
            hostname: self.endpoint.hostname.into(),
            health_status: self.health_status.0,
            load_balancing_weight: number(self.load_balancing_weight),
            hash_key: hash_key(&metadata)?,
            metadata,
            extras,
        })
    }
}

/// The override of consistent hashing. Envoy would pass over one that is no text.
fn hash_key(metadata: &Metadata) -> Result<Option<Arc<str>>, FieldError> {
    match metadata.get("hash_key") {
        None => Ok(None),
        Some(MetadataValue::String(key)) => Ok(Some(Arc::clone(key))),
        Some(other) => {
            let path = "metadata.filter_metadata.envoy.lb.hash_key";
            Err(FieldError::new(path, format!("{other} is not a string")))
        }
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
