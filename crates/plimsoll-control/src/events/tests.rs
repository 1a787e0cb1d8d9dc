//! Tests of the log lines of events and of the audit, with all their fields.

use std::sync::Arc;
use std::time::Duration;

use plimsoll_core::model::locality::Locality;
use plimsoll_core::planner::{IgnoreReason, LeaveReason, PlannerEvent};
use tracing::Level;

use super::*;
use crate::audit::{AuditEntry, AuditKind, Change, Delivered, Delivery};
use crate::fleet::OpenRefusal;
use crate::services::Conflict;
use crate::sources::SourceId;
use plimsoll_testing::CapturedLogs;

/// Returns the level and text of every line that `write` logs.
fn lines(write: impl FnOnce()) -> Vec<(Level, String)> {
    let lines = CapturedLogs::default();
    tracing::subscriber::with_default(lines.clone(), write);
    let lines = lines.take();
    let trimmed = |(level, text): (Level, String)| (level, text.trim_end().to_owned());
    lines.into_iter().map(trimmed).collect()
}

fn line(level: Level, text: &str) -> Vec<(Level, String)> {
    vec![(level, text.to_owned())]
}

fn lines_of(events: &[ControlEvent]) -> Vec<(Level, String)> {
    let readers = Events::default();
    lines(|| {
        for each in events {
            readers.tell(each.describe(), Instant::ORIGIN);
        }
    })
}

fn audited(entry: &AuditEntry) {
    Events::default().tell(entry.describe(), Instant::ORIGIN);
}

fn delivered(delivered: &Delivered) {
    Events::default().tell(delivered.describe(), Instant::ORIGIN);
}

fn entry(kind: AuditKind, reason: Option<&str>) -> AuditEntry {
    let change = Change {
        service: Some("orders".into()),
        field: "mode".to_owned(),
        before: Some("SHADOW".to_owned()),
        after: Some("ENFORCE".to_owned()),
        source: None,
    };
    AuditEntry {
        number: 7,
        at: Instant::ORIGIN,
        kind,
        by: "edit".into(),
        changes: match reason {
            None => vec![change],
            Some(_) => Vec::new(),
        },
        more_changes: 0,
        reason: reason.map(ToOwned::to_owned),
        delivery: None,
    }
}

#[test]
fn changes_are_logged_as_settings_and_those_of_the_start_for_debugging() {
    assert_eq!(
        lines(|| audited(&entry(AuditKind::Changed, None))),
        line(
            Level::INFO,
            "message=setting changed number=7 by=\"edit\" service=\"orders\" field=\"mode\" \
             before=\"SHADOW\" after=\"ENFORCE\" source=\"\""
        )
    );
    assert_eq!(
        lines(|| audited(&entry(AuditKind::Started, None))),
        line(
            Level::DEBUG,
            "message=setting read number=7 by=\"edit\" service=\"orders\" field=\"mode\" \
             after=\"ENFORCE\" source=\"\""
        )
    );
    assert_eq!(
        lines(|| audited(&entry(AuditKind::Refused, Some("no")))),
        line(
            Level::WARN,
            "message=change of the configuration refused number=7 by=\"edit\" reason=\"no\""
        )
    );
}

#[test]
fn a_delivered_change_is_logged_with_its_answers() {
    let delivery = Delivery {
        streams: 6,
        accepted: 3,
        refused: 2,
        closed: 1,
        first_ack: Some(Duration::from_millis(20)),
        last_ack: None,
        superseded: false,
    };
    let number = 7;
    assert_eq!(
        lines(|| delivered(&Delivered { number, delivery })),
        line(
            Level::INFO,
            "message=change delivered number=7 streams=6 accepted=3 refused=2 closed=1 \
             first_ack_ms=20 last_ack_ms=0"
        )
    );
}

#[test]
fn events_about_identities_are_warnings() {
    let (fleet, node) = (Arc::<str>::from("edge"), Arc::<str>::from("n1"));
    let refused = |refusal| ControlEvent::StreamRefused {
        fleet: Arc::clone(&fleet),
        node: Arc::clone(&node),
        refusal,
    };
    let duplicate = OpenRefusal::DuplicateId {
        first: std::net::IpAddr::from([10, 0, 0, 1]).into(),
        second: std::net::IpAddr::from([10, 0, 0, 2]).into(),
    };
    let duplicate_reason = duplicate.to_string();
    let events = [
        refused(OpenRefusal::Fleets(3)),
        refused(duplicate),
        ControlEvent::UnknownLocality {
            fleet: Arc::clone(&fleet),
            node: Arc::clone(&node),
            locality: Locality::zone_only("b"),
            nearest: Some(Locality::new("r", "b", "")),
        },
        ControlEvent::SharedId {
            fleet: Arc::clone(&fleet),
            node: Arc::clone(&node),
            streams: 2,
        },
        ControlEvent::DuplicateNode {
            fleet,
            node,
            replica: "r1".into(),
        },
        ControlEvent::ServiceConflict(Conflict {
            service: "orders".into(),
            used: SourceId::Files,
            ignored: SourceId::Kubernetes,
        }),
    ];
    let expected = [
        "message=stream refused: a limit is reached fleet=edge node=n1 reason=\"node.cluster: 3 \
         fleets are connected (limits.fleets)\" suppressed=0"
            .to_owned(),
        format!(
            "message=stream refused: node id is in use by another peer fleet=edge node=n1 \
             reason={duplicate_reason:?} suppressed=0"
        ),
        "message=node is in an unknown locality; its demand does not count fleet=edge node=n1 \
         locality=b did_you_mean=\"r/b\" suppressed=0"
            .to_owned(),
        "message=several proxies have the same node id fleet=edge node=n1 streams=2 suppressed=0"
            .to_owned(),
        "message=node id is in use at another replica fleet=edge node=n1 replica=r1 suppressed=0"
            .to_owned(),
        "message=service is in two sources; using the one of higher precedence cluster=orders \
         used=\"files\" ignored=\"kubernetes\" suppressed=0"
            .to_owned(),
    ];
    assert_eq!(
        lines_of(&events),
        expected.map(|text| (Level::WARN, text)).to_vec()
    );
}

