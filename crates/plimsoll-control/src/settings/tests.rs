//! Settings of clusters in files, and what each class of nodes is sent.

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::Bytes;
use plimsoll_xds::pb::tls::UpstreamTlsMessage;
use plimsoll_xds::schema::field::raw_fields;
use plimsoll_xds::schema::{Described as _, Descriptor, Kind, Label, by_name};
use plimsoll_xds::wire::{decode_cluster, decode_upstream_cluster};
use plimsoll_xds::yaml::Document;

use super::*;
use crate::config::{ConfigFile, ControlConfig};
use crate::delivery::{NodeClass, steering};
use crate::view::cluster::encode;

const HTTP: &str = "typed_extension_protocol_options: \
                    {envoy.extensions.upstreams.http.v3.HttpProtocolOptions: {'@type': \
                    type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions";
const TLS: &str = "name: envoy.transport_sockets.tls, typed_config: {'@type': type.googleapis.com/\
                   envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext";

fn config(cluster: &str) -> Result<Arc<ControlConfig>, String> {
    let file = ConfigFile {
        name: "control.yaml".to_owned(),
        text: format!("services: [{{cluster: {{name: orders, {cluster}}}}}]"),
    };
    let config = ControlConfig::parse(&file, &[]).map_err(|error| error.to_string())?;
    Ok(Arc::new(config))
}

/// Returns the cluster that nodes of a class are sent.
fn sent(cluster: &str, class: NodeClass) -> Bytes {
    let config = config(cluster).unwrap_or_else(|error| panic!("{error}\n{cluster}"));
    let service = &config.services["orders"];
    encode(service, class, steering(service, class))
}

fn settings_sent(cluster: &str, class: NodeClass) -> ClusterMessage {
    of_cluster(ClusterMessage::decode(sent(cluster, class)).unwrap())
}

/// Decodes the settings of a cluster without the control plane.
fn decoded(cluster: &str) -> ClusterMessage {
    let document = Document::parse(&format!("{{{cluster}}}")).unwrap();
    let yaml: ClusterYaml = document.read().unwrap();
    of_cluster(ClusterMessage::decode(yaml.bytes().clone()).unwrap())
}

fn refused(cluster: &str) -> String {
    match config(cluster) {
        Ok(_) => panic!("accepted: {cluster}"),
        Err(error) => error,
    }
}

