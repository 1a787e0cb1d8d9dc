//! The legacy way to say it: `lb_policy`, its settings, and `common_lb_config`.
//!
//! The typed way lives in `policy`; `cluster` decides between the two.

use plimsoll_core::model::cluster::LocalityPolicy;
use plimsoll_core::model::endpoint_policy::{ConsistentHashing, EndpointPolicy};
use plimsoll_core::units::FieldError;
use serde::Deserialize;

use super::endpoint::{
    ConsistentHashingLbConfig, LeastRequestLbConfig, MaglevLbConfig, RingHashLbConfig,
    RoundRobinLbConfig,
};
use super::locality::{LegacyZoneAwareLbConfig, one_of};
use super::proto_json::{Empty, Ignored, Percent, ProtoDuration, ProtoEnum};

/// `Cluster.LbPolicy`, the values we have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum LbPolicy {
    #[default]
    RoundRobin,
    LeastRequest,
    RingHash,
    Random,
    Maglev,
    /// "See `load_balancing_policy`".
    LoadBalancingPolicyConfig,
}

impl ProtoEnum for LbPolicy {
    const VALUES: &'static [(&'static str, i64, Self)] = &[
        ("ROUND_ROBIN", 0, Self::RoundRobin),
        ("LEAST_REQUEST", 1, Self::LeastRequest),
        ("RING_HASH", 2, Self::RingHash),
        ("RANDOM", 3, Self::Random),
        ("MAGLEV", 5, Self::Maglev),
        (
            "LOAD_BALANCING_POLICY_CONFIG",
            7,
            Self::LoadBalancingPolicyConfig,
        ),
    ];
}

/// The settings of an `lb_policy`: a oneof of the cluster.
#[derive(Clone, Debug, Default)]
pub(super) struct LbConfig {
    pub(super) least_request: Option<LeastRequestLbConfig>,
    pub(super) maglev: Option<MaglevLbConfig>,
    pub(super) ring_hash: Option<RingHashLbConfig>,
    pub(super) round_robin: Option<RoundRobinLbConfig>,
}

/// `Cluster.CommonLbConfig`.
#[derive(Clone, Debug, Default, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub(super) struct CommonLbConfig {
    /// Percent of hosts that must be healthy; with fewer, all hosts are used. Default 50.
    healthy_panic_threshold: Option<Percent>,
    /// Zone-aware routing, which is on without it as well, except for hashing.
    zone_aware_lb_config: Option<LegacyZoneAwareLbConfig>,
    /// Localities are chosen by their weights.
    locality_weighted_lb_config: Option<Empty>,
    /// Settings of `RING_HASH` and `MAGLEV`.
    consistent_hashing_lb_config: Option<ConsistentHashingLbConfig>,
    /// A host that was never checked is left out of every count.
    ignore_new_hosts_until_first_hc: bool,
    // Known and without effect: updates are never held back here, connections live elsewhere.
    /// Without effect: updates are never held back.
    update_merge_window: Option<ProtoDuration>,
    /// Without effect.
    close_connections_on_host_set_change: Option<Ignored>,
}

impl CommonLbConfig {
    /// `healthy_panic_threshold.value`.
    pub(super) fn healthy_panic_threshold(&self) -> Option<f64> {
        self.healthy_panic_threshold.map(|percent| percent.value.0)
    }

    pub(super) const fn ignore_new_hosts_until_first_hc(&self) -> bool {
        self.ignore_new_hosts_until_first_hc
    }

    /// Envoy refuses these three beside `load_balancing_policy`, which has its own.
    pub(super) fn refuse_choices(&self) -> Result<(), FieldError> {
        let choices = [
            ("zone_aware_lb_config", self.zone_aware_lb_config.is_some()),
            (
                "locality_weighted_lb_config",
                self.locality_weighted_lb_config.is_some(),
            ),
            (
                "consistent_hashing_lb_config",
                self.consistent_hashing_lb_config.is_some(),
            ),
        ];
        match choices.into_iter().find(|&(_, set)| set) {
            Some((field, _)) => Err(FieldError::new(
                field,
                "cannot be combined with load_balancing_policy; set it in the typed_config",
            )),
            None => Ok(()),
        }
    }
}

