//! Tests of load reports: the sum of all reports is exact, whatever hosts are added and removed.

use super::*;
use crate::host::RequestOutcome::{self, Error, Success};
use crate::model::assignment::{
    AssignmentParts, ClusterLoadAssignment, DropOverloadParts, LbEndpoint, LocalityParts,
};
use crate::model::cluster::{ClusterConfig, ClusterConfigParts};
use crate::model::orca::OrcaLoadReport;
use crate::picker::{PickArgs, PickResult, Picker};
use crate::publish;
use crate::rng::ScriptedRng;

fn at(seconds: u64) -> Instant {
    Instant::from_secs(seconds)
}

fn config(metrics: &[&str]) -> Arc<ClusterConfig> {
    let parts = ClusterConfigParts {
        name: "orders".into(),
        lrs_report_endpoint_metrics: metrics.iter().map(ToString::to_string).collect(),
        ..Default::default()
    };
    Arc::new(ClusterConfig::try_new(parts).unwrap())
}

fn address(host: u8) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, host], 80))
}

fn entry(zone: &str, priority: u32, hosts: &[u8]) -> LocalityParts {
    LocalityParts {
        locality: Locality::zone_only(zone),
        priority,
        lb_endpoints: hosts.iter().map(|&n| LbEndpoint::new(address(n))).collect(),
        ..Default::default()
    }
}

fn assign(balancer: &mut Balancer, endpoints: Vec<LocalityParts>) {
    assign_parts(
        balancer,
        AssignmentParts {
            endpoints,
            ..Default::default()
        },
    );
}

fn assign_parts(balancer: &mut Balancer, parts: AssignmentParts) {
    balancer.handle_assignment(ClusterLoadAssignment::try_new(parts).unwrap(), at(0));
}

fn balancer(endpoints: Vec<LocalityParts>) -> Balancer {
    let mut balancer = Balancer::new(config(&[]), Locality::zone_only("a"), at(0));
    assign(&mut balancer, endpoints);
    balancer
}

fn host(balancer: &Balancer, number: u8) -> Arc<Host> {
    let mut members = balancer.members.iter();
    let found = members.find(|member| member.host.address() == address(number));
    Arc::clone(&found.unwrap().host)
}

fn request(balancer: &Balancer, number: u8, outcome: RequestOutcome) {
    host(balancer, number).begin_request().finish(outcome);
}

/// Zone, priority, and numbers of requests issued, succeeded, failed and in progress.
type Row = (String, u32, [u64; 4]);

fn rows(stats: &ClusterLoadStats) -> Vec<Row> {
    let row = |locality: &LocalityLoadStats| {
        let stats = &locality.stats;
        let counts = [
            stats.total_issued_requests,
            stats.total_successful_requests,
            stats.total_error_requests,
            stats.total_requests_in_progress,
        ];
        (stats.locality.to_string(), stats.priority, counts)
    };
    stats.localities.iter().map(row).collect()
}

fn row(zone: &str, priority: u32, counts: [u64; 4]) -> Row {
    (zone.into(), priority, counts)
}

#[test]
fn a_report_has_the_counts_since_the_last_one() {
    let mut balancer = balancer(vec![entry("a", 0, &[1, 2]), entry("b", 0, &[3])]);
    request(&balancer, 1, Success);
    request(&balancer, 2, Error);
    let slow = host(&balancer, 3).begin_request();
    let first = balancer.drain_load_stats(false, at(10));
    let expected = [row("a", 0, [2, 1, 1, 0]), row("b", 0, [1, 0, 0, 1])];
    assert_eq!(rows(&first), expected);
    assert_eq!(first.load_report_interval.as_secs(), 10);
    assert_eq!(&*first.cluster_name, "orders");
    slow.finish(Success);
    let second = balancer.drain_load_stats(false, at(15));
    assert_eq!(rows(&second), [row("b", 0, [0, 1, 0, 0])]);
    assert_eq!(second.load_report_interval.as_secs(), 5);
    let third = balancer.drain_load_stats(false, at(16));
    assert!(third.localities.is_empty(), "nothing happened: {third:?}");
}

#[test]
fn counts_of_removed_hosts_are_reported() {
    let mut balancer = balancer(vec![entry("a", 0, &[1, 2])]);
    request(&balancer, 1, Success);
    let slow = host(&balancer, 1).begin_request();
    assign(&mut balancer, vec![entry("a", 0, &[2])]);
    let first = balancer.drain_load_stats(false, at(1));
    assert_eq!(rows(&first), [row("a", 0, [2, 1, 0, 1])]);
    let still = balancer.drain_load_stats(false, at(2));
    assert_eq!(rows(&still), [row("a", 0, [0, 0, 0, 1])], "in progress");
    slow.finish(Error);
    let last = balancer.drain_load_stats(false, at(3));
    assert_eq!(rows(&last), [row("a", 0, [0, 0, 1, 0])]);
}