/// Clusters that have every declared setting at least once.
fn samples() -> Vec<String> {
    let check = "timeout: 1s, interval: 2s, unhealthy_threshold: 2, healthy_threshold: 1";
    let ads =
        "{name: s, sds_config: {ads: {}, resource_api_version: V3, initial_fetch_timeout: 3s}}";
    let path = "{name: s, sds_config: {path_config_source: {path: /s.yaml, watched_directory: \
                {path: /d}}}}";
    let agent = "{name: s, sds_config: {path: /s.yaml, self: {}, api_config_source: {api_type: \
                 GRPC, transport_api_version: V3, set_node_on_first_message_only: true, \
                 cluster_names: [c], grpc_services: [{envoy_grpc: {cluster_name: agent, \
                 authority: a}, timeout: 1s}]}}}";
    let matchers = "[{exact: a}, {prefix: a, ignore_case: true}, {suffix: a}, {contains: a}, \
                    {safe_regex: {regex: a}}]";
    let http2 = "hpack_table_size: 4096, max_concurrent_streams: 7, initial_stream_window_size: \
                 65535, initial_connection_window_size: 65536, allow_connect: true, \
                 allow_metadata: true, max_outbound_frames: 1, max_outbound_control_frames: 2, \
                 max_consecutive_inbound_frames_with_empty_payload: 3, \
                 max_inbound_priority_frames_per_stream: 4, \
                 max_inbound_window_update_frames_per_data_frame_sent: 5, \
                 override_stream_error_on_invalid_http_message: true, connection_keepalive: \
                 {interval: 30s, timeout: 5s, connection_idle_interval: 10s}";
    let http1 = "enable_trailers: true, allow_chunked_length: true, \
                 override_stream_error_on_invalid_http_message: true, \
                 send_fully_qualified_url: true";
    let limits = "max_connections: 1, max_pending_requests: 2, max_requests: 3, max_retries: 4, \
                  track_remaining: true, max_connection_pools: 5, retry_budget: {budget_percent: \
                  {value: 10}, min_retry_concurrency: 2, budget_interval: 1s}";
    vec![
        format!(
            "health_checks: [{{{check}, interval_jitter: 1s, alt_port: 8080, reuse_connection: \
             false, no_traffic_interval: 10s, unhealthy_interval: 3s, unhealthy_edge_interval: 4s, \
             healthy_edge_interval: 5s, interval_jitter_percent: 6, \
             always_log_health_check_failures: true, initial_jitter: 1s, tls_options: \
             {{alpn_protocols: [h2]}}, no_traffic_healthy_interval: 20s, \
             always_log_health_check_success: true, http_health_check: {{host: h, path: /healthz, \
             send: {{text: '00'}}, receive: [{{binary: AAAA}}], request_headers_to_add: [{{header: \
             {{key: a, value: b}}, append_action: ADD_IF_ABSENT, keep_empty_value: true}}], \
             request_headers_to_remove: [c], expected_statuses: [{{start: 200, end: 300}}], \
             codec_client_type: HTTP2, service_name_matcher: {{exact: a}}, retriable_statuses: \
             [{{start: 500, end: 501}}], method: POST, response_buffer_size: 10}}}}, {{{check}, \
             tcp_health_check: {{send: {{text: '01'}}, receive: [{{text: '02'}}]}}}}, {{{check}, \
             grpc_health_check: {{service_name: s, authority: a, initial_metadata: [{{append: \
             true, header: {{key: a, raw_value: AAAA}}}}]}}}}], {HTTP}, \
             explicit_http_config: {{http2_protocol_options: \
             {{{http2}}}}}, upstream_http_protocol_options: {{auto_sni: true, \
             override_auto_sni_header: x-host}}, common_http_protocol_options: {{idle_timeout: \
             30s, max_headers_count: 50, max_connection_duration: 60s, max_stream_duration: 10s, \
             headers_with_underscores_action: DROP_HEADER, max_requests_per_connection: 100, \
             max_response_headers_kb: 70}}}}}}"
        ),
        format!(
            "outlier_detection: {{consecutive_5xx: 3, interval: 1s, base_ejection_time: 2s, \
             max_ejection_percent: 50, enforcing_consecutive_5xx: 90, enforcing_success_rate: 80, \
             success_rate_minimum_hosts: 3, success_rate_request_volume: 20, \
             success_rate_stdev_factor: 1800, consecutive_gateway_failure: 4, \
             enforcing_consecutive_gateway_failure: 70, split_external_local_origin_errors: true, \
             consecutive_local_origin_failure: 6, enforcing_consecutive_local_origin_failure: 60, \
             enforcing_local_origin_success_rate: 55, failure_percentage_threshold: 40, \
             enforcing_failure_percentage: 30, enforcing_failure_percentage_local_origin: 20, \
             failure_percentage_minimum_hosts: 2, failure_percentage_request_volume: 9, \
             max_ejection_time: 90s, max_ejection_time_jitter: 1s, \
             successful_active_health_check_uneject_host: false, always_eject_one_host: true}}, \
             circuit_breakers: {{thresholds: [{{priority: HIGH, {limits}}}, {{{limits}}}], \
             per_host_thresholds: [{{max_connections: 9}}]}}, connect_timeout: 0.5s, \
             per_connection_buffer_limit_bytes: 32768, \
             per_connection_buffer_high_watermark_timeout: 7s, metadata: {{filter_metadata: \
             {{com.example: {{team: shop, tier: 1}}}}}}, alt_stat_name: o, \
             ignore_health_on_host_removal: true, close_connections_on_host_health_failure: true, \
             track_timeout_budgets: true, track_cluster_stats: {{timeout_budgets: true, \
             request_response_sizes: true, per_endpoint_stats: true}}, preconnect_policy: \
             {{per_upstream_preconnect_ratio: 1.5, predictive_preconnect_ratio: 2}}, \
             connection_pool_per_downstream_connection: true, wait_for_warm_on_init: false, \
             upstream_bind_config: {{source_address: {{address: 127.0.0.2, port_value: 0, \
             protocol: TCP}}, freebind: true}}, upstream_connection_options: {{tcp_keepalive: \
             {{keepalive_probes: 3, keepalive_time: 30, keepalive_interval: 5}}, \
             set_local_interface_name_on_upstream_connections: true}}, common_lb_config: \
             {{update_merge_window: 2s, ignore_new_hosts_until_first_hc: true, \
             close_connections_on_host_set_change: true, override_host_status: {{statuses: \
             [UNKNOWN, HEALTHY, DRAINING]}}}}, lrs_report_endpoint_metrics: [cpu_utilization], \
             {HTTP}, explicit_http_config: {{http_protocol_options: {{{http1}}}}}, \
             upstream_http_protocol_options: {{auto_sni: true}}}}}}"
        ),
        format!(
            "transport_socket: {{{TLS}, sni: orders.internal, allow_renegotiation: true, \
             max_session_keys: 2, enforce_rsa_key_usage: true, auto_host_sni: true, \
             auto_sni_san_validation: true, common_tls_context: {{tls_params: \
             {{tls_minimum_protocol_version: TLSv1_2, tls_maximum_protocol_version: TLSv1_3, \
             cipher_suites: [a], ecdh_curves: [b], signature_algorithms: [c]}}, tls_certificates: \
             [{{certificate_chain: {{filename: /c.pem, watched_directory: {{path: /d}}}}, \
             private_key: {{environment_variable: KEY}}, password: {{inline_string: p}}, \
             watched_directory: {{path: /d}}}}], alpn_protocols: [h2], validation_context: \
             {{trusted_ca: {{inline_bytes: AAAA}}, verify_certificate_hash: [{hash}], \
             verify_certificate_spki: [{spki}], match_subject_alt_names: {matchers}, crl: \
             {{filename: /crl.pem}}, allow_expired_certificate: true, trust_chain_verification: \
             ACCEPT_UNTRUSTED, watched_directory: {{path: /d}}, ca_certificate_provider_instance: \
             {{instance_name: i, certificate_name: c}}, only_verify_leaf_cert_crl: true, \
             match_typed_subject_alt_names: [{{san_type: DNS, matcher: {{exact: a}}}}], \
             max_verify_depth: 1, system_root_certs: {{}}}}, tls_certificate_provider_instance: \
             {{instance_name: i}}}}}}}}, {HTTP}, auto_config: {{http_protocol_options: {{}}, \
             http2_protocol_options: {{}}}}, upstream_http_protocol_options: \
             {{auto_san_validation: true}}}}}}",
            hash = "ab".repeat(32),
            spki = "a".repeat(44),
        ),
        format!(
            "transport_socket: {{{TLS}, common_tls_context: {{tls_certificate_sds_secret_configs: \
             [{ads}], validation_context_sds_secret_config: {path}}}}}}}, \
             transport_socket_matches: [{{name: m, match: {{secure: true}}, transport_socket: \
             {{{TLS}, common_tls_context: {{combined_validation_context: \
             {{default_validation_context: {{match_typed_subject_alt_names: [{{san_type: URI, \
             matcher: {{exact: a}}}}]}}, validation_context_sds_secret_config: \
             {agent}}}}}}}}}}}], {HTTP}, use_downstream_protocol_config: {{http_protocol_options: \
             {{}}, http2_protocol_options: {{}}}}}}}}"
        ),
    ]
}

