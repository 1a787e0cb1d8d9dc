//! The suite `outlier_detection`: which hosts each sweep ejects and lets back.

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
use plimsoll_core::rng::Script;
use plimsoll_core::time::Instant;
use serde::Deserialize;
use serde_json::json;

use super::compare::Outcome;
use super::{Case, CaseError};

pub(super) fn run(case: &Case) -> Result<Outcome, CaseError> {
    match case.kind.as_str() {
        "sweeps" => sweeps(case.inputs()?),
        _ => Err(CaseError::unknown_kind(case, &["sweeps"])),
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

/// Successes, then errors, of one host in one interval.
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

fn sweeps(inputs: Inputs) -> Result<Outcome, CaseError> {
    let config = Arc::new(OutlierDetection::try_new(inputs.config.into())?);
    let mut hosts: Vec<HostSample> = (0..inputs.hosts).map(sample).collect();
    let mut detector = OutlierDetector::new(config, &hosts, Instant::ORIGIN);
    let mut rng = Script::new(inputs.draws);
    let (mut ejected, mut returned) = (Vec::new(), Vec::new());
    for requests in &inputs.sweeps {
        for (&host, &(succeeded, failed)) in requests {
            let host = hosts
                .get_mut(usize::from(host))
                .ok_or_else(|| CaseError::inputs(format!("sweeps: there is no host {host}")))?;
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
            .ok_or_else(|| CaseError::inputs("config: no algorithm is on"))?;
        detector.handle_tick(&hosts, &mut rng, now);
        let signals: Vec<_> = std::iter::from_fn(|| detector.poll_signal()).collect();
        ejected.push(those(&signals, HealthSignal::OutlierEjected));
        returned.push(those(&signals, HealthSignal::OutlierReturned));
    }
    let stats = detector.stats().iter();
    Ok(Outcome::default()
        .exact("ejected", json!(ejected))
        .exact("returned", json!(returned))
        .exact("draws", rng.used())
        .sparse("stats", stats.map(|(name, value)| (name.to_owned(), value))))
}

fn sample(host: u8) -> HostSample {
    HostSample {
        address: SocketAddr::from(([10, 0, 0, host], 80)),
        totals: RequestCounts::default(),
        consecutive_errors: 0,
    }
}

/// Numbers of the hosts that `wanted` was said of, in order.
fn those(signals: &[(SocketAddr, HealthSignal)], wanted: HealthSignal) -> Vec<u8> {
    let signals = signals.iter().filter(|(_, signal)| *signal == wanted);
    signals
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
