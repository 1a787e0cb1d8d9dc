//! OBSERVED_LOAD in the proxy: a bootstrap of a file alone, without a fleet and a control plane.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests and their helpers")]

mod support;

use std::net::SocketAddr;
use std::time::Duration;

use serde_json::Value;
use support::backend::{Backend, response};
use support::{HTTP2, Proxy, client, config, eventually, everything};
use tokio::sync::watch;

/// A backend that answers at once unless its answers are held back.
async fn gated() -> (Backend, watch::Sender<bool>) {
    let held = watch::Sender::new(false);
    let gate = held.subscribe();
    let backend = Backend::start(move |_| {
        let mut gate = gate.clone();
        async move {
            drop(gate.wait_for(|held| !held).await);
            response(200, "")
        }
    });
    (backend.await, held)
}

/// The first host in zone a, where the proxy is, the second in zone b.
fn two_zones(hosts: [SocketAddr; 2]) -> String {
    let policy = "load_balancing_policy: {policies: [{typed_extension_config: {name: x, \
                  typed_config: {'@type': type.googleapis.com/envoy.extensions.\
                  load_balancing_policies.round_robin.v3.RoundRobin, locality_lb_config: \
                  {zone_aware_lb_config: {locality_basis: OBSERVED_LOAD, min_cluster_size: 1, \
                  observed_load_period: 0.1s, dead_band_bp: 3000}}}}}]}\n";
    // Requests that hang must not stop the others.
    let limits = "circuit_breakers: {thresholds: [{max_requests: 1000000}]}\n";
    let more = format!("{HTTP2}{limits}{policy}");
    let text = config(&everything("orders"), &[("orders", &hosts, &more)]);
    let text = text.replacen(
        "endpoints: [{lb_endpoints",
        "endpoints: [{locality: {zone: a}, lb_endpoints",
        1,
    );
    let text = text.replacen(
        "}}}}, {endpoint",
        "}}}}]}, {locality: {zone: b}, lb_endpoints: [{endpoint",
        1,
    );
    format!("node: {{id: p1, cluster: edge, locality: {{zone: a}}}}\n{text}")
}

/// Basis points that stay in zone a, once response times decide; 0 before.
async fn kept(proxy: &Proxy) -> u64 {
    let page = client::get(proxy.admin(), "/explain?cluster=orders").await;
    let explained: Value = serde_json::from_str(&page.body).unwrap();
    let observed = explained["reason"]
        .as_str()
        .is_some_and(|reason| reason.contains("response times"));
    let kept = explained["local_percent_to_route_bp"].as_u64();
    kept.filter(|_| observed).unwrap_or(0)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_that_get_no_answer_move_traffic_to_the_other_zone() {
    let ((a, held), (b, _open)) = (gated().await, gated().await);
    let proxy = Proxy::start(&two_zones([a.address, b.address])).await;
    let front = proxy.address();
    let traffic = tokio::spawn(async move {
        let mut pace = tokio::time::interval(Duration::from_millis(2));
        loop {
            pace.tick().await;
            tokio::spawn(async move { drop(client::get(front, "/").await) });
        }
    });
    eventually("probes of zone b", async || b.count() > 120).await;
    eventually("home, with probes", async || kept(&proxy).await >= 9_500).await;
    held.send_replace(true);
    let moved = async || (1..=6_000).contains(&kept(&proxy).await);
    eventually("half of it leaves", moved).await;
    let before = b.count();
    eventually("they arrive", async || b.count() > before + 100).await;
    traffic.abort();
}