#[test]
fn envoys_are_sent_all_settings_as_written() {
    for sample in samples() {
        for class in [NodeClass::Envoy, NodeClass::EnvoyModule] {
            let written = decoded(&sample);
            let mut got = settings_sent(&sample, class);
            if written.common_lb_config.is_none() {
                // Set for Envoys before 1.40, unless the file has a value.
                got.common_lb_config = None;
            }
            assert_eq!(got, written, "{class:?}");
        }
    }
}

/// Visits the fields that a message has, with the name of the message.
fn visit(bytes: &[u8], descriptor: &'static Descriptor, seen: &mut BTreeSet<(String, String)>) {
    for raw in raw_fields(bytes) {
        let raw = raw.unwrap();
        let field = descriptor.field(raw.number).unwrap();
        seen.insert((descriptor.name.to_owned(), field.name.to_owned()));
        let value = match field.label {
            Label::Map => {
                let mut entry = raw_fields(raw.value).map(Result::unwrap);
                entry.find(|part| part.number == 2).unwrap().value
            }
            Label::One | Label::Many => raw.value,
        };
        match field.kind {
            Kind::Message(inner) => visit(value, inner(), seen),
            Kind::Any(_) => {
                let any = AnyMessage::decode(value).unwrap();
                visit(&any.value, by_name(any.type_name()).unwrap(), seen);
            }
            _ => {}
        }
    }
}

