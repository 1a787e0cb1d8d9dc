//! Other weights and fractions in the assignment of somebody else, everything else as it was.
//!
//! A relay must not lose what it does not know, so this works on the fields of the message, not on
//! what prost would keep of it.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use bytes::{Bytes, BytesMut};
use plimsoll_core::model::locality::Locality;
use prost::Message;

use super::super::field::{Field, fields, put_field};
use super::super::pb::endpoint::{EndpointMessage, LocalityKeyMessage};
use super::socket_address;
use crate::error::DecodeError;

/// Fields of `LocalityLbEndpoints` and of `LbEndpoint`.
const LB_ENDPOINTS: u32 = 2;
const LOCALITY_WEIGHT: u32 = 3;
const FRACTION: u32 = 10;
const ENDPOINT: u32 = 1;
const ENDPOINT_WEIGHT: u32 = 4;
/// `ClusterLoadAssignment.endpoints`.
const ENDPOINTS: u32 = 2;

/// What happens to a field.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Edit {
    /// It stays as it is, there or not.
    #[default]
    Keep,
    /// It goes.
    Remove,
    /// It gets this value. Weights of 0 are refused by every receiver.
    Set(u32),
}

/// What happens to a locality.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LocalityEdit {
    /// `load_balancing_weight`.
    pub load_balancing_weight: Edit,
    /// Field 10. Set it only for receivers that have announced it (decisions D9).
    pub observed_traffic_fraction: Edit,
}

/// What happens to an assignment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AssignmentEdits {
    /// By priority and locality.
    pub localities: BTreeMap<(u32, Locality), LocalityEdit>,
    /// For all other localities.
    pub other_localities: LocalityEdit,
    /// `load_balancing_weight` of endpoints, by address; the others keep theirs.
    pub endpoint_weights: BTreeMap<SocketAddr, u32>,
}

/// `original` with these edits. All other bytes stay as they were and in their order; what is set
/// stands at the end of its message.
pub fn rewrite_assignment(original: &[u8], edits: &AssignmentEdits) -> Result<Bytes, DecodeError> {
    let mut out = BytesMut::with_capacity(original.len() + 16 * edits.localities.len());
    let mut index = 0;
    for field in fields(original) {
        let field = field?;
        if field.number == ENDPOINTS && field.has_length {
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
    let edit = edits.localities.get(&(key.priority, locality));
    let edit = edit.unwrap_or(&edits.other_localities);
    let mut out = Vec::with_capacity(original.len() + 16);
    let mut index = 0;
    for field in fields(original) {
        let field = field?;
        match field.number {
            LB_ENDPOINTS if field.has_length => {
                let path = || format!("lb_endpoints[{index}]");
                put_endpoint(&mut out, &field, edits).map_err(|error| error.under(&path()))?;
                index += 1;
            }
            LOCALITY_WEIGHT if edit.load_balancing_weight != Edit::Keep => {}
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
    Ok(out)
}

fn put_endpoint(
    out: &mut Vec<u8>,
    original: &Field<'_>,
    edits: &AssignmentEdits,
) -> Result<(), DecodeError> {
    let weight = match address(original.value)? {
        Some(address) => edits.endpoint_weights.get(&address),
        None => None,
    };
    let Some(weight) = weight else {
        out.extend_from_slice(original.raw);
        return Ok(());
    };
    let mut endpoint = Vec::with_capacity(original.value.len() + 8);
    for field in fields(original.value) {
        let field = field?;
        if field.number != ENDPOINT_WEIGHT {
            endpoint.extend_from_slice(field.raw);
        }
    }
    put_field(&mut endpoint, ENDPOINT_WEIGHT, &weight.encode_to_vec());
    put_field(out, LB_ENDPOINTS, &endpoint);
    Ok(())
}

/// The address of an endpoint, if it is one we could have been told a weight for.
fn address(lb_endpoint: &[u8]) -> Result<Option<SocketAddr>, DecodeError> {
    let mut address = None;
    for field in fields(lb_endpoint) {
        let field = field?;
        if field.number == ENDPOINT && field.has_length {
            let endpoint = EndpointMessage::decode(field.value)?;
            address = endpoint
                .address
                .and_then(|address| socket_address(address).ok());
        }
    }
    Ok(address)
}
