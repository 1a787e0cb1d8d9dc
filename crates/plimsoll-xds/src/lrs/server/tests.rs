//! Exchanges on one server-side load reporting stream.

use plimsoll_core::model::load_report::Node;
use plimsoll_core::model::locality::Locality;
use plimsoll_core::units::BasisPoints;

use super::*;
use crate::lrs::SUPPORTS_SEND_ALL_CLUSTERS;
use crate::node::PLIMSOLL_FEATURE;

fn node(id: &str, features: &[&str]) -> NodeInfo {
    NodeInfo {
        node: Node {
            id: id.into(),
            cluster: "fleet".into(),
            locality: Locality::zone_only("a"),
        },
        user_agent_name: String::new(),
        user_agent_version: String::new(),
        client_features: features.iter().map(|&name| name.to_owned()).collect(),
    }
}

fn settings(seconds: u64, clusters: &[&str]) -> Arc<LrsSettings> {
    Arc::new(LrsSettings {
        interval: Duration::from_secs(seconds),
        send_all_clusters: true,
        clusters: clusters.iter().map(|&name| name.into()).collect(),
        report_endpoint_granularity: false,
    })
}

fn traffic(epoch: u64, bp: u64) -> Arc<LrsTraffic> {
    let fraction = BasisPoints::new(bp, "").unwrap();
    Arc::new(LrsTraffic {
        epoch,
        clusters: vec![ClusterTraffic {
            cluster_name: "orders".into(),
            fractions: vec![(Locality::zone_only("a"), fraction)],
            observation_time: Some(Duration::from_secs(epoch)),
        }],
    })
}

fn request(node: Option<NodeInfo>, issued: &[&str]) -> LoadStatsRequest {
    let stats = |&name: &&str| ClusterStats {
        cluster_name: name.into(),
        upstream_locality_stats: Vec::new(),
        total_dropped_requests: 0,
        load_report_interval: Duration::from_secs(1),
    };
    LoadStatsRequest {
        node,
        cluster_stats: issued.iter().map(stats).collect(),
        ..Default::default()
    }
}

/// A time after the intervals of all tests.
fn later(reports: u64) -> Instant {
    Instant::from_secs(1000 * reports)
}

fn opened(features: &[&str]) -> ServerStream {
    let mut stream = ServerStream::new(settings(10, &["orders"]));
    let hello = request(Some(node("n1", features)), &[]);
    assert!(stream.handle_request(hello, later(0)).unwrap().is_new_node);
    stream
}

#[test]
fn the_first_message_must_carry_the_node() {
    let mut stream = ServerStream::new(settings(10, &[]));
    assert_eq!(
        stream.handle_request(request(None, &["orders"]), later(1)),
        Err(MissingNode)
    );
    assert_eq!(stream.poll_transmit(), None);
}

#[test]
fn the_node_of_the_first_message_is_remembered() {
    let mut stream = opened(&[]);
    let report = stream
        .handle_request(request(None, &["orders"]), later(1))
        .unwrap();
    assert_eq!(&*report.node.node.id, "n1");
    assert!(!report.is_new_node);
    assert_eq!(report.cluster_stats.len(), 1);
}

#[test]
fn a_repeated_node_changes_nothing_and_another_moves_the_stream() {
    let mut stream = opened(&[]);
    let first = Arc::clone(stream.node().unwrap());
    let again = stream
        .handle_request(request(Some(node("n1", &[])), &[]), later(0))
        .unwrap();
    assert!(Arc::ptr_eq(&first, &again.node) && !again.is_new_node);
    let moved = stream
        .handle_request(request(Some(node("n2", &[])), &[]), later(1))
        .unwrap();
    assert!(moved.is_new_node);
    assert_eq!(&*moved.node.node.id, "n2");
}

#[test]
fn a_cluster_omitted_from_a_report_is_idle() {
    let mut stream = opened(&[]);
    stream.set_settings(settings(10, &["orders", "carts", "idle"]));
    let names = |report: Report| -> Vec<String> {
        let stats = report.cluster_stats.iter();
        stats.map(|stats| stats.cluster_name.to_string()).collect()
    };
    let both = stream.handle_request(request(None, &["orders", "carts", "invented"]), later(1));
    assert_eq!(names(both.unwrap()), ["orders", "carts", "invented"]);
    let mut left_out = request(None, &["carts"]);
    left_out.cluster_stats[0].total_dropped_requests = 7;
    let report = stream.handle_request(left_out, later(2)).unwrap();
    let [carts, orders] = &report.cluster_stats[..] else {
        panic!("{report:?}");
    };
    assert_eq!(
        (&*carts.cluster_name, carts.total_dropped_requests),
        ("carts", 7)
    );
    assert_eq!(&*orders.cluster_name, "orders");
    assert_eq!(orders.demand_per_second(), Some(0.0));
    // The requested interval: 10 s.
    assert_eq!(orders.load_report_interval, Duration::from_secs(10));
    let nothing = stream.handle_request(request(None, &[]), later(3)).unwrap();
    assert_eq!(names(nothing), ["carts", "orders"]);
    let other = request(Some(node("n2", &[])), &[]);
    assert!(names(stream.handle_request(other, later(4)).unwrap()).is_empty());
}

