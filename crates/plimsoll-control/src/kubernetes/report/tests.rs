//! Conditions of policies, and when they are written.

mod every_cell;

use std::collections::BTreeSet;
use std::net::SocketAddr;

use plimsoll_core::model::assignment::{AssignmentParts, ClusterLoadAssignment, LocalityParts};
use plimsoll_core::model::zone_aware::ZoneAware;
use plimsoll_core::time::Instant;
use plimsoll_kubernetes::objects::Resource as _;
use plimsoll_xds::ads::Variant;
use plimsoll_xds::ads::message::NodeMessage;
use plimsoll_xds::driver::{AdsHandler, AdsOpening};
use plimsoll_xds::node::NodeInfo;
use plimsoll_xds::replica::ReplicaRecord;
use plimsoll_xds::yaml::Document;

use super::*;
use crate::config::{ConfigFile, ControlConfig, Service};
use crate::demand::Withheld;
use crate::fleet_plan::tests::{to_zone, vanish, without_zone_b};
use crate::load_line::tests::lines;
use crate::load_line::{ShareCache, Unknown, ZoneLine, ZoneTraffic};
use crate::replicas::{StoreInput, StoreSnapshot};
use crate::state::tests::driver::{Driver, config, config_of, fleet, parse};

fn condition(kind: &str, status: &str, time: &str) -> Condition {
    Condition {
        kind: kind.to_owned(),
        status: status.to_owned(),
        last_transition_time: time.to_owned(),
        reason: "R".to_owned(),
        ..Condition::default()
    }
}

fn status(conditions: Vec<Condition>, load: &str) -> PolicyStatus {
    let zone = ZoneStatus {
        zone: "a".to_owned(),
        load: load.to_owned(),
        ..ZoneStatus::default()
    };
    PolicyStatus {
        conditions,
        zones: vec![zone],
        ..PolicyStatus::default()
    }
}

#[test]
fn the_time_of_a_transition_changes_with_the_status_alone() {
    let before = status(vec![condition("Accepted", "True", "t1")], "1.00");
    let same = status(vec![condition("Accepted", "True", "")], "1.00");
    assert_eq!(next_status(&before, same.clone(), "t2", true), None);
    let mut other_reason = same;
    other_reason.conditions[0].reason = "S".to_owned();
    let next = next_status(&before, other_reason, "t2", false).unwrap();
    assert_eq!(next.conditions[0].last_transition_time, "t1");
    let changed = status(vec![condition("Accepted", "False", "")], "1.00");
    let next = next_status(&before, changed, "t2", false).unwrap();
    assert_eq!(next.conditions[0].last_transition_time, "t2");
    let added = status(
        vec![
            condition("Accepted", "True", ""),
            condition("X", "True", ""),
        ],
        "1.00",
    );
    let next = next_status(&before, added, "t3", false).unwrap();
    assert_eq!(next.conditions[0].last_transition_time, "t1");
    assert_eq!(next.conditions[1].last_transition_time, "t3");
    let generation = PolicyStatus {
        observed_generation: 2,
        ..before.clone()
    };
    assert_eq!(
        next_status(&before, generation.clone(), "t3", false),
        Some(generation)
    );
}

#[test]
fn numbers_alone_are_written_when_they_may_be() {
    let before = status(vec![condition("Accepted", "True", "t1")], "1.00");
    let moved = status(vec![condition("Accepted", "True", "")], "1.20");
    assert_eq!(next_status(&before, moved.clone(), "t2", false), None);
    let next = next_status(&before, moved, "t2", true).unwrap();
    assert_eq!(next.zones[0].load, "1.20");
}

#[test]
fn localities_are_written_as_istio_does() {
    assert_eq!(istio_zone(&Locality::new("eu", "eu-a", "")), "eu/eu-a/*");
    let known = |rate_per_second| ReportedZone {
        rate_per_second,
        reporters: 1,
    };
    let demand = BTreeMap::from([(Locality::new("r", "a", ""), known(10.0))]);
    let hosts = (1..=10).map(|host| SocketAddr::from(([10, 0, 0, host], 80)));
    let parts = LocalityParts::new(Locality::new("r", "a", ""), hosts);
    let parts = AssignmentParts::new("orders", [parts]);
    let assignment = ClusterLoadAssignment::try_new(parts).unwrap();
    let upstream = HostSetCounts::of_assignment(&assignment, 0, None);
    let found = distributions(&ZoneAware::default(), &upstream, &demand, 100);
    let expected = json!({"from": "r/a/*", "to": {"r/a/*": 100}});
    assert_eq!(istio(&found[0]), expected);
}

