//! Every resource of a management server is decoded once, and routes are compiled once.

use std::collections::BTreeMap;

use crate::support::ads::VARIANTS;
use crate::support::backend::Backend;
use crate::support::client::get;
use crate::support::management::Management;
use crate::support::resources::{assignment, cluster, routes};
use crate::support::{Proxy, TIMEOUT, wait_until};
use plimsoll_testing::CapturedLogs;

/// Returns the decodes and compilations since the last call, by message: `ClusterMessage 1`.
fn work(lines: &CapturedLogs) -> Vec<String> {
    let lines = lines.take();
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
        let config = crate::support::ads::bootstrap(
            server.address,
            variant,
            crate::support::ads::FRONT,
            &[],
        );
        let proxy = Proxy::start_with(&config, 1, TIMEOUT).await;
        let answers = async |name: &str| {
            wait_until(&format!("{name} answers"), || async {
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
