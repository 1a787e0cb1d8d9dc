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

use super::endpoint::Typed;
use super::policy::{Policy, SUPPORTED, child_of};
use super::proto_json::{Double, Named, ProtoDuration, ProtoEnum};

/// The message, unchecked. The last five fields are ours.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct LoadAwareLocalityMessage {
    endpoint_picking_policy: EndpointPickingPolicy,
    weight_update_period: Option<ProtoDuration>,
    metric_names_for_computing_utilization: Vec<String>,
    utilization_variance_threshold: Option<Double>,
    smoothing_time_constant: Option<ProtoDuration>,
    remote_probe_fraction: Option<Double>,
    weight_expiration_period: Option<ProtoDuration>,
    enable_oob_load_report: bool,
    oob_reporting_period: Option<ProtoDuration>,
    utilization_precedence: Named<UtilizationPrecedence>,
    cold_start: Named<ColdStart>,
    remote_mean: Named<RemoteMean>,
    spill_controller: Named<SpillController>,
    local_probe_fraction: Option<Double>,
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
            utilization_precedence: self.utilization_precedence.0,
            cold_start: self.cold_start.0,
            remote_mean: self.remote_mean.0,
            spill_controller: self.spill_controller.0,
            local_probe_fraction: double(self.local_probe_fraction),
        })?;
        let child = self.endpoint_picking_policy.checked();
        let endpoint = child.and_then(|child| child_of("load_aware_locality", child));
        let endpoint = endpoint.map_err(|error| error.under("endpoint_picking_policy"))?;
        Ok((endpoint, Some(LocalityPolicy::LoadAwareLocality(settings))))
    }
}

/// The children up to the first supported one.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct EndpointPickingPolicy {
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
