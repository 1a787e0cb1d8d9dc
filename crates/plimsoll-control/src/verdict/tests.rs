//! Tests of verdicts: one row per kind, precedence, and what the state says.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use plimsoll_core::time::Instant;

use super::signs::{StoreSign, UnknownLocality};
use super::*;
use crate::certificates::Stage;
use crate::config::Mode;
use crate::demand::Withheld;
use crate::fleet::Suspicion;
use crate::load_line::{
    FailingZones, PlannedZone, ShareCache, Traffic, Unknown, ZoneLine, ZoneTraffic, tests::lines_of,
};
use crate::relay::RelayStatus;
use crate::sources::{SourceId, SourceState};
use crate::state::tests::driver::{Driver, fleet};

/// Zones a, b and c with these loads, as seen and as planned.
fn line(seen: [f64; 3], now: [f64; 3]) -> LoadLine {
    let zones = ["a", "b", "c"].map(|name| ZoneLine {
        locality: Locality::zone_only(name),
        demand: 10.0,
        proxies: 1,
        capacity_share: 1.0 / 3.0,
        capacity: None,
        line: 10.0,
        above_line: None,
        failed_share: None,
        fails: false,
        fails_only_from: Vec::new(),
        planned: None,
    });
    LoadLine {
        bill: None,
        cost: Arc::default(),
        fleet: "edge".into(),
        cluster: "orders".into(),
        mode: Mode::Enforce,
        ramp: 100,
        basis: "measured_demand",
        on_fallback: false,
        warming_up: false,
        objective: Default::default(),
        target_utilization: None,
        withheld: FailingZones::default(),
        undelivered: None,
        zones: zones.into(),
        seen: Some(traffic(seen)),
        now: Ok(traffic(now)),
        enforce: Ok(traffic([1.0; 3])),
    }
}

fn traffic(loads: [f64; 3]) -> Traffic {
    let zone = |load| ZoneTraffic {
        served: 10.0 * load,
        load: Some(load),
        kept_local: Some(1.0),
    };
    Traffic {
        zones: loads.map(zone).into(),
        flows: Vec::new(),
        requests: 30.0,
        cross_zone: 0.0,
    }
}

fn level() -> LoadLine {
    line([1.02, 0.99, 0.99], [1.0; 3])
}

fn hot() -> LoadLine {
    line([1.8, 0.7, 0.5], [1.8, 0.7, 0.5])
}

fn failing() -> LoadLine {
    let mut line = hot();
    line.zones[1].fails = true;
    line.zones[1].failed_share = Some(1.0);
    line.withheld.failing = BTreeSet::from([Locality::zone_only("b")]);
    line
}

fn proxies() -> Signs {
    Signs {
        proxies: 3,
        ..Signs::default()
    }
}

fn judge(signs: &Signs, lines: Vec<LoadLine>) -> Verdict {
    Verdict::new(signs, &lines.into_iter().collect())
}

