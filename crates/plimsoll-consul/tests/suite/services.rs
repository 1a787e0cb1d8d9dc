//! Instances come, change and go, while nothing fails.

use plimsoll_testing::Consul;
use serde_json::json;

use crate::watched::{Watched, host, options};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn services_follow_registrations_checks_and_zones() {
    let directory = tempfile::tempdir().unwrap();
    let agent = Consul::start(directory.path(), &json!({"node_meta": {"zone": "n"}}));
    let own = json!({"Meta": {"zone": "a"}, "Weights": {"Passing": 10, "Warning": 2},
                     "Check": {"TTL": "3600s", "Status": "passing"}});
    agent.register("orders", "o1", host(1), own);
    agent.register("orders", "o2", host(2), json!({}));
    let mut watched = Watched::start(options(agent.http()));
    let both = "1 dc1/a ready 10, 2 dc1/n ready 1";
    watched.wait_for("orders", Some(both)).await;
    assert_eq!(watched.batches, 1, "the first batch is complete");
    assert_eq!(watched.seen.len(), 1, "without the servers of Consul");

    for (change, expected) in [
        ("check/warn/service:o1", "1 dc1/a ready 2, 2 dc1/n ready 1"),
        (
            "check/fail/service:o1",
            "1 dc1/a unhealthy 10, 2 dc1/n ready 1",
        ),
        ("check/pass/service:o1", both),
        (
            "service/maintenance/o2?enable=true",
            "1 dc1/a ready 10, 2 dc1/n draining 1",
        ),
        ("service/maintenance/o2?enable=false", both),
    ] {
        agent.put(&format!("/v1/agent/{change}"), &json!(null));
        watched.wait_for("orders", Some(expected)).await;
    }

    agent.register("search", "s1", host(3), json!({}));
    watched.wait_for("search", Some("3 dc1/n ready 1")).await;
    agent.deregister("o1");
    watched.wait_for("orders", Some("2 dc1/n ready 1")).await;
    // The last instance goes, and the cluster stays for clients that use it.
    agent.deregister("o2");
    watched.wait_for("orders", Some("")).await;
    let kinds = watched.source.status().kinds();
    let objects: Vec<_> = kinds
        .iter()
        .map(|kind| (kind.kind, kind.status.objects))
        .collect();
    assert_eq!(objects, [("catalog", 1), ("health", 1)]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn services_take_turns_if_there_are_more_than_connections() {
    let directory = tempfile::tempdir().unwrap();
    let agent = Consul::start(directory.path(), &json!({}));
    let tagged = json!({"Tags": ["edge", "zone=t"]});
    agent.register("orders", "o1", host(1), tagged.clone());
    agent.register("orders", "o2", host(2), json!({}));
    agent.register("internal", "i1", host(3), json!({}));
    let mut options = options(agent.http());
    options.max_connections = 1;
    options.merge.tags = vec!["edge".to_owned()];
    options.merge.zone_tag = Some("zone=".to_owned());
    let mut watched = Watched::start(options);
    watched.wait_for("orders", Some("1 dc1/t ready 1")).await;
    // The only connection waits for ten minutes for a change of orders.
    let other_node = json!({
        "Node": "n2", "Address": "10.0.0.2",
        "Service": {"Service": "search", "ID": "s1", "Port": 4, "Tags": tagged["Tags"]},
    });
    agent.put("/v1/catalog/register", &other_node);
    watched.wait_for("search", Some("4 dc1/t ready 1")).await;
    assert_eq!(watched.seen.len(), 2, "internal lacks the tag");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_service_that_stays_away_is_removed() {
    let directory = tempfile::tempdir().unwrap();
    let agent = Consul::start(directory.path(), &json!({}));
    agent.register("orders", "o1", host(1), json!({}));
    let mut options = options(agent.http());
    options.guard.delay = std::time::Duration::from_millis(300);
    let mut watched = Watched::start(options);
    watched.wait_for("orders", Some("1 dc1/- ready 1")).await;
    agent.deregister("o1");
    watched.wait_for("orders", None).await;
    agent.register("orders", "o1", host(2), json!({}));
    watched.wait_for("orders", Some("2 dc1/- ready 1")).await;
}
