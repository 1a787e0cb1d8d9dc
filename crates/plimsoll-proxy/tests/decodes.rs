//! Every resource of a management server is decoded once, and routes are compiled once.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

#[path = "support/ads.rs"]
mod ads;
#[path = "../../plimsoll-client/tests/support/captured_logs.rs"]
mod captured_logs;
mod support;

use std::collections::BTreeMap;

use ads::VARIANTS;
use ads::management::Management;
use ads::resources::{assignment, cluster, routes};
use captured_logs::CapturedLogs;
use support::backend::Backend;
use support::client::get;
use support::{Proxy, TIMEOUT, eventually};

/// Returns the decodes and compilations since the last call, by message: `ClusterMessage 1`.
fn work(lines: &CapturedLogs) -> Vec<String> {
    let lines = std::mem::take(&mut *lines.0.lock().unwrap());
    let mut work = BTreeMap::<&str, u64>::new();
    for (_, line) in &lines {
        let what = if line.starts_with("message=compiling routes ") {
            "compiling routes"
        } else if let Some(decoded) = line.strip_prefix("message=decoding a resource ") {
            let name = decoded.split('"').nth(1).unwrap();
            name.rsplit("::").next().unwrap()
        } else {
            continue;
        };
        *work.entry(what).or_default() += 1;
    }
    let counted = work.into_iter();
    counted
        .map(|(what, times)| format!("{what} {times}"))
        .collect()
}

/// All decoding and compiling happens on the test's thread, on which the log is captured.
#[tokio::test]
async fn each_resource_is_decoded_once_and_routes_are_compiled_once() {
    // Encoded before the log is captured, because this decodes them as well.
    let [k1, k2] = ["c1", "c2"].map(|name| cluster(name, "lb_policy: ROUND_ROBIN"));
    let lines = CapturedLogs::default();
    let _counted = tracing::subscriber::set_default(lines.clone());
    let (one, two) = (Backend::echo("one").await, Backend::echo("two").await);
    let c1 = |backend: &Backend| assignment("c1", &[("a", &[backend.address])]);
    let c2 = assignment("c2", &[("a", &[one.address])]);
    for variant in VARIANTS {
        let server = Management::start(&[k1.clone(), c1(&one), routes("r", "c1")]);
        // Routes, clusters and endpoints of the server.
        let config = ads::bootstrap(server.address, variant, ads::FRONT, &[]);
        let proxy = Proxy::start_with(&config, 1, TIMEOUT).await;
        let answers = async |name: &str| {
            eventually(&format!("{name} answers"), || async {
                let response = get(proxy.address(), "/").await;
                response.body.contains(&format!("backend: {name}\n"))
            })
            .await;
            work(&lines)
        };
        let all = [
            "AssignmentMessage 1",
            "ClusterMessage 1",
            "RouteConfigurationMessage 1",
            "compiling routes 1",
        ];
        let mut first = all;
        first[1] = "ClusterMessage 2"; // Includes the static cluster.
        assert_eq!(answers("one").await, first, "{variant}: at startup");
        server.set(&[k1.clone(), c1(&two), routes("r", "c1")]);
        let other = answers("two").await;
        assert_eq!(
            other,
            ["AssignmentMessage 1"],
            "{variant}: changed endpoints"
        );
        // State of the world: the response repeats resources that have not changed.
        server.set(&[
            k1.clone(),
            k2.clone(),
            c1(&two),
            c2.clone(),
            routes("r", "c2"),
        ]);
        assert_eq!(answers("one").await, all, "{variant}: another cluster");
        proxy.shut_down().await;
        work(&lines);
    }
}
