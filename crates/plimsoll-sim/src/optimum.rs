//! The theoretical optimum: all zones equally loaded at every moment with the least cross-zone
//! traffic. Computed from demand and capacity, not simulated.

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
    let settling = scenario.steps().into_iter().map(|step| StepMetrics {
        at_s: num::seconds(step),
        settled_s: Some(0.0),
    });
    Metrics {
        max_over_mean_1s_avg: 1.0,
        max_over_mean_1s_peak: 1.0,
        max_over_mean_5s_avg: 1.0,
        max_over_mean_5s_peak: 1.0,
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

fn ticks(scenario: &Scenario) -> impl Iterator<Item = u64> {
    (scenario.measure_from / TICK..scenario.duration / TICK).map(|tick| tick * TICK)
}

fn zone_metrics(scenario: &Scenario, workload: &Workload, zone: usize) -> ZoneMetrics {
    let (mut count, mut demand, mut sum, mut kept) = (0.0, 0.0, 0.0, 0.0);
    let (mut low, mut high) = (f64::INFINITY, 0.0_f64);
    for at in ticks(scenario) {
        let mean = mean_utilization(workload, at);
        let rate = workload.rates(at)[zone];
        count += 1.0;
        demand += rate;
        sum += mean;
        kept += rate.min(workload.capacity(at)[zone] * mean);
        (low, high) = (low.min(mean), high.max(mean));
    }
    ZoneMetrics {
        zone: scenario.zones[zone].name.clone(),
        demand_rps: demand / count,
        capacity_rps: workload.capacity(scenario.duration)[zone],
        utilization: sum / count,
        load_factor: 1.0,
        utilization_1s_min: low,
        utilization_1s_max: high,
        utilization_5s_min: low,
        utilization_5s_max: high,
        kept_local: num::ratio(kept, demand),
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
    fn total_overload_is_above_capacity_even_in_the_optimum() {
        let metrics = optimum_of(|parts| parts.traffic.mean_utilization = Some(1.25));
        assert!((metrics.above_capacity_share - 0.2).abs() < 1e-9);
        assert_eq!(metrics.max_over_mean_5s_peak, 1.0);
    }
}
