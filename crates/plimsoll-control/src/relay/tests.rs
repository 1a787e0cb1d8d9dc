//! Tests over loopback: a control plane with files, another that relays it, and an ADS client.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use plimsoll_core::model::endpoint_policy::EndpointPolicy;
use plimsoll_core::model::load_report::{ClusterStats, Node, UpstreamLocalityStats};
use plimsoll_core::model::locality::Locality;
use plimsoll_core::model::zone_aware::LocalityBasis;
use plimsoll_testing::tasks::wait_for;
use plimsoll_xds::ads::client::{Client, ClientEvent, ClientSettings};
use plimsoll_xds::ads::message::NodeMessage;
use plimsoll_xds::ads::server::{ServerStream, StreamEvent};
use plimsoll_xds::ads::view::{TypeResources, View};
use plimsoll_xds::ads::{CLUSTER, CLUSTER_LOAD_ASSIGNMENT, Variant};
use plimsoll_xds::driver::ads_client::{self, AdsClientChannels, AdsClientEvent, AdsCommand};
use plimsoll_xds::driver::{
    AdsHandler, AdsObserver, AdsOpening, AdsSession, ClientInfo, ConnectOptions, LrsHandler,
    LrsReporter as _, ServerOptions, Status, serve,
};
use plimsoll_xds::node::{NodeInfo, PLIMSOLL_FEATURE};
use plimsoll_xds::wire;
use tokio::net::TcpListener;
use tokio::sync::{mpsc, oneshot, watch};

use super::*;
use crate::audit::AuditEntry;
use crate::config::{ConfigFile, ControlConfig};
use crate::explain::{Question, explain};
use crate::load_line::{Traffic, ZoneTraffic};
use crate::run::{Bound, Context};
use crate::server::{Discovery, Handle, LoadReporting, start};

const CUSTOM: &str = "type.googleapis.com/example.Custom";
const VARIANTS: [Variant; 2] = [Variant::Sotw, Variant::Delta];

/// A server with the same view for every stream; it records the encoded nodes of its clients.
#[derive(Clone)]
struct Fixed {
    views: watch::Sender<Arc<View>>,
    nodes: mpsc::UnboundedSender<Bytes>,
}

struct Nobody;

impl AdsObserver for Nobody {
    fn handle_event(&mut self, _: StreamEvent, _: &ServerStream) {}
}

impl AdsHandler for Fixed {
    type Observer = Nobody;

    async fn open(&self, opening: AdsOpening) -> Result<AdsSession<Nobody>, Status> {
        let _ = self.nodes.send(opening.node.raw);
        Ok(AdsSession {
            views: self.views.subscribe(),
            observer: Nobody,
        })
    }
}

/// A server that listens on a socket; stops when it is dropped.
struct Server {
    address: SocketAddr,
    _stop: oneshot::Sender<()>,
}

async fn run<A: AdsHandler>(ads: A, handle: Handle) -> Server {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (stop, stopped) = oneshot::channel::<()>();
    tokio::spawn(async move {
        let lrs = LoadReporting::new(handle);
        let stopped = async { drop(stopped.await) };
        serve(listener, ads, lrs, ServerOptions::default(), stopped).await;
    });
    Server {
        address,
        _stop: stop,
    }
}

fn control(text: &str) -> Handle {
    let file = ConfigFile {
        name: "test".to_owned(),
        text: text.to_owned(),
    };
    let config = ControlConfig::parse(&file, &[]).unwrap();
    let (writer, handle) = start(Arc::new(config));
    tokio::spawn(writer.run());
    handle
}

async fn relay(to: SocketAddr, variant: Variant, rest: &str) -> (Server, Handle) {
    let api_type = match variant {
        Variant::Sotw => "GRPC",
        Variant::Delta => "DELTA_GRPC",
    };
    let handle = control(&format!(
        "relay: {{address: '{to}', api_type: {api_type}}}\n\
         services:\n- cluster: {{name: orders}}\n{rest}"
    ));
    (
        run(Discovery::new(handle.clone()), handle.clone()).await,
        handle,
    )
}

