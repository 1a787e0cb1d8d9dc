//! [`OutlierDetection`]: settings of outlier detection.
//!
//! The fields and defaults of gRFC A50, which are Envoy's, plus Envoy's consecutive errors. The
//! module `outlier_detection` applies them.

use std::time::Duration;

use crate::units::FieldError;

const DEFAULT_INTERVAL: Duration = Duration::from_secs(10);
const DEFAULT_BASE_EJECTION_TIME: Duration = Duration::from_secs(30);
const DEFAULT_MAX_EJECTION_TIME: Duration = Duration::from_secs(300);
const DEFAULT_MAX_EJECTION_PERCENT: u32 = 10;

/// Settings of outlier detection, unchecked. An algorithm that is `None` is off.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OutlierDetectionParts {
    /// Time between two sweeps; default 10 s.
    pub interval: Option<Duration>,
    /// Duration of a first ejection; default 30 s.
    pub base_ejection_time: Option<Duration>,
    /// Longest ejection; default 300 s or the base, whichever is longer.
    pub max_ejection_time: Option<Duration>,
    /// Percentage of hosts that may be ejected at a time; default 10.
    pub max_ejection_percent: Option<u32>,
    /// One ejection may exceed `max_ejection_percent`. Default false (Envoy); gRFC A50: always.
    pub always_eject_one_host: bool,
    pub success_rate_ejection: Option<SuccessRateEjection>,
    pub failure_percentage_ejection: Option<FailurePercentageEjection>,
    pub consecutive_5xx: Option<ConsecutiveErrors>,
    /// Keeps literals open for new fields: write `..Default::default()`.
    #[doc(hidden)]
    pub _non_exhaustive: (),
}

/// Ejects hosts whose success rate is below mean − stdev × factor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SuccessRateEjection {
    /// Thousandths of a standard deviation.
    pub stdev_factor: u32,
    /// Probability in percent that an outlier is ejected.
    pub enforcement_percentage: u32,
    /// Number of hosts that must reach `request_volume`.
    pub minimum_hosts: u32,
    /// Minimum number of requests of a host in one interval.
    pub request_volume: u32,
}

impl Default for SuccessRateEjection {
    fn default() -> Self {
        Self {
            stdev_factor: 1900,
            enforcement_percentage: 100,
            minimum_hosts: 5,
            request_volume: 100,
        }
    }
}

/// Ejects hosts whose percentage of failed requests reaches a threshold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FailurePercentageEjection {
    pub threshold: u32,
    pub enforcement_percentage: u32,
    pub minimum_hosts: u32,
    pub request_volume: u32,
}

impl Default for FailurePercentageEjection {
    fn default() -> Self {
        Self {
            threshold: 85,
            enforcement_percentage: 100,
            minimum_hosts: 5,
            request_volume: 50,
        }
    }
}

/// Ejects hosts after a number of consecutive errors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConsecutiveErrors {
    pub threshold: u32,
    pub enforcement_percentage: u32,
}

impl Default for ConsecutiveErrors {
    fn default() -> Self {
        Self {
            threshold: 5,
            enforcement_percentage: 100,
        }
    }
}

/// Settings of outlier detection, checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutlierDetection {
    pub(crate) interval: Duration,
    pub(crate) base_ejection_time: Duration,
    /// At least as long as `base_ejection_time`.
    pub(crate) max_ejection_time: Duration,
    pub(crate) max_ejection_percent: u32,
    pub(crate) always_eject_one_host: bool,
    pub(crate) success_rate: Option<SuccessRateEjection>,
    pub(crate) failure_percentage: Option<FailurePercentageEjection>,
    pub(crate) consecutive_5xx: Option<ConsecutiveErrors>,
}

