//! A client with a conforming management server: resolution, changes at run time, restarts of the
//! server, and complete load reports.
#![cfg(all(feature = "tonic", feature = "xds"))]

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use crate::support::management::{Management, Reported, xds_options};
use crate::support::resources::{Made, assignment, cluster, listener, routes, whole};
use crate::support::silent::Silent;
use crate::support::{Backend, get, refused_address, within};
use plimsoll_client::{Client, ErrorKind, TargetService, Variant, XdsState};
use plimsoll_testing::tasks::{wait_for, wait_until};
use tokio::task::JoinHandle;

async fn target(server: &Management, variant: Variant) -> (Client, TargetService) {
    let client = Client::builder()
        .xds(xds_options(server.address, variant))
        .build()
        .unwrap();
    let service = within(client.target("xds:///orders")).await.unwrap();
    (client, service)
}

/// Sends requests one after the other until it is stopped.
struct Traffic {
    seen: Arc<Seen>,
    workers: Vec<JoinHandle<()>>,
}

#[derive(Default)]
struct Seen {
    stop: AtomicBool,
    answered: AtomicU64,
    failures: Mutex<Vec<String>>,
}

impl Seen {
    fn assert_no_failure(&self) {
        assert_eq!(*self.failures.lock().unwrap(), Vec::<String>::new());
    }
}

impl Traffic {
    fn start(service: &TargetService) -> Self {
        let seen = Arc::new(Seen::default());
        let workers = (0..4).map(|_| {
            let (mut service, seen) = (service.clone(), Arc::clone(&seen));
            tokio::spawn(async move {
                while !seen.stop.load(Ordering::Relaxed) {
                    match get(&mut service, "/").await {
                        Ok((200, _)) => drop(seen.answered.fetch_add(1, Ordering::Relaxed)),
                        other => {
                            let failures = &mut seen.failures.lock().unwrap();
                            return failures.push(format!("{other:?}"));
                        }
                    }
                }
            })
        });
        Self {
            workers: workers.collect(),
            seen,
        }
    }

    /// Waits for `answers` further responses.
    async fn more(&self, answers: u64) {
        let goal = self.seen.answered.load(Ordering::Relaxed) + answers;
        wait_until("more answers", async || {
            self.seen.assert_no_failure();
            self.seen.answered.load(Ordering::Relaxed) >= goal
        })
        .await;
    }

    /// Stops, and asserts that no request failed.
    async fn stop(self) {
        self.seen.stop.store(true, Ordering::Relaxed);
        for worker in self.workers {
            within(worker).await.unwrap();
        }
        self.seen.assert_no_failure();
    }
}

#[tokio::test]
async fn a_target_is_resolved_in_both_variants() {
    let backend = Backend::start().await;
    let server = Management::start(&whole("orders", &[("a", &[backend.address])]));
    for (seen, variant) in [(1, Variant::Sotw), (2, Variant::Delta)] {
        let (client, mut service) = target(&server, variant).await;
        let (status, body) = get(&mut service, "/").await.unwrap();
        assert_eq!((status, body), (200, backend.address.to_string()));
        assert_eq!(backend.seen(), seen);
        let status = client.xds_status().unwrap();
        assert_eq!(status.state, XdsState::Connected);
        assert_eq!((status.rejected, status.problems.len()), (0, 0));
    }
    assert_eq!(server.rejections(), Vec::<String>::new());
}

/// The last host of a cluster goes while a request dials it: no other error takes the place of the
/// dial's.
#[tokio::test]
async fn a_request_whose_host_goes_while_it_dials_fails_with_the_dial() {
    let silent = Silent::never_accepting();
    let mut all = whole("orders", &[("a", &[silent.address])]);
    all[2] = cluster("orders", "lb_policy: ROUND_ROBIN\nconnect_timeout: 1s");
    let server = Management::start(&all);
    let (client, mut service) = target(&server, Variant::Delta).await;
    let call = tokio::spawn(async move { get(&mut service, "/").await });
    let dials = async || client.stats().get("orders", "upstream_cx_total") == Some(1);
    wait_until("a dial", dials).await;
    all[3] = assignment("orders", &[]);
    server.set(&all);
    let is_empty = async || client.snapshot("orders").unwrap().hosts().count() == 0;
    wait_until("no hosts", is_empty).await;
    let error = within(call).await.unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Connect, "{error:#}");
}

#[tokio::test]
async fn a_missing_target_is_an_immediate_error() {
    let server = Management::start(&whole("orders", &[]));
    for variant in [Variant::Sotw, Variant::Delta] {
        let client = Client::builder()
            .xds(xds_options(server.address, variant))
            .build()
            .unwrap();
        let error = within(client.target("xds:///order")).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Discovery);
        assert!(error.to_string().contains("\"order\""), "{error}");
    }
}

