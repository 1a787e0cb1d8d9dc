//! `outlier_detection` from files.

use plimsoll_core::model::outlier_detection::OutlierDetection;
use plimsoll_core::units::FieldError;
use serde::Deserialize;

use super::super::proto_json::{Ignored, ProtoDuration, Uint};
use super::{duration, number};
use crate::upstream::OutlierFields;

/// `OutlierDetection`.
#[derive(Clone, Debug, Default, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub(crate) struct OutlierDetectionYaml {
    /// Errors in a row that make a host an outlier. Default 5.
    consecutive_5xx: Option<Uint<u32>>,
    /// Time between two sweeps. Default `10s`.
    interval: Option<ProtoDuration>,
    /// How long a first ejection lasts; each further one lasts longer by this. Default `30s`.
    base_ejection_time: Option<ProtoDuration>,
    /// Percent of the hosts that may be out at a time. Default 10.
    max_ejection_percent: Option<Uint<u32>>,
    /// Chance in percent that an outlier by errors in a row is taken out. Default 100.
    enforcing_consecutive_5xx: Option<Uint<u32>>,
    /// Chance in percent that an outlier by success rate is taken out. Default 100.
    enforcing_success_rate: Option<Uint<u32>>,
    /// Hosts that must have had enough requests. Default 5.
    success_rate_minimum_hosts: Option<Uint<u32>>,
    /// Requests of a host in one interval that are enough. Default 100.
    success_rate_request_volume: Option<Uint<u32>>,
    /// Thousandths of a standard deviation below the mean that make an outlier. Default 1900.
    success_rate_stdev_factor: Option<Uint<u32>>,
    /// Must be 0: gateway failures are not looked at apart.
    enforcing_consecutive_gateway_failure: Option<Uint<u32>>,
    /// Must be false: errors are not split.
    split_external_local_origin_errors: bool,
    /// Percent of failed requests that make a host an outlier. Default 85.
    failure_percentage_threshold: Option<Uint<u32>>,
    /// Chance in percent that an outlier by failure percentage is taken out. Default 0.
    enforcing_failure_percentage: Option<Uint<u32>>,
    /// Hosts that must have had enough requests. Default 5.
    failure_percentage_minimum_hosts: Option<Uint<u32>>,
    /// Requests of a host in one interval that are enough. Default 50.
    failure_percentage_request_volume: Option<Uint<u32>>,
    /// How long an ejection lasts at most. Default `300s`, or the base if that is longer.
    max_ejection_time: Option<ProtoDuration>,
    /// Must be 0.
    max_ejection_time_jitter: Option<ProtoDuration>,
    /// One host may be taken out even when that is more than `max_ejection_percent`.
    always_eject_one_host: bool,
    /// Must be empty: there are none.
    monitors: Vec<Ignored>,
    // Without the field that enforces it, this is only counted.
    /// Without effect: only counted in Envoy unless it is enforced.
    consecutive_gateway_failure: Option<Uint<u32>>,
    // Without effect unless errors are split, which is refused.
    /// Without effect: errors are not split.
    consecutive_local_origin_failure: Option<Uint<u32>>,
    /// Without effect: errors are not split.
    enforcing_consecutive_local_origin_failure: Option<Uint<u32>>,
    /// Without effect: errors are not split.
    enforcing_local_origin_success_rate: Option<Uint<u32>>,
    /// Without effect: errors are not split.
    enforcing_failure_percentage_local_origin: Option<Uint<u32>>,
    // Hosts return when their time is over, whatever checks say.
    /// Without effect: a host returns when its time is over.
    successful_active_health_check_uneject_host: Option<bool>,
}

impl OutlierDetectionYaml {
    /// The settings; the path of an error starts inside the message.
    pub(crate) fn checked(self) -> Result<OutlierDetection, FieldError> {
        let fields = OutlierFields {
            consecutive_5xx: number(self.consecutive_5xx),
            interval: duration(self.interval),
            base_ejection_time: duration(self.base_ejection_time),
            max_ejection_time: duration(self.max_ejection_time),
            max_ejection_time_jitter: duration(self.max_ejection_time_jitter),
            max_ejection_percent: number(self.max_ejection_percent),
            enforcing_consecutive_5xx: number(self.enforcing_consecutive_5xx),
            enforcing_success_rate: number(self.enforcing_success_rate),
            success_rate_minimum_hosts: number(self.success_rate_minimum_hosts),
            success_rate_request_volume: number(self.success_rate_request_volume),
            success_rate_stdev_factor: number(self.success_rate_stdev_factor),
            enforcing_consecutive_gateway_failure: number(
                self.enforcing_consecutive_gateway_failure,
            ),
            split_external_local_origin_errors: self.split_external_local_origin_errors,
            failure_percentage_threshold: number(self.failure_percentage_threshold),
            enforcing_failure_percentage: number(self.enforcing_failure_percentage),
            failure_percentage_minimum_hosts: number(self.failure_percentage_minimum_hosts),
            failure_percentage_request_volume: number(self.failure_percentage_request_volume),
            always_eject_one_host: self.always_eject_one_host,
            has_monitors: !self.monitors.is_empty(),
        };
        fields.checked()
    }
}
