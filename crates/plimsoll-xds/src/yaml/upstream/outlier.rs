//! `outlier_detection` from files.

use plimsoll_core::model::outlier_detection::OutlierDetection;
use plimsoll_core::units::FieldError;
use serde::Deserialize;
use serde::de::IgnoredAny;

use super::super::proto_json::{ProtoDuration, Uint};
use super::{duration, number};
use crate::upstream::OutlierFields;

/// `OutlierDetection`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct OutlierDetectionYaml {
    consecutive_5xx: Option<Uint<u32>>,
    interval: Option<ProtoDuration>,
    base_ejection_time: Option<ProtoDuration>,
    max_ejection_percent: Option<Uint<u32>>,
    enforcing_consecutive_5xx: Option<Uint<u32>>,
    enforcing_success_rate: Option<Uint<u32>>,
    success_rate_minimum_hosts: Option<Uint<u32>>,
    success_rate_request_volume: Option<Uint<u32>>,
    success_rate_stdev_factor: Option<Uint<u32>>,
    enforcing_consecutive_gateway_failure: Option<Uint<u32>>,
    split_external_local_origin_errors: bool,
    failure_percentage_threshold: Option<Uint<u32>>,
    enforcing_failure_percentage: Option<Uint<u32>>,
    failure_percentage_minimum_hosts: Option<Uint<u32>>,
    failure_percentage_request_volume: Option<Uint<u32>>,
    max_ejection_time: Option<ProtoDuration>,
    max_ejection_time_jitter: Option<ProtoDuration>,
    always_eject_one_host: bool,
    monitors: Vec<IgnoredAny>,
    // Without the field that enforces it, this is only counted.
    consecutive_gateway_failure: Option<Uint<u32>>,
    // Without effect unless errors are split, which is refused.
    consecutive_local_origin_failure: Option<Uint<u32>>,
    enforcing_consecutive_local_origin_failure: Option<Uint<u32>>,
    enforcing_local_origin_success_rate: Option<Uint<u32>>,
    enforcing_failure_percentage_local_origin: Option<Uint<u32>>,
    // Hosts return when their time is over, whatever checks say.
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
