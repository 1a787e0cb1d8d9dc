//! Conversion between protobuf messages and the types of the core and of the protocols.
//!
//! Message types are used in this folder only; callers see bytes or checked types. `wire`
//! re-exports the public functions.

pub(crate) mod assignment;
pub(crate) mod cluster;
pub(crate) mod decode_listener;
pub(crate) mod discovery;
pub(crate) mod encode_listener;
mod filter_config;
#[cfg(test)]
mod hex;
pub(crate) mod host_stats;
pub(crate) mod load_assignment;
pub(crate) mod load_report;
mod matcher;
pub(crate) mod node;
pub(crate) mod replica;
pub(crate) mod route;
mod route_match;

use plimsoll_core::units::FieldError;
use plimsoll_schema::ProtoEnum;
use plimsoll_schema::error::DecodeError;
use plimsoll_schema::pb::named;
use prost::Message;

/// Handling of fields that would have no effect. A server also sends fields meant for other
/// clients, so messages of a server are read as Envoy and gRPC read them; a person expects every
/// field in a file to take effect, so there a field without effect is an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Strictness {
    Lenient,
    Strict,
}

impl Strictness {
    /// In a file, rejects `field` if it `is_set`.
    fn reject(self, is_set: bool, field: &str, reason: &str) -> Result<(), FieldError> {
        match self {
            Self::Strict if is_set => Err(FieldError::new(field, reason)),
            _ => Ok(()),
        }
    }
}

fn decode_resource<M: Message + Default>(bytes: &[u8]) -> Result<M, DecodeError> {
    trace_decode::<M>(bytes);
    Ok(M::decode(bytes)?)
}

/// Emits a trace event per decoded resource, which tests count.
#[cfg_attr(not(feature = "driver"), expect(clippy::extra_unused_type_parameters))]
fn trace_decode<M>(bytes: &[u8]) {
    #[cfg(feature = "driver")]
    {
        let (resource, bytes) = (std::any::type_name::<M>(), bytes.len());
        plimsoll_core::log_line!(crate::log_lines::RESOURCE_DECODED, resource, bytes);
    }
    #[cfg(not(feature = "driver"))]
    let _ = bytes;
}

/// Returns the one candidate of a oneof that is set. More than one is an error in messages of a
/// server too: no protobuf implementation writes that.
fn exactly_one<T, const N: usize>(
    candidates: [Option<T>; N],
    reason: &str,
) -> Result<T, FieldError> {
    let mut given = candidates.into_iter().flatten();
    match (given.next(), given.next()) {
        (Some(value), None) => Ok(value),
        _ => Err(FieldError::new("", reason)),
    }
}

fn number<T: ProtoEnum + PartialEq>(value: T) -> i32 {
    let mut values = T::VALUES.iter();
    let found = values.find(|(_, _, known)| *known == value);
    found.map_or(0, |&(_, number, _)| i32::try_from(number).unwrap_or(0))
}
