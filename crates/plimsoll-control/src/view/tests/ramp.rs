//! Tests that the first step of a ramp is as small as its number: at 1 %, requests go where OFF
//! sends them but for one in a hundred. Where load reports of hosts decide, they go where the
//! reports have settled.

use plimsoll_core::balancer::Balancer;
use plimsoll_core::explain::Explanation;
use plimsoll_core::model::orca::OrcaLoadReport;

use super::*;
use crate::explain::tests::{read_back, receive, received_config};
use crate::state::tests::driver::{HEAD, try_parse};

/// Envoy's shares are whole basis points, and weights are integers.
const ROUNDING: f64 = 0.0015;

/// Endpoints in three zones, with or without weights of the zones.
fn endpoints(hosts: usize, written: bool) -> String {
    let zone = |(net, (zone, weight)): (usize, (&str, u32))| {
        let host = |host| format!("'10.0.{net}.{host}:80'");
        let all = (1..=hosts).map(host).collect::<Vec<_>>().join(", ");
        let weight = if written {
            format!("load_balancing_weight: {weight}, ")
        } else {
            String::new()
        };
        format!("{{locality: {{zone: {zone}}}, {weight}lb_endpoints: [{all}]}}")
    };
    let zones = [("a", 7), ("b", 2), ("c", 1)].into_iter().enumerate();
    let entries: Vec<_> = zones.map(zone).collect();
    format!("endpoints: [{}]", entries.join(", "))
}

/// Routing by proxies of each zone, of a fleet of one class that has most proxies in zone a, and
/// most demand in zone b. `None` if the settings are refused.
fn routed(service: &str, class: NodeClass) -> Option<Vec<Explanation>> {
    let config = try_parse(&format!("{HEAD}services: [{{{service}}}]")).ok()?;
    let mut driver = Driver::with_config(config);
    let [a, b, c] = fleet(class);
    let more = ["1", "2"].map(|id| node(class, id, "a"));
    let keys = [&a, &b, &c].map(|node| driver.open(node));
    more.iter().for_each(|node| drop(driver.open(node)));
    let traffic = [
        (&a, 100),
        (&b, 700),
        (&c, 50),
        (&more[0], 100),
        (&more[1], 50),
    ];
    driver.traffic(&traffic, 5);
    Some(keys.iter().map(|key| read_back(&driver, key)).collect())
}

#[test]
fn ramp_one_is_one_percent_from_off_for_every_class_policy_and_size() {
    let mut compared = 0;
    for cluster in policies() {
        for (hosts, written) in [(1, false), (2, false), (2, true), (10, false), (10, true)] {
            let endpoints = endpoints(hosts, written);
            let service =
                |rest: &str| format!("cluster: {{name: orders, {cluster}}}, {rest}, {endpoints}");
            for class in CLASSES {
                let Some(first) = routed(&service("ramp: 1"), class) else {
                    continue;
                };
                let off = routed(&service("mode: 'OFF'"), class).unwrap();
                let rows = |explained: &Explanation| explained.localities.clone();
                for (first, off) in first.iter().flat_map(rows).zip(off.iter().flat_map(rows)) {
                    let moved = (first.expected_share - off.expected_share).abs();
                    assert!(
                        moved <= 0.01 + ROUNDING,
                        "{hosts} hosts, written: {written}, {class:?}, {cluster}:\n{} → {} to {}",
                        off.expected_share,
                        first.expected_share,
                        first.zone
                    );
                    compared += 1;
                }
            }
        }
    }
    assert!(compared > 2000, "{compared}");
}

/// The test above must be able to fail: the whole way is far for some.
#[test]
fn the_end_of_the_ramp_is_far_from_off() {
    let service =
        |rest: &str| format!("cluster: {{name: orders}}, {rest}, {}", endpoints(1, false));
    for class in CLASSES {
        let [end, off] = ["ramp: 100", "mode: 'OFF'"].map(|rest| routed(&service(rest), class));
        let share =
            |found: Option<Vec<Explanation>>| found.unwrap()[0].localities[0].expected_share;
        assert!((share(end) - share(off)).abs() > 0.2, "{class:?}");
    }
}

/// A Plimsoll proxy in each zone, and hosts that report the load that these proxies cause.
struct Loop {
    driver: Driver,
    proxies: Vec<(ViewKey, Balancer)>,
    now: Instant,
}

/// Requests of proxies by zone, in units of what one zone can serve: zone a has more than its part.
const DEMAND: [f64; 3] = [1.08, 0.36, 0.36];
const HOSTS: usize = 4;

