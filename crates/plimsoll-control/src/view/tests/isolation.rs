//! Tests that an edit of one service changes nothing of the others: neither their clusters and
//! assignments nor their demand in load report responses, by file and behind a relay.

use plimsoll_xds::ads::view::Resource;
use plimsoll_xds::lrs::message::ClusterTraffic;
use plimsoll_xds::node::NodeInfo;
use proptest::prelude::*;

use super::*;
use crate::delivery::delivers_to_fleets;
use crate::relay::{RelayedResource, passed_on};
use crate::state::tests::driver::{HEAD, try_parse};
use crate::view::assignment::as_written;

/// Settings of a service, as drawn.
#[derive(Clone, Copy, Debug)]
struct Draw {
    policy: usize,
    delivery: usize,
    mode: usize,
    ramp: u32,
    hosts: [u8; 3],
    weighted: bool,
    has_health_checks: bool,
    /// Whether the file of a relay has the policy; else it is that of the other server.
    has_policy_behind_relay: bool,
}

/// A service as most tests have it.
const PLAIN: Draw = Draw {
    policy: ROUND_ROBIN,
    delivery: 0,
    mode: 0,
    ramp: 100,
    hosts: [3, 4, 5],
    weighted: false,
    has_health_checks: false,
    has_policy_behind_relay: true,
};
/// Index of the plain policy in `policies`, for edits that are about something else.
const ROUND_ROBIN: usize = 5;

/// All policies, and one with a short `staleness_threshold`.
fn policies() -> Vec<String> {
    let mut all = super::policies();
    let short = all[0].replace(
        "locality_basis: LRS_REPORTED_RATE",
        "locality_basis: LRS_REPORTED_RATE, lrs_rate_config: {staleness_threshold: 5s}",
    );
    all.push(short);
    all
}

fn draw() -> impl Strategy<Value = Draw> {
    let policy = 0..policies().len();
    let ramp = prop_oneof![Just(100_u32), Just(0), Just(1), 2_u32..100];
    let hosts = prop::array::uniform3(prop_oneof![1 => Just(0_u8), 6 => 1_u8..8]);
    let flags = prop::array::uniform3(any::<bool>());
    (policy, 0..DELIVERIES.len(), 0..4_usize, ramp, hosts, flags).prop_map(
        |(policy, delivery, mode, ramp, hosts, flags)| Draw {
            policy,
            delivery,
            mode,
            ramp,
            hosts,
            weighted: flags[0],
            has_health_checks: flags[1],
            has_policy_behind_relay: flags[2],
        },
    )
}

const RELAY: &str = "relay: {address: '127.0.0.1:18500'}\n";
const HEALTH_CHECKS: &str = "health_checks: [{timeout: 1s, interval: 5s, unhealthy_threshold: 2, \
                             healthy_threshold: 1, http_health_check: {path: /}}]";

/// Returns the settings of a service as in a file with this head.
fn settings(index: usize, draw: &Draw, policies: &[String], head: &str) -> String {
    let Draw { ramp, .. } = draw;
    let (policy, delivery) = (&policies[draw.policy], DELIVERIES[draw.delivery]);
    // ENFORCE is drawn twice as often.
    let mode = ["ENFORCE", "ENFORCE", "SHADOW", "'OFF'"][draw.mode];
    let is_relay = head == RELAY;
    let mut cluster = vec![format!("name: s{index}")];
    if !is_relay || draw.has_policy_behind_relay {
        cluster.push(policy.clone());
    }
    if draw.has_health_checks && !is_relay {
        cluster.push(HEALTH_CHECKS.to_owned());
    }
    let cluster = format!("cluster: {{{}}}", cluster.join(", "));
    let asked = format!("{cluster}, mode: {mode}, delivery: {delivery}, ramp: {ramp}");
    let is_accepted = try_parse(&format!("{head}services: [{{{asked}}}]")).is_ok();
    if is_accepted {
        asked
    } else {
        format!("{cluster}, delivery: AUTO")
    }
}

