//! Merging of load reports.

use std::time::Duration;

use plimsoll_core::model::load_report::UpstreamLocalityStats;
use plimsoll_core::model::locality::Locality;

use super::*;

fn locality(zone: &str, issued: u64, in_progress: u64) -> LocalityLoadStats {
    let metric = MetricStats {
        num_requests_finished_with_metric: issued,
        total_metric_value: 0.5,
    };
    LocalityLoadStats {
        stats: UpstreamLocalityStats {
            locality: Locality::zone_only(zone),
            priority: 0,
            total_issued_requests: issued,
            total_successful_requests: issued,
            total_error_requests: 1,
            total_requests_in_progress: in_progress,
            total_unissued_requests: None,
        },
        load_metric_stats: [("named_metrics.foo".into(), metric)].into(),
        endpoints: vec![UpstreamEndpointStats {
            address: ([127, 0, 0, 1], 80).into(),
            total_successful_requests: issued,
            total_requests_in_progress: in_progress,
            total_error_requests: 0,
            total_issued_requests: issued,
            load_metric_stats: BTreeMap::new(),
        }],
    }
}

fn cluster(name: &str, zones: Vec<LocalityLoadStats>) -> ClusterLoadStats {
    ClusterLoadStats {
        cluster_name: name.into(),
        localities: zones,
        total_dropped_requests: 3,
        dropped_requests: [("shed".into(), 2)].into(),
        load_report_interval: Duration::from_secs(10),
        ..Default::default()
    }
}

#[test]
fn counts_and_intervals_add_up_and_gauges_do_not() {
    let mut sum = vec![cluster(
        "orders",
        vec![locality("a", 10, 4), locality("b", 1, 7)],
    )];
    merge(
        &mut sum,
        vec![cluster(
            "orders",
            vec![locality("a", 5, 2), locality("c", 9, 1)],
        )],
    );
    let [orders] = sum.as_slice() else {
        panic!("one cluster: {sum:?}");
    };
    assert_eq!(orders.load_report_interval, Duration::from_secs(20));
    assert_eq!(orders.total_dropped_requests, 6);
    assert_eq!(orders.dropped_requests["shed"], 4);
    let zones = &orders.localities;
    let counts = |index: usize| {
        let stats = &zones[index].stats;
        (
            stats.total_issued_requests,
            stats.total_requests_in_progress,
        )
    };
    assert_eq!((counts(0), counts(1), counts(2)), ((15, 2), (1, 0), (9, 1)));
    assert_eq!(zones[0].stats.total_error_requests, 2);
    let foo = zones[0].load_metric_stats["named_metrics.foo"];
    assert_eq!(foo.num_requests_finished_with_metric, 15);
    assert_eq!(foo.total_metric_value, 1.0);
    let [endpoint] = zones[0].endpoints.as_slice() else {
        panic!("one endpoint");
    };
    assert_eq!(endpoint.total_issued_requests, 15);
    assert_eq!(endpoint.total_requests_in_progress, 2);
}

#[test]
fn clusters_and_priorities_stay_apart() {
    let mut failover = locality("a", 5, 0);
    failover.stats.priority = 1;
    let mut sum = vec![cluster("orders", vec![locality("a", 1, 0)])];
    merge(
        &mut sum,
        vec![cluster("orders", vec![failover]), cluster("users", vec![])],
    );
    assert_eq!(sum.len(), 2);
    assert_eq!(sum[0].localities.len(), 2);
}

#[test]
fn sums_saturate() {
    let mut sum = vec![cluster("orders", vec![locality("a", u64::MAX, 0)])];
    merge(&mut sum, vec![cluster("orders", vec![locality("a", 5, 0)])]);
    let issued = sum[0].localities[0].stats.total_issued_requests;
    assert_eq!(issued, u64::MAX);
}
