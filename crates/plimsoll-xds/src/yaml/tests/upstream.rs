//! Whole clusters in files, and errors. `convert::cluster` tests the same clusters as messages.

use std::time::Duration;

use plimsoll_core::model::assignment::LbEndpoint;
use plimsoll_core::model::outlier_detection::{
    ConsecutiveErrors, FailurePercentageEjection, OutlierDetection, OutlierDetectionParts,
};

use crate::string_match::StringPattern;
use crate::upstream::{
    CircuitBreakers, DataSource, Discovery, DnsLookupFamily, EdsSource, HealthCheckKind,
    HttpMethod, HttpVersion, RetryBudget, SanType, TrustedCa, UpstreamCluster, UpstreamOptions,
};
use crate::yaml::parse_upstream_cluster;

pub(crate) const STATIC: &str = include_str!("../../../tests/data/upstream_static.yaml");

pub(crate) const TLS: &str = include_str!("../../../tests/data/upstream_tls.yaml");

pub(crate) const EDS: &str = include_str!("../../../tests/data/upstream_eds.yaml");

fn read(text: &str) -> UpstreamCluster {
    parse_upstream_cluster(text).unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn a_static_cluster_is_read() {
    let cluster = read(STATIC);
    assert_eq!(cluster.config.endpoint_policy().name(), "least_request");
    let options = &cluster.options;
    assert_eq!(options.discovery, Discovery::Static);
    assert_eq!(options.connect_timeout, Duration::from_millis(250));
    let breakers = CircuitBreakers {
        max_connections: 100,
        max_requests: 200,
        retry_budget: Some(RetryBudget::try_new(Some(25.0), Some(5)).unwrap()),
        ..Default::default()
    };
    assert_eq!(options.circuit_breakers, breakers);
    let outlier = OutlierDetection::try_new(OutlierDetectionParts {
        interval: Some(Duration::from_secs(5)),
        base_ejection_time: Some(Duration::from_secs(15)),
        max_ejection_percent: Some(50),
        consecutive_5xx: Some(ConsecutiveErrors {
            threshold: 3,
            enforcement_percentage: 100,
        }),
        failure_percentage_ejection: Some(FailurePercentageEjection {
            threshold: 60,
            ..Default::default()
        }),
        ..Default::default()
    });
    assert_eq!(options.outlier_detection, outlier.ok());
    assert!(options.outlier_detection.is_some());
}

#[test]
fn health_checks_of_a_static_cluster_are_read() {
    let options = read(STATIC).options;
    let [http, tcp] = &options.health_checks[..] else {
        panic!("{:?}", options.health_checks)
    };
    assert_eq!((http.unhealthy_threshold, http.healthy_threshold), (3, 2));
    let HealthCheckKind::Http(http) = &http.kind else {
        panic!("{http:?}")
    };
    assert_eq!(
        (http.path.as_str(), http.method),
        ("/healthz", HttpMethod::Head)
    );
    assert_eq!(http.host, "orders.internal");
    assert!(http.is_expected(204) && !http.is_expected(205));
    let header = ("x-check".to_owned(), "yes".to_owned());
    assert_eq!(http.request_headers_to_add, [header]);
    let HealthCheckKind::Tcp { send, receive } = &tcp.kind else {
        panic!("{tcp:?}")
    };
    assert_eq!(send.as_deref(), Some(&b"PING"[..]));
    assert_eq!(receive[..], ["PONG"]);
}

#[test]
fn endpoints_of_a_static_cluster_are_read() {
    let assignment = read(STATIC).load_assignment.unwrap();
    let endpoints = assignment.resolve(|_| &[]).unwrap();
    let resolved = endpoints.assignment;
    assert_eq!(resolved.overprovisioning_factor(), 150);
    assert_eq!(resolved.drop_overloads()[0].per_million, 50_000);
    let [locality] = resolved.endpoints() else {
        panic!("{resolved:?}")
    };
    assert_eq!(
        (locality.locality.zone(), locality.load_balancing_weight),
        ("a", 2)
    );
    let weights: Vec<_> = locality
        .lb_endpoints
        .iter()
        .map(LbEndpoint::weight)
        .collect();
    assert_eq!(weights, [3, 1]);
    let extras = &endpoints.extras[&"10.0.0.1:8080".parse().unwrap()];
    assert_eq!(extras.health_check_port, Some(8081));
    let additional = ["[::1]:8080".parse().unwrap()];
    assert_eq!(extras.additional_addresses, additional);
}

#[test]
fn a_cluster_with_dns_and_tls_is_read() {
    let cluster = read(TLS);
    let options = &cluster.options;
    let Discovery::StrictDns(dns) = &options.discovery else {
        panic!("{options:?}")
    };
    assert_eq!(dns.refresh_rate, Duration::from_secs(30));
    assert_eq!(dns.lookup_family, DnsLookupFamily::V4Only);
    assert_eq!(options.http_version, HttpVersion::Http2);
    assert_eq!(options.http2.max_concurrent_streams, Some(100));
    assert_eq!(
        options.http2.keepalive_timeout,
        Some(Duration::from_secs(5))
    );
    assert_eq!(options.idle_timeout, Some(Duration::from_secs(60)));
    assert_eq!(options.max_requests_per_connection, Some(1000));
    assert!(options.auto_sni && options.auto_san_validation);
    let keepalive = options.tcp_keepalive.unwrap();
    assert_eq!(keepalive.time, Some(Duration::from_secs(300)));
    let tls = options.tls.as_ref().unwrap();
    assert_eq!(
        (tls.sni.as_str(), &tls.alpn[..]),
        ("payments.example", &["h2".to_owned()][..])
    );
    let ca = DataSource::Filename("/etc/certs/ca.pem".into());
    assert_eq!(tls.ca, TrustedCa::Pem(ca));
    let key = &tls.certificate.as_ref().unwrap().private_key;
    assert_eq!(*key, DataSource::Inline("secret".into()));
    let san = &tls.match_subject_alt_names[0];
    assert_eq!(san.san_type, Some(SanType::Dns));
    assert_eq!(
        san.matcher.pattern,
        StringPattern::Suffix(".example".into())
    );
}

#[test]
fn an_eds_cluster_is_read() {
    let cluster = read(EDS);
    let options = &cluster.options;
    assert_eq!(cluster.eds_name(), Some("users-v2"));
    assert!(options.lrs);
    assert_eq!(options.http_version, HttpVersion::Http2);
    assert_eq!(options.idle_timeout, None);
    assert_eq!(options.max_requests_per_connection, Some(5));
    let HealthCheckKind::Grpc {
        service_name,
        authority,
        ..
    } = &options.health_checks[0].kind
    else {
        panic!("{options:?}")
    };
    assert_eq!((service_name.as_str(), authority.as_str()), ("users", "u"));
    let file = EDS.replace("ads: {}", "path_config_source: {path: eds.yaml}");
    let Discovery::Eds { source, .. } = read(&file).options.discovery else {
        panic!("{file}")
    };
    assert_eq!(source, EdsSource::Path("eds.yaml".into()));
}

#[test]
fn unset_fields_have_defaults() {
    let text = "name: x\nload_assignment: {cluster_name: x}\n";
    assert_eq!(read(text).options, UpstreamOptions::default());
}

/// Asserts the full path and the location of the rejected field.
#[test]
fn unsupported_fields_are_rejected() {
    const HTTP: &str =
        "typed_extension_protocol_options[envoy.extensions.upstreams.http.v3.HttpProtocolOptions]";
    let cases = [
        (
            EDS,
            "lrs_server:",
            "lb_subset_config: {keys: []}\nlrs_server:",
            "lb_subset_config.keys",
        ),
        (
            EDS,
            "lrs_server:",
            "preconnect_policy: {}\nlrs_server:",
            "preconnect_policy",
        ),
        (
            EDS,
            "lrs_server:",
            "transport_socket_matches: [{name: a}]\nlrs_server:",
            "transport_socket_matches",
        ),
        (
            EDS,
            "lrs_server:",
            "upstream_bind_config: {}\nlrs_server:",
            "upstream_bind_config",
        ),
        (EDS, "type: EDS", "type: ORIGINAL_DST", "type"),
        (EDS, "{self: {}}", "{ads: {}}", "lrs_server"),
        (EDS, "ads: {}, ", "", "eds_cluster_config.eds_config"),
        (EDS, "type: EDS", "type: STATIC", "eds_cluster_config"),
        (
            EDS,
            "interval: 10s",
            "interval: 0s",
            "health_checks[0].interval",
        ),
        (
            EDS,
            "authority: u",
            "x: u",
            "health_checks[0].grpc_health_check.x",
        ),
        (
            STATIC,
            "path: /healthz",
            "path: ''",
            "health_checks[0].http_health_check.path",
        ),
        (
            STATIC,
            "end: 205",
            "end: 700",
            "health_checks[0].http_health_check.expected_statuses[0]",
        ),
        (
            STATIC,
            "50494e47",
            "5049g",
            "health_checks[1].tcp_health_check.send.text",
        ),
        (
            STATIC,
            "max_requests: 200",
            "max_connection_pools: 1",
            "circuit_breakers.thresholds[0].max_connection_pools",
        ),
        (
            STATIC,
            "value: 25.0",
            "value: 250",
            "circuit_breakers.thresholds[0].retry_budget.budget_percent",
        ),
        (
            STATIC,
            "consecutive_5xx: 3",
            "split_external_local_origin_errors: true",
            "outlier_detection.split_external_local_origin_errors",
        ),
        (
            STATIC,
            "percent: 50",
            "percent: 500",
            "outlier_detection.max_ejection_percent",
        ),
        (
            STATIC,
            "connect_timeout: 0.25s",
            "connect_timeout: 0s",
            "connect_timeout",
        ),
        (
            STATIC,
            "10.0.0.2",
            "host.example",
            "load_assignment.endpoints[0].lb_endpoints[1].endpoint.address.socket_address.address",
        ),
        (
            STATIC,
            "health_check_config: {port_value: 8081}",
            "health_check_config: {port_value: 70000}",
            "load_assignment.endpoints[0].lb_endpoints[0].endpoint.health_check_config.port_value",
        ),
        (
            TLS,
            "sni: payments.example",
            "allow_renegotiations: true",
            "transport_socket.typed_config.allow_renegotiations",
        ),
        (
            TLS,
            "alpn_protocols: [h2]",
            "tls_params: {}",
            "transport_socket.typed_config.common_tls_context.tls_params",
        ),
        (
            TLS,
            "inline_string: secret",
            "filename: a, inline_string: b",
            "transport_socket.typed_config.common_tls_context.tls_certificates[0].private_key",
        ),
        (
            TLS,
            "        trusted_ca: {filename: /etc/certs/ca.pem}\n",
            "",
            "transport_socket.typed_config.common_tls_context.validation_context.trusted_ca",
        ),
        (
            TLS,
            "v3.UpstreamTlsContext",
            "v3.DownstreamTlsContext",
            "transport_socket.typed_config.@type",
        ),
    ];
    for (text, from, to, path) in cases {
        assert!(text.contains(from), "{from}");
        let error = parse_upstream_cluster(&text.replace(from, to)).unwrap_err();
        assert_eq!(error.path(), path, "{error}");
        assert!(error.location().is_some(), "{error}");
    }
    let text = TLS.replace("explicit_http_config:", "auto_config:");
    let error = parse_upstream_cluster(&text).unwrap_err();
    assert_eq!(error.path(), format!("{HTTP}.explicit_http_config"));
    let text = format!("{TLS}http2_protocol_options: {{}}\n");
    let error = parse_upstream_cluster(&text).unwrap_err();
    assert_eq!(error.path(), "http2_protocol_options");
}

/// Truncated text yields a cluster or an error, never a panic.
#[test]
fn truncated_files_never_panic() {
    for text in [STATIC, TLS, EDS] {
        for (index, _) in text.char_indices().step_by(11) {
            for part in [&text[..index], &text[index..]] {
                if let Err(error) = parse_upstream_cluster(part) {
                    assert!(!error.reason().is_empty());
                }
            }
        }
    }
}
