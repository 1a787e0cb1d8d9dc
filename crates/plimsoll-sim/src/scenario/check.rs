//! Validation of scenarios: defaults, ranges, and errors with the path of the field. `zones` checks
//! zones, `events` checks events and expectations.

use std::sync::Arc;

use plimsoll_core::model::cluster::LocalitySampling;
use plimsoll_core::model::outlier_detection::{
    ConsecutiveErrors, OutlierDetection, OutlierDetectionParts,
};
use plimsoll_core::planner::transport::Objective;
use plimsoll_core::units::FieldError;

use super::duration::HumanDuration;
use super::events::{events, expectations};
use super::parts::{
    self, BalancerParts, ControlPlaneParts, HostParts, NetworkParts, ReportsParts, ScenarioParts,
    TrafficParts,
};
use super::zones::{Names, zones};
use super::{
    Arrivals, BalancerSettings, ControlPlaneSettings, DataPlane, EndpointPolicyName, HostSettings,
    NetworkSettings, ReportSettings, Scenario, Service, Traffic, Wave, Zone,
};
use crate::num;
use crate::policy::Policy;

const DEFAULT_DURATION: HumanDuration = HumanDuration::from_secs(120);
/// Default of `[host] servers`: enough for latency to rise gently before it rises steeply.
const DEFAULT_SERVERS: u32 = 3;
/// Limit of simulated requests; more would take an hour and should be sampled.
const MAX_REQUESTS: f64 = 3e8;
/// Limit of hosts known to balancers; more do not fit the memory of a laptop.
const MAX_KNOWN_HOSTS: usize = 3_000_000;
/// Limit of zones × bins of a quarter second; more do not fit the memory of a laptop.
const MAX_CELLS: u64 = 20_000_000;

const MAX_MEAN_UTILIZATION: f64 = 3.0;

impl Scenario {
    /// Checks the fields and applies the defaults.
    pub fn try_new(parts: ScenarioParts) -> Result<Self, FieldError> {
        let (zones, names) = zones(&parts.zone, parts.scale.balancers_per_zone)?;
        let duration = num::nanos(parts.duration.unwrap_or(DEFAULT_DURATION).0);
        let measure_from = parts
            .measure_from
            .map_or(duration / 2, |from| num::nanos(from.0));
        if measure_from >= duration {
            return Err(FieldError::new(
                "measure_from",
                "must be before the end of the run",
            ));
        }
        let control_plane = control_plane(parts.control_plane)?;
        let policies = policies(&parts.policies, control_plane.objective)?;
        let scenario = Self {
            title: parts.title,
            description: parts.description,
            seed: parts.seed.unwrap_or(1),
            duration,
            measure_from,
            traffic: traffic(&parts.traffic, &zones, &names)?,
            events: events(&parts.event, &zones, &names, duration)?,
            expectations: expectations(&parts.expect, &policies)?,
            policies,
            zones,
            host: host(&parts.host)?,
            network: network(parts.network)?,
            reports: reports(&parts.reports)?,
            control_plane,
            balancer: balancer(&parts.balancer)?,
            outlier_detection: outlier_detection(parts.outlier_detection.as_ref())?,
            load_aware: parts.load_aware_locality,
            requests_per_sample: at_least_one(
                parts.scale.requests_per_sample,
                "scale.requests_per_sample",
            )?,
        };
        for &policy in &scenario.policies {
            // Report settings that the core rejects now, not in the middle of a run.
            policy.check(&scenario)?;
        }
        check_size(&scenario)?;
        Ok(scenario)
    }
}

fn control_plane(parts: ControlPlaneParts) -> Result<ControlPlaneSettings, FieldError> {
    Ok(ControlPlaneSettings {
        report_interval: within(
            parts.report_interval,
            HumanDuration::from_secs(10),
            "control_plane.report_interval",
            (
                HumanDuration::from_millis(100),
                HumanDuration::from_secs(600),
            ),
        )?,
        delay: within(
            parts.delay,
            HumanDuration::from_millis(100),
            "control_plane.delay",
            (HumanDuration::from_millis(0), HumanDuration::from_secs(60)),
        )?,
        objective: match parts.target_utilization {
            Some(target) => {
                Objective::waterfall(target).map_err(|error| error.under("control_plane"))?
            }
            None => Objective::LEVEL,
        },
        learned_capacity: parts.learned_capacity,
        planner: parts,
    })
}

