//! Tests of what is written to the metrics of Envoy, and under which names.

use std::sync::Arc;

use super::*;

/// Calls of a test: number of the metric, labels, value.
pub(crate) type Lines = Arc<Mutex<Vec<(MetricId, String, u64)>>>;

#[derive(Default)]
pub(crate) struct Recorded(pub(crate) Lines);

impl Metrics for Recorded {
    fn add(&self, id: MetricId, cluster: &str, value: u64) {
        self.0.lock().unwrap().push((id, cluster.to_owned(), value));
    }

    fn set_total(&self, id: MetricId, cluster: &str, value: u64) {
        let labels = format!("{cluster} total");
        self.0.lock().unwrap().push((id, labels, value));
    }

    fn set(&self, id: MetricId, cluster: &str, zone: &str, value: u64) {
        let labels = format!("{cluster}/{zone}");
        self.0.lock().unwrap().push((id, labels, value));
    }
}

#[test]
fn only_differences_are_written_and_refused_counters_are_left_out() {
    let recorded = Recorded::default();
    let lines = Arc::clone(&recorded.0);
    let mut names = Vec::new();
    let metrics = PickMetrics::new(Box::new(recorded), |_, name| {
        names.push(name.to_owned());
        (!name.ends_with("lb_healthy_panic")).then_some(names.len())
    });
    let sampled = names
        .iter()
        .position(|name| name == "plimsoll.lb_zone_routing_sampled");
    let id = sampled.unwrap() + 1;
    let stats = PickerStats::default();
    let mut written = Written::default();
    let mut write = |stats: &PickerStats, tick| {
        written.write(&metrics, stats, &TickValues::default(), "orders", tick);
        written.is_due(tick)
    };
    assert!(!write(&stats, 9));
    let zeros = std::mem::take(&mut *lines.lock().unwrap());
    // All counters exist from the start, except the refused one.
    assert_eq!(zeros.len(), PickerStats::METRICS.len() - 1);
    assert!(zeros.iter().all(|(.., value)| *value == 0), "{zeros:?}");
    stats.lb_healthy_panic.increment();
    stats.lb_zone_routing_sampled.increment();
    stats.lb_zone_routing_sampled.increment();
    assert!(!write(&stats, 1));
    assert!(!write(&stats, 2));
    stats.lb_zone_routing_sampled.increment();
    assert!(!write(&stats, 3));
    let expected = [(id, "orders".to_owned(), 2), (id, "orders".to_owned(), 1)];
    assert_eq!(*lines.lock().unwrap(), expected);
}

#[test]
fn gauges_are_set_once_per_tick_and_zones_that_are_gone_end_at_zero() {
    let recorded = Recorded::default();
    let lines = Arc::clone(&recorded.0);
    let mut next = 0;
    let metrics = PickMetrics::new(Box::new(recorded), |kind, _| {
        next += usize::from(kind == MetricKind::Gauge);
        (kind == MetricKind::Gauge).then_some(next)
    });
    let zone = |zone: &str, share| (zone.to_owned(), [Some(1500), None, Some(share), None]);
    let mut gauges = TickValues {
        tick: 7,
        zones: vec![zone("a", 6000), zone("b", 4000)],
        stats: None,
    };
    // Two workers write after the same tick.
    for _ in 0..2 {
        let mut written = Written::default();
        written.write(&metrics, &PickerStats::default(), &gauges, "orders", 7);
    }
    let line = |id: MetricId, labels: &str, value| (id, labels.to_owned(), value);
    let expected = [
        line(1, "orders/a", 1500),
        line(3, "orders/a", 6000),
        line(1, "orders/b", 1500),
        line(3, "orders/b", 4000),
    ];
    assert_eq!(std::mem::take(&mut *lines.lock().unwrap()), expected);
    gauges.tick = 8;
    gauges.zones.pop();
    let mut written = Written::default();
    written.write(&metrics, &PickerStats::default(), &gauges, "orders", 8);
    let gone: Vec<_> = lines.lock().unwrap().drain(2..).collect();
    let zeros = [1, 2, 3, 4].map(|id| line(id, "orders/b", 0));
    assert_eq!(gone, zeros);
}

