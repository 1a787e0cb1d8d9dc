//! Every policy as code is the same as the policy in Envoy's YAML, and so are the other settings.

use std::time::Duration;

use plimsoll_client::settings::{
    CapacityBasis, ColdStart, EndpointLoadMetricsFormat, FailurePercentageEjection, HashFunction,
    LocalitySampling, RemoteMean, UtilizationPrecedence,
};
use plimsoll_client::{
    ActiveHealthCheck, Cluster, Endpoint, HealthStatus, Locality, Outliers, Policy, Tls,
    UpstreamCluster,
};

const HOST: &str = "lb_endpoints: [{endpoint: {address: {socket_address: {address: 10.0.0.1, \
                    port_value: 80}}}}]";

/// A cluster with one host in zone a, and other fields.
fn yaml(fields: &str) -> UpstreamCluster {
    let endpoints = format!("[{{locality: {{zone: a}}, {HOST}}}]");
    let text = format!(
        "name: orders\ntype: STATIC\nload_assignment: {{cluster_name: orders, endpoints: \
         {endpoints}}}\n{fields}"
    );
    let cluster = Cluster::from_yaml(&text).unwrap_or_else(|error| panic!("{error}: {text}"));
    cluster.build().unwrap()
}

fn typed(message: &str, fields: &str) -> String {
    let prefix = "type.googleapis.com/envoy.extensions.load_balancing_policies";
    format!(
        "{{policies: [{{typed_extension_config: {{name: x, typed_config: {{'@type': \
         {prefix}.{message}, {fields}}}}}}}]}}"
    )
}

fn policy(message: &str, fields: &str) -> String {
    format!("load_balancing_policy: {}", typed(message, fields))
}

fn over(message: &str, fields: &str, child: &str) -> String {
    let child = format!("endpoint_picking_policy: {child}");
    policy(message, &format!("{fields}{child}"))
}

fn code(policy: impl Into<Policy>) -> Cluster {
    Cluster::new("orders")
        .zone("a", ["10.0.0.1:80"])
        .policy(policy)
}

fn assert_same(name: &str, code: Cluster, fields: &str) {
    assert_eq!(code.build().unwrap(), yaml(fields), "{name}");
}

const ROUND_ROBIN: &str = "round_robin.v3.RoundRobin";
const LEAST_REQUEST: &str = "least_request.v3.LeastRequest";
const LOAD_AWARE: &str = "load_aware_locality.v3.LoadAwareLocality";
const CSWRR: &str = "client_side_weighted_round_robin.v3.ClientSideWeightedRoundRobin";

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