fn node(user_agent: &str) -> NodeMessage {
    let info = NodeInfo {
        node: Node {
            id: "n1".into(),
            cluster: "front".into(),
            locality: Locality::new("r", "a", ""),
        },
        user_agent_name: user_agent.to_owned(),
        user_agent_version: String::new(),
        client_features: match user_agent {
            "plimsoll" => vec![PLIMSOLL_FEATURE.to_owned()],
            _ => Vec::new(),
        },
    };
    // Node metadata (field 3) that only the relayed server understands.
    let raw = [&wire::encode_node(&info)[..], &[0x1a, 2, 0x52, 0]].concat();
    NodeMessage {
        info,
        raw: raw.into(),
    }
}

struct Subscriber {
    events: mpsc::Receiver<AdsClientEvent>,
    commands: mpsc::Sender<AdsCommand>,
    latest: BTreeMap<(Arc<str>, Arc<str>), Bytes>,
}

impl Subscriber {
    fn start(server: &Server, variant: Variant, user_agent: &str) -> Self {
        let (events_in, events) = mpsc::channel(16);
        let (commands, commands_out) = mpsc::channel(16);
        let channels = AdsClientChannels {
            events: events_in,
            commands: commands_out,
        };
        let settings = ClientSettings::default();
        let client = Client::new(variant, node(user_agent), wire::resource_name, settings);
        let options = ConnectOptions::new(format!("http://{}", server.address));
        let undecoded = ads_client::pass_through;
        tokio::spawn(ads_client::run(options, client, undecoded, channels));
        Self {
            events,
            commands,
            latest: BTreeMap::new(),
        }
    }

    async fn watch(&self, type_url: &str, name: &str) {
        let (type_url, name) = (type_url.into(), name.into());
        let watch = AdsCommand::Subscribe { type_url, name };
        self.commands.send(watch).await.unwrap();
    }

    /// Waits for an update of a resource that satisfies `good`.
    async fn wait_for(
        &mut self,
        type_url: &str,
        name: &str,
        good: impl Fn(&Bytes) -> bool,
    ) -> Bytes {
        let key = (Arc::from(type_url), Arc::from(name));
        let found = async {
            loop {
                if let Some(body) = self.latest.get(&key).filter(|body| good(body)) {
                    return body.clone();
                }
                let event = self.events.recv().await.unwrap();
                if let AdsClientEvent::Resource(ClientEvent::Updated { type_url, resource }) = event
                {
                    self.latest.insert((type_url, resource.name), resource.body);
                }
            }
        };
        let found = tokio::time::timeout(Duration::from_secs(20), found).await;
        found.unwrap_or_else(|_| panic!("{type_url} {name} never came right"))
    }
}

fn weights(body: &Bytes) -> Vec<u32> {
    let assignment = wire::decode_assignment(body).unwrap();
    let entries = assignment.endpoints().iter();
    entries.map(|entry| entry.load_balancing_weight).collect()
}

const UPSTREAM: &str = "
services:
- cluster: {name: orders, lb_policy: LEAST_REQUEST}
  endpoints:
  - {locality: {region: r, zone: a}, lb_endpoints: ['127.0.0.1:1', '127.0.0.1:2']}
  - {locality: {region: r, zone: b}, lb_endpoints: ['127.0.0.1:3']}
- cluster: {name: others}
  endpoints: [{locality: {region: r, zone: a}, lb_endpoints: ['127.0.0.1:4']}]
";