#[test]
fn statistics_of_a_cluster_are_written_by_one_worker_under_their_names() {
    let recorded = Recorded::default();
    let lines = Arc::clone(&recorded.0);
    let mut names: Vec<(MetricKind, String)> = Vec::new();
    let metrics = PickMetrics::new(Box::new(recorded), |kind, name| {
        names.push((kind, name.to_owned()));
        Some(names.len() - 1)
    });
    let id = |name: &str| {
        let name = format!("plimsoll.{name}");
        let mut found = names
            .iter()
            .enumerate()
            .filter(|(_, (_, one))| *one == name);
        let (id, (kind, _)) = found.next().unwrap_or_else(|| panic!("no {name}"));
        assert!(found.next().is_none(), "{name} is defined once");
        (id, *kind)
    };
    let (stale, _) = id("lrs_fractions_stale");
    let (spills, _) = id("load_aware_locality.spill_active_total");
    let (not_ok, _) = id("lb_local_cluster_not_ok");
    let (sessions, kind) = id("lb_orca_oob.active_sessions");
    assert_eq!(kind, MetricKind::ClusterGauge);
    let (balancer, load_aware) = (BalancerStats::default(), LoadAwareStats::default());
    let mut oob = OobStats::default();
    balancer.lrs_fractions_stale.increment();
    balancer.lb_local_cluster_not_ok.increment();
    load_aware.spill_active_total.increment();
    oob.active_sessions = 5;
    let values = |tick, oob: &OobStats| TickValues {
        tick,
        zones: Vec::new(),
        stats: Some(ClusterStats::new(&balancer, &load_aware, oob)),
    };
    let picks = PickerStats::default();
    picks.lb_local_cluster_not_ok.increment();
    // Two workers write after the same tick; each has counted the same pick.
    let first = values(1, &oob);
    for _ in 0..2 {
        Written::default().write(&metrics, &picks, &first, "orders", 1);
    }
    let sum = |id| {
        let lines = lines.lock().unwrap();
        let values = lines.iter().filter(|(one, ..)| *one == id);
        values.map(|(.., value)| value).sum::<u64>()
    };
    assert_eq!((sum(stale), sum(spills), sum(not_ok)), (1, 1, 1 + 2));
    assert_eq!(sum(sessions), 5);
    balancer.lrs_fractions_stale.increment();
    oob.active_sessions = 3;
    let second = values(2, &oob);
    Written::default().write(&metrics, &PickerStats::default(), &second, "orders", 2);
    assert_eq!((sum(stale), sum(spills)), (2, 1));
    let all = lines.lock().unwrap();
    let set: Vec<_> = all.iter().filter(|(id, ..)| *id == sessions).collect();
    let line = |value| (sessions, "orders total".to_owned(), value);
    assert_eq!(set, [&line(5), &line(3)]);
}

#[test]
fn a_thread_that_finds_another_one_writing_tries_again() {
    let metrics = PickMetrics::new(Box::new(Recorded::default()), |_, _| Some(1));
    let guard = metrics.written.lock().unwrap();
    let mut written = Written::default();
    let values = TickValues::default();
    written.write(&metrics, &PickerStats::default(), &values, "orders", 1);
    assert!(written.is_due(1));
    drop(guard);
    written.write(&metrics, &PickerStats::default(), &values, "orders", 1);
    assert!(!written.is_due(1));
}

/// Names that dashboards and alerts for Envoy look for, written out: a counter that is renamed in
/// the core must keep its name here.
#[test]
fn counters_have_the_names_of_envoy_and_of_the_load_aware_policy() {
    const ZONE_AWARE: [&str; 8] = [
        "lb_healthy_panic",
        "lb_local_cluster_not_ok",
        "lb_recalculate_zone_structures",
        "lb_zone_cluster_too_small",
        "lb_zone_no_capacity_left",
        "lb_zone_routing_all_directly",
        "lb_zone_routing_cross_zone",
        "lb_zone_routing_sampled",
    ];
    const LOAD_AWARE: [&str; 6] = [
        "load_aware_locality.recompute_total",
        "load_aware_locality.all_overloaded_total",
        "load_aware_locality.local_preferred_total",
        "load_aware_locality.probe_active_total",
        "load_aware_locality.stale_locality_total",
        "load_aware_locality.spill_active_total",
    ];
    const FRACTIONS: [&str; 4] = [
        "lrs_fractions_stale",
        "lrs_fractions_received",
        "lrs_fractions_partial",
        "lrs_fractions_all_zero",
    ];
    let recorded = Recorded::default();
    let lines = Arc::clone(&recorded.0);
    let mut names: Vec<(MetricKind, String)> = Vec::new();
    let metrics = PickMetrics::new(Box::new(recorded), |kind, name| {
        names.push((kind, name.to_owned()));
        Some(names.len() - 1)
    });
    let stats = ClusterStats::new(
        &BalancerStats::default(),
        &LoadAwareStats::default(),
        &OobStats::default(),
    );
    let values = TickValues {
        tick: 1,
        zones: Vec::new(),
        stats: Some(stats),
    };
    Written::default().write(&metrics, &PickerStats::default(), &values, "orders", 1);
    let lines = lines.lock().unwrap();
    for name in ZONE_AWARE.iter().chain(&LOAD_AWARE).chain(&FRACTIONS) {
        let wanted = (MetricKind::Counter, format!("plimsoll.{name}"));
        let found = names.iter().position(|one| *one == wanted);
        let id = found.unwrap_or_else(|| panic!("no counter {name}"));
        let is_written = lines
            .iter()
            .any(|(one, cluster, _)| *one == id && cluster == "orders");
        assert!(is_written, "{name} exists before it counts");
    }
}