#[test]
fn endpoint_policies_are_those_of_yaml() {
    let slow = "slow_start_config: {slow_start_window: 30s, aggression: {default_value: 2, \
                runtime_key: x}, min_weight_percent: {value: 20}}";
    let ring = "hash_function: MURMUR_HASH_2, minimum_ring_size: 64, maximum_ring_size: 128, \
                consistent_hashing_lb_config: {use_hostname_for_hashing: true, \
                hash_balance_factor: 150}";
    let cswrr = "blackout_period: 1s, weight_expiration_period: 60s, weight_update_period: 2s, \
                 error_utilization_penalty: 0.5, enable_oob_load_report: true, \
                 oob_reporting_period: 5s, oob_reporting_config: {port_value: 9001}, \
                 metric_names_for_computing_utilization: [named_metrics.queue], \
                 slow_start_config: {slow_start_window: 30s}";
    let cases: [(&str, Cluster, String); 14] = [
        (
            "default",
            Cluster::new("orders").zone("a", ["10.0.0.1:80"]),
            String::new(),
        ),
        (
            "round_robin",
            code(Policy::round_robin()),
            "lb_policy: ROUND_ROBIN".into(),
        ),
        (
            "round_robin with slow start",
            code(
                Policy::round_robin()
                    .slow_start(seconds(30))
                    .slow_start_aggression(2.0)
                    .slow_start_min_weight_percent(20.0),
            ),
            policy(ROUND_ROBIN, slow),
        ),
        (
            "least_request",
            code(Policy::least_request()),
            "lb_policy: LEAST_REQUEST".into(),
        ),
        (
            "least_request with settings",
            code(
                Policy::least_request()
                    .choice_count(5)
                    .active_request_bias(0.5)
                    .full_scan(),
            ),
            policy(
                LEAST_REQUEST,
                "choice_count: 5, active_request_bias: {default_value: 0.5, runtime_key: x}, \
                 selection_method: FULL_SCAN",
            ),
        ),
        (
            "least_request with slow start",
            code(Policy::least_request().slow_start(seconds(30))),
            policy(LEAST_REQUEST, "slow_start_config: {slow_start_window: 30s}"),
        ),
        ("random", code(Policy::random()), "lb_policy: RANDOM".into()),
        (
            "ring_hash",
            code(Policy::ring_hash()),
            "lb_policy: RING_HASH".into(),
        ),
        (
            "ring_hash with settings",
            code(
                Policy::ring_hash()
                    .hash_function(HashFunction::MurmurHash2)
                    .minimum_ring_size(64)
                    .maximum_ring_size(128)
                    .by_hostname()
                    .hash_balance_factor(150),
            ),
            policy("ring_hash.v3.RingHash", ring),
        ),
        ("maglev", code(Policy::maglev()), "lb_policy: MAGLEV".into()),
        (
            "maglev with settings",
            code(
                Policy::maglev()
                    .table_size(251)
                    .by_hostname()
                    .hash_balance_factor(120),
            ),
            policy(
                "maglev.v3.Maglev",
                "table_size: 251, consistent_hashing_lb_config: {use_hostname_for_hashing: true, \
                 hash_balance_factor: 120}",
            ),
        ),
        (
            "client_side_weighted_round_robin",
            code(Policy::client_side_weighted_round_robin()),
            policy(CSWRR, ""),
        ),
        (
            "client_side_weighted_round_robin with settings",
            code(
                Policy::client_side_weighted_round_robin()
                    .blackout_period(seconds(1))
                    .weight_expiration_period(seconds(60))
                    .weight_update_period(seconds(2))
                    .error_utilization_penalty(0.5)
                    .out_of_band(seconds(5))
                    .oob_port(9001)
                    .metric_names(["named_metrics.queue"])
                    .slow_start(seconds(30)),
            ),
            policy(CSWRR, cswrr),
        ),
        (
            "client_side_weighted_round_robin by named metrics",
            code(
                Policy::client_side_weighted_round_robin()
                    .utilization_precedence(UtilizationPrecedence::NamedMetricsFirst),
            ),
            policy(CSWRR, "utilization_precedence: NAMED_METRICS_FIRST"),
        ),
    ];
    for (name, code, fields) in cases {
        assert_same(name, code, &fields);
    }
}

fn zone_aware(fields: &str) -> String {
    let config = format!("locality_lb_config: {{zone_aware_lb_config: {{{fields}}}}}");
    policy(ROUND_ROBIN, &config)
}

