//! Real gRPC clients (C-core through Python, and grpc-js) follow the locality weights of their zone
//! and report their load.

use std::collections::BTreeMap;

use plimsoll_testing::http::get;

use crate::support::control::Control;
use crate::support::grpc::Peer;
use crate::support::{scratch, wait_to_see, wait_until};

#[test]
fn c_core_clients_follow_locality_weights_and_report_load() {
    let directory = scratch("grpc");
    let zones = ["zone-a", "zone-a", "zone-b", "zone-b"];
    let (_servers, ports) = Peer::serve(&directory, &zones);
    let config = format!(
        "load_reporting: {{interval: 1s}}
demand: {{smoothing_time_constant: 3s}}
services:
- cluster:
    name: orders
    common_lb_config: {{zone_aware_lb_config: {{min_cluster_size: 1}}}}
  endpoints:
  - locality: {{region: r1, zone: zone-a}}
    lb_endpoints: ['127.0.0.1:{}', '127.0.0.1:{}']
  - locality: {{region: r1, zone: zone-b}}
    lb_endpoints: ['127.0.0.1:{}', '127.0.0.1:{}']
",
        ports[0], ports[1], ports[2], ports[3]
    );
    let control = Control::start(&directory, &config);
    // zone-a has 75 % of the demand and 50 % of the servers.
    let mut a = Peer::call(&directory, &control, "zone-a", 150);
    let mut b = Peer::call(&directory, &control, "zone-b", 50);
    wait_until("load reports of both zones have arrived", || {
        let fractions = control.service_fractions("orders");
        let zone_a = fractions.get("zone-a").copied().unwrap_or_default();
        zone_a.abs_diff(7500) <= 300 && fractions.len() == 2
    });
    control.wait_for_node("checkout-zone-a", "reports and gets weights", |node| {
        node["class"] == "grpc"
            && node["delivery"][0]["delivery"] == "locality_weights"
            && node["load_reporting_streams"] == 1
            && node["requests_per_second"].as_f64() > Some(0.0)
    });

    // One standard deviation is 1.2 percentage points: chance passes the limit once in 10^6 runs.
    let from_a = count_next(&mut a, 1500);
    let local = share(&from_a, "zone-a");
    assert!((local - 0.667).abs() < 0.06, "{from_a:?}");
    // zone-b has more servers than demand: there is no chance in it.
    let from_b = count_next(&mut b, 300);
    assert!(share(&from_b, "zone-b") > 0.97, "{from_b:?}");
    for counts in [a.counts(), b.counts()] {
        assert_eq!(counts.get(""), None, "failed calls: {counts:?}");
    }
}

/// grpc-js supports `send_all_clusters` but skips the first cluster of a list of names, so it would
/// not report a single service by name.
#[test]
fn grpc_js_clients_report_load_and_fractions_follow() {
    const ZONES: [&str; 3] = ["zone-a", "zone-b", "zone-c"];
    let directory = scratch("grpc-js");
    let (_servers, ports) = Peer::serve(&directory, &ZONES);
    let control = Control::start(&directory, &config(&ZONES, &ports));
    let rates = [("zone-a", 90), ("zone-b", 30), ("zone-c", 30)];
    let mut clients = rates.map(|(zone, rate)| Peer::call_js(&directory, &control, zone, rate));
    wait_for_fractions(&control, [6000, 2000, 2000]);
    // A report that is late on a busy machine makes the service unreported until the next one.
    control.wait_for_node("checkout-zone-a", "reports every service", |node| {
        node["class"] == "grpc"
            && node["user_agent_name"] == "gRPC Node Pure JS"
            && node["unreported"] == serde_json::json!([])
    });
    // zone-a has 33 % of the capacity and 60 % of the demand; one standard deviation is 1.6
    // percentage points: chance passes the limit once in 10^6 runs. The others keep all requests.
    let from_a = count_next(&mut clients[0], 900);
    let local = share(&from_a, "zone-a");
    assert!((local - 0.556).abs() < 0.08, "{from_a:?}");
    assert!(share(&count_next(&mut clients[1], 200), "zone-b") > 0.95);

    clients[0].set_rate(30);
    clients[2].set_rate(90);
    wait_for_fractions(&control, [2000, 2000, 6000]);
    assert!(share(&count_next(&mut clients[0], 200), "zone-a") > 0.95);
    for client in &mut clients {
        let counts = client.counts();
        assert_eq!(counts.get(""), None, "failed calls: {counts:?}");
    }
}

