//! Tests of learned capacity: what nodes are sent, and what is planned with it.
//!
//! The worked example has hosts 3/5/2; here the first of each zone is of half the strength, and the
//! last of twice. The others serve 20 requests per second.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use plimsoll_core::model::assignment::{LbEndpoint, LocalityLbEndpoints};
use plimsoll_core::model::load_report::{
    ClusterHostStats, ClusterStats, MetricStats, UpstreamEndpointStats, UpstreamLocalityStats,
};
use plimsoll_core::model::locality::Locality;
use plimsoll_core::planner::capacity::Frozen;
use plimsoll_xds::ads::CLUSTER;
use plimsoll_xds::node::NodeInfo;
use plimsoll_xds::wire::{decode_assignment, decode_cluster};

use super::driver::{Driver, config, fleet, stats, try_config_of};
use crate::delivery::NodeClass;
use crate::state::ViewKey;

const LEARNED: &str = "capacity: {learned: {}}";
const TYPICAL: f64 = 20.0;

struct Run {
    driver: Driver,
    nodes: [NodeInfo; 3],
    keys: [ViewKey; 3],
}

impl Run {
    fn start(service: &str, class: NodeClass) -> Self {
        let mut driver = Driver::new(service);
        let nodes = fleet(class);
        let keys = nodes.each_ref().map(|node| driver.open(node));
        Self {
            driver,
            nodes,
            keys,
        }
    }

    /// Every node sends `per_host` requests per second to each host, and reports so.
    fn traffic(&mut self, per_host: u64, seconds: u64) {
        for _ in 0..seconds {
            self.driver.advance(1000);
            for node in self.nodes.clone() {
                self.report(&node, per_host);
            }
        }
    }

    fn report(&mut self, node: &NodeInfo, per_host: u64) {
        let entries = self.service_entries();
        let locality = |(zone, hosts): &(Locality, Vec<SocketAddr>)| {
            let requests = per_host * hosts.len() as u64;
            UpstreamLocalityStats {
                locality: zone.clone(),
                total_issued_requests: requests,
                total_successful_requests: requests,
                ..Default::default()
            }
        };
        let report = ClusterStats {
            upstream_locality_stats: entries.iter().map(locality).collect(),
            ..stats("orders", 0)
        };
        let interval = report.load_report_interval;
        self.driver.report_stats(node, report);
        let told = entries.iter().flat_map(|(_, hosts)| {
            let last = hosts.len() - 1;
            hosts.iter().enumerate().map(move |(index, host)| {
                let relative = match index {
                    0 => 0.5,
                    _ if index == last => 2.0,
                    _ => 1.0,
                };
                endpoint(*host, per_host, relative)
            })
        });
        let told = ClusterHostStats {
            cluster_name: "orders".into(),
            load_report_interval: interval,
            endpoints: told.collect(),
            localities: Vec::new(),
        };
        self.driver.state.handle_host_stats(node, &[told]);
    }

    fn service_entries(&self) -> Vec<(Locality, Vec<SocketAddr>)> {
        let service = &self.driver.state.config().services["orders"];
        let entries = service.assignment.endpoints().iter();
        let hosts = |entry: &LocalityLbEndpoints| {
            entry.lb_endpoints.iter().map(|host| host.address).collect()
        };
        entries
            .map(|entry| (entry.locality.clone(), hosts(entry)))
            .collect()
    }

    /// Weights of the endpoints of a zone as nodes with the first key get them.
    fn weights(&self, zone: &str) -> Vec<u32> {
        let sent = self.driver.assignment(&self.keys[0], "orders").unwrap();
        let sent = decode_assignment(&sent.body).unwrap();
        let mut entries = sent.endpoints().iter();
        let entry = entries.find(|entry| entry.locality.zone() == zone).unwrap();
        let hosts = entry.lb_endpoints.iter();
        hosts
            .map(|host| host.load_balancing_weight.unwrap_or(0))
            .collect()
    }
}

/// What one of three nodes says of a host, to which each sends `requests` per second.
fn endpoint(address: SocketAddr, requests: u64, relative: f64) -> UpstreamEndpointStats {
    #[expect(clippy::cast_precision_loss, reason = "small numbers")]
    let utilization = 3.0 * requests as f64 / (TYPICAL * relative);
    #[expect(clippy::cast_precision_loss, reason = "small numbers")]
    let metric = MetricStats {
        num_requests_finished_with_metric: requests,
        total_metric_value: utilization * requests as f64,
    };
    UpstreamEndpointStats {
        address,
        total_successful_requests: requests,
        total_requests_in_progress: 0,
        total_error_requests: 0,
        total_issued_requests: requests,
        load_metric_stats: BTreeMap::from([("cpu_utilization".into(), metric)]),
    }
}