/// Returns the endpoints of a service in zones a, b and c as in a file.
fn endpoints(index: usize, draw: &Draw) -> String {
    let zones = ["a", "b", "c"].into_iter().zip(draw.hosts).zip(0..);
    let zone = |((zone, hosts), net): ((&str, u8), usize)| {
        let host = |host| format!("'10.{index}.{net}.{host}:80'");
        let all = (1..=hosts).map(host).collect::<Vec<_>>().join(", ");
        let weight = if draw.weighted {
            format!("load_balancing_weight: {}, ", net + 1)
        } else {
            String::new()
        };
        (hosts > 0)
            .then(|| format!("{{locality: {{zone: {zone}}}, {weight}lb_endpoints: [{all}]}}"))
    };
    let entries: Vec<_> = zones.filter_map(zone).collect();
    format!("endpoints: [{}]", entries.join(", "))
}

/// Names the zones of all proxies, whose demand then counts without hosts there.
const NAMED_ZONES: &str = "fleets: {zones: [{zone: a}, {zone: b}, {zone: c}]}\n";

/// Returns a file with those of the services that are there.
fn file(draws: &[Option<Draw>], policies: &[String], head: &str) -> Arc<ControlConfig> {
    let written = |(index, draw): (usize, &Option<Draw>)| {
        let draw = draw.as_ref()?;
        let settings = settings(index, draw, policies, "");
        Some(format!("{{{settings}, {}}}", endpoints(index, draw)))
    };
    let services: Vec<_> = draws.iter().enumerate().filter_map(written).collect();
    try_parse(&format!("{HEAD}{head}services: [{}]", services.join(", "))).unwrap()
}

/// The same services in the file of a relay, which has no endpoints, beside one that stays: without
/// services a relay shows all clusters.
fn relay(draws: &[Option<Draw>], policies: &[String]) -> Arc<ControlConfig> {
    let written = |(index, draw): (usize, &Option<Draw>)| {
        let settings = settings(index, draw.as_ref()?, policies, RELAY);
        Some(format!("{{{settings}}}"))
    };
    let mut services: Vec<_> = draws.iter().enumerate().filter_map(written).collect();
    services.push("{cluster: {name: other}}".to_owned());
    try_parse(&format!("{HEAD}{RELAY}services: [{}]", services.join(", "))).unwrap()
}

/// Returns the zones in which some service has hosts.
fn zones(draws: &[Option<Draw>]) -> BTreeSet<usize> {
    let of_service = |draw: &Draw| (0..3).filter(|zone| draw.hosts[*zone] > 0).collect();
    let all = draws.iter().flatten().map(of_service);
    all.flat_map(|zones: Vec<usize>| zones).collect()
}

/// A fleet of all classes, with demand for each service that differs by zone. Zone c may have no
/// node but one that reports and is no endpoint of the fleet.
#[derive(Clone)]
struct Fleet {
    nodes: Vec<NodeInfo>,
    is_listed: fn(&NodeInfo) -> bool,
}

impl Fleet {
    fn new(has_stray: bool) -> Self {
        Self {
            nodes: CLASSES.into_iter().flat_map(fleet).collect(),
            is_listed: if has_stray {
                |node| node.node.locality.zone() != "c"
            } else {
                |_| true
            },
        }
    }

    /// Opens the streams, and lets all nodes report.
    fn measured(&self, config: &Arc<ControlConfig>) -> (Driver, Vec<ViewKey>) {
        let mut driver = Driver::with_config(Arc::clone(config));
        let listed = self.nodes.iter().filter(|node| (self.is_listed)(node));
        let keys = listed.map(|node| driver.open(node)).collect();
        self.report(&mut driver);
        (driver, keys)
    }

    /// Lets three seconds pass, with reports that differ by less than is worth an update.
    fn report(&self, driver: &mut Driver) {
        for _ in 0..3 {
            driver.advance(1000);
            for index in 0..MAX_SERVICES {
                self.report_once(driver, &format!("s{index}"), index as u64 + 1);
            }
            // Without reports of its own it would have the demand of the fleet.
            self.report_once(driver, "other", 2);
        }
    }