/// What gRPC does not know is not sent; the rest is accepted, and the page says what was left out.
#[test]
fn clients_accept_the_settings_that_grpc_knows() {
    let directory = scratch("grpc-settings");
    let (_servers, ports) = Peer::serve(&directory, &["zone-a"]);
    let settings = "    health_checks: [{timeout: 1s, interval: 2s, unhealthy_threshold: 2, \
                    healthy_threshold: 1, tcp_health_check: {}}]
    outlier_detection: {consecutive_5xx: 3, interval: 1s, failure_percentage_threshold: 50, \
                    enforcing_failure_percentage: 100, failure_percentage_minimum_hosts: 1}
    circuit_breakers: {thresholds: [{max_requests: 100, max_connections: 7}]}
    transport_socket: {name: envoy.transport_sockets.tls, typed_config: {'@type': \
                    type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.\
                    UpstreamTlsContext, common_tls_context: {validation_context: {trusted_ca: \
                    {filename: /ca.pem}}}}}
  endpoints:";
    let config = config(&["zone-a"], &ports).replace("  endpoints:", settings);
    let control = Control::start(&directory, &config);
    let mut clients = [
        Peer::call(&directory, &control, "zone-a", 50),
        Peer::call_js(&directory, &control, "zone-b", 50),
    ];
    for client in &mut clients {
        let counts = count_next(client, 100);
        assert_eq!(counts.get(""), None, "failed calls: {counts:?}");
    }
    for node in ["checkout-zone-a", "checkout-zone-b"] {
        let status = control.type_status(node, "Cluster");
        assert_eq!(status["nacks"], 0, "{status}");
    }
    let page = control.page("explain?cluster=orders&zone=zone-a&region=r1");
    let changes = page["changes"].as_array().cloned().unwrap_or_default();
    let of = |name: &str| changes.iter().find(|change| change["setting"] == name);
    for name in [
        "health_checks",
        "outlier_detection.consecutive_5xx",
        "circuit_breakers.thresholds[0].max_connections",
        "transport_socket",
    ] {
        let change = of(name).unwrap_or_else(|| panic!("{name}: {page}"));
        assert_eq!(change["sent"], "nothing", "{change}");
        assert!(
            change["reason"].as_str().unwrap().contains("gRPC"),
            "{change}"
        );
    }
    assert!(of("outlier_detection.interval").is_none(), "{changes:?}");
}

/// grpc-js sends empty reports while it is idle. Its demand is unknown then, which is shown until
/// it reports.
#[test]
fn a_client_with_empty_reports_is_shown() {
    let directory = scratch("grpc-js-idle");
    let (_servers, ports) = Peer::serve(&directory, &["zone-a"]);
    let control = Control::start(&directory, &config(&["zone-a"], &ports));
    let mut client = Peer::call_js(&directory, &control, "zone-a", 0);
    let shown = || {
        let unreported = control.node("checkout-zone-a")["unreported"].clone();
        (unreported, unreported_metric(&control))
    };
    let is = |services: &[&str], metric: &str| {
        let expected = (serde_json::json!(services), Some(metric.to_owned()));
        let what = format!("page and metric show {expected:?}");
        wait_to_see(&what, shown, |seen| *seen == expected);
    };
    is(&["orders"], "1");
    client.set_rate(20);
    is(&[], "0");
}

/// Returns the metric of nodes whose reports omit services.
fn unreported_metric(control: &Control) -> Option<String> {
    let page = get(control.admin, "/metrics")?;
    let start = r#"plimsoll_control_nodes_unreported{fleet="checkout"} "#;
    let line = page.lines().find_map(|line| line.strip_prefix(start))?;
    Some(line.to_owned())
}

/// Configuration with one server in each zone.
fn config(zones: &[&str], ports: &[u16]) -> String {
    let endpoint = |(zone, port): (&&str, &u16)| {
        let locality = format!("{{region: r1, zone: {zone}}}");
        format!("  - {{locality: {locality}, lb_endpoints: ['127.0.0.1:{port}']}}\n")
    };
    let endpoints: String = zones.iter().zip(ports).map(endpoint).collect();
    format!(
        "load_reporting: {{interval: 1s}}
demand: {{smoothing_time_constant: 3s}}
services:
- cluster:
    name: orders
    common_lb_config: {{zone_aware_lb_config: {{min_cluster_size: 1}}}}
  endpoints:
{endpoints}"
    )
}

fn wait_for_fractions(control: &Control, expected: [u64; 3]) {
    let what = format!("fractions are near {expected:?}");
    let fractions = || control.service_fractions("orders");
    wait_to_see(&what, fractions, |seen| {
        let near = |(found, expected): (&u64, u64)| found.abs_diff(expected) <= 300;
        seen.len() == 3 && seen.values().zip(expected).all(near)
    });
}

/// Returns the counts of a client over the next `calls`.
fn count_next(client: &mut Peer, calls: u64) -> BTreeMap<String, u64> {
    let before = client.counts();
    let mut after = BTreeMap::new();
    wait_until("calls are answered", || {
        after = client.counts();
        after.values().sum::<u64>() >= before.values().sum::<u64>() + calls
    });
    for (zone, count) in &mut after {
        *count -= before.get(zone).copied().unwrap_or_default();
    }
    after
}

fn share(counts: &BTreeMap<String, u64>, zone: &str) -> f64 {
    let total: u64 = counts.values().sum();
    counts.get(zone).copied().unwrap_or_default() as f64 / total as f64
}
