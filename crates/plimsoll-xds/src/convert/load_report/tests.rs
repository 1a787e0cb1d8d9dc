//! Load reports encoded by protobuf for Python, and round trips.

use plimsoll_core::model::locality::Locality;
use proptest::prelude::*;

use super::*;
use crate::convert::hex::hex;

/// Report with every field, without a node.
const REPORT: &str = "12b8010a0275701298010a031201611064180320022a240a176170706c69636174696f\
                      6e5f7574696c697a6174696f6e100119000000000000d03f2a1c0a0f6370755f757469\
                      6c697a6174696f6e100219000000000000e03f2a0e0a016d100219000000000000f83f\
                      30013a180a0e0a0c120831302e302e302e311850100118022003380440ac02620b0802\
                      11000000000000e03f720b080111000000000000d03f1805220610f88eb6dc032a080a\
                      047368656410043203737663";
/// Envoy-style node to put in front of the report.
const NODE: &str = "0a36 0a026e31 1205666c656574 1a0a0a080a016b12031a0176 2203120161 \
                    3205656e766f79 42060a0408011028 4a060a0178120179 520166";

fn counts() -> UpstreamLocalityStats {
    UpstreamLocalityStats {
        locality: Locality::zone_only("a"),
        priority: 1,
        total_issued_requests: 300,
        total_successful_requests: 100,
        total_error_requests: 2,
        total_requests_in_progress: 3,
        total_unissued_requests: None,
    }
}

fn metric(count: u64, total: f64) -> MetricStats {
    MetricStats {
        num_requests_finished_with_metric: count,
        total_metric_value: total,
    }
}

/// The content of [`REPORT`].
fn report() -> LoadReport {
    let endpoint = UpstreamEndpointStats {
        address: "10.0.0.1:80".parse().unwrap(),
        total_successful_requests: 1,
        total_requests_in_progress: 2,
        total_error_requests: 3,
        total_issued_requests: 4,
        load_metric_stats: BTreeMap::new(),
    };
    let metrics = [
        ("m", metric(2, 1.5)),
        ("cpu_utilization", metric(2, 0.5)),
        ("application_utilization", metric(1, 0.25)),
    ];
    let locality = LocalityLoadStats {
        stats: counts(),
        load_metric_stats: metrics.map(|(name, stats)| (name.into(), stats)).into(),
        endpoints: vec![endpoint],
    };
    LoadReport {
        node: None,
        cluster_stats: vec![ClusterLoadStats {
            cluster_name: "up".into(),
            cluster_service_name: "svc".into(),
            localities: vec![locality],
            total_dropped_requests: 5,
            dropped_requests: BTreeMap::from([("shed".into(), 4)]),
            load_report_interval: Duration::from_micros(999_131),
        }],
    }
}

/// The part of [`REPORT`] that a server decodes.
fn kept() -> ClusterStats {
    ClusterStats {
        cluster_name: "up".into(),
        upstream_locality_stats: vec![counts()],
        total_dropped_requests: 5,
        load_report_interval: Duration::from_micros(999_131),
    }
}

#[test]
fn a_report_of_another_encoder_is_decoded() {
    let read = decode_load_stats_request(hex(&[NODE, REPORT].concat()).into()).unwrap();
    let node = read.node.unwrap();
    assert_eq!(node.node.cluster.as_ref(), "fleet");
    assert_eq!(node.client_features, ["f"]);
    assert_eq!(read.cluster_stats, [kept()]);
    assert_eq!(read.refused_requests, [1], "without a category");
}

#[test]
fn a_report_matches_another_encoder() {
    assert_eq!(encode_load_report(&report()), hex(REPORT));
}

#[test]
fn a_reduced_report_survives_a_round_trip() {
    let request = LoadStatsRequest {
        node: Some(decode_node(&hex(NODE)[2..]).unwrap()),
        cluster_stats: vec![kept()],
        // Categories are not encoded.
        refused_requests: vec![kept().total_dropped_requests],
        ..Default::default()
    };
    let bytes = encode_load_stats_request(&request);
    assert_eq!(decode_load_stats_request(bytes.into()).unwrap(), request);
}

#[test]
fn a_negative_interval_is_rejected_with_its_path() {
    // seconds: -1
    let bytes = hex("1210 0a0161 220b 08ffffffffffffffffff01").into();
    let error = decode_load_stats_request(bytes).unwrap_err();
    assert_eq!(error.path(), "cluster_stats[0].load_report_interval");
}

#[test]
fn settings_of_another_encoder() {
    let bytes = hex("0a0161 0a0162 1202080a 1801 2001");
    let read = decode_load_stats_response(&bytes).unwrap();
    let wanted = LoadStatsResponse {
        clusters: vec!["a".into(), "b".into()],
        send_all_clusters: true,
        load_reporting_interval: Duration::from_secs(10),
        report_endpoint_granularity: true,
        observed_traffic: Vec::new(),
    };
    assert_eq!(read, wanted);
    assert_eq!(encode_load_stats_response(&read), bytes);
}

