//! The legacy way to choose a policy, from bytes: `lb_policy`, its settings, `common_lb_config`.

use plimsoll_core::model::cluster::LocalityPolicy;
use plimsoll_core::model::endpoint_policy::{
    ConsistentHashing, EndpointPolicy, HashFunction, LeastRequest, LeastRequestParts, Maglev,
    RingHash, RoundRobin,
};
use plimsoll_core::model::zone_aware::{ZoneAware, ZoneAwareParts};
use plimsoll_core::units::FieldError;

use super::super::pb::cluster::{ClusterMessage, CommonLbConfigMessage, LegacyZoneAwareMessage};
use super::decode_policy::{Typed, choice, consistent_hashing, one_of, slow_start};

/// The policies that the legacy fields ask for; paths of errors start at the cluster.
pub(super) fn policies(cluster: &ClusterMessage) -> Result<Typed, FieldError> {
    let under = |error: FieldError| error.under("common_lb_config");
    let common = cluster.common_lb_config.clone().unwrap_or_default();
    let hashing = consistent_hashing(common.consistent_hashing_lb_config).map_err(under)?;
    let endpoint = endpoint_policy(cluster, hashing)?;
    let locality = locality_policy(&common, endpoint.is_hash()).map_err(under)?;
    Ok((endpoint, locality))
}

fn endpoint_policy(
    cluster: &ClusterMessage,
    hashing: ConsistentHashing,
) -> Result<EndpointPolicy, FieldError> {
    match cluster.lb_policy {
        0 => {
            let settings = cluster.round_robin_lb_config.clone().unwrap_or_default();
            let slow_start = slow_start(settings.slow_start_config)
                .map_err(|error| error.under("round_robin_lb_config"))?;
            Ok(EndpointPolicy::RoundRobin(RoundRobin { slow_start }))
        }
        1 => least_request(cluster).map_err(|error| error.under("least_request_lb_config")),
        2 => {
            let settings = cluster.ring_hash_lb_config.clone().unwrap_or_default();
            let functions = [HashFunction::XxHash, HashFunction::MurmurHash2];
            let ring = choice(settings.hash_function, &functions, "hash_function");
            let (minimum, maximum) = (settings.minimum_ring_size, settings.maximum_ring_size);
            ring.and_then(|function| RingHash::try_new(function, minimum, maximum, hashing))
                .map(EndpointPolicy::RingHash)
                .map_err(|error| error.under("ring_hash_lb_config"))
        }
        3 => Ok(EndpointPolicy::Random),
        5 => {
            let settings = cluster.maglev_lb_config.clone().unwrap_or_default();
            Maglev::try_new(settings.table_size, hashing)
                .map(EndpointPolicy::Maglev)
                .map_err(|error| error.under("maglev_lb_config"))
        }
        7 => {
            let reason = "must be set with lb_policy LOAD_BALANCING_POLICY_CONFIG";
            Err(FieldError::new("load_balancing_policy", reason))
        }
        other => {
            let reason = format!("{other} is not supported");
            Err(FieldError::new("lb_policy", reason))
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
