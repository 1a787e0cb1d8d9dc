//! Scans of encoded messages, and consistency checks of the descriptors.

use super::*;
use crate::field::put_field;
use crate::pb::cluster::ClusterMessage;
use crate::pb::endpoint::AssignmentMessage;
use crate::pb::listener::ListenerMessage;
use crate::pb::route::RouteConfigurationMessage;
use crate::registry::{POLICIES, PROTOCOL_OPTIONS, TRANSPORT_SOCKETS};

const CLUSTER: &Descriptor = ClusterMessage::DESCRIPTOR;
const ASSIGNMENT: &Descriptor = AssignmentMessage::DESCRIPTOR;

/// Encodes a message with one length-delimited field.
fn message(number: u32, value: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    put_field(&mut out, number, value);
    out
}

fn nested(path: &[u32], value: &[u8]) -> Vec<u8> {
    let mut bytes = value.to_vec();
    for number in path.iter().rev() {
        bytes = message(*number, &bytes);
    }
    bytes
}

/// Encodes a cluster whose `load_balancing_policy` lists these types.
fn policies(list: &[(&str, &[u8])]) -> Vec<u8> {
    let mut out = Vec::new();
    for (name, value) in list {
        let url = format!("type.googleapis.com/envoy.extensions.load_balancing_policies.{name}");
        let mut any = message(1, url.as_bytes());
        put_field(&mut any, 2, value);
        put_field(&mut out, 1, &nested(&[4, 2], &any));
    }
    message(41, &out)
}

const MAGLEV: &str = "maglev.v3.Maglev";

#[test]
fn fields_that_change_the_host_are_refused() {
    let hashing = policies(&[(MAGLEV, &nested(&[2, 3], b""))]);
    let endpoints = nested(&[2, 7], b"");
    let policy = "load_balancing_policy.policies[0].typed_extension_config.typed_config";
    for (bytes, kind, path) in [
        (
            hashing,
            CLUSTER,
            format!("{policy}.consistent_hashing_lb_config.hash_policy"),
        ),
        (
            nested(&[27, 7, 3], b""),
            CLUSTER,
            "common_lb_config.consistent_hashing_lb_config.hash_policy".into(),
        ),
        (
            nested(&[19, 26], b"\x08\x01"),
            CLUSTER,
            "outlier_detection.detect_degraded_hosts".into(),
        ),
        (
            endpoints,
            ASSIGNMENT,
            "endpoints[0].load_balancer_endpoints".into(),
        ),
    ] {
        let error = refuse(&bytes, kind, Impact::Host).unwrap_err();
        assert_eq!(error.path(), path);
        assert!(error.reason().contains("which host"), "{error}");
    }
    // The default value, false, is accepted.
    assert!(refuse(&nested(&[19, 26], b""), CLUSTER, Impact::Host).is_ok());
}

#[test]
fn fields_of_connections_are_refused_only_by_readers_that_connect() {
    let bytes = nested(&[24, 3], &{
        let tls = "x/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext";
        let mut any = message(1, tls.as_bytes());
        put_field(&mut any, 2, &nested(&[1, 10], b""));
        any
    });
    assert!(refuse(&bytes, CLUSTER, Impact::Host).is_ok());
    let error = refuse(&bytes, CLUSTER, Impact::Request).unwrap_err();
    let context = "transport_socket.typed_config.common_tls_context";
    let field = "validation_context_certificate_provider";
    assert_eq!(error.path(), format!("{context}.{field}"));
}

#[test]
fn only_the_policy_that_is_used_is_checked() {
    let hash_policy = nested(&[2, 3], b"");
    let newer = ("newest.v3.Newest", &hash_policy[..]);
    let good = (MAGLEV, &[][..]);
    let bad = (MAGLEV, &hash_policy[..]);
    assert!(refuse(&policies(&[newer, good, bad]), CLUSTER, Impact::Host).is_ok());
    let error = refuse(&policies(&[newer, bad]), CLUSTER, Impact::Host).unwrap_err();
    let policy = "load_balancing_policy.policies[1].typed_extension_config.typed_config";
    assert_eq!(
        error.path(),
        format!("{policy}.consistent_hashing_lb_config.hash_policy")
    );
}

