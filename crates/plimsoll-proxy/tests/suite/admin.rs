//! `/clusters` and `/config_dump` of the admin interface, compared with Envoy's output.

use std::net::SocketAddr;

use crate::support::backend::{Backend, reply};
use crate::support::client;
use crate::support::{Proxy, config, free_address, route_all_to, wait_until};
use serde_json::{Value, json};

async fn page(proxy: &Proxy, path: &str) -> String {
    let response = client::get(proxy.admin(), path).await;
    assert_eq!(response.status, 200, "{path}: {response:?}");
    response.body
}

async fn json_page(proxy: &Proxy, path: &str) -> Value {
    let text = page(proxy, path).await;
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{path}: {error}: {text}"))
}

/// Starts a backend that responds with the status in the path.
async fn status_backend() -> Backend {
    Backend::start(async |request| {
        let status = request.uri().path().trim_start_matches('/').parse();
        reply(status.unwrap_or(200), "")
    })
    .await
}

/// A cluster with a healthy host and a draining host on which nothing listens.
fn two_hosts(hosts: [SocketAddr; 2]) -> String {
    let limits = "circuit_breakers: {thresholds: [{max_connections: 7}]}\n";
    let text = config(&route_all_to("orders"), &[("orders", &hosts, limits)]).replacen(
        "endpoints: [{lb_endpoints: [{endpoint: {",
        "endpoints: [{locality: {region: r, zone: z}, lb_endpoints: \
         [{load_balancing_weight: 3, endpoint: {hostname: first, ",
        1,
    );
    text.replacen(
        "}}}}, {endpoint",
        "}}}}]}, {priority: 1, lb_endpoints: [{health_status: DRAINING, endpoint",
        1,
    )
}

#[tokio::test]
async fn clusters_are_listed_in_envoys_text_format() {
    let backend = status_backend().await;
    let hosts = [backend.address, free_address()];
    let proxy = Proxy::start(&two_hosts(hosts)).await;
    for path in ["/200", "/404", "/503"] {
        client::get(proxy.address(), path).await;
    }
    let [one, two] = hosts;
    let expected = [
        "orders::observability_name::orders".to_owned(),
        "orders::default_priority::max_connections::7".to_owned(),
        "orders::default_priority::max_pending_requests::1024".to_owned(),
        "orders::default_priority::max_requests::1024".to_owned(),
        "orders::default_priority::max_retries::3".to_owned(),
        "orders::added_via_api::false".to_owned(),
        format!("orders::{one}::cx_active::1"),
        format!("orders::{one}::cx_connect_fail::0"),
        format!("orders::{one}::cx_total::1"),
        format!("orders::{one}::rq_active::0"),
        format!("orders::{one}::rq_error::1"),
        format!("orders::{one}::rq_success::2"),
        format!("orders::{one}::rq_total::3"),
        format!("orders::{one}::hostname::first"),
        format!("orders::{one}::health_flags::healthy"),
        format!("orders::{one}::weight::3"),
        format!("orders::{one}::region::r"),
        format!("orders::{one}::zone::z"),
        format!("orders::{one}::sub_zone::"),
        format!("orders::{one}::canary::false"),
        format!("orders::{one}::priority::0"),
        format!("orders::{two}::cx_active::0"),
        format!("orders::{two}::cx_connect_fail::0"),
        format!("orders::{two}::cx_total::0"),
        format!("orders::{two}::rq_active::0"),
        format!("orders::{two}::rq_error::0"),
        format!("orders::{two}::rq_success::0"),
        format!("orders::{two}::rq_total::0"),
        format!("orders::{two}::hostname::"),
        format!("orders::{two}::health_flags::/eds_status_draining"),
        format!("orders::{two}::weight::1"),
        format!("orders::{two}::region::"),
        format!("orders::{two}::zone::"),
        format!("orders::{two}::sub_zone::"),
        format!("orders::{two}::canary::false"),
        format!("orders::{two}::priority::1"),
    ];
    let listed = page(&proxy, "/clusters").await;
    assert_eq!(listed.lines().collect::<Vec<_>>(), expected);
    assert_eq!(page(&proxy, "/clusters?format=text").await, listed);
    let explained = json_page(&proxy, "/explain").await;
    assert!(explained["cluster_statuses"]["orders"].is_object());
    proxy.shut_down().await;
}