#[tokio::test]
async fn clusters_and_endpoints_are_improved_in_all_variants() {
    let behind = control(UPSTREAM);
    let upstream = run(Discovery::new(behind.clone()), behind.clone()).await;
    for (above, below) in VARIANTS.into_iter().flat_map(|v| VARIANTS.map(|w| (v, w))) {
        let rest = "  delivery: LOCALITY_WEIGHTS";
        let (server, handle) = relay(upstream.address, above, rest).await;
        let mut direct = Subscriber::start(&upstream, below, "envoy");
        let mut relayed = Subscriber::start(&server, below, "envoy");
        for subscriber in [&mut direct, &mut relayed] {
            subscriber.watch(CLUSTER, "*").await;
            subscriber.watch(CLUSTER_LOAD_ASSIGNMENT, "orders").await;
            subscriber.watch(CLUSTER_LOAD_ASSIGNMENT, "others").await;
            subscriber
                .watch(CLUSTER_LOAD_ASSIGNMENT, "local_cluster")
                .await;
        }
        for type_url in [CLUSTER, CLUSTER_LOAD_ASSIGNMENT] {
            let original = direct.wait_for(type_url, "others", |_| true).await;
            relayed
                .wait_for(type_url, "others", |body| *body == original)
                .await;
        }
        let weighted = |body: &Bytes| {
            let config = wire::decode_cluster(body).unwrap().config;
            config.locality_weighted() && config.endpoint_policy().name() == "least_request"
        };
        relayed.wait_for(CLUSTER, "orders", weighted).await;
        // The only proxy is in zone a: its traffic stays in zone a up to the capacity there.
        let of_zone_a = |body: &Bytes| weights(body).iter().sum::<u32>() == 10_000;
        relayed
            .wait_for(CLUSTER_LOAD_ASSIGNMENT, "orders", of_zone_a)
            .await;
        let local = relayed
            .wait_for(CLUSTER_LOAD_ASSIGNMENT, "local_cluster", |_| true)
            .await;
        let local = wire::decode_assignment(&local).unwrap();
        assert_eq!(local.endpoints().len(), 1, "the fleet has one proxy");
        // The state has learned the relayed endpoints, and explanations use them.
        let known = handle.inspect(|state, _| {
            let orders = &state.config().services["orders"];
            (
                orders.assignment.endpoints().len(),
                orders.config.endpoint_policy().name(),
            )
        });
        assert_eq!(known.await.unwrap(), (2, "least_request"));
        let status = handle.upstreams().status();
        assert_eq!(
            (status.streams, status.connected, status.unreadable),
            (1, 1, 0)
        );
    }
}

/// A relay without services: nothing is rewritten, and every cluster has a load line.
#[tokio::test]
async fn clusters_are_shown_without_services() {
    let behind = control(UPSTREAM);
    let upstream = run(Discovery::new(behind.clone()), behind.clone()).await;
    let head = "load_reporting: {interval: 0.1s}\ndemand: {smoothing_time_constant: 0.001s}";
    let handle = control(&format!(
        "{head}\nrelay: {{address: '{}'}}",
        upstream.address
    ));
    let server = run(Discovery::new(handle.clone()), handle.clone()).await;
    let mut direct = Subscriber::start(&upstream, Variant::Sotw, "envoy");
    let mut relayed = Subscriber::start(&server, Variant::Sotw, "envoy");
    for subscriber in [&mut direct, &mut relayed] {
        subscriber.watch(CLUSTER, "*").await;
        subscriber.watch(CLUSTER_LOAD_ASSIGNMENT, "orders").await;
    }
    for type_url in [CLUSTER, CLUSTER_LOAD_ASSIGNMENT] {
        let original = direct.wait_for(type_url, "orders", |_| true).await;
        let unchanged = |body: &Bytes| *body == original;
        relayed.wait_for(type_url, "orders", unchanged).await;
    }
    // A proxy in each of two zones: a has two hosts of three, b the other one.
    let own = node("envoy").info;
    let mut other = own.clone();
    other.node.id = "n2".into();
    other.node.locality = Locality::new("r", "b", "");
    let reporting = LoadReporting::new(handle.clone());
    let mut sessions = Vec::new();
    for (info, requests) in [(own, 30), (other, 60)] {
        let opened = LrsHandler::open(&reporting, &info, &ClientInfo::default()).await;
        sessions.push((opened.unwrap(), info, requests));
    }
    let bound = Bound {
        xds: server.address,
        admin: None,
        read_only: None,
    };
    let context = Context::new(handle.clone(), bound);
    let line = wait_for("the load line is complete", async || {
        for (session, info, requests) in &mut sessions {
            let stats = local_stats(&info.node.locality, *requests);
            session.reporter.report(&info.node, vec![stats]).await;
        }
        let lines = context.load_lines(Duration::from_secs(1)).await.unwrap();
        let line = lines.get("front", "orders").cloned();
        line.filter(|line| !line.warming_up && line.enforce.is_ok())
    })
    .await;
    let loads = |traffic: &Traffic| {
        let load = |zone: &ZoneTraffic| (zone.load.unwrap_or(0.0) * 100.0).round();
        traffic.zones.iter().map(load).collect::<Vec<_>>()
    };
    // The server's policy ignores zones: three hosts share all requests. Proxies report that they
    // keep a third of the demand in zone a, which has two thirds of the capacity.
    assert_eq!(loads(&line.now.unwrap()), [100.0, 100.0]);
    assert_eq!(loads(&line.enforce.unwrap()), [100.0, 100.0]);
    assert_eq!(loads(&line.seen.unwrap()), [50.0, 200.0]);
    audit_names_resources(&handle, upstream.address).await;
}

