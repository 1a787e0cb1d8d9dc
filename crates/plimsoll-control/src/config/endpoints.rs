//! Endpoints in a file: Envoy's `LocalityLbEndpoints`, with a short form for the usual case.
//!
//! `lb_endpoints: ["10.0.0.1:80"]` says the same as the nested message. Checking is the core's
//! ([`LocalityParts`] go into an assignment); here text becomes addresses.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use plimsoll_core::model::assignment::{LbEndpoint, LocalityParts};
use plimsoll_core::model::health::HealthStatus;
use plimsoll_core::model::locality::Locality;
use plimsoll_core::model::metadata::{Metadata, MetadataValue};
use plimsoll_core::units::FieldError;
use plimsoll_xds::yaml::StructYaml;
use plimsoll_xds::yaml::proto_json::{Named, ProtoEnum, Uint};
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserialize, Deserializer, Error, MapAccess, Visitor};

/// Endpoints of one locality at one priority.
#[derive(Clone, Debug, serde::Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(super) struct LocalityLbEndpointsYaml {
    /// Where they are; must be spelled as the proxies spell theirs.
    #[serde(default)]
    locality: LocalityYaml,
    /// 0 is used first, and demand steers it. Default 0.
    #[serde(default)]
    priority: Uint<u32>,
    /// Weight of the locality, used where demand does not steer.
    load_balancing_weight: Option<Uint<u32>>,
    /// The endpoints: each an address with its port, or the long form.
    #[serde(default)]
    lb_endpoints: Vec<LbEndpointYaml>,
}

/// Where endpoints are.
#[derive(Clone, Debug, Default, serde::Deserialize)]
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

/// One endpoint, in the long form.
#[derive(Clone, Debug, serde::Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(super) struct LbEndpointFields {
    /// Its address, in Envoy's words.
    endpoint: Option<EndpointYaml>,
    /// Short for `endpoint.address.socket_address`.
    address: Option<String>,
    /// What proxies are told of its health. Default `UNKNOWN`, which counts as healthy.
    #[serde(default)]
    health_status: Named<HealthName>,
    /// Its weight, at least 1. Default 1.
    load_balancing_weight: Option<Uint<u32>>,
    /// What subsets are made of: only `filter_metadata.envoy.lb`.
    #[serde(default)]
    metadata: LbMetadataYaml,
}

/// `Metadata`, of which only what load balancing reads is delivered: the rest is refused.
#[derive(Clone, Debug, Default, serde::Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub(super) struct LbMetadataYaml {
    /// Metadata by reader.
    filter_metadata: LbFilterMetadataYaml,
}

#[derive(Clone, Debug, Default, serde::Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
struct LbFilterMetadataYaml {
    /// Any keys and values.
    #[serde(rename = "envoy.lb")]
    envoy_lb: Option<StructYaml>,
}

impl LbMetadataYaml {
    /// `filter_metadata["envoy.lb"]`.
    pub(super) fn into_envoy_lb(self) -> Option<Metadata> {
        self.filter_metadata.envoy_lb.map(|fields| fields.0)
    }
}

#[derive(Clone, Debug, serde::Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
struct EndpointYaml {
    /// Its address.
    address: AddressYaml,
    /// Its name.
    #[serde(default)]
    hostname: String,
}

#[derive(Clone, Debug, serde::Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
struct AddressYaml {
    /// IP address and port.
    socket_address: SocketAddressYaml,
}

#[derive(Clone, Debug, serde::Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
struct SocketAddressYaml {
    /// An IP address.
    address: String,
    /// The port.
    port_value: Uint<u32>,
}

/// One endpoint: a string or the long form.
#[derive(Clone, Debug)]
pub(super) struct LbEndpointYaml(LbEndpointFields);

#[derive(Clone, Copy, Debug, Default)]
struct HealthName(HealthStatus);