impl Loop {
    fn new(rest: &str) -> Self {
        let mut driver = Driver::with_config(service_by_reports(rest));
        let nodes = fleet(NodeClass::Plimsoll);
        let keys = nodes.each_ref().map(|node| driver.open(node));
        // Demand that calls for another split than load reports do: all in zone b.
        driver.traffic(&[(&nodes[0], 20), (&nodes[1], 900), (&nodes[2], 80)], 5);
        let now = Instant::ORIGIN;
        let proxy = |key: ViewKey| {
            let config = Arc::new(received_config(&driver, &key));
            let balancer = Balancer::new(config, key.locality.clone(), now);
            (key, balancer)
        };
        let mut proxies: Vec<_> = keys.into_iter().map(proxy).collect();
        for (key, balancer) in &mut proxies {
            receive(&driver, key, balancer, now);
        }
        Self {
            driver,
            proxies,
            now,
        }
    }

    fn reload(&mut self, rest: &str) {
        self.driver.reload(service_by_reports(rest));
        for (key, balancer) in &mut self.proxies {
            balancer.handle_config(Arc::new(received_config(&self.driver, key)), self.now);
        }
    }

    /// Shares of each proxy's requests by zone of hosts.
    fn shares(&mut self) -> Vec<[f64; 3]> {
        let now = self.now;
        let of = |(_, balancer): &mut (ViewKey, Balancer)| {
            let explained = balancer.initial_snapshot(now).explain_at(now);
            ["a", "b", "c"].map(|zone| {
                let mut rows = explained.localities.iter();
                rows.find(|row| row.zone == zone).unwrap().expected_share
            })
        };
        self.proxies.iter_mut().map(of).collect()
    }

    /// Lets hosts report, and a second pass.
    fn step(&mut self) {
        let shares = self.shares();
        let load = |zone: usize| {
            let sent = DEMAND.iter().zip(&shares);
            sent.map(|(demand, shares)| demand * shares[zone]).sum()
        };
        let loads: [f64; 3] = [load(0), load(1), load(2)];
        let now = self.now.saturating_add(Duration::from_secs(1));
        self.now = now;
        for (key, balancer) in &mut self.proxies {
            let config = received_config(&self.driver, key);
            for (host, ..) in balancer.hosts() {
                let zone = match host.address().ip() {
                    std::net::IpAddr::V4(ip) => usize::from(ip.octets()[2]),
                    std::net::IpAddr::V6(_) => unreachable!("hosts have IPv4 addresses"),
                };
                let report = OrcaLoadReport {
                    application_utilization: loads[zone],
                    ..OrcaLoadReport::default()
                };
                assert!(host.observe_orca(&report, &config, now));
            }
            receive(&self.driver, key, balancer, now);
            balancer.handle_timeout(now);
        }
    }

    /// Largest change of a share in `seconds` after `change`.
    fn moved_by(&mut self, seconds: u32, change: impl FnOnce(&mut Self)) -> f64 {
        let before = self.shares().concat();
        change(self);
        let mut most = 0.0_f64;
        for _ in 0..seconds {
            self.step();
            let after = self.shares().concat();
            let moves = before
                .iter()
                .zip(&after)
                .map(|(before, after)| (before - after).abs());
            most = moves.fold(most, f64::max);
        }
        most
    }
}

fn service_by_reports(rest: &str) -> Arc<ControlConfig> {
    let cluster = policies()
        .into_iter()
        .find(|cluster| cluster.contains("CONVERGENT"));
    let (cluster, endpoints) = (cluster.unwrap(), endpoints(HOSTS, false));
    let service = format!("cluster: {{name: orders, {cluster}}}, {rest}, {endpoints}");
    try_parse(&format!("{HEAD}services: [{{{service}}}]")).unwrap()
}

#[test]
fn the_first_step_of_feed_forward_moves_what_reports_have_settled_by_one_percent() {
    let settled = || {
        let mut world = Loop::new("mode: 'OFF'");
        (0..180).for_each(|_| world.step());
        let kept = world.shares()[0][0];
        assert!((0.5..0.7).contains(&kept), "zone a spills: {kept}");
        world
    };
    let idle = settled().moved_by(60, |_| ());
    assert!(idle < 0.005, "level: {idle}");
    let shadow = settled().moved_by(60, |world| world.reload("mode: SHADOW"));
    assert!((shadow - idle).abs() < 1e-9, "{shadow}");
    let first = settled().moved_by(60, |world| world.reload("ramp: 1"));
    assert!(first <= 0.01, "{first}");
    let end = settled().moved_by(60, |world| world.reload("ramp: 100"));
    assert!(end > 0.1, "the test can fail: {end}");
    println!("idle {idle:.4}, first step {first:.4}, end {end:.4}");
}