/// A report of requests that all stayed in their zone.
fn local_stats(locality: &Locality, requests: u64) -> ClusterStats {
    ClusterStats {
        cluster_name: "orders".into(),
        upstream_locality_stats: vec![UpstreamLocalityStats {
            locality: locality.clone(),
            total_issued_requests: requests,
            total_successful_requests: requests,
            ..Default::default()
        }],
        total_dropped_requests: 0,
        load_report_interval: Duration::from_millis(100),
    }
}

/// Waits until the audit has the cluster, with its resource and version.
async fn audit_names_resources(handle: &Handle, upstream: SocketAddr) {
    let entry = wait_for("the change is in the audit", async || {
        let is_relayed = |entry: &AuditEntry| entry.by.starts_with("relay of ");
        handle.audit().all().into_iter().find(is_relayed)
    })
    .await;
    assert_eq!(*entry.by, format!("relay of {upstream}"));
    let change = &entry.changes[0];
    assert_eq!(change.service.as_deref(), Some("orders"));
    assert_eq!(change.after.as_deref(), Some("3 endpoints"));
    let source = change.source.as_deref().unwrap();
    assert!(source.starts_with("Cluster orders version "), "{source}");
    assert!(entry.text().contains("added (3 endpoints), Cluster orders"));
}

const ORCA: &str = "
services:
- cluster:
    name: orders
    load_balancing_policy:
      policies:
      - typed_extension_config:
          name: x
          typed_config:
            '@type': type.googleapis.com/envoy.extensions.load_balancing_policies.\
client_side_weighted_round_robin.v3.ClientSideWeightedRoundRobin
            blackout_period: 3s
  mode: 'OFF'
  endpoints:
  - {locality: {region: r, zone: a}, lb_endpoints: ['127.0.0.1:1', '127.0.0.1:2']}
  - {locality: {region: r, zone: b}, lb_endpoints: ['127.0.0.1:3']}
";

