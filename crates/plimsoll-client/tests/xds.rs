//! A client and a management server that keeps to the rules: resolving, changes at run time, the
//! death and the return of the server, and load reports that add up.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod support;

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use plimsoll_client::{Client, ErrorKind, TargetService, Variant, XdsState};
use support::management::{Management, Reported, xds_options};
use support::resources::{Made, assignment, cluster, listener, routes, whole};
use support::{Backend, get, nobody, wait_for, wait_until, within};
use tokio::task::JoinHandle;

async fn target(server: &Management, variant: Variant) -> (Client, TargetService) {
    let client = Client::builder()
        .xds(xds_options(server.address, variant))
        .build();
    let service = within(client.target("xds:///orders")).await.unwrap();
    (client, service)
}

/// Requests one after the other, until it is stopped.
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
        let workers = workers.collect();
        Self { seen, workers }
    }

    /// Waits for this many more answers.
    async fn more(&self, answers: u64) {
        let goal = self.seen.answered.load(Ordering::Relaxed) + answers;
        wait_until("more answers", async || {
            self.seen.assert_no_failure();
            self.seen.answered.load(Ordering::Relaxed) >= goal
        })
        .await;
    }

    /// No request may have failed.
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
    assert_eq!(server.refusals(), Vec::<String>::new());
}

#[tokio::test]
async fn a_target_that_the_server_does_not_have_is_an_error_at_once() {
    let server = Management::start(&whole("orders", &[]));
    for variant in [Variant::Sotw, Variant::Delta] {
        let client = Client::builder()
            .xds(xds_options(server.address, variant))
            .build();
        let error = within(client.target("xds:///order")).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Discovery);
        assert!(error.to_string().contains("\"order\""), "{error}");
    }
}

#[tokio::test]
async fn endpoints_policies_and_routes_change_and_no_request_is_lost() {
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
            // Clusters come and go, and so do endpoints and policies of the one in use.
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
        assert_eq!(server.refusals(), Vec::<String>::new());
    }
}

#[tokio::test]
async fn a_killed_server_changes_nothing_and_is_followed_again_when_it_is_back() {
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

        // It comes back with other endpoints, before anybody has asked for them.
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
async fn a_resource_that_is_taken_away_stays_in_use() {
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

/// Requests that were sent one after the other.
async fn send(service: &mut TargetService, paths: &[&str], times: usize) {
    for path in std::iter::repeat_n(paths, times).flatten() {
        get(service, path).await.unwrap();
    }
}

fn sum(backends: &[Backend]) -> u64 {
    backends.iter().map(Backend::seen).sum()
}

/// Counts are compared when no report is under way: those that a dying server has been sent and
/// has not read are lost, because nothing in the protocol acknowledges them.
#[tokio::test]
async fn reports_add_up_over_a_restart_and_removed_hosts_and_clusters() {
    for variant in [Variant::Sotw, Variant::Delta] {
        let backends = [Backend::start().await, Backend::start().await];
        let [one, two] = [backends[0].address, backends[1].address];
        let both: &[(&str, &[SocketAddr])] = &[("a", &[one]), ("b", &[two])];
        let mut server = Management::start(&whole("orders", both));
        let (client, mut service) = target(&server, variant).await;
        // What is sent before the server asks for reports belongs to none.
        wait_until("reports are asked for", async || server.reports() > 0).await;
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

        // One host is removed right after it was used, and before anybody collects.
        send(&mut service, &paths, 3).await;
        server.set(&whole("orders", &[("b", &[two])]));
        agree(&server, "orders", count(3)).await;

        // Routes lead elsewhere: the old cluster is removed with counts of its own.
        send(&mut service, &paths, 2).await;
        server.set(&elsewhere(both));
        agree(&server, "orders", count(2)).await;
        wait_until("requests go elsewhere", async || {
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

fn elsewhere(zones: &[(&str, &[SocketAddr])]) -> Vec<Made> {
    vec![
        listener("orders", "r"),
        routes("r", "users"),
        cluster("users", ""),
        assignment("users", zones),
    ]
}

async fn agree(server: &Management, cluster: &str, expected: Reported) {
    let reported = wait_for("everything was reported", async || {
        let reported = server.reported(cluster);
        (reported.issued >= expected.issued).then_some(reported)
    })
    .await;
    assert_eq!(reported, expected, "{cluster}");
}

#[tokio::test]
async fn what_nobody_has_seen_is_reported_as_no_request() {
    let backend = Backend::start().await;
    let dead = nobody().await;
    let zones: &[(&str, &[SocketAddr])] = &[("a", &[dead, backend.address])];
    let server = Management::start(&whole("orders", zones));
    let (_client, mut service) = target(&server, Variant::Sotw).await;
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
async fn a_second_server_helps_while_the_first_is_away() {
    let backend = Backend::start().await;
    let resources = whole("orders", &[("a", &[backend.address])]);
    for variant in [Variant::Sotw, Variant::Delta] {
        let (mut first, second) = (Management::start(&resources), Management::start(&resources));
        first.kill();
        let mut options = xds_options(first.address, variant);
        let other = options.clone();
        options.fallback = vec![other.server];
        options.fallback[0].uri = format!("http://{}", second.address);
        let client = Client::builder().xds(options).build();
        let mut orders = within(client.target("xds:///orders")).await.unwrap();
        wait_until("reports are asked for", async || second.reports() > 0).await;
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
        // Reports go where discovery goes, and none is lost on the way.
        wait_until("the other report", async || {
            second.reported("orders").issued + first.reported("orders").issued == 2
        })
        .await;
        wait_until("reports to the first", async || first.reports() > 0).await;
    }
}