#[test]
fn other_fields_are_reported_once_where_they_are_first_set() {
    let endpoint = nested(&[1, 5], b"a name");
    let mut locality = message(2, b"");
    put_field(&mut locality, 2, &endpoint);
    put_field(&mut locality, 2, &endpoint);
    let mut assignment = message(2, &locality);
    put_field(&mut assignment, 2, &locality);
    put_field(&mut assignment, 99, b"new");
    assert_eq!(
        ignored_fields(ASSIGNMENT.name, &assignment),
        [
            "endpoints[0].lb_endpoints[1].endpoint.observability_name",
            "field 99"
        ]
    );
    assert!(refuse(&assignment, ASSIGNMENT, Impact::Request).is_ok());
    let cluster = message(28, b"stat");
    assert_eq!(ignored_fields(CLUSTER.name, &cluster), ["alt_stat_name"]);
    let route = message(12, b"");
    assert_eq!(
        ignored_fields(RouteConfigurationMessage::DESCRIPTOR.name, &route),
        ["cluster_specifier_plugins"]
    );
    assert!(ignored_fields("another.type", &cluster).is_empty());
    assert!(ignored_fields(CLUSTER.name, b"\xff").is_empty(), "broken");
}

#[test]
fn the_number_of_reported_fields_is_limited() {
    let mut cluster = Vec::new();
    for number in 1000..3000 {
        put_field(&mut cluster, number, b"");
    }
    put_field(&mut cluster, 34, b"");
    assert_eq!(
        ignored_fields(CLUSTER.name, &cluster).len(),
        MAX_REPORTED + 1
    );
    let error = refuse(&cluster, CLUSTER, Impact::Host).unwrap_err();
    assert_eq!(error.path(), "original_dst_lb_config");
}

#[test]
fn deeply_nested_policies_do_not_overflow_the_stack() {
    let mut bytes = Vec::new();
    for _ in 0..2_000 {
        let list = policies(&[("wrr_locality.v3.WrrLocality", &bytes)]);
        // The list itself, without the cluster around it, as field 1 of the parent.
        bytes = message(1, value_of(&list, 41).unwrap());
    }
    let cluster = policies(&[("wrr_locality.v3.WrrLocality", &bytes)]);
    assert!(refuse(&cluster, CLUSTER, Impact::Host).is_ok());
}

/// Returns every message that is reachable from a resource or an extension point.
fn all_descriptors() -> Vec<&'static Descriptor> {
    let resources = [
        ListenerMessage::DESCRIPTOR,
        RouteConfigurationMessage::DESCRIPTOR,
        CLUSTER,
        ASSIGNMENT,
    ];
    let extensions = [POLICIES, TRANSPORT_SOCKETS, PROTOCOL_OPTIONS];
    let mut open: Vec<_> = extensions.concat();
    open.extend(resources);
    let mut all: Vec<&'static Descriptor> = Vec::new();
    while let Some(descriptor) = open.pop() {
        if all.iter().any(|known| known.name == descriptor.name) {
            continue;
        }
        all.push(descriptor);
        for field in descriptor.fields {
            match field.kind {
                Kind::Message(inner) => open.push(inner()),
                Kind::Any(types) => open.extend(types()),
                _ => {}
            }
        }
    }
    all
}

#[test]
fn field_numbers_and_names_are_unique() {
    let all = all_descriptors();
    assert!(all.len() > 80, "{}", all.len());
    for descriptor in all {
        let supported = descriptor.fields.iter();
        let unsupported = descriptor.unsupported.iter();
        let (mut numbers, mut names): (Vec<u32>, Vec<&str>) = supported
            .map(|field| (field.number, field.name))
            .chain(unsupported.map(|field| (field.number, field.name)))
            .unzip();
        let count = numbers.len();
        numbers.sort_unstable();
        numbers.dedup();
        names.sort_unstable();
        names.dedup();
        assert_eq!(
            (numbers.len(), names.len()),
            (count, count),
            "{}",
            descriptor.name
        );
        assert!(
            count <= 64,
            "{} has more fields than the scan has counters for",
            descriptor.name
        );
    }
}