#[test]
fn the_replica_that_started_first_writes() {
    let now = Instant::ORIGIN;
    let alone = State::new(config(""), now);
    assert!(is_writer(&alone), "without a store");
    let record = |name: &str| ReplicaRecord {
        replica: name.to_owned(),
        instance: name[1..].parse().unwrap(),
        // The names do not matter.
        started_unix_ms: 10 + name[1..].parse::<u64>().unwrap(),
        ..ReplicaRecord::default()
    };
    let mut state = State::new(config(""), now).with_replicas("a".into(), 1);
    assert!(!is_writer(&state), "the store has not been read");
    let snapshot = |names: &[&str]| {
        StoreInput::Snapshot(StoreSnapshot {
            replicas: names.iter().map(|name| record(name)).collect(),
            ..StoreSnapshot::default()
        })
    };
    state.handle_store(snapshot(&["r0", "r1", "r2"]), now);
    assert!(!is_writer(&state));
    state.handle_store(StoreInput::ReplicaDeleted("r0".into()), now);
    assert!(is_writer(&state));
    state.handle_store(StoreInput::Disconnected("gone".to_owned()), now);
    assert!(is_writer(&state), "its last state decides");
    state.handle_store(StoreInput::ReplicaPut(record("r0")), now);
    assert!(!is_writer(&state));
}

const CLUSTER: &str = "orders";

/// A load line of `orders` with demand and load line of each zone of region `r`.
fn line(zones: &[(&str, f64, f64)]) -> LoadLine {
    let zone = |(name, demand, line): &(&str, f64, f64)| ZoneLine {
        locality: Locality::new("r", name, ""),
        demand: *demand,
        proxies: 1,
        capacity_share: 0.0,
        capacity: None,
        line: *line,
        above_line: None,
        failed_share: None,
        fails: false,
        fails_only_from: Vec::new(),
        planned: None,
    };
    LoadLine {
        fleet: "gateway".into(),
        cluster: CLUSTER.into(),
        mode: Mode::Enforce,
        ramp: 100,
        basis: "measured_demand",
        on_fallback: false,
        warming_up: false,
        objective: Default::default(),
        target_utilization: None,
        bill: None,
        cost: Arc::default(),
        withheld: FailingZones::default(),
        undelivered: None,
        zones: zones.iter().map(zone).collect(),
        seen: None,
        now: Err(Unknown::NotComputed),
        enforce: Err(Unknown::NotComputed),
    }
}

/// Traffic of zones that serve these requests per second.
fn serving(served: &[f64]) -> Traffic {
    let zone = |served: &f64| ZoneTraffic {
        served: *served,
        ..ZoneTraffic::default()
    };
    Traffic {
        zones: served.iter().map(zone).collect(),
        ..Traffic::default()
    }
}

/// A policy that is in force for these clusters.
fn view(clusters: &[&str]) -> PolicyView {
    view_for(clusters, &["*"])
}

/// The same, of which only the demand of these fleets counts for Istio.
fn view_for(clusters: &[&str], fleets: &[&str]) -> PolicyView {
    let json = json!({"metadata": {"namespace": "shop", "name": "p", "generation": 4},
        "spec": {"istio": {"fleets": fleets}}});
    let json = serde_json::from_value(json).unwrap();
    let service = |name: &&str| (ObjectKey::new("shop", name), Arc::from(*name));
    PolicyView {
        policy: Arc::new(ZoneRoutingPolicy::from_json(json)),
        clusters: clusters.iter().map(service).collect(),
        missing: Vec::new(),
        preferred: BTreeSet::new(),
        error: None,
        notes: BTreeSet::new(),
        distribute: Distribute::Off,
    }
}

