//! The production client against a scripted API server: lists, watches, and every fault that a
//! cluster has. Services are read as text, `name: hosts`.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use plimsoll_kubernetes::{ApiAccess, Batch, Source, SourceOptions};
use serde_json::json;

use plimsoll_testing::api_server::{ApiServer, Recorded, service, slice};

/// Longest wait for something that must happen.
const PATIENCE: Duration = Duration::from_secs(60);

struct Mirror {
    source: Source,
    /// Hosts of each Service, as the batches built them.
    seen: BTreeMap<String, String>,
    batches: usize,
}

fn options(server: &ApiServer) -> SourceOptions {
    SourceOptions {
        access: ApiAccess::Explicit {
            server: server.url(),
            ca_file: None,
            token_file: None,
        },
        watch_timeout: Duration::from_secs(2),
        watch_grace: Duration::from_millis(200),
        ..SourceOptions::default()
    }
}

impl Mirror {
    fn start(options: &SourceOptions) -> Self {
        Self {
            source: plimsoll_kubernetes::start(options),
            seen: BTreeMap::new(),
            batches: 0,
        }
    }

    fn take(&mut self, batch: Batch) {
        self.batches += 1;
        for (key, service) in batch.services {
            let Some(service) = service else {
                self.seen.remove(&key.to_string());
                continue;
            };
            let endpoints = service
                .ports
                .iter()
                .flat_map(|port| &port.endpoints.endpoints);
            let hosts: Vec<String> = endpoints.map(|one| one.address.ip().to_string()).collect();
            self.seen.insert(key.to_string(), hosts.join(" "));
        }
    }

    /// Waits until the Services are these.
    async fn wait_for(&mut self, expected: &[(&str, &str)]) {
        let owned = |(name, hosts): &(&str, &str)| ((*name).to_owned(), (*hosts).to_owned());
        let expected: BTreeMap<_, _> = expected.iter().map(owned).collect();
        self.wait_until(|mirror| mirror.seen == expected).await;
    }

    async fn wait_until(&mut self, condition: impl Fn(&Self) -> bool) {
        let deadline = tokio::time::Instant::now() + PATIENCE;
        while !condition(self) {
            let next = tokio::time::timeout_at(deadline, self.source.next()).await;
            match next {
                Ok(Some(batch)) => self.take(batch),
                Ok(None) => panic!("the source ended"),
                Err(_) => panic!("not in time: {:?}", self.seen),
            }
        }
    }

    /// Waits for something that no batch shows.
    async fn wait_status(&self, condition: impl Fn(&Self) -> bool) {
        let waiting = async {
            while !condition(self) {
                tokio::task::yield_now().await;
            }
        };
        let waited = tokio::time::timeout(PATIENCE, waiting).await;
        waited.unwrap_or_else(|_| panic!("not in time: {:?}", self.source.status()));
    }
}

/// A server with two Services of two hosts each.
async fn shop() -> ApiServer {
    let server = ApiServer::start().await;
    for (name, net) in [("orders", 1), ("users", 2)] {
        server.put("services", service("shop", name));
        let hosts = [format!("10.0.{net}.1"), format!("10.0.{net}.2")];
        let hosts = [(&*hosts[0], "a"), (&*hosts[1], "b")];
        server.put(
            "endpointslices",
            slice("shop", &format!("{name}-1"), name, &hosts),
        );
    }
    server
}

const ORDERS: (&str, &str) = ("shop/orders", "10.0.1.1 10.0.1.2");
const USERS: (&str, &str) = ("shop/users", "10.0.2.1 10.0.2.2");

fn watches(server: &ApiServer) -> Vec<Recorded> {
    let requests = server.requests().into_iter();
    requests.filter(Recorded::is_watch).collect()
}