#[test]
fn removed_hosts_are_released_without_any_report() {
    let mut balancer = balancer(vec![entry("a", 0, &[1])]);
    for round in 0..100_u8 {
        request(&balancer, round + 1, Success);
        assign(&mut balancer, vec![entry("a", 0, &[round + 2])]);
        balancer.poll_snapshot();
    }
    assert!(balancer.members.ledger.retired.len() <= 2);
    let all = balancer.drain_load_stats(true, at(1));
    assert_eq!(rows(&all), [row("a", 0, [100, 100, 0, 0])]);
}

#[test]
fn counts_stay_with_the_priority_that_a_host_left() {
    let mut balancer = balancer(vec![entry("a", 0, &[1, 2])]);
    request(&balancer, 1, Success);
    assign(
        &mut balancer,
        vec![entry("a", 0, &[2]), entry("a", 1, &[1])],
    );
    request(&balancer, 1, Error);
    let stats = balancer.drain_load_stats(false, at(1));
    let expected = [row("a", 0, [1, 1, 0, 0]), row("a", 1, [1, 0, 1, 0])];
    assert_eq!(rows(&stats), expected);
}

#[test]
fn a_host_that_moves_to_another_locality_is_reported_in_both() {
    let mut balancer = balancer(vec![entry("a", 0, &[1])]);
    request(&balancer, 1, Success);
    assign(&mut balancer, vec![entry("b", 0, &[1])]);
    request(&balancer, 1, Success);
    let stats = balancer.drain_load_stats(false, at(1));
    let expected = [row("a", 0, [1, 1, 0, 0]), row("b", 0, [1, 1, 0, 0])];
    assert_eq!(rows(&stats), expected);
}

#[test]
fn endpoint_counts_add_up_to_their_locality() {
    let mut balancer = balancer(vec![entry("a", 0, &[1, 2, 3])]);
    request(&balancer, 1, Success);
    request(&balancer, 2, Error);
    request(&balancer, 2, Success);
    let stats = balancer.drain_load_stats(true, at(1));
    let endpoints = &stats.localities[0].endpoints;
    let counts: Vec<_> = endpoints
        .iter()
        .map(|endpoint| {
            let ended = endpoint.total_successful_requests + endpoint.total_error_requests;
            (endpoint.address, endpoint.total_issued_requests, ended)
        })
        .collect();
    assert_eq!(counts, [(address(1), 1, 1), (address(2), 2, 2)]);
    request(&balancer, 3, Success);
    assign(&mut balancer, vec![entry("a", 0, &[1])]);
    let gone = balancer.drain_load_stats(true, at(2));
    assert_eq!(gone.localities[0].endpoints[0].address, address(3));
    request(&balancer, 1, Success);
    let sums = balancer.drain_load_stats(false, at(3));
    assert!(sums.localities[0].endpoints.is_empty(), "not requested");
}

#[test]
fn drops_without_a_category_are_reported_in_the_total_only() {
    let mut balancer = Balancer::new(config(&[]), Locality::default(), at(0));
    let (mut publisher, reader) = publish::channel(balancer.initial_snapshot(at(0)));
    let dropping = |category: &str| AssignmentParts {
        endpoints: vec![entry("a", 0, &[1])],
        drop_overloads: vec![DropOverloadParts {
            category: category.into(),
            numerator: 50,
            denominator: 100,
        }],
        ..Default::default()
    };
    assign_parts(&mut balancer, dropping("throttle"));
    publisher.publish(balancer.poll_snapshot().unwrap());
    // The first draw seeds the cursors; a request that draws 0 is dropped.
    let mut picker = Picker::new(reader, ScriptedRng::default());
    let mut drop_one = || match picker.pick(PickArgs::default()) {
        PickResult::Drop { category } => category.to_string(),
        other => panic!("not dropped: {other:?}"),
    };
    assert_eq!([drop_one(), drop_one()], ["throttle", "throttle"]);
    balancer.cluster_load().record_drop();
    let stats = balancer.drain_load_stats(false, at(1));
    assert_eq!(stats.total_dropped_requests, 3);
    assert_eq!(stats.dropped_requests, [(Arc::from("throttle"), 2)].into());
    // The assignment has new `drop_overloads`, but the worker has not seen the new snapshot yet.
    assign_parts(&mut balancer, dropping("shed"));
    assert_eq!(drop_one(), "throttle");
    publisher.publish(balancer.poll_snapshot().unwrap());
    assert_eq!(drop_one(), "shed");
    let stats = balancer.drain_load_stats(false, at(2));
    assert_eq!(stats.total_dropped_requests, 2);
    let expected = [(Arc::from("shed"), 1), (Arc::from("throttle"), 1)].into();
    assert_eq!(stats.dropped_requests, expected);
    let nothing = balancer.drain_load_stats(false, at(3));
    assert_eq!(
        (
            nothing.total_dropped_requests,
            nothing.dropped_requests.len()
        ),
        (0, 0)
    );
}

