//! Another policy in the cluster of somebody else, everything else as it was.
//!
//! A relay improves policies without understanding the rest of a cluster, so this works on the
//! fields of the message, not on what prost would keep of it.

use bytes::{Bytes, BytesMut};
use plimsoll_core::model::cluster::ClusterConfig;
use prost::Message;

use super::super::field::{fields, put_field};
use super::super::pb::ConfigSourceMessage;
use super::super::pb::cluster::ClusterMessage;
use super::LocalityDelivery;
use super::encode_policy;
use crate::error::DecodeError;

/// Fields of a cluster that choose a policy: `lb_policy`, `lb_subset_config`, the four settings,
/// `load_balancing_policy`, and our `locality_sampling`.
const POLICY: [u32; 8] = [6, 22, 23, 37, 41, 52, 56, 50_001];
/// `common_lb_config`.
const COMMON: u32 = 27;
/// Its fields that belong to a policy: `zone_aware_lb_config`, `locality_weighted_lb_config`,
/// `consistent_hashing_lb_config`.
const COMMON_POLICY: [u32; 3] = [2, 3, 7];
/// `lrs_server`.
const LRS_SERVER: u32 = 42;

/// `original` with the policy of `config` as `locality` says it. All other bytes stay as they were
/// and in their order; the policy stands at the end.
pub fn rewrite_cluster_policy(
    original: &[u8],
    config: &ClusterConfig,
    locality: LocalityDelivery,
) -> Result<Bytes, DecodeError> {
    let mut policy = ClusterMessage::default();
    encode_policy::put(&mut policy, config, locality);
    let mut out = BytesMut::with_capacity(original.len() + policy.encoded_len());
    for field in fields(original) {
        let field = field?;
        if POLICY.contains(&field.number) {
            continue;
        }
        if field.number == COMMON && field.has_length {
            let common = without_policy(field.value);
            match common.map_err(|error| error.under("common_lb_config"))? {
                same if same.len() == field.value.len() => out.extend_from_slice(field.raw),
                common => put_field(&mut out, COMMON, &common),
            }
        } else {
            out.extend_from_slice(field.raw);
        }
    }
    out.extend_from_slice(&policy.encode_to_vec());
    Ok(out.freeze())
}

/// `original` with `lrs_server: self`: a gRPC client reports load only where it is told to. All
/// other bytes stay as they were and in their order.
pub fn rewrite_load_reporting(original: &[u8]) -> Result<Bytes, DecodeError> {
    let this_server = ConfigSourceMessage::this_server().encode_to_vec();
    let mut out = BytesMut::with_capacity(original.len() + this_server.len() + 4);
    for field in fields(original) {
        let field = field?;
        if field.number != LRS_SERVER {
            out.extend_from_slice(field.raw);
        }
    }
    put_field(&mut out, LRS_SERVER, &this_server);
    Ok(out.freeze())
}

fn without_policy(common: &[u8]) -> Result<Vec<u8>, DecodeError> {
    let mut out = Vec::with_capacity(common.len());
    for field in fields(common) {
        let field = field?;
        if !COMMON_POLICY.contains(&field.number) {
            out.extend_from_slice(field.raw);
        }
    }
    Ok(out)
}