#[test]
fn a_policy_is_accepted_if_it_applies_to_something() {
    let invalid = PolicyView {
        error: Some("spec.mode: wrong".to_owned()),
        ..view(&[CLUSTER])
    };
    let lost = PolicyView {
        missing: vec!["port x of Service a".to_owned(), "Service b".to_owned()],
        ..view(&[])
    };
    let other = || BTreeSet::from([ObjectKey::new("shop", "q")]);
    let conflicted = PolicyView {
        preferred: other(),
        ..view(&[])
    };
    let partly = PolicyView {
        missing: vec!["Service b".to_owned()],
        preferred: other(),
        notes: BTreeSet::from(["Service shop/a x: wrong".to_owned()]),
        ..view(&["a"])
    };
    for (view, status, reason, message) in [
        (invalid, "False", "Invalid", "spec.mode: wrong"),
        (
            lost,
            "False",
            "TargetNotFound",
            "port x of Service a, Service b not found",
        ),
        (
            view(&[]),
            "False",
            "TargetNotFound",
            "no Service of targetRefs exists, or it is not selected",
        ),
        (
            conflicted,
            "False",
            "Conflicted",
            "its targets follow shop/q",
        ),
        (
            partly,
            "True",
            "Accepted",
            "applies to a; Service b not found; other targets follow shop/q; Service shop/a x: \
             wrong",
        ),
        (view(&["a", "b"]), "True", "Accepted", "applies to a, b"),
    ] {
        assert_eq!(accepted(&view), Verdict::new(status, reason, message));
    }
}

#[test]
fn zone_routing_is_true_when_measured_demand_steers() {
    let reason = |mode: &str, clusters: &[&str], lines: &[LoadLine]| {
        let state = State::new(config(&format!("mode: {mode}")), Instant::ORIGIN);
        let lines: Vec<&LoadLine> = lines.iter().collect();
        let verdict = zone_routing(&state, &view(clusters), &lines);
        (verdict.status, verdict.reason)
    };
    let steered = || line(&[("a", 1.0, 1.0)]);
    let idle = || line(&[("a", 0.0, 0.0)]);
    let fallback = || LoadLine {
        on_fallback: true,
        ..steered()
    };
    let warming_up = || LoadLine {
        warming_up: true,
        ..steered()
    };
    let zone_b = || BTreeSet::from([Locality::zone_only("b")]);
    let failing = || LoadLine {
        withheld: FailingZones {
            failing: zone_b(),
            ..FailingZones::default()
        },
        ..steered()
    };
    let unseen = || LoadLine {
        withheld: FailingZones {
            unseen: zone_b(),
            ..FailingZones::default()
        },
        ..steered()
    };
    let own = &[CLUSTER];
    assert_eq!(reason("ENFORCE", &["x"], &[]), ("False", "NotAccepted"));
    assert_eq!(reason("OFF", own, &[steered()]), ("False", "ModeOff"));
    assert_eq!(reason("SHADOW", own, &[steered()]), ("False", "ModeShadow"));
    let enforced = |lines: &[LoadLine]| reason("ENFORCE", own, lines);
    assert_eq!(enforced(&[]), ("False", "NoDemand"));
    assert_eq!(enforced(&[idle()]), ("False", "NoDemand"));
    assert_eq!(enforced(&[idle(), fallback()]), ("False", "NoDemand"));
    assert_eq!(enforced(&[warming_up()]), ("Unknown", "WarmingUp"));
    let state = State::new(config("mode: ENFORCE"), Instant::ORIGIN);
    let message = |undelivered| {
        let line = LoadLine {
            undelivered,
            ..warming_up()
        };
        zone_routing(&state, &view(own), &[&line]).message
    };
    let expected = "some proxies have not reported since they connected";
    assert_eq!(message(None), expected);
    let expected = "demand is not delivered yet: replicas agree on the first plan";
    assert_eq!(message(Some(Withheld::Agreeing)), expected);
    let some = [fallback(), warming_up(), steered()];
    assert_eq!(enforced(&some), ("True", "DemandSteers"));
    assert_eq!(enforced(&[steered(), failing()]), ("False", "ZoneFails"));
    assert_eq!(enforced(&[unseen()]), ("False", "ZoneUnseen"));
}