#[test]
fn zone_aware_policies_are_those_of_yaml() {
    let measured = "locality_basis: LRS_REPORTED_RATE";
    let all = "routing_enabled: {value: 90}, min_cluster_size: 1, fail_traffic_on_panic: true, \
               force_local_zone: {min_size: 2}, locality_basis: LRS_REPORTED_RATE, \
               lrs_rate_config: {staleness_threshold: 30s, fraction_source: LOCALITY_METADATA}, \
               upstream_locality_basis: HEALTHY_HOSTS_WEIGHT, dead_band_bp: 50, \
               all_priorities: true";
    assert_same("zone_aware", code(Policy::zone_aware()), &zone_aware(""));
    assert_same(
        "zone_aware, legacy",
        code(Policy::zone_aware().min_cluster_size(1)),
        "common_lb_config: {zone_aware_lb_config: {min_cluster_size: 1}}",
    );
    assert_same(
        "measured",
        code(Policy::zone_aware().measured()),
        &zone_aware(measured),
    );
    assert_same(
        "by host weight",
        code(Policy::zone_aware().by_host_weight()),
        &zone_aware("locality_basis: HEALTHY_HOSTS_WEIGHT"),
    );
    assert_same(
        "observed_load",
        code(
            Policy::zone_aware()
                .observed_load()
                .observed_load_period(seconds(2)),
        ),
        &zone_aware("locality_basis: OBSERVED_LOAD, observed_load_period: 2s"),
    );
    assert_same(
        "all settings",
        code(
            Policy::zone_aware()
                .measured()
                .routing_enabled(90.0)
                .min_cluster_size(1)
                .fail_traffic_on_panic()
                .force_local_zone(2)
                .staleness_threshold(seconds(30))
                .fractions_from_metadata()
                .upstream_locality_basis(CapacityBasis::HealthyHostsWeight)
                .dead_band_bp(50)
                .all_priorities(),
        ),
        &zone_aware(all),
    );
    let least = format!("locality_lb_config: {{zone_aware_lb_config: {{{measured}}}}}");
    assert_same(
        "over least_request",
        code(
            Policy::zone_aware()
                .measured()
                .over(Policy::least_request().choice_count(3)),
        ),
        &policy(LEAST_REQUEST, &format!("choice_count: 3, {least}")),
    );
    assert_same(
        "over client_side_weighted_round_robin",
        code(
            Policy::zone_aware()
                .measured()
                .over(Policy::client_side_weighted_round_robin()),
        ),
        &policy(CSWRR, &least),
    );
}

#[test]
fn load_aware_policies_are_those_of_yaml() {
    let child = typed(ROUND_ROBIN, "");
    assert_same(
        "load_aware",
        code(Policy::load_aware()),
        &over(LOAD_AWARE, "", &child),
    );
    assert_same(
        "convergent",
        code(Policy::load_aware().convergent()),
        &over(LOAD_AWARE, "spill_controller: CONVERGENT, ", &child),
    );
    let all = "weight_update_period: 2s, metric_names_for_computing_utilization: \
               [named_metrics.queue], utilization_variance_threshold: 0.2, \
               smoothing_time_constant: 3s, remote_probe_fraction: 0.05, \
               weight_expiration_period: 60s, enable_oob_load_report: true, \
               oob_reporting_period: 4s, oob_reporting_config: {port_value: 9001}, \
               utilization_precedence: NAMED_METRICS_FIRST, cold_start: HOST_COUNT, \
               remote_mean: REPORTING_ONLY, spill_controller: CONVERGENT, \
               local_probe_fraction: 0.1, demand_feed_forward: false, ";
    assert_same(
        "all settings",
        code(
            Policy::load_aware()
                .convergent()
                .weight_update_period(seconds(2))
                .metric_names(["named_metrics.queue"])
                .utilization_variance_threshold(0.2)
                .smoothing_time_constant(seconds(3))
                .remote_probe_fraction(0.05)
                .local_probe_fraction(0.1)
                .weight_expiration_period(seconds(60))
                .out_of_band(seconds(4))
                .oob_port(9001)
                .utilization_precedence(UtilizationPrecedence::NamedMetricsFirst)
                .cold_start(ColdStart::HostCount)
                .remote_mean(RemoteMean::ReportingOnly)
                .without_demand_feed_forward()
                .over(Policy::least_request()),
        ),
        &over(LOAD_AWARE, all, &typed(LEAST_REQUEST, "")),
    );
}

#[test]
fn weighted_policies_are_those_of_yaml() {
    let weighted = "locality_lb_config: {locality_weighted_lb_config: {}}";
    assert_same(
        "locality_weighted",
        code(Policy::locality_weighted()),
        "common_lb_config: {locality_weighted_lb_config: {}}",
    );
    assert_same(
        "locality_weighted over random",
        code(Policy::locality_weighted().over(Policy::random())),
        &policy("random.v3.Random", weighted),
    );
    assert_same(
        "locality_weighted over maglev",
        code(Policy::locality_weighted().over(Policy::maglev())),
        "lb_policy: MAGLEV\ncommon_lb_config: {locality_weighted_lb_config: {}}",
    );
    assert_same(
        "wrr_locality",
        code(Policy::wrr_locality().over(Policy::ring_hash())),
        &over(
            "wrr_locality.v3.WrrLocality",
            "",
            &typed("ring_hash.v3.RingHash", ""),
        ),
    );
}