#[tokio::test]
async fn clusters_and_endpoints_are_listed_in_envoys_json_format() {
    let backend = status_backend().await;
    let hosts = [backend.address, free_address()];
    let proxy = Proxy::start(&two_hosts(hosts)).await;
    client::get(proxy.address(), "/503").await;
    let address = |host: SocketAddr| {
        let port = host.port();
        json!({ "socket_address": { "address": "127.0.0.1", "port_value": port } })
    };
    let expected = json!({ "cluster_statuses": [{
        "name": "orders",
        "observability_name": "orders",
        "circuit_breakers": { "thresholds": [{
            "max_connections": 7,
            "max_pending_requests": 1024,
            "max_requests": 1024,
            "max_retries": 3,
        }] },
        "host_statuses": [
            {
                "address": address(hosts[0]),
                "stats": [
                    { "name": "cx_connect_fail" },
                    { "name": "cx_total", "value": "1" },
                    { "name": "rq_error", "value": "1" },
                    { "name": "rq_success" },
                    { "name": "rq_total", "value": "1" },
                    { "name": "cx_active", "value": "1", "type": "GAUGE" },
                    { "name": "rq_active", "type": "GAUGE" },
                ],
                "health_status": { "eds_health_status": "HEALTHY" },
                "weight": 3,
                "hostname": "first",
                "locality": { "region": "r", "zone": "z" },
            },
            {
                "address": address(hosts[1]),
                "stats": [
                    { "name": "cx_connect_fail" },
                    { "name": "cx_total" },
                    { "name": "rq_error" },
                    { "name": "rq_success" },
                    { "name": "rq_total" },
                    { "name": "cx_active", "type": "GAUGE" },
                    { "name": "rq_active", "type": "GAUGE" },
                ],
                "health_status": { "eds_health_status": "DRAINING" },
                "weight": 1,
                "priority": 1,
                "locality": {},
            },
        ],
    }] });
    assert_eq!(json_page(&proxy, "/clusters?format=json").await, expected);
    let endpoint = |host: SocketAddr| json!({ "address": address(host) });
    let mut first = endpoint(hosts[0]);
    first["hostname"] = json!("first");
    let expected = json!({ "configs": [{
        "@type": "type.googleapis.com/envoy.admin.v3.EndpointsConfigDump.StaticEndpointConfig",
        "endpoint_config": {
            "@type": "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment",
            "cluster_name": "orders",
            "endpoints": [
                {
                    "locality": { "region": "r", "zone": "z" },
                    "lb_endpoints": [{
                        "endpoint": first,
                        "health_status": "HEALTHY",
                        "load_balancing_weight": 3,
                    }],
                },
                {
                    "locality": {},
                    "lb_endpoints": [{
                        "endpoint": endpoint(hosts[1]),
                        "health_status": "UNHEALTHY",
                        "load_balancing_weight": 1,
                    }],
                    "priority": 1,
                },
            ],
        },
    }] });
    let page = "/config_dump?include_eds&resource=static_endpoint_configs";
    assert_eq!(json_page(&proxy, page).await, expected);
    let dump = json_page(&proxy, "/config_dump?include_eds").await;
    let entry = &dump["configs"][2]["static_endpoint_configs"][0];
    let assignment = &entry["endpoint_config"];
    assert_eq!(assignment, &expected["configs"][0]["endpoint_config"]);
    let rejected = client::get(proxy.admin(), "/clusters?format=xml").await;
    assert_eq!(rejected.status, 400, "{rejected:?}");
    proxy.shut_down().await;
}

#[tokio::test]
async fn a_failing_host_is_flagged_and_keeps_its_counters_across_reloads() {
    let unreachable = free_address();
    let outliers = "outlier_detection: {consecutive_5xx: 2, enforcing_consecutive_5xx: 100, \
                    max_ejection_percent: 100}\n";
    let backend = status_backend().await;
    let hosts: [SocketAddr; 2] = [backend.address, unreachable];
    let text = config(&route_all_to("orders"), &[("orders", &hosts, outliers)]);
    let proxy = Proxy::start(&text).await;
    wait_until("the host is ejected", || async {
        client::get(proxy.address(), "/500").await;
        let flags = format!("orders::{}::health_flags::/failed", backend.address);
        page(&proxy, "/clusters").await.contains(&flags)
    })
    .await;
    let count = |page: String, name: &str| -> u64 {
        let line = format!("orders::{unreachable}::{name}::");
        let mut lines = page.lines();
        let value = lines.find_map(|found| found.strip_prefix(&line)).unwrap();
        value.parse().unwrap()
    };
    let failed = count(page(&proxy, "/clusters").await, "cx_connect_fail");
    assert!(failed > 0);
    // Changed connection settings replace the connection pools.
    proxy
        .edit(&text.replace("type: STATIC\n", "type: STATIC\n    connect_timeout: 3s\n"))
        .await;
    wait_until("the edit is applied", || async {
        page(&proxy, "/stats").await.contains("reload_success: 1")
    })
    .await;
    let after = page(&proxy, "/clusters").await;
    assert!(count(after.clone(), "cx_connect_fail") >= failed);
    assert!(count(after.clone(), "cx_total") >= count(after, "cx_connect_fail"));
    proxy.shut_down().await;
}
