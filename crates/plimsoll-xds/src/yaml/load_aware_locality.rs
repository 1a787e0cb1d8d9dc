//! `load_aware_locality.v3.LoadAwareLocality` in Envoy's YAML shape, with its child policy.
//!
//! Only names live here; defaults and ranges are those of the core's type of the same name. The
//! list of child policies is read as Envoy reads this one: what nobody knows is skipped, the first
//! supported child wins, and what stands behind it is for other readers. Called by `policy` for a
//! `typed_config`.

use std::fmt;

use plimsoll_core::model::cluster::LocalityPolicy;
use plimsoll_core::model::load_aware_locality::{
    ColdStart, LoadAwareLocality, LoadAwareLocalityParts, RemoteMean, SpillController,
};
use plimsoll_core::model::orca::UtilizationPrecedence;
use plimsoll_core::units::FieldError;
use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, SeqAccess, Visitor};

use super::client_side_weighted_round_robin::OrcaOobReportingConfig;
use super::endpoint::Typed;
use super::policy::{Policy, SUPPORTED, child_of};
use super::proto_json::{Double, Named, ProtoDuration, ProtoEnum};

/// `load_aware_locality.v3.LoadAwareLocality`.
#[derive(Clone, Debug, Default, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub(super) struct LoadAwareLocalityMessage {
    /// How a host is chosen within the locality. Must be set.
    endpoint_picking_policy: EndpointPickingPolicy,
    /// How often weights are computed, at least 0.1s. Default `1s`.
    weight_update_period: Option<ProtoDuration>,
    /// Metrics that tell utilization, such as `named_metrics.foo`; the largest counts.
    metric_names_for_computing_utilization: Vec<String>,
    /// So far above the others the own locality may be before it spills, 0 to 1. Default 0.1.
    utilization_variance_threshold: Option<Double>,
    /// Of the utilization of a locality, above 0. Default `5s`.
    smoothing_time_constant: Option<ProtoDuration>,
    /// Least share of requests to other localities, 0 to below 1. Default 0.03.
    remote_probe_fraction: Option<Double>,
    /// Age at which a report stops counting; `0s` is never. Default `180s`.
    weight_expiration_period: Option<ProtoDuration>,
    /// Ask hosts for reports on a stream of their own.
    enable_oob_load_report: bool,
    /// How often, then; `0s` is the default. Default `10s`.
    oob_reporting_period: Option<ProtoDuration>,
    /// Where they are asked instead of at their own port.
    oob_reporting_config: OrcaOobReportingConfig,
    /// Ours: which metric wins when a report has both. Default `APPLICATION_FIRST`.
    utilization_precedence: Named<UtilizationPrecedence>,
    /// Ours: what happens before the first report. Default `LOCAL`.
    cold_start: Named<ColdStart>,
    /// Ours: which other localities the own one is compared with. Default `ALL`.
    remote_mean: Named<RemoteMean>,
    /// Ours: `CONVERGENT` settles instead of switching. Default `HEADROOM`.
    spill_controller: Named<SpillController>,
    /// Ours: least share of requests that stays local; `CONVERGENT` keeps at least 0.03. Default 0.
    local_probe_fraction: Option<Double>,
    /// Ours: measured demand leads `CONVERGENT` while it is fresh, and reports of hosts trim.
    /// Default true with `CONVERGENT`.
    demand_feed_forward: Option<bool>,
}

impl LoadAwareLocalityMessage {
    /// Own fields first, then the child, as Envoy checks them.
    pub(super) fn checked(self) -> Result<Typed, FieldError> {
        let duration = |value: Option<ProtoDuration>| value.map(|value| value.0);
        let double = |value: Option<Double>| value.map(|value| value.0);
        let settings = LoadAwareLocality::try_new(LoadAwareLocalityParts {
            weight_update_period: duration(self.weight_update_period),
            metric_names_for_computing_utilization: self.metric_names_for_computing_utilization,
            utilization_variance_threshold: double(self.utilization_variance_threshold),
            smoothing_time_constant: duration(self.smoothing_time_constant),
            remote_probe_fraction: double(self.remote_probe_fraction),
            weight_expiration_period: duration(self.weight_expiration_period),
            enable_oob_load_report: self.enable_oob_load_report,
            oob_reporting_period: duration(self.oob_reporting_period),
            oob_reporting_config: self.oob_reporting_config.unchecked()?,
            utilization_precedence: self.utilization_precedence.0,
            cold_start: self.cold_start.0,
            remote_mean: self.remote_mean.0,
            spill_controller: self.spill_controller.0,
            local_probe_fraction: double(self.local_probe_fraction),
            demand_feed_forward: self.demand_feed_forward,
        })?;
        let child = self.endpoint_picking_policy.checked();
        let endpoint = child.and_then(|child| child_of("load_aware_locality", child));
        let endpoint = endpoint.map_err(|error| error.under("endpoint_picking_policy"))?;
        Ok((endpoint, Some(LocalityPolicy::LoadAwareLocality(settings))))
    }
}

/// The children up to the first supported one.
#[derive(Clone, Debug, Default, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
struct EndpointPickingPolicy {
    /// Policies; the first supported one counts, and what follows is not looked at.
    #[serde(deserialize_with = "up_to_supported")]
    policies: Vec<Policy>,
}

impl EndpointPickingPolicy {
    /// The winner; the path of an error starts inside this message.
    fn checked(mut self) -> Result<Typed, FieldError> {
        let winner = self.policies.pop_if(|policy| policy.is_supported());
        let Some(policy) = winner else {
            let reason = format!("No supported endpoint picking policy. Supported are {SUPPORTED}");
            return Err(FieldError::new("", reason));
        };
        let index = self.policies.len();
        if policy.is_load_aware_locality() {
            let reason = "load_aware_locality cannot be its own endpoint_picking_policy";
            return Err(FieldError::new(format!("policies[{index}]"), reason));
        }
        policy.checked(index)
    }
}

/// Reads a list of policies up to and with the first supported one; whatever follows is not looked
/// at.
fn up_to_supported<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Policy>, D::Error> {
    struct UpToSupported;

    impl<'de> Visitor<'de> for UpToSupported {
        type Value = Vec<Policy>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a list of policies")
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Vec<Policy>, A::Error> {
            let mut policies: Vec<Policy> = Vec::new();
            while let Some(policy) = list.next_element()? {
                policies.push(policy);
                if policies.last().is_some_and(Policy::is_supported) {
                    while list.next_element::<IgnoredAny>()?.is_some() {}
                }
            }
            Ok(policies)
        }
    }

    deserializer.deserialize_seq(UpToSupported)
}

impl ProtoEnum for ColdStart {
    const VALUES: &'static [(&'static str, i64, Self)] = &[
        ("LOCAL", 0, Self::Local),
        ("HOST_COUNT", 1, Self::HostCount),
    ];
}

impl ProtoEnum for RemoteMean {
    const VALUES: &'static [(&'static str, i64, Self)] = &[
        ("ALL", 0, Self::All),
        ("REPORTING_ONLY", 1, Self::ReportingOnly),
    ];
}

impl ProtoEnum for SpillController {
    const VALUES: &'static [(&'static str, i64, Self)] = &[
        ("HEADROOM", 0, Self::Headroom),
        ("CONVERGENT", 1, Self::Convergent),
    ];
}
