//! Health checks, outlier detection, TLS and circuit breakers that `plimsoll control` delivers to a
//! released Envoy, as its file has them.

use std::path::Path;

use plimsoll_testing::http::get;
use serde_json::json;

use crate::support::backends::{Backends, Death};
use crate::support::control::Control;
use crate::support::envoy::{CURRENT, Envoy, EnvoySpec};
use crate::support::{scratch, tls_backend, wait_until};

/// Requests that must all succeed. With round robin over five hosts, of which two are dead, a build
/// that still uses those answers none of them wrong with a probability below 10^-40.
const REQUESTS: usize = 200;
const ZONES: [(&str, usize); 2] = [("zone-a", 3), ("zone-b", 2)];

/// Returns a configuration whose service has these settings, and no zone-aware routing: requests
/// go to all hosts.
fn config(settings: &str, endpoints: &str) -> String {
    format!(
        "services:
- mode: 'OFF'
  cluster:
    name: orders
    common_lb_config: {{zone_aware_lb_config: {{routing_enabled: {{value: 0}}}}}}
{settings}
  endpoints:
{endpoints}"
    )
}

fn start_envoy(directory: &Path, control: &Control) -> Envoy {
    start_envoy_of(CURRENT, directory, control)
}

fn start_envoy_of(version: &'static str, directory: &Path, control: &Control) -> Envoy {
    let envoy = Envoy::start(
        directory,
        &EnvoySpec {
            zone: "zone-a".to_owned(),
            version,
            delta: false,
            control: control.xds,
            reports_to: None,
        },
    );
    wait_until("the cluster has arrived", || {
        envoy.stat("cluster.orders.membership_total").unwrap_or(0) > 0
    });
    // Envoy's admin interface shows a cluster slightly before the worker uses it.
    wait_until("the cluster serves", || get(envoy.listener, "/").is_some());
    envoy
}

fn assert_all_succeed(envoy: &Envoy) {
    let failed = (0..REQUESTS).filter(|_| get(envoy.listener, "/").is_none());
    assert_eq!(failed.count(), 0, "failed requests of {REQUESTS}");
}

#[test]
fn health_checks_remove_hosts_that_died() {
    let directory = scratch("settings-health-checks");
    let backends = Backends::start(&ZONES);
    let checks = "    health_checks:
    - timeout: 1s
      interval: 0.1s
      no_traffic_interval: 0.1s
      unhealthy_threshold: 1
      healthy_threshold: 1
      http_health_check: {path: /}";
    let control = Control::start(&directory, &config(checks, &backends.endpoints()));
    let envoy = start_envoy(&directory, &control);
    let healthy = |count: u64| envoy.stat("cluster.orders.membership_healthy") == Some(count);
    wait_until("all hosts are healthy", || healthy(5));
    assert_all_succeed(&envoy);
    backends.kill("zone-b", Death::Refuse);
    wait_until("dead hosts are removed", || healthy(3));
    assert_all_succeed(&envoy);
    assert!(envoy.stat("cluster.orders.health_check.failure").unwrap() >= 2);
}

#[test]
fn outlier_detection_ejects_hosts_that_fail() {
    let directory = scratch("settings-outliers");
    let backends = Backends::start(&ZONES);
    let outliers = "    outlier_detection:
      consecutive_5xx: 3
      interval: 0.1s
      base_ejection_time: 60s
      max_ejection_percent: 50";
    let control = Control::start(&directory, &config(outliers, &backends.endpoints()));
    let envoy = start_envoy(&directory, &control);
    assert_all_succeed(&envoy);
    backends.kill("zone-b", Death::Error);
    let ejected = "cluster.orders.outlier_detection.ejections_active";
    wait_until("failing hosts are ejected", || {
        // Requests find the failures.
        let _ = get(envoy.listener, "/");
        envoy.stat(ejected) == Some(2)
    });
    assert_all_succeed(&envoy);
}

#[test]
fn tls_to_backends_checks_their_names() {
    let directory = scratch("settings-tls");
    let address = tls_backend::start(&directory, "spiffe://td/orders");
    let ca = directory.join("ca.crt");
    let endpoints = format!("  - lb_endpoints: ['{address}']\n");
    let tls = |name: &str, limit: u32| {
        let context = "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3";
        let socket = format!(
            "    connect_timeout: {limit}s
    transport_socket:
      name: envoy.transport_sockets.tls
      typed_config:
        '@type': {context}.UpstreamTlsContext
        sni: orders.internal
        common_tls_context:
          validation_context:
            trusted_ca: {{filename: {ca}}}
            match_typed_subject_alt_names:
            - {{san_type: URI, matcher: {{exact: '{name}'}}}}",
            ca = ca.display(),
        );
        config(&socket, &endpoints)
    };
    let control = Control::start(&directory, &tls("spiffe://td/orders", 5));
    let envoy = start_envoy(&directory, &control);
    assert_all_succeed(&envoy);
    assert!(envoy.stat("cluster.orders.ssl.handshake").unwrap() > 0);
    control.edit(&tls("spiffe://td/carts", 6));
    wait_until("the edit has arrived", || {
        envoy.connect_timeout("orders") == "6s"
    });
    wait_until("the host has the wrong name", || {
        let refused = get(envoy.listener, "/").is_none();
        refused && envoy.stat("cluster.orders.ssl.fail_verify_san") > Some(0)
    });
    let served = (0..REQUESTS).filter(|_| get(envoy.listener, "/").is_some());
    assert_eq!(served.count(), 0, "requests to a host with the wrong name");
}

