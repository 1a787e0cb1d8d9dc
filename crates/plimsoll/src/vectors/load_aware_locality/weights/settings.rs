//! Settings of `kind.weights`: what a configuration may hold, and two things it may not.
//!
//! Envoy's own tests build the object past its checks. A smoothing factor is given there instead of
//! a time constant; one can be found that gives it. A probe above the whole cannot be configured at
//! all and is set past our checks, too.

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
        let (period, time_constant) = self.smoothing()?;
        let parts = LoadAwareLocalityParts {
            weight_update_period: period,
            smoothing_time_constant: time_constant,
            weight_expiration_period: self.weight_expiration_period_ms.map(Duration::from_millis),
            metric_names_for_computing_utilization: names.clone(),
            ..LoadAwareLocalityParts::default()
        };
        let checked = LoadAwareLocality::try_new(LoadAwareLocalityParts {
            utilization_variance_threshold: self.utilization_variance_threshold,
            remote_probe_fraction: self.remote_probe_fraction,
            ..parts.clone()
        });
        if let Ok(settings) = checked {
            return Ok(settings);
        }
        let settings = LoadAwareLocality::try_new(parts)?;
        let threshold = self
            .utilization_variance_threshold
            .unwrap_or(settings.utilization_variance_threshold());
        let probe = self
            .remote_probe_fraction
            .unwrap_or(settings.remote_probe_fraction());
        Ok(settings.with_unchecked(threshold, probe))
    }

    /// Update period and time constant.
    fn smoothing(&self) -> Result<(Option<Duration>, Option<Duration>), CaseError> {
        let Some(alpha) = self.ewma_alpha else {
            return Ok((
                self.weight_update_period_ms.map(Duration::from_millis),
                self.smoothing_time_constant_ms.map(Duration::from_millis),
            ));
        };
        if !(alpha > 0.0 && alpha <= 1.0) {
            let reason = format!("ewma_alpha: {alpha} is not above 0 and at most 1");
            return Err(CaseError::inputs(reason));
        }
        let (period, time_constant) = periods(alpha);
        Ok((Some(period), Some(time_constant)))
    }
}

/// A period and a time constant in whole milliseconds with `1 - exp(-period/time constant) = alpha`.
/// The longer they are, the more exact: these give alpha to less than 1e-10.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "positive, and `as` ends at the bounds"
)]
fn periods(alpha: f64) -> (Duration, Duration) {
    /// Some months.
    const PERIOD_MS: f64 = 1e10;
    let ratio = -(1.0 - alpha).ln();
    if ratio.is_infinite() {
        // exp(-1000) is 0.
        return (Duration::from_secs(1), Duration::from_millis(1));
    }
    let time_constant = (PERIOD_MS / ratio).round();
    (
        Duration::from_millis(PERIOD_MS as u64),
        Duration::from_millis(time_constant as u64),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn alpha_of(alpha: f64) -> f64 {
        let input = SettingsInput {
            ewma_alpha: Some(alpha),
            ..SettingsInput::default()
        };
        input.settings().unwrap().alpha()
    }

    #[test]
    fn a_time_constant_is_found_for_every_alpha() {
        assert_eq!(alpha_of(1.0), 1.0);
        for alpha in [1e-9, 0.001, 0.1, 0.181_269_246_922_018_18, 0.3, 0.5] {
            assert!((alpha_of(alpha) - alpha).abs() < 1e-10, "{alpha}");
        }
        for alpha in [0.632, 0.75, 0.9, 0.99, 0.999_999] {
            assert!((alpha_of(alpha) - alpha).abs() < 1e-10, "{alpha}");
        }
    }

    #[test]
    fn what_no_configuration_may_hold_gets_past_the_checks() {
        let input = SettingsInput {
            remote_probe_fraction: Some(2.0),
            utilization_variance_threshold: Some(-0.5),
            ..SettingsInput::default()
        };
        let settings = input.settings().unwrap();
        assert_eq!(settings.remote_probe_fraction(), 2.0);
        assert_eq!(settings.utilization_variance_threshold(), -0.5);
        let input = SettingsInput {
            remote_probe_fraction: Some(1.0),
            ..SettingsInput::default()
        };
        let settings = input.settings().unwrap();
        assert_eq!(settings.utilization_variance_threshold(), 0.1);
    }

    #[test]
    fn nonsense_is_refused() {
        for alpha in [0.0, -0.1, 1.1, f64::NAN] {
            let input = SettingsInput {
                ewma_alpha: Some(alpha),
                ..SettingsInput::default()
            };
            assert!(input.settings().is_err(), "{alpha}");
        }
        let input = SettingsInput {
            smoothing_time_constant_ms: Some(0),
            ..SettingsInput::default()
        };
        assert!(input.settings().is_err());
    }
}