/// Adds all fields that a message can have.
fn declared(descriptor: &'static Descriptor, all: &mut BTreeSet<(String, String)>) {
    for field in descriptor.fields {
        let is_cluster = descriptor.name == ClusterMessage::DESCRIPTOR.name;
        let is_setting = !LOAD_BALANCING.contains(&field.name)
            && !NOT_DELIVERED.contains(&field.name)
            || field.name == "common_lb_config";
        let name = (descriptor.name.to_owned(), field.name.to_owned());
        if is_cluster && !is_setting || !all.insert(name) {
            continue;
        }
        match field.kind {
            Kind::Message(inner) => declared(inner(), all),
            Kind::Any(types) => types().iter().for_each(|inner| declared(inner, all)),
            _ => {}
        }
    }
}

#[test]
fn the_samples_have_every_declared_setting() {
    let mut seen = BTreeSet::new();
    for sample in samples() {
        let document = Document::parse(&format!("{{{sample}}}")).unwrap();
        let yaml: ClusterYaml = document.read().unwrap();
        visit(yaml.bytes(), ClusterMessage::DESCRIPTOR, &mut seen);
    }
    let mut all = BTreeSet::new();
    declared(ClusterMessage::DESCRIPTOR, &mut all);
    assert!(all.len() > 200, "{}", all.len());
    let missing: Vec<_> = all
        .difference(&seen)
        .map(|(message, field)| {
            let message = message.rsplit('.').next().unwrap_or_default();
            format!("{message}.{field}")
        })
        // Load balancing, the type, deprecated HTTP options (which become typed ones) and fields
        // that are read only to be refused.
        .filter(|name| {
            let other = [
                "CommonLbConfig.consistent_hashing_lb_config",
                "CommonLbConfig.healthy_panic_threshold",
                "CommonLbConfig.locality_weighted_lb_config",
                "CommonLbConfig.zone_aware_lb_config",
                "Cluster.type",
                "Cluster.common_http_protocol_options",
                "Cluster.http2_protocol_options",
                "Cluster.http_protocol_options",
                "Cluster.max_requests_per_connection",
                "Cluster.upstream_http_protocol_options",
                "OutlierDetection.monitors",
            ];
            let policies = ["ConsistentHashingLbConfig.", "ZoneAwareLbConfig."];
            !other.contains(&&**name) && !policies.iter().any(|policy| name.starts_with(policy))
        })
        .collect();
    assert_eq!(missing, [""; 0]);
}

#[test]
fn deprecated_http_options_become_typed_ones_and_keep_their_protocol() {
    let options = |cluster: &str| {
        let message = settings_sent(cluster, NodeClass::Envoy);
        assert!(message.http2_protocol_options.is_none());
        assert!(message.common_http_protocol_options.is_none());
        http_options(&message).unwrap().unwrap()
    };
    let idle = "common_http_protocol_options: {idle_timeout: 30s}";
    let deprecated = options(&format!(
        "{idle}, http2_protocol_options: {{max_concurrent_streams: 7}}, \
         max_requests_per_connection: 9"
    ));
    let beside = options(&format!(
        "http2_protocol_options: {{max_concurrent_streams: 7}}, {HTTP}, \
         common_http_protocol_options: {{idle_timeout: 30s, max_requests_per_connection: 9}}}}}}"
    ));
    assert_eq!(deprecated, beside);
    let explicit = beside.explicit_http_config.unwrap();
    let http2 = explicit.http2_protocol_options.unwrap();
    assert_eq!(http2.max_concurrent_streams, Some(7));
    for without_protocol in [idle.to_owned(), format!("{HTTP}, {idle}}}}}")] {
        let options = options(&without_protocol);
        let explicit = options.explicit_http_config.unwrap();
        assert!(
            explicit.http_protocol_options.is_some(),
            "{without_protocol}"
        );
        assert!(options.common_http_protocol_options.is_some());
    }
    let error = refused(&format!(
        "http2_protocol_options: {{}}, {HTTP}, explicit_http_config: {{http_protocol_options: \
         {{}}}}}}}}"
    ));
    assert!(
        error.contains("http2_protocol_options: cannot be combined"),
        "{error}"
    );
}

