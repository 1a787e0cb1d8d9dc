//! Exchanges of a data plane with load reporting servers.

use plimsoll_core::model::load_report::Node;
use plimsoll_core::model::locality::Locality;
use plimsoll_core::units::BasisPoints;

use super::*;

const SECOND: Duration = Duration::from_secs(1);

fn at(seconds: u64) -> Instant {
    Instant::from_secs(seconds)
}

fn client() -> Client {
    Client::new(NodeInfo {
        node: Node {
            id: "n1".into(),
            cluster: "fleet".into(),
            locality: Locality::zone_only("a"),
        },
        user_agent_name: "plimsoll".to_owned(),
        user_agent_version: String::new(),
        client_features: Vec::new(),
    })
}

fn response(seconds: u64) -> LoadStatsResponse {
    LoadStatsResponse {
        send_all_clusters: true,
        load_reporting_interval: Duration::from_secs(seconds),
        ..Default::default()
    }
}

fn stats(dropped: u64) -> Vec<ClusterLoadStats> {
    vec![ClusterLoadStats {
        cluster_name: "orders".into(),
        total_dropped_requests: dropped,
        load_report_interval: SECOND,
        ..Default::default()
    }]
}

fn is_collect(event: Option<ClientEvent>) -> bool {
    matches!(
        event,
        Some(ClientEvent::Collect {
            clusters: ClusterSelection::All,
            ..
        })
    )
}

/// Client that sent its node at 0 and got an interval of ten seconds.
fn reporting() -> Client {
    let mut client = client();
    client.handle_connected(at(0));
    assert!(client.poll_transmit().is_some());
    client.handle_response(response(10), at(0));
    assert_eq!(
        client.poll_event(),
        Some(ClientEvent::Select(ClusterSelection::All))
    );
    client
}

#[test]
fn the_first_message_has_the_node_and_later_ones_do_not() {
    let mut client = client();
    assert_eq!(client.poll_transmit(), None);
    client.handle_connected(at(0));
    let hello = client.poll_transmit().unwrap();
    let features = hello.node.unwrap().client_features;
    assert_eq!(features, [SUPPORTS_SEND_ALL_CLUSTERS]);
    assert!(hello.cluster_stats.is_empty());
    assert_eq!(
        (client.poll_transmit(), client.poll_timeout()),
        (None, None)
    );
    client.handle_response(response(10), at(1));
    assert_eq!(client.poll_timeout(), Some(at(11)));
    assert_eq!(
        client.poll_event(),
        Some(ClientEvent::Select(ClusterSelection::All))
    );
    client.handle_timeout(at(10));
    assert_eq!(client.poll_event(), None);
    client.handle_timeout(at(11));
    assert!(is_collect(client.poll_event()));
    client.handle_stats(stats(1));
    let report = client.poll_transmit().unwrap();
    assert_eq!((report.node, report.cluster_stats), (None, stats(1)));
    assert_eq!(client.poll_timeout(), Some(at(21)));
}

#[test]
fn a_response_with_the_same_settings_is_data_only() {
    let mut client = reporting();
    let fractions = vec![(Locality::zone_only("a"), BasisPoints::ZERO)];
    let traffic = vec![ClusterTraffic {
        cluster_name: "orders".into(),
        fractions,
        observation_time: None,
    }];
    for second in 1..10 {
        let mut same = response(10);
        same.observed_traffic.clone_from(&traffic);
        client.handle_response(same, at(second));
    }
    assert_eq!(client.poll_timeout(), Some(at(10)));
    let observed = ages(&mut client);
    assert_eq!(observed, [("orders".to_owned(), at(9))], "the newest only");
    assert_eq!(client.poll_event(), None);
    client.handle_response(response(2), at(9));
    assert_eq!(client.poll_timeout(), Some(at(11)));
}

/// Names and times of the emitted demand.
fn ages(client: &mut Client) -> Vec<(String, Instant)> {
    let Some(ClientEvent::ObservedTraffic(observed)) = client.poll_event() else {
        panic!("no demand");
    };
    let age = |one: ObservedTraffic| (one.traffic.cluster_name.to_string(), one.at);
    observed.into_iter().map(age).collect()
}