    fn report_once(&self, driver: &mut Driver, name: &str, factor: u64) {
        for (index, node) in self.nodes.iter().enumerate() {
            let drift = driver.now.as_nanos() / 1_000_000_000 % 3;
            let requests = [500 * factor + drift, 350, 150 / factor][index % 3];
            driver.report(node, name, requests);
        }
    }
}

/// What nodes get for each service apart from `edited`, by name, with the demand that they are
/// told; and the fleet's own assignment.
type Sent = BTreeSet<String>;

fn told(driver: &Driver, edited: &str) -> Sent {
    let of = |class| {
        let told = driver.told(class);
        let others = told
            .clusters
            .iter()
            .filter(|own| &*own.cluster_name != edited);
        // The time of the newest report comes with each heartbeat.
        let line =
            |own: &ClusterTraffic| format!("{class:?} {} {:?}", own.cluster_name, own.fractions);
        others.map(line).collect::<Vec<_>>()
    };
    CLASSES.into_iter().flat_map(of).collect()
}

fn by_file(driver: &Driver, keys: &[ViewKey], edited: &str) -> Sent {
    let mut sent = told(driver, edited);
    for key in keys {
        for kind in [CLUSTER, CLUSTER_LOAD_ASSIGNMENT] {
            let all = driver.view(key).get(kind).unwrap().iter();
            let services = &driver.state.config().services;
            let others = all.filter(|one| services.contains_key(&one.name) && &*one.name != edited);
            sent.extend(others.map(|one| format!("{key:?} {kind} {} {:?}", one.name, one.body)));
        }
    }
    sent
}

/// What is made of the clusters and assignments of the other server, which has those of a file.
fn by_patch(driver: &mut Driver, theirs: &ControlConfig, keys: &[ViewKey], edited: &str) -> Sent {
    driver.drain();
    let mut sent = told(driver, edited);
    let resources: Vec<_> = theirs
        .services
        .iter()
        .flat_map(|(name, service)| {
            let RelayedResource::Cluster { body, .. } = RelayedResource::cluster_of(service, "1")
            else {
                unreachable!("a cluster was made");
            };
            let assignment = Resource::new(Arc::clone(name), as_written(service));
            [
                (CLUSTER, Resource::new(Arc::clone(name), body)),
                (CLUSTER_LOAD_ASSIGNMENT, assignment),
            ]
        })
        .collect();
    for key in keys {
        let patch = driver.state.patch(key).unwrap();
        let view = passed_on(patch, &resources).0.unwrap();
        for kind in [CLUSTER, CLUSTER_LOAD_ASSIGNMENT] {
            let all = view.get(kind).unwrap().iter();
            let services = &theirs.services;
            let others = all.filter(|one| services.contains_key(&one.name) && &*one.name != edited);
            sent.extend(others.map(|one| format!("{key:?} {kind} {} {:?}", one.name, one.body)));
        }
    }
    sent
}

/// The fleet's own assignment for each class, and how many endpoints it has in each zone: what
/// services that count hosts go by.
fn of_fleet(driver: &Driver, keys: &[ViewKey]) -> (Vec<Vec<u8>>, Vec<Vec<usize>>) {
    let own = |key| driver.assignment(key, "local_cluster").unwrap();
    let bodies: Vec<_> = keys.iter().map(|key| own(key).body.to_vec()).collect();
    let hosts = bodies.iter().map(|body| {
        let zones = walk::at(body, &[2]).into_iter();
        zones.map(|zone| walk::at(&zone, &[2]).len()).collect()
    });
    (bodies.clone(), hosts.collect())
}

fn learn(driver: &mut Driver, config: &ControlConfig) {
    for (name, service) in &*config.services {
        let assignment = RelayedResource::Assignment {
            cluster: Arc::clone(name),
            name: Arc::clone(name),
            version: "1".into(),
            assignment: Arc::clone(&service.assignment),
        };
        for resource in [RelayedResource::cluster_of(service, "1"), assignment] {
            driver.state.handle_relayed(resource, driver.now);
        }
    }
    driver.drain();
}