#[test]
fn other_settings_are_those_of_yaml() {
    let breakers = "circuit_breakers: {thresholds: [{max_connections: 1, max_pending_requests: 2, \
                    max_requests: 3, max_retries: 4}]}";
    let cluster = code(Policy::round_robin());
    assert_same(
        "circuit breakers",
        cluster
            .clone()
            .max_connections(1)
            .max_pending_requests(2)
            .max_requests(3)
            .max_retries(4),
        breakers,
    );
    let lifted = "circuit_breakers: {thresholds: [{max_connections: 4294967295, \
                  max_pending_requests: 4294967295, max_requests: 4294967295, max_retries: \
                  4294967295}]}";
    assert_same("lifted", cluster.clone().without_circuit_breakers(), lifted);
    let budget = "circuit_breakers: {thresholds: [{retry_budget: {budget_percent: {value: 30}, \
                  min_retry_concurrency: 5}}]}";
    assert_same(
        "retry budget",
        cluster.clone().retry_budget(30.0, 5),
        budget,
    );
    assert_same(
        "timeouts",
        cluster
            .clone()
            .connect_timeout(seconds(1))
            .panic_threshold(0.0),
        "connect_timeout: 1s\ncommon_lb_config: {healthy_panic_threshold: {value: 0}}",
    );
    assert_same(
        "http2",
        cluster.clone().http2(),
        "http2_protocol_options: {}",
    );
    assert_same(
        "outliers",
        cluster.clone().outlier_detection(Outliers::new()),
        "outlier_detection: {}",
    );
    assert_same(
        "outliers with settings",
        cluster.clone().outlier_detection(
            Outliers::new()
                .consecutive_5xx(0)
                .interval(seconds(1))
                .base_ejection_time(seconds(2))
                .max_ejection_time(seconds(3))
                .max_ejection_percent(50)
                .always_eject_one_host()
                .without_success_rate()
                .failure_percentage(FailurePercentageEjection::default()),
        ),
        "outlier_detection: {consecutive_5xx: 0, interval: 1s, base_ejection_time: 2s, \
         max_ejection_time: 3s, max_ejection_percent: 50, always_eject_one_host: true, \
         enforcing_success_rate: 0, enforcing_failure_percentage: 100}",
    );
    let check = "timeout: 1s, interval: 5s, unhealthy_threshold: 3, healthy_threshold: 2";
    for (built, kind) in [
        (
            ActiveHealthCheck::http("/healthz"),
            "http_health_check: {path: /healthz}",
        ),
        (
            ActiveHealthCheck::grpc("orders"),
            "grpc_health_check: {service_name: orders}",
        ),
        (ActiveHealthCheck::tcp(), "tcp_health_check: {}"),
    ] {
        let fields = format!("health_checks: [{{{check}, {kind}}}]");
        assert_same(kind, cluster.clone().health_check(built), &fields);
    }
    assert_same(
        "sampling",
        cluster
            .clone()
            .locality_sampling(LocalitySampling::LowDiscrepancy),
        "plimsoll: {locality_sampling: LOW_DISCREPANCY}",
    );
    assert_same(
        "format",
        cluster
            .clone()
            .endpoint_load_metrics_format(EndpointLoadMetricsFormat::Text),
        "plimsoll: {endpoint_load_metrics_format: TEXT}",
    );
    let tls = "transport_socket: {name: envoy.transport_sockets.tls, typed_config: {'@type': \
               type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext, \
               sni: orders.internal, auto_sni_san_validation: true, common_tls_context: \
               {validation_context: {trusted_ca: {filename: ca.pem}}}}}";
    assert_same(
        "tls",
        cluster.tls(Tls::with_ca_file("ca.pem").server_name("orders.internal")),
        tls,
    );
}