impl ProtoEnum for HealthName {
    const VALUES: &'static [(&'static str, i64, Self)] = &[
        ("UNKNOWN", 0, Self(HealthStatus::Unknown)),
        ("HEALTHY", 1, Self(HealthStatus::Healthy)),
        ("UNHEALTHY", 2, Self(HealthStatus::Unhealthy)),
        ("DRAINING", 3, Self(HealthStatus::Draining)),
        ("TIMEOUT", 4, Self(HealthStatus::Timeout)),
        ("DEGRADED", 5, Self(HealthStatus::Degraded)),
    ];
}

impl<'de> Deserialize<'de> for LbEndpointYaml {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct EndpointVisitor;

        impl<'de> Visitor<'de> for EndpointVisitor {
            type Value = LbEndpointFields;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an address such as \"10.0.0.1:80\" or an LbEndpoint")
            }

            fn visit_str<E: Error>(self, address: &str) -> Result<LbEndpointFields, E> {
                Ok(LbEndpointFields {
                    endpoint: None,
                    address: Some(address.to_owned()),
                    health_status: Named::default(),
                    load_balancing_weight: None,
                    metadata: LbMetadataYaml::default(),
                })
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<LbEndpointFields, A::Error> {
                LbEndpointFields::deserialize(MapAccessDeserializer::new(map))
            }
        }

        deserializer.deserialize_any(EndpointVisitor).map(Self)
    }
}

impl LocalityLbEndpointsYaml {
    /// What the core checks.
    pub(super) fn parts(self) -> Result<LocalityParts, FieldError> {
        let LocalityYaml {
            region,
            zone,
            sub_zone,
        } = &self.locality;
        let endpoints = self.lb_endpoints.into_iter().enumerate();
        let endpoints = endpoints.map(|(index, endpoint)| {
            let path = format!("lb_endpoints[{index}]");
            endpoint.checked().map_err(|error| error.under(&path))
        });
        Ok(LocalityParts {
            locality: Locality::new(region, zone, sub_zone),
            priority: self.priority.0,
            load_balancing_weight: self.load_balancing_weight.map(|weight| weight.0),
            lb_endpoints: endpoints.collect::<Result<_, _>>()?,
            ..Default::default()
        })
    }
}

impl LbEndpointYaml {
    fn checked(self) -> Result<LbEndpoint, FieldError> {
        let Self(fields) = self;
        let (address, hostname) = match (&fields.address, fields.endpoint) {
            (Some(address), None) => {
                let parsed = address.parse::<SocketAddr>().map_err(|_| {
                    let reason = format!("{address:?} is not an IP address and port");
                    FieldError::new("address", reason)
                })?;
                (parsed, String::new())
            }
            (None, Some(endpoint)) => (
                endpoint.address.socket_address.checked()?,
                endpoint.hostname,
            ),
            (Some(_), Some(_)) => {
                return Err(FieldError::new("address", "set twice: also in endpoint"));
            }
            (None, None) => return Err(FieldError::new("endpoint", "must be set")),
        };
        let metadata = fields.metadata.into_envoy_lb().unwrap_or_default();
        let hash_key = match metadata.get("hash_key") {
            Some(MetadataValue::String(key)) => Some(Arc::clone(key)),
            _ => None,
        };
        Ok(LbEndpoint {
            metadata,
            hash_key,
            hostname: hostname.into(),
            health_status: fields.health_status.0.0,
            load_balancing_weight: fields.load_balancing_weight.map(|weight| weight.0),
            ..LbEndpoint::new(address)
        })
    }
}

impl SocketAddressYaml {
    fn checked(&self) -> Result<SocketAddr, FieldError> {
        let path = "endpoint.address.socket_address";
        let address = self.address.parse().map_err(|_| {
            let reason = format!("{:?} is not an IP address", self.address);
            FieldError::new(format!("{path}.address"), reason)
        })?;
        let port = u16::try_from(self.port_value.0).map_err(|_| {
            let reason = format!("{} is above 65535", self.port_value.0);
            FieldError::new(format!("{path}.port_value"), reason)
        })?;
        Ok(SocketAddr::new(address, port))
    }
}