const ALL_OF_GRPC: &str = "connect_timeout: 1s, health_checks: [{timeout: 1s, interval: 2s, \
     unhealthy_threshold: 2, healthy_threshold: 1, tcp_health_check: {}}], outlier_detection: \
     {interval: 1s, consecutive_5xx: 3, failure_percentage_threshold: 50, \
     enforcing_failure_percentage: 100}, circuit_breakers: {thresholds: [{priority: HIGH, \
     max_requests: 1}, {max_requests: 100, max_connections: 5}]}, metadata: {filter_metadata: {a: \
     {b: c}}}";

#[test]
fn grpc_clients_are_sent_what_they_know() {
    let got = settings_sent(ALL_OF_GRPC, NodeClass::Grpc);
    let expected = decoded(
        "outlier_detection: {interval: 1s, failure_percentage_threshold: 50, \
         enforcing_failure_percentage: 100, success_rate_minimum_hosts: 5, \
         success_rate_request_volume: 100, success_rate_stdev_factor: 1900, \
         failure_percentage_minimum_hosts: 5, failure_percentage_request_volume: 50}, \
         circuit_breakers: {thresholds: [{max_requests: \
         100}]}, metadata: {filter_metadata: {a: {b: c}}}",
    );
    let expected = ClusterMessage {
        common_lb_config: got.common_lb_config.clone(),
        ..expected
    };
    assert_eq!(got, expected);
}

#[test]
fn grpc_clients_are_sent_tls_only_with_certificate_providers() {
    let tls = |fields: &str| {
        let cluster =
            format!("transport_socket: {{{TLS}, sni: s, common_tls_context: {fields}}}}}");
        let socket = settings_sent(&cluster, NodeClass::Grpc).transport_socket?;
        let context: UpstreamTlsMessage = socket.typed_config.unwrap().unpack().unwrap();
        assert_eq!(context.sni, "s");
        context.common_tls_context
    };
    let ca = "ca_certificate_provider_instance: {instance_name: ca}";
    let names = "match_typed_subject_alt_names: [{san_type: DNS, matcher: {exact: orders}}]";
    for without_provider in [
        "{validation_context: {trusted_ca: {filename: /ca.pem}}}".to_owned(),
        "{validation_context_sds_secret_config: {name: s}}".to_owned(),
        format!("{{validation_context: {{{ca}, crl: {{filename: /crl.pem}}}}}}"),
        format!(
            "{{validation_context: {{{ca}, verify_certificate_spki: [{}]}}}}",
            "a".repeat(44)
        ),
    ] {
        assert_eq!(tls(&without_provider), None, "{without_provider}");
    }
    let both = tls(&format!(
        "{{validation_context: {{trusted_ca: {{filename: /ca.pem}}, {names}, {ca}}}, \
         tls_certificates: [{{certificate_chain: {{filename: /c}}, private_key: {{filename: \
         /k}}}}], tls_certificate_provider_instance: {{instance_name: own}}}}"
    ))
    .unwrap();
    let own = both.tls_certificate_provider_instance.unwrap();
    assert_eq!(
        (&*own.instance_name, both.tls_certificates.len()),
        ("own", 0)
    );
    let validation = both.validation_context.unwrap();
    assert_eq!(validation.trusted_ca, None);
    assert!(validation.ca_certificate_provider_instance.is_some());
    // gRPC ignores names with a type: without the translation, any name would be accepted.
    let [name] = &validation.match_subject_alt_names[..] else {
        panic!("{validation:?}");
    };
    assert_eq!(name.exact.as_deref(), Some("orders"));
}