/// Most services of a file.
const MAX_SERVICES: usize = 5;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn edits_of_one_service_change_no_other(
        draws in prop::collection::vec(draw(), 2..=MAX_SERVICES),
        edited in any::<prop::sample::Index>(),
        edit in prop::option::weighted(0.9, draw()),
        is_added in prop::bool::weighted(0.1),
        [has_stray, names_zones] in any::<[bool; 2]>(),
    ) {
        let (policies, proxies) = (policies(), Fleet::new(has_stray));
        let edited = edited.index(draws.len());
        let mut draws: Vec<_> = draws.into_iter().map(Some).collect();
        if is_added {
            draws[edited] = None;
        }
        let mut after = draws.clone();
        after[edited] = edit;
        let name = format!("s{edited}");
        let head = if names_zones { NAMED_ZONES } else { "" };
        let [before, after_edit] = [&draws, &after].map(|draws| file(draws, &policies, head));
        // Demand of a zone that the file does not name counts from the first host there (0032).
        if names_zones || zones(&after).is_subset(&zones(&draws)) {
            edits_of_a_file_change_no_other(&proxies, [&before, &after_edit], &name)?;
        }

        let [relay_before, relay_after] = [&draws, &after].map(|draws| relay(draws, &policies));
        let (mut driver, keys) = proxies.measured(&relay_before);
        let mut unedited = proxies.measured(&relay_before).0;
        for driver in [&mut driver, &mut unedited] {
            learn(driver, &before);
        }
        driver.reload(relay_after);
        learn(&mut driver, &after_edit);
        for later in [false, true] {
            if later {
                proxies.report(&mut driver);
                proxies.report(&mut unedited);
            }
            let expected = by_patch(&mut unedited, &before, &keys, &name);
            prop_assert_eq!(by_patch(&mut driver, &after_edit, &keys, &name), expected);
        }
    }
}

fn edits_of_a_file_change_no_other(
    proxies: &Fleet,
    [before, after]: [&Arc<ControlConfig>; 2],
    name: &str,
) -> Result<(), TestCaseError> {
    let (mut driver, keys) = proxies.measured(before);
    let mut unedited = proxies.measured(before).0;
    let sent = by_file(&driver, &keys, name);
    driver.reload(Arc::clone(after));
    // At once, and when demand is known that was measured since.
    for later in [false, true] {
        if later {
            proxies.report(&mut driver);
            proxies.report(&mut unedited);
        }
        let unchanged = by_file(&unedited, &keys, name);
        prop_assert_eq!(&by_file(&driver, &keys, name), &unchanged);
        if !later {
            prop_assert_eq!(&unchanged, &sent);
        }
        let (fleet, hosts) = of_fleet(&unedited, &keys);
        let (fleet_after, hosts_after) = of_fleet(&driver, &keys);
        if !(proxies.is_listed)(&proxies.nodes[2]) {
            continue;
        }
        prop_assert_eq!(hosts_after, hosts);
        // Its weights may change by the first service that needs demand there, and with the last
        // one (decision 0017); it has the demand for all services.
        let is_there = |config: &ControlConfig| config.services.contains_key(name);
        let has_same_services = is_there(before) == is_there(after);
        if has_same_services && delivers_to_fleets(before) == delivers_to_fleets(after) {
            prop_assert_eq!(fleet_after, fleet);
        }
    }
    Ok(())
}

/// Demand from a zone counts if it has hosts of some service: the first one changes what is known
/// of the demand for all. Zones in `fleets.zones` count from the start.
#[test]
fn the_first_host_in_a_zone_lets_its_demand_count_for_every_service() {
    let policies = policies();
    let weighted = Draw {
        delivery: DELIVERIES.len() - 1,
        hosts: [3, 4, 0],
        ..PLAIN
    };
    let edited = Draw {
        hosts: [3, 4, 1],
        ..weighted
    };
    for (head, is_isolated) in [("", false), (NAMED_ZONES, true)] {
        let config = |second: Draw| file(&[Some(weighted), Some(second)], &policies, head);
        let proxies = Fleet::new(false);
        let (mut driver, keys) = proxies.measured(&config(weighted));
        let sent = by_file(&driver, &keys, "s1");
        driver.reload(config(edited));
        proxies.report(&mut driver);
        assert_eq!(by_file(&driver, &keys, "s1") == sent, is_isolated, "{head}");
    }
}

