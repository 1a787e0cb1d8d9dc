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
use plimsoll_schema::pb::cluster::{ClusterMessage, CommonLbConfigMessage};
use plimsoll_schema::pb::{ConfigSourceMessage, PercentMessage};

/// Field numbers of a cluster that choose a policy: `lb_policy`, `lb_subset_config`, the four
/// policy settings, `load_balancing_policy`, and the `plimsoll` extension.
const POLICY: [u32; 8] = [6, 22, 23, 37, 41, 52, 56, EXTENSIONS];
/// Field number of `common_lb_config`.
const COMMON: u32 = 27;
/// Policy fields within `common_lb_config`: `zone_aware_lb_config`, `locality_weighted_lb_config`,
/// `consistent_hashing_lb_config`.
const COMMON_POLICY: [u32; 3] = [2, 3, 7];
/// Field number of `healthy_panic_threshold` within `common_lb_config`.
const PANIC_THRESHOLD: u32 = 1;
const LRS_SERVER: u32 = 42;
/// Field number of `plimsoll`, the settings that Envoy does not have.
const EXTENSIONS: u32 = 50_002;
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
        module::put_orca_filter(&mut policy, config, original);
    }
    let mut out = BytesMut::with_capacity(original.len() + policy.encoded_len());
    for field in raw_fields(original) {
        let field = field?;
        let is_replaced = needs_filter && field.number == PROTOCOL_OPTIONS;
        if is_replaced || POLICY.contains(&field.number) {
            continue;
        }
        if field.number == COMMON && field.is_length_delimited {
            let common = without(field.value, &COMMON_POLICY);
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

/// Sets `common_lb_config.healthy_panic_threshold`, in percent. All other bytes stay unchanged and
/// in order.
pub fn rewrite_panic_threshold(original: &[u8], percent: u32) -> Result<Bytes, DecodeError> {
    let mut own = CommonLbConfigMessage {
        healthy_panic_threshold: Some(PercentMessage {
            value: f64::from(percent),
        }),
        ..Default::default()
    }
    .encode_to_vec();
    let mut out = BytesMut::with_capacity(original.len() + own.len() + 4);
    for field in raw_fields(original) {
        let field = field?;
        if field.number != COMMON || !field.is_length_delimited {
            out.extend_from_slice(field.raw);
            continue;
        }
        let mut common = without(field.value, &[PANIC_THRESHOLD])
            .map_err(|error| error.under("common_lb_config"))?;
        common.append(&mut own);
        put_field(&mut out, COMMON, &common);
    }
    if !own.is_empty() {
        put_field(&mut out, COMMON, &own);
    }
    Ok(out.freeze())
}

/// Sets the settings that Envoy does not have (`plimsoll`) to those of `config`. All other bytes
/// stay unchanged and in order. For Plimsoll data planes only.
pub fn rewrite_extensions(original: &[u8], config: &ClusterConfig) -> Result<Bytes, DecodeError> {
    let mut out = BytesMut::with_capacity(original.len() + 8);
    for field in raw_fields(original) {
        let field = field?;
        if field.number != EXTENSIONS {
            out.extend_from_slice(field.raw);
        }
    }
    if let Some(extensions) = encode_policy::extensions(config) {
        put_field(&mut out, EXTENSIONS, &extensions.encode_to_vec());
    }
    Ok(out.freeze())
}

fn without(message: &[u8], numbers: &[u32]) -> Result<Vec<u8>, DecodeError> {
    let mut out = Vec::with_capacity(message.len());
    for field in raw_fields(message) {
        let field = field?;
        if !numbers.contains(&field.number) {
            out.extend_from_slice(field.raw);
        }
    }
    Ok(out)
}