#[test]
fn traffic_is_field_five() {
    let bytes = hex("1200 2a19 0a08757073747265616d 120d 0a08 1206 7a6f6e652d61 10 8827");
    let mut read = decode_load_stats_response(&bytes).unwrap();
    let traffic = ClusterTraffic {
        cluster_name: "upstream".into(),
        fractions: vec![(
            Locality::zone_only("zone-a"),
            BasisPoints::new(5000, "").unwrap(),
        )],
        observation_time: None,
    };
    assert_eq!(read.observed_traffic, [traffic]);
    assert_eq!(encode_load_stats_response(&read), bytes);
    // Empty traffic is not encoded.
    read.observed_traffic.clear();
    assert_eq!(encode_load_stats_response(&read), hex("1200"));
}

#[test]
fn the_observation_time_is_field_three() {
    // seconds: 300, nanos: 7
    let bytes = hex("1200 2a0a 0a0161 1a05 08ac02 1007");
    let read = decode_load_stats_response(&bytes).unwrap();
    let traffic = &read.observed_traffic[0];
    assert_eq!(traffic.observation_time, Some(Duration::new(300, 7)));
    assert_eq!(encode_load_stats_response(&read), bytes);
    // nanos: 1_000_000_000, and seconds: -1
    for wrong in ["1080 94 eb dc03", "08ffffffffffffffffff01"] {
        let wrong = hex(wrong);
        let mut bytes = hex("1200 2a");
        bytes.push(u8::try_from(5 + wrong.len()).unwrap());
        bytes.extend(hex("0a0161 1a"));
        bytes.push(u8::try_from(wrong.len()).unwrap());
        bytes.extend(wrong);
        let error = decode_load_stats_response(&bytes).unwrap_err();
        assert_eq!(error.path(), "observed_traffic[0].observation_time");
    }
}

#[test]
fn a_fraction_above_one_is_rejected_with_its_path() {
    let error = decode_load_stats_response(&hex("2a06 0a0161 1203 10914e")).unwrap_err();
    assert!(!error.to_string().is_empty());
    let error = decode_load_stats_response(&hex("2a08 0a0161 1203 10914e")).unwrap_err();
    assert_eq!(
        error.to_string(),
        "observed_traffic[0].fractions[0].observed_traffic_fraction: 10001 is above 10000 basis \
         points"
    );
}

proptest! {
    #[test]
    fn random_bytes_never_panic(noise in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = decode_load_stats_request(noise.clone().into());
        let _ = decode_load_stats_response(&noise);
    }

    #[test]
    fn counters_survive_a_round_trip(
        counts in prop::collection::vec((any::<[u64; 4]>(), any::<u32>(), "[a-z]{0,3}"), 0..6),
        dropped: u64,
        (seconds, nanos) in (0u64..315_576_000_000, 0u32..1_000_000_000),
    ) {
        let stats = counts.into_iter().map(|([issued, success, error, active], priority, zone)| {
            UpstreamLocalityStats {
                locality: Locality::new("r", &zone, ""),
                priority,
                total_issued_requests: issued,
                total_successful_requests: success,
                total_error_requests: error,
                total_requests_in_progress: active,
                total_unissued_requests: (priority % 2 == 0).then_some(error),
            }
        });
        let request = LoadStatsRequest {
            node: None,
            cluster_stats: vec![ClusterStats {
                cluster_name: "up".into(),
                upstream_locality_stats: stats.collect(),
                total_dropped_requests: dropped,
                load_report_interval: Duration::new(seconds, nanos),
            }],
            refused_requests: vec![dropped],
            ..Default::default()
        };
        let bytes = encode_load_stats_request(&request);
        prop_assert_eq!(decode_load_stats_request(bytes.into()).unwrap(), request);
    }
}

/// As in an assignment, a locality may occur twice with the same fraction.
#[test]
fn contradictory_fractions_are_rejected() {
    let entry = |fraction: u32| LocalityFractionMessage {
        locality: Some((&Locality::zone_only("a")).into()),
        observed_traffic_fraction: fraction,
    };
    let read = |fractions: Vec<LocalityFractionMessage>| {
        let message = LoadStatsResponseMessage {
            observed_traffic: vec![ClusterTrafficMessage {
                cluster_name: "orders".into(),
                fractions,
                observation_time: None,
            }],
            ..Default::default()
        };
        decode_load_stats_response(&message.encode_to_vec())
    };
    let same = read(vec![entry(5000), entry(5000)]).unwrap();
    assert_eq!(same.observed_traffic[0].fractions.len(), 1);
    let error = read(vec![entry(5000), entry(4000)]).unwrap_err();
    let path = "observed_traffic[0].fractions[1].observed_traffic_fraction";
    assert_eq!(error.path(), path);
}