/// Returns the faults of sections that do not depend on the zones, one for each.
pub(super) fn independent_faults(parts: &ScenarioParts) -> Vec<FieldError> {
    let checked = [
        policies(&parts.policies, Objective::LEVEL).map(drop),
        host(&parts.host).map(drop),
        network(parts.network.clone()).map(drop),
        reports(&parts.reports).map(drop),
        control_plane(parts.control_plane.clone()).map(drop),
        balancer(&parts.balancer).map(drop),
        outlier_detection(parts.outlier_detection.as_ref()).map(drop),
    ];
    checked.into_iter().filter_map(Result::err).collect()
}

/// Rejects scenarios that would take hours or all memory, and suggests an alternative.
pub(super) fn check_size(scenario: &Scenario) -> Result<(), FieldError> {
    let error = |path: &str, reason: String| Err(FieldError::new(path, reason));
    if scenario.duration < num::SECOND * 10 {
        return error("duration", "must be at least 10s".into());
    }
    let seconds = num::seconds(scenario.duration);
    let sampled = scenario.traffic.requests_per_second / f64::from(scenario.requests_per_sample);
    let requests = sampled * seconds;
    if requests > MAX_REQUESTS {
        let sample = (scenario.traffic.requests_per_second * seconds / MAX_REQUESTS).ceil();
        let reason = format!("{requests:.0} requests are too many: set it to {sample} or more");
        return error("scale.requests_per_sample", reason);
    }
    let known = scenario.balancer_count() * scenario.host_count() as usize;
    if known > MAX_KNOWN_HOSTS {
        let (balancers, hosts) = (scenario.balancer_count(), scenario.host_count());
        let fit = MAX_KNOWN_HOSTS / hosts.max(1) as usize / scenario.zones.len().max(1);
        let reason = format!(
            "{balancers} balancers that know {hosts} hosts each do not fit in memory: set it to \
             {fit} or less"
        );
        return error("scale.balancers_per_zone", reason);
    }
    let cells = (scenario.duration / num::SECOND * 4).saturating_mul(scenario.zones.len() as u64);
    if cells > MAX_CELLS {
        let reason = format!("too long for {} zones", scenario.zones.len());
        return error("duration", reason);
    }
    Ok(())
}

/// Without names, all policies; those that replace an objective only if there is one.
fn policies(names: &[String], objective: Objective) -> Result<Vec<Policy>, FieldError> {
    if names.is_empty() {
        let all = Policy::ALL.iter().copied();
        let differs = |policy: &Policy| !objective.is_level() || policy.with_level().is_none();
        return Ok(all.filter(differs).collect());
    }
    let mut policies = Vec::new();
    for (index, name) in names.iter().enumerate() {
        let path = format!("policies[{index}]");
        let policy = Policy::parse(name).map_err(|reason| FieldError::new(&path, reason))?;
        if policies.contains(&policy) {
            return Err(FieldError::new(path, format!("{name} is listed twice")));
        }
        policies.push(policy);
    }
    Ok(policies)
}

fn traffic(parts: &TrafficParts, zones: &[Zone], names: &Names) -> Result<Traffic, FieldError> {
    let capacity: f64 = zones.iter().map(Zone::capacity).sum();
    let requests_per_second = match (parts.mean_utilization, parts.requests_per_second) {
        (Some(mean), None) => mean_utilization(mean)? * capacity,
        (None, Some(rate)) => positive(rate, "traffic.requests_per_second")?,
        _ => {
            let reason = "give either mean_utilization or requests_per_second";
            return Err(FieldError::new("traffic", reason));
        }
    };
    let arrivals = choice(
        parts.arrivals.as_deref(),
        &[("paced", Arrivals::Paced), ("poisson", Arrivals::Poisson)],
        "traffic.arrivals",
    )?;
    let mut waves = Vec::new();
    for (index, wave) in parts.wave.iter().enumerate() {
        let path = |field: &str| format!("traffic.wave[{index}].{field}");
        if wave.period < HumanDuration::from_secs(1) {
            return Err(FieldError::new(path("period"), "must be at least 1s"));
        }
        waves.push(Wave {
            zones: names.of_or_all(wave.zone.as_deref(), &path("zone"))?,
            period: num::nanos(wave.period.0),
            amplitude: share(wave.amplitude, &path("amplitude"))?,
            phase: finite(wave.phase, &path("phase"))?,
        });
    }
    Ok(Traffic {
        requests_per_second,
        arrivals,
        waves,
        recorded: None,
    })
}

