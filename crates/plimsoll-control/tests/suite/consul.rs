//! A running control plane with a real agent of Consul, beside a scripted Kubernetes API server and
//! the files: sources with the same service, and one that is away.

use std::net::SocketAddr;

use plimsoll_control::sources::SourceId;
use plimsoll_testing::Consul;
use plimsoll_testing::api_server::{ApiServer, service, slice};
use plimsoll_testing::http::get;
use plimsoll_testing::tasks::wait_until;
use serde_json::json;

use crate::running::Running;

const FILE: &str = "services: [{cluster: {name: file}}]\n";

fn host(port: u16) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, 9], port))
}

fn section(agent: &Consul, more: &str) -> String {
    format!("consul: {{address: 'http://{}', {more}}}\n", agent.http())
}

/// Returns whether a page of the admin API has a line that starts with `start`.
fn has_line(running: &Running, path: &str, start: &str) -> bool {
    let page = get(running.context.bound.admin.unwrap(), path).unwrap_or_default();
    page.lines().any(|line| line.starts_with(start))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn services_of_consul_are_used_beside_those_of_files() {
    let directory = tempfile::tempdir().unwrap();
    let agent = Consul::start(directory.path(), &json!({"node_meta": {"zone": "a"}}));
    agent.register("orders", "o1", host(1), json!({}));
    let running = Running::start(&(section(&agent, "") + FILE)).await;
    running
        .wait_for(&["file Enforce 0", "orders Shadow 1"])
        .await;
    wait_until("it is ready", async || {
        has_line(&running, "/readyz", "consul: connected")
    })
    .await;
    agent.register("file", "f1", host(2), json!({}));
    agent.register("orders", "o2", host(3), json!({}));
    running
        .wait_for(&["file Enforce 0", "orders Shadow 2"])
        .await;
    // Other defaults: the source starts again, and services stay until it has read all.
    let edited = section(&agent, "mode: ENFORCE") + FILE;
    running.edit(&edited).await.unwrap();
    running
        .wait_for(&["file Enforce 0", "orders Enforce 2"])
        .await;
    let error = running.edit(&section(&agent, "mode: WRONG")).await;
    assert!(error.unwrap_err().contains("consul.mode"));
    // The service of the file goes, and that of Consul takes over.
    running
        .edit(&section(&agent, "mode: ENFORCE"))
        .await
        .unwrap();
    running
        .wait_for(&["file Enforce 1", "orders Enforce 2"])
        .await;
    running.edit(FILE).await.unwrap();
    running.wait_for(&["file Enforce 0"]).await;
    let handle = &running.context.handle;
    assert_eq!(handle.source(SourceId::Consul), None);
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_sources_name_conflicts_and_one_that_is_away_keeps_its_services() {
    let directory = tempfile::tempdir().unwrap();
    let mut agent = Consul::start(directory.path(), &json!({}));
    agent.register("orders", "o1", host(1), json!({}));
    agent.register("search", "s1", host(2), json!({}));
    let server = ApiServer::start().await;
    server.put("services", service("shop", "orders"));
    let hosts = [("10.0.0.1", "a"), ("10.0.0.2", "b")];
    server.put("endpointslices", slice("shop", "o-1", "orders", &hosts));
    let kubernetes = format!(
        "kubernetes: {{api_server: '{}', cluster_name: '{{service}}', namespaces: [shop]}}\n",
        server.url()
    );
    let running = Running::start(&(section(&agent, "") + &kubernetes)).await;
    let both = ["orders Shadow 2", "search Shadow 1"];
    running.wait_for(&both).await;
    let ignored = "plimsoll_control_ignored_services{source=\"consul\"} 1";
    assert!(has_line(&running, "/metrics", ignored));
    let text = "service orders is in Kubernetes and in Consul: that of Kubernetes is used";
    let recent = running.context.handle.recent().all();
    assert!(
        recent.iter().any(|event| event.text.contains(text)),
        "{recent:?}"
    );

    // Consul goes, without its data: its services stay, and Kubernetes is followed.
    agent.kill();
    let handle = running.context.handle.clone();
    wait_until("the outage is noticed", async || {
        let state = handle.source(SourceId::Consul);
        state.is_some_and(|state| state.failing.is_some())
    })
    .await;
    assert!(has_line(&running, "/readyz", "consul: no answer for"));
    server.put(
        "endpointslices",
        slice("shop", "o-1", "orders", &hosts[..1]),
    );
    running
        .wait_for(&["orders Shadow 1", "search Shadow 1"])
        .await;
    agent.restart();
    wait_until("the loss is noticed", async || {
        let state = handle.source(SourceId::Consul);
        state.is_some_and(|state| state.held == 2 && state.failing.is_none())
    })
    .await;
    agent.register("orders", "o3", host(4), json!({}));
    let held = "plimsoll_control_source_held_objects{source=\"consul\",kind=\"health\"} 2";
    wait_until("metrics have it", async || {
        has_line(&running, "/metrics", held)
    })
    .await;
    running
        .wait_for(&["orders Shadow 1", "search Shadow 1"])
        .await;

    // Kubernetes drops its service: that of Consul takes over, with the host that was kept.
    server.delete("services", "shop", "orders");
    running
        .wait_for(&["orders Shadow 2", "search Shadow 1"])
        .await;
    assert!(!has_line(&running, "/metrics", ignored));
    drop(handle);
    running.stop().await;
}
