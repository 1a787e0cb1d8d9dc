//! Whole clusters encoded by another implementation, and errors.

use proptest::prelude::*;
use prost::Message;

use super::*;
use crate::convert::assignment::decode_endpoints;
use crate::convert::hex::message;
use crate::yaml::parse_upstream_cluster;
use crate::yaml::tests::upstream::{EDS, STATIC, TLS};
use plimsoll_schema::field::put_field;
use plimsoll_schema::pb::AnyMessage;
use plimsoll_schema::pb::health_check::HealthCheckMessage;
use plimsoll_schema::pb::upstream::HttpProtocolOptionsMessage;

/// Files, and the messages that another implementation encoded from them.
const BLOCKS: [(&str, &str); 3] = [
    ("upstream_static", STATIC),
    ("upstream_tls", TLS),
    ("upstream_eds", EDS),
];

/// Reading a file and decoding a message agree only if every field number is correct.
#[test]
fn messages_and_files_are_equivalent() {
    for (name, yaml) in BLOCKS {
        let read = decode_upstream_cluster(&message(name)).unwrap();
        assert_eq!(read, parse_upstream_cluster(yaml).unwrap(), "{name}");
    }
}

#[test]
fn endpoint_extras_are_decoded_by_address() {
    let cluster = ClusterMessage::decode(&message("upstream_static")[..]).unwrap();
    let assignment = cluster.load_assignment.unwrap().encode_to_vec();
    let endpoints = decode_endpoints(&assignment).unwrap();
    let read = decode_upstream_cluster(&message("upstream_static")).unwrap();
    let listed = read.load_assignment.unwrap();
    assert_eq!(endpoints, listed.resolve(|_| &[]).unwrap());
    assert_eq!(endpoints.extras.len(), 1);
}

fn rejected_path(change: impl FnOnce(&mut ClusterMessage)) -> String {
    let bytes = message("upstream_eds");
    let mut cluster = ClusterMessage::decode(&bytes[..]).unwrap();
    change(&mut cluster);
    options(cluster, Strictness::Lenient)
        .unwrap_err()
        .path()
        .to_owned()
}

#[test]
fn unsupported_fields_are_rejected_by_path() {
    type Change = fn(&mut ClusterMessage);
    let cases: [(&str, Change); 7] = [
        ("type", |c| c.discovery_type = Some(4)),
        ("eds_cluster_config", |c| {
            c.eds_cluster_config = None;
        }),
        ("lrs_server", |c| {
            c.lrs_server = Some(ConfigSourceMessage::default());
        }),
        ("health_checks[1]", |c| {
            c.health_checks.push(HealthCheckMessage::default());
        }),
        ("outlier_detection.monitors", |c| {
            let monitors = vec![()];
            c.outlier_detection = Some(OutlierDetectionMessage {
                monitors,
                ..Default::default()
            });
        }),
        ("transport_socket.typed_config", |c| {
            c.transport_socket = Some(Default::default());
        }),
        (
            "typed_extension_protocol_options[x].explicit_http_config",
            |c| {
                let options = HttpProtocolOptionsMessage::default();
                let any = AnyMessage::pack(super::super::HTTP_PROTOCOL_OPTIONS, &options);
                c.typed_extension_protocol_options.insert("x".into(), any);
            },
        ),
    ];
    for (path, change) in cases {
        assert_eq!(rejected_path(change), path);
    }
}

#[test]
fn undeclared_fields_are_rejected_by_path() {
    let breakers = {
        let mut bytes = Vec::new();
        put_field(&mut bytes, 2, b"");
        bytes
    };
    let cases: [(u32, &[u8], &str); 6] = [
        (40, b"", "filters"),
        (38, b"", "cluster_type"),
        (50, b"", "preconnect_policy"),
        (43, b"", "transport_socket_matches"),
        (62, b"", "queuing_policies"),
        (10, &breakers, "circuit_breakers.per_host_thresholds"),
    ];
    for (number, value, path) in cases {
        let mut bytes = message("upstream_eds");
        put_field(&mut bytes, number, value);
        let error = decode_upstream_cluster(&bytes).unwrap_err();
        assert_eq!(error.path(), path);
    }
}

/// Only the two fields that files accept without effect are reported.
#[test]
fn supported_fields_are_not_reported_as_ignored() {
    for (name, expected) in [
        (
            "upstream_static",
            &["per_connection_buffer_limit_bytes", "alt_stat_name"][..],
        ),
        ("upstream_tls", &[]),
        ("upstream_eds", &[]),
    ] {
        let ignored = crate::wire::ignored_fields(crate::ads::CLUSTER, &message(name));
        assert_eq!(ignored, expected, "{name}");
    }
}

/// Unknown fields come from newer servers; they are reported.
#[test]
fn unknown_fields_are_ignored_and_reported() {
    let mut bytes = message("upstream_eds");
    put_field(&mut bytes, 60_000, b"later");
    let known = decode_upstream_cluster(&message("upstream_eds"));
    assert_eq!(decode_upstream_cluster(&bytes), known);
    let ignored = crate::wire::ignored_fields(crate::ads::CLUSTER, &bytes);
    assert_eq!(ignored, ["field 60000"]);
}

proptest! {
    #[test]
    fn damaged_bytes_never_panic(
        which in 0..BLOCKS.len(),
        end in any::<prop::sample::Index>(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
        cut in any::<bool>(),
    ) {
        let mut bytes = message(BLOCKS[which].0);
        for (place, byte) in changes {
            *place.get_mut(&mut bytes) = byte;
        }
        if cut {
            bytes.truncate(end.index(bytes.len()));
        }
        if let Err(error) = decode_upstream_cluster(&bytes) {
            prop_assert!(!error.reason().is_empty());
        }
        let _ = decode_endpoints(&bytes);
    }
}
