//! Settings of `kind.weights`.
//!
//! Envoy's own tests bypass validation: they set a smoothing factor instead of a time constant, or
//! a probe fraction above 1. So do these cases. The smoothing factor is set exactly, because local
//! preference is a comparison: an approximating time constant could decide a tie the other way.

use std::time::Duration;

use plimsoll_core::model::load_aware_locality::{LoadAwareLocality, LoadAwareLocalityParts};
use serde::Deserialize;

use crate::CaseError;

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct SettingsInput {
    utilization_variance_threshold: Option<f64>,
    remote_probe_fraction: Option<f64>,
    weight_expiration_period_ms: Option<u64>,
    weight_update_period_ms: Option<u64>,
    smoothing_time_constant_ms: Option<u64>,
    /// Smoothing factor, otherwise computed from the two durations above.
    ewma_alpha: Option<f64>,
    metric_names_for_computing_utilization: Vec<String>,
}

impl SettingsInput {
    pub(super) fn settings(&self) -> Result<LoadAwareLocality, CaseError> {
        let names = &self.metric_names_for_computing_utilization;
        let millis = |period: Option<u64>| period.map(Duration::from_millis);
        // Nothing is left of the previous value, as with this time constant: a configuration can
        // have it, so that engines whose settings are delivered support the case.
        let time_constant = match self.ewma_alpha {
            Some(1.0) => Some(1),
            _ => self.smoothing_time_constant_ms,
        };
        let settings = LoadAwareLocality::try_new(LoadAwareLocalityParts {
            weight_update_period: millis(self.weight_update_period_ms),
            smoothing_time_constant: millis(time_constant),
            weight_expiration_period: millis(self.weight_expiration_period_ms),
            metric_names_for_computing_utilization: names.clone(),
            ..LoadAwareLocalityParts::default()
        })?;
        let alpha = self.ewma_alpha.unwrap_or(settings.alpha());
        let threshold = self
            .utilization_variance_threshold
            .unwrap_or(settings.utilization_variance_threshold());
        let probe = self
            .remote_probe_fraction
            .unwrap_or(settings.remote_probe_fraction());
        Ok(settings.with_unchecked(alpha, threshold, probe))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_settings_have_their_defaults() {
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
    fn settings_bypass_validation() {
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