/// A fleet of these classes that has reported demand for `orders`.
fn measured(cluster: &str, service: &str, classes: &[NodeClass]) -> Driver {
    let mut config = ControlConfig::clone(&config_of("lb_policy: ROUND_ROBIN", ""));
    let file = ConfigFile {
        name: "control.yaml".to_owned(),
        text: "kubernetes: {mode: ENFORCE}".to_owned(),
    };
    // As the control plane reads it from a policy: a file with it would be refused.
    let found = ControlConfig::parse(&file, &[])
        .unwrap()
        .sources
        .kubernetes
        .unwrap();
    let document = Document::parse(&format!("{{cluster: {{{cluster}}}, {service}}}")).unwrap();
    let settings: Map<String, Value> = document.read().unwrap();
    let built = found.defaults.service(CLUSTER, false, &settings).unwrap();
    let orders = Service {
        assignment: Arc::clone(&config.services[CLUSTER].assignment),
        ..built
    };
    Arc::make_mut(&mut config.services).insert(CLUSTER.into(), Arc::new(orders));
    let mut driver = Driver::with_config(Arc::new(config));
    let nodes: Vec<NodeInfo> = classes.iter().flat_map(|class| fleet(*class)).collect();
    for node in &nodes {
        driver.open(node);
    }
    let traffic: Vec<(&NodeInfo, u64)> = nodes
        .iter()
        .zip([500, 350, 150].into_iter().cycle())
        .collect();
    driver.traffic(&traffic, 5);
    driver
}

fn zone_routing_of(driver: &Driver) -> Verdict {
    let lines = lines(driver, &ShareCache::default());
    let own: Vec<&LoadLine> = lines.iter().collect();
    assert!(own.iter().any(|line| line.demand() > 0.0));
    zone_routing(&driver.state, &view(&[CLUSTER]), &own)
}

#[test]
fn zone_routing_is_false_for_services_that_demand_does_not_steer() {
    let policy = |name: &str, fields: &str| {
        format!(
            "{{policies: [{{typed_extension_config: {{name: x, typed_config: {{'@type': \
             type.googleapis.com/envoy.extensions.load_balancing_policies.{name}{fields}}}}}}}]}}"
        )
    };
    let round_robin = |fields: &str| policy("round_robin.v3.RoundRobin", fields);
    let by_load = |fields: &str| {
        let fields = format!("{fields}, endpoint_picking_policy: {}", round_robin(""));
        let policy = policy("load_aware_locality.v3.LoadAwareLocality", &fields);
        format!("load_balancing_policy: {policy}")
    };
    let basis = "{zone_aware_lb_config: {locality_basis: HEALTHY_HOSTS_NUM}}";
    let by_basis = format!(
        "load_balancing_policy: {}",
        round_robin(&format!(", locality_lb_config: {basis}"))
    );
    let convergent = by_load(", spill_controller: CONVERGENT");
    let headroom = by_load("");
    let (envoy, ours) = (NodeClass::Envoy, NodeClass::Plimsoll);
    for (cluster, service, classes, part) in [
        (
            "lb_policy: RING_HASH",
            "mode: ENFORCE",
            &[ours, envoy][..],
            "hashing",
        ),
        (&headroom, "ramp: 50", &[ours], "load reports"),
        (&by_basis, "delivery: EDS_FIELD", &[envoy], "locality_basis"),
        (&convergent, "mode: ENFORCE", &[envoy], "load reports"),
        (
            "lb_subset_config: {subset_selectors: [{keys: [stage]}]}",
            "delivery: LOCALITY_WEIGHTS",
            &[envoy],
            "locality_weight_aware",
        ),
    ] {
        let verdict = zone_routing_of(&measured(cluster, service, classes));
        let said = (verdict.status, verdict.reason);
        assert_eq!(
            said,
            ("False", "NotSteered"),
            "{cluster}: {}",
            verdict.message
        );
        assert!(verdict.message.contains(part), "{}", verdict.message);
    }
    let steers = |cluster: &str, classes: &[NodeClass]| {
        let verdict = zone_routing_of(&measured(cluster, "mode: ENFORCE", classes));
        assert_eq!(
            (verdict.status, verdict.reason),
            ("True", "DemandSteers"),
            "{cluster}"
        );
        verdict.message
    };
    assert_eq!(
        steers("lb_policy: RANDOM", &[envoy]),
        "measured demand steers"
    );
    assert_eq!(steers(&convergent, &[ours]), "measured demand steers");
    let message = steers(&convergent, &[ours, envoy, NodeClass::Grpc]);
    let expected = "measured demand steers; not gRPC clients: load reports of hosts decide";
    assert!(message.starts_with(expected), "{message}");
    assert!(message.contains("; not Envoys: "), "{message}");
}

