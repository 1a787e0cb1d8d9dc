//! Decoding of the cluster fields that load balancing needs.

use std::time::Duration;

use plimsoll_core::model::cluster::{
    ClusterConfig, ClusterConfigParts, HealthChecking, LocalityPolicy,
};
use plimsoll_core::units::FieldError;

use super::super::{Strictness, decode_resource, named};
use super::decode_policy::{SubsetPolicies, outermost};
use super::{EDS, legacy, subset};
use plimsoll_schema::error::DecodeError;
use plimsoll_schema::field::raw_fields;
use plimsoll_schema::pb::cluster::ClusterMessage;
use plimsoll_schema::pb::{duration, refuse_set, under};
use plimsoll_schema::{Described, Impact, unsupported};

/// Decoded cluster, as far as load balancing needs it.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct ClusterIn {
    pub config: ClusterConfig,
    pub is_eds: bool,
    /// Name of the assignment, if it differs from the name of the cluster.
    pub eds_service_name: Option<String>,
    pub connect_timeout: Option<Duration>,
    /// `lrs_server: self`: load is reported to the server that sent the cluster.
    pub lrs_self: bool,
    pub lrs_report_endpoint_metrics: Vec<String>,
}

const TYPED_EXTENSION_PROTOCOL_OPTIONS: u32 = 36;

/// Decodes a cluster resource leniently.
pub fn decode_cluster(bytes: &[u8]) -> Result<ClusterIn, DecodeError> {
    let (message, config) = read(bytes, Impact::Host, Strictness::Lenient)?;
    let eds = message.eds_cluster_config.unwrap_or_default();
    let lrs_server = message.lrs_server.unwrap_or_default();
    Ok(ClusterIn {
        config,
        is_eds: message.discovery_type == Some(EDS),
        eds_service_name: (!eds.service_name.is_empty()).then_some(eds.service_name),
        connect_timeout: duration(message.connect_timeout, "connect_timeout")?,
        lrs_self: lrs_server.this_server.is_some(),
        lrs_report_endpoint_metrics: message.lrs_report_endpoint_metrics,
    })
}

pub(crate) fn read_config_parts(bytes: &[u8]) -> Result<ClusterConfigParts, DecodeError> {
    let message = checked(bytes, Impact::Host)?;
    // These fields affect load balancing, and this reader does not support them.
    refuse_set(&[
        ("load_assignment", message.load_assignment.is_some()),
        ("outlier_detection", message.outlier_detection.is_some()),
    ])?;
    Ok(config_parts(&message, Strictness::Strict)?)
}

/// Decodes the message and its load-balancing configuration. Fields that are not read are rejected
/// if their [`Impact`] is at least `lowest`.
pub(super) fn read(
    bytes: &[u8],
    lowest: Impact,
    strictness: Strictness,
) -> Result<(ClusterMessage, ClusterConfig), DecodeError> {
    let message = checked(bytes, lowest)?;
    let config = ClusterConfig::try_new(config_parts(&message, strictness)?)?;
    Ok((message, config))
}

fn checked(bytes: &[u8], lowest: Impact) -> Result<ClusterMessage, DecodeError> {
    well_formed(bytes)?;
    let message: ClusterMessage = decode_resource(bytes)?;
    unsupported::refuse(bytes, ClusterMessage::DESCRIPTOR, lowest)?;
    Ok(message)
}

/// Checks the wire type of maps, which prost ignores. Accepted bytes decode the same everywhere,
/// and can be rewritten field by field.
fn well_formed(bytes: &[u8]) -> Result<(), DecodeError> {
    for field in raw_fields(bytes) {
        let field = field?;
        if field.number == TYPED_EXTENSION_PROTOCOL_OPTIONS && !field.is_length_delimited {
            let path = "typed_extension_protocol_options";
            return Err(DecodeError::new(path, "is not a map"));
        }
    }
    Ok(())
}

fn config_parts(
    message: &ClusterMessage,
    strictness: Strictness,
) -> Result<ClusterConfigParts, FieldError> {
    let common = message.common_lb_config.clone().unwrap_or_default();
    let (lb_subset_config, (endpoint_policy, locality_policy)) = policies(message, strictness)?;
    let locality_policy = match locality_policy {
        Some(policy) => policy,
        // Zone-aware routing is the default, except for hash policies.
        None if endpoint_policy.is_hash() => LocalityPolicy::Flat,
        None => LocalityPolicy::default(),
    };
    Ok(ClusterConfigParts {
        name: message.name.clone(),
        healthy_panic_threshold: common.healthy_panic_threshold.map(|percent| percent.value),
        locality_policy,
        endpoint_policy,
        locality_sampling: message
            .plimsoll
            .and_then(|ours| ours.locality_sampling)
            .map(|number| named(number, "plimsoll.locality_sampling"))
            .transpose()?,
        endpoint_load_metrics_format: message
            .plimsoll
            .and_then(|ours| ours.endpoint_load_metrics_format)
            .map(|number| named(number, "plimsoll.endpoint_load_metrics_format"))
            .transpose()?,
        health_checking: HealthChecking {
            active: !message.health_checks.is_empty(),
            ignore_new_hosts_until_first_hc: common.ignore_new_hosts_until_first_hc,
        },
        lrs_report_endpoint_metrics: message.lrs_report_endpoint_metrics.clone(),
        lb_subset_config,
        ..Default::default()
    })
}

/// Reads `load_balancing_policy` if present; it supersedes `lb_policy` and the settings of
/// `lb_policy`, which remain for clients that do not support `load_balancing_policy`.
fn policies(
    message: &ClusterMessage,
    strictness: Strictness,
) -> Result<SubsetPolicies, FieldError> {
    let subsets = message.lb_subset_config.as_ref();
    let Some(typed) = &message.load_balancing_policy else {
        let typed = legacy::policies(message, strictness)?;
        let subsets = subsets.map(|subsets| subset::legacy(subsets, typed.1.as_ref()));
        return Ok((under(subsets, "lb_subset_config")?.flatten(), typed));
    };
    if subsets.is_some() {
        let reason = "cannot be combined with load_balancing_policy; use the policy subset";
        return Err(FieldError::new("lb_subset_config", reason));
    }
    if let Some(common) = &message.common_lb_config {
        let choices = [
            (
                "zone_aware_lb_config",
                common.zone_aware_lb_config.is_some(),
            ),
            (
                "locality_weighted_lb_config",
                common.locality_weighted_lb_config.is_some(),
            ),
            (
                "consistent_hashing_lb_config",
                common.consistent_hashing_lb_config.is_some(),
            ),
        ];
        if let Some((field, _)) = choices.into_iter().find(|&(_, set)| set) {
            let reason =
                "cannot be combined with load_balancing_policy; set it in the typed_config";
            return Err(FieldError::new(field, reason).under("common_lb_config"));
        }
    }
    if strictness == Strictness::Strict {
        legacy::check_unused(message)?;
    }
    outermost(typed, strictness).map_err(|error| error.under("load_balancing_policy"))
}
