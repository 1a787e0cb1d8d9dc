//! Protobuf messages of the xDS API, each declared once and reduced to the supported fields.
//!
//! They are written by hand instead of generated: unsupported fields are skipped without being
//! decoded (a node carries 60 KB of extensions), Plimsoll's own fields sit next to Envoy's, and a
//! build does not compile 1,500 messages. Names and numbers are Envoy's; tests compare them with
//! bytes written by other implementations and with the descriptors of released Envoys.
//! `#[derive(Described)]` generates the descriptors for reading files, printing and documentation;
//! doc comments of fields appear in the reference pages. `google.protobuf` wrappers are plain
//! types, as in prost: `Option<u32>` is a `UInt32Value`, `()` an empty message.
//!
//! Plimsoll's own fields use the numbers of the design that they come from, or numbers from 50001
//! on, a range that no public definition uses.

#![allow(missing_docs, reason = "fields are named as in the specifications")]

pub mod access_log;
pub mod cluster;
pub mod cors;
pub mod discovery;
pub mod endpoint;
pub mod enums;
pub mod health_check;
pub mod http_filter;
pub mod listener;
pub mod load_stats;
pub mod metadata;
pub mod mirror;
pub mod policy;
pub mod replica;
pub mod route;
pub mod subset;
pub mod tls;
pub mod trace;
pub mod upstream;

use std::time::Duration;

use bytes::Bytes;
use plimsoll_core::model::locality::Locality;
use plimsoll_core::units::FieldError;
use plimsoll_schema_derive::Described;
use prost::Message;

use self::enums::{ApiVersion, SocketProtocol};
use crate::{FieldType, Kind, ProtoEnum};

/// `google.protobuf.Duration`: a signed time span.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct DurationMessage {
    #[prost(int64, tag = "1")]
    pub seconds: i64,
    #[prost(int32, tag = "2")]
    pub nanos: i32,
}

impl FieldType for DurationMessage {
    const KIND: Kind = Kind::Duration;
}

/// Upper limit of `google.protobuf.Duration`: about 10,000 years.
const MAX_SECONDS: i64 = 315_576_000_000;

impl From<Duration> for DurationMessage {
    fn from(duration: Duration) -> Self {
        let seconds = i64::try_from(duration.as_secs()).unwrap_or(MAX_SECONDS);
        Self {
            seconds: seconds.min(MAX_SECONDS),
            nanos: duration.subsec_nanos().cast_signed(),
        }
    }
}

impl DurationMessage {
    /// Converts to a `Duration`; negative and out-of-range values are errors at `path`.
    pub fn checked(self, path: &str) -> Result<Duration, FieldError> {
        let seconds = u64::try_from(self.seconds).ok();
        let nanos = u32::try_from(self.nanos).ok();
        match (seconds, nanos) {
            (Some(seconds), Some(nanos @ ..1_000_000_000)) if self.seconds <= MAX_SECONDS => {
                Ok(Duration::new(seconds, nanos))
            }
            _ => {
                let reason = format!(
                    "{} s and {} ns is not a duration of at least 0",
                    self.seconds, self.nanos
                );
                Err(FieldError::new(path, reason))
            }
        }
    }
}

/// Converts an optional duration; invalid values are errors at `path`.
pub fn duration(
    message: Option<DurationMessage>,
    path: &str,
) -> Result<Option<Duration>, FieldError> {
    message.map(|message| message.checked(path)).transpose()
}

/// Fails at the first `(field, is_set)` pair that is set: the field is not supported.
pub fn refuse_set(fields: &[(&str, bool)]) -> Result<(), FieldError> {
    match fields.iter().find(|(_, set)| *set) {
        Some((field, _)) => Err(FieldError::new(*field, "is not supported")),
        None => Ok(()),
    }
}

/// Returns the enum value of a number; an unknown number is an error at `path`.
pub fn named<T: ProtoEnum>(number: i32, path: &str) -> Result<T, FieldError> {
    let mut values = T::VALUES.iter();
    let found = values.find(|(_, known, _)| *known == i64::from(number));
    found.map(|&(_, _, value)| value).ok_or_else(|| {
        let names: Vec<_> = T::VALUES.iter().map(|(name, ..)| *name).collect();
        let reason = format!(
            "unknown value {number}, expected one of {}",
            names.join(", ")
        );
        FieldError::new(path, reason)
    })
}

/// Transposes an optional result and prepends `field` to the path of its error.
pub fn under<T>(
    checked: Option<Result<T, FieldError>>,
    field: &str,
) -> Result<Option<T>, FieldError> {
    checked.transpose().map_err(|error| error.under(field))
}

/// `google.protobuf.Any`: a message of any type.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct AnyMessage {
    #[prost(string, tag = "1")]
    pub type_url: String,
    #[prost(bytes = "bytes", tag = "2")]
    pub value: Bytes,
}

impl FieldType for AnyMessage {
    const KIND: Kind = Kind::Any(|| &[]);
}