#[test]
fn zones_are_summed_over_fleets() {
    let first = LoadLine {
        now: Ok(serving(&[25.0, 15.0])),
        seen: Some(serving(&[1.0, 1.0])),
        ..line(&[("a", 30.0, 20.0), ("b", 10.0, 20.0)])
    };
    let second = LoadLine {
        seen: Some(serving(&[45.0, 5.0])),
        ..line(&[("b", 50.0, 30.0), ("c", 10.0, 0.0)])
    };
    let zone = |zone: &str, demand_percent, capacity_percent, load: &str| ZoneStatus {
        zone: zone.to_owned(),
        demand_percent,
        capacity_percent,
        load: load.to_owned(),
    };
    let expected = [
        zone("r/a", 30, 29, "1.25"),
        zone("r/b", 60, 71, "1.20"),
        zone("r/c", 10, 0, "0.00"),
    ];
    assert_eq!(zones(&[&first, &second]), expected);
    assert_eq!(
        zones(&[&line(&[("a", 0.0, 0.0)])]),
        [zone("r/a", 0, 0, "0.00")]
    );
}

/// Services `orders` and `search` with six hosts in each of two zones of a region.
fn two_services(region: &str) -> State {
    two_services_with(region, "", "")
}

/// Like [`two_services`], with further fields of both clusters and services.
fn two_services_with(region: &str, cluster: &str, settings: &str) -> State {
    let hosts = |net: u8| {
        let hosts: Vec<String> = (1..=6)
            .map(|host| format!("'10.0.{net}.{host}:80'"))
            .collect();
        hosts.join(", ")
    };
    let service = |name: &str| {
        format!(
            "{{cluster: {{name: {name}{cluster}}}{settings}, endpoints: [\
             {{locality: {{region: '{region}', zone: a}}, lb_endpoints: [{}]}}, \
             {{locality: {{region: '{region}', zone: b}}, lb_endpoints: [{}]}}]}}",
            hosts(0),
            hosts(1)
        )
    };
    let text = format!("services: [{}, {}]", service("orders"), service("search"));
    State::new(parse(&text), Instant::ORIGIN)
}

#[test]
fn the_service_with_most_demand_is_distributed() {
    let orders = line(&[("a", 3.0, 0.0), ("b", 0.0, 0.0)]);
    let of = |fleet: &str, zones| LoadLine {
        fleet: fleet.into(),
        cluster: "search".into(),
        ..line(zones)
    };
    let one = of("one", &[("a", 0.0, 0.0), ("b", 2.0, 0.0)]);
    let two = of("two", &[("a", 0.0, 0.0), ("b", 2.0, 0.0)]);
    let lines = [&orders, &one, &two];
    let distributed = |region: &str, distribute| {
        let view = PolicyView {
            distribute,
            ..view(&["search", "orders"])
        };
        distribution(&two_services(region), &view, &lines)
    };
    assert_eq!(distributed("r", Distribute::Off), None);
    // All demand is in zone b, whose capacity is half of it.
    let to = json!({"r/a/*": 50, "r/b/*": 50});
    let expected = |shown_only, distribute| ServiceDistribution {
        service: ObjectKey::new("shop", "search"),
        shown_only,
        distribute,
    };
    let written = json!([{"from": "r/b/*", "to": to}]);
    assert_eq!(
        distributed("r", Distribute::Write),
        Some(expected(None, Ok(written.clone())))
    );
    assert_eq!(
        distributed("r", Distribute::DryRun),
        Some(expected(Some("DryRun"), Ok(written)))
    );
    let reason = "Istio needs the region of zones: set kubernetes.region";
    assert_eq!(
        distributed("", Distribute::Write),
        Some(expected(None, Err(reason)))
    );
}

