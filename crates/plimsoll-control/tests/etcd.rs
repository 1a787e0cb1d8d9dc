//! Replicas with a real etcd (Debian's `etcd-server`): nodes report to one replica, and all of them
//! count. Faults of whole clusters are tested in the end-to-end tests of the binary.

#![cfg(feature = "etcd")]
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "tests"
)]

#[path = "support/etcd.rs"]
mod support;

use std::time::Duration;

use support::{Etcd, Replica, Seen, node};

/// Requests per second of the nodes in zones a, b and c.
const DEMAND: [u64; 3] = [600, 200, 200];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replicas_share_nodes_and_survive_the_store() {
    let mut etcd = Etcd::start();
    let mut replicas = Vec::new();
    for name in ["r0", "r1", "r2"] {
        replicas.push(Replica::start(name, &etcd, 1000, "").await);
    }
    let nodes = ["a", "b", "c"].map(|zone| node(&format!("proxy/{zone}"), zone));
    let mut sessions = Vec::new();
    for (replica, node) in replicas.iter().zip(&nodes) {
        sessions.push(replica.open(node).await);
    }
    for (session, requests) in sessions.iter_mut().zip(DEMAND) {
        session.report(requests).await;
    }
    for replica in &replicas {
        replica
            .wait_for("all demand", |seen| seen.demand == DEMAND.to_vec())
            .await;
        replica.wait_for("all nodes", |seen| seen.nodes == 3).await;
        replica
            .wait_for("all replicas", |seen| seen.replicas == 3)
            .await;
    }

    // A node moves.
    drop(sessions.remove(0));
    let mut moved = replicas[1].open(&nodes[0]).await;
    moved.report(700).await;
    sessions.insert(0, moved);
    for replica in &replicas {
        let moved = |seen: &Seen| seen.demand == [700, 200, 200] && seen.nodes == 3;
        replica.wait_for("the node at its new replica", moved).await;
    }

    // Without etcd everything that is known counts.
    etcd.kill();
    for replica in &replicas {
        replica
            .wait_for("the loss of the store", |seen| !seen.connected)
            .await;
        assert_eq!(replica.seen().await.demand, [700, 200, 200]);
    }
    sessions[0].report(800).await;
    replicas[1]
        .wait_for("its own report", |seen| seen.demand == [800, 200, 200])
        .await;
    assert_eq!(replicas[2].seen().await.demand, [700, 200, 200]);

    // A replica that starts now waits for the store, and then knows everything.
    let late = Replica::start("r3", &etcd, 1000, "").await;
    assert_eq!(late.seen().await.demand, [0_u64; 0]);
    etcd.restart();
    for replica in replicas.iter().chain([&late]) {
        replica
            .wait_for("all demand again", |seen| seen.demand == [800, 200, 200])
            .await;
        assert_eq!(replica.seen().await.nodes, 3);
    }

    // A replica that shuts down removes itself, but not its nodes, which may move.
    replicas[2].shut_down();
    replicas[0]
        .wait_for("three replicas", |seen| seen.replicas == 3)
        .await;
    assert_eq!(replicas[0].seen().await.nodes, 3);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn records_expire_with_the_lease_and_the_history_is_compacted() {
    let etcd = Etcd::start();
    let settings = ", lease_ttl: 5s, compaction_interval: 1s";
    let first = Replica::start("r0", &etcd, 1, settings).await;
    let second = Replica::start("r1", &etcd, 1, settings).await;
    let mut session = first.open(&node("1", "a")).await;
    session.report(100).await;
    second
        .wait_for("the node", |seen| seen.demand == [100])
        .await;
    // The process dies: nothing is closed or deleted.
    first.abort();
    second
        .wait_for("one replica", |seen| seen.replicas == 1)
        .await;
    second
        .wait_for("no node", |seen| seen.nodes == 0 && seen.demand.is_empty())
        .await;
    second
        .wait_for("a compaction", |seen| seen.compactions > 0)
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn certificates_are_checked_on_both_sides_of_etcd() {
    let etcd = Etcd::start_with_tls();
    let replica = Replica::start("r0", &etcd, 1000, &etcd.tls_settings()).await;
    let mut session = replica.open(&node("1", "a")).await;
    session.report(100).await;
    let other = Replica::start("r1", &etcd, 1000, &etcd.tls_settings()).await;
    other
        .wait_for("the node", |seen| seen.demand == [100])
        .await;
    // Without a client certificate, etcd refuses the connection.
    let stranger =
        Replica::start("r2", &etcd, 1000, &etcd.tls_settings_without_certificate()).await;
    tokio::time::timeout(Duration::from_secs(60), stranger.failure())
        .await
        .unwrap();
    assert!(!stranger.seen().await.connected);
}