/// Checks a mean utilization. A host that is three times overloaded only measures its queue,
/// and a scenario with 60 means 60 %.
fn mean_utilization(mean: f64) -> Result<f64, FieldError> {
    let mean = positive(mean, "traffic.mean_utilization")?;
    if mean <= MAX_MEAN_UTILIZATION {
        return Ok(mean);
    }
    let reason = if mean <= 100.0 {
        let share = mean / 100.0;
        format!("{mean} times the capacity is too much; write {share} or \"{mean}%\"")
    } else {
        format!("{mean} times the capacity is too much: at most {MAX_MEAN_UTILIZATION}")
    };
    Err(FieldError::new("traffic.mean_utilization", reason))
}

fn host(parts: &HostParts) -> Result<HostSettings, FieldError> {
    Ok(HostSettings {
        service: choice(
            parts.service.as_deref(),
            &[
                ("exponential", Service::Exponential),
                ("constant", Service::Constant),
                ("instant", Service::Instant),
            ],
            "host.service",
        )?,
        servers: match parts.servers.unwrap_or(DEFAULT_SERVERS) {
            servers @ 1..=1000 => servers,
            other => {
                let reason = format!("{other} is outside 1 to 1000");
                return Err(FieldError::new("host.servers", reason));
            }
        },
        queue: match parts.queue {
            Some(queue) if !(queue.is_finite() && queue >= 0.0) => {
                let reason = format!("{queue} is not a number of requests");
                return Err(FieldError::new("host.queue", reason));
            }
            queue => queue,
        },
        detection: within(
            parts.detection,
            HumanDuration::from_secs(3),
            "host.detection",
            (HumanDuration::from_millis(0), HumanDuration::from_secs(600)),
        )?,
        health_checks: parts.health_checks,
    })
}

fn network(parts: NetworkParts) -> Result<NetworkSettings, FieldError> {
    let range = (HumanDuration::from_millis(0), HumanDuration::from_secs(10));
    let local = HumanDuration(std::time::Duration::from_micros(250));
    let timeouts = (
        HumanDuration::from_millis(10),
        HumanDuration::from_secs(600),
    );
    Ok(NetworkSettings {
        local: within(parts.local, local, "network.local", range)?,
        remote: within(
            parts.remote,
            HumanDuration::from_millis(1),
            "network.remote",
            range,
        )?,
        connect_timeout: within(
            parts.connect_timeout,
            HumanDuration::from_secs(5),
            "network.connect_timeout",
            timeouts,
        )?,
        request_timeout: within(
            parts.request_timeout,
            HumanDuration::from_secs(15),
            "network.request_timeout",
            timeouts,
        )?,
    })
}

fn outlier_detection(
    parts: Option<&parts::OutlierDetectionParts>,
) -> Result<Option<Arc<OutlierDetection>>, FieldError> {
    let Some(parts) = parts else {
        return Ok(None);
    };
    let mut consecutive = ConsecutiveErrors::default();
    consecutive.threshold = parts.consecutive_5xx.unwrap_or(consecutive.threshold);
    let settings = OutlierDetection::try_new(OutlierDetectionParts {
        interval: parts.interval.map(|interval| interval.0),
        base_ejection_time: parts.base_ejection_time.map(|time| time.0),
        max_ejection_percent: parts.max_ejection_percent,
        consecutive_5xx: Some(consecutive),
        ..Default::default()
    });
    let settings = settings.map_err(|error| error.under("outlier_detection"))?;
    Ok(Some(Arc::new(settings)))
}

fn reports(parts: &ReportsParts) -> Result<ReportSettings, FieldError> {
    let out_of_band = choice(
        parts.mode.as_deref(),
        &[("in_band", false), ("out_of_band", true)],
        "reports.mode",
    )?;
    let period = within(
        parts.period,
        HumanDuration::from_secs(1),
        "reports.period",
        (
            HumanDuration::from_millis(100),
            HumanDuration::from_secs(600),
        ),
    )?;
    if parts.period.is_some() && !out_of_band {
        let reason = "only out_of_band reports have a period";
        return Err(FieldError::new("reports.period", reason));
    }
    Ok(ReportSettings {
        out_of_band_period: out_of_band.then_some(period),
        meter_window: within(
            parts.meter_window,
            HumanDuration::from_secs(1),
            "reports.meter_window",
            (
                HumanDuration::from_millis(100),
                HumanDuration::from_secs(60),
            ),
        )?,
        noise: share(parts.noise, "reports.noise")?,
        loss: share(parts.loss, "reports.loss")?,
        delay: within(
            parts.delay,
            HumanDuration::from_millis(0),
            "reports.delay",
            (HumanDuration::from_millis(0), HumanDuration::from_secs(60)),
        )?,
    })
}

