//! A running control plane with services from SRV records of a real DNS server: that of an agent of
//! Consul, whose names have a tag, here the zone.

use std::net::SocketAddr;

use plimsoll_control::sources::{SourceId, SourceState};
use plimsoll_testing::Consul;
use plimsoll_testing::http::get;
use plimsoll_testing::tasks::{wait_to_see, wait_until};
use serde_json::json;

use crate::running::Running;

fn host(port: u16) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, 9], port))
}

fn register(agent: &Consul, id: &str, port: u16, zone: &str) {
    agent.register("orders", id, host(port), json!({"Tags": [zone]}));
}

fn section(agent: &Consul, more: &str) -> String {
    format!(
        "dns: {{servers: ['{}'], {more} names: [\
         {{name: _orders._a.service.consul, cluster: orders, zone: a}}, \
         {{name: _orders._b.service.consul, cluster: orders, zone: b}}]}}\n",
        agent.address("dns")
    )
}

/// Returns the zones of `orders` with their numbers of endpoints.
async fn zones(running: &Running) -> Vec<(String, usize)> {
    let inspect = |state: &plimsoll_control::state::State, _| {
        let service = state.config().services.get("orders");
        let localities = service.map(|service| service.assignment.endpoints().iter());
        let shown = |one: &plimsoll_core::model::assignment::LocalityLbEndpoints| {
            (one.locality.zone().to_owned(), one.lb_endpoints.len())
        };
        localities.into_iter().flatten().map(shown).collect()
    };
    running.context.handle.inspect(inspect).await.unwrap()
}

async fn wait_for_zones(running: &Running, expected: &[(&str, usize)]) {
    let expected: Vec<_> = expected
        .iter()
        .map(|(zone, count)| ((*zone).to_owned(), *count))
        .collect();
    wait_to_see(
        &format!("zones are {expected:?}"),
        async || zones(running).await,
        |seen| *seen == expected,
    )
    .await;
}

async fn wait_for_source(running: &Running, what: &str, is: impl Fn(&SourceState) -> bool) {
    let handle = &running.context.handle;
    wait_to_see(
        what,
        async || handle.source(SourceId::Dns),
        |state| state.as_ref().is_some_and(&is),
    )
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn services_follow_srv_records_and_edits_of_the_file() {
    let directory = tempfile::tempdir().unwrap();
    let agent = Consul::start(directory.path(), &json!({}));
    register(&agent, "o1", 1, "a");
    register(&agent, "o2", 2, "b");
    let running = Running::start(&section(&agent, "")).await;
    running.wait_for(&["orders Shadow 2"]).await;
    wait_for_zones(&running, &[("a", 1), ("b", 1)]).await;
    wait_until("it is ready", async || {
        let admin = running.context.bound.admin.unwrap();
        let page = get(admin, "/readyz").unwrap_or_default();
        page.lines().any(|line| line.starts_with("dns: connected"))
    })
    .await;
    // Consul names at most three instances in an answer over UDP: the others come over TCP.
    for port in 3..13 {
        register(&agent, &format!("o{port}"), port, "a");
    }
    wait_for_zones(&running, &[("a", 11), ("b", 1)]).await;
    for port in 3..13 {
        agent.deregister(&format!("o{port}"));
    }
    wait_for_zones(&running, &[("a", 1), ("b", 1)]).await;

    // Other defaults, and prices of the file, take effect without a restart of the process.
    let edited = "cost: {usd_per_gigabyte: 0.5}\n".to_owned() + &section(&agent, "mode: ENFORCE,");
    running.edit(&edited).await.unwrap();
    running.wait_for(&["orders Enforce 2"]).await;
    let price = |state: &plimsoll_control::state::State, _| {
        let cost = &state.config().services["orders"].goal.cost;
        cost.usd_per_gigabyte()
    };
    assert_eq!(running.context.handle.inspect(price).await.unwrap(), 0.5);
    running.edit("{}").await.unwrap();
    running.wait_for(&[]).await;
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dns_server_that_is_away_or_lost_its_records_removes_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let mut agent = Consul::start(directory.path(), &json!({}));
    register(&agent, "o1", 1, "a");
    register(&agent, "o2", 2, "b");
    let running = Running::start(&section(&agent, "")).await;
    wait_for_zones(&running, &[("a", 1), ("b", 1)]).await;

    agent.kill();
    wait_for_source(&running, "the outage is noticed", |state| {
        state.failing.is_some()
    })
    .await;
    assert_eq!(zones(&running).await.len(), 2);
    // It comes back without records: the names do not exist.
    agent.restart();
    wait_for_source(&running, "the loss is noticed", |state| {
        state.held == 2 && state.failing.is_none()
    })
    .await;
    assert_eq!(zones(&running).await.len(), 2);
    // What registers again is followed at once.
    register(&agent, "o3", 3, "a");
    register(&agent, "o4", 4, "a");
    wait_for_zones(&running, &[("a", 2), ("b", 1)]).await;
    wait_for_source(&running, "only zone b is held", |state| state.held == 1).await;
    running.stop().await;
}
