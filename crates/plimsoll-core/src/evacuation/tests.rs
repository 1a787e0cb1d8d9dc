//! Tests of orders, of the check and of what is left of assignments.

use super::*;
use crate::model::assignment::{AssignmentParts, ClusterLoadAssignment, LocalityParts};
use crate::model::health::HealthStatus;
use crate::planner::transport::Objective;
use crate::planner::zone_loss::{FleetLoad, ServiceLoad};

const T: u64 = 1_700_000_000_000;

fn zone(name: &str) -> ZoneName {
    ZoneName::try_new(name).unwrap()
}

fn request(name: &str) -> DrainRequest {
    DrainRequest {
        zone: zone(name),
        origin: Origin::Operator,
        by: "operator".into(),
        reason: "power".into(),
        for_ms: None,
        step_ms: STEP_MS,
        return_ms: RETURN_MS,
        partial: false,
        force: false,
    }
}

fn allows(allowed: u32) -> Check {
    Check {
        allowed,
        ..Check::default()
    }
}

#[test]
fn a_drain_moves_ten_points_every_ten_seconds_and_returns_within_five_minutes() {
    let mut zones = Evacuations::default();
    zones.drain(request("b"), &allows(100), T).unwrap();
    let at = |zones: &Evacuations, seconds: u64| {
        let order = zones.get(&zone("b")).unwrap();
        let now = T + seconds * 1000;
        (order.drained(now), order.state(now))
    };
    assert_eq!(at(&zones, 0), (10, ZoneState::Draining));
    assert_eq!(at(&zones, 9), (10, ZoneState::Draining));
    assert_eq!(at(&zones, 10), (20, ZoneState::Draining));
    assert_eq!(at(&zones, 89), (90, ZoneState::Draining));
    assert_eq!(at(&zones, 90), (100, ZoneState::Out));
    assert_eq!(at(&zones, 90_000), (100, ZoneState::Out));
    zones.give_back(&zone("b"), T + 100_000).unwrap();
    assert_eq!(at(&zones, 100), (90, ZoneState::Returning));
    assert_eq!(at(&zones, 129), (90, ZoneState::Returning));
    assert_eq!(at(&zones, 130), (80, ZoneState::Returning));
    assert_eq!(at(&zones, 369), (10, ZoneState::Returning));
    assert_eq!(at(&zones, 370), (0, ZoneState::InService));
    assert_eq!(zones.take_over(T + 369_000), []);
    assert_eq!(zones.take_over(T + 370_000).len(), 1);
    assert_eq!(zones.orders().count(), 0);
}

#[test]
fn every_moment_can_be_reversed() {
    let mut zones = Evacuations::default();
    zones.drain(request("b"), &allows(100), T).unwrap();
    let order = zones.give_back(&zone("b"), T + 35_000).unwrap();
    assert_eq!(order.drained(T + 34_000), 40);
    assert_eq!(order.drained(T + 35_000), 30);
    // Drained again from where it is.
    let order = zones.drain(request("b"), &allows(100), T + 36_000).unwrap();
    assert_eq!((order.from, order.drained(T + 36_000)), (30, 40));
    assert_eq!(order.drained(T + 96_000), 100);
}

#[test]
fn a_zone_returns_by_itself_at_its_time() {
    let mut zones = Evacuations::default();
    let asked = DrainRequest {
        for_ms: Some(1_800_000),
        return_ms: 30_000,
        ..request("b")
    };
    let order = zones.drain(asked, &allows(100), T).unwrap();
    assert_eq!(order.next_change(T + 90_000), Some(T + 1_800_000));
    assert_eq!(order.drained(T + 1_799_999), 100);
    assert_eq!(order.state(T + 1_800_000), ZoneState::Returning);
    assert_eq!(order.drained(T + 1_827_000), 0);
}

#[test]
fn steps_of_no_time_are_all_at_once() {
    let mut zones = Evacuations::default();
    let asked = DrainRequest {
        step_ms: 0,
        return_ms: 0,
        ..request("b")
    };
    let order = zones.drain(asked, &allows(100), T).unwrap();
    assert_eq!(order.drained(T), 100);
    zones.give_back(&zone("b"), T + 1).unwrap();
    assert_eq!(zones.drained(T + 1), Drained::default());
}

/// What drained points are told to change at is when they change: a driver that sleeps until then
/// misses nothing, and never spins.
#[test]
fn the_next_change_is_the_next_change() {
    let mut zones = Evacuations::default();
    let asked = DrainRequest {
        for_ms: Some(123_456),
        step_ms: 7_000,
        return_ms: 90_000,
        ..request("b")
    };
    let order = zones.drain(asked, &allows(70), T);
    assert!(order.is_err(), "not partial");
    let asked = DrainRequest {
        partial: true,
        for_ms: Some(123_456),
        step_ms: 7_000,
        return_ms: 90_000,
        ..request("b")
    };
    let order = zones.drain(asked, &allows(70), T).unwrap().clone();
    let mut now = T;
    let mut seen = Vec::new();
    while let Some(next) = order.next_change(now) {
        assert!(next > now);
        for at in [now + 1, (now + next) / 2, next - 1] {
            assert_eq!(order.drained(at.max(now)), order.drained(now), "{at}");
        }
        now = next;
        seen.push(order.drained(now));
    }
    let expected = [20, 30, 40, 50, 60, 70, 60, 50, 40, 30, 20, 10, 0];
    assert_eq!(seen, expected);
    assert_eq!(order.state(now), ZoneState::InService);
}