#[test]
fn endpoints_are_those_of_yaml() {
    let code = Cluster::new("orders")
        .locality(
            Locality::new("eu", "a", "rack-1"),
            [
                Endpoint::from("10.0.0.1:80")
                    .weight(3)
                    .health(HealthStatus::Degraded),
                Endpoint::from("10.0.0.2:80")
                    .priority(1)
                    .health_check_port(81),
            ],
        )
        .zone("b", ["orders.svc:80"])
        .locality_weight("b", 7)
        .dns_refresh_rate(seconds(1));
    let host = |address: &str, more: &str| {
        format!(
            "{{endpoint: {{address: {{socket_address: {{address: {address}, port_value: 80}}}}\
             {more}}}"
        )
    };
    let rack = "locality: {region: eu, zone: a, sub_zone: rack-1}";
    let text = format!(
        "name: orders
type: STRICT_DNS
dns_refresh_rate: 1s
load_assignment:
  cluster_name: orders
  endpoints:
  - {{{rack}, lb_endpoints: [{}, health_status: DEGRADED, load_balancing_weight: 3}}]}}
  - {{{rack}, priority: 1, lb_endpoints: [{}}}]}}
  - {{locality: {{zone: b}}, load_balancing_weight: 7, lb_endpoints: [{}}}]}}
",
        host("10.0.0.1", ""),
        host("10.0.0.2", ", health_check_config: {port_value: 81}"),
        host("orders.svc", "")
    );
    let yaml = Cluster::from_yaml(&text).unwrap_or_else(|error| panic!("{error}\n{text}"));
    assert_eq!(code.build().unwrap(), yaml.build().unwrap());
    let eds = Cluster::eds("orders")
        .eds_service_name("orders-v2")
        .build()
        .unwrap();
    assert_eq!(eds.eds_name(), Some("orders-v2"));
}

#[test]
fn settings_out_of_range_name_their_field() {
    let refused = |cluster: Cluster| cluster.build().unwrap_err().to_string();
    let hosts = || Cluster::new("orders").zone("a", ["10.0.0.1:80"]);
    for (cluster, path) in [
        (
            code(Policy::zone_aware().dead_band_bp(10_001)),
            "policy.zone_aware_lb_config.dead_band_bp",
        ),
        (
            code(Policy::zone_aware().over(Policy::least_request().choice_count(1))),
            "policy.endpoint_picking_policy.choice_count",
        ),
        (
            code(Policy::zone_aware().over(Policy::maglev())),
            "zone_aware_lb_config",
        ),
        (
            code(Policy::load_aware().remote_probe_fraction(1.0)),
            "policy.load_aware_locality.remote_probe_fraction",
        ),
        (
            code(Policy::maglev().table_size(4)),
            "policy.maglev.table_size",
        ),
        (
            code(
                Policy::round_robin()
                    .slow_start(seconds(1))
                    .slow_start_aggression(0.0),
            ),
            "policy.round_robin.slow_start_config.aggression",
        ),
        (hosts().zone("a", ["10.0.0.2"]), "endpoints"),
        (
            hosts().zone("a", ["10.0.0.1:80"]),
            "load_assignment.endpoints[0].lb_endpoints[1]",
        ),
        (
            hosts().panic_threshold(101.0),
            "common_lb_config.healthy_panic_threshold.value",
        ),
        (hosts().connect_timeout(Duration::ZERO), "connect_timeout"),
        (hosts().locality_weight("z", 1), "locality_weight[z]"),
        (
            hosts().retry_budget(101.0, 3),
            "circuit_breakers.retry_budget.budget_percent",
        ),
        (
            hosts().health_check(ActiveHealthCheck::http("")),
            "health_checks[0].http_health_check.path",
        ),
        (
            hosts().outlier_detection(Outliers::new().interval(Duration::ZERO)),
            "outlier_detection.interval",
        ),
        (
            hosts().eds_service_name("x"),
            "eds_cluster_config.service_name",
        ),
        (
            Cluster::eds("orders").zone("a", ["10.0.0.1:80"]),
            "load_assignment",
        ),
    ] {
        let error = refused(cluster);
        let expected = format!("clusters[orders].{path}");
        assert!(error.starts_with(&expected), "{expected}: {error}");
    }
}
