//! Removal of fields that are declared and not read, from a message for our own data planes.

use bytes::BufMut as _;
use prost::Message as _;

use crate::error::DecodeError;
use crate::field::{put_field, raw_fields};
use crate::pb::AnyMessage;
use crate::{Descriptor, Kind, Label, by_name};

/// Returns the message without the fields that our readers do not read, at any depth. All other
/// bytes stay unchanged and in order.
pub fn without_unread(bytes: &[u8], descriptor: &Descriptor) -> Result<Vec<u8>, DecodeError> {
    let mut out = Vec::with_capacity(bytes.len());
    for raw in raw_fields(bytes) {
        let raw = raw?;
        match descriptor.field(raw.number) {
            Some(field) if field.unread.is_some() => {}
            Some(field) if raw.is_length_delimited && has_fields(field.kind) => {
                let value = match field.label {
                    Label::Map => without_in_entry(raw.value, field.kind)?,
                    Label::One | Label::Many => nested(raw.value, field.kind)?,
                };
                put_field(&mut out, raw.number, &value);
            }
            _ => out.put_slice(raw.raw),
        }
    }
    Ok(out)
}

const fn has_fields(kind: Kind) -> bool {
    matches!(kind, Kind::Message(_) | Kind::Any(_))
}

fn without_in_entry(entry: &[u8], kind: Kind) -> Result<Vec<u8>, DecodeError> {
    let mut out = Vec::with_capacity(entry.len());
    for raw in raw_fields(entry) {
        let raw = raw?;
        match raw.number {
            2 => put_field(&mut out, 2, &nested(raw.value, kind)?),
            _ => out.put_slice(raw.raw),
        }
    }
    Ok(out)
}

fn nested(value: &[u8], kind: Kind) -> Result<Vec<u8>, DecodeError> {
    match kind {
        Kind::Message(descriptor) => without_unread(value, descriptor()),
        Kind::Any(_) => {
            let mut any = AnyMessage::decode(value)?;
            if let Some(descriptor) = by_name(any.type_name()) {
                any.value = without_unread(&any.value, descriptor)?.into();
            }
            Ok(any.encode_to_vec())
        }
        _ => Ok(value.to_vec()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Described as _;
    use crate::pb::cluster::ClusterMessage;
    use crate::pb::tls::UpstreamTlsMessage;
    use crate::pb::upstream::{CircuitBreakersMessage, ThresholdsMessage, TransportSocketMessage};

    #[test]
    fn unread_fields_are_removed_at_any_depth_and_nothing_else() {
        let thresholds = |track_remaining| ThresholdsMessage {
            max_requests: Some(7),
            track_remaining,
            ..Default::default()
        };
        let socket = |max_session_keys| {
            let context = UpstreamTlsMessage {
                sni: "orders".to_owned(),
                max_session_keys,
                ..Default::default()
            };
            TransportSocketMessage {
                name: "tls".to_owned(),
                typed_config: Some(AnyMessage::pack(
                    UpstreamTlsMessage::DESCRIPTOR.name,
                    &context,
                )),
            }
        };
        let cluster = |is_whole: bool| ClusterMessage {
            name: "orders".to_owned(),
            per_connection_buffer_limit_bytes: is_whole.then_some(1),
            circuit_breakers: Some(CircuitBreakersMessage {
                thresholds: vec![thresholds(is_whole), thresholds(is_whole)],
                per_host_thresholds: vec![thresholds(false); usize::from(is_whole)],
            }),
            transport_socket: Some(socket(is_whole.then_some(3))),
            ..Default::default()
        };
        let bytes = cluster(true).encode_to_vec();
        let kept = without_unread(&bytes, ClusterMessage::DESCRIPTOR).unwrap();
        assert_eq!(ClusterMessage::decode(&*kept).unwrap(), cluster(false));
        let same = without_unread(&kept, ClusterMessage::DESCRIPTOR).unwrap();
        assert_eq!(same, kept);
    }
}
