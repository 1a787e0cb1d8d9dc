//! The theoretical optimum: the least cross-zone traffic at which, at every moment, all zones are
//! equally loaded or, with a target utilization, none is above it unless demand forces all of them.
//! Computed from demand and capacity, not simulated.

use crate::metrics::windows::Windows;
use crate::metrics::{Metrics, StepMetrics, ZoneMetrics, cross_zone_needed, hottest};
use crate::num;
use crate::scenario::Scenario;
use crate::workload::{TICK, Workload};

/// Computes the metrics of the optimum. It has no latency, because queuing is not modeled.
pub(crate) fn optimum(windows: &Windows<'_>) -> Metrics {
    let Windows {
        scenario, workload, ..
    } = *windows;
    let needed = cross_zone_needed(windows);
    let zones: Vec<ZoneMetrics> = (0..scenario.zones.len())
        .map(|zone| zone_metrics(scenario, workload, zone))
        .collect();
    let (average, peak) = max_over_mean(scenario, workload);
    let settling = scenario.steps().into_iter().map(|step| StepMetrics {
        at_s: num::seconds(step),
        settled_s: Some(0.0),
    });
    Metrics {
        max_over_mean_1s_avg: average,
        max_over_mean_1s_peak: peak,
        max_over_mean_5s_avg: average,
        max_over_mean_5s_peak: peak,
        hottest_zone: hottest(&zones),
        cross_zone_share: needed,
        cross_zone_needed: needed,
        above_capacity_share: above_capacity(scenario, workload),
        settled_s: Some(0.0),
        settling: settling.collect(),
        oscillates: false,
        oscillation_period_s: None,
        latency_p50_ms: None,
        latency_p99_ms: None,
        requests: requests(scenario, workload),
        failures: 0,
        failure_share: 0.0,
        measured_failure_share: 0.0,
        in_flight: 0,
        lock_out_s: 0.0,
        locked_out_balancers: 0,
        zones,
    }
}

/// Returns the utilization of all usable hosts together at a moment.
pub(crate) fn mean_utilization(workload: &Workload, at: u64) -> f64 {
    let demand: f64 = workload.rates(at).iter().sum();
    num::ratio(demand, workload.capacity(at).iter().sum())
}

/// Returns the utilization of each zone in the optimum at a moment; 0 without capacity.
pub(crate) fn utilization(scenario: &Scenario, workload: &Workload, at: u64) -> Vec<f64> {
    let (rates, capacity) = (workload.rates(at), workload.capacity(at));
    let bound = mean_utilization(workload, at).max(scenario.target());
    let kept = |zone: usize| rates[zone].min(capacity[zone] * bound);
    let zones = 0..rates.len();
    let excess: f64 = zones.clone().map(|zone| rates[zone] - kept(zone)).sum();
    let headroom: f64 = zones
        .clone()
        .map(|zone| capacity[zone] * bound - kept(zone))
        .sum();
    let part = num::ratio(excess, headroom);
    let served = |zone: usize| kept(zone) + part * (capacity[zone] * bound - kept(zone));
    zones
        .map(|zone| num::ratio(served(zone), capacity[zone]))
        .collect()
}

/// Returns the utilization of the fullest zone relative to the mean, on average and at most.
fn max_over_mean(scenario: &Scenario, workload: &Workload) -> (f64, f64) {
    if scenario.control_plane.objective.is_level() {
        return (1.0, 1.0);
    }
    let (mut count, mut sum, mut peak) = (0.0, 0.0, 0.0_f64);
    for at in ticks(scenario) {
        let fullest = utilization(scenario, workload, at)
            .into_iter()
            .fold(0.0, f64::max);
        let ratio = num::ratio(fullest, mean_utilization(workload, at));
        count += 1.0;
        sum += ratio;
        peak = peak.max(ratio);
    }
    (num::ratio(sum, count), peak)
}

pub(crate) fn ticks(scenario: &Scenario) -> impl Iterator<Item = u64> {
    (scenario.measure_from / TICK..scenario.duration / TICK).map(|tick| tick * TICK)
}

