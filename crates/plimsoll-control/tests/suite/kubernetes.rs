//! A running control plane with a scripted Kubernetes API server: files and cluster change while it
//! runs. Real Envoys are in the end-to-end tests of the binary.

use std::net::SocketAddr;
use std::time::Duration;

use plimsoll_control::sources::SourceId;
use plimsoll_core::model::load_report::Node;
use plimsoll_core::model::locality::Locality;
use plimsoll_testing::api_server::{ApiServer, service, slice};
use plimsoll_testing::tasks::{wait_to_see, wait_until};
use plimsoll_xds::ads::client::{Client, ClientEvent, ClientSettings};
use plimsoll_xds::ads::message::NodeMessage;
use plimsoll_xds::ads::{CLUSTER, CLUSTER_LOAD_ASSIGNMENT, Variant};
use plimsoll_xds::driver::ConnectOptions;
use plimsoll_xds::driver::ads_client::{self, AdsClientChannels, AdsClientEvent, AdsCommand};
use plimsoll_xds::node::NodeInfo;
use plimsoll_xds::wire;
use serde_json::json;
use tokio::sync::mpsc;

use crate::running::Running;

fn section(server: &ApiServer, more: &str) -> String {
    let url = server.url();
    format!("kubernetes: {{api_server: '{url}', {more}}}\n")
}