impl AnyMessage {
    /// Packs `message` into an `Any` with that full type name.
    pub fn pack(full_name: &str, message: &impl Message) -> Self {
        Self {
            type_url: format!("type.googleapis.com/{full_name}"),
            value: message.encode_to_vec().into(),
        }
    }

    /// Returns the full name of the packed type.
    pub fn type_name(&self) -> &str {
        let name = self.type_url.rsplit_once('/').map(|(_, name)| name);
        name.unwrap_or(&self.type_url)
    }

    /// Decodes the packed message; errors have an empty path.
    pub fn unpack<M: Message + Default>(&self) -> Result<M, FieldError> {
        M::decode(self.value.clone()).map_err(|error| FieldError::new("", error.to_string()))
    }
}

/// `envoy.config.core.v3.Locality`: where a host or proxy runs.
#[derive(Clone, PartialEq, Eq, Message, Described)]
#[schema(name = "envoy.config.core.v3.Locality")]
pub struct LocalityMessage {
    /// Region of the locality.
    #[prost(string, tag = "1")]
    pub region: String,
    /// Zone of the locality, also called availability zone.
    #[prost(string, tag = "2")]
    pub zone: String,
    /// Subdivision of the zone.
    #[prost(string, tag = "3")]
    pub sub_zone: String,
}

impl From<&Locality> for LocalityMessage {
    fn from(locality: &Locality) -> Self {
        Self {
            region: locality.region().to_owned(),
            zone: locality.zone().to_owned(),
            sub_zone: locality.sub_zone().to_owned(),
        }
    }
}

impl From<LocalityMessage> for Locality {
    fn from(message: LocalityMessage) -> Self {
        Self::new(&message.region, &message.zone, &message.sub_zone)
    }
}

/// `envoy.config.core.v3.Address`; pipes and internal listeners are not supported and read as
/// unset.
#[derive(Clone, PartialEq, Eq, Message, Described)]
#[schema(name = "envoy.config.core.v3.Address")]
#[schema(harmless = "2 pipe, 3 envoy_internal_address")]
pub struct AddressMessage {
    /// IP address or DNS name, and port. Must be set.
    #[prost(message, optional, tag = "1")]
    pub socket_address: Option<SocketAddressMessage>,
}

/// `envoy.config.core.v3.SocketAddress`: a TCP address.
#[derive(Clone, PartialEq, Eq, Message, Described)]
#[schema(name = "envoy.config.core.v3.SocketAddress")]
#[schema(harmless = "4 named_port")]
#[schema(unused = "6 ipv4_compat")]
#[schema(changes_request = "7 network_namespace_filepath")]
#[schema(changes_host = "5 resolver_name")]
pub struct SocketAddressMessage {
    /// Transport protocol; only `TCP` is supported. Default `TCP`.
    #[prost(int32, tag = "1")]
    #[schema(values = SocketProtocol)]
    pub protocol: i32,
    /// IP address; in clusters of type `STRICT_DNS` or `LOGICAL_DNS` a DNS name. Must be set.
    #[prost(string, tag = "2")]
    pub address: String,
    /// Port number. Must be set.
    #[prost(uint32, optional, tag = "3")]
    pub port_value: Option<u32>,
}

impl From<std::net::SocketAddr> for AddressMessage {
    fn from(address: std::net::SocketAddr) -> Self {
        Self {
            socket_address: Some(SocketAddressMessage {
                protocol: 0,
                address: address.ip().to_string(),
                port_value: Some(u32::from(address.port())),
            }),
        }
    }
}

/// `envoy.config.core.v3.ConfigSource`: where a resource comes from.
#[derive(Clone, PartialEq, Eq, Message, Described)]
#[schema(name = "envoy.config.core.v3.ConfigSource")]
#[schema(unused = "7 authorities")]
pub struct ConfigSourceMessage {
    /// Deprecated spelling of `path_config_source.path`.
    #[prost(string, tag = "1")]
    pub path: String,
    /// Subscribe to the resource on the server of a cluster.
    #[prost(message, optional, tag = "2")]
    #[schema(unread = "harmless")]
    pub api_config_source: Option<ApiConfigSourceMessage>,
    /// Subscribe to the resource on the configured management server (ADS).
    #[prost(message, optional, tag = "3")]
    pub ads: Option<()>,
    /// Time to wait for the resource; `0s` waits forever. Default `15s`.
    #[prost(message, optional, tag = "4")]
    #[schema(unread = "unused")]
    pub initial_fetch_timeout: Option<DurationMessage>,
    /// Subscribe to the resource on the server that sent this configuration.
    #[prost(message, optional, tag = "5")]
    #[schema(name = "self", opaque)]
    pub this_server: Option<()>,
    /// Version of the xDS API; ignored, only version 3 is supported.
    #[prost(int32, tag = "6")]
    #[schema(values = ApiVersion)]
    pub resource_api_version: i32,
    /// Read the resource from a file and reload it when the file changes.
    #[prost(message, optional, tag = "8")]
    pub path_config_source: Option<PathConfigSourceMessage>,
}