#[test]
fn changes_of_the_store_the_settings_and_the_fleets_are_logged() {
    let cases = [
        (
            ControlEvent::StoreConnected { nodes: 3 },
            (Level::INFO, "message=store connected nodes=3"),
        ),
        (
            ControlEvent::StoreLost {
                reason: "why".to_owned(),
            },
            (
                Level::WARN,
                "message=store unreachable; continuing with the last known state reason=\"why\"",
            ),
        ),
        (
            ControlEvent::ConfigApplied { services: 2 },
            (Level::INFO, "message=configuration applied services=2"),
        ),
        (
            ControlEvent::WithoutEffect {
                cluster: "orders".into(),
                error: plimsoll_core::units::FieldError::new("ramp", "cannot act"),
            },
            (
                Level::WARN,
                "message=service asks for measured demand, which cannot steer its policy \
                 cluster=orders field=\"ramp\" reason=\"cannot act\"",
            ),
        ),
        (
            ControlEvent::FleetChanged {
                fleet: "edge".into(),
                nodes: 4,
            },
            (Level::DEBUG, "message=fleet changed fleet=edge nodes=4"),
        ),
        (
            ControlEvent::HeartbeatShortened {
                cluster: "orders".into(),
                staleness_threshold: Duration::from_secs(30),
                written: Duration::from_secs(15),
                heartbeat: Duration::from_secs(10),
                is_written: false,
            },
            (
                Level::INFO,
                "message=default heartbeat shortened to suit a staleness threshold \
                 cluster=orders threshold=30s heartbeat=10s",
            ),
        ),
        (
            ControlEvent::HeartbeatShortened {
                cluster: "orders".into(),
                staleness_threshold: Duration::from_secs(30),
                written: Duration::from_secs(15),
                heartbeat: Duration::from_secs(10),
                is_written: true,
            },
            (
                Level::WARN,
                "message=heartbeat interval is too long for a staleness threshold; shortened \
                 cluster=orders threshold=30s written=15s heartbeat=10s",
            ),
        ),
    ];
    for (event, (level, text)) in cases {
        assert_eq!(lines_of(&[event]), line(level, text));
    }
}

fn joined() -> ControlEvent {
    ControlEvent::Planner(PlannerEvent::NodeJoined {
        fleet: "edge".into(),
        node: "n1".into(),
        locality: Locality::zone_only("a"),
    })
}

fn capped() -> ControlEvent {
    ControlEvent::Planner(PlannerEvent::NodeCapped {
        fleet: "edge".into(),
        node: "n1".into(),
        locality: Locality::zone_only("a"),
        reported_per_second: 5000.0,
        counted_per_second: 200.0,
    })
}

fn ignored_report() -> ControlEvent {
    ControlEvent::Planner(PlannerEvent::ReportIgnored {
        fleet: "edge".into(),
        node: "n1".into(),
        upstream_cluster: "orders".into(),
        reason: IgnoreReason::UnknownZone,
    })
}

const JOINED: &str = "message=node joined, left or moved what=\"joined\" fleet=edge node=n1 \
                      locality=a suppressed=0";
const CAPPED: &str = "message=load reports of a node are implausibly high; counting a part of \
                      them fleet=edge node=n1 locality=a reported_per_second=5000.0 \
                      counted_per_second=200.0 suppressed=0";
const IGNORED: &str = "message=load report ignored fleet=edge node=n1 cluster=orders \
                       reason=\"unknown_zone\" suppressed=0";

#[test]
fn each_kind_of_planner_event_has_its_own_limit() {
    let burst = |event: ControlEvent| vec![event; 12];
    let events = [burst(joined()), burst(capped()), burst(ignored_report())].concat();
    let expected = [
        vec![(Level::INFO, JOINED.to_owned()); 10],
        vec![(Level::WARN, CAPPED.to_owned()); 10],
        vec![(Level::WARN, IGNORED.to_owned()); 10],
    ];
    assert_eq!(lines_of(&events), expected.concat());
}

#[test]
fn nodes_that_left_or_moved_are_logged() {
    let left = ControlEvent::Planner(PlannerEvent::NodeLeft {
        fleet: "edge".into(),
        node: "n1".into(),
        locality: Locality::zone_only("a"),
        reason: LeaveReason::Silent,
    });
    let moved = ControlEvent::Planner(PlannerEvent::NodeMoved {
        fleet: "edge".into(),
        node: "n1".into(),
        from: Locality::zone_only("a"),
        to: Locality::zone_only("b"),
    });
    let expected = [
        "message=node joined, left or moved what=\"left\" fleet=edge node=n1 locality=a \
         reason=\"silent\" suppressed=0",
        "message=node joined, left or moved what=\"moved\" fleet=edge node=n1 from=a locality=b \
         suppressed=0",
    ]
    .map(|text| (Level::INFO, text.to_owned()));
    assert_eq!(lines_of(&[left, moved]), expected);
}