/// The policies that the legacy fields ask for; paths of errors start at the cluster.
pub(super) fn checked(
    lb_policy: LbPolicy,
    lb_config: LbConfig,
    common: CommonLbConfig,
) -> Result<(EndpointPolicy, Option<LocalityPolicy>), FieldError> {
    let under = |error: FieldError| error.under("common_lb_config");
    let hash = matches!(lb_policy, LbPolicy::RingHash | LbPolicy::Maglev);
    if !hash && common.consistent_hashing_lb_config.is_some() {
        let reason = "only RING_HASH and MAGLEV use consistent hashing";
        return Err(under(FieldError::new(
            "consistent_hashing_lb_config",
            reason,
        )));
    }
    if hash && common.zone_aware_lb_config.is_some() {
        let reason = "zone-aware routing cannot be combined with RING_HASH or MAGLEV: consistent \
                      hashing needs a deterministic choice; use locality weights instead";
        return Err(under(FieldError::new("zone_aware_lb_config", reason)));
    }
    let consistent_hashing = common.consistent_hashing_lb_config.unwrap_or_default();
    let key = consistent_hashing.checked().map_err(under)?;
    let endpoint = lb_config.checked(lb_policy, key)?;
    let zone_aware = common
        .zone_aware_lb_config
        .map(LegacyZoneAwareLbConfig::checked);
    let locality = one_of(zone_aware, common.locality_weighted_lb_config).map_err(under)?;
    Ok((endpoint, locality))
}

impl LbConfig {
    /// The settings must be those of the policy: others would be ignored.
    fn checked(
        self,
        lb_policy: LbPolicy,
        key: ConsistentHashing,
    ) -> Result<EndpointPolicy, FieldError> {
        let settings = [
            (
                "least_request_lb_config",
                self.least_request.is_some(),
                LbPolicy::LeastRequest,
            ),
            ("maglev_lb_config", self.maglev.is_some(), LbPolicy::Maglev),
            (
                "ring_hash_lb_config",
                self.ring_hash.is_some(),
                LbPolicy::RingHash,
            ),
            (
                "round_robin_lb_config",
                self.round_robin.is_some(),
                LbPolicy::RoundRobin,
            ),
        ];
        for (field, set, policy) in settings {
            if set && policy != lb_policy {
                let reason = format!("has no effect with lb_policy {}", name(lb_policy));
                return Err(FieldError::new(field, reason));
            }
        }
        let (field, checked) = match lb_policy {
            LbPolicy::RoundRobin => (
                "round_robin_lb_config",
                self.round_robin.unwrap_or_default().checked(),
            ),
            LbPolicy::LeastRequest => (
                "least_request_lb_config",
                self.least_request.unwrap_or_default().checked(),
            ),
            LbPolicy::RingHash => (
                "ring_hash_lb_config",
                self.ring_hash.unwrap_or_default().checked(key),
            ),
            LbPolicy::Random => ("", Ok(EndpointPolicy::Random)),
            LbPolicy::Maglev => (
                "maglev_lb_config",
                self.maglev.unwrap_or_default().checked(key),
            ),
            LbPolicy::LoadBalancingPolicyConfig => (
                "load_balancing_policy",
                Err(FieldError::new(
                    "",
                    "must be set with lb_policy LOAD_BALANCING_POLICY_CONFIG",
                )),
            ),
        };
        checked.map_err(|error| error.under(field))
    }
}

fn name(lb_policy: LbPolicy) -> &'static str {
    LbPolicy::VALUES
        .iter()
        .find(|&&(_, _, value)| value == lb_policy)
        .map_or("", |&(name, _, _)| name)
}
