//! Sizes, steps and ranges of the history.

use super::*;
use crate::state::EventState;

/// Start of the recordings of these tests: a multiple of all steps.
const START: u64 = 1_800_000_000_000;
const SECOND: u64 = 1000;

fn locality(zone: &str) -> LocalityId {
    LocalityId {
        region: "r1".to_owned(),
        zone: zone.to_owned(),
        sub_zone: String::new(),
    }
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

#[test]
fn a_hundred_zones_of_fifty_services_need_less_than_64_mib() {
    let zones: Vec<ZoneState> = (0..100)
        .map(|index| ZoneState {
            locality: locality(&format!("zone-{index}")),
            load: Some(1.0),
            ..Default::default()
        })
        .collect();
    let clusters = |count: usize| DashboardState {
        taken_unix_ms: START,
        clusters: (0..count)
            .map(|index| ClusterState {
                cluster: format!("service-{index}"),
                zones: zones.clone(),
                ..Default::default()
            })
            .collect(),
        ..Default::default()
    };
    let history = History::default();
    history.record(&clusters(50));
    let needed = history.memory_bytes();
    assert!(needed < 64 << 20, "{needed} bytes");
    assert_eq!(
        history
            .response(&query("service-49"))
            .unwrap()
            .omitted_series,
        0
    );
    // More do not need more memory than that, and the response says that some are missing.
    let history = History::default();
    history.record(&clusters(500));
    let most = history.memory_bytes();
    assert!(most < 64 << 20, "{most} bytes");
    let answer = history.response(&query("service-1")).unwrap();
    assert_eq!(answer.omitted_series, 500 * 101 - MAX_SERIES);
    eprintln!("history: {needed} bytes for 5,000 zones, at most {most}");
}
