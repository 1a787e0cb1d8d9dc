//! Decoding of the legacy policy fields: `lb_policy`, its settings, `common_lb_config`.

use plimsoll_core::model::cluster::LocalityPolicy;
use plimsoll_core::model::endpoint_policy::{
    ConsistentHashing, EndpointPolicy, LeastRequest, LeastRequestParts, Maglev, RingHash,
    RoundRobin,
};
use plimsoll_core::model::zone_aware::{ZoneAware, ZoneAwareParts};
use plimsoll_core::units::FieldError;

use super::super::{Strictness, named};
use super::decode_policy::{Policies, consistent_hashing, inside, one_of, slow_start};
use plimsoll_schema::ProtoEnum as _;
use plimsoll_schema::pb::cluster::{ClusterMessage, CommonLbConfigMessage, LegacyZoneAwareMessage};
use plimsoll_schema::pb::enums::LbPolicy;

/// Decodes the policies of the legacy fields; error paths start at the cluster.
pub(super) fn policies(
    cluster: &ClusterMessage,
    strictness: Strictness,
) -> Result<Policies, FieldError> {
    let lb_policy: LbPolicy = named(cluster.lb_policy, "lb_policy")?;
    if strictness == Strictness::Strict {
        check_settings(cluster, lb_policy)?;
    }
    let under = |error: FieldError| error.under("common_lb_config");
    let common = cluster.common_lb_config.clone().unwrap_or_default();
    let hashing = common.consistent_hashing_lb_config;
    let is_hash = matches!(lb_policy, LbPolicy::RingHash | LbPolicy::Maglev);
    let (field, reason) = (
        "consistent_hashing_lb_config",
        "only RING_HASH and MAGLEV use consistent hashing",
    );
    strictness
        .reject(hashing.is_some() && !is_hash, field, reason)
        .map_err(under)?;
    let locality = locality_policy(&common, is_hash).map_err(under)?;
    let hashing = consistent_hashing(hashing).map_err(under)?;
    Ok((endpoint_policy(cluster, lb_policy, hashing)?, locality))
}

/// Checks fields that are unused beside `load_balancing_policy`, but meant for other clients.
pub(super) fn check_unused(cluster: &ClusterMessage) -> Result<(), FieldError> {
    let lb_policy: LbPolicy = named(cluster.lb_policy, "lb_policy")?;
    if lb_policy == LbPolicy::LoadBalancingPolicyConfig {
        return Ok(());
    }
    check_settings(cluster, lb_policy)?;
    endpoint_policy(cluster, lb_policy, ConsistentHashing::default()).map(drop)
}

/// Rejects settings of other policies, which would have no effect.
fn check_settings(cluster: &ClusterMessage, lb_policy: LbPolicy) -> Result<(), FieldError> {
    let settings = [
        (
            "least_request_lb_config",
            cluster.least_request_lb_config.is_some(),
            LbPolicy::LeastRequest,
        ),
        (
            "maglev_lb_config",
            cluster.maglev_lb_config.is_some(),
            LbPolicy::Maglev,
        ),
        (
            "ring_hash_lb_config",
            cluster.ring_hash_lb_config.is_some(),
            LbPolicy::RingHash,
        ),
        (
            "round_robin_lb_config",
            cluster.round_robin_lb_config.is_some(),
            LbPolicy::RoundRobin,
        ),
    ];
    let mut unused = settings
        .into_iter()
        .filter(|&(_, set, policy)| set && policy != lb_policy);
    match unused.next() {
        None => Ok(()),
        Some((field, ..)) => {
            let mut names = LbPolicy::VALUES.iter();
            let name = names
                .find(|(_, _, value)| *value == lb_policy)
                .map_or("", |(name, _, _)| name);
            let reason = format!("has no effect with lb_policy {name}");
            Err(FieldError::new(field, reason))
        }
    }
}

fn endpoint_policy(
    cluster: &ClusterMessage,
    lb_policy: LbPolicy,
    hashing: ConsistentHashing,
) -> Result<EndpointPolicy, FieldError> {
    match lb_policy {
        LbPolicy::RoundRobin => {
            let settings = cluster.round_robin_lb_config.clone().unwrap_or_default();
            let slow_start = slow_start(settings.slow_start_config)
                .map_err(|error| error.under("round_robin_lb_config"))?;
            Ok(EndpointPolicy::RoundRobin(RoundRobin { slow_start }))
        }
        LbPolicy::LeastRequest => {
            least_request(cluster).map_err(|error| error.under("least_request_lb_config"))
        }
        LbPolicy::RingHash => {
            let settings = cluster.ring_hash_lb_config.clone().unwrap_or_default();
            let (minimum, maximum) = (settings.minimum_ring_size, settings.maximum_ring_size);
            named(settings.hash_function, "hash_function")
                .and_then(|function| RingHash::try_new(function, minimum, maximum, hashing))
                .map(EndpointPolicy::RingHash)
                .map_err(|error| error.under("ring_hash_lb_config"))
        }
        LbPolicy::Random => Ok(EndpointPolicy::Random),
        LbPolicy::Maglev => {
            let settings = cluster.maglev_lb_config.clone().unwrap_or_default();
            Maglev::try_new(settings.table_size, hashing)
                .map(EndpointPolicy::Maglev)
                .map_err(|error| error.under("maglev_lb_config"))
        }
        LbPolicy::LoadBalancingPolicyConfig => {
            let reason = "must be set with lb_policy LOAD_BALANCING_POLICY_CONFIG";
            Err(FieldError::new("load_balancing_policy", reason))
        }
    }
}

fn least_request(cluster: &ClusterMessage) -> Result<EndpointPolicy, FieldError> {
    let settings = cluster.least_request_lb_config.clone().unwrap_or_default();
    let bias = settings.active_request_bias;
    LeastRequest::try_new(LeastRequestParts {
        choice_count: settings.choice_count,
        active_request_bias: bias.map(|bias| bias.default_value),
        slow_start: slow_start(settings.slow_start_config)?,
        ..Default::default()
    })
    .map(EndpointPolicy::LeastRequest)
    .map_err(|error| inside("active_request_bias", error))
}

fn locality_policy(
    common: &CommonLbConfigMessage,
    hash: bool,
) -> Result<Option<LocalityPolicy>, FieldError> {
    if hash && common.zone_aware_lb_config.is_some() {
        let reason = "zone-aware routing cannot be combined with RING_HASH or MAGLEV: consistent \
                      hashing needs a deterministic choice; use locality weights instead";
        return Err(FieldError::new("zone_aware_lb_config", reason));
    }
    let zone_aware = common.zone_aware_lb_config.as_ref().map(zone_aware);
    one_of(zone_aware, common.locality_weighted_lb_config)
}

fn zone_aware(message: &LegacyZoneAwareMessage) -> Result<ZoneAware, FieldError> {
    ZoneAware::try_new(ZoneAwareParts {
        routing_enabled: message.routing_enabled.map(|percent| percent.value),
        min_cluster_size: message.min_cluster_size,
        fail_traffic_on_panic: message.fail_traffic_on_panic,
        ..Default::default()
    })
}