/// Kind, severity and text of every kind that load lines lead to.
#[test]
fn load_lines_are_judged() {
    let with = |change: fn(&mut LoadLine)| {
        let mut line = hot();
        change(&mut line);
        line
    };
    let cases: Vec<(LoadLine, &str, Severity, &str)> = vec![
        (
            level(),
            "fine",
            Severity::Fine,
            "all zones within 3 % of their load line",
        ),
        (
            line([1.05, 0.95, 1.0], [1.0; 3]),
            "fine",
            Severity::Fine,
            "all zones within 5 % of their load line",
        ),
        (
            line([1.04, 1.04, 0.5], [1.0; 3]),
            "fine",
            Severity::Fine,
            "no zone is more than 4 % above its load line",
        ),
        (
            with(|line| line.mode = Mode::Shadow),
            "zone_above_line",
            Severity::Error,
            "a serves 180 % of its load line of orders for edge: mode SHADOW: proxies route by \
             host counts; mode ENFORCE would bring the highest load to 100 % (planned)",
        ),
        (
            with(|line| line.ramp = 20),
            "zone_above_line",
            Severity::Error,
            "a serves 180 % of its load line of orders for edge: ramp 20 %: the other requests go \
             where mode OFF sends them; ramp 100 would bring the highest load to 100 % (planned)",
        ),
        (
            with(|line| {
                line.mode = Mode::Shadow;
                line.enforce = Ok(traffic([1.79, 0.7, 0.51]));
            }),
            "zone_above_line",
            Severity::Error,
            "a serves 180 % of its load line of orders for edge: mode SHADOW: proxies route by \
             host counts; mode ENFORCE would not help, 179 % (planned): add hosts in a, or hosts \
             that others can spill to",
        ),
        (
            with(|line| {
                line.zones[0].above_line = Some("its proxies send all they have".into());
                line.seen = Some(traffic([1.1, 0.95, 0.95]));
            }),
            "zone_above_line",
            Severity::Warning,
            "a serves 110 % of its load line of orders for edge: its proxies send all they have; \
             add hosts in a, or hosts that others can spill to",
        ),
        (
            with(|line| line.now = Ok(traffic([1.0; 3]))),
            "not_settled",
            Severity::Info,
            "a serves 180 % of its load line of orders for edge: 100 % is planned, so traffic has \
             not settled, or proxies do not follow; wait for the next load reports, then explain \
             the zone",
        ),
        (
            failing(),
            "zone_fails",
            Severity::Error,
            "requests of edge to orders fail in b: 100 % of the requests to b failed in the latest \
             load reports; check the hosts of b, or take them out of its endpoints; host counts \
             decide until it recovers",
        ),
        (
            with(|line| {
                line.zones[1].fails = true;
                line.zones[1].fails_only_from = vec![Locality::zone_only("a")];
            }),
            "zone_fails",
            Severity::Error,
            "requests of edge to orders fail from a to b; check the network between the zones",
        ),
        (
            with(|line| {
                *line = level();
                line.withheld.unseen = BTreeSet::from([Locality::zone_only("c")]);
            }),
            "zone_unseen",
            Severity::Warning,
            "edge reports no requests to orders in c any more: the zone is idle, or what is sent \
             there vanishes; check its hosts; host counts decide meanwhile, and it is tried now \
             and then",
        ),
        (
            with(|line| {
                *line = level();
                line.on_fallback = true;
                line.undelivered = Some(Withheld::Incomplete {
                    reported: 1,
                    nodes: 3,
                });
            }),
            "demand_withheld",
            Severity::Warning,
            "host counts decide for edge and orders: 1 of 3 proxies have reported load; look for \
             proxies without load reports",
        ),
        (
            with(|line| line.warming_up = true),
            "warming_up",
            Severity::Info,
            "demand of edge is not complete yet: not every proxy has reported since it connected; \
             wait for the next load reports",
        ),
        (
            with(|line| {
                line.seen = None;
                line.now = Err(Unknown::NoDemand);
                for zone in &mut line.zones {
                    zone.demand = 0.0;
                }
            }),
            "no_demand",
            Severity::Info,
            "no requests are reported: proxies are idle, or do not report load; send requests \
             through a proxy",
        ),
    ];
    for (line, kind, severity, text) in cases {
        let verdict = judge(&proxies(), vec![line]);
        assert_eq!((verdict.kind, verdict.severity), (kind, severity), "{text}");
        assert_eq!(verdict.text(), text);
    }
}

/// With an objective, zones near the demand are meant to be above their line.
#[test]
fn a_service_with_an_objective_is_judged_by_its_target() {
    let mut line = hot();
    line.target_utilization = Some(0.8);
    let planned = |utilization| {
        Some(PlannedZone {
            capacity: Some(100.0),
            utilization: Some(utilization),
            wanted_hosts: Some(7),
            text: "a serves 95 of 100.".into(),
        })
    };
    line.zones[0].planned = planned(0.8);
    let verdict = judge(&proxies(), vec![line.clone()]);
    assert_eq!(verdict.text(), "no zone is above its target utilization");
    line.zones[0].planned = planned(0.95);
    let verdict = judge(&proxies(), vec![line.clone()]);
    assert_eq!(verdict.severity, Severity::Warning);
    assert_eq!(
        verdict.text(),
        "a is planned at 95 % of its capacity for orders, the target is 80 %: a serves 95 of 100; \
         its own demand needs 7 hosts of weight 1"
    );
    line.zones[0].planned = planned(1.1);
    assert_eq!(judge(&proxies(), vec![line]).severity, Severity::Error);
}

fn source(is_synced: bool, is_failing: bool, held: usize) -> SourceState {
    SourceState {
        id: SourceId::Consul,
        is_synced,
        failing: is_failing.then(|| (Duration::from_secs(9), "refused".to_owned())),
        held,
        kinds: Vec::new(),
    }
}

fn store(is_synced: bool, is_connected: bool, other: Option<&str>) -> Signs {
    Signs {
        store: Some(StoreSign {
            is_connected,
            is_synced,
            other_configuration: other.map(str::to_owned),
        }),
        ..proxies()
    }
}