/// `envoy.config.core.v3.PathConfigSource`: a resource in a file.
#[derive(Clone, PartialEq, Eq, Message, Described)]
#[schema(name = "envoy.config.core.v3.PathConfigSource")]
pub struct PathConfigSourceMessage {
    /// Path of a file with a `ClusterLoadAssignment`. Must be set.
    #[prost(string, tag = "1")]
    pub path: String,
    /// Directory whose moves reload the file.
    #[prost(message, optional, tag = "2")]
    #[schema(unread = "harmless")]
    pub watched_directory: Option<tls::WatchedDirectoryMessage>,
}

/// `ApiConfigSource`: a management server of its own.
#[derive(Clone, PartialEq, Eq, Message, Described)]
#[schema(name = "envoy.config.core.v3.ApiConfigSource")]
#[schema(
    changes_request = "3 refresh_delay, 5 request_timeout, 6 rate_limit_settings, \
          9 config_validators"
)]
pub struct ApiConfigSourceMessage {
    /// Protocol variant of the server.
    #[prost(int32, tag = "1")]
    #[schema(values = enums::ApiType)]
    pub api_type: i32,
    /// Servers of `api_type: REST`, by the names of their clusters.
    #[prost(string, repeated, tag = "2")]
    pub cluster_names: Vec<String>,
    /// Servers of the other types; the first that works is used.
    #[prost(message, repeated, tag = "4")]
    pub grpc_services: Vec<GrpcServiceMessage>,
    /// Send the node only with the first request of a stream.
    #[prost(bool, tag = "7")]
    pub set_node_on_first_message_only: bool,
    /// Version of the xDS transport protocol; must be `V3`.
    #[prost(int32, tag = "8")]
    #[schema(values = ApiVersion)]
    pub transport_api_version: i32,
}

/// `GrpcService`: a gRPC server.
#[derive(Clone, PartialEq, Eq, Message, Described)]
#[schema(name = "envoy.config.core.v3.GrpcService")]
#[schema(changes_request = "2 google_grpc, 5 initial_metadata, 6 retry_policy")]
pub struct GrpcServiceMessage {
    /// The server, by the name of its cluster.
    #[prost(message, optional, tag = "1")]
    pub envoy_grpc: Option<EnvoyGrpcMessage>,
    /// Timeout of a request.
    #[prost(message, optional, tag = "3")]
    pub timeout: Option<DurationMessage>,
}

/// `GrpcService.EnvoyGrpc`: a gRPC server, by the name of its cluster.
#[derive(Clone, PartialEq, Eq, Message, Described)]
#[schema(name = "envoy.config.core.v3.GrpcService.EnvoyGrpc")]
#[schema(changes_request = "3 retry_policy, 4 max_receive_message_length, \
          5 skip_envoy_headers")]
pub struct EnvoyGrpcMessage {
    /// Name of the cluster. Must be set.
    #[prost(string, tag = "1")]
    pub cluster_name: String,
    /// `:authority` of requests. Default the name of the cluster.
    #[prost(string, tag = "2")]
    pub authority: String,
}

const V3: i32 = 2;

impl ConfigSourceMessage {
    /// Creates `ads: {}` for version 3 of the API.
    pub const fn ads() -> Self {
        Self {
            path: String::new(),
            api_config_source: None,
            ads: Some(()),
            initial_fetch_timeout: None,
            this_server: None,
            resource_api_version: V3,
            path_config_source: None,
        }
    }

    /// Creates `self: {}` for version 3 of the API.
    pub const fn this_server() -> Self {
        Self {
            path: String::new(),
            api_config_source: None,
            ads: None,
            initial_fetch_timeout: None,
            this_server: Some(()),
            resource_api_version: V3,
            path_config_source: None,
        }
    }
}

/// `envoy.type.v3.Percent`: a percentage from 0 to 100.
#[derive(Clone, Copy, PartialEq, Message, Described)]
#[schema(name = "envoy.type.v3.Percent")]
pub struct PercentMessage {
    /// The percentage, from 0 to 100.
    #[prost(double, tag = "1")]
    pub value: f64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_checked_and_clamped() {
        let message = |seconds, nanos| DurationMessage { seconds, nanos };
        let half = message(1, 500_000_000).checked("x").unwrap();
        assert_eq!(half, Duration::from_millis(1500));
        for bad in [
            message(-1, 0),
            message(0, -1),
            message(0, 1_000_000_000),
            message(MAX_SECONDS + 1, 0),
        ] {
            assert_eq!(bad.checked("a.b").unwrap_err().path(), "a.b", "{bad:?}");
        }
        let clamped = DurationMessage::from(Duration::from_secs(u64::MAX));
        assert_eq!(clamped, message(MAX_SECONDS, 0));
    }
}
