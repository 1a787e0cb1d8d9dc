//! Sizes, steps and ranges of the history.

use super::series::FINE_STEP_MS;
use super::*;
use crate::state::EventState;

/// Start of the recordings of these tests: a multiple of all steps.
const START: u64 = 1_800_000_000_000;
const SECOND: u64 = 1000;

fn locality(zone: &str) -> Locality {
    Locality::new("r1", zone, "")
}

/// A document with two zones, of which the first has this load.
fn document(at: u64, load: f64) -> DashboardState {
    let zone = |name: &str, load| ZoneState {
        locality: locality(name),
        load: Some(load),
        demand_requests_per_second: Some(50.0),
        served_requests_per_second: Some(100.0 * load),
        kept_local: Some(0.75),
        healthy_hosts: 2,
        hosts: 3,
        ..Default::default()
    };
    DashboardState {
        taken_unix_ms: START + at,
        clusters: vec![ClusterState {
            cluster: "orders".to_owned(),
            fleet: "gateway".to_owned(),
            zones: vec![zone("a", load), zone("b", 0.5)],
            flows: vec![Flow(0, 0, 60.0), Flow(0, 1, 20.0)],
            ..Default::default()
        }],
        ..Default::default()
    }
}

fn query(cluster: &str) -> HistoryQuery {
    HistoryQuery {
        cluster: Some(cluster.to_owned()),
        ..Default::default()
    }
}

#[test]
fn zones_and_sums_of_a_cluster_are_recorded() {
    let history = History::default();
    history.record(&document(0, 1.5));
    history.record(&document(5 * SECOND, 1.25));
    let answer = history.response(&query("orders")).unwrap();
    assert_eq!(answer.times_unix_ms, [START, START + 5 * SECOND]);
    let cluster = &answer.clusters[0];
    assert_eq!(cluster.busiest_load, [Some(1.5), Some(1.25)]);
    assert_eq!(cluster.demand_requests_per_second, [Some(100.0); 2]);
    assert_eq!(cluster.cross_zone_requests_per_second, [Some(20.0); 2]);
    assert_eq!(cluster.kept_local, [Some(0.75); 2]);
    assert_eq!(cluster.healthy_hosts, [Some(4); 2]);
    let zone = &cluster.zones[0];
    assert_eq!(zone.locality, locality("a"));
    assert_eq!(zone.load, [Some(1.5), Some(1.25)]);
    assert_eq!(zone.served_requests_per_second, [Some(150.0), Some(125.0)]);
    assert_eq!((zone.hosts[0], zone.healthy_hosts[0]), (Some(3), Some(2)));
    // Without a name, only the sums.
    let all = history.response(&HistoryQuery::default()).unwrap();
    assert_eq!(all.clusters[0].busiest_load, cluster.busiest_load);
    assert_eq!(all.clusters[0].zones, []);
    let none = history.response(&query("payments")).unwrap();
    assert_eq!(none.clusters, []);
}

#[test]
fn an_hour_is_kept_and_old_values_have_coarser_steps() {
    let history = History::default();
    for at in (0..=7200).step_by(5) {
        history.record(&document(at * SECOND, 1.0));
    }
    let answer = history.response(&query("orders")).unwrap();
    let times = &answer.times_unix_ms;
    assert_eq!(times[0], START + 3600 * SECOND);
    assert_eq!(times.last(), Some(&(START + 7200 * SECOND)));
    assert_eq!(times[1] - times[0], 30 * SECOND);
    let last = times.len() - 1;
    assert_eq!(times[last] - times[last - 1], 5 * SECOND);
    let load = &answer.clusters[0].zones[0].load;
    assert!(load.iter().all(|load| *load == Some(1.0)), "{load:?}");
    // Equal steps, and a shorter range.
    let minutes = HistoryQuery {
        range: Some("10m".to_owned()),
        step: Some("1m".to_owned()),
        ..query("orders")
    };
    let answer = history.response(&minutes).unwrap();
    assert_eq!(answer.times_unix_ms.len(), 11);
    assert_eq!(answer.clusters[0].zones[0].load, [Some(1.0); 11]);
    let short = HistoryQuery {
        step: Some("1s".to_owned()),
        ..query("orders")
    };
    assert!(history.response(&short).is_err());
}

#[test]
fn what_is_gone_for_an_hour_is_forgotten() {
    let history = History::default();
    history.record(&document(0, 1.0));
    let mut later = document(1800 * SECOND, 1.0);
    later.clusters[0].zones.pop();
    history.record(&later);
    let zones = |at: u64| {
        let mut next = later.clone();
        next.taken_unix_ms = START + at * SECOND;
        history.record(&next);
        let answer = history.response(&query("orders")).unwrap();
        answer.clusters[0].zones.len()
    };
    assert_eq!(zones(3600), 2);
    assert_eq!(zones(3601), 1);
    let empty = DashboardState {
        taken_unix_ms: START + 10_000 * SECOND,
        ..Default::default()
    };
    history.record(&empty);
    assert_eq!(history.response(&query("orders")).unwrap().clusters, []);
    assert_eq!(history.memory_bytes(), 0);
}