#[tokio::test]
async fn changes_of_endpoints_policies_and_routes_fail_no_request() {
    let backends = [
        Backend::start().await,
        Backend::start().await,
        Backend::start().await,
    ];
    let [one, two, three] = [0, 1, 2].map(|index: usize| backends[index].address);
    let zones: [&[(&str, &[SocketAddr])]; 4] = [
        &[("a", &[two])],
        &[("a", &[one, two]), ("b", &[three])],
        &[("b", &[three])],
        &[("a", &[one])],
    ];
    let policies = [
        "lb_policy: LEAST_REQUEST",
        "lb_policy: RING_HASH",
        "lb_policy: RANDOM\ncommon_lb_config: {locality_weighted_lb_config: {}}",
        "lb_policy: MAGLEV",
        "common_lb_config: {zone_aware_lb_config: {min_cluster_size: 1}}",
    ];
    for variant in [Variant::Sotw, Variant::Delta] {
        let server = Management::start(&whole("orders", zones[3]));
        let (client, service) = target(&server, variant).await;
        let traffic = Traffic::start(&service);
        for (round, zones) in zones.iter().cycle().take(12).enumerate() {
            // Other clusters are added and removed; endpoints and policies of this one change.
            let name = ["orders", "users"][round / 3 % 2];
            let policy = policies[round % policies.len()];
            let resources = [
                listener("orders", "r"),
                routes("r", name),
                cluster(name, policy),
                assignment(name, zones),
            ];
            server.set(&resources);
            let expected: u64 = zones.iter().map(|zone| zone.1.len() as u64).sum();
            wait_until("the change is in force", async || {
                traffic.seen.assert_no_failure();
                let explained = client.explain(name).await;
                let hosts = |explained: plimsoll_core::explain::Explanation| {
                    let localities = explained.localities.iter();
                    localities.map(|locality| locality.hosts).sum::<u64>()
                };
                client.cluster_names().len() == 1
                    && explained.is_ok_and(|explained| hosts(explained) == expected)
            })
            .await;
            traffic.more(40).await;
        }
        traffic.stop().await;
        assert_eq!(server.rejections(), Vec::<String>::new());
    }
}

#[tokio::test]
async fn resources_stay_in_use_while_the_server_is_down() {
    let backends = [Backend::start().await, Backend::start().await];
    let [one, two] = [backends[0].address, backends[1].address];
    for variant in [Variant::Sotw, Variant::Delta] {
        let mut server = Management::start(&whole("orders", &[("a", &[one])]));
        let (client, service) = target(&server, variant).await;
        let traffic = Traffic::start(&service);
        traffic.more(20).await;
        let before = client.explain("orders").await.unwrap();
        server.kill();
        let state = |client: &Client| client.xds_status().unwrap().state;
        wait_until("the client notices", async || {
            matches!(state(&client), XdsState::Disconnected { .. })
        })
        .await;
        traffic.more(100).await;
        let during = client.explain("orders").await.unwrap();
        assert_eq!(format!("{before:?}"), format!("{during:?}"));
        let status = client.xds_status().unwrap();
        assert!(status.problems.is_empty(), "{status:?}");

        // The restarted server has other endpoints.
        server.set(&whole("orders", &[("a", &[two])]));
        server.restart();
        let seen = backends[1].seen();
        wait_until("the new host is used", async || backends[1].seen() > seen).await;
        assert_eq!(state(&client), XdsState::Connected);
        traffic.more(20).await;
        traffic.stop().await;
    }
}

#[tokio::test]
async fn a_removed_resource_stays_in_use() {
    let backend = Backend::start().await;
    let all = whole("orders", &[("a", &[backend.address])]);
    for variant in [Variant::Sotw, Variant::Delta] {
        let server = Management::start(&all);
        let (client, mut service) = target(&server, variant).await;
        get(&mut service, "/").await.unwrap();
        server.set(&[]);
        wait_for("the loss is known", async || {
            let status = client.xds_status()?;
            (!status.problems.is_empty()).then_some(())
        })
        .await;
        get(&mut service, "/").await.unwrap();
        server.set(&all);
        wait_until("all is well again", async || {
            client.xds_status().unwrap().problems.is_empty()
        })
        .await;
        get(&mut service, "/").await.unwrap();
    }
}

/// Sends requests one after the other.
async fn send(service: &mut TargetService, paths: &[&str], times: usize) {
    for path in std::iter::repeat_n(paths, times).flatten() {
        get(service, path).await.unwrap();
    }
}

fn sum(backends: &[Backend]) -> u64 {
    backends.iter().map(Backend::seen).sum()
}

