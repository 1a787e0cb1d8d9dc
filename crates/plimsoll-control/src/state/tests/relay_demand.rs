//! Tests of a relay without services: the cluster that is worst off decides whether the fleet gets
//! measured demand, because a relay that names no service changes no cluster.

use std::sync::Arc;

use plimsoll_core::model::load_report::{ClusterStats, UpstreamLocalityStats};
use plimsoll_core::model::locality::Locality;
use plimsoll_xds::node::NodeInfo;

use super::driver::{Driver, ENDPOINTS, HEAD, node, parse, stats};
use crate::delivery::NodeClass;
use crate::relay::RelayedResource;

const HEALTH_CHECKS: &str = "health_checks: [{timeout: 1s, interval: 1s, healthy_threshold: 1, \
                             unhealthy_threshold: 2, tcp_health_check: {}}]";

/// Requests that succeed and that fail, of the proxies of a zone to its hosts.
type Requests = [(u64, u64); 3];

/// A relay, the clusters of its server, and one Envoy in each of zones a, b and c.
struct Rig {
    driver: Driver,
    nodes: [NodeInfo; 3],
}

impl Rig {
    /// Without `services` of the relay's own, the clusters `names` follow the weights of the
    /// fleet's assignment. `fields` are further ones of these clusters.
    fn new(names: &[&str], services: &str, fields: &str) -> Self {
        let relay = "relay: {address: '127.0.0.1:18500'}\n";
        let mut driver = Driver::with_config(parse(&format!("{HEAD}{relay}{services}")));
        let basis = if services.is_empty() {
            ", locality_basis: HEALTHY_HOSTS_WEIGHT"
        } else {
            ""
        };
        for &name in names {
            let policy = "type.googleapis.com/envoy.extensions.load_balancing_policies";
            let upstream = parse(&format!(
                "services: [{{cluster: {{name: {name}, {fields} load_balancing_policy: {{policies: \
                 [{{typed_extension_config: {{name: round_robin, typed_config: {{'@type': \
                 {policy}.round_robin.v3.RoundRobin, locality_lb_config: {{zone_aware_lb_config: \
                 {{min_cluster_size: 1{basis}}}}}}}}}}}]}}}}, \
                 {ENDPOINTS}}}]"
            ));
            let service = &upstream.services[name];
            let assignment = RelayedResource::Assignment {
                cluster: name.into(),
                name: name.into(),
                version: "1".into(),
                assignment: Arc::clone(&service.assignment),
            };
            for resource in [RelayedResource::cluster_of(service, "1"), assignment] {
                driver.state.handle_relayed(resource, driver.now);
            }
        }
        let nodes = ["a", "b", "c"].map(|zone| node(NodeClass::Envoy, zone, zone));
        for node in &nodes {
            driver.open(node);
        }
        Self { driver, nodes }
    }

    /// One second in which proxies send these requests to the hosts of their own zones.
    fn second(&mut self, clusters: &[(&str, Requests)]) {
        for (index, node) in self.nodes.iter().enumerate() {
            let report = |(name, requests): &(&str, Requests)| {
                let (succeeded, failed) = requests[index];
                ClusterStats {
                    upstream_locality_stats: vec![UpstreamLocalityStats {
                        locality: node.node.locality.clone(),
                        total_issued_requests: succeeded + failed,
                        total_successful_requests: succeeded,
                        total_error_requests: failed,
                        ..Default::default()
                    }],
                    ..stats(name, 0)
                }
            };
            let reports: Vec<_> = clusters.iter().map(report).collect();
            let (state, now) = (&mut self.driver.state, self.driver.now);
            state.handle_report(node, &reports, now);
        }
        self.driver.advance(1000);
    }

    fn seconds(&mut self, seconds: u64, clusters: &[(&str, Requests)]) {
        (0..seconds).for_each(|_| self.second(clusters));
    }

    /// Returns the demand of zone a that the fleet is sent, in basis points; `None` = host counts.
    fn sent(&self) -> Option<u64> {
        let zones = &self.driver.state.fleet_plan("gateway").unwrap().zones;
        let at_a = zones.iter().find(|zone| zone.locality.zone() == "a");
        at_a.map(|zone| zone.fraction.get())
    }
}

const LEVEL: Requests = [(6000, 0), (2000, 0), (2000, 0)];
const WITHOUT_B: Requests = [(6000, 0), (0, 0), (2000, 0)];

#[test]
fn a_small_cluster_with_a_dead_zone_keeps_a_relay_from_steering() {
    let mut rig = Rig::new(&["orders", "carts"], "", "");
    let healthy = [("orders", LEVEL), ("carts", [(30, 0), (10, 0), (10, 0)])];
    rig.seconds(10, &healthy);
    assert_eq!(rig.sent(), Some(6000));
    let dead = [("orders", LEVEL), ("carts", [(30, 0), (0, 10), (10, 0)])];
    rig.seconds(3, &dead);
    let sum = rig.driver.state.measured_plan(&"gateway".into(), None);
    assert!(sum.unwrap().failing.is_empty(), "diluted");
    assert_eq!(rig.sent(), None);
    rig.seconds(60, &healthy);
    assert!(rig.sent().is_some());
}

#[test]
fn one_dead_host_of_five_keeps_a_relay_from_steering() {
    let mut rig = Rig::new(&["orders"], "", "");
    rig.seconds(10, &[("orders", LEVEL)]);
    assert_eq!(rig.sent(), Some(6000));
    rig.seconds(3, &[("orders", [(6000, 0), (1600, 400), (2000, 0)])]);
    assert_eq!(rig.sent(), None);
}

#[test]
fn a_relay_tries_an_unseen_zone_with_a_part_of_the_demand() {
    let mut rig = Rig::new(&["orders"], "", "");
    rig.seconds(10, &[("orders", LEVEL)]);
    let mut sent = Vec::new();
    for _ in 0..80 {
        rig.second(&[("orders", WITHOUT_B)]);
        sent.push(rig.sent());
    }
    let trials: Vec<u64> = sent.iter().flatten().copied().collect();
    assert!((5..20).contains(&trials.len()), "{sent:?}");
    assert!(sent[..29].iter().all(Option::is_none), "{sent:?}");
    // By host counts, a third of the demand is in zone a.
    assert!(
        trials.iter().all(|bp| (3334..3500).contains(bp)),
        "{sent:?}"
    );
}

#[test]
fn health_checks_of_relayed_clusters_are_known() {
    let fields = format!("{HEALTH_CHECKS},");
    for services in ["", "services: [{cluster: {name: orders}}]"] {
        let mut rig = Rig::new(&["orders"], services, &fields);
        rig.seconds(10, &[("orders", LEVEL)]);
        for second in 0..80 {
            rig.second(&[("orders", WITHOUT_B)]);
            let plan = rig.driver.state.fleet_plan("gateway").unwrap();
            let is_withheld = plan.services.values().any(|service| {
                service.measured.is_none() || !service.failing.is_empty() || service.ramp < 100
            });
            assert!(!is_withheld, "{services:?} after {second} s");
            if services.is_empty() && second > 0 {
                assert_eq!(rig.sent(), Some(7500), "after {second} s");
            }
        }
        let sum = rig.driver.state.measured_plan(&"gateway".into(), None);
        let zone_b = Locality::zone_only("b");
        let sum = sum.unwrap();
        assert!(sum.unseen.contains(&zone_b) || sum.tried.contains(&zone_b));
    }
}