#[test]
fn frequent_reports_do_not_repeat_idle_clusters() {
    let mut stream = opened(&[]);
    let mut reported = |millis, clusters: &[&str]| {
        let now = later(1).saturating_add(Duration::from_millis(millis));
        let report = stream.handle_request(request(None, clusters), now);
        report.unwrap().cluster_stats.len()
    };
    assert_eq!(reported(0, &["orders"]), 1);
    // The interval is 10 s.
    let counts = [1, 4_999, 5_000, 10_000].map(|millis| reported(millis, &[]));
    assert_eq!(counts, [1, 0, 0, 1]);
}

#[test]
fn only_clusters_of_the_settings_are_remembered() {
    let mut stream = opened(&[]);
    let clusters: Vec<_> = (0..1000).map(|index| format!("c{index}")).collect();
    let clusters: Vec<_> = clusters.iter().map(String::as_str).collect();
    let some = settings(10, &["z", "c1", "a"]);
    stream.set_settings(Arc::clone(&some));
    let all = request(None, &clusters);
    assert!(stream.handle_request(all, later(1)).is_ok());
    let reported = stream.reported.iter().collect::<Vec<_>>();
    assert_eq!(reported.len(), 1);
    assert!(Arc::ptr_eq(reported[0], &some.clusters[1]), "shared");
    stream.set_settings(settings(10, &["a", "z"]));
    assert!(stream.reported.is_empty());
}

#[test]
fn settings_are_sent_only_when_they_change() {
    let mut stream = opened(&[SUPPORTS_SEND_ALL_CLUSTERS]);
    let first = stream.poll_transmit().unwrap();
    assert!(first.send_all_clusters && first.clusters.is_empty());
    assert_eq!(first.load_reporting_interval, Duration::from_secs(10));
    assert_eq!(stream.poll_transmit(), None);
    stream.set_settings(settings(10, &["orders"]));
    assert_eq!(stream.poll_transmit(), None);
    stream.set_settings(settings(5, &["orders"]));
    let interval = stream.poll_transmit().unwrap().load_reporting_interval;
    assert_eq!(interval, Duration::from_secs(5));
}

#[test]
fn a_new_cluster_is_sent_only_to_clients_that_need_names() {
    let mut by_all = opened(&[SUPPORTS_SEND_ALL_CLUSTERS]);
    let mut by_name = opened(&[]);
    assert!(by_all.poll_transmit().is_some());
    let first = by_name.poll_transmit().unwrap();
    assert!(!first.send_all_clusters);
    assert_eq!(first.clusters, ["orders".into()]);
    for stream in [&mut by_all, &mut by_name] {
        stream.set_settings(settings(10, &["orders", "users"]));
    }
    assert_eq!(by_all.poll_transmit(), None);
    assert_eq!(by_name.poll_transmit().unwrap().clusters.len(), 2);
}

#[test]
fn traffic_is_never_sent_to_a_stock_client() {
    let mut stream = opened(&[SUPPORTS_SEND_ALL_CLUSTERS]);
    stream.set_traffic(traffic(0, 5000));
    let first = stream.poll_transmit().unwrap();
    assert!(first.observed_traffic.is_empty());
    stream.set_traffic(traffic(1, 6000));
    assert_eq!(stream.poll_transmit(), None);
    stream.set_settings(settings(1, &[]));
    assert!(stream.poll_transmit().unwrap().observed_traffic.is_empty());
}

#[test]
fn traffic_reaches_plimsoll_on_change_and_on_heartbeat() {
    let mut stream = opened(&[PLIMSOLL_FEATURE, SUPPORTS_SEND_ALL_CLUSTERS]);
    stream.set_traffic(traffic(0, 5000));
    let first = stream.poll_transmit().unwrap();
    assert_eq!(first.observed_traffic, traffic(0, 5000).clusters);
    stream.set_traffic(traffic(0, 5000));
    assert_eq!(stream.poll_transmit(), None);
    for next in [traffic(0, 6000), traffic(1, 6000)] {
        stream.set_traffic(Arc::clone(&next));
        let response = stream.poll_transmit().unwrap();
        assert_eq!(response.observed_traffic, next.clusters);
        // A response without the settings would mean "report nothing".
        assert!(response.send_all_clusters);
        assert_eq!(response.load_reporting_interval, Duration::from_secs(10));
    }
}

#[test]
fn an_interval_of_zero_is_never_sent() {
    let mut stream = ServerStream::new(settings(0, &[]));
    stream
        .handle_request(request(Some(node("n1", &[])), &[]), later(0))
        .unwrap();
    let interval = stream.poll_transmit().unwrap().load_reporting_interval;
    assert_eq!(interval, SHORTEST_INTERVAL);
}

#[test]
fn nothing_is_sent_before_the_first_request() {
    let mut stream = ServerStream::new(settings(10, &[]));
    stream.set_traffic(traffic(1, 1));
    stream.set_settings(settings(5, &[]));
    assert_eq!(stream.poll_transmit(), None);
}
