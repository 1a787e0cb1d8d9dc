//! Tests of the limits of a request, each at its limit and one beyond.

use super::*;

const LIMITS: RequestLimits = RequestLimits {
    node_string_bytes: 4,
    client_features: 2,
    name_bytes: 6,
    names: 3,
    clusters_per_report: 3,
    localities_per_cluster: 2,
    localities_per_report: 4,
    text_bytes: 10,
};

/// Encodes a field with a length: a string, bytes or a message.
fn field(number: u8, content: &[u8]) -> Vec<u8> {
    let mut out = vec![number << 3 | 2, u8::try_from(content.len()).unwrap()];
    out.extend_from_slice(content);
    out
}

fn text(number: u8, length: usize) -> Vec<u8> {
    field(number, &vec![b'x'; length])
}

fn refused(result: Result<(), Refused>) -> (&'static str, String) {
    match result.unwrap_err() {
        Refused::Limit { limit, text } => (limit.name(), text),
        Refused::Malformed(error) => panic!("malformed: {error}"),
    }
}

/// Checks a node in all three requests.
fn check_node(node: &[u8]) -> Result<(), Refused> {
    let report = LIMITS.check_load_stats(&field(1, node));
    assert_eq!(
        LIMITS.check_discovery(Variant::Sotw, &field(2, node)),
        report
    );
    assert_eq!(
        LIMITS.check_discovery(Variant::Delta, &field(1, node)),
        report
    );
    report
}

#[test]
fn every_string_of_a_node_is_limited_and_named() {
    let fields = [
        (1, "node.id"),
        (2, "node.cluster"),
        (6, "node.user_agent_name"),
        (7, "node.user_agent_version"),
        (10, "node.client_features"),
    ];
    for (number, path) in fields {
        check_node(&text(number, 4)).unwrap();
        let message = format!("{path}: 5 bytes, at most 4 are accepted");
        let limit = ("node_string_bytes", message);
        assert_eq!(refused(check_node(&text(number, 5))), limit);
    }
    for (number, part) in [(1, "region"), (2, "zone"), (3, "sub_zone")] {
        check_node(&field(4, &text(number, 4))).unwrap();
        let (limit, message) = refused(check_node(&field(4, &text(number, 5))));
        assert_eq!(limit, "node_string_bytes");
        assert!(
            message.starts_with(&format!("node.locality.{part}: ")),
            "{message}"
        );
    }
    // Metadata and extensions are skipped, whatever their length.
    check_node(&[text(3, 50), text(9, 50)].concat()).unwrap();
}

#[test]
fn client_features_are_counted() {
    check_node(&[text(10, 0), text(10, 0)].concat()).unwrap();
    let (limit, message) = refused(check_node(
        &[text(10, 0), text(10, 0), text(10, 0)].concat(),
    ));
    assert_eq!(limit, "client_features");
    assert_eq!(message, "node.client_features: more than 2 entries");
}

#[test]
fn names_of_a_discovery_request_are_counted_and_measured() {
    for (variant, number, path) in [
        (Variant::Sotw, 3, "resource_names"),
        (Variant::Delta, 3, "resource_names_subscribe"),
        (Variant::Delta, 4, "resource_names_unsubscribe"),
    ] {
        let check = |bytes: Vec<u8>| LIMITS.check_discovery(variant, &bytes);
        check([text(number, 6), text(number, 0), text(number, 0)].concat()).unwrap();
        let (limit, message) = refused(check(text(number, 7)));
        assert_eq!(
            (limit, &*message),
            (
                "name_bytes",
                &*format!("{path}: 7 bytes, at most 6 are accepted")
            )
        );
        let (limit, message) = refused(check(text(number, 0).repeat(4)));
        assert_eq!(
            (limit, &*message),
            ("names", &*format!("{path}: more than 3 entries"))
        );
    }
    // Both lists of an incremental request count together.
    let both = [text(3, 0).repeat(2), text(4, 0).repeat(2)].concat();
    assert_eq!(
        refused(LIMITS.check_discovery(Variant::Delta, &both)).0,
        "names"
    );
}