#[test]
fn envoys_verify_hosts_whose_authorities_only_a_provider_has() {
    let provider = "ca_certificate_provider_instance: {instance_name: i}";
    let sent = |more: &str| {
        let cluster = format!(
            "transport_socket: {{{TLS}, common_tls_context: {{validation_context: {{{provider}\
             {more}}}}}}}}}"
        );
        let socket = settings_sent(&cluster, NodeClass::Envoy).transport_socket;
        let any = socket.unwrap().typed_config.unwrap();
        let context: UpstreamTlsMessage = any.unpack().unwrap();
        let validation = context.common_tls_context.unwrap().validation_context;
        validation.unwrap()
    };
    let alone = sent("");
    assert_eq!(alone.system_root_certs, Some(()));
    assert!(alone.ca_certificate_provider_instance.is_none());
    let beside = sent(", trusted_ca: {filename: /ca.pem}");
    assert_eq!(beside.system_root_certs, None);
    assert!(beside.ca_certificate_provider_instance.is_some());
}

#[test]
fn plimsolls_data_planes_accept_what_they_are_sent() {
    for sample in &samples()[..2] {
        let body = sent(sample, NodeClass::Plimsoll);
        let cluster = decode_upstream_cluster(&body).unwrap_or_else(|error| panic!("{error}"));
        let kept = settings_sent(sample, NodeClass::Plimsoll);
        assert_eq!(kept.per_connection_buffer_limit_bytes, None);
        if sample.contains("outlier_detection") {
            let limits = cluster.options.circuit_breakers;
            assert_eq!(limits.max_requests, 3);
            let outliers = cluster.options.outlier_detection.unwrap();
            assert_eq!(outliers.consecutive_5xx(), Some(3));
            assert!(cluster.options.tcp_keepalive.is_some());
        } else {
            assert_eq!(cluster.options.health_checks.len(), 3);
            assert_eq!(cluster.options.http2.max_concurrent_streams, Some(7));
        }
    }
}

#[test]
fn plimsolls_data_planes_never_connect_in_plain_text_instead_of_tls() {
    let samples = samples();
    for (cluster, refused) in [
        (samples[2].clone(), true),
        (samples[3].clone(), true),
        (
            format!(
                "transport_socket: {{{TLS}, max_session_keys: 1, common_tls_context: \
                 {{validation_context: {{trusted_ca: {{filename: /ca.pem}}, \
                 ca_certificate_provider_instance: {{instance_name: i}}}}}}}}}}"
            ),
            false,
        ),
    ] {
        let body = sent(&cluster, NodeClass::Plimsoll);
        match decode_upstream_cluster(&body) {
            Ok(_) if refused => panic!("accepted: {cluster}"),
            Ok(read) => assert!(read.options.tls.is_some()),
            Err(error) => assert!(refused, "{error}"),
        }
        assert!(decode_cluster(&body).is_ok(), "for explanations");
    }
}