/// Kind, severity and text of every kind that signs lead to.
fn signs() -> Vec<(Signs, &'static str, Severity, &'static str)> {
    let text = |text: &str| Some(text.to_owned());
    let mut cases = vec![
        (
            Signs::default(),
            "no_proxies",
            Severity::Info,
            "no proxy is connected; start one: plimsoll bootstrap envoy writes its configuration",
        ),
        (
            Signs {
                rejected_edit: text("services[0]: bad"),
                ..proxies()
            },
            "edit_rejected",
            Severity::Error,
            "the last edit has no effect: services[0]: bad; correct the file; plimsoll check finds \
             every fault",
        ),
        (
            Signs {
                rejected_updates: Some((2, "p1 says no".to_owned())),
                ..proxies()
            },
            "update_rejected",
            Severity::Error,
            "2 proxies rejected the last update: p1 says no; the previous version stays in \
             force; correct the service",
        ),
        (
            Signs {
                refused_client: text("p2 of edge: no rule"),
                ..proxies()
            },
            "clients_refused",
            Severity::Warning,
            "clients are refused: p2 of edge: no rule; correct their certificates, or identities \
             in the configuration",
        ),
        (
            Signs {
                failed_handshake: Some((
                    "TLS handshake with 10.0.0.1 failed: expired".to_owned(),
                    "renew the certificate of the client",
                )),
                ..proxies()
            },
            "handshakes_fail",
            Severity::Warning,
            "connections fail: TLS handshake with 10.0.0.1 failed: expired; renew the certificate \
             of the client",
        ),
        (
            Signs {
                ending: vec![(Stage::Soon, "the certificate expires in 9 days".to_owned())],
                ..proxies()
            },
            "certificate_expires",
            Severity::Warning,
            "the certificate expires in 9 days: new connections fail without it; renew it; new \
             files take effect without a restart",
        ),
        (
            Signs {
                ending: vec![(
                    Stage::Imminent,
                    "the certificate expires in 2 days".to_owned(),
                )],
                ..proxies()
            },
            "certificate_expires",
            Severity::Error,
            "the certificate expires in 2 days: new connections fail without it; renew it; new \
             files take effect without a restart",
        ),
        (
            Signs {
                duplicate_id: text("p1 of edge"),
                ..proxies()
            },
            "duplicate_id",
            Severity::Warning,
            "the id of p1 of edge is in use by two addresses: the second is refused; give each \
             proxy its own node.id",
        ),
        (
            Signs {
                shared_id: text("p1 of edge"),
                ..proxies()
            },
            "shared_id",
            Severity::Warning,
            "several proxies have the id of p1 of edge: their load reports replace each other, so \
             demand is too small; give each its own node.id (plimsoll bootstrap envoy --id)",
        ),
        (
            Signs {
                without_reports: Some((1, "p3 of edge".to_owned())),
                ..proxies()
            },
            "no_load_reports",
            Severity::Warning,
            "1 of 3 proxies send no load reports: the demand at p3 of edge is not known; give them \
             load_stats_config (plimsoll bootstrap envoy writes it)",
        ),
        (
            Signs {
                sources: vec![source(false, true, 0)],
                ..proxies()
            },
            "source_not_listed",
            Severity::Error,
            "services of Consul have not been listed since the start: refused; proxies are refused \
             until they are",
        ),
        (
            Signs {
                sources: vec![source(true, true, 0)],
                ..proxies()
            },
            "source_silent",
            Severity::Error,
            "Consul has not answered for 9 s: refused; services and endpoints stay as they were \
             until it does",
        ),
        (
            Signs {
                sources: vec![source(true, false, 4)],
                ..proxies()
            },
            "objects_held",
            Severity::Error,
            "the last list of Consul lacks 4 objects that were known; they stay for \
             consul.removal_delay; check the source",
        ),
    ];
    cases.extend([
        (
            store(false, true, None),
            "store_not_read",
            Severity::Error,
            "the store has not been read since the start: new proxies get host counts until it is; \
             check that the store answers",
        ),
        (
            store(true, false, None),
            "store_lost",
            Severity::Error,
            "the store cannot be reached: proxies of other replicas count with their last load \
             reports; check that the store answers",
        ),
        (
            store(true, true, Some("r2")),
            "other_configuration",
            Severity::Warning,
            "r2 has another configuration than this replica; give all replicas the same files",
        ),
        (
            Signs {
                relay: Some(RelayStatus {
                    streams: 3,
                    connected: 1,
                    ..RelayStatus::default()
                }),
                ..proxies()
            },
            "relay_lost",
            Severity::Warning,
            "1 of 3 streams to the relayed server are connected; proxies keep what they have",
        ),
        (
            unknown(Locality::zone_only("x"), Some(Locality::zone_only("a"))),
            "unknown_locality",
            Severity::Warning,
            "the demand of 2 nodes of edge in x does not count: no service has hosts there; did \
             you mean a?",
        ),
        (
            unknown(Locality::default(), None),
            "unknown_locality",
            Severity::Warning,
            "the demand of 2 nodes of edge does not count: without a locality; set node.locality \
             in their bootstrap files",
        ),
    ]);
    cases
}