#[test]
fn requests_are_refused_with_what_is_missing() {
    let mut zones = Evacuations::default();
    let nothing = Check {
        allowed: 0,
        findings: vec![Finding {
            service: "orders".to_owned(),
            now: Some(0.6),
            without: Some(0.95),
            fullest: None,
            missing: Some(12.0),
            allowed: 0,
            reason: Some("a would be at 0.95".to_owned()),
        }],
        stays: Vec::new(),
    };
    let refused = zones.drain(request("b"), &nothing, T).unwrap_err();
    assert_eq!(refused.to_string(), "orders: a would be at 0.95");
    let partial = DrainRequest {
        partial: true,
        ..request("b")
    };
    assert!(
        zones.drain(partial.clone(), &nothing, T).is_err(),
        "nothing fits"
    );
    let order = zones.drain(partial, &allows(60), T).unwrap();
    assert_eq!((order.limit, order.state(T + 50_000)), (60, ZoneState::Out));
    let again = zones
        .drain(request("b"), &allows(100), T + 50_000)
        .unwrap_err();
    assert_eq!(again.to_string(), "b is out already: power (operator)");
    let back = zones.give_back(&zone("c"), T).unwrap_err();
    assert_eq!(back.to_string(), "c is in service");
    let forced = DrainRequest {
        force: true,
        ..request("c")
    };
    assert_eq!(zones.drain(forced, &nothing, T).unwrap().limit, 100);
}

#[test]
fn never_a_second_zone_by_itself() {
    let mut zones = Evacuations::default();
    zones.drain(request("a"), &allows(100), T).unwrap();
    for origin in [Origin::Automatic, Origin::Practice] {
        let second = DrainRequest {
            origin,
            ..request("b")
        };
        let refused = zones.drain(second, &allows(100), T).unwrap_err();
        let expected = "a is out of use already: never a second zone by itself";
        assert_eq!(refused.to_string(), expected);
    }
    zones.drain(request("b"), &allows(100), T).unwrap();
}

#[test]
fn a_drain_is_held_where_it_fits() {
    let mut zones = Evacuations::default();
    zones.drain(request("b"), &allows(100), T).unwrap();
    assert_eq!(zones.hold(&zone("b"), 100, T + 20_000), None);
    let held = zones.hold(&zone("b"), 10, T + 20_000).unwrap();
    assert_eq!((held.limit, held.drained(T + 20_000)), (30, 30));
    assert_eq!(held.state(T + 20_000), ZoneState::Out);
    assert_eq!(zones.hold(&zone("b"), 10, T + 30_000), None, "it is out");
}

#[test]
fn names_are_zones_with_or_without_their_region() {
    let here = Locality::new("eu", "b", "rack-1");
    assert!(zone("b").has(&here) && zone("eu/b").has(&here));
    assert!(!zone("us/b").has(&here) && !zone("eu").has(&here));
    for wrong in ["", "a/b/c", "a\nb"] {
        assert!(ZoneName::try_new(wrong).is_err(), "{wrong:?}");
    }
}

fn service(demand: &[f64], capacity: &[f64]) -> (Vec<Locality>, ServiceLoad) {
    let zones = ["a", "b", "c"].map(Locality::zone_only);
    let load = ServiceLoad {
        capacity: capacity.to_vec(),
        objective: Objective::LEVEL,
        fleets: vec![FleetLoad {
            demand: demand.to_vec(),
            proxies: None,
        }],
    };
    (zones[..demand.len()].to_vec(), load)
}

const LIMITS: CheckLimits = CheckLimits {
    max_utilization: 0.9,
    max_capacity_share: 0.5,
};

/// Name, load, whether its capacity is known, and the share of its hosts that would be out.
type Given<'a> = (&'a str, &'a (Vec<Locality>, ServiceLoad), bool, f64);