#[test]
fn versions_nonces_and_types_are_measured() {
    for (variant, number, path) in [
        (Variant::Sotw, 1, "version_info"),
        (Variant::Sotw, 4, "type_url"),
        (Variant::Sotw, 5, "response_nonce"),
        (Variant::Delta, 2, "type_url"),
        (Variant::Delta, 6, "response_nonce"),
    ] {
        LIMITS.check_discovery(variant, &text(number, 6)).unwrap();
        let (limit, message) = refused(LIMITS.check_discovery(variant, &text(number, 7)));
        assert_eq!(limit, "name_bytes");
        assert!(
            message.starts_with(&format!("{path}: 7 bytes")),
            "{message}"
        );
    }
    let entry = |name, version| field(5, &[text(1, name), text(2, version)].concat());
    let check = |bytes: Vec<u8>| LIMITS.check_discovery(Variant::Delta, &bytes);
    check(entry(6, 6).repeat(3)).unwrap();
    assert_eq!(refused(check(entry(7, 1))).0, "name_bytes");
    assert_eq!(refused(check(entry(1, 7))).0, "name_bytes");
    assert_eq!(refused(check(entry(1, 1).repeat(4))).0, "names");
    // The text of an error is cut, not refused; field 5 is a map in incremental requests only.
    LIMITS
        .check_discovery(Variant::Sotw, &field(6, &text(2, 100)))
        .unwrap();
    LIMITS
        .check_discovery(Variant::Delta, &field(7, &text(2, 100)))
        .unwrap();
}

#[test]
fn clusters_and_localities_of_a_report_are_counted() {
    let cluster =
        |localities: usize| field(2, &[text(1, 6), text(2, 0).repeat(localities)].concat());
    let check = |bytes: Vec<u8>| LIMITS.check_load_stats(&bytes);
    check([cluster(2), cluster(2), cluster(0)].concat()).unwrap();
    let (limit, message) = refused(check(cluster(0).repeat(4)));
    assert_eq!(limit, "clusters_per_report");
    assert_eq!(message, "cluster_stats: more than 3 entries");
    let (limit, message) = refused(check(cluster(3)));
    assert_eq!(limit, "localities_per_cluster");
    assert_eq!(
        message,
        "cluster_stats.upstream_locality_stats: more than 2 entries"
    );
    let many = [cluster(2), cluster(2), cluster(1)].concat();
    assert_eq!(refused(check(many)).0, "localities_per_report");
    assert_eq!(refused(check(field(2, &text(1, 7)))).0, "name_bytes");
    let locality = |length| field(2, &field(2, &field(1, &text(2, length))));
    check(locality(4)).unwrap();
    assert_eq!(refused(check(locality(5))).0, "node_string_bytes");
}

#[test]
fn malformed_messages_are_refused_before_decoding() {
    // A group, which prost would skip together with everything that follows unchecked.
    let group = [0x0b, 0x0c];
    let checks = [
        LIMITS.check_load_stats(&group),
        LIMITS.check_discovery(Variant::Sotw, &group),
        LIMITS.check_load_stats(&field(2, &group)),
        check_node(&group),
    ];
    for check in checks {
        let error = check.unwrap_err();
        assert!(matches!(error, Refused::Malformed(_)), "{error:?}");
        assert!(
            error.to_string().starts_with("malformed message: "),
            "{error}"
        );
    }
}

#[test]
fn defaults_fit_the_largest_known_clients() {
    let limits = RequestLimits::default();
    assert_eq!(
        (limits.node_string_bytes, limits.client_features),
        (256, 64)
    );
    assert_eq!((limits.name_bytes, limits.names), (1024, 32_768));
    assert_eq!(limits.clusters_per_report, 4096);
    assert_eq!(
        (limits.localities_per_cluster, limits.localities_per_report),
        (1000, 16_384)
    );
    assert_eq!(limits.text_bytes, 1024);
}

#[test]
fn all_limits_are_listed() {
    for (index, limit) in RequestLimit::ALL.into_iter().enumerate() {
        // A new limit does not compile until it has a place in the list.
        let place = match limit {
            RequestLimit::NodeStringBytes => 0,
            RequestLimit::ClientFeatures => 1,
            RequestLimit::NameBytes => 2,
            RequestLimit::Names => 3,
            RequestLimit::ClustersPerReport => 4,
            RequestLimit::LocalitiesPerCluster => 5,
            RequestLimit::LocalitiesPerReport => 6,
            RequestLimit::Streams => 7,
            RequestLimit::UnfinishedBytes => 8,
            RequestLimit::MessageTimeout => 9,
            RequestLimit::Types => 10,
            RequestLimit::SubscriptionBytes => 11,
            RequestLimit::MaxMessageSize => 12,
            RequestLimit::FirstMessageTimeout => 13,
            RequestLimit::StreamsPerPeer => 14,
        };
        assert_eq!(place, index, "{}", limit.name());
    }
}