#[test]
fn events_are_kept_once_for_an_hour() {
    let history = History::default();
    let event = |at: u64, text: &str| EventState {
        at_unix_ms: START + at * SECOND,
        severity: Severity::Info,
        text: text.to_owned(),
    };
    for at in [1, 6] {
        let mut state = document(at * SECOND, 1.0);
        state.events = vec![event(1, "second"), event(0, "first")];
        history.record(&state);
    }
    let texts = |history: &History| -> Vec<String> {
        let answer = history.response(&HistoryQuery::default()).unwrap();
        answer.events.into_iter().map(|event| event.text).collect()
    };
    assert_eq!(texts(&history), ["second", "first"]);
    history.record(&document(3700 * SECOND, 1.0));
    assert_eq!(texts(&history), [""; 0]);
    let mut many = document(3701 * SECOND, 1.0);
    many.events = (0..2000).map(|at| event(3700, &format!("{at}"))).collect();
    history.record(&many);
    assert_eq!(texts(&history).len(), MAX_EVENTS);
}

/// A document of `clusters` services in 100 zones, with two events; a proxy has no fleet and sees
/// flows from its own zone only.
fn large(at: u64, clusters: usize, fleet: &str) -> DashboardState {
    let zones: Vec<ZoneState> = (0..100)
        .map(|index| ZoneState {
            locality: Locality::new(
                "europe-west1",
                &format!("europe-west1-zone-{index}"),
                "rack-1",
            ),
            load: Some(1.0),
            demand_requests_per_second: Some(50.0),
            ..Default::default()
        })
        .collect();
    let from = if fleet.is_empty() { 1 } else { 100 };
    let flows = (0..from).flat_map(|from| (0..10).map(move |to| Flow(from, to, 1.0)));
    let cluster = |index: usize| ClusterState {
        fleet: fleet.to_owned(),
        cluster: format!("outbound|8080||service-{index}.production.svc.cluster.local"),
        zones: zones.clone(),
        flows: flows.clone().collect(),
        ..Default::default()
    };
    let event = |number: u64| EventState {
        at_unix_ms: START + at,
        severity: Severity::Info,
        text: format!("{number} {}", "x".repeat(300)),
    };
    DashboardState {
        taken_unix_ms: START + at,
        clusters: (0..clusters).map(cluster).collect(),
        events: (0..2).map(event).collect(),
        ..Default::default()
    }
}

#[test]
fn an_hour_of_a_hundred_zones_of_fifty_services_needs_less_than_64_mib() {
    for (host, fleet) in [("control plane", "gateway"), ("proxy", "")] {
        let mut document = large(0, 50, fleet);
        let history = History::default();
        let mut fine_step = 0;
        let used = allocation_counter::measure(|| {
            for step in 0..=HORIZON_MS / FINE_STEP_MS {
                document.taken_unix_ms = START + step * FINE_STEP_MS;
                for event in &mut document.events {
                    event.at_unix_ms = document.taken_unix_ms;
                }
                history.record(&document);
                fine_step = step;
            }
        });
        assert_eq!(fine_step, 720, "a whole hour");
        // What the allocator handed out and did not get back: every capacity of every collection.
        let held = usize::try_from(used.bytes_current).unwrap();
        assert!(held < 64 << 20, "{host}: {held} bytes");
        let stated = history.memory_bytes();
        assert!(held < stated + (2 << 20), "{held} bytes, {stated} stated");
        assert!(held > stated / 2, "{held} bytes, {stated} stated");
        let name = document.clusters[49].cluster.clone();
        let answer = history.response(&query(&name)).unwrap();
        assert_eq!(answer.omitted_series, 0);
        println!("history of a {host}: {held} bytes held, {stated} stated");
    }
}

#[test]
fn more_zones_do_not_need_more_memory() {
    let history = History::default();
    let used = allocation_counter::measure(|| history.record(&large(0, 500, "gateway")));
    let held = usize::try_from(used.bytes_current).unwrap();
    assert!(held < 64 << 20, "{held} bytes");
    // The response says that some are missing.
    let name = large(0, 2, "gateway").clusters[1].cluster.clone();
    let answer = history.response(&query(&name)).unwrap();
    assert_eq!(answer.omitted_series, 500 * 101 - MAX_SERIES);
}
