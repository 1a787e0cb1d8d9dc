//! Replaces the policy in an encoded cluster and keeps everything else.
//!
//! A relay changes policies without understanding the rest of a cluster, so this works on encoded
//! fields instead of prost messages.

use bytes::{Bytes, BytesMut};
use plimsoll_core::model::cluster::ClusterConfig;
use prost::Message;

use super::LocalityDelivery;
use super::encode_policy;
use super::module;
use plimsoll_schema::error::DecodeError;
use plimsoll_schema::field::{put_field, raw_fields};
use plimsoll_schema::pb::ConfigSourceMessage;
use plimsoll_schema::pb::cluster::ClusterMessage;

/// Field numbers of a cluster that choose a policy: `lb_policy`, `lb_subset_config`, the four
/// policy settings, `load_balancing_policy`, and the `plimsoll` extension.
const POLICY: [u32; 8] = [6, 22, 23, 37, 41, 52, 56, 50_002];
/// Field number of `common_lb_config`.
const COMMON: u32 = 27;
/// Policy fields within `common_lb_config`: `zone_aware_lb_config`, `locality_weighted_lb_config`,
/// `consistent_hashing_lb_config`.
const COMMON_POLICY: [u32; 3] = [2, 3, 7];
const LRS_SERVER: u32 = 42;
/// Field number of `typed_extension_protocol_options`.
const PROTOCOL_OPTIONS: u32 = 36;

/// Replaces the policy by that of `config`, encoded for `locality`. All other bytes stay unchanged
/// and in order, except the protocol options if the policy of the module needs its filter; the
/// policy is appended.
pub fn rewrite_cluster_policy(
    original: &[u8],
    config: &ClusterConfig,
    locality: LocalityDelivery,
) -> Result<Bytes, DecodeError> {
    let mut policy = ClusterMessage::default();
    encode_policy::put(&mut policy, config, locality);
    let needs_filter = locality == LocalityDelivery::Module && module::needs_filter(config);
    if needs_filter {
        let read = ClusterMessage::decode(original)?;
        policy.typed_extension_protocol_options = read.typed_extension_protocol_options;
        module::put_orca_filter(&mut policy, config);
    }
    let mut out = BytesMut::with_capacity(original.len() + policy.encoded_len());
    for field in raw_fields(original) {
        let field = field?;
        let is_replaced = needs_filter && field.number == PROTOCOL_OPTIONS;
        if is_replaced || POLICY.contains(&field.number) {
            continue;
        }
        if field.number == COMMON && field.is_length_delimited {
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

/// Sets `lrs_server: self`, without which gRPC clients do not report load. All other bytes stay
/// unchanged and in order.
pub fn rewrite_load_reporting(original: &[u8]) -> Result<Bytes, DecodeError> {
    let this_server = ConfigSourceMessage::this_server().encode_to_vec();
    let mut out = BytesMut::with_capacity(original.len() + this_server.len() + 4);
    for field in raw_fields(original) {
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
    for field in raw_fields(common) {
        let field = field?;
        if !COMMON_POLICY.contains(&field.number) {
            out.extend_from_slice(field.raw);
        }
    }
    Ok(out)
}
