//! Clusters requested early, late, again, and after their removal.

use plimsoll_core::host::{Host, RequestOutcome};
use plimsoll_core::model::assignment::{
    AssignmentParts, ClusterLoadAssignment, LbEndpoint, LocalityParts,
};
use plimsoll_core::model::cluster::{ClusterConfig, ClusterConfigParts};
use plimsoll_core::model::locality::Locality;

use super::*;

fn at(seconds: u64) -> Instant {
    Instant::from_secs(seconds)
}

/// Cluster with one host, created at `now`.
fn cluster(name: &str, now: Instant) -> Balancer {
    let config = ClusterConfig::try_new(ClusterConfigParts {
        name: name.to_owned(),
        ..Default::default()
    });
    let mut balancer = Balancer::new(Arc::new(config.unwrap()), Locality::default(), now);
    let assignment = ClusterLoadAssignment::try_new(AssignmentParts {
        cluster_name: name.to_owned(),
        endpoints: vec![LocalityParts {
            lb_endpoints: vec![LbEndpoint::new(([10, 0, 0, 1], 80).into())],
            ..Default::default()
        }],
        ..Default::default()
    });
    balancer.handle_assignment(assignment.unwrap(), now);
    balancer
}

fn host(balancer: &Balancer) -> Arc<Host> {
    let (host, ..) = balancer.hosts().next().expect("one host");
    Arc::clone(host)
}

fn send(balancer: &mut Balancer, requests: u64) {
    let host = host(balancer);
    for _ in 0..requests {
        host.begin_request().finish(RequestOutcome::Success);
    }
}

fn named(names: &[&str]) -> ClusterSelection {
    ClusterSelection::Named(names.iter().map(|&name| name.into()).collect())
}

/// Cluster, requests issued, seconds covered.
type Line = (String, u64, u64);

fn drain(
    reported: &mut ReportedClusters,
    selection: &ClusterSelection,
    clusters: &mut [Balancer],
    now: Instant,
) -> Vec<Line> {
    let stats = reported.drain(selection, clusters, false, now);
    let line = |load: &ClusterLoadStats| {
        let issued = load
            .localities
            .iter()
            .map(|locality| locality.stats.total_issued_requests);
        let seconds = load.load_report_interval.as_secs();
        (load.cluster_name.to_string(), issued.sum(), seconds)
    };
    stats.iter().map(line).collect()
}

fn line(cluster: &str, issued: u64, seconds: u64) -> Line {
    (cluster.to_owned(), issued, seconds)
}

#[test]
fn a_cluster_counts_from_its_first_request() {
    let mut reported = ReportedClusters::default();
    let mut clusters = [cluster("orders", at(0)), cluster("carts", at(0))];
    clusters.iter_mut().for_each(|cluster| send(cluster, 5));
    let orders = named(&["orders"]);
    reported.select(orders.clone(), &mut clusters, at(100));
    clusters.iter_mut().for_each(|cluster| send(cluster, 1));
    let lines = drain(&mut reported, &orders, &mut clusters, at(110));
    assert_eq!(lines, [line("orders", 1, 10)]);
    // Another cluster is requested: the counters of the first are kept.
    send(&mut clusters[0], 2);
    reported.select(ClusterSelection::All, &mut clusters, at(115));
    clusters.iter_mut().for_each(|cluster| send(cluster, 1));
    let lines = drain(
        &mut reported,
        &ClusterSelection::All,
        &mut clusters,
        at(120),
    );
    assert_eq!(lines, [line("orders", 3, 10), line("carts", 1, 5)]);
}

#[test]
fn a_cluster_requested_again_starts_over() {
    let mut reported = ReportedClusters::default();
    let mut clusters = [cluster("orders", at(0))];
    for names in [&["orders"][..], &[], &["orders"]] {
        send(&mut clusters[0], 7);
        reported.select(named(names), &mut clusters, at(50));
    }
    let lines = drain(&mut reported, &named(&["orders"]), &mut clusters, at(60));
    assert_eq!(lines, [line("orders", 0, 10)]);
}

#[test]
fn a_later_cluster_is_reported_from_its_creation() {
    let mut reported = ReportedClusters::default();
    reported.select(ClusterSelection::All, [], at(0));
    let mut clusters = [cluster("orders", at(4))];
    send(&mut clusters[0], 5);
    let lines = drain(&mut reported, &ClusterSelection::All, &mut clusters, at(10));
    assert_eq!(lines, [line("orders", 5, 6)]);
}

#[test]
fn a_removed_cluster_is_reported_until_its_last_request_has_ended() {
    let mut reported = ReportedClusters::default();
    let mut orders = cluster("orders", at(0));
    reported.select(ClusterSelection::All, [&mut orders], at(0));
    let request = host(&orders).begin_request();
    reported.retire(orders);
    let drain = |reported: &mut ReportedClusters, seconds| {
        drain(reported, &ClusterSelection::All, &mut [], at(seconds))
    };
    assert_eq!(drain(&mut reported, 10), [line("orders", 1, 10)]);
    assert_eq!(drain(&mut reported, 20), [line("orders", 0, 10)]);
    request.finish(RequestOutcome::Success);
    assert_eq!(drain(&mut reported, 30), [line("orders", 0, 10)]);
    assert_eq!(drain(&mut reported, 40), []);
}

#[test]
fn removed_clusters_are_bounded() {
    let mut reported = ReportedClusters::default();
    for number in 0..=MAX_RETIRED {
        reported.retire(cluster(&format!("c{number}"), at(0)));
    }
    let lines = drain(&mut reported, &ClusterSelection::All, &mut [], at(1));
    assert_eq!(lines.len(), MAX_RETIRED);
    assert_eq!(lines[0].0, "c1", "the oldest gave way");
}

#[test]
fn eds_names_are_sent_where_they_differ() {
    let stats = |name: &str| ClusterLoadStats {
        cluster_name: name.into(),
        ..Default::default()
    };
    let names = EdsNames::from([("orders".into(), "orders-eu".into())]);
    let sent = with_eds_names(vec![stats("orders"), stats("carts")], &names);
    let names = sent.iter().map(|message| &*message.cluster_service_name);
    assert_eq!(names.collect::<Vec<_>>(), ["orders-eu", ""]);
}