#[test]
fn response_metrics_are_summed_by_name_over_hosts() {
    let metrics = config(&["cpu_utilization", "named_metrics.*"]);
    let mut balancer = balancer(vec![entry("a", 0, &[1, 2])]);
    let report = OrcaLoadReport {
        cpu_utilization: 0.25,
        named_metrics: [("queue", 3.0)].into_iter().collect(),
        ..Default::default()
    };
    let observe = |balancer: &Balancer, number| {
        host(balancer, number).observe_response_orca(&report, &metrics, at(1))
    };
    assert!(!observe(&balancer, 1), "no metrics are configured");
    balancer.handle_config(Arc::clone(&metrics), at(1));
    assert!(observe(&balancer, 1));
    assert!(observe(&balancer, 2));
    host(&balancer, 1).observe_orca(&report, &metrics, at(1));
    assign(&mut balancer, vec![entry("a", 0, &[2, 3])]);
    assert!(observe(&balancer, 3), "hosts added later sum metrics");
    let stats = balancer.drain_load_stats(true, at(2));
    let sums = &stats.localities[0].load_metric_stats;
    let sum = |count, total| MetricStats {
        num_requests_finished_with_metric: count,
        total_metric_value: total,
    };
    assert_eq!(
        sums["cpu_utilization"],
        sum(3, 0.75),
        "out-of-band counts not"
    );
    assert_eq!(sums["named_metrics.queue"], sum(3, 9.0));
    assert_eq!(stats.localities[0].endpoints.len(), 3);
    balancer.handle_config(config(&[]), at(3));
    observe(&balancer, 2);
    assert!(
        balancer
            .drain_load_stats(false, at(3))
            .localities
            .is_empty()
    );
}

#[test]
fn a_nan_metric_spoils_only_one_report() {
    let metrics = config(&["cpu_utilization"]);
    let mut balancer = balancer(vec![entry("a", 0, &[1])]);
    balancer.handle_config(Arc::clone(&metrics), at(0));
    let total = |balancer: &mut Balancer, cpu_utilization| {
        let report = OrcaLoadReport {
            cpu_utilization,
            ..Default::default()
        };
        host(balancer, 1).observe_response_orca(&report, &metrics, at(1));
        let stats = balancer.drain_load_stats(false, at(1));
        stats.localities[0].load_metric_stats["cpu_utilization"].total_metric_value
    };
    assert!(total(&mut balancer, f64::NAN).is_nan());
    assert_eq!(total(&mut balancer, 0.5), 0.5);
}

#[test]
fn reports_begin_when_they_are_first_requested() {
    let metrics = config(&["cpu_utilization"]);
    let mut balancer = balancer(vec![entry("a", 0, &[1, 2]), entry("b", 0, &[3])]);
    balancer.handle_config(Arc::clone(&metrics), at(0));
    let report = OrcaLoadReport {
        cpu_utilization: 0.5,
        ..Default::default()
    };
    request(&balancer, 1, Success);
    request(&balancer, 3, Error);
    host(&balancer, 1).observe_response_orca(&report, &metrics, at(1));
    balancer.cluster_load().record_drop();
    let open = host(&balancer, 2).begin_request();
    let gone = host(&balancer, 3).begin_request();
    assign(&mut balancer, vec![entry("a", 0, &[1, 2])]);
    balancer.start_load_report(at(3600));
    open.finish(Success);
    gone.finish(Error);
    let stats = balancer.drain_load_stats(false, at(3610));
    assert_eq!(stats.load_report_interval.as_secs(), 10);
    assert_eq!(stats.total_dropped_requests, 0);
    assert_eq!(
        rows(&stats),
        [row("a", 0, [0, 1, 0, 0]), row("b", 0, [0, 0, 1, 0])],
        "earlier requests that end now"
    );
    let cpu = stats.localities[0].load_metric_stats["cpu_utilization"];
    assert_eq!(cpu.num_requests_finished_with_metric, 1, "metrics stay");
}

#[test]
fn endpoint_metrics_are_kept_when_reports_begin() {
    let metrics = config(&["cpu_utilization"]);
    let mut balancer = balancer(vec![entry("a", 0, &[1])]);
    balancer.handle_config(Arc::clone(&metrics), at(0));
    balancer.drain_load_stats(true, at(1));
    let report = OrcaLoadReport {
        cpu_utilization: 0.5,
        ..Default::default()
    };
    request(&balancer, 1, Success);
    host(&balancer, 1).observe_response_orca(&report, &metrics, at(1));
    balancer.start_load_report(at(2));
    let stats = balancer.drain_load_stats(true, at(3));
    let [endpoint] = &stats.localities[0].endpoints[..] else {
        panic!("{stats:?}");
    };
    assert_eq!(endpoint.total_issued_requests, 0);
    assert_eq!(endpoint.load_metric_stats.len(), 1);
}