/// A short `staleness_threshold` lets nodes have demand confirmed more often. For the others this
/// neither brings moves that are too small to be worth an update, nor keeps them from a heartbeat.
#[test]
fn a_short_staleness_threshold_changes_the_demand_of_no_other_service() {
    let policies = policies();
    let weighted = Draw {
        delivery: DELIVERIES.len() - 1,
        ..PLAIN
    };
    let short = Draw {
        policy: policies.len() - 1,
        ..PLAIN
    };
    let proxies = Fleet::new(false);
    let run = |second| {
        let config = file(&[Some(weighted), Some(second)], &policies, "");
        let (mut driver, keys) = proxies.measured(&config);
        let mut sent = vec![by_file(&driver, &keys, "s1")];
        let confirmed = driver.state.planner().confirmation();
        // 0.4 % of the demand moves, of 1 % that is worth an update.
        for _ in 0..25 {
            driver.advance(1000);
            for (index, node) in proxies.nodes.iter().enumerate() {
                driver.report(node, "s0", [496, 350, 154][index % 3]);
            }
            sent.push(by_file(&driver, &keys, "s1"));
        }
        (sent, confirmed)
    };
    let (sent, confirmed) = run(PLAIN);
    let (beside, confirmed_beside) = run(short);
    assert!(confirmed_beside < confirmed / 10, "{confirmed_beside:?}");
    assert!(beside == sent, "the same at every second");
    assert_eq!(sent[5], sent[0], "not worth an update");
    assert_ne!(sent[25], sent[0], "a heartbeat");
}

/// On a stock Envoy, `HEALTHY_HOSTS_WEIGHT` reads the weights of the fleet's assignment: that they
/// come with the first service that needs them is what decision 0017 gave up. Its own resources,
/// and the numbers of hosts that others count, stay.
#[test]
fn the_first_service_that_needs_fleet_weights_brings_them_to_services_that_wrote_their_basis() {
    let policies = policies();
    let by_weight = policies
        .iter()
        .position(|policy| policy.contains("locality_basis: HEALTHY_HOSTS_WEIGHT"));
    let written = Draw {
        policy: by_weight.unwrap(),
        ..PLAIN
    };
    let off = Draw { mode: 3, ..PLAIN };
    let [before, after] =
        [off, PLAIN].map(|draw| file(&[Some(written), Some(draw)], &policies, ""));
    let (mut driver, keys) = Fleet::new(false).measured(&before);
    let sent = by_file(&driver, &keys, "s1");
    let (fleet, hosts) = of_fleet(&driver, &keys);
    driver.reload(after);
    assert_eq!(by_file(&driver, &keys, "s1"), sent);
    let (fleet_after, hosts_after) = of_fleet(&driver, &keys);
    assert_eq!(hosts_after, hosts);
    assert_ne!(fleet_after, fleet, "it has weights and fractions now");
    driver.reload(before);
    assert_eq!(of_fleet(&driver, &keys).0, fleet);
}

/// The property above must be able to fail: what it compares shows the edited service, too.
#[test]
fn edits_of_a_service_are_seen_in_what_is_compared() {
    let policies = policies();
    let after = Draw { ramp: 50, ..PLAIN };
    let [file_before, file_after] = [PLAIN, after].map(|draw| file(&[Some(draw)], &policies, ""));
    let proxies = Fleet::new(false);
    let (mut driver, keys) = proxies.measured(&file_before);
    let sent = by_file(&driver, &keys, "none");
    driver.reload(Arc::clone(&file_after));
    assert_ne!(by_file(&driver, &keys, "none"), sent);
    let [relay_before, relay_after] = [PLAIN, after].map(|draw| relay(&[Some(draw)], &policies));
    let (mut driver, keys) = proxies.measured(&relay_before);
    learn(&mut driver, &file_before);
    let sent = by_patch(&mut driver, &file_before, &keys, "none");
    driver.reload(relay_after);
    learn(&mut driver, &file_after);
    assert_ne!(by_patch(&mut driver, &file_after, &keys, "none"), sent);
}
