//! The protobuf messages we read and write, declared by hand and reduced to the fields we use.
//!
//! By hand instead of generated for the whole API: what we do not read is skipped without being
//! built (60 KB of extensions in a node), fields that only we have stand beside the others, and a
//! build does not compile 1,500 messages. Names and numbers are Envoy's; tests hold them against
//! bytes that other implementations wrote. Here are the messages that several files share; the
//! others are one file per package. Wrappers of `google.protobuf` are the plain types, as in prost:
//! `Option<u32>` is a `UInt32Value`, `()` an empty message.

pub(crate) mod cluster;
pub(crate) mod discovery;
pub(crate) mod endpoint;
pub(crate) mod listener;
pub(crate) mod load_stats;
pub(crate) mod metadata;
pub(crate) mod policy;
pub(crate) mod route;
pub(crate) mod subset;
pub(crate) mod tls;
pub(crate) mod upstream;

use std::time::Duration;

use bytes::Bytes;
use plimsoll_core::model::locality::Locality;
use plimsoll_core::units::FieldError;
use prost::Message;

/// `google.protobuf.Duration`.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub(crate) struct DurationMessage {
    #[prost(int64, tag = "1")]
    pub(crate) seconds: i64,
    #[prost(int32, tag = "2")]
    pub(crate) nanos: i32,
}

/// Longest duration a protobuf can name: 10,000 years.
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
    /// The value; negative ones and those out of the message's range are errors at `path`.
    pub(crate) fn checked(self, path: &str) -> Result<Duration, FieldError> {
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

/// An optional duration; the error is at `path`.
pub(crate) fn duration(
    message: Option<DurationMessage>,
    path: &str,
) -> Result<Option<Duration>, FieldError> {
    message.map(|message| message.checked(path)).transpose()
}

/// An error at the first field that is set and would be passed over in silence.
pub(crate) fn refuse(fields: &[(&str, bool)]) -> Result<(), FieldError> {
    match fields.iter().find(|(_, set)| *set) {
        Some((field, _)) => Err(FieldError::new(*field, "is not supported")),
        None => Ok(()),
    }
}

/// What was checked, or its error seen from one level further out.
pub(crate) fn under<T>(
    checked: Option<Result<T, FieldError>>,
    field: &str,
) -> Result<Option<T>, FieldError> {
    checked.transpose().map_err(|error| error.under(field))
}

/// `google.protobuf.Any`.
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct AnyMessage {
    #[prost(string, tag = "1")]
    pub(crate) type_url: String,
    #[prost(bytes = "bytes", tag = "2")]
    pub(crate) value: Bytes,
}

impl AnyMessage {
    /// `message` as an `Any` of the type with that full name.
    pub(crate) fn pack(full_name: &str, message: &impl Message) -> Self {
        Self {
            type_url: format!("type.googleapis.com/{full_name}"),
            value: message.encode_to_vec().into(),
        }
    }

    /// Full name of the type.
    pub(crate) fn type_name(&self) -> &str {
        let name = self.type_url.rsplit_once('/').map(|(_, name)| name);
        name.unwrap_or(&self.type_url)
    }

    /// The message; the path of an error is empty.
    pub(crate) fn unpack<M: Message + Default>(&self) -> Result<M, FieldError> {
        M::decode(self.value.clone()).map_err(|error| FieldError::new("", error.to_string()))
    }
}

/// `envoy.config.core.v3.Locality`.
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct LocalityMessage {
    #[prost(string, tag = "1")]
    pub(crate) region: String,
    #[prost(string, tag = "2")]
    pub(crate) zone: String,
    #[prost(string, tag = "3")]
    pub(crate) sub_zone: String,
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

/// `envoy.config.core.v3.Address`; a pipe or an internal listener reads as nothing.
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct AddressMessage {
    #[prost(message, optional, tag = "1")]
    pub(crate) socket_address: Option<SocketAddressMessage>,
}

/// `envoy.config.core.v3.SocketAddress`.
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct SocketAddressMessage {
    #[prost(int32, tag = "1")]
    pub(crate) protocol: i32,
    #[prost(string, tag = "2")]
    pub(crate) address: String,
    #[prost(uint32, optional, tag = "3")]
    pub(crate) port_value: Option<u32>,
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

/// `envoy.config.core.v3.ConfigSource`.
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct ConfigSourceMessage {
    #[prost(string, tag = "1")]
    pub(crate) path: String,
    #[prost(message, optional, tag = "3")]
    pub(crate) ads: Option<()>,
    /// `self`.
    #[prost(message, optional, tag = "5")]
    pub(crate) this_server: Option<()>,
    #[prost(int32, tag = "6")]
    pub(crate) resource_api_version: i32,
    #[prost(message, optional, tag = "8")]
    pub(crate) path_config_source: Option<PathConfigSourceMessage>,
}

/// `envoy.config.core.v3.PathConfigSource`.
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct PathConfigSourceMessage {
    #[prost(string, tag = "1")]
    pub(crate) path: String,
}

/// `ApiVersion.V3`.
const V3: i32 = 2;

impl ConfigSourceMessage {
    /// `ads: {}` in version 3.
    pub(crate) const fn ads() -> Self {
        Self {
            path: String::new(),
            ads: Some(()),
            this_server: None,
            resource_api_version: V3,
            path_config_source: None,
        }
    }

    /// `self: {}` in version 3.
    pub(crate) const fn this_server() -> Self {
        Self {
            path: String::new(),
            ads: None,
            this_server: Some(()),
            resource_api_version: V3,
            path_config_source: None,
        }
    }
}

/// `envoy.type.v3.Percent`.
#[derive(Clone, Copy, PartialEq, Message)]
pub(crate) struct PercentMessage {
    #[prost(double, tag = "1")]
    pub(crate) value: f64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_checked_and_cut() {
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
        let cut = DurationMessage::from(Duration::from_secs(u64::MAX));
        assert_eq!(cut, message(MAX_SECONDS, 0));
    }
}