#[tokio::test]
async fn demand_is_added_to_orca_weights_for_plimsoll_data_planes() {
    let behind = control(ORCA);
    let upstream = run(Discovery::new(behind.clone()), behind).await;
    let (server, handle) = relay(upstream.address, Variant::Delta, "").await;
    let mut subscriber = Subscriber::start(&server, Variant::Sotw, "plimsoll");
    subscriber.watch(CLUSTER, "*").await;
    subscriber.watch(CLUSTER_LOAD_ASSIGNMENT, "orders").await;
    let body = subscriber.wait_for(CLUSTER, "orders", |_| true).await;
    let sent = wire::decode_cluster(&body).unwrap().config;
    let rules = sent.zone_aware().unwrap();
    assert_eq!(rules.locality_basis(), LocalityBasis::LrsReportedRate);
    let EndpointPolicy::ClientSideWeightedRoundRobin(policy) = sent.endpoint_policy() else {
        panic!("{sent:?}");
    };
    assert_eq!(policy.blackout_period(), Duration::from_secs(3));
    // Explanations are available once the state has learned the relayed endpoints.
    let explained = async {
        loop {
            let question = Question {
                cluster: "orders".to_owned(),
                ..Question::default()
            };
            let explained = handle
                .inspect(move |state, now| explain(state, &question, now).ok())
                .await
                .unwrap();
            if let Some(explained) = explained.filter(|found| found.localities.len() == 2) {
                return explained;
            }
            tokio::task::yield_now().await;
        }
    };
    let explained = tokio::time::timeout(Duration::from_secs(20), explained)
        .await
        .unwrap();
    let basis = explained.locality_basis;
    assert_eq!(basis, Some(LocalityBasis::LrsReportedRate));
    let policy = explained.endpoint_policy;
    assert_eq!(policy, "client_side_weighted_round_robin");
    let settings: Vec<_> = explained
        .changes
        .iter()
        .map(|change| &change.setting[..])
        .collect();
    assert_eq!(settings, ["locality_basis", "min_cluster_size"]);
}

#[tokio::test]
async fn unknown_types_and_node_metadata_are_passed_on() {
    let body = Bytes::from_static(b"\x0a\x01x\xc2\x3e\x02hi");
    let resources = TypeResources::new([Resource::new("x", body.clone())]);
    let view = View::new(1).with(CUSTOM, Arc::new(resources));
    for (above, below) in VARIANTS.into_iter().flat_map(|v| VARIANTS.map(|w| (v, w))) {
        let (nodes, mut seen) = mpsc::unbounded_channel();
        let views = watch::Sender::new(Arc::new(view.clone()));
        let fixed = Fixed { views, nodes };
        let upstream = run(fixed.clone(), control("services: []")).await;
        let (server, _handle) = relay(upstream.address, above, "").await;
        let mut subscriber = Subscriber::start(&server, below, "envoy");
        subscriber.watch(CUSTOM, "x").await;
        subscriber.wait_for(CUSTOM, "x", |got| *got == body).await;
        assert_eq!(seen.recv().await.unwrap(), node("envoy").raw);
        let next = Bytes::from_static(b"\x0a\x01x\xc2\x3e\x02ho");
        let resources = TypeResources::new([Resource::new("x", next.clone())]);
        let view = View::new(2).with(CUSTOM, Arc::new(resources));
        fixed.views.send_replace(Arc::new(view));
        subscriber.wait_for(CUSTOM, "x", |got| *got == next).await;
    }
}

#[tokio::test]
async fn losing_the_relayed_server_keeps_resources_and_is_reported() {
    let behind = control(UPSTREAM);
    let upstream = run(Discovery::new(behind.clone()), behind.clone()).await;
    let (server, handle) = relay(upstream.address, Variant::Sotw, "").await;
    let mut first = Subscriber::start(&server, Variant::Delta, "envoy");
    first.watch(CLUSTER, "*").await;
    first.wait_for(CLUSTER, "others", |_| true).await;
    drop(upstream);
    let lost = async {
        while handle.upstreams().status().connected > 0 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), lost)
        .await
        .unwrap();
    let status = handle.upstreams().status();
    assert!(
        status.failures > 0 && status.last_error.is_some(),
        "{status:?}"
    );
    // The relay's own resources are still delivered, and no relayed resource was removed.
    first.watch(CLUSTER_LOAD_ASSIGNMENT, "local_cluster").await;
    first
        .wait_for(CLUSTER_LOAD_ASSIGNMENT, "local_cluster", |_| true)
        .await;
    drop(first);
    let gone = async {
        while handle.upstreams().status().streams > 0 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), gone)
        .await
        .unwrap();
}
