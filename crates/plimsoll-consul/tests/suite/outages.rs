//! The agent hangs, dies, and comes back without its data.

use std::time::Duration;

use plimsoll_testing::Consul;
use plimsoll_testing::tasks::wait_until;
use rustix::process::Signal;
use serde_json::json;

use crate::watched::{Watched, host, options};

const BOTH: &str = "1 dc1/- ready 1, 2 dc1/- ready 1";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn services_of_an_agent_that_hangs_stay() {
    let directory = tempfile::tempdir().unwrap();
    let agent = Consul::start(directory.path(), &json!({}));
    agent.register("orders", "o1", host(1), json!({}));
    let mut options = options(agent.http());
    options.wait = Duration::from_secs(1);
    options.grace = Duration::from_millis(500);
    let mut watched = Watched::start(options);
    watched.wait_for("orders", Some("1 dc1/- ready 1")).await;
    agent.signal(Signal::STOP);
    let reason = watched.wait_failing(true).await;
    agent.signal(Signal::CONT);
    assert!(reason.contains("no answer within"), "{reason}");
    watched.wait_failing(false).await;
    agent.register("orders", "o2", host(2), json!({}));
    watched.wait_for("orders", Some(BOTH)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_that_lost_its_data_removes_nothing_at_once() {
    let directory = tempfile::tempdir().unwrap();
    let mut agent = Consul::start(directory.path(), &json!({}));
    // The index of the agent that comes back is below that of this one.
    for value in 0..100 {
        agent.put("/v1/kv/x", &json!(value));
    }
    agent.register("orders", "o1", host(1), json!({}));
    agent.register("orders", "o2", host(2), json!({}));
    let mut watched = Watched::start(options(agent.http()));
    watched.wait_for("orders", Some(BOTH)).await;

    agent.kill();
    let reason = watched.wait_failing(true).await;
    assert!(!reason.is_empty());
    agent.restart();
    let status = watched.source.status();
    let resets = || {
        let kinds = status.kinds();
        kinds.iter().all(|kind| kind.status.counts.resets > 0)
    };
    wait_until("the lists are empty", async || {
        status.held() == 2 && resets()
    })
    .await;
    // One instance registers again, at another address; the others are kept.
    agent.register("orders", "o3", host(3), json!({}));
    let all = format!("{BOTH}, 3 dc1/- ready 1");
    watched.wait_for("orders", Some(&all)).await;
    agent.register("orders", "o1", host(1), json!({}));
    let status = watched.source.status();
    wait_until("one is listed again", async || status.held() == 1).await;
    assert_eq!(status.failing(), None);
}