#[test]
fn values_that_envoy_would_refuse_are_errors_with_their_place() {
    let check = "timeout: 1s, interval: 2s, unhealthy_threshold: 2";
    let tls =
        |fields: &str| format!("transport_socket: {{{TLS}, common_tls_context: {{{fields}}}}}}}");
    let http = "typed_extension_protocol_options[envoy.extensions.upstreams.http.v3.\
                HttpProtocolOptions]";
    let context = "transport_socket.typed_config.common_tls_context";
    for (cluster, expected) in [
        (
            format!("health_checks: [{{{check}, tcp_health_check: {{}}}}]"),
            "health_checks[0].healthy_threshold: must be set".to_owned(),
        ),
        (
            format!("health_checks: [{{{check}, healthy_threshold: 1}}]"),
            "health_checks[0]: must have exactly one of".to_owned(),
        ),
        (
            format!(
                "health_checks: [{{{check}, healthy_threshold: 1, custom_health_check: {{}}}}]"
            ),
            "health_checks[0].custom_health_check: is not delivered".to_owned(),
        ),
        (
            format!("health_checks: [{{{check}, healthy_threshold: 1, grpc_health_check: {{}}}}]"),
            "health_checks[0].grpc_health_check: needs http2_protocol_options".to_owned(),
        ),
        (
            "health_checks: [{timout: 1s}]".to_owned(),
            "health_checks[0].timout: unknown field".to_owned(),
        ),
        (
            "outlier_detection: {max_ejection_percent: 101}".to_owned(),
            "outlier_detection.max_ejection_percent: ".to_owned(),
        ),
        (
            "outlier_detection: {enforcing_consecutive_gateway_failure: 101}".to_owned(),
            "outlier_detection.enforcing_consecutive_gateway_failure: 101 is not".to_owned(),
        ),
        (
            "outlier_detection: {monitors: [{}]}".to_owned(),
            "outlier_detection.monitors: is not supported".to_owned(),
        ),
        (
            "connect_timeout: 0s".to_owned(),
            "connect_timeout: must be above 0".to_owned(),
        ),
        (
            "preconnect_policy: {predictive_preconnect_ratio: 4}".to_owned(),
            "preconnect_policy.predictive_preconnect_ratio: 4 is outside 1 to 3".to_owned(),
        ),
        (
            "http2_protocol_options: {initial_stream_window_size: 1}".to_owned(),
            "http2_protocol_options.initial_stream_window_size: is outside".to_owned(),
        ),
        (
            format!("{HTTP}, auto_config: {{}}}}}}"),
            format!("{http}.auto_config: needs a transport_socket"),
        ),
        (
            "typed_extension_protocol_options: {other: {'@type': type.googleapis.com/x.Y}}".into(),
            "typed_extension_protocol_options[other].@type: is not delivered".to_owned(),
        ),
        (
            "transport_socket: {typed_config: {'@type': type.googleapis.com/\
             envoy.extensions.transport_sockets.raw_buffer.v3.RawBuffer}}"
                .to_owned(),
            "transport_socket.name: must be set".to_owned(),
        ),
        (
            tls(
                "validation_context: {match_typed_subject_alt_names: [{san_type: DNS, matcher: \
                 {exact: a}}]}",
            ),
            format!("{context}.validation_context.trusted_ca: must be set"),
        ),
        (
            tls("validation_context: {trusted_ca: {filename: /a}, verify_certificate_hash: [a]}"),
            format!("{context}.validation_context.verify_certificate_hash[0]: is not a SHA-256"),
        ),
        (
            tls("tls_certificate_sds_secret_configs: [{}]"),
            format!("{context}.tls_certificate_sds_secret_configs[0].name: must be set"),
        ),
        (
            tls("custom_handshaker: {name: a}"),
            format!("{context}.custom_handshaker: is not delivered"),
        ),
    ] {
        let error = refused(&cluster);
        let expected = format!("services[0].cluster.{expected}");
        assert!(error.contains(&expected), "{error}\nexpected: {expected}");
        assert!(error.contains("(at 1:"), "{error}");
    }
}

#[test]
fn a_relay_refuses_what_it_cannot_send() {
    let read = |cluster: &str, rest: &str| {
        let file = ConfigFile {
            name: "control.yaml".to_owned(),
            text: format!(
                "relay: {{address: 'h:1'}}\nservices: [{{cluster: {{name: orders, {cluster}}}\
                 {rest}}}]"
            ),
        };
        ControlConfig::parse(&file, &[]).map_err(|error| error.to_string())
    };
    for (cluster, rest, field) in [
        (
            "outlier_detection: {consecutive_5xx: 3}",
            "",
            "cluster.outlier_detection",
        ),
        ("connect_timeout: 1s", "", "cluster.connect_timeout"),
        (
            "http2_protocol_options: {}",
            "",
            "cluster.typed_extension_protocol_options",
        ),
        (
            "lrs_report_endpoint_metrics: [cpu_utilization]",
            "",
            "cluster.lrs_report_endpoint_metrics",
        ),
        (
            "",
            ", overprovisioning_factor: 200",
            "overprovisioning_factor",
        ),
    ] {
        let error = read(cluster, rest).unwrap_err();
        let expected = format!("services[0].{field}: has no effect with a relay");
        assert!(error.contains(&expected), "{error}");
    }
    for policy in [
        "lb_policy: RANDOM",
        "plimsoll: {locality_sampling: RANDOM}",
        "common_lb_config: {healthy_panic_threshold: {value: 20}}",
    ] {
        assert!(read(policy, "").is_ok(), "{policy}");
    }
}
