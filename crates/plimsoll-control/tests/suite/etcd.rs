//! Replicas with a real etcd (Debian's `etcd-server`): nodes report to one replica, and all of them
//! count. Faults of whole clusters are tested in the end-to-end tests of the binary.

#![cfg(feature = "etcd")]

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use crate::support::ads::{ASSIGNMENTS, Ads, CLUSTERS, message, names};
use crate::support::etcd::{Etcd, Replica, Seen, Session, node};
use plimsoll_testing::Authority;
use plimsoll_xds::ads::message::{DeltaDiscoveryRequest, DiscoveryRequest, DiscoveryResponse};
use tokio::sync::watch;

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
async fn a_replica_that_starts_reads_every_page_of_the_store() {
    // A page has 500 records.
    const NODES: u64 = 501;
    let etcd = Etcd::start();
    let first = Replica::start("r0", &etcd, 1000, "").await;
    let mut sessions = Vec::new();
    for number in 0..NODES {
        let mut session = first.open(&node(&number.to_string(), "a")).await;
        session.report(1).await;
        sessions.push(session);
    }
    let all = |seen: &Seen| seen.nodes as u64 == NODES && seen.demand == [NODES];
    let second = Replica::start("r1", &etcd, 1000, "").await;
    second.wait_for("all nodes", all).await;
    // Nobody writes any more: what the last one knows, it has read.
    let last = Replica::start("r2", &etcd, 1000, "").await;
    last.wait_for("all nodes", all).await;
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
    let etcd = Etcd::start_with_tls(&Authority::named("first"));
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
    stranger.failures(1).await;
    assert!(!stranger.seen().await.connected);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn certificates_and_authorities_rotate_while_replicas_go_on() {
    let (old, new) = (Authority::named("old"), Authority::named("new"));
    let mut etcd = Etcd::start_with_tls(&old);
    let mut replicas = Vec::new();
    let mut sessions = Vec::new();
    for (name, zone) in [("r0", "a"), ("r1", "b")] {
        let replica = Replica::start(name, &etcd, 1000, &etcd.tls_settings()).await;
        let mut session = replica.open(&node(name, zone)).await;
        session.report(100).await;
        sessions.push(session);
        replicas.push(replica);
    }
    let mut expected = vec![100, 100];
    everyone(&replicas, &expected).await;

    // Both sides trust both authorities; then both get certificates of the new one; then nobody
    // trusts the old one. etcd reads its authorities when it starts.
    let both = [&old, &new];
    let steps = [(&old, &both[..]), (&new, &both), (&new, &[&new])];
    for (step, (issuer, trusted)) in steps.into_iter().enumerate() {
        etcd.replace_client_files(issuer, trusted);
        etcd.replace_server_files(issuer, trusted);
        etcd.kill();
        for replica in &replicas {
            replica
                .wait_for("the loss of the store", |seen| !seen.connected)
                .await;
            assert_eq!(replica.seen().await.demand, expected, "nothing is lost");
        }
        // What is reported without the store is shared when it is back.
        let one = step % 2;
        sessions[one].report(expected[one] + 100).await;
        expected[one] += 100;
        etcd.restart();
        everyone(&replicas, &expected).await;
    }

    // The old authority is worth nothing any more.
    let fixed = etcd.fixed_settings(&old, &both);
    let late = Replica::start("r2", &etcd, 1000, &fixed).await;
    late.failures(3).await;
    assert!(!late.seen().await.connected);
    let mut last = replicas[1].open(&node("last", "c")).await;
    last.report(700).await;
    everyone(&replicas, &[expected[0], expected[1], 700]).await;
}

/// Waits until every replica is connected with the store and knows this demand.
async fn everyone(replicas: &[Replica], demand: &[u64]) {
    for replica in replicas {
        let knows = |seen: &Seen| seen.connected && seen.demand == demand;
        replica.wait_for("all demand", knows).await;
    }
}

/// Lets nodes report their demand every half second until it is dropped.
async fn report_forever(mut sessions: Vec<Session>, demand: [u64; 3]) {
    let mut interval = tokio::time::interval(Duration::from_millis(500));
    loop {
        interval.tick().await;
        for (session, requests) in sessions.iter_mut().zip(demand) {
            session.report(requests).await;
        }
    }
}

/// Two replicas with the same demand, and the task that reports it.
async fn measured(etcd: &Etcd) -> ([Replica; 2], tokio::task::JoinHandle<()>) {
    let first = Replica::start("r0", etcd, 1, "").await;
    let second = Replica::start("r1", etcd, 1, "").await;
    let mut sessions = Vec::new();
    for zone in ["a", "b", "c"] {
        sessions.push(first.open(&node(zone, zone)).await);
    }
    let reports = tokio::spawn(report_forever(sessions, DEMAND));
    for replica in [&first, &second] {
        let is_delivered = |seen: &Seen| seen.fractions == [6000, 2000, 2000];
        replica.wait_for("fractions", is_delivered).await;
    }
    ([first, second], reports)
}

/// The assignments that a client of these tests subscribes to.
const SUBSCRIBED: [&str; 2] = ["local_cluster", "orders"];

type Versions = BTreeMap<Arc<str>, String>;

/// Subscribes to clusters and assignments on an incremental stream. `claimed` are the versions that
/// the client has from an earlier stream.
async fn subscribe(ads: &mut Ads, claimed: &BTreeMap<&str, Versions>) {
    let claimed = |kind| claimed.get(kind).cloned().unwrap_or_default();
    for (kind, wanted) in [(CLUSTERS, Vec::new()), (ASSIGNMENTS, names(SUBSCRIBED))] {
        ads.request_delta(&DeltaDiscoveryRequest {
            node: message(&node("a", "a")),
            type_url: kind.into(),
            resource_names_subscribe: wanted,
            initial_resource_versions: claimed(kind),
            ..DeltaDiscoveryRequest::default()
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_incremental_client_that_moves_gets_nothing_that_it_has() {
    let etcd = Etcd::start();
    let ([first, second], reports) = measured(&etcd).await;
    let mut ads = Ads::delta(first.xds()).await;
    subscribe(&mut ads, &BTreeMap::new()).await;
    let mut known: BTreeMap<&str, Versions> = BTreeMap::new();
    while known.values().map(BTreeMap::len).sum::<usize>() < 3 {
        let response = ads.response_delta().await;
        let mut kinds = [CLUSTERS, ASSIGNMENTS].into_iter();
        let kind = kinds.find(|kind| **kind == *response.type_url).unwrap();
        let resources = response.resources.into_iter();
        let versions = resources.map(|resource| (resource.name, resource.version));
        known.entry(kind).or_default().extend(versions);
    }
    drop(ads);

    // The first response of the other replica is about a name that the client never had: clusters
    // come before assignments, and requests are answered in order.
    let mut moved = Ads::delta(second.xds()).await;
    subscribe(&mut moved, &known).await;
    let probe = DeltaDiscoveryRequest {
        type_url: ASSIGNMENTS.into(),
        resource_names_subscribe: names(["missing"]),
        ..DeltaDiscoveryRequest::default()
    };
    moved.request_delta(&probe).await;
    let response = moved.response_delta().await;
    assert_eq!(response.resources, [], "it has them");
    assert_eq!(response.removed_resources, names(["missing"]));
    drop(moved);

    // What the client has in another version is sent, alone.
    let mut outdated = known.clone();
    let assignments = outdated.get_mut(ASSIGNMENTS).unwrap();
    assignments.insert("orders".into(), "another version".to_owned());
    let mut moved = Ads::delta(second.xds()).await;
    subscribe(&mut moved, &outdated).await;
    let response = moved.response_delta().await;
    let sent: Vec<_> = response.resources.iter().map(|one| &*one.name).collect();
    assert_eq!(sent, ["orders"]);
    assert_eq!(response.resources[0].version, known[ASSIGNMENTS]["orders"]);
    reports.abort();
}

/// A request of a state-of-the-world client.
fn sotw_request(kind: &str, wanted: Vec<Arc<str>>, version: &str, nonce: &str) -> DiscoveryRequest {
    DiscoveryRequest {
        node: message(&node("a", "a")),
        type_url: kind.into(),
        version_info: version.to_owned(),
        response_nonce: nonce.to_owned(),
        resource_names: wanted,
        error_detail: None,
    }
}

/// Clusters and assignments that a client gets which has nothing.
async fn subscribed(replica: SocketAddr) -> [DiscoveryResponse; 2] {
    let mut ads = Ads::sotw(replica).await;
    ads.request(&sotw_request(CLUSTERS, Vec::new(), "", ""))
        .await;
    let clusters = ads.response().await;
    assert_eq!(clusters.resources.len(), 1);
    let (version, nonce) = (&*clusters.version_info, &*clusters.nonce);
    ads.request(&sotw_request(CLUSTERS, Vec::new(), version, nonce))
        .await;
    ads.request(&sotw_request(ASSIGNMENTS, names(SUBSCRIBED), "", ""))
        .await;
    let assignments = ads.response().await;
    assert_eq!(&*assignments.type_url, ASSIGNMENTS);
    [clusters, assignments]
}

/// The first answer to a client that has these versions of clusters and assignments.
async fn moved(replica: SocketAddr, versions: [&str; 2]) -> DiscoveryResponse {
    let mut ads = Ads::sotw(replica).await;
    ads.request(&sotw_request(CLUSTERS, Vec::new(), versions[0], ""))
        .await;
    ads.request(&sotw_request(
        ASSIGNMENTS,
        names(SUBSCRIBED),
        versions[1],
        "",
    ))
    .await;
    ads.response().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_state_of_the_world_client_that_moves_gets_no_clusters_that_it_has() {
    let etcd = Etcd::start();
    let ([first, second], reports) = measured(&etcd).await;
    let mut attempts = 0;
    let clusters = loop {
        let [clusters, assignments] = subscribed(first.xds()).await;
        // Assignments are always answered, because Envoy may wait for them: with the same content.
        let versions = [&clusters, &assignments].map(|one| &*one.version_info);
        let answered = moved(second.xds(), versions).await;
        assert_eq!(&*answered.type_url, ASSIGNMENTS, "it has the clusters");
        if answered.version_info == assignments.version_info {
            assert_eq!(answered.resources, assignments.resources);
            break clusters;
        }
        // Fractions of measured demand may have moved between the two, on a busy machine.
        attempts += 1;
        assert!(attempts < 20, "replicas never have the same version");
        tokio::time::sleep(Duration::from_millis(500)).await;
    };

    let answered = moved(second.xds(), ["another version", ""]).await;
    assert_eq!(&*answered.type_url, CLUSTERS);
    assert_eq!(answered.version_info, clusters.version_info);
    reports.abort();
}

/// Versions of the fleet's assignment that a client of a replica receives, until `is_over`.
async fn versions(
    replica: SocketAddr,
    id: String,
    mut is_over: watch::Receiver<bool>,
) -> Vec<String> {
    let mut ads = Ads::delta(replica).await;
    ads.request_delta(&DeltaDiscoveryRequest {
        node: message(&node(&id, "a")),
        type_url: ASSIGNMENTS.into(),
        resource_names_subscribe: names(["local_cluster"]),
        ..DeltaDiscoveryRequest::default()
    })
    .await;
    let mut versions: Vec<String> = Vec::new();
    loop {
        let response = tokio::select! {
            response = ads.response_delta() => response,
            _ = is_over.wait_for(|over| *over) => return versions,
        };
        versions.extend(response.resources.into_iter().map(|one| one.version));
        // A heartbeat repeats the version.
        versions.dedup();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_of_all_replicas_get_the_same_versions_while_demand_moves() {
    let etcd = Etcd::start();
    let mut replicas = Vec::new();
    let mut sessions = Vec::new();
    for (name, zone) in [("r0", "a"), ("r1", "b"), ("r2", "c")] {
        let replica = Replica::start(name, &etcd, 1, "").await;
        sessions.push(replica.open(&node(zone, zone)).await);
        replicas.push(replica);
    }
    let reports = tokio::spawn(report_forever(sessions, DEMAND));
    let (over, is_over) = watch::channel(false);
    let clients: Vec<_> = replicas
        .iter()
        .enumerate()
        .map(|(index, replica)| {
            let id = format!("client-{index}");
            tokio::spawn(versions(replica.xds(), id, is_over.clone()))
        })
        .collect();
    for replica in &replicas {
        let is_delivered = |seen: &Seen| seen.fractions == [6000, 2000, 2000] && seen.nodes == 6;
        replica.wait_for("fractions", is_delivered).await;
    }
    reports.abort();
    let mut sessions = Vec::new();
    for (replica, zone) in replicas.iter().zip(["a", "b", "c"]) {
        sessions.push(replica.open(&node(zone, zone)).await);
    }
    let reports = tokio::spawn(report_forever(sessions, [200, 200, 600]));
    for replica in &replicas {
        let has_moved = |seen: &Seen| seen.fractions.last() > Some(&3500);
        replica.wait_for("moved demand", has_moved).await;
    }
    over.send_replace(true);
    let mut received = Vec::new();
    for client in clients {
        received.push(client.await.unwrap());
    }
    reports.abort();
    let all: BTreeSet<_> = received.iter().flatten().collect();
    let longest = received.iter().map(Vec::len).max().unwrap();
    // About ten steps of 50 basis points or one per second; a busy client skips some of them. If
    // every replica made versions of its own, there would be three times as many.
    assert!(longest >= 3, "{received:?}");
    assert!(all.len() < 2 * longest, "{received:?}");
    let [first, others @ ..] = &received[..] else {
        panic!("three clients");
    };
    for other in others {
        let common = |of: &[String], with: &[String]| {
            let common = of.iter().filter(|version| with.contains(version));
            common.cloned().collect::<Vec<_>>()
        };
        assert_eq!(common(first, other), common(other, first), "the same order");
    }
}