fn unknown(locality: Locality, nearest: Option<Locality>) -> Signs {
    Signs {
        unknown_locality: Some(UnknownLocality {
            fleet: "edge".into(),
            locality,
            nodes: 2,
            nearest,
        }),
        ..proxies()
    }
}

#[test]
fn signs_are_judged() {
    for (signs, kind, severity, text) in signs() {
        let verdict = judge(&signs, vec![level()]);
        assert_eq!((verdict.kind, verdict.severity), (kind, severity), "{text}");
        assert_eq!(verdict.text(), text);
        assert!(Verdict::KINDS.contains(&kind), "{kind}");
    }
}

#[test]
fn the_worst_comes_first_and_the_others_are_counted() {
    let mut signs = proxies();
    signs.rejected_edit = Some("bad".to_owned());
    signs.shared_id = Some("p1 of edge".to_owned());
    let mut milder = hot();
    milder.seen = Some(traffic([1.1, 1.0, 0.9]));
    milder.cluster = "users".into();
    let verdict = judge(&signs, vec![milder.clone(), failing()]);
    // Beside it: the hot zone, the edit, the shared id and the milder zone.
    assert_eq!((verdict.kind, verdict.others), ("zone_fails", 4));
    let (fleet, cluster, zone) = verdict.look_at.parts();
    assert_eq!(fleet.map(|name| &**name), Some("edge"));
    assert_eq!(cluster.map(|name| &**name), Some("orders"));
    assert_eq!(zone, Some(&Locality::zone_only("b")));
    // An error of the files outranks a warning about a zone, whatever their order.
    let verdict = judge(&signs, vec![milder.clone()]);
    assert_eq!((verdict.kind, verdict.others), ("edit_rejected", 2));
    let verdict = judge(&proxies(), vec![milder, level()]);
    assert_eq!((verdict.kind, verdict.others), ("zone_above_line", 0));
    assert_eq!(judge(&proxies(), vec![level()]).others, 0);
}

/// From the state itself: a fleet in SHADOW, one proxy of which has no load reporting stream, then
/// one that has stopped to report.
#[test]
fn the_state_leads_to_the_same_verdicts() {
    let verdict = |driver: &Driver| {
        let lines = lines_of(&driver.state, &ShareCache::default(), driver.now);
        let signs = Signs::new(Observed::default(), &driver.state, driver.now);
        assert_eq!(
            signs.duplicate_id.is_some(),
            driver
                .state
                .suspects()
                .recent(Suspicion::DuplicateId, driver.now)
                .count()
                > 0
        );
        Verdict::new(&signs, &lines)
    };
    let mut driver = Driver::new("mode: SHADOW");
    assert_eq!(verdict(&driver).kind, "no_proxies");
    let nodes = fleet(crate::delivery::NodeClass::Envoy);
    for node in &nodes {
        driver.open(node);
    }
    assert_eq!(verdict(&driver).severity, Severity::Info);
    let traffic = [(&nodes[0], 50), (&nodes[1], 35), (&nodes[2], 15)];
    driver.traffic(&traffic, 5);
    let hot = verdict(&driver);
    assert_eq!(
        (hot.kind, hot.severity),
        ("zone_above_line", Severity::Error)
    );
    assert!(
        hot.text()
            .contains("mode ENFORCE would bring the highest load to 100 %"),
        "{hot:?}"
    );
    assert!(driver.now > Instant::from_secs(1));
}

/// Every kind that is listed is tested above, and none twice.
#[test]
fn kinds_are_unique() {
    let kinds: BTreeSet<&str> = Verdict::KINDS.into();
    assert_eq!(kinds.len(), Verdict::KINDS.len());
    let tested: BTreeMap<&str, ()> = signs().iter().map(|case| (case.1, ())).collect();
    let of_lines = [
        "fine",
        "zone_fails",
        "zone_above_line",
        "zone_above_target",
        "zone_unseen",
        "demand_withheld",
        "not_settled",
        "warming_up",
        "no_demand",
    ];
    for kind in Verdict::KINDS {
        assert!(
            tested.contains_key(kind) || of_lines.contains(&kind),
            "{kind} is not tested"
        );
    }
}