impl OutlierDetection {
    /// Checks the settings and applies defaults.
    pub fn try_new(parts: OutlierDetectionParts) -> Result<Self, FieldError> {
        let positive = |field: &str, value: Option<Duration>, default: Duration| match value {
            Some(Duration::ZERO) => Err(FieldError::new(field, "must be above 0")),
            value => Ok(value.unwrap_or(default)),
        };
        let base = positive(
            "base_ejection_time",
            parts.base_ejection_time,
            DEFAULT_BASE_EJECTION_TIME,
        )?;
        let longest = positive(
            "max_ejection_time",
            parts.max_ejection_time,
            DEFAULT_MAX_EJECTION_TIME,
        )?;
        let max_ejection_percent = parts
            .max_ejection_percent
            .unwrap_or(DEFAULT_MAX_EJECTION_PERCENT);
        percent("max_ejection_percent", max_ejection_percent)?;
        if let Some(rate) = parts.success_rate_ejection {
            percent("enforcement_percentage", rate.enforcement_percentage)
                .map_err(|error| error.under("success_rate_ejection"))?;
        }
        if let Some(failure) = parts.failure_percentage_ejection {
            percent("threshold", failure.threshold)
                .and_then(|()| percent("enforcement_percentage", failure.enforcement_percentage))
                .map_err(|error| error.under("failure_percentage_ejection"))?;
        }
        if let Some(errors) = parts.consecutive_5xx {
            if errors.threshold == 0 {
                return Err(FieldError::new("consecutive_5xx", "must be above 0"));
            }
            percent("enforcing_consecutive_5xx", errors.enforcement_percentage)?;
        }
        Ok(Self {
            interval: positive("interval", parts.interval, DEFAULT_INTERVAL)?,
            base_ejection_time: base,
            max_ejection_time: longest.max(base),
            max_ejection_percent,
            always_eject_one_host: parts.always_eject_one_host,
            success_rate: parts.success_rate_ejection,
            failure_percentage: parts.failure_percentage_ejection,
            consecutive_5xx: parts.consecutive_5xx,
        })
    }

    /// Returns the number of consecutive errors that makes a host an outlier, if that is enabled.
    pub fn consecutive_5xx(&self) -> Option<u32> {
        self.consecutive_5xx.map(|errors| errors.threshold)
    }

    /// Whether any algorithm is enabled.
    pub const fn is_enabled(&self) -> bool {
        self.success_rate.is_some()
            || self.failure_percentage.is_some()
            || self.consecutive_5xx.is_some()
    }
}

fn percent(field: &str, value: u32) -> Result<(), FieldError> {
    if value <= 100 {
        return Ok(());
    }
    let reason = format!("{value} is not a percentage between 0 and 100");
    Err(FieldError::new(field, reason))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_are_those_of_the_grfc_and_all_algorithms_are_off() {
        let config = OutlierDetection::try_new(OutlierDetectionParts::default()).unwrap();
        assert!(!config.is_enabled());
        assert_eq!(config.interval, Duration::from_secs(10));
        assert_eq!(config.base_ejection_time, Duration::from_secs(30));
        assert_eq!(config.max_ejection_time, Duration::from_secs(300));
        assert_eq!(config.max_ejection_percent, 10);
        let long = OutlierDetectionParts {
            base_ejection_time: Some(Duration::from_secs(400)),
            ..Default::default()
        };
        let long = OutlierDetection::try_new(long).unwrap();
        assert_eq!(long.max_ejection_time, Duration::from_secs(400));
    }

    #[test]
    fn invalid_values_name_their_field() {
        let zero = Some(Duration::ZERO);
        let cases: [(&str, OutlierDetectionParts); 8] = [
            ("interval", parts(|p| p.interval = zero)),
            ("base_ejection_time", parts(|p| p.base_ejection_time = zero)),
            ("max_ejection_time", parts(|p| p.max_ejection_time = zero)),
            (
                "max_ejection_percent",
                parts(|p| p.max_ejection_percent = Some(101)),
            ),
            (
                "success_rate_ejection.enforcement_percentage",
                parts(|p| {
                    p.success_rate_ejection = Some(SuccessRateEjection {
                        enforcement_percentage: 101,
                        ..Default::default()
                    });
                }),
            ),
            (
                "failure_percentage_ejection.threshold",
                parts(|p| {
                    p.failure_percentage_ejection = Some(FailurePercentageEjection {
                        threshold: 101,
                        ..Default::default()
                    });
                }),
            ),
            (
                "consecutive_5xx",
                parts(|p| {
                    p.consecutive_5xx = Some(ConsecutiveErrors {
                        threshold: 0,
                        ..Default::default()
                    });
                }),
            ),
            (
                "enforcing_consecutive_5xx",
                parts(|p| {
                    p.consecutive_5xx = Some(ConsecutiveErrors {
                        enforcement_percentage: 300,
                        ..Default::default()
                    });
                }),
            ),
        ];
        for (path, parts) in cases {
            assert_eq!(OutlierDetection::try_new(parts).unwrap_err().path(), path);
        }
    }

    fn parts(change: impl FnOnce(&mut OutlierDetectionParts)) -> OutlierDetectionParts {
        let mut parts = OutlierDetectionParts::default();
        change(&mut parts);
        parts
    }
}