#[tokio::test]
async fn changes_arrive_by_watch_and_the_first_batch_is_complete() {
    let server = shop().await;
    server.set_faults(|faults| faults.page = Some(1));
    let mut mirror = Mirror::start(&options(&server));
    mirror.wait_until(|mirror| mirror.batches == 1).await;
    mirror.wait_for(&[ORDERS, USERS]).await;
    assert_eq!(mirror.batches, 1, "the first batch has everything");
    server.put(
        "endpointslices",
        slice("shop", "orders-2", "orders", &[("10.0.1.3", "c")]),
    );
    mirror
        .wait_for(&[("shop/orders", "10.0.1.1 10.0.1.2 10.0.1.3"), USERS])
        .await;
    server.delete("services", "shop", "users");
    mirror
        .wait_for(&[("shop/orders", "10.0.1.1 10.0.1.2 10.0.1.3")])
        .await;
    let lists = server.requests().into_iter().filter(|one| !one.is_watch());
    let queries: Vec<_> = lists.map(|one| one.query).collect();
    assert!(queries.iter().all(|query| query["limit"] == "500"));
    assert!(queries.iter().any(|query| query.contains_key("continue")));
    for watch in watches(&server) {
        assert_eq!(watch.query["allowWatchBookmarks"], "true");
    }
}

#[tokio::test]
async fn namespaces_and_labels_select_services() {
    let server = shop().await;
    let mut labelled = service("pay", "cards");
    labelled["metadata"]["labels"] = json!({"team": "pay"});
    server.put("services", labelled.clone());
    server.put("services", service("pay", "other"));
    server.put(
        "endpointslices",
        slice("pay", "cards-1", "cards", &[("10.0.3.1", "a")]),
    );
    let mut selected = options(&server);
    selected.namespaces = vec!["pay".to_owned(), "empty".to_owned()];
    selected.label_selector = Some("team=pay".to_owned());
    let mut mirror = Mirror::start(&selected);
    mirror.wait_for(&[("pay/cards", "10.0.3.1")]).await;
    let requests = server.requests();
    assert!(requests.iter().all(|one| one.path.contains("/namespaces/")));
    // A Service that loses its label leaves the selection.
    labelled["metadata"]["labels"] = json!({});
    server.put("services", labelled);
    mirror.wait_for(&[]).await;
}

#[tokio::test]
async fn watches_resume_from_the_last_event_or_bookmark() {
    let server = shop().await;
    server.set_faults(|faults| faults.events_per_watch = Some(1));
    let mut mirror = Mirror::start(&options(&server));
    mirror.wait_for(&[ORDERS, USERS]).await;
    for host in ["10.0.1.7", "10.0.1.8", "10.0.1.9"] {
        server.put(
            "endpointslices",
            slice("shop", "orders-1", "orders", &[(host, "a")]),
        );
        mirror.wait_for(&[("shop/orders", host), USERS]).await;
    }
    // Sixty changes of another kind: bookmarks advance the version of the slices.
    for number in 0..60 {
        server.put("services", service("shop", &format!("s{number}")));
    }
    server.set_faults(|faults| faults.events_per_watch = None);
    mirror.wait_until(|mirror| mirror.seen.len() == 62).await;
    mirror
        .wait_status(|mirror| {
            let kinds = mirror.source.status().kinds();
            kinds
                .iter()
                .any(|kind| kind.kind == "EndpointSlice" && kind.status.counts.confirmations > 0)
        })
        .await;
    for kind in mirror.source.status().kinds() {
        assert_eq!(kind.status.counts.lists, 1, "{kind:?}: never listed again");
    }
}

#[tokio::test]
async fn after_410_everything_is_listed_again_without_a_gap() {
    let server = shop().await;
    let mut mirror = Mirror::start(&options(&server));
    mirror.wait_for(&[ORDERS, USERS]).await;
    server.compact();
    server.put(
        "endpointslices",
        slice("shop", "orders-1", "orders", &[("10.0.1.9", "a")]),
    );
    server.delete("endpointslices", "shop", "users-1");
    server.put(
        "endpointslices",
        slice("shop", "users-2", "users", &[("10.0.2.9", "b")]),
    );
    let expected = [("shop/orders", "10.0.1.9"), ("shop/users", "10.0.2.9")];
    let mut states = Vec::new();
    while mirror.seen
        != expected
            .iter()
            .map(|(n, h)| ((*n).into(), (*h).into()))
            .collect()
    {
        let batches = mirror.batches;
        mirror.wait_until(|mirror| mirror.batches > batches).await;
        states.push(mirror.seen.clone());
    }
    let no_gap = |state: &BTreeMap<String, String>| {
        state.len() == 2 && state.values().all(|hosts| !hosts.is_empty())
    };
    assert!(states.iter().all(no_gap), "{states:?}");
    let gone: u64 = mirror
        .source
        .status()
        .kinds()
        .iter()
        .map(|kind| kind.status.counts.resets)
        .sum();
    assert!(gone >= 1);
}