#[test]
fn data_planes_are_asked_for_what_is_learned_from() {
    for class in NodeClass::ALL {
        let run = Run::start(LEARNED, class);
        assert!(run.driver.state.lrs_settings().report_endpoint_granularity);
        let clusters = run.driver.view(&run.keys[0]).get(CLUSTER).unwrap();
        let cluster = decode_cluster(&clusters.get("orders").unwrap().body).unwrap();
        let names = ["application_utilization", "cpu_utilization"];
        assert_eq!(cluster.lrs_report_endpoint_metrics, names, "{class:?}");
    }
    let run = Run::start("mode: ENFORCE", NodeClass::Envoy);
    assert!(!run.driver.state.lrs_settings().report_endpoint_granularity);
}

#[test]
fn weights_are_learned_and_sent_to_every_class() {
    for class in NodeClass::ALL {
        let mut run = Run::start(LEARNED, class);
        run.traffic(2, 20);
        assert_eq!(run.weights("a"), [0; 3], "thin: as written");
        run.traffic(2, 100);
        assert_eq!(run.weights("a"), [26, 50, 98], "{class:?}");
        assert_eq!(run.weights("b"), [26, 50, 50, 50, 98], "{class:?}");
        assert_eq!(run.weights("c"), [26, 98], "{class:?}");
        // What is settled is not sent again.
        run.driver.publications(&run.keys[0]);
        run.traffic(2, 100);
        let service = &run.driver.state.config().services["orders"];
        let unit = service.goal.capacity.unwrap().rate();
        assert!((unit - TYPICAL / 50.0).abs() < 0.01, "{unit}");
    }
}

/// SHADOW plans with what was learned, and sends what is written; a ramp is in between.
#[test]
fn mode_and_ramp_are_as_for_everything() {
    let weights = |more: &str| {
        let mut run = Run::start(&format!("{LEARNED}, {more}"), NodeClass::Envoy);
        run.traffic(2, 120);
        let planned = &run.driver.state.config().services["orders"].assignment;
        let hosts = &planned.endpoints()[0].lb_endpoints;
        let planned: Vec<u32> = hosts.iter().map(LbEndpoint::weight).collect();
        assert_eq!(planned, [26, 50, 98], "{more}");
        run.weights("a")
    };
    assert_eq!(weights("mode: SHADOW"), [0; 3]);
    assert_eq!(weights("mode: 'OFF'"), [0; 3]);
    assert_eq!(weights("ramp: 50"), [36, 50, 70]);
}

#[test]
fn a_waterfall_levels_until_capacity_is_known() {
    let waterfall = format!("{LEARNED}, objective: {{waterfall: {{target_utilization: 0.8}}}}");
    let mut run = Run::start(&waterfall, NodeClass::Envoy);
    run.traffic(2, 5);
    let plan = |run: &Run| run.driver.state.own_plan("orders").unwrap().clone();
    let first = plan(&run);
    let zone = first.zone_plan().unwrap().zones()[0].clone();
    let sentence = first.zone_plan().unwrap().sentence(&zone.locality).unwrap();
    assert!(
        sentence.contains("not known yet") || sentence.contains("share by its hosts"),
        "{sentence}"
    );
    run.traffic(2, 120);
    let known = plan(&run);
    let zones = known.zone_plan().unwrap().zones();
    // Hosts of 0.5, 1 and 2; four of 1, and so on.
    let capacity: Vec<f64> = zones.iter().map(|zone| zone.capacity.round()).collect();
    assert_eq!(capacity, [70.0, 110.0, 50.0]);
}

/// A setting that is taken back, and new hosts.
#[test]
fn what_was_learned_goes_with_the_setting() {
    let mut run = Run::start(LEARNED, NodeClass::Envoy);
    run.traffic(2, 120);
    assert_eq!(run.weights("a"), [26, 50, 98]);
    run.driver.reload(config("mode: ENFORCE"));
    assert_eq!(run.weights("a"), [0; 3]);
    assert!(run.driver.state.capacity_of("orders").is_none());
    run.driver.reload(config(LEARNED));
    assert_eq!(run.weights("a"), [0; 3], "starts over");
}

#[test]
fn reports_that_stop_change_nothing() {
    let mut run = Run::start(LEARNED, NodeClass::Envoy);
    run.traffic(2, 120);
    for _ in 0..60 {
        run.driver.advance(1000);
        for node in run.nodes.clone().iter().take(2) {
            run.report(node, 2);
        }
    }
    assert_eq!(run.weights("a"), [26, 50, 98]);
    let learner = run.driver.state.capacity_of("orders").unwrap();
    assert_eq!(learner.estimator().frozen(), Some(Frozen::SilentNodes));
}

#[test]
fn consistent_hashing_keeps_its_keys() {
    for cluster in ["lb_policy: RING_HASH", "lb_policy: MAGLEV"] {
        let error = try_config_of(cluster, LEARNED).unwrap_err();
        assert!(
            error.contains("capacity.learned: would move keys"),
            "{error}"
        );
    }
}