/// A secret with a name, of which the Envoy has the source: a file that names the authority and the
/// URI that backends must have.
#[test]
fn secrets_by_name_come_from_the_file_that_the_cluster_names() {
    let directory = scratch("settings-sds");
    let address = tls_backend::start(&directory, "spiffe://td/orders");
    let secrets = directory.join("secrets.json");
    let write = |name: &str| {
        let secret = json!({
            "@type": "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret",
            "name": "backends",
            "validation_context": {
                "trusted_ca": { "filename": directory.join("ca.crt") },
                "match_typed_subject_alt_names": [
                    { "san_type": "URI", "matcher": { "exact": name } },
                ],
            },
        });
        let next = directory.join("secrets.next");
        std::fs::write(&next, json!({ "resources": [secret] }).to_string()).unwrap();
        // Envoy reloads a file that is moved to its place.
        std::fs::rename(next, &secrets).unwrap();
    };
    write("spiffe://td/orders");
    // Connections that are open stay in use with another secret.
    let socket = format!(
        "    common_http_protocol_options: {{max_requests_per_connection: 1}}
    transport_socket:
      name: envoy.transport_sockets.tls
      typed_config:
        '@type': type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext
        common_tls_context:
          validation_context_sds_secret_config:
            name: backends
            sds_config: {{path_config_source: {{path: {}}}, resource_api_version: V3}}",
        secrets.display(),
    );
    let endpoints = format!("  - lb_endpoints: ['{address}']\n");
    let control = Control::start(&directory, &config(&socket, &endpoints));
    let envoy = start_envoy(&directory, &control);
    assert_all_succeed(&envoy);
    assert!(envoy.stat("cluster.orders.ssl.handshake") > Some(0));
    write("spiffe://td/carts");
    wait_until("the host has the wrong name", || {
        let refused = get(envoy.listener, "/").is_none();
        refused && envoy.stat("cluster.orders.ssl.fail_verify_san") > Some(0)
    });
}

#[test]
fn idle_connections_are_closed_and_kept_alive_as_the_file_says() {
    let directory = scratch("settings-idle");
    let backends = Backends::start(&ZONES);
    let settings = "    common_http_protocol_options: {idle_timeout: 1s}
    upstream_connection_options: {tcp_keepalive: {keepalive_time: 31, keepalive_interval: 7}}";
    let control = Control::start(&directory, &config(settings, &backends.endpoints()));
    let envoy = start_envoy(&directory, &control);
    assert_all_succeed(&envoy);
    let stat = |name: &str| envoy.stat(&format!("cluster.orders.{name}"));
    let opened = stat("upstream_cx_total").unwrap();
    assert!(opened > 0);
    wait_until("idle connections are closed", || {
        stat("upstream_cx_active") == Some(0)
    });
    assert_eq!(stat("upstream_cx_idle_timeout"), Some(opened));
    let dump = get(envoy.admin, "/config_dump?resource=dynamic_active_clusters").unwrap();
    for part in ["\"keepalive_time\": 31", "\"keepalive_interval\": 7"] {
        assert!(dump.contains(part), "{part}:\n{dump}");
    }
}

/// Envoy has `load_aware_locality` since 1.40; older ones refuse a cluster without another policy.
#[test]
fn older_envoys_use_the_policy_after_load_aware_locality() {
    let directory = scratch("settings-second-policy");
    let backends = Backends::start(&ZONES);
    let policies = "envoy.extensions.load_balancing_policies";
    let text = format!(
        "services:
- cluster:
    name: orders
    load_balancing_policy:
      policies:
      - typed_extension_config:
          name: envoy.load_balancing_policies.load_aware_locality
          typed_config:
            '@type': type.googleapis.com/{policies}.load_aware_locality.v3.LoadAwareLocality
            endpoint_picking_policy:
              policies:
              - typed_extension_config:
                  name: envoy.load_balancing_policies.round_robin
                  typed_config:
                    '@type': type.googleapis.com/{policies}.round_robin.v3.RoundRobin
  endpoints:
{}",
        backends.endpoints()
    );
    let control = Control::start(&directory, &text);
    for version in ["1.38.3", CURRENT] {
        let envoy = start_envoy_of(version, &scratch(version), &control);
        assert_all_succeed(&envoy);
        let dump = get(envoy.admin, "/config_dump?resource=dynamic_active_clusters").unwrap();
        assert!(dump.contains("load_aware_locality"), "{version}:\n{dump}");
    }
}

#[test]
fn circuit_breakers_are_those_of_the_file() {
    let directory = scratch("settings-breakers");
    let backends = Backends::start(&ZONES);
    let breakers = "    circuit_breakers: {thresholds: [{max_requests: 7, max_retries: 2}]}
    per_connection_buffer_limit_bytes: 40000
    metadata: {filter_metadata: {com.example: {team: shop}}}";
    let control = Control::start(&directory, &config(breakers, &backends.endpoints()));
    let envoy = start_envoy(&directory, &control);
    assert_all_succeed(&envoy);
    let page = get(envoy.admin, "/clusters").unwrap();
    for line in [
        "orders::default_priority::max_requests::7",
        "orders::default_priority::max_retries::2",
    ] {
        assert!(page.lines().any(|found| found == line), "{line}:\n{page}");
    }
    let dump = get(envoy.admin, "/config_dump?resource=dynamic_active_clusters").unwrap();
    for part in [
        "\"per_connection_buffer_limit_bytes\": 40000",
        "\"team\": \"shop\"",
    ] {
        assert!(dump.contains(part), "{part}:\n{dump}");
    }
}