#[tokio::test]
async fn an_outage_changes_nothing_and_the_state_afterwards_is_that_of_the_server() {
    let mut server = shop().await;
    let mut mirror = Mirror::start(&options(&server));
    mirror.wait_for(&[ORDERS, USERS]).await;
    server.stop().await;
    mirror
        .wait_status(|mirror| {
            let kinds = mirror.source.status().kinds();
            kinds
                .iter()
                .all(|kind| kind.status.failing.is_some() && kind.status.counts.failures > 2)
        })
        .await;
    let batches = mirror.batches;
    server.put(
        "endpointslices",
        slice("shop", "orders-1", "orders", &[("10.0.1.5", "a")]),
    );
    server.delete("services", "shop", "users");
    server.restart().await;
    mirror.wait_for(&[("shop/orders", "10.0.1.5")]).await;
    assert!(mirror.batches > batches);
    mirror
        .wait_status(|mirror| {
            let status = mirror.source.status();
            status
                .kinds()
                .iter()
                .all(|kind| kind.status.failing.is_none())
        })
        .await;
}

#[tokio::test]
async fn a_start_without_api_server_waits_for_it() {
    let mut server = shop().await;
    server.stop().await;
    let mut mirror = Mirror::start(&options(&server));
    mirror
        .wait_status(|mirror| mirror.source.status().kinds()[0].status.counts.failures > 0)
        .await;
    assert!(!mirror.source.status().is_synced());
    server.restart().await;
    mirror.wait_for(&[ORDERS, USERS]).await;
    assert!(mirror.source.status().is_synced());
    assert_eq!(mirror.batches, 1, "nothing was published before");
}

#[tokio::test]
async fn a_half_open_watch_is_replaced() {
    let server = shop().await;
    server.set_faults(|faults| faults.silent = true);
    let mut short = options(&server);
    short.watch_timeout = Duration::from_secs(1);
    let mut mirror = Mirror::start(&short);
    mirror.wait_for(&[ORDERS, USERS]).await;
    mirror
        .wait_status(|mirror| {
            let failing = mirror.source.status().kinds();
            let is_half_open = |reason: &str| reason.contains("half open");
            failing.iter().any(|kind| {
                let reason = kind
                    .status
                    .failing
                    .as_ref()
                    .map(|(_, reason)| reason.as_str());
                reason.is_some_and(is_half_open)
            })
        })
        .await;
    server.put(
        "endpointslices",
        slice("shop", "orders-1", "orders", &[("10.0.1.5", "a")]),
    );
    server.set_faults(|faults| faults.silent = false);
    mirror.wait_for(&[("shop/orders", "10.0.1.5"), USERS]).await;
}

/// Whether a kind counts as failing.
fn is_failing(mirror: &Mirror) -> bool {
    let kinds = mirror.source.status().kinds();
    kinds.iter().any(|kind| kind.status.failing.is_some())
}

#[tokio::test]
async fn a_watch_that_is_open_again_is_no_failure_before_its_first_event() {
    let server = shop().await;
    server.set_faults(|faults| faults.events_per_watch = Some(1));
    let mut long = options(&server);
    long.watch_timeout = Duration::from_secs(3600);
    let mut mirror = Mirror::start(&long);
    mirror.wait_for(&[ORDERS, USERS]).await;
    mirror.wait_status(|_| watches(&server).len() >= 3).await;
    server.set_faults(|faults| faults.fail = Some((403, None, usize::MAX)));
    // The second event ends the watch, and the next one is refused.
    for host in ["10.0.1.5", "10.0.1.6"] {
        server.put(
            "endpointslices",
            slice("shop", "orders-1", "orders", &[(host, "a")]),
        );
    }
    mirror.wait_status(is_failing).await;
    server.set_faults(|faults| {
        faults.fail = None;
        faults.silent = true;
    });
    mirror.wait_status(|mirror| !is_failing(mirror)).await;
}

