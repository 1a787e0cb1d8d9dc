//! Endpoints in a file: Envoy's `LocalityLbEndpoints`, with a short form for the usual case.
//!
//! `lb_endpoints: ["10.0.0.1:80"]` is short for the nested message. Both forms are converted to the
//! message, which is validated by the same code as in data planes.

use std::fmt;
use std::net::SocketAddr;

use plimsoll_core::model::health::HealthStatus;
use plimsoll_core::units::FieldError;
use plimsoll_xds::pb::LocalityMessage;
use plimsoll_xds::pb::endpoint::{EndpointMessage, LbEndpointMessage, LocalityLbEndpointsMessage};
use plimsoll_xds::pb::metadata::MetadataMessage;
use plimsoll_xds::schema::file::FileMessage;
use plimsoll_xds::yaml::proto_json::{Named, Uint};
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserialize, Deserializer, Error, MapAccess, Visitor};

/// Fields of an `Endpoint` that are delivered to proxies.
pub(super) const DELIVERED: [&str; 4] = [
    "additional_addresses",
    "address",
    "health_check_config",
    "hostname",
];
/// The only key of `filter_metadata` that is delivered to proxies.
const ENVOY_LB: &str = "envoy.lb";

/// Endpoints of one locality and priority (`LocalityLbEndpoints`).
#[derive(Clone, Debug, serde::Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(super) struct LocalityLbEndpointsYaml {
    /// Region, zone and sub-zone of the endpoints, spelled as in the proxies' `node.locality`.
    #[serde(default)]
    locality: FileMessage<LocalityMessage>,
    /// Priority of the endpoints: 0 is used first, and only 0 is steered by demand. Default 0.
    #[serde(default)]
    priority: Uint<u32>,
    /// Weight of the locality, for services that are not steered by demand. Default none.
    load_balancing_weight: Option<Uint<u32>>,
    /// Endpoints, each as `IP:port` or as an object.
    #[serde(default)]
    lb_endpoints: Vec<LbEndpointYaml>,
}

/// An endpoint with its address, health and weight (`LbEndpoint`).
#[derive(Clone, Debug, Default, serde::Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub(super) struct LbEndpointFields {
    /// Address, host name and port of health checks, as in Envoy's `Endpoint`.
    #[cfg_attr(feature = "schema", schemars(schema_with = "super::schema::endpoint"))]
    endpoint: Option<FileMessage<EndpointMessage>>,
    /// Address as `IP:port`; short for `endpoint.address.socket_address`.
    address: Option<String>,
    /// Health status that is sent to proxies. Default `UNKNOWN`, which counts as healthy.
    health_status: Named<HealthStatus>,
    /// Weight of the endpoint, at least 1. Default 1.
    load_balancing_weight: Option<Uint<u32>>,
    /// Metadata for subset load balancing; only `filter_metadata.envoy.lb` is supported.
    metadata: Option<FileMessage<MetadataMessage>>,
}

/// An endpoint as a string or an object.
#[derive(Clone, Debug)]
pub(super) struct LbEndpointYaml(LbEndpointFields);

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
                    address: Some(address.to_owned()),
                    ..Default::default()
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
    /// Converts to Envoy's message; error paths are relative to this locality entry.
    pub(super) fn message(&self) -> Result<LocalityLbEndpointsMessage, FieldError> {
        let endpoints =
            self.lb_endpoints
                .iter()
                .enumerate()
                .map(|(index, LbEndpointYaml(endpoint))| {
                    let path = format!("lb_endpoints[{index}]");
                    endpoint.message().map_err(|error| error.under(&path))
                });
        Ok(LocalityLbEndpointsMessage {
            locality: Some(self.locality.message()?),
            priority: self.priority.0,
            load_balancing_weight: self.load_balancing_weight.map(|weight| weight.0),
            lb_endpoints: endpoints.collect::<Result<_, _>>()?,
            ..Default::default()
        })
    }
}

impl LbEndpointFields {
    fn message(&self) -> Result<LbEndpointMessage, FieldError> {
        let endpoint = match (&self.address, &self.endpoint) {
            (Some(address), None) => from_address(address)?,
            (None, Some(endpoint)) => {
                check_delivered(endpoint).map_err(|error| error.under("endpoint"))?
            }
            (Some(_), Some(_)) => {
                return Err(FieldError::new(
                    "address",
                    "cannot be combined with endpoint",
                ));
            }
            (None, None) => return Err(FieldError::new("endpoint", "must be set")),
        };
        let metadata = self.metadata.as_ref().map(envoy_lb).transpose();
        Ok(LbEndpointMessage {
            endpoint: Some(endpoint),
            // The variants of `HealthStatus` are in the order of the protobuf numbers.
            health_status: self.health_status.0 as i32,
            metadata: metadata.map_err(|error| error.under("metadata"))?,
            load_balancing_weight: self.load_balancing_weight.map(|weight| weight.0),
        })
    }
}

fn from_address(address: &str) -> Result<EndpointMessage, FieldError> {
    let parsed: SocketAddr = address.parse().map_err(|_| {
        let is_name = |(name, port): (&str, &str)| !name.is_empty() && port.parse::<u16>().is_ok();
        let reason = if address.rsplit_once(':').is_some_and(is_name) {
            format!("{address:?} is not an IP address and port; names are not resolved")
        } else {
            format!("{address:?} is not an IP address and port")
        };
        FieldError::new("address", reason)
    })?;
    Ok(EndpointMessage {
        address: Some(parsed.into()),
        ..Default::default()
    })
}

fn check_delivered(written: &FileMessage<EndpointMessage>) -> Result<EndpointMessage, FieldError> {
    let mut fields = written.field_names();
    match fields.find(|field| !DELIVERED.contains(field)) {
        Some(field) => Err(not_delivered(field)),
        None => written.message(),
    }
}

/// Returns the metadata; an error if it has keys that are not delivered to proxies.
fn envoy_lb(written: &FileMessage<MetadataMessage>) -> Result<MetadataMessage, FieldError> {
    let metadata = written.message()?;
    match metadata.filter_metadata.keys().find(|key| *key != ENVOY_LB) {
        Some(key) => Err(not_delivered(&format!("filter_metadata[{key}]"))),
        None => Ok(metadata),
    }
}

fn not_delivered(field: &str) -> FieldError {
    FieldError::new(
        field,
        "is not delivered by this control plane; a relay passes it through",
    )
}
