//! The walk, and the tables against the declarations in `pb`.

use prost::Message;

use super::super::field::put_field;
use super::super::pb;
use super::*;

/// A message with one field that has a length.
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

/// `load_balancing_policy` with these types.
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

const LEAST_REQUEST: &str = "least_request.v3.LeastRequest";

#[test]
fn fields_that_change_the_host_are_refused_by_everybody() {
    let full_scan = policies(&[(LEAST_REQUEST, &message(5, b"\x08\x01"))]);
    let endpoints = nested(&[2, 7], b"");
    let place = "load_balancing_policy.policies[0].typed_extension_config.typed_config";
    for (bytes, kind, path) in [
        (full_scan, &CLUSTER, format!("{place}.enable_full_scan")),
        (
            nested(&[27, 7, 3], b""),
            &CLUSTER,
            "common_lb_config.consistent_hashing_lb_config.hash_policy".into(),
        ),
        (
            nested(&[19, 26], b"\x08\x01"),
            &CLUSTER,
            "outlier_detection.detect_degraded_hosts".into(),
        ),
        (
            endpoints,
            &ASSIGNMENT,
            "endpoints[0].load_balancer_endpoints".into(),
        ),
    ] {
        let error = refuse(&bytes, kind, Class::Host).unwrap_err();
        assert_eq!(error.path(), path);
        assert!(error.reason().contains("which host"), "{error}");
    }
    // False, the default.
    assert!(refuse(&nested(&[19, 26], b""), &CLUSTER, Class::Host).is_ok());
}

#[test]
fn fields_of_connections_are_refused_by_those_who_connect() {
    let bytes = nested(&[24, 3], &{
        let tls = "x/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext";
        let mut any = message(1, tls.as_bytes());
        put_field(&mut any, 2, &nested(&[1, 10], b""));
        any
    });
    assert!(refuse(&bytes, &CLUSTER, Class::Host).is_ok());
    let error = refuse(&bytes, &CLUSTER, Class::Request).unwrap_err();
    let context = "transport_socket.typed_config.common_tls_context";
    let field = "validation_context_certificate_provider";
    assert_eq!(error.path(), format!("{context}.{field}"));
}

#[test]
fn of_a_list_only_the_policy_that_is_used_counts() {
    let scan = message(5, b"\x08\x01");
    let newer = ("newest.v3.Newest", &scan[..]);
    let good = (LEAST_REQUEST, &[][..]);
    let bad = (LEAST_REQUEST, &scan[..]);
    assert!(refuse(&policies(&[newer, good, bad]), &CLUSTER, Class::Host).is_ok());
    let error = refuse(&policies(&[newer, bad]), &CLUSTER, Class::Host).unwrap_err();
    let place = "load_balancing_policy.policies[1].typed_extension_config.typed_config";
    assert_eq!(error.path(), format!("{place}.enable_full_scan"));
}

/// Which policy of a list is used must be decided here as it is where lists are decoded.
#[test]
fn every_supported_policy_has_a_table() {
    let names = policy::POLICIES.iter().map(|(name, _)| *name);
    let mut names: Vec<&str> = names.filter_map(|name| name.split('.').next()).collect();
    let supported = super::super::cluster::SUPPORTED_POLICIES;
    let mut supported: Vec<&str> = supported.split(", ").collect();
    names.sort_unstable();
    supported.sort_unstable();
    assert_eq!(names, supported);
}

#[test]
fn everything_else_is_reported_once_at_its_first_place() {
    let endpoint = nested(&[1, 5], b"a name");
    let mut locality = message(2, b"");
    put_field(&mut locality, 2, &endpoint);
    put_field(&mut locality, 2, &endpoint);
    let mut assignment = message(2, &locality);
    put_field(&mut assignment, 2, &locality);
    put_field(&mut assignment, 99, b"new");
    assert_eq!(
        ignored_fields(ads::CLUSTER_LOAD_ASSIGNMENT, &assignment),
        [
            "endpoints[0].lb_endpoints[1].endpoint.observability_name",
            "field 99"
        ]
    );
    assert!(refuse(&assignment, &ASSIGNMENT, Class::Request).is_ok());
    let cluster = message(28, b"stat");
    assert_eq!(ignored_fields(ads::CLUSTER, &cluster), ["alt_stat_name"]);
    let route = message(12, b"");
    assert_eq!(
        ignored_fields(ads::ROUTE_CONFIGURATION, &route),
        ["cluster_specifier_plugins"]
    );
    assert!(ignored_fields("another.type", &cluster).is_empty());
    assert!(ignored_fields(ads::CLUSTER, b"\xff").is_empty(), "broken");
}

