//! Edits weights, priorities and traffic fractions of an encoded assignment, and keeps everything
//! else.
//!
//! A relay must not lose fields it does not know, so this works on encoded fields instead of prost
//! messages.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use bytes::{Bytes, BytesMut};
use plimsoll_core::model::health::HealthStatus;
use plimsoll_core::model::locality::Locality;
use prost::Message;

use super::{put_draining, socket_address};
use plimsoll_schema::error::DecodeError;
use plimsoll_schema::field::{RawField, put_field, raw_fields};
use plimsoll_schema::pb::endpoint::{EndpointMessage, LocalityKeyMessage};
use plimsoll_schema::pb::metadata::MetadataMessage;

/// Field numbers of `LocalityLbEndpoints` and of `LbEndpoint`.
const LB_ENDPOINTS: u32 = 2;
const LOCALITY_WEIGHT: u32 = 3;
const PRIORITY: u32 = 5;
const FRACTION: u32 = 10;
const ENDPOINT: u32 = 1;
const ENDPOINT_METADATA: u32 = 3;
const ENDPOINT_WEIGHT: u32 = 4;
/// Field number of `ClusterLoadAssignment.endpoints`.
const ENDPOINTS: u32 = 2;

/// Edit of one field.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Edit {
    #[default]
    Keep,
    Remove,
    /// Weights of 0 are rejected by every client.
    Set(u32),
}

/// Edits of a locality.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LocalityEdit {
    pub load_balancing_weight: Edit,
    /// Priorities must stay without gaps: clients reject others.
    pub priority: Edit,
    /// Field 10. Set it only for clients that announce support for it (decision 0028).
    pub observed_traffic_fraction: Edit,
}

/// Edits of an assignment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AssignmentEdits {
    /// By priority and locality.
    pub localities: BTreeMap<(u32, Locality), LocalityEdit>,
    pub other_localities: LocalityEdit,
    /// `load_balancing_weight` of endpoints, by address; other endpoints keep theirs.
    pub endpoint_weights: BTreeMap<SocketAddr, u32>,
    /// As [`AssignmentOut::draining_in_metadata`](super::AssignmentOut::draining_in_metadata): for
    /// the module inside Envoy.
    pub draining_in_metadata: bool,
}

/// Applies the edits. All other bytes stay unchanged and in order; a new value is appended to the
/// end of its message.
pub fn rewrite_assignment(original: &[u8], edits: &AssignmentEdits) -> Result<Bytes, DecodeError> {
    let mut out = BytesMut::with_capacity(original.len() + 16 * edits.localities.len());
    let mut index = 0;
    for field in raw_fields(original) {
        let field = field?;
        if field.number == ENDPOINTS && field.is_length_delimited {
            let locality = rewrite_locality(field.value, edits);
            let path = || format!("endpoints[{index}]");
            put_field(
                &mut out,
                ENDPOINTS,
                &locality.map_err(|error| error.under(&path()))?,
            );
            index += 1;
        } else {
            out.extend_from_slice(field.raw);
        }
    }
    Ok(out.freeze())
}

fn rewrite_locality(original: &[u8], edits: &AssignmentEdits) -> Result<Vec<u8>, DecodeError> {
    let key = LocalityKeyMessage::decode(original)?;
    let locality = key.locality.map(Into::into).unwrap_or_default();
    let edit = edits
        .localities
        .get(&(key.priority, locality))
        .unwrap_or(&edits.other_localities);
    let mut out = Vec::with_capacity(original.len() + 16);
    let mut index = 0;
    for field in raw_fields(original) {
        let field = field?;
        match field.number {
            LB_ENDPOINTS if field.is_length_delimited => {
                let path = || format!("lb_endpoints[{index}]");
                put_endpoint(&mut out, &field, edits).map_err(|error| error.under(&path()))?;
                index += 1;
            }
            LOCALITY_WEIGHT if edit.load_balancing_weight != Edit::Keep => {}
            PRIORITY if edit.priority != Edit::Keep => {}
            FRACTION if edit.observed_traffic_fraction != Edit::Keep => {}
            _ => out.extend_from_slice(field.raw),
        }
    }
    for (number, edit) in [
        (LOCALITY_WEIGHT, edit.load_balancing_weight),
        (FRACTION, edit.observed_traffic_fraction),
    ] {
        if let Edit::Set(value) = edit {
            put_field(&mut out, number, &value.encode_to_vec());
        }
    }
    if let Edit::Set(priority) = edit.priority {
        prost::encoding::uint32::encode(PRIORITY, &priority, &mut out);
    }
    Ok(out)
}

fn put_endpoint(
    out: &mut Vec<u8>,
    original: &RawField<'_>,
    edits: &AssignmentEdits,
) -> Result<(), DecodeError> {
    let weight = match address(original.value)? {
        Some(address) => edits.endpoint_weights.get(&address),
        None => None,
    };
    let marks_draining = edits.draining_in_metadata && is_draining(original.value)?;
    if weight.is_none() && !marks_draining {
        out.extend_from_slice(original.raw);
        return Ok(());
    }
    let mut endpoint = Vec::with_capacity(original.value.len() + 8);
    for field in raw_fields(original.value) {
        let field = field?;
        if field.number != ENDPOINT_WEIGHT || weight.is_none() {
            endpoint.extend_from_slice(field.raw);
        }
    }
    if let Some(weight) = weight {
        put_field(&mut endpoint, ENDPOINT_WEIGHT, &weight.encode_to_vec());
    }
    if marks_draining {
        // Readers merge it with the metadata that the endpoint has.
        let mut metadata = MetadataMessage::default();
        put_draining(&mut metadata);
        put_field(&mut endpoint, ENDPOINT_METADATA, &metadata.encode_to_vec());
    }
    put_field(out, LB_ENDPOINTS, &endpoint);
    Ok(())
}

fn is_draining(lb_endpoint: &[u8]) -> Result<bool, DecodeError> {
    let health = EndpointHealthMessage::decode(lb_endpoint)?;
    Ok(health.health_status == HealthStatus::Draining as i32)
}

/// Field 2 of an `LbEndpoint`, so that the others need not be decoded.
#[derive(Clone, PartialEq, Eq, Message)]
struct EndpointHealthMessage {
    #[prost(int32, tag = "2")]
    health_status: i32,
}

/// Returns the address of an endpoint, if it is an IP address that a weight can refer to.
fn address(lb_endpoint: &[u8]) -> Result<Option<SocketAddr>, DecodeError> {
    let mut address = None;
    for field in raw_fields(lb_endpoint) {
        let field = field?;
        if field.number == ENDPOINT && field.is_length_delimited {
            let endpoint = EndpointMessage::decode(field.value)?;
            address = endpoint
                .address
                .and_then(|address| socket_address(address).ok());
        }
    }
    Ok(address)
}