/// Only ENFORCE writes; what it would write is shown in every mode.
#[test]
fn a_ramp_of_50_distributes_half_way() {
    let line = line(&[("a", 3.0, 0.0), ("b", 1.0, 0.0)]);
    let distributed = |distribute, settings: &str| {
        let view = PolicyView {
            distribute,
            ..view(&["orders"])
        };
        let state = two_services_with("r", "", settings);
        let found = distribution(&state, &view, &[&line]).unwrap();
        (found.shown_only, found.distribute.unwrap()[0]["to"].clone())
    };
    for (mode, shown_only) in [
        ("'OFF'", Some("ModeOff")),
        ("SHADOW", Some("ModeShadow")),
        ("ENFORCE", None),
    ] {
        for (ramp, a, b) in [(0, 50, 50), (50, 58, 42), (100, 67, 33)] {
            let settings = format!(", mode: {mode}, ramp: {ramp}");
            let to = json!({"r/a/*": a, "r/b/*": b});
            let written = distributed(Distribute::Write, &settings);
            assert_eq!(written, (shown_only, to.clone()), "{settings}");
            let dry = distributed(Distribute::DryRun, &settings);
            assert_eq!(dry, (Some("DryRun"), to), "{settings}");
        }
    }
}

#[test]
fn a_zone_that_fails_or_is_unseen_stops_demand_in_the_distribution() {
    let distributed = |lines: &[LoadLine]| {
        let view = PolicyView {
            distribute: Distribute::Write,
            ..view(&[CLUSTER])
        };
        let lines: Vec<&LoadLine> = lines.iter().collect();
        let found = distribution(&two_services("r"), &view, &lines).unwrap();
        assert_eq!(found.shown_only, None, "what was written must not stay");
        found.distribute.unwrap()[0]["to"].clone()
    };
    let steered = || line(&[("a", 3.0, 0.0), ("b", 1.0, 0.0)]);
    let zone_a = || BTreeSet::from([Locality::new("r", "a", "")]);
    let failing = FailingZones {
        failing: zone_a(),
        ..FailingZones::default()
    };
    let unseen = FailingZones {
        unseen: zone_a(),
        ..FailingZones::default()
    };
    let by_demand = json!({"r/a/*": 67, "r/b/*": 33});
    assert_eq!(distributed(&[steered()]), by_demand);
    for withheld in [failing, unseen] {
        let of_another_fleet = LoadLine {
            fleet: "other".into(),
            withheld,
            ..steered()
        };
        let to = distributed(&[steered(), of_another_fleet]);
        assert_eq!(to, json!({"r/a/*": 50, "r/b/*": 50}));
    }
}

#[test]
fn a_fleet_that_the_policy_does_not_name_moves_no_request_of_the_distribution() {
    let honest = line(&[("a", 50.0, 0.0), ("b", 50.0, 0.0)]);
    let batch = LoadLine {
        fleet: "batch".into(),
        ..line(&[("a", 900_000.0, 0.0), ("b", 0.0, 0.0)])
    };
    let written = |fleets: &[&str], lines: &[&LoadLine]| {
        let view = PolicyView {
            distribute: Distribute::Write,
            ..view_for(&[CLUSTER], fleets)
        };
        distribution(&two_services("r"), &view, lines).unwrap()
    };
    let alone = written(&["gateway"], &[&honest]);
    assert_eq!(alone.shown_only, None);
    assert_eq!(written(&["gateway"], &[&honest, &batch]), alone);
    let moved = written(&["gateway", "batch"], &[&honest, &batch]);
    assert_ne!(moved.distribute, alone.distribute);
    assert_eq!(written(&["*"], &[&honest, &batch]), moved);
    let unnamed = written(&[], &[&honest, &batch]);
    assert_eq!(unnamed.shown_only, Some(NO_FLEETS));
}

#[test]
fn a_zone_is_tried_with_few_requests_in_the_distribution() {
    let (mut driver, _) = without_zone_b("");
    let percent = |driver: &Driver| {
        let all = lines(driver, &ShareCache::default());
        let lines: Vec<&LoadLine> = all.iter().collect();
        let orders = &driver.state.config().services[CLUSTER];
        percent_by_demand(&driver.state, orders, &lines)
    };
    assert_eq!(percent(&driver), 0);
    vanish(&mut driver, 31);
    let trial = percent(&driver);
    assert!((1..50).contains(&trial), "{trial}");
    driver.report_stats(&fleet(NodeClass::Envoy)[1], to_zone(CLUSTER, "b", 1, 0));
    driver.advance(1000);
    assert_eq!(percent(&driver), 100);
}

