//! Clusters read in full against bytes of another implementation, and what is refused.

use proptest::prelude::*;

use super::*;
use crate::convert::field::put_field;
use crate::convert::hex::message;
use crate::convert::load_assignment::decode_endpoint_extras;
use crate::convert::pb::AnyMessage;
use crate::convert::pb::upstream::{HealthCheckMessage, HttpProtocolOptionsMessage};
use crate::yaml::parse_upstream_cluster;
use crate::yaml::tests::upstream::{EDS, STATIC, TLS};

/// The blocks that another program turned into bytes.
const BLOCKS: [(&str, &str); 3] = [
    ("upstream_static", STATIC),
    ("upstream_tls", TLS),
    ("upstream_eds", EDS),
];

/// Every field number is right, or the two readers would not agree.
#[test]
fn bytes_and_files_say_the_same() {
    for (name, yaml) in BLOCKS {
        let read = decode_upstream_cluster(&message(name)).unwrap();
        assert_eq!(read, parse_upstream_cluster(yaml).unwrap(), "{name}");
    }
}

#[test]
fn extras_of_an_assignment_are_read_by_address() {
    let cluster = UpstreamClusterMessage::decode(&message("upstream_static")[..]).unwrap();
    let extras = decode_endpoint_extras(&cluster.load_assignment.unwrap()).unwrap();
    let read = decode_upstream_cluster(&message("upstream_static")).unwrap();
    assert_eq!(extras, read.load_assignment.unwrap().extras());
    assert_eq!(extras.len(), 1);
}

fn refused(change: impl FnOnce(&mut UpstreamClusterMessage)) -> String {
    let bytes = message("upstream_eds");
    let mut cluster = UpstreamClusterMessage::decode(&bytes[..]).unwrap();
    change(&mut cluster);
    options(cluster).unwrap_err().path().to_owned()
}

#[test]
fn what_would_be_passed_over_is_refused_by_its_path() {
    type Change = fn(&mut UpstreamClusterMessage);
    let cases: [(&str, Change); 7] = [
        ("type", |c| c.discovery_type = 4),
        ("eds_cluster_config.eds_config", |c| {
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
        assert_eq!(refused(change), path);
    }
}

#[test]
fn what_is_not_declared_is_refused_by_its_path_too() {
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

/// Of the blocks that another program wrote, the two fields that files accept without effect.
#[test]
fn what_is_read_is_not_reported() {
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

/// Fields nobody knows yet come from newer servers: they are reported.
#[test]
fn unknown_fields_are_passed_over() {
    let mut bytes = message("upstream_eds");
    put_field(&mut bytes, 60_000, b"later");
    let known = decode_upstream_cluster(&message("upstream_eds"));
    assert_eq!(decode_upstream_cluster(&bytes), known);
    let ignored = crate::wire::ignored_fields(crate::ads::CLUSTER, &bytes);
    assert_eq!(ignored, ["field 60000"]);
}

proptest! {
    #[test]
    fn broken_bytes_do_no_harm(
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
        let _ = decode_endpoint_extras(&bytes);
    }
}