fn observed_at(name: &str, unix_seconds: Option<u64>) -> ClusterTraffic {
    ClusterTraffic {
        cluster_name: name.into(),
        fractions: vec![(Locality::zone_only("a"), BasisPoints::ZERO)],
        observation_time: unix_seconds.map(Duration::from_secs),
    }
}

#[test]
fn demand_is_as_old_as_the_first_arrival_of_its_observation() {
    let mut client = reporting();
    let mut tell = |second, traffic: &[ClusterTraffic]| {
        let mut response = response(10);
        response.observed_traffic = traffic.to_vec();
        client.handle_response(response, at(second));
        let ages = ages(&mut client).into_iter();
        ages.map(|(_, at)| at).collect::<Vec<_>>()
    };
    // The clock of the server is years behind, which does not matter.
    let (first, second) = (observed_at("a", Some(1000)), observed_at("b", Some(1003)));
    assert_eq!(tell(1, &[first.clone(), second.clone()]), [at(1), at(1)]);
    let newer = observed_at("b", Some(1013));
    assert_eq!(tell(11, &[first.clone(), newer.clone()]), [at(1), at(11)]);
    // The server's clock is set back: still a new observation.
    let stepped = observed_at("b", Some(13));
    assert_eq!(tell(21, &[first.clone(), stepped]), [at(1), at(21)]);
    // Without an `observation_time` every message counts as an observation.
    let timeless = observed_at("a", None);
    assert_eq!(tell(31, std::slice::from_ref(&timeless)), [at(31)]);
    assert_eq!(tell(41, &[timeless]), [at(41)]);
}

#[test]
fn a_new_stream_does_not_make_an_observation_newer() {
    let mut client = reporting();
    let mut told = response(10);
    told.observed_traffic = vec![observed_at("a", Some(1000))];
    client.handle_response(told.clone(), at(1));
    assert_eq!(ages(&mut client), [("a".to_owned(), at(1))]);
    client.handle_disconnected(true);
    client.handle_connected(at(5));
    assert!(is_collect(client.poll_event()));
    client.handle_response(told, at(6));
    assert_eq!(ages(&mut client), [("a".to_owned(), at(1))]);
}

#[test]
fn an_outage_loses_no_count() {
    let mut client = reporting();
    client.handle_timeout(at(10));
    assert!(is_collect(client.poll_event()));
    client.handle_stats(stats(1));
    client.handle_disconnected(false);
    assert_eq!(
        (client.poll_transmit(), client.poll_timeout()),
        (None, None)
    );
    client.handle_timeout(at(20));
    assert_eq!(client.poll_event(), None);

    client.handle_connected(at(30));
    assert!(is_collect(client.poll_event()));
    let hello = client.poll_transmit().unwrap();
    assert!(hello.node.is_some());
    assert_eq!(hello.cluster_stats, stats(1));
    client.handle_stats(stats(5));
    assert_eq!(client.poll_transmit().unwrap().cluster_stats, stats(5));
    assert_eq!(client.poll_timeout(), Some(at(40)));
}

#[test]
fn an_unsent_report_is_merged_into_the_next_one() {
    let mut client = reporting();
    client.handle_stats(stats(1));
    let report = client.poll_transmit().unwrap();
    client.handle_stats(stats(2));
    client.handle_unsent(report);
    let sum = client.poll_transmit().unwrap().cluster_stats;
    assert_eq!(sum[0].total_dropped_requests, 3);
    assert_eq!(sum[0].load_report_interval, 2 * SECOND);
    assert_eq!(client.poll_transmit(), None);
}

#[test]
fn a_slow_stream_gets_one_report_with_the_sum() {
    let mut client = reporting();
    for round in 1..=3 {
        client.handle_timeout(at(10 * round));
        assert!(is_collect(client.poll_event()));
        client.handle_stats(stats(1));
    }
    assert_eq!(
        client.poll_transmit().unwrap().cluster_stats[0].total_dropped_requests,
        3
    );
    assert_eq!(client.poll_transmit(), None);
}

#[test]
fn a_slow_owner_gets_one_collect_event() {
    let mut client = reporting();
    client.handle_timeout(at(10));
    client.handle_timeout(at(20));
    assert!(is_collect(client.poll_event()));
    assert_eq!(client.poll_event(), None);
}