const FILE: &str = "services: [{cluster: {name: file}}]\n";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn files_and_the_cluster_change_while_it_runs() {
    let server = ApiServer::start().await;
    server.put("services", service("shop", "a"));
    let hosts = [("10.0.0.1", "a"), ("10.0.0.2", "b")];
    server.put("endpointslices", slice("shop", "a-1", "a", &hosts));
    let running = Running::start(&(section(&server, "") + FILE)).await;
    running
        .wait_for(&["a.shop:80 Shadow 2", "file Enforce 0"])
        .await;

    server.put("services", service("shop", "b"));
    server.put("endpointslices", slice("shop", "a-1", "a", &hosts[..1]));
    let both = ["a.shop:80 Shadow 1", "b.shop:80 Shadow 0", "file Enforce 0"];
    running.wait_for(&both).await;
    let audit = running.context.handle.audit().all();
    let added = audit
        .iter()
        .find(|entry| entry.text().contains("b.shop:80"));
    let source = added.and_then(|entry| entry.changes[0].source.clone());
    assert!(source.unwrap().starts_with("Service shop/b@"));

    // Other defaults: the mirror starts again, and services stay until it has listed all.
    let edited = section(&server, "mode: ENFORCE, namespaces: [shop]") + FILE;
    running.edit(&edited).await.unwrap();
    let enforced = [
        "a.shop:80 Enforce 1",
        "b.shop:80 Enforce 0",
        "file Enforce 0",
    ];
    running.wait_for(&enforced).await;
    let state = running.context.handle.source(SourceId::Kubernetes);
    assert!(
        state.is_some_and(|state| state.is_synced),
        "of the new mirror"
    );
    let error = running.edit(&section(&server, "mode: SOMETIMES")).await;
    assert!(error.unwrap_err().contains("kubernetes.mode"));
    assert_eq!(running.services().await, enforced);

    // Without the section, its services are gone.
    running.edit(FILE).await.unwrap();
    running.wait_for(&["file Enforce 0"]).await;
    assert_eq!(running.context.handle.source(SourceId::Kubernetes), None);
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn status_and_events_tell_what_is_refused() {
    let server = ApiServer::start().await;
    let mut object = service("shop", "a");
    object["metadata"]["annotations"] = json!({"plimsoll.dev/ramp": "many"});
    server.put("services", object);
    let target = |name: &str| json!([{"group": "", "kind": "Service", "name": name}]);
    let policy = |name: &str, spec: serde_json::Value| {
        let metadata = json!({"namespace": "shop", "name": name, "generation": 4});
        json!({"metadata": metadata, "spec": spec})
    };
    let bad = json!({"targetRefs": target("b"), "cluster": {"lb_policy": "NONE"}});
    let lost = json!({"targetRefs": target("c"), "mode": "Enforce"});
    server.put("services", service("shop", "b"));
    server.put("zoneroutingpolicies", policy("bad", bad));
    server.put("zoneroutingpolicies", policy("lost", lost));
    let running = Running::start(&section(&server, "")).await;
    running
        .wait_for(&["a.shop:80 Shadow 0", "b.shop:80 Shadow 0"])
        .await;
    let reason = |name: &str| {
        let object = server.object("zoneroutingpolicies", "shop", name).unwrap();
        let accepted = &object["status"]["conditions"][0];
        (accepted["reason"].clone(), accepted["message"].to_string())
    };
    let written = async || (reason("bad").0, reason("lost").0, server.objects("events"));
    wait_to_see("both are refused", written, |(bad, lost, events)| {
        !bad.is_null() && !lost.is_null() && events.len() >= 2
    })
    .await;
    assert_eq!(reason("bad").0, "Invalid");
    assert!(
        reason("bad").1.contains("spec.cluster.lb_policy"),
        "{:?}",
        reason("bad")
    );
    assert_eq!(reason("lost").0, "TargetNotFound");
    let events = server.objects("events");
    let of_a = events
        .iter()
        .find(|event| event["involvedObject"]["name"] == "a");
    let message = of_a.unwrap()["message"].as_str().unwrap();
    assert!(message.contains("plimsoll.dev/ramp"), "{message}");
    running.stop().await;
}

/// An ADS stream of a proxy that subscribes to all clusters and to the endpoints of `a.shop:80`.
struct Stream {
    events: mpsc::Receiver<AdsClientEvent>,
    _commands: mpsc::Sender<AdsCommand>,
    /// What arrived: `cluster a.shop:80`, or with the number of endpoints `endpoints 2`.
    seen: Vec<String>,
}

impl Stream {
    async fn open(address: SocketAddr, variant: Variant) -> Self {
        let info = NodeInfo {
            node: Node {
                id: format!("{variant:?}").into(),
                cluster: "gateway".into(),
                locality: Locality::zone_only("a"),
            },
            user_agent_name: "envoy".to_owned(),
            user_agent_version: String::new(),
            client_features: Vec::new(),
        };
        let raw = wire::encode_node(&info);
        let node = NodeMessage { info, raw };
        let settings = ClientSettings::default();
        let client = Client::new(variant, node, wire::resource_name, settings);
        let (events_in, events) = mpsc::channel(64);
        let (commands, commands_out) = mpsc::channel(4);
        for (type_url, name) in [(CLUSTER, "*"), (CLUSTER_LOAD_ASSIGNMENT, "a.shop:80")] {
            let (type_url, name) = (type_url.into(), name.into());
            let subscribe = AdsCommand::Subscribe { type_url, name };
            commands.send(subscribe).await.unwrap();
        }
        let channels = AdsClientChannels {
            events: events_in,
            commands: commands_out,
        };
        let options = ConnectOptions::new(format!("http://{address}"));
        let undecoded = ads_client::pass_through;
        tokio::spawn(ads_client::run(options, client, undecoded, channels));
        Self {
            events,
            _commands: commands,
            seen: Vec::new(),
        }
    }

    fn take(&mut self, event: AdsClientEvent) {
        let text = match event {
            AdsClientEvent::Resource(ClientEvent::Updated { type_url, resource }) => {
                if &*type_url == CLUSTER {
                    format!("cluster {}", resource.name)
                } else {
                    let assignment = wire::decode_assignment(&resource.body).unwrap();
                    let zones = assignment.endpoints().iter();
                    let count: usize = zones.map(|zone| zone.lb_endpoints.len()).sum();
                    format!("endpoints {count}")
                }
            }
            AdsClientEvent::Connected | AdsClientEvent::Resource(ClientEvent::Complete { .. }) => {
                return;
            }
            other => format!("{other:?}"),
        };
        self.seen.push(text);
    }

    /// Waits until something arrived; returns what was before, without repetitions.
    async fn wait_for(&mut self, expected: &str) -> Vec<String> {
        while !self.seen.iter().any(|text| text == expected) {
            let next = tokio::time::timeout(Duration::from_secs(60), self.events.recv()).await;
            match next {
                Ok(Some(event)) => self.take(event),
                _ => panic!("{expected:?} did not arrive: {:?}", self.seen),
            }
        }
        let mut before = std::mem::take(&mut self.seen);
        before.retain(|text| text != expected);
        before.sort();
        before.dedup();
        before
    }
}

/// A Service with several slices, so that lists have several pages.
fn put_slices(server: &ApiServer, hosts: &[&str]) {
    for (index, host) in hosts.iter().enumerate() {
        let name = format!("a-{index}");
        server.put("endpointslices", slice("shop", &name, "a", &[(host, "a")]));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn streams_keep_what_they_have_while_lists_are_incomplete_or_lost() {
    let mut server = ApiServer::start().await;
    server.set_faults(|faults| faults.page = Some(1));
    server.put("services", service("shop", "a"));
    put_slices(&server, &["10.0.0.1", "10.0.0.2"]);
    let running = Running::start(&section(&server, "watch_timeout: 2s")).await;
    running.wait_for(&["a.shop:80 Shadow 2"]).await;
    let address = running.context.bound.xds;
    let mut streams = [
        Stream::open(address, Variant::Delta).await,
        Stream::open(address, Variant::Sotw).await,
    ];
    for stream in &mut streams {
        stream.wait_for("endpoints 2").await;
    }

    // The history is gone, and the new list stops after its first page.
    server.set_faults(|faults| faults.first_page_only = true);
    server.compact();
    wait_until("the list is tried", async || {
        let requests = server.requests();
        let refused = requests
            .iter()
            .filter(|request| request.query.contains_key("continue") && request.code == 503);
        refused.count() >= 3
    })
    .await;
    put_slices(&server, &["10.0.0.1", "10.0.0.2", "10.0.0.3"]);
    server.set_faults(|faults| faults.first_page_only = false);
    for stream in &mut streams {
        let before = stream.wait_for("endpoints 3").await;
        assert!(is_harmless(&before, "endpoints 2"), "{before:?}");
    }

    // The API server is away, and comes back without any of the objects.
    server.stop().await;
    let handle = running.context.handle.clone();
    wait_until("the outage is noticed", async || {
        handle
            .source(SourceId::Kubernetes)
            .is_some_and(|state| state.failing.is_some())
    })
    .await;
    server.delete("services", "shop", "a");
    for index in 0..3 {
        server.delete("endpointslices", "shop", &format!("a-{index}"));
    }
    server.compact();
    server.restart().await;
    wait_until("the loss is noticed", async || {
        handle
            .source(SourceId::Kubernetes)
            .is_some_and(|state| state.held == 4)
    })
    .await;
    server.put("services", service("shop", "b"));
    for stream in &mut streams {
        let before = stream.wait_for("cluster b.shop:80").await;
        assert!(is_harmless(&before, "endpoints 3"), "{before:?}");
    }

    // Objects that are back are followed.
    server.put("services", service("shop", "a"));
    put_slices(&server, &["10.0.0.1", "10.0.0.2", "10.0.0.3"]);
    let last = slice("shop", "a-3", "a", &[("10.0.0.4", "a")]);
    server.put("endpointslices", last);
    for stream in &mut streams {
        let before = stream.wait_for("endpoints 4").await;
        assert!(is_harmless(&before, "endpoints 3"), "{before:?}");
    }
    drop((streams, handle));
    running.stop().await;
}

/// Whether nothing but clusters and these endpoints arrived.
fn is_harmless(seen: &[String], endpoints: &str) -> bool {
    let mut all = seen.iter();
    all.all(|text| text == endpoints || text.starts_with("cluster "))
}