fn zone_metrics(scenario: &Scenario, workload: &Workload, zone: usize) -> ZoneMetrics {
    let (mut count, mut demand, mut sum, mut mean, mut kept) = (0.0, 0.0, 0.0, 0.0, 0.0);
    let (mut low, mut high) = (f64::INFINITY, 0.0_f64);
    for at in ticks(scenario) {
        let bound = mean_utilization(workload, at).max(scenario.target());
        let own = utilization(scenario, workload, at)[zone];
        let rate = workload.rates(at)[zone];
        count += 1.0;
        demand += rate;
        sum += own;
        mean += mean_utilization(workload, at);
        kept += rate.min(workload.capacity(at)[zone] * bound);
        (low, high) = (low.min(own), high.max(own));
    }
    ZoneMetrics {
        zone: scenario.zones[zone].name.clone(),
        demand_rps: demand / count,
        capacity_rps: workload.capacity(scenario.duration)[zone],
        utilization: sum / count,
        load_factor: if scenario.control_plane.objective.is_level() {
            1.0
        } else {
            num::ratio(sum, mean)
        },
        utilization_1s_min: low,
        utilization_1s_max: high,
        utilization_5s_min: low,
        utilization_5s_max: high,
        kept_local: num::ratio(kept, demand),
        failure_share: 0.0,
        failures_at_hosts_rps: 0.0,
    }
}

fn above_capacity(scenario: &Scenario, workload: &Workload) -> f64 {
    let (mut above, mut all) = (0.0, 0.0);
    for at in ticks(scenario) {
        let demand: f64 = workload.rates(at).iter().sum();
        let capacity: f64 = workload.capacity(at).iter().sum();
        above += (demand - capacity).max(0.0);
        all += demand;
    }
    num::ratio(above, all)
}

fn requests(scenario: &Scenario, workload: &Workload) -> u64 {
    let ticks = (0..scenario.duration / TICK).map(|tick| tick * TICK);
    let rates = ticks.map(|at| workload.rates(at).iter().sum::<f64>());
    num::round(rates.sum::<f64>() * num::seconds(TICK))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::recorder::Recorder;
    use crate::testing::three_zones;

    fn optimum_of(change: impl FnOnce(&mut crate::scenario::ScenarioParts)) -> Metrics {
        let mut parts = three_zones();
        change(&mut parts);
        let scenario = Scenario::try_new(parts).unwrap();
        let workload = Workload::new(&scenario);
        let recorder = Recorder::new(&scenario);
        optimum(&Windows::new(&scenario, &workload, &recorder))
    }

    #[test]
    fn zones_are_balanced_and_only_the_surplus_spills() {
        let metrics = optimum_of(|_| {});
        assert!((metrics.cross_zone_share - 0.2667).abs() < 1e-3);
        assert!((metrics.zones[0].kept_local - 0.5556).abs() < 1e-3);
        assert_eq!(metrics.zones[1].kept_local, 1.0);
        assert!((metrics.zones[2].utilization - 0.6).abs() < 1e-9);
        assert_eq!(metrics.above_capacity_share, 0.0);
        assert_eq!(metrics.requests, 216 * 40);
    }

    #[test]
    fn with_a_target_zones_keep_what_fits() {
        for (mean, crossing, fullest) in [(0.4, 0.0, 1.8), (0.5, 0.0667, 1.6), (0.9, 0.2667, 1.0)] {
            let metrics = optimum_of(|parts| {
                parts.traffic.mean_utilization = Some(mean);
                parts.control_plane.target_utilization = Some(0.8);
            });
            assert!(
                (metrics.cross_zone_share - crossing).abs() < 1e-3,
                "{mean}: {metrics:?}"
            );
            assert!(
                (metrics.max_over_mean_5s_peak - fullest).abs() < 1e-3,
                "{mean}"
            );
            let served: f64 = metrics.zones.iter().map(|zone| zone.utilization).sum();
            assert!(
                (served / 3.0 - mean).abs() < 1e-3,
                "{mean}: all requests are served"
            );
        }
    }

    #[test]
    fn total_overload_is_above_capacity_even_in_the_optimum() {
        let metrics = optimum_of(|parts| parts.traffic.mean_utilization = Some(1.25));
        assert!((metrics.above_capacity_share - 0.2).abs() < 1e-9);
        assert_eq!(metrics.max_over_mean_5s_peak, 1.0);
    }
}
