//! [`Outliers`]: outlier detection, which ejects hosts whose requests fail.

use std::time::Duration;

use plimsoll_core::model::outlier_detection::{
    ConsecutiveErrors, FailurePercentageEjection, OutlierDetection, OutlierDetectionParts,
    SuccessRateEjection,
};
use plimsoll_core::units::FieldError;

/// Outlier detection, for [`Cluster::outlier_detection`](crate::Cluster::outlier_detection).
/// Defaults are Envoy's: 5 consecutive 5xx, or a success rate far below the mean, eject a host for
/// 30 s and longer when repeated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outliers {
    parts: OutlierDetectionParts,
}

impl Default for Outliers {
    fn default() -> Self {
        let mut outliers = Self {
            parts: OutlierDetectionParts::default(),
        };
        outliers.parts.consecutive_5xx = Some(ConsecutiveErrors::default());
        outliers.parts.success_rate_ejection = Some(SuccessRateEjection::default());
        outliers
    }
}

impl Outliers {
    /// Creates outlier detection with Envoy's defaults.
    pub fn new() -> Self {
        Self::default()
    }

    setters! {
        /// Sets the time between two sweeps; 10 s by default.
        interval(interval: Duration) => parts.interval = Some(interval);
        /// Sets the duration of a first ejection; 30 s by default.
        base_ejection_time(time: Duration) => parts.base_ejection_time = Some(time);
        /// Sets the longest ejection; 300 s by default.
        max_ejection_time(time: Duration) => parts.max_ejection_time = Some(time);
        /// Sets the percentage of hosts that may be ejected at a time; 10 by default.
        max_ejection_percent(percent: u32) => parts.max_ejection_percent = Some(percent);
        /// Allows one ejection even if it exceeds `max_ejection_percent`.
        always_eject_one_host() => parts.always_eject_one_host = true;
        /// Does not eject by success rate.
        without_success_rate() => parts.success_rate_ejection = None;
        /// Sets the ejection by success rate.
        success_rate(ejection: SuccessRateEjection) => parts.success_rate_ejection = Some(ejection);
        /// Ejects hosts by their percentage of failed requests; off by default.
        failure_percentage(ejection: FailurePercentageEjection) =>
            parts.failure_percentage_ejection = Some(ejection);
    }

    /// Sets how many 5xx responses in a row eject a host; 5 by default, 0 is never.
    #[must_use]
    pub fn consecutive_5xx(mut self, errors: u32) -> Self {
        self.parts.consecutive_5xx = (errors > 0).then(|| ConsecutiveErrors {
            threshold: errors,
            ..ConsecutiveErrors::default()
        });
        self
    }

    pub(super) fn checked(self) -> Result<OutlierDetection, FieldError> {
        OutlierDetection::try_new(self.parts)
    }
}