#[test]
fn a_flood_of_fields_costs_no_memory() {
    let mut cluster = Vec::new();
    for number in 1000..3000 {
        put_field(&mut cluster, number, b"");
    }
    put_field(&mut cluster, 34, b"");
    assert_eq!(
        ignored_fields(ads::CLUSTER, &cluster).len(),
        MAX_IGNORED + 1
    );
    let error = refuse(&cluster, &CLUSTER, Class::Host).unwrap_err();
    assert_eq!(error.path(), "original_dst_lb_config");
}

#[test]
fn policies_in_policies_without_end_are_no_harm() {
    let mut bytes = Vec::new();
    for _ in 0..2_000 {
        let list = policies(&[("wrr_locality.v3.WrrLocality", &bytes)]);
        // The list without its place in a cluster, as field 1 of the parent.
        bytes = message(1, value_of(&list, 41).unwrap());
    }
    let cluster = policies(&[("wrr_locality.v3.WrrLocality", &bytes)]);
    assert!(refuse(&cluster, &CLUSTER, Class::Host).is_ok());
}

/// Whether `M` declares a field: `a` is no message, no number and a good string, so what is
/// declared is either an error or kept.
fn declares<M: Message + Default>(number: u32) -> bool {
    match M::decode(&message(number, b"a")[..]) {
        Err(_) => true,
        Ok(read) => !read.encode_to_vec().is_empty(),
    }
}

/// Fields that are in a table to be let pass although nothing is decoded of them: they are errors
/// where they stand alone, or say what is so anyway.
const LET_PASS: [&str; 11] = [
    "api_config_source",
    "auto_config",
    "codec_type",
    "custom_health_check",
    "detect_degraded_hosts",
    "envoy_internal_address",
    "http3_protocol_options",
    "named_port",
    "pipe",
    "require_signed_certificate_timestamp",
    "use_downstream_protocol_config",
];

fn agree(kind: &Kind, declares: &[fn(u32) -> bool]) {
    let read = |number: u32| kind.read.iter().find(|entry| entry.0 == number);
    for number in (1..120).chain(50_001..50_020) {
        let declared = declares.iter().any(|declares| declares(number));
        match read(number) {
            Some((_, name, _)) if LET_PASS.contains(name) => {}
            Some((_, name, _)) => assert!(declared, "{name} is not declared"),
            None => assert!(!declared, "field {number} beside {:?} is", kind.read[0].1),
        }
    }
    let rest = kind.unread.iter().map(|entry| entry.0);
    let rest = rest.chain(kind.refused.iter().map(|entry| entry.0));
    let mut all: Vec<u32> = rest.chain(kind.read.iter().map(|entry| entry.0)).collect();
    let count = all.len();
    all.sort_unstable();
    all.dedup();
    assert_eq!(all.len(), count, "a number stands twice: {all:?}");
}

macro_rules! agree {
    ($($kind:path: $($message:path)|+;)+) => {
        $(agree(&$kind, &[$(declares::<$message>),+]);)+
    };
}

