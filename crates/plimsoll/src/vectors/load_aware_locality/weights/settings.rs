//! Settings of `kind.weights`.
//!
//! Envoy's own tests build the object past its checks: with a smoothing factor instead of a time
//! constant, with a probe above the whole. So do these cases. The factor is set to the bit, because
//! local preference is a comparison: a time constant that gives it to many digits would still
//! decide a tie the other way.

use std::time::Duration;

use plimsoll_core::model::load_aware_locality::{LoadAwareLocality, LoadAwareLocalityParts};
use serde::Deserialize;

use crate::vectors::CaseError;

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct SettingsInput {
    utilization_variance_threshold: Option<f64>,
    remote_probe_fraction: Option<f64>,
    weight_expiration_period_ms: Option<u64>,
    weight_update_period_ms: Option<u64>,
    smoothing_time_constant_ms: Option<u64>,
    /// Instead of the two before it.
    ewma_alpha: Option<f64>,
    metric_names_for_computing_utilization: Vec<String>,
}

impl SettingsInput {
    pub(super) fn settings(&self) -> Result<LoadAwareLocality, CaseError> {
        let names = &self.metric_names_for_computing_utilization;
        let millis = |period: Option<u64>| period.map(Duration::from_millis);
        let settings = LoadAwareLocality::try_new(LoadAwareLocalityParts {
            weight_update_period: millis(self.weight_update_period_ms),
            smoothing_time_constant: millis(self.smoothing_time_constant_ms),
            weight_expiration_period: millis(self.weight_expiration_period_ms),
            metric_names_for_computing_utilization: names.clone(),
            ..LoadAwareLocalityParts::default()
        })?;
        let alpha = self.ewma_alpha.unwrap_or(settings.alpha());
        let threshold = self.utilization_variance_threshold;
        let threshold = threshold.unwrap_or(settings.utilization_variance_threshold());
        let probe = self.remote_probe_fraction;
        let probe = probe.unwrap_or(settings.remote_probe_fraction());
        Ok(settings.with_unchecked(alpha, threshold, probe))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_out_has_its_default() {
        let settings = SettingsInput::default().settings().unwrap();
        let defaults = LoadAwareLocality::try_new(LoadAwareLocalityParts::default());
        assert_eq!(settings, defaults.unwrap());
        let input = SettingsInput {
            smoothing_time_constant_ms: Some(0),
            ..SettingsInput::default()
        };
        assert!(input.settings().is_err());
    }

    #[test]
    fn what_no_configuration_may_hold_gets_past_the_checks() {
        let input = SettingsInput {
            ewma_alpha: Some(0.3),
            remote_probe_fraction: Some(2.0),
            utilization_variance_threshold: Some(-0.5),
            ..SettingsInput::default()
        };
        let settings = input.settings().unwrap();
        assert_eq!(settings.alpha(), 0.3);
        assert_eq!(settings.remote_probe_fraction(), 2.0);
        assert_eq!(settings.utilization_variance_threshold(), -0.5);
    }
}
