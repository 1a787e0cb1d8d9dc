//! Validation of Envoy's `OutlierDetection` and conversion to the core's settings.

use std::time::Duration;

use plimsoll_core::model::outlier_detection::{
    ConsecutiveErrors, FailurePercentageEjection, OutlierDetection, OutlierDetectionParts,
    SuccessRateEjection,
};
use plimsoll_core::units::FieldError;

/// Unchecked `envoy.config.cluster.v3.OutlierDetection`. Fields that require
/// `split_external_local_origin_errors` are missing, because that field is rejected.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct OutlierFields {
    pub(crate) consecutive_5xx: Option<u32>,
    pub(crate) interval: Option<Duration>,
    pub(crate) base_ejection_time: Option<Duration>,
    pub(crate) max_ejection_time: Option<Duration>,
    pub(crate) max_ejection_time_jitter: Option<Duration>,
    pub(crate) max_ejection_percent: Option<u32>,
    pub(crate) enforcing_consecutive_5xx: Option<u32>,
    pub(crate) enforcing_success_rate: Option<u32>,
    pub(crate) success_rate_minimum_hosts: Option<u32>,
    pub(crate) success_rate_request_volume: Option<u32>,
    pub(crate) success_rate_stdev_factor: Option<u32>,
    pub(crate) enforcing_consecutive_gateway_failure: Option<u32>,
    pub(crate) split_external_local_origin_errors: bool,
    pub(crate) failure_percentage_threshold: Option<u32>,
    pub(crate) enforcing_failure_percentage: Option<u32>,
    pub(crate) failure_percentage_minimum_hosts: Option<u32>,
    pub(crate) failure_percentage_request_volume: Option<u32>,
    pub(crate) always_eject_one_host: bool,
    pub(crate) has_monitors: bool,
}

impl OutlierFields {
    /// Validates the settings; error paths start inside the message.
    pub(crate) fn checked(self) -> Result<OutlierDetection, FieldError> {
        self.check_supported()?;
        let enforcing_5xx = percent("enforcing_consecutive_5xx", self.enforcing_consecutive_5xx)?;
        let enforcing_rate = percent("enforcing_success_rate", self.enforcing_success_rate)?;
        let enforcing_failure = percent(
            "enforcing_failure_percentage",
            self.enforcing_failure_percentage,
        )?;
        let threshold = percent(
            "failure_percentage_threshold",
            self.failure_percentage_threshold,
        )?;
        let (errors, rate) = (ConsecutiveErrors::default(), SuccessRateEjection::default());
        let failure = FailurePercentageEjection::default();
        let errors = ConsecutiveErrors {
            threshold: self.consecutive_5xx.unwrap_or(errors.threshold),
            enforcement_percentage: enforcing_5xx.unwrap_or(errors.enforcement_percentage),
        };
        let rate = SuccessRateEjection {
            stdev_factor: self.success_rate_stdev_factor.unwrap_or(rate.stdev_factor),
            enforcement_percentage: enforcing_rate.unwrap_or(rate.enforcement_percentage),
            minimum_hosts: self
                .success_rate_minimum_hosts
                .unwrap_or(rate.minimum_hosts),
            request_volume: self
                .success_rate_request_volume
                .unwrap_or(rate.request_volume),
        };
        let failure = FailurePercentageEjection {
            threshold: threshold.unwrap_or(failure.threshold),
            // Off by default, unlike consecutive 5xx and success rate.
            enforcement_percentage: enforcing_failure.unwrap_or(0),
            minimum_hosts: self
                .failure_percentage_minimum_hosts
                .unwrap_or(failure.minimum_hosts),
            request_volume: self
                .failure_percentage_request_volume
                .unwrap_or(failure.request_volume),
        };
        OutlierDetection::try_new(OutlierDetectionParts {
            interval: self.interval,
            base_ejection_time: self.base_ejection_time,
            max_ejection_time: self.max_ejection_time,
            max_ejection_percent: self.max_ejection_percent,
            always_eject_one_host: self.always_eject_one_host,
            // A threshold of zero disables the algorithm.
            consecutive_5xx: (errors.threshold > 0 && errors.enforcement_percentage > 0)
                .then_some(errors),
            success_rate_ejection: (rate.enforcement_percentage > 0).then_some(rate),
            failure_percentage_ejection: (failure.enforcement_percentage > 0).then_some(failure),
            _non_exhaustive: (),
        })
    }

    fn check_supported(&self) -> Result<(), FieldError> {
        let jitter = self.max_ejection_time_jitter.unwrap_or_default();
        let gateway = self.enforcing_consecutive_gateway_failure.unwrap_or(0);
        let unsupported = [
            ("max_ejection_time_jitter", !jitter.is_zero()),
            ("enforcing_consecutive_gateway_failure", gateway > 0),
            (
                "split_external_local_origin_errors",
                self.split_external_local_origin_errors,
            ),
            ("monitors", self.has_monitors),
        ];
        match unsupported.into_iter().find(|&(_, set)| set) {
            Some((field, _)) => Err(FieldError::new(field, "is not supported")),
            None => Ok(()),
        }
    }
}

fn percent(field: &str, value: Option<u32>) -> Result<Option<u32>, FieldError> {
    match value {
        Some(value @ 101..) => {
            let reason = format!("{value} is not a percentage between 0 and 100");
            Err(FieldError::new(field, reason))
        }
        value => Ok(value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(change: impl FnOnce(&mut OutlierFields)) -> Result<OutlierDetection, FieldError> {
        let mut fields = OutlierFields::default();
        change(&mut fields);
        fields.checked()
    }

    #[test]
    fn an_empty_message_is_envoys_default() {
        let expected = OutlierDetection::try_new(OutlierDetectionParts {
            consecutive_5xx: Some(ConsecutiveErrors::default()),
            success_rate_ejection: Some(SuccessRateEjection::default()),
            ..Default::default()
        });
        assert_eq!(checked(|_| {}), expected);
    }

    #[test]
    fn zero_switches_an_algorithm_off() {
        let off = checked(|fields| {
            fields.consecutive_5xx = Some(0);
            fields.enforcing_success_rate = Some(0);
        });
        assert!(!off.unwrap().is_enabled());
        let failure = checked(|fields| {
            fields.enforcing_consecutive_5xx = Some(0);
            fields.enforcing_success_rate = Some(0);
            fields.enforcing_failure_percentage = Some(50);
        });
        assert!(failure.unwrap().is_enabled());
    }

    #[test]
    fn unsupported_and_invalid_fields_are_named() {
        type Change = fn(&mut OutlierFields);
        let cases: [(&str, Change); 6] = [
            ("max_ejection_time_jitter", |f| {
                f.max_ejection_time_jitter = Some(Duration::from_secs(1));
            }),
            ("enforcing_consecutive_gateway_failure", |f| {
                f.enforcing_consecutive_gateway_failure = Some(1);
            }),
            ("split_external_local_origin_errors", |f| {
                f.split_external_local_origin_errors = true;
            }),
            ("monitors", |f| f.has_monitors = true),
            ("enforcing_success_rate", |f| {
                f.enforcing_success_rate = Some(101);
            }),
            ("interval", |f| f.interval = Some(Duration::ZERO)),
        ];
        for (path, change) in cases {
            assert_eq!(checked(change).unwrap_err().path(), path);
        }
    }
}