#[test]
fn the_tables_are_what_is_declared() {
    use pb::cluster as c;
    use pb::endpoint as e;
    use pb::policy as p;
    use pb::tls as t;
    use pb::upstream as u;
    agree! {
        CLUSTER: c::ClusterMessage | u::UpstreamClusterMessage | Http1Message;
        cluster::COMMON_LB_CONFIG: c::CommonLbConfigMessage;
        cluster::LEGACY_ZONE_AWARE: c::LegacyZoneAwareMessage;
        cluster::ROUND_ROBIN_LB_CONFIG: c::RoundRobinLbConfigMessage;
        cluster::LEAST_REQUEST_LB_CONFIG: c::LeastRequestLbConfigMessage;
        cluster::RING_HASH_LB_CONFIG: c::RingHashLbConfigMessage;
        cluster::MAGLEV_LB_CONFIG: c::MaglevLbConfigMessage;
        cluster::CONFIG_SOURCE: pb::ConfigSourceMessage;
        cluster::CIRCUIT_BREAKERS: u::CircuitBreakersMessage;
        cluster::THRESHOLDS: u::ThresholdsMessage;
        cluster::RETRY_BUDGET: u::RetryBudgetMessage;
        cluster::OUTLIER_DETECTION: u::OutlierDetectionMessage;
        cluster::HEALTH_CHECK: u::HealthCheckMessage;
        cluster::HTTP_CHECK: u::HttpCheckMessage;
        cluster::TCP_CHECK: u::TcpCheckMessage;
        cluster::GRPC_CHECK: u::GrpcCheckMessage;
        cluster::CONNECTION_OPTIONS: u::ConnectionOptionsMessage;
        cluster::TCP_KEEPALIVE: u::TcpKeepaliveMessage;
        cluster::HTTP_OPTIONS: u::HttpProtocolOptionsMessage;
        cluster::EXPLICIT_HTTP: u::ExplicitHttpConfigMessage;
        cluster::HTTP2: u::Http2Message;
        cluster::KEEPALIVE: u::KeepaliveMessage;
        cluster::COMMON_HTTP: u::CommonHttpMessage;
        cluster::UPSTREAM_HTTP: u::UpstreamHttpMessage;
        tls::UPSTREAM_TLS: t::UpstreamTlsMessage;
        tls::COMMON_TLS: t::CommonTlsMessage;
        tls::TLS_CERTIFICATE: t::TlsCertificateMessage;
        tls::VALIDATION: t::ValidationMessage;
        tls::SUBJECT_ALT_NAME_MATCHER: t::SanMatcherMessage;
        policy::LOAD_BALANCING_POLICY: p::LoadBalancingPolicyMessage;
        policy::ROUND_ROBIN: p::RoundRobinMessage;
        policy::LEAST_REQUEST: p::LeastRequestMessage;
        policy::RANDOM: p::RandomMessage;
        policy::RING_HASH: p::RingHashMessage;
        policy::MAGLEV: p::MaglevMessage;
        policy::WRR_LOCALITY: p::WrrLocalityMessage;
        policy::CLIENT_SIDE_WEIGHTED_ROUND_ROBIN: p::ClientSideWeightedRoundRobinMessage;
        policy::LOAD_AWARE_LOCALITY: p::LoadAwareLocalityMessage;
        policy::OOB_REPORTING: p::OobReportingConfigMessage;
        policy::LOCALITY_LB_CONFIG: p::LocalityLbConfigMessage;
        policy::ZONE_AWARE: p::ZoneAwareMessage;
        policy::FORCE_LOCAL_ZONE: p::ForceLocalZoneMessage;
        policy::LRS_RATE: p::LrsRateConfigMessage;
        policy::SLOW_START: p::SlowStartMessage;
        policy::CONSISTENT_HASHING: p::ConsistentHashingMessage;
        policy::RUNTIME_DOUBLE: p::RuntimeDoubleMessage;
        ASSIGNMENT: e::AssignmentMessage | e::ExtrasMessage;
        endpoint::POLICY: e::AssignmentPolicyMessage;
        endpoint::DROP_OVERLOAD: e::DropOverloadMessage;
        endpoint::LOCALITY_LB_ENDPOINTS: e::LocalityLbEndpointsMessage;
        endpoint::LB_ENDPOINT: e::LbEndpointMessage;
        endpoint::ENDPOINT: e::EndpointMessage | e::EndpointExtrasMessage;
        endpoint::HEALTH_CHECK_CONFIG: e::HealthCheckConfigMessage;
        endpoint::ADDITIONAL_ADDRESS: e::AdditionalAddressMessage;
        endpoint::ADDRESS: pb::AddressMessage;
        endpoint::SOCKET_ADDRESS: pb::SocketAddressMessage;
    }
}

/// `http_protocol_options` of a cluster says HTTP/1.1, which is the default.
#[derive(Clone, PartialEq, Eq, Message)]
struct Http1Message {
    #[prost(message, optional, tag = "13")]
    http_protocol_options: Option<()>,
}
