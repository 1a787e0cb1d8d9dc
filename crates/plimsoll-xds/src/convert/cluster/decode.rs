//! A cluster from bytes: what a balancer needs of it.
//!
//! The rules are those of the YAML reader and end in the same checked type. Two things are milder,
//! as the sender is a program: settings of another `lb_policy` than the chosen one are ignored, as
//! Envoy and gRPC do, and what stands in a list behind the first supported policy is not looked at.

use std::time::Duration;

use plimsoll_core::model::cluster::{
    ClusterConfig, ClusterConfigParts, HealthChecking, LocalityPolicy,
};
use plimsoll_core::units::FieldError;
use prost::Message;

use super::super::field::fields;
use super::super::pb::cluster::ClusterMessage;
use super::super::pb::{duration, under};
use super::super::unhonoured::{self, CLUSTER, Class};
use super::decode_policy::{Outermost, named, outermost};
use super::{EDS, legacy, subset};
use crate::error::DecodeError;

/// What was read of a cluster.
#[derive(Clone, Debug, PartialEq)]
pub struct ClusterIn {
    /// Name, policies and health settings.
    pub config: ClusterConfig,
    /// Whether its endpoints come by EDS.
    pub is_eds: bool,
    /// Name of its assignment, when it differs from its own.
    pub eds_service_name: Option<String>,
    /// How long a connection may take.
    pub connect_timeout: Option<Duration>,
    /// `lrs_server: self`: load is reported to the server that sent the cluster.
    pub lrs_self: bool,
    /// Metrics of backends that load reports sum up.
    pub lrs_report_endpoint_metrics: Vec<String>,
}

/// The map of protocol options by name.
const TYPED_EXTENSION_PROTOCOL_OPTIONS: u32 = 36;

/// Reads a cluster.
pub fn decode_cluster(bytes: &[u8]) -> Result<ClusterIn, DecodeError> {
    well_formed(bytes)?;
    let message = ClusterMessage::decode(bytes)?;
    unhonoured::refuse(bytes, &CLUSTER, Class::Host)?;
    let config = ClusterConfig::try_new(config_parts(&message)?)?;
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

/// Maps are read by prost whatever their wire type says. What passes here is read the same by
/// everybody, and can be rewritten field by field.
fn well_formed(bytes: &[u8]) -> Result<(), DecodeError> {
    for field in fields(bytes) {
        let field = field?;
        if field.number == TYPED_EXTENSION_PROTOCOL_OPTIONS && !field.has_length {
            let path = "typed_extension_protocol_options";
            return Err(DecodeError::new(path, "is not a map"));
        }
    }
    Ok(())
}

fn config_parts(message: &ClusterMessage) -> Result<ClusterConfigParts, FieldError> {
    let common = message.common_lb_config.clone().unwrap_or_default();
    let (lb_subset_config, (endpoint_policy, locality_policy)) = policies(message)?;
    let locality_policy = match locality_policy {
        Some(policy) => policy,
        // Zone-aware routing is on unless somebody says otherwise, except for hashing.
        None if endpoint_policy.is_hash() => LocalityPolicy::Flat,
        None => LocalityPolicy::default(),
    };
    Ok(ClusterConfigParts {
        name: message.name.clone(),
        healthy_panic_threshold: common.healthy_panic_threshold.map(|percent| percent.value),
        locality_policy,
        endpoint_policy,
        locality_sampling: message
            .locality_sampling
            .map(|number| named(number, "locality_sampling"))
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

/// `load_balancing_policy` if there is one; it supersedes `lb_policy` and its settings.
fn policies(message: &ClusterMessage) -> Result<Outermost, FieldError> {
    let subsets = message.lb_subset_config.as_ref();
    let Some(typed) = &message.load_balancing_policy else {
        let typed = legacy::policies(message)?;
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
    outermost(typed).map_err(|error| error.under("load_balancing_policy"))
}