#[test]
fn what_demand_does_not_steer_is_not_distributed() {
    let basis = "{policies: [{typed_extension_config: {name: x, typed_config: {'@type': \
                 type.googleapis.com/envoy.extensions.load_balancing_policies.round_robin.v3.\
                 RoundRobin, locality_lb_config: {zone_aware_lb_config: \
                 {locality_basis: HEALTHY_HOSTS_NUM}}}}}]}";
    let line = line(&[("a", 3.0, 0.0), ("b", 1.0, 0.0)]);
    for (cluster, shown_only) in [
        ("", None),
        (", lb_policy: RING_HASH", Some("NotSteered")),
        (
            &format!(", load_balancing_policy: {basis}"),
            Some("NotSteered"),
        ),
    ] {
        let view = PolicyView {
            distribute: Distribute::Write,
            ..view(&[CLUSTER])
        };
        let state = two_services_with("r", cluster, "");
        let condition = zone_routing(&state, &view, &[&line]);
        assert_eq!(condition.reason == "NotSteered", shown_only.is_some());
        let found = distribution(&state, &view, &[&line]).unwrap();
        assert_eq!(found.shown_only, shown_only, "{cluster}");
    }
}

#[test]
fn the_outcome_of_a_distribution_is_a_condition() {
    let mut status = PolicyStatus {
        observed_generation: 4,
        ..PolicyStatus::default()
    };
    add_distribute_condition(&mut status, Verdict::new("True", "Written", "done"));
    let expected = Condition {
        kind: "IstioDistribute".to_owned(),
        status: "True".to_owned(),
        observed_generation: 4,
        reason: "Written".to_owned(),
        message: "done".to_owned(),
        ..Condition::default()
    };
    assert_eq!(status.conditions, [expected]);
}

#[tokio::test]
async fn a_report_has_conditions_and_the_zones_of_its_own_clusters() {
    let text = "services:
- cluster: {name: orders}
  endpoints: [{locality: {zone: a}, lb_endpoints: ['10.0.0.1:80']}]
- cluster: {name: search}
  endpoints: [{locality: {zone: b}, lb_endpoints: ['10.0.1.1:80']}]";
    let (writer, handle) = crate::server::start(parse(text));
    tokio::spawn(writer.run());
    let bound = crate::run::Bound {
        xds: ([127, 0, 0, 1], 18000).into(),
        admin: None,
        read_only: None,
    };
    let context = crate::run::Context::new(handle.clone(), bound);
    let node = crate::state::tests::driver::node(NodeClass::Envoy, "1", "a");
    let _stream = open(&handle, node).await;
    let budget = std::time::Duration::from_secs(30);
    let lines = context.load_lines(budget).await.unwrap();
    assert_eq!(lines.iter().count(), 2);
    let views = [view(&[CLUSTER])];
    let inspect = move |state: &State, _| reports(state, &lines, &views);
    let reports = handle.inspect(inspect).await.unwrap();
    let [report] = &reports[..] else {
        panic!("{reports:?}");
    };
    let names: Vec<&str> = report.status.zones.iter().map(|zone| &*zone.zone).collect();
    assert_eq!(names, ["a"]);
    let shown = report.status.conditions.iter();
    let shown: Vec<_> = shown
        .map(|one| {
            (
                &*one.kind,
                &*one.status,
                &*one.reason,
                one.observed_generation,
            )
        })
        .collect();
    let expected = [
        ("Accepted", "True", "Accepted", 4),
        ("ZoneRouting", "False", "NoDemand", 4),
    ];
    assert_eq!(shown, expected);
    assert_eq!(report.status.observed_generation, 4);
    assert_eq!(
        (&*report.policy.key.name, &report.distribution),
        ("p", &None)
    );
}

async fn open(handle: &crate::server::Handle, info: NodeInfo) -> impl Sized + use<> {
    let opening = AdsOpening {
        node: NodeMessage {
            info,
            raw: Default::default(),
        },
        variant: Variant::Delta,
        peer: None,
        identity: None,
        returning: false,
    };
    let discovery = crate::server::Discovery::new(handle.clone());
    AdsHandler::open(&discovery, opening).await.unwrap()
}