fn checked(loads: &[Given<'_>]) -> Check {
    let services =
        loads.iter().map(
            |(name, (zones, load), has_capacity, out_share)| CheckedService {
                name,
                zones,
                load,
                has_capacity: *has_capacity,
                out_share: *out_share,
            },
        );
    check(&zone("b"), services, LIMITS)
}

#[test]
fn the_check_says_how_far_a_zone_may_be_drained() {
    let roomy = service(&[20.0, 20.0, 20.0], &[60.0, 60.0, 60.0]);
    let tight = service(&[40.0, 40.0, 40.0], &[60.0, 60.0, 60.0]);
    let found = checked(&[("roomy", &roomy, true, 0.33)]);
    assert_eq!(
        (found.allowed, found.findings[0].reason.clone()),
        (100, None)
    );
    assert_eq!(found.text(), "every service has room without the zone");

    let found = checked(&[("roomy", &roomy, true, 0.33), ("tight", &tight, true, 0.33)]);
    // 120 ÷ (120 + 60 · 0.3) is 0.87, with 0.2 it is 0.91.
    assert_eq!(found.allowed, 70);
    let first = &found.findings[0];
    assert_eq!(first.service, "tight");
    assert!((first.without.unwrap() - 1.0).abs() < 1e-4);
    assert!((first.missing.unwrap() - (120.0 / 0.9 - 120.0)).abs() < 1e-6);
    let expected = "tight: a would be at 1.00, above 0.90: capacity for 13.3 requests/s is \
                    missing. 70 % of the zone would fit";
    assert_eq!(found.text(), expected);
}

#[test]
fn half_of_the_hosts_stay_in_any_case() {
    let two = service(&[10.0, 10.0], &[100.0, 100.0]);
    assert_eq!(checked(&[("two", &two, true, 0.5)]).allowed, 100);
    let found = checked(&[("two", &two, false, 0.51)]);
    assert_eq!(found.allowed, 0);
    let expected = "two: 51 % of its hosts would be out of use, at most 50 % may be";
    assert_eq!(found.text(), expected);
}

#[test]
fn what_is_not_known_limits_nothing_and_the_last_zone_stays() {
    let full = service(&[100.0, 100.0], &[0.5, 0.5]);
    let found = checked(&[("unknown", &full, false, 0.5)]);
    assert_eq!((found.allowed, found.findings[0].without), (100, None));
    let alone = service(&[10.0, 10.0], &[0.0, 100.0]);
    let found = checked(&[("alone", &alone, true, 1.0)]);
    assert_eq!(
        (found.allowed, &found.stays[..]),
        (100, &["alone".to_owned()][..])
    );
    let elsewhere = service(&[10.0, 10.0], &[100.0, 0.0]);
    assert_eq!(
        checked(&[("elsewhere", &elsewhere, true, 0.0)]).findings,
        []
    );
}

fn assignment(hosts: &[(&str, u32, u16)]) -> ClusterLoadAssignment {
    let entries = hosts
        .iter()
        .enumerate()
        .map(|(index, (name, weight, count))| {
            let first = 1000 * u16::try_from(index).unwrap();
            let addresses = (0..*count).map(|host| ([10, 0, 0, 1], first + host + 1).into());
            LocalityParts {
                load_balancing_weight: Some(*weight).filter(|weight| *weight > 0),
                ..LocalityParts::new(Locality::zone_only(name), addresses)
            }
        });
    ClusterLoadAssignment::try_new(AssignmentParts::new("x", entries)).unwrap()
}

fn hosts(assignment: &ClusterLoadAssignment) -> Vec<(&str, u32, usize)> {
    let entries = assignment.endpoints().iter();
    let entry = |entry: &'_ crate::model::assignment::LocalityLbEndpoints| entry.lb_endpoints.len();
    entries
        .map(|own| (own.locality.zone(), own.load_balancing_weight, entry(own)))
        .collect()
}

#[test]
fn hosts_leave_and_come_back_in_one_order() {
    let all = assignment(&[("a", 0, 10), ("b", 60, 10), ("c", 0, 3)]);
    let mut before = all.clone();
    for points in (10..=100).step_by(10) {
        let left = without_drained(&all, &Drained::of(zone("b"), points)).unwrap();
        let kept = 10 - points as usize / 10;
        let weight = 6 * u32::try_from(kept).unwrap();
        let mut expected = vec![("a", 0, 10), ("b", weight, kept), ("c", 0, 3)];
        expected.retain(|(_, _, hosts)| *hosts > 0);
        assert_eq!(hosts(&left), expected);
        let stays = |endpoint: &crate::model::assignment::LbEndpoint| {
            before
                .endpoints()
                .iter()
                .any(|entry| entry.lb_endpoints.contains(endpoint))
        };
        for entry in left.endpoints() {
            assert!(entry.lb_endpoints.iter().all(stays), "no host comes back");
        }
        before = left;
    }
    let left = without_drained(&all, &Drained::of(zone("c"), 50)).unwrap();
    assert_eq!(hosts(&left)[2], ("c", 0, 2), "rounded up");
    assert_eq!(without_drained(&all, &Drained::default()), None);
    assert_eq!(without_drained(&all, &Drained::of(zone("d"), 100)), None);
}

#[test]
fn a_service_keeps_its_last_hosts() {
    let alone = assignment(&[("b", 0, 4)]);
    assert_eq!(without_drained(&alone, &Drained::of(zone("b"), 100)), None);
    let mut dead = LocalityParts::new(Locality::zone_only("a"), [([10, 0, 0, 9], 9).into()]);
    dead.lb_endpoints[0].health_status = HealthStatus::Unhealthy;
    let own = LocalityParts::new(Locality::zone_only("b"), [([10, 0, 0, 1], 1).into()]);
    let parts = AssignmentParts::new("x", [dead, own]);
    let others_dead = ClusterLoadAssignment::try_new(parts).unwrap();
    assert_eq!(
        without_drained(&others_dead, &Drained::of(zone("b"), 100)),
        None
    );
}
