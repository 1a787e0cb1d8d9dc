//! What the tests below rely on is what the API server does: watches, bookmarks, 401, 410, 429.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use plimsoll_testing::plimsoll;
use serde_json::{Value, json};

use crate::support::api_server::ApiServer;
use crate::support::scratch;

const SLICES: &str = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices";

fn slice(name: &str, zone: &str) -> Value {
    json!({
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {"name": name, "namespace": "default",
                     "labels": {"kubernetes.io/service-name": "orders"}},
        "addressType": "IPv4",
        "ports": [{"name": "http", "port": 80, "protocol": "TCP"}],
        "endpoints": [{"addresses": ["10.0.0.1"], "zone": zone}],
    })
}

/// A watch in a child process; ends when dropped.
struct Watch {
    child: Child,
    lines: std::io::Lines<BufReader<std::process::ChildStdout>>,
}

impl Watch {
    fn start(api: &ApiServer, query: &str) -> Self {
        let url = format!("https://{}{SLICES}?watch=1&{query}", api.address);
        let mut command = Command::new("curl");
        command.args(["--silent", "--no-buffer", "--cacert", &api.ca_file()]);
        command.args(["-H", "Authorization: Bearer administrator", &url]);
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Self { child, lines }
    }

    /// Returns the next event.
    fn next(&mut self) -> Value {
        let line = self.lines.next().unwrap().unwrap();
        serde_json::from_str(&line).unwrap()
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
#[ignore = "needs an API server: make test-kubernetes"]
fn lists_and_watches_have_versions_and_bookmarks() {
    let api = ApiServer::start(&scratch("watch"), &[]);
    api.apply(SLICES, &slice("one", "zone-a"));
    let list = api.request("GET", SLICES, None).body;
    assert_eq!(list["items"].as_array().unwrap().len(), 1);
    let version = list["metadata"]["resourceVersion"].as_str().unwrap();
    let mut watch = Watch::start(&api, &format!("resourceVersion={version}"));
    api.apply(SLICES, &slice("one", "zone-b"));
    let event = watch.next();
    assert_eq!(event["type"], "MODIFIED");
    assert_eq!(event["object"]["endpoints"][0]["zone"], "zone-b");
    api.delete(&format!("{SLICES}/one"));
    assert_eq!(watch.next()["type"], "DELETED");
    // A bookmark comes before the end of a watch, if there were changes that it does not see.
    let query = format!("resourceVersion={version}&allowWatchBookmarks=true&timeoutSeconds=8");
    let mut short = Watch::start(&api, &query);
    assert_eq!(
        [short.next()["type"].clone(), short.next()["type"].clone()],
        ["MODIFIED", "DELETED"]
    );
    let elsewhere = SLICES.replace("default", "kube-system");
    let mut unseen = slice("two", "zone-a");
    unseen["metadata"]["namespace"] = json!("kube-system");
    api.apply(&elsewhere, &unseen);
    assert_eq!(short.next()["type"], "BOOKMARK");
}

#[test]
#[ignore = "needs an API server: make test-kubernetes"]
fn old_versions_are_gone_after_a_compaction_and_a_restart() {
    let mut api = ApiServer::start(&scratch("compaction"), &[]);
    api.apply(SLICES, &slice("one", "zone-a"));
    let list = api.request("GET", SLICES, None).body;
    let version = list["metadata"]["resourceVersion"]
        .as_str()
        .unwrap()
        .to_owned();
    for zone in ["zone-b", "zone-c", "zone-d"] {
        api.apply(SLICES, &slice("one", zone));
    }
    api.compact();
    api.restart();
    let mut watch = Watch::start(&api, &format!("resourceVersion={version}"));
    let event = watch.next();
    let code = if event["kind"] == "Status" {
        &event["code"]
    } else {
        &event["object"]["code"]
    };
    assert_eq!(*code, 410, "{event}");
}

#[test]
#[ignore = "needs an API server: make test-kubernetes"]
fn tokens_can_be_rotated_and_revoked() {
    let mut api = ApiServer::start(&scratch("tokens"), &[]);
    let status = |api: &ApiServer, token: &str| {
        let version = api.request_as(token, "GET", "/apis", None);
        version.status
    };
    let first = api.rotate_token(false);
    assert_eq!(status(&api, &first), 200);
    let second = api.rotate_token(false);
    assert_eq!((status(&api, &first), status(&api, &second)), (200, 200));
    let third = api.rotate_token(true);
    api.wait_until_refused(&second);
    assert_eq!(status(&api, &third), 200);
}

#[test]
#[ignore = "needs an API server: make test-kubernetes"]
fn a_proxy_learns_its_zone_from_its_node() {
    let directory = scratch("node");
    let api = ApiServer::start(&directory, &[]);
    for (name, labels) in [
        ("worker-1", json!({"topology.kubernetes.io/zone": "zone-b"})),
        ("worker-2", json!({})),
    ] {
        let node = json!({"apiVersion": "v1", "kind": "Node",
                          "metadata": {"name": name, "labels": labels}});
        api.apply("/api/v1/nodes", &node);
    }
    let kubeconfig = directory.join("kubeconfig");
    let text = api.kubeconfig("administrator");
    std::fs::write(&kubeconfig, text.to_string()).unwrap();
    let bootstrap = |node: &str| {
        let mut command = Command::new(plimsoll());
        command.args(["bootstrap", "grpc"]);
        command
            .env("PLIMSOLL_NODE_NAME", node)
            .env("KUBECONFIG", &kubeconfig);
        command.output().unwrap()
    };
    let output = bootstrap("worker-1");
    let printed: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(printed["node"]["locality"]["zone"], "zone-b");
    let output = bootstrap("worker-2");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(
        errors.contains("has no label topology.kubernetes.io/zone"),
        "{errors}"
    );
    let output = bootstrap("worker-3");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(
        errors.contains("worker-3") && errors.contains("not found"),
        "{errors}"
    );
}