#[tokio::test]
async fn retry_after_is_respected() {
    let server = shop().await;
    server.set_faults(|faults| faults.fail = Some((429, Some(1), 3)));
    let started = tokio::time::Instant::now();
    let mut mirror = Mirror::start(&options(&server));
    mirror.wait_for(&[ORDERS, USERS]).await;
    assert!(started.elapsed() >= Duration::from_secs(1), "a lower bound");
    let codes: Vec<u16> = server.requests().iter().map(|one| one.code).collect();
    assert_eq!(codes.iter().filter(|code| **code == 429).count(), 3);
}

#[tokio::test]
async fn errors_of_the_server_are_retried() {
    let server = shop().await;
    server.set_faults(|faults| faults.fail = Some((503, None, 6)));
    let mut mirror = Mirror::start(&options(&server));
    mirror.wait_for(&[ORDERS, USERS]).await;
}

#[tokio::test]
async fn a_rotated_token_is_used_for_the_next_request() {
    let server = shop().await;
    let directory = tempfile::tempdir().unwrap();
    let file: PathBuf = directory.path().join("token");
    std::fs::write(&file, "first\n").unwrap();
    server.set_faults(|faults| faults.token = Some("first".to_owned()));
    let mut with_token = options(&server);
    with_token.access = ApiAccess::Explicit {
        server: server.url(),
        ca_file: None,
        token_file: Some(file.clone()),
    };
    let mut mirror = Mirror::start(&with_token);
    mirror.wait_for(&[ORDERS, USERS]).await;
    // The server takes the new token before the file has it, as the kubelet's rotation may be late.
    server.set_faults(|faults| faults.token = Some("second".to_owned()));
    mirror
        .wait_status(|mirror| {
            let kinds = mirror.source.status().kinds();
            let is_401 = |reason: &str| reason.contains("401");
            kinds.iter().any(|kind| {
                kind.status
                    .failing
                    .as_ref()
                    .is_some_and(|(_, reason)| is_401(reason))
            })
        })
        .await;
    server.put(
        "endpointslices",
        slice("shop", "orders-1", "orders", &[("10.0.1.5", "a")]),
    );
    std::fs::write(&file, "second\n").unwrap();
    mirror.wait_for(&[("shop/orders", "10.0.1.5"), USERS]).await;
}

#[tokio::test]
async fn without_crd_annotations_are_enough() {
    let server = shop().await;
    let missing = "zoneroutingpolicies".to_owned();
    server.set_faults(|faults| faults.missing = vec![missing]);
    let mut mirror = Mirror::start(&options(&server));
    mirror.wait_for(&[ORDERS, USERS]).await;
    let kinds = mirror.source.status().kinds();
    let policies = kinds.iter().find(|kind| kind.kind == "ZoneRoutingPolicy");
    assert!(policies.unwrap().status.is_missing);
}

#[tokio::test]
async fn slices_that_are_deleted_and_recreated_leave_no_gap() {
    let server = shop().await;
    let mut mirror = Mirror::start(&options(&server));
    mirror.wait_for(&[ORDERS, USERS]).await;
    for round in 0..5 {
        server.delete("endpointslices", "shop", &format!("orders-{}", round + 1));
        let batches = mirror.batches;
        // The deletion is seen before the new slice exists.
        mirror.wait_until(|mirror| mirror.batches > batches).await;
        assert_ne!(mirror.seen["shop/orders"], "");
        let host = format!("10.0.1.{}", 10 + round);
        let name = format!("orders-{}", round + 2);
        server.put(
            "endpointslices",
            slice("shop", &name, "orders", &[(&host, "a")]),
        );
        mirror.wait_for(&[("shop/orders", &host), USERS]).await;
    }
}

#[tokio::test]
async fn a_list_that_lost_everything_is_not_believed_at_once() {
    let mut server = shop().await;
    let mut mirror = Mirror::start(&options(&server));
    mirror.wait_for(&[ORDERS, USERS]).await;
    server.stop().await;
    for name in ["orders", "users"] {
        server.delete("services", "shop", name);
        server.delete("endpointslices", "shop", &format!("{name}-1"));
    }
    server.compact();
    server.restart().await;
    mirror
        .wait_status(|mirror| mirror.source.status().held() == 4)
        .await;
    // A Service that comes back shows that later changes are followed.
    server.put("services", service("shop", "new"));
    mirror.wait_for(&[("shop/new", ""), ORDERS, USERS]).await;
}