fn balancer(parts: &BalancerParts) -> Result<BalancerSettings, FieldError> {
    Ok(BalancerSettings {
        data_plane: choice(
            parts.data_plane.as_deref(),
            &[
                ("plimsoll", DataPlane::Plimsoll),
                ("envoy", DataPlane::Envoy),
            ],
            "balancer.data_plane",
        )?,
        endpoint_policy: choice(
            parts.endpoint_policy.as_deref(),
            &[
                ("round_robin", EndpointPolicyName::RoundRobin),
                ("least_request", EndpointPolicyName::LeastRequest),
                ("random", EndpointPolicyName::Random),
            ],
            "balancer.endpoint_policy",
        )?,
        sampling: choice(
            parts.locality_sampling.as_deref(),
            &[
                ("by_policy", None),
                ("random", Some(LocalitySampling::Random)),
                ("low_discrepancy", Some(LocalitySampling::LowDiscrepancy)),
            ],
            "balancer.locality_sampling",
        )?,
        min_cluster_size: parts.min_cluster_size,
        capacity_by_weights: choice(
            parts.upstream_locality_basis.as_deref(),
            &[("hosts", false), ("weights", true)],
            "balancer.upstream_locality_basis",
        )?,
        start_spread: within(
            parts.start_spread,
            HumanDuration::from_secs(1),
            "balancer.start_spread",
            (HumanDuration::from_millis(0), HumanDuration::from_secs(600)),
        )?,
    })
}

/// Returns the value of a name, or the first of `choices` if the name is unset.
pub(super) fn choice<T: Copy>(
    name: Option<&str>,
    choices: &[(&str, T)],
    path: &str,
) -> Result<T, FieldError> {
    let wanted = name.unwrap_or(choices[0].0);
    let found = choices.iter().find(|(name, _)| *name == wanted);
    found.map(|&(_, value)| value).ok_or_else(|| {
        let names: Vec<&str> = choices.iter().map(|(name, _)| *name).collect();
        FieldError::new(
            path,
            format!("{wanted:?} is not one of {}", names.join(", ")),
        )
    })
}

fn within(
    value: Option<HumanDuration>,
    default: HumanDuration,
    path: &str,
    range: (HumanDuration, HumanDuration),
) -> Result<u64, FieldError> {
    let (low, high) = range;
    let value = value.unwrap_or(default);
    if (low..=high).contains(&value) {
        return Ok(num::nanos(value.0));
    }
    let reason = format!("{value} is outside {low} to {high}");
    Err(FieldError::new(path, reason))
}

fn at_least_one(value: Option<u32>, path: &str) -> Result<u32, FieldError> {
    match value {
        Some(0) => Err(FieldError::new(path, "must be at least 1")),
        value => Ok(value.unwrap_or(1)),
    }
}

pub(super) fn finite(value: f64, path: &str) -> Result<f64, FieldError> {
    if value.is_finite() {
        return Ok(value);
    }
    Err(FieldError::new(path, format!("{value} is not a number")))
}

pub(super) fn positive(value: f64, path: &str) -> Result<f64, FieldError> {
    if value.is_finite() && value > 0.0 {
        return Ok(value);
    }
    Err(FieldError::new(path, format!("{value} must be above 0")))
}

pub(super) fn not_negative(value: f64, path: &str) -> Result<f64, FieldError> {
    if value.is_finite() && value >= 0.0 {
        return Ok(value);
    }
    Err(FieldError::new(path, format!("{value} must be at least 0")))
}

pub(super) fn share(value: f64, path: &str) -> Result<f64, FieldError> {
    if (0.0..=1.0).contains(&value) {
        return Ok(value);
    }
    let reason = match value {
        2.0..=100.0 => format!(
            "{value} is more than all; write {} or \"{value}%\"",
            value / 100.0
        ),
        _ => format!("{value} is outside 0 to 1"),
    };
    Err(FieldError::new(path, reason))
}
