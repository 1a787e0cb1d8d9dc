//! Suite `outlier_detection`: which hosts each sweep ejects and which it returns to service.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use plimsoll_core::host::RequestCounts;
use plimsoll_core::model::health::HealthSignal;
use plimsoll_core::model::outlier_detection::{
    ConsecutiveErrors, FailurePercentageEjection, OutlierDetection, OutlierDetectionParts,
    SuccessRateEjection,
};
use plimsoll_core::outlier_detection::{HostSample, OutlierDetector};
use plimsoll_core::rng::ScriptedRng;
use plimsoll_core::time::Instant;
use serde::Deserialize;
use serde_json::json;

use super::compare::table;
use super::{Case, CaseError, CaseResult};

pub(super) fn run(case: &Case) -> CaseResult {
    match case.kind.as_str() {
        "sweeps" => sweeps(case.inputs()?),
        _ => Err(CaseError::unknown_kind(case)),
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Inputs {
    config: ConfigInput,
    hosts: u8,
    sweeps: Vec<BTreeMap<u8, Requests>>,
    #[serde(default)]
    draws: Vec<u64>,
}

/// Numbers of successes and errors of one host in one interval.
type Requests = (u64, u32);

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ConfigInput {
    base_ejection_time_s: Option<u64>,
    max_ejection_time_s: Option<u64>,
    max_ejection_percent: Option<u32>,
    #[serde(default)]
    always_eject_one_host: bool,
    success_rate_ejection: Option<Algorithm>,
    failure_percentage_ejection: Option<Algorithm>,
    consecutive_5xx: Option<Algorithm>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Algorithm {
    stdev_factor: Option<u32>,
    threshold: Option<u32>,
    enforcement_percentage: Option<u32>,
    minimum_hosts: Option<u32>,
    request_volume: Option<u32>,
}

fn sweeps(inputs: Inputs) -> CaseResult {
    let config = Arc::new(OutlierDetection::try_new(inputs.config.into())?);
    let mut hosts: Vec<HostSample> = (0..inputs.hosts).map(sample).collect();
    let mut detector = OutlierDetector::new(config, &hosts, Instant::ORIGIN);
    let mut rng = ScriptedRng::new(inputs.draws);
    let (mut ejected, mut returned) = (Vec::new(), Vec::new());
    for requests in &inputs.sweeps {
        for (&host, &(succeeded, failed)) in requests {
            let host = hosts
                .get_mut(usize::from(host))
                .ok_or_else(|| CaseError::inputs(format!("sweeps: unknown host {host}")))?;
            host.totals.issued += succeeded + u64::from(failed);
            host.totals.succeeded += succeeded;
            host.totals.failed += u64::from(failed);
            host.consecutive_errors = match succeeded {
                0 => host.consecutive_errors + failed,
                _ => failed,
            };
        }
        let now = detector
            .poll_timeout()
            .ok_or_else(|| CaseError::inputs("config: no algorithm is enabled"))?;
        detector.handle_tick(&hosts, &mut rng, now);
        let signals: Vec<_> = std::iter::from_fn(|| detector.poll_signal()).collect();
        ejected.push(hosts_with(&signals, HealthSignal::OutlierEjected));
        returned.push(hosts_with(&signals, HealthSignal::OutlierReturned));
    }
    Ok(json!({
        "ejected": ejected,
        "returned": returned,
        "draws": rng.used(),
        "stats": table(detector.stats().iter()),
    })
    .into())
}

fn sample(host: u8) -> HostSample {
    HostSample {
        address: SocketAddr::from(([10, 0, 0, host], 80)),
        totals: RequestCounts::default(),
        consecutive_errors: 0,
    }
}

/// Returns the numbers of the hosts that got `expected` as signal, in order.
fn hosts_with(signals: &[(SocketAddr, HealthSignal)], expected: HealthSignal) -> Vec<u8> {
    signals
        .iter()
        .filter(|(_, signal)| *signal == expected)
        .filter_map(|(address, _)| match address {
            SocketAddr::V4(address) => Some(address.ip().octets()[3]),
            SocketAddr::V6(_) => None,
        })
        .collect()
}

impl From<ConfigInput> for OutlierDetectionParts {
    fn from(input: ConfigInput) -> Self {
        let (rate, failure, errors) = (
            SuccessRateEjection::default(),
            FailurePercentageEjection::default(),
            ConsecutiveErrors::default(),
        );
        Self {
            base_ejection_time: input.base_ejection_time_s.map(Duration::from_secs),
            max_ejection_time: input.max_ejection_time_s.map(Duration::from_secs),
            max_ejection_percent: input.max_ejection_percent,
            always_eject_one_host: input.always_eject_one_host,
            success_rate_ejection: input.success_rate_ejection.map(|set| SuccessRateEjection {
                stdev_factor: set.stdev_factor.unwrap_or(rate.stdev_factor),
                enforcement_percentage: set
                    .enforcement_percentage
                    .unwrap_or(rate.enforcement_percentage),
                minimum_hosts: set.minimum_hosts.unwrap_or(rate.minimum_hosts),
                request_volume: set.request_volume.unwrap_or(rate.request_volume),
            }),
            failure_percentage_ejection: input.failure_percentage_ejection.map(|set| {
                FailurePercentageEjection {
                    threshold: set.threshold.unwrap_or(failure.threshold),
                    enforcement_percentage: set
                        .enforcement_percentage
                        .unwrap_or(failure.enforcement_percentage),
                    minimum_hosts: set.minimum_hosts.unwrap_or(failure.minimum_hosts),
                    request_volume: set.request_volume.unwrap_or(failure.request_volume),
                }
            }),
            consecutive_5xx: input.consecutive_5xx.map(|set| ConsecutiveErrors {
                threshold: set.threshold.unwrap_or(errors.threshold),
                enforcement_percentage: set
                    .enforcement_percentage
                    .unwrap_or(errors.enforcement_percentage),
            }),
            ..Self::default()
        }
    }
}