#[test]
fn a_missing_interval_causes_no_busy_loop() {
    let mut client = reporting();
    let named = LoadStatsResponse {
        clusters: vec!["orders".into()],
        ..Default::default()
    };
    client.handle_response(named, at(1));
    assert!(client.poll_timeout() >= Some(at(1).saturating_add(SHORTEST_INTERVAL)));
    assert!(matches!(client.poll_event(), Some(ClientEvent::Select(_))));
    client.handle_timeout(at(2));
    let Some(ClientEvent::Collect { clusters, .. }) = client.poll_event() else {
        panic!("nothing to collect");
    };
    assert_eq!(clusters, ClusterSelection::Named(vec!["orders".into()]));
}

#[test]
fn selections_are_emitted_on_change_and_the_newest_wins() {
    let mut client = reporting();
    client.handle_response(response(20), at(1));
    assert_eq!(client.poll_event(), None, "another interval only");
    for names in [&["orders"][..], &["orders", "carts"]] {
        let named = LoadStatsResponse {
            send_all_clusters: false,
            clusters: names.iter().map(|&name| name.into()).collect(),
            ..response(20)
        };
        client.handle_response(named, at(2));
    }
    let newest = ClusterSelection::Named(vec!["orders".into(), "carts".into()]);
    assert_eq!(
        client.poll_event(),
        Some(ClientEvent::Select(newest.clone()))
    );
    assert_eq!(client.poll_event(), None);
    assert!(newest.includes("carts") && !newest.includes("cart"));
}

#[test]
fn streams_are_counted_as_envoy_counts_them() {
    let mut client = client();
    let counted = |client: &Client| {
        let ReporterStats {
            requests,
            responses,
            errors,
            retries,
        } = client.stats();
        [requests, responses, errors, retries]
    };
    client.handle_disconnected(false);
    assert_eq!(counted(&client), [0, 0, 1, 0], "could not be opened");
    client.handle_disconnected(false);
    assert_eq!(counted(&client), [0, 0, 2, 1], "nor could the second");
    client.handle_connected(at(1));
    assert!(client.poll_transmit().is_some());
    client.handle_response(response(10), at(1));
    assert_eq!(counted(&client), [1, 1, 2, 2]);
    client.handle_disconnected(true);
    client.handle_connected(at(2));
    assert_eq!(counted(&client), [1, 1, 2, 3], "ended without error");
}

#[test]
fn an_owner_that_ends_gets_a_last_report_at_once() {
    let mut client = reporting();
    assert!(!client.has_ended());
    client.handle_end(at(3));
    assert!(!client.has_ended(), "the counters are wanted");
    assert!(is_collect(client.poll_event()));
    assert!(!client.has_ended(), "the owner has them");
    client.handle_stats(stats(7));
    assert!(!client.has_ended(), "the report is due");
    let report = client.poll_transmit().unwrap();
    assert_eq!(report.cluster_stats, stats(7));
    assert!(client.has_ended());
}

/// Counters that were drained before are part of the last report.
#[test]
fn counters_on_their_way_are_waited_for() {
    let mut client = reporting();
    client.handle_timeout(at(10));
    assert!(is_collect(client.poll_event()));
    client.handle_end(at(10));
    client.handle_stats(stats(1));
    assert!(client.poll_transmit().is_some());
    assert!(!client.has_ended());
    assert!(is_collect(client.poll_event()));
    client.handle_stats(stats(2));
    assert!(client.poll_transmit().is_some());
    assert!(client.has_ended());
}

#[test]
fn an_owner_that_cannot_report_ends_at_once() {
    let mut unconnected = client();
    unconnected.handle_end(at(0));
    assert!(unconnected.has_ended());
    // The server has not asked for reports.
    let mut unasked = client();
    unasked.handle_connected(at(0));
    assert!(unasked.poll_transmit().is_some());
    unasked.handle_end(at(0));
    assert!(unasked.has_ended());
    let mut lost = reporting();
    lost.handle_end(at(1));
    lost.handle_disconnected(false);
    assert!(lost.has_ended());
}
