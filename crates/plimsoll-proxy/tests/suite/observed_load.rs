//! `OBSERVED_LOAD` in a proxy without a management server and without a local cluster.

use std::net::SocketAddr;
use std::time::Duration;

use crate::support::backend::{Backend, reply};
use crate::support::{HTTP2, Proxy, client, config, route_all_to, wait_until};
use serde_json::Value;
use tokio::sync::watch;

/// Starts a backend that responds at once, or not at all while the sender is set to true.
async fn blockable_backend() -> (Backend, watch::Sender<bool>) {
    let held = watch::Sender::new(false);
    let gate = held.subscribe();
    let backend = Backend::start(move |_| {
        let mut gate = gate.clone();
        async move {
            drop(gate.wait_for(|held| !held).await);
            reply(200, "")
        }
    });
    (backend.await, held)
}

/// A cluster with one host in zone a, where the proxy is, and one in zone b.
fn two_zones(hosts: [SocketAddr; 2]) -> String {
    let policy = "load_balancing_policy: {policies: [{typed_extension_config: {name: x, \
                  typed_config: {'@type': type.googleapis.com/envoy.extensions.\
                  load_balancing_policies.round_robin.v3.RoundRobin, locality_lb_config: \
                  {zone_aware_lb_config: {locality_basis: OBSERVED_LOAD, min_cluster_size: 1, \
                  observed_load_period: 0.1s, dead_band_bp: 6000}}}}}]}\n";
    // Hanging requests must not exhaust the circuit breaker.
    let limits = "circuit_breakers: {thresholds: [{max_requests: 1000000}]}\n";
    let more = format!("{HTTP2}{limits}{policy}");
    let text = config(&route_all_to("orders"), &[("orders", &hosts, &more)])
        .replacen(
            "endpoints: [{lb_endpoints",
            "endpoints: [{locality: {zone: a}, lb_endpoints",
            1,
        )
        .replacen(
            "}}}}, {endpoint",
            "}}}}]}, {locality: {zone: b}, lb_endpoints: [{endpoint",
            1,
        );
    format!("node: {{id: p1, cluster: edge, locality: {{zone: a}}}}\n{text}")
}

/// Returns the basis points of requests that stay in zone a; 0 until response times are known.
async fn local_share(proxy: &Proxy) -> u64 {
    let page = client::get(proxy.admin(), "/explain?cluster=orders").await;
    let explained: Value = serde_json::from_str(&page.body).unwrap();
    let observed = explained["reason"]
        .as_str()
        .is_some_and(|reason| reason.contains("response times"));
    let kept = explained["local_percent_to_route_bp"].as_u64();
    kept.filter(|_| observed).unwrap_or(0)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hanging_requests_move_traffic_to_the_other_zone() {
    let ((a, held), (b, _open)) = (blockable_backend().await, blockable_backend().await);
    let proxy = Proxy::start(&two_zones([a.address, b.address])).await;
    let front = proxy.address();
    let traffic = tokio::spawn(async move {
        let mut interval = tokio::time::interval(Duration::from_millis(2));
        loop {
            interval.tick().await;
            tokio::spawn(async move { drop(client::get(front, "/").await) });
        }
    });
    wait_until("probes of zone b", async || b.count() > 120).await;
    wait_until("traffic stays in zone a, except for probes", async || {
        local_share(&proxy).await >= 9_500
    })
    .await;
    held.send_replace(true);
    let moved = async || (1..=6_000).contains(&local_share(&proxy).await);
    wait_until("part of the traffic moves to zone b", moved).await;
    let before = b.count();
    wait_until("requests arrive in zone b", async || {
        b.count() > before + 100
    })
    .await;
    traffic.abort();
}