/// Compares counts while no report is in flight: reports that a killed server has not read are
/// lost, because the protocol has no acknowledgment.
#[tokio::test]
async fn load_reports_survive_restarts_and_removals() {
    for variant in [Variant::Sotw, Variant::Delta] {
        let backends = [Backend::start().await, Backend::start().await];
        let [one, two] = [backends[0].address, backends[1].address];
        let both: &[(&str, &[SocketAddr])] = &[("a", &[one]), ("b", &[two])];
        let mut server = Management::start(&whole("orders", both));
        let (client, mut service) = target(&server, variant).await;
        wait_for_lrs(&server).await;
        let paths = ["/", "/503", "/404", "/"];
        let mut expected = Reported::default();
        let mut count = |times: u64| {
            expected.issued += 4 * times;
            expected.succeeded += 3 * times;
            expected.failed += times;
            expected
        };
        send(&mut service, &paths, 5).await;
        agree(&server, "orders", count(5)).await;

        server.kill();
        send(&mut service, &paths, 7).await;
        let before = server.reports();
        server.restart();
        agree(&server, "orders", count(7)).await;
        assert!(server.reports() > before);

        // A host is removed after it was used and before its counts are collected.
        send(&mut service, &paths, 3).await;
        server.set(&whole("orders", &[("b", &[two])]));
        agree(&server, "orders", count(3)).await;

        // Routes name another cluster: the old one is removed with uncollected counts.
        send(&mut service, &paths, 2).await;
        server.set(&other_cluster(both));
        agree(&server, "orders", count(2)).await;
        wait_until("requests go other_cluster", async || {
            client.cluster_names() == [Arc::from("users")]
        })
        .await;
        send(&mut service, &["/"], 6).await;
        let users = Reported {
            issued: 6,
            succeeded: 6,
            ..Reported::default()
        };
        agree(&server, "users", users).await;
        assert_eq!(server.reported("orders"), expected);
        assert_eq!(sum(&backends), expected.issued + users.issued);
    }
}

fn other_cluster(zones: &[(&str, &[SocketAddr])]) -> Vec<Made> {
    vec![
        listener("orders", "r"),
        routes("r", "users"),
        cluster("users", ""),
        assignment("users", zones),
    ]
}

/// Waits for the server's first LRS response: requests sent before it are not counted.
async fn wait_for_lrs(server: &Management) {
    wait_until("reports are asked for", async || server.reports() > 0).await;
}

async fn agree(server: &Management, cluster: &str, expected: Reported) {
    let reported = wait_for("everything was reported", async || {
        let reported = server.reported(cluster);
        let ended = |counts: Reported| counts.succeeded + counts.failed + counts.dropped;
        let complete = reported.issued >= expected.issued && ended(reported) >= ended(expected);
        complete.then_some(reported)
    })
    .await;
    assert_eq!(reported, expected, "{cluster}");
}

#[tokio::test]
async fn unsent_requests_are_not_reported() {
    let backend = Backend::start().await;
    let dead = refused_address();
    let zones: &[(&str, &[SocketAddr])] = &[("a", &[dead, backend.address])];
    let server = Management::start(&whole("orders", zones));
    let (_client, mut service) = target(&server, Variant::Sotw).await;
    wait_for_lrs(&server).await;
    send(&mut service, &["/"], 10).await;
    let expected = Reported {
        issued: 10,
        succeeded: 10,
        ..Reported::default()
    };
    agree(&server, "orders", expected).await;
    assert_eq!(backend.seen(), 10);
}

#[tokio::test]
async fn a_fallback_server_is_used_while_the_first_is_down() {
    let backend = Backend::start().await;
    let resources = whole("orders", &[("a", &[backend.address])]);
    for variant in [Variant::Sotw, Variant::Delta] {
        let (mut first, second) = (Management::start(&resources), Management::start(&resources));
        first.kill();
        let options =
            xds_options(first.address, variant).fallback(xds_options(second.address, variant));
        let client = Client::builder().xds(options).build().unwrap();
        let mut orders = within(client.target("xds:///orders")).await.unwrap();
        wait_for_lrs(&second).await;
        get(&mut orders, "/").await.unwrap();
        let used = |server: &Management| {
            let status = client.xds_status().unwrap();
            status.server.ends_with(&server.address.to_string())
        };
        assert!(used(&second));
        wait_until("a report", async || second.reported("orders").issued == 1).await;
        first.restart();
        wait_until("the first is used again", async || used(&first)).await;
        get(&mut orders, "/").await.unwrap();
        // Load reports use the same server as discovery, and none is lost.
        wait_until("the other report", async || {
            second.reported("orders").issued + first.reported("orders").issued == 2
        })
        .await;
        wait_until("reports to the first", async || first.reports() > 0).await;
    }
}
