//! Tests of the admin API: the router without sockets, and once over a socket.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::http::{Method, Request, StatusCode};
use plimsoll_core::evacuation::{Illness, Suspect};
use plimsoll_core::model::load_report::{
    ClusterHostStats, ClusterStats, MetricStats, Node, UpstreamEndpointStats, UpstreamLocalityStats,
};
use plimsoll_core::model::locality::Locality;
use plimsoll_core::time::Instant;
use plimsoll_kubernetes::{ApiAccess, SourceOptions};
use plimsoll_serve::{AdminOptions, CertificateUse, Expiry, serve};
use plimsoll_testing::tasks::{wait_to_see, wait_until};
use plimsoll_xds::ads::message::{ErrorDetail, NodeMessage};
use plimsoll_xds::ads::server::{Nack, TypeStatus};
use plimsoll_xds::ads::{CLUSTER, Variant};
use plimsoll_xds::driver::{
    AdsHandler, AdsOpening, ClientInfo, LrsHandler, LrsReporter, LrsSession,
};
use plimsoll_xds::node::NodeInfo;
use plimsoll_xds::replica::ReplicaRecord;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tower::ServiceExt;

mod alerts;
mod load;
#[cfg(feature = "schema")]
mod openapi;
mod pages;
mod zones;

use super::*;
use crate::audit::Audit;
use crate::config::{ConfigFile, ControlConfig};
use crate::replicas::{StoreInput, StoreSnapshot};
use crate::run::{Bound, Context};
use crate::server::{Discovery, Handle, LoadReporting, start_with};
use crate::sources::SourceId;
use crate::store::ReplicaIdentity;

const CONFIG: &str = "
load_reporting: {interval: 0.1s}
services:
- cluster: {name: orders}
  endpoints:
  - locality: {region: r1, zone: a}
    lb_endpoints: ['10.0.0.1:80', '10.0.0.2:80', '10.0.0.3:80']
  - locality: {region: r1, zone: b}
    lb_endpoints: ['10.0.1.1:80', '10.0.1.2:80', '10.0.1.3:80']
- cluster: {name: legacy}
  mode: OFF
- cluster: {name: trial}
  mode: SHADOW
";

/// A control plane without sockets.
struct Control {
    handle: Handle,
    context: Context,
}

impl Control {
    fn new() -> Self {
        Self::with(CONFIG)
    }

    fn with(text: &str) -> Self {
        Self::start(text, None)
    }

    /// One of two replicas whose store is connected.
    async fn replica() -> Self {
        let mut text = CONFIG.to_owned();
        if cfg!(feature = "etcd") {
            text += "store: {etcd: {endpoints: ['localhost:2379']}}";
        }
        let identity = ReplicaIdentity {
            id: "r0".into(),
            instance: 1,
            started_unix_ms: 1,
        };
        let control = Self::start(&text, Some(&identity));
        let inspected = control.handle.inspect(|state, _| state.fingerprint());
        let own = inspected.await.unwrap();
        let record = |name: &str, configuration| ReplicaRecord {
            replica: name.to_owned(),
            configuration,
            nodes: 2,
            ..ReplicaRecord::default()
        };
        let snapshot = StoreInput::Snapshot(StoreSnapshot {
            replicas: vec![
                record("r0", own),
                record("r1", own + 1),
                record("r2", own + 1),
            ],
            ..StoreSnapshot::default()
        });
        control.handle.store(snapshot).await.unwrap();
        control
    }

    fn start(text: &str, replica: Option<&ReplicaIdentity>) -> Self {
        Self::start_with(text, replica, Audit::default())
    }

    fn start_with(text: &str, replica: Option<&ReplicaIdentity>, audit: Audit) -> Self {
        let file = ConfigFile {
            name: "control.yaml".to_owned(),
            text: text.to_owned(),
        };
        let config = ControlConfig::parse(&file, &[]).unwrap();
        let (writer, handle) = start_with(Arc::new(config), replica, audit);
        tokio::spawn(writer.run());
        let bound = Bound {
            xds: "127.0.0.1:18000".parse().unwrap(),
            admin: None,
            read_only: None,
        };
        let context = Context::new(handle.clone(), bound);
        Self { handle, context }
    }

    /// Builds the router, which accepts the given host names.
    fn router(&self, hosts: &[&str]) -> Router {
        let options = AdminOptions {
            hosts: hosts.iter().map(|host| (*host).to_owned()).collect(),
            ..AdminOptions::default()
        };
        router().into_router(self.context.clone(), options)
    }

    async fn request(&self, method: Method, path: &str, body: &str) -> (StatusCode, String) {
        let request = Request::builder()
            .method(method)
            .uri(path)
            .body(Body::from(body.to_owned()))
            .unwrap();
        let response = self.router(&[]).oneshot(request).await.unwrap();
        let status = response.status();
        let body = to_bytes(response.into_body(), usize::MAX).await.unwrap();
        (status, String::from_utf8(body.into()).unwrap())
    }

    async fn get(&self, path: &str) -> Value {
        let (status, body) = self.request(Method::GET, path, "").await;
        assert_eq!(status, StatusCode::OK, "{path}: {body}");
        serde_json::from_str(&body).unwrap()
    }

    /// Sends a request that is rejected; returns status, error and field.
    async fn rejection(&self, method: Method, path: &str, body: &str) -> (u16, String, Value) {
        let (status, body) = self.request(method, path, body).await;
        let json: Value = serde_json::from_str(&body).unwrap_or_else(|_| panic!("{path}: {body}"));
        let error = json["error"].as_str().unwrap().to_owned();
        (status.as_u16(), error, json["field"].clone())
    }

    async fn what_if(&self, body: &Value) -> Value {
        let path = "/api/v1/what-if";
        let (status, text) = self.request(Method::POST, path, &body.to_string()).await;
        assert_eq!(status, StatusCode::OK, "{text}");
        serde_json::from_str(&text).unwrap()
    }
}

fn node(id: &str, zone: &str) -> NodeInfo {
    NodeInfo {
        node: Node {
            id: id.into(),
            cluster: "gateway".into(),
            locality: Locality::new("r1", zone, ""),
        },
        user_agent_name: "envoy".to_owned(),
        user_agent_version: "1.40.0".to_owned(),
        client_features: Vec::new(),
    }
}

async fn discover(control: &Control, info: NodeInfo) -> impl Sized + use<> {
    let opening = AdsOpening {
        node: NodeMessage {
            info,
            raw: Default::default(),
        },
        variant: Variant::Delta,
        peer: None,
        identity: None,
        returning: false,
    };
    let discovery = Discovery::new(control.handle.clone());
    AdsHandler::open(&discovery, opening).await.unwrap()
}

async fn report_to(
    control: &Control,
    info: &NodeInfo,
) -> LrsSession<<LoadReporting as LrsHandler>::Reporter> {
    let reporting = LoadReporting::new(control.handle.clone());
    LrsHandler::open(&reporting, info, &ClientInfo::default())
        .await
        .unwrap()
}

fn stats(cluster: &str, requests: u64) -> ClusterStats {
    ClusterStats {
        cluster_name: cluster.into(),
        upstream_locality_stats: vec![UpstreamLocalityStats {
            total_issued_requests: requests,
            total_successful_requests: requests,
            ..Default::default()
        }],
        total_dropped_requests: 0,
        load_report_interval: Duration::from_millis(100),
    }
}

/// Two proxies with three quarters of the demand in zone a; returns once it is delivered.
async fn with_demand() -> (Control, Vec<Box<dyn Open>>) {
    with_demand_at(Control::new()).await
}

async fn with_demand_at(control: Control) -> (Control, Vec<Box<dyn Open>>) {
    let mut open: Vec<Box<dyn Open>> = Vec::new();
    let mut reporters = Vec::new();
    for (id, zone, requests) in [("1", "a", 30), ("2", "b", 10)] {
        let info = node(id, zone);
        open.push(Box::new(discover(&control, info.clone()).await));
        reporters.push((report_to(&control, &info).await, info, requests));
    }
    let report = async || {
        for (session, info, requests) in &mut reporters {
            let stats = vec![stats("orders", *requests), stats("unknown", 1)];
            session.reporter.report(&info.node, stats).await;
        }
        let page = control.get("/api/v1/clusters?cluster=orders").await;
        page["clusters"][0]["fleets"][0]["basis"].clone()
    };
    wait_to_see("demand is delivered", report, |basis| {
        basis == "measured_demand"
    })
    .await;
    open.extend(reporters.into_iter().map(|each| Box::new(each) as _));
    (control, open)
}

/// Any stream that is kept open.
trait Open {}
impl<T> Open for T {}

/// Metrics of a control plane whose service has an objective. 30 requests in 0.1 s are more than
/// zone a has hosts for.
async fn planned() -> String {
    let objective = "{name: orders}
  objective: {waterfall: {target_utilization: 0.5}}
  capacity: {requests_per_second: 100}";
    let text = CONFIG.replace("{name: orders}", objective);
    let (control, _open) = with_demand_at(Control::start(&text, None)).await;
    let line = control.get("/api/v1/load?cluster=orders").await["load_lines"][0].clone();
    assert_eq!(line["target_utilization"], 0.5, "{line}");
    let planned = &line["zones"][1]["planned"];
    assert_eq!(planned["capacity_requests_per_second"], 300.0, "{line}");
    for field in ["usd_per_month", "level_usd_per_month"] {
        assert!(line["planned"][field].is_number(), "{field}: {line}");
    }
    assert_eq!(line["cost"]["usd_per_gigabyte"], 0.02, "{line}");
    let (_, text) = control.request(Method::GET, "/metrics", "").await;
    let target = "plimsoll_control_cluster_target_utilization_ratio{cluster=\"orders\"} 0.5";
    assert!(text.lines().any(|line| line == target), "{text}");
    text
}

/// What a proxy tells of a host of zone `a` that is half full with 300 requests per second.
fn told_of(host: u8) -> UpstreamEndpointStats {
    let utilization = MetricStats {
        num_requests_finished_with_metric: 30,
        total_metric_value: 15.0,
    };
    UpstreamEndpointStats {
        address: ([10, 0, 0, host], 80).into(),
        total_successful_requests: 30,
        total_requests_in_progress: 0,
        total_error_requests: 0,
        total_issued_requests: 30,
        load_metric_stats: [("cpu_utilization".into(), utilization)].into(),
    }
}

/// Metrics of a control plane that keeps its audit, has a certificate, and learns the capacity of
/// hosts.
async fn learned() -> String {
    let directory = tempfile::tempdir().unwrap();
    let text = CONFIG.replace(
        "{name: orders}",
        "{name: orders}\n  capacity: {learned: {}}",
    );
    let control = Control::start_with(&text, None, Audit::kept_in(directory.path()).unwrap());
    let certificate = || Expiry {
        usage: CertificateUse::Own,
        file: "tls.crt".to_owned(),
        unix_seconds: 2_000_000_000,
    };
    let watched = move || vec![certificate()];
    control.handle.certificates().watch("xds", watched);
    let info = node("1", "a");
    let _stream = discover(&control, info.clone()).await;
    let mut session = report_to(&control, &info).await;
    let report = async || {
        let of_hosts = ClusterHostStats {
            cluster_name: "orders".into(),
            load_report_interval: Duration::from_millis(100),
            endpoints: (1..=3).map(told_of).collect(),
            localities: Vec::new(),
        };
        let reporter = &mut session.reporter;
        reporter.report(&info.node, vec![stats("orders", 1)]).await;
        reporter.report_hosts(vec![of_hosts]).await;
        control.request(Method::GET, "/metrics", "").await.1
    };
    let median = r#"plimsoll_control_capacity_median_requests_per_second{cluster="orders"}"#;
    let has_median = |page: &String| page.contains(median);
    let page = wait_to_see("capacity is learned", report, has_median).await;
    let typical: f64 = page
        .lines()
        .find_map(|line| line.strip_prefix(median)?.trim().parse().ok())
        .unwrap();
    assert!((590.0..610.0).contains(&typical), "{typical}");
    for (state, hosts) in [("known", 3), ("unknown", 3)] {
        let labels = format!(r#"{{cluster="orders",state="{state}"}}"#);
        let line = format!("plimsoll_control_capacity_hosts{labels} {hosts}");
        assert!(page.lines().any(|l| l == line), "{line} is not in\n{page}");
    }
    page
}

/// Metrics of a control plane with a zone that is ill and out of use.
async fn drained() -> String {
    let control = Control::new();
    let body = json!({ "zone": "b", "reason": "power", "for": "30m", "step": "0s" });
    let (status, answer) = zones::post(&control, "/api/v1/zones/drain", body).await;
    assert_eq!(status, StatusCode::OK, "{answer}");
    let suspect = Suspect {
        zone: Locality::new("r1", "b", ""),
        illness: Illness::Backends,
        failed_share: 0.5,
        elsewhere: 0.0,
        is_one_host: false,
    };
    control.handle.suspect(vec![suspect], None).await.unwrap();
    let (_, page) = control.request(Method::GET, "/metrics", "").await;
    for line in [
        r#"plimsoll_control_zone_drained_ratio{zone="b"} 1.0"#,
        r#"plimsoll_control_zone_suspect{locality="r1/b",of="backends"} 1"#,
    ] {
        assert!(page.lines().any(|l| l == line), "{line} is not in\n{page}");
    }
    page
}

fn nacked_status() -> TypeStatus {
    TypeStatus {
        type_url: CLUSTER.into(),
        wildcard: true,
        names: 0,
        sent: Some("2".into()),
        acked: Some("1".into()),
        nacked: Some(Nack {
            version: "2".into(),
            names: vec!["orders".into()],
            detail: ErrorDetail {
                code: 3,
                message: "no such policy".to_owned(),
            },
        }),
        in_flight: false,
        answered_at: None,
        responses: 2,
        acks: 1,
        nacks: 1,
        stale: 0,
    }
}

#[tokio::test]
async fn every_path_works_without_nodes() {
    let control = Control::new();
    let status = control.get("/api/v1/status").await;
    assert_eq!(
        (&status["fleets"], &status["clusters"]),
        (&json!(0), &json!(3))
    );
    assert_eq!(status["configuration"]["in_force"], true);
    assert_eq!(control.get("/api/v1/fleets").await, json!({ "fleets": [] }));
    assert_eq!(control.get("/api/v1/nodes").await["total"], 0);
    assert!(control.get("/").await["paths"].as_array().unwrap().len() > 5);
    for (path, text) in [("/healthz", "ok\n"), ("/readyz", "ready\n")] {
        let answer = control.request(Method::GET, path, "").await;
        assert_eq!(answer, (StatusCode::OK, text.to_owned()));
    }
    let head = control.request(Method::HEAD, "/api/v1/status", "").await;
    assert_eq!(head, (StatusCode::OK, String::new()));
}

#[tokio::test]
async fn errors_are_json() {
    let control = Control::new();
    let get = |path: &'static str| control.rejection(Method::GET, path, "");
    let (status, error, _) = get("/nothing").await;
    assert!(status == 404 && error.contains("/nothing"), "{error}");
    let (status, error, _) = get("/api/v1/what-if").await;
    assert!(status == 405 && error.contains("GET"), "{error}");
    let (status, error, field) = get("/api/v1/nodes?zonee=a").await;
    assert!(status == 400 && error.contains("zonee"), "{error}");
    assert_eq!(field, "zonee");
    let (_, error, field) = get("/api/v1/nodes?limit=many").await;
    assert!(field == "limit" && error.contains("digit"), "{error}");
    let (_, error, _) = get("/api/v1/explain").await;
    assert!(error.contains("cluster"), "{error}");
    let (status, error, field) = get("/api/v1/nodes?limit=0").await;
    assert!(status == 400 && error.contains("1000"), "{error}");
    assert_eq!(field, "limit");
    let (status, error, field) = get("/api/v1/explain?cluster=order").await;
    assert!(status == 400 && error.contains("orders"), "{error}");
    assert_eq!(field, "cluster");
    let (_, error, field) = get("/api/v1/explain?cluster=orders&fleet=x").await;
    assert_eq!(error, "\"x\" is not known; none is known yet");
    assert_eq!(field, "fleet");
    let (_, error, field) = get("/api/v1/explain?cluster=orders").await;
    assert_eq!(error, "none is known yet: no proxy has connected");
    assert_eq!(field, "fleet");
    let (_, _, field) = get("/api/v1/explain?cluster=orders&region=r1").await;
    assert_eq!(field, "region");
    let path = "/api/v1/status";
    for method in [Method::POST, Method::PUT, Method::DELETE] {
        assert_eq!(control.rejection(method, path, "").await.0, 405);
    }
}

#[tokio::test]
async fn invalid_queries_name_the_field() {
    let (control, _open) = with_demand().await;
    let post = |body: Value| {
        let control = &control;
        async move {
            let path = "/api/v1/what-if";
            control
                .rejection(Method::POST, path, &body.to_string())
                .await
        }
    };
    let (_, _, field) = post(json!({ "cluster": "orders", "hosts": { "a": -1 } })).await;
    assert_eq!(field, "hosts.a");
    let (_, error, _) = post(json!({ "cluster": "orders", "host": {} })).await;
    assert!(error.contains("unknown field `host`"), "{error}");
    let (_, error, field) = post(json!({ "cluster": "orders", "demand": { "a": 0 } })).await;
    assert!(field == "demand" && error.contains("zero"), "{error}");
    let (_, error, field) = post(json!({ "cluster": "orders", "demand": { "a": -2.5 } })).await;
    assert!(field == "demand.a" && error.contains("-2.5"), "{error}");
    let both = json!({ "a": 1, "r1/a": 1 });
    let (_, _, field) = post(json!({ "cluster": "orders", "demand": both })).await;
    assert_eq!(field, "demand.r1/a");
    let (_, error, field) = post(json!({ "cluster": "orders", "hosts": { "1/2/3/4": 1 } })).await;
    assert!(field == "hosts.1/2/3/4" && error.contains("region/zone"));
    let (_, error, _) = post(json!({ "cluster": "orders", "hosts": { "a": 100_001 } })).await;
    assert!(error.contains("100000"), "{error}");
    let long = format!("\"{}\"", "x".repeat(300 << 10));
    let answer = control.rejection(Method::POST, "/api/v1/what-if", &long);
    assert_eq!(answer.await.0, 413);
    let (status, ..) = control
        .rejection(Method::POST, "/api/v1/what-if", "{")
        .await;
    assert_eq!(status, 400);
}

#[tokio::test]
async fn fleets_and_clusters_show_measured_and_delivered_demand() {
    let (control, _open) = with_demand().await;
    let page = control.get("/api/v1/clusters?cluster=orders").await;
    let fleet = &page["clusters"][0]["fleets"][0];
    assert_eq!(fleet["delivered"][0]["fraction_bp"], 7500, "{fleet}");
    assert!(fleet["delivered_age_ms"].is_u64(), "{fleet}");
    let from = |zone: &str| json!({ "region": "r1", "zone": zone, "sub_zone": "" });
    let to = json!({ "region": "", "zone": "", "sub_zone": "" });
    let traffic = json!([
        { "from": from("a"), "to": to, "requests_per_second": 300.0 },
        { "from": from("b"), "to": to, "requests_per_second": 100.0 },
    ]);
    assert_eq!(fleet["traffic"], traffic);
    let envoy = &page["clusters"][0]["delivery"][3];
    let expected = json!({ "class": "envoy", "delivery": "fleet_weights", "reason": null });
    assert_eq!(*envoy, expected);
    let page = control.get("/api/v1/clusters?offset=2&limit=1").await;
    assert_eq!((&page["total"], &page["offset"]), (&json!(3), &json!(2)));
    assert_eq!(page["clusters"][0]["cluster"], "trial");
    assert_eq!(page["clusters"].as_array().unwrap().len(), 1);
    let page = control.get("/api/v1/fleets?fleet=gateway").await;
    let demand = &page["fleets"][0]["demand"];
    assert_eq!(demand[0]["cluster"], Value::Null, "the whole comes first");
    assert_eq!(demand[1]["zones"][0]["requests_per_second"], 300.0);
    assert_eq!(page["fleets"][0]["zones"][1]["nodes"], 1);
    assert_eq!(
        control.get("/api/v1/fleets?fleet=x").await,
        json!({ "fleets": [] })
    );
}

#[tokio::test]
async fn nodes_show_deliveries_and_nacks() {
    let (control, _open) = with_demand().await;
    control.handle.records().update(0, vec![nacked_status()]);
    let page = control.get("/api/v1/nodes?limit=1").await;
    assert_eq!(page["total"], 2);
    let node = &page["nodes"][0];
    assert_eq!(
        (&node["id"], &node["class"]),
        (&json!("1"), &json!("envoy"))
    );
    assert_eq!(node["requests_per_second"], 300.0);
    let delivery = |index: usize| {
        let each = &node["delivery"][index];
        (each["delivery"].clone(), each["reason"].clone())
    };
    assert_eq!(delivery(0), (json!("as_configured"), json!("mode_off")));
    assert_eq!(delivery(1), (json!("fleet_weights"), Value::Null));
    assert_eq!(delivery(2), (json!("host_counts"), json!("mode_shadow")));
    let nacked = &node["discovery"][0]["types"][0]["nacked"];
    assert_eq!(nacked["message"], "no such policy");
    let page = control.get("/api/v1/nodes?offset=1").await;
    assert_eq!(page["nodes"][0]["id"], "2");
    let page = control.get("/api/v1/nodes?id=2&fleet=gateway").await;
    assert_eq!(page["total"], 1);
}

#[tokio::test]
async fn a_zone_can_be_given_by_name_only() {
    let (control, _open) = with_demand().await;
    let page = control.get("/api/v1/explain?cluster=orders&zone=a").await;
    assert_eq!(page["own_locality"]["region"], "r1", "{page}");
    assert_eq!(page["localities"][0]["demand_share"], 0.75);
    assert_eq!(page["localities"][0]["expected_share"], 0.6666, "as it is");
    let same = "/api/v1/explain?cluster=orders&region=r1&zone=a";
    let same = control.get(same).await;
    assert_eq!(same["localities"], page["localities"]);
    assert_eq!(same["zones"], page["zones"]);
    assert!(page["fractions"]["age_ms"].is_u64(), "{page}");
    let path = "/api/v1/explain?cluster=orders&zone=z";
    let (_, error, field) = control.rejection(Method::GET, path, "").await;
    assert!(field == "zone" && error.contains("r1/a, r1/b"), "{error}");
}

#[tokio::test]
async fn cross_site_requests_are_rejected() {
    let (control, _open) = with_demand().await;
    let status = async |names: &[&str], method, headers: [(&str, &str); 2]| {
        let mut request = Request::builder().method(method).uri("/api/v1/what-if");
        for (name, value) in headers {
            request = request.header(name, value);
        }
        let request = request
            .body(Body::from(r#"{"cluster": "orders"}"#))
            .unwrap();
        let router = control.router(names);
        router.oneshot(request).await.unwrap().status().as_u16()
    };
    let host = ("host", "localhost:18001");
    let own = ("origin", "http://localhost:18001");
    assert_eq!(status(&[], Method::POST, [host, own]).await, 200);
    let other = ("origin", "https://evil.example");
    assert_eq!(status(&[], Method::POST, [host, other]).await, 403);
    let named = ("host", "control.example.org");
    let accept = ("accept", "*/*");
    assert_eq!(status(&[], Method::POST, [named, accept]).await, 403);
    let known = ["control.example.org"];
    assert_eq!(status(&known, Method::POST, [named, accept]).await, 200);
}

#[tokio::test]
async fn what_if_compares_shares() {
    let (control, _open) = with_demand().await;
    let hosts = json!({ "a": 9, "r1/c": 1 });
    let question = json!({ "cluster": "orders", "hosts": hosts });
    let page = control.what_if(&question).await;
    let hosts = |side: &str| {
        let localities = page[side]["localities"].as_array().unwrap();
        let hosts = localities.iter().map(|locality| locality["hosts"].clone());
        hosts.collect::<Vec<_>>()
    };
    assert_eq!(hosts("before"), [3, 3]);
    assert_eq!(hosts("after"), [9, 3, 1]);
    let added = &page["after"]["localities"][2]["locality"];
    assert_eq!(
        *added,
        json!({ "region": "r1", "zone": "c", "sub_zone": "" })
    );
    let question = json!({ "cluster": "orders", "demand": { "b": 7 } });
    let page = control.what_if(&question).await;
    assert_eq!(page["after"]["localities"][0]["demand_share"], 0.0);
    assert_eq!(page["after"]["localities"][1]["demand_share"], 1.0);
    assert_eq!(page["cluster"], "orders");
    assert_eq!(page["before"]["zones"].as_array().unwrap().len(), 2);
    let question = json!({ "cluster": "orders", "fleet": "x" }).to_string();
    let (status, _, field) = control
        .rejection(Method::POST, "/api/v1/what-if", &question)
        .await;
    assert_eq!((status, field), (400, json!("fleet")));
}

#[tokio::test]
async fn unreported_services_are_shown() {
    let (control, _open) = with_demand().await;
    let records = control.handle.records();
    records.subscribe(0, &["orders".into(), "trial".into()], Instant::ORIGIN);
    let nodes = async || control.get("/api/v1/nodes").await["nodes"].clone();
    let shown = wait_to_see("three intervals have passed", nodes, |nodes| {
        nodes[0]["unreported"] == json!(["trial"])
    });
    assert_eq!(shown.await[1]["unreported"], json!([]));
    let (_, text) = control.request(Method::GET, "/metrics", "").await;
    let line = r#"plimsoll_control_nodes_unreported{fleet="gateway"} 1"#;
    assert!(text.lines().any(|l| l == line), "{text}");
}

#[tokio::test]
async fn every_metric_is_in_the_table() {
    let (control, open) = with_demand().await;
    control.handle.records().update(0, vec![nacked_status()]);
    drop(open);
    // A reporter is counted as departed some time after its load reporting stream has closed.
    wait_until("reporters have left", async || {
        let (_, text) = control.request(Method::GET, "/metrics", "").await;
        text.contains("reporters_left_total")
    })
    .await;
    let (control, _open) = with_demand_at(Control::replica().await).await;
    control.handle.records().update(0, vec![nacked_status()]);
    control
        .handle
        .counters()
        .add("limit_exceeded_total", "fleets", 1);
    let source = plimsoll_kubernetes::start(&SourceOptions {
        access: ApiAccess::Explicit {
            server: "http://127.0.0.1:1".to_owned(),
            ca_file: None,
            token_file: None,
        },
        ..SourceOptions::default()
    });
    let kubernetes = Arc::clone(source.status());
    let discovery = control.handle.discovery();
    discovery.set_status(SourceId::Kubernetes, Some(kubernetes));
    let (status, text) = control.request(Method::GET, "/metrics", "").await;
    assert_eq!(status, StatusCode::OK);
    assert!(text.ends_with("# EOF\n"));
    let samples = text.lines().filter(|line| !line.starts_with('#'));
    let mut names: Vec<&str> = samples
        .map(|line| line.split(['{', ' ']).next().unwrap())
        .collect();
    names.push("plimsoll_control_reporters_left_total");
    let others = [planned().await, learned().await, drained().await].concat();
    let series = others.lines().filter(|line| !line.starts_with('#'));
    names.extend(series.map(|line| line.split(['{', ' ']).next().unwrap()));
    names.sort_unstable();
    names.dedup();
    let mut listed = METRICS.map(|metric| metric.name);
    listed.sort_unstable();
    assert_eq!(names, listed);
    check_descriptions(&format!("{text}{others}"));
    let has = |line: &str| assert!(text.lines().any(|l| l == line), "{line} is not in\n{text}");
    has(r#"plimsoll_control_nodes{fleet="gateway",locality="r1/a",class="envoy"} 1"#);
    has(r#"plimsoll_control_nodes_nacked{fleet="gateway"} 1"#);
    has(r#"plimsoll_control_limit_exceeded_total{limit="fleets"} 1"#);
    for limit in ["store_record", "streams", "first_message_timeout"] {
        has(&format!(
            r#"plimsoll_control_limit_exceeded_total{{limit="{limit}"}} 0"#
        ));
    }
    has(r#"plimsoll_control_dominated_zones{fleet="gateway"} 0"#);
    has("plimsoll_control_writer_queue_bytes 0");
    has("plimsoll_control_writer_queue_bytes_capacity 33554432");
    has(r#"plimsoll_control_discovery_nacks_total{type="Cluster"} 1"#);
    has(r#"plimsoll_control_discovery_streams{variant="delta"} 2"#);
    let orders = r#"fleet="gateway",cluster="orders",locality="r1/a""#;
    has(&format!(
        "plimsoll_control_demand_requests_per_second{{{orders}}} 300.0"
    ));
    has(&format!(
        "plimsoll_control_cluster_fraction_basis_points{{{orders}}} 7500"
    ));
    assert!(text.contains(r#"load_reports_ignored_total{reason="unknown_cluster"}"#));
}

/// Checks that type, labels and help of every metric in `text` are those of [`METRICS`].
fn check_descriptions(text: &str) {
    // Metric families without series are omitted from `/metrics`: no node has left.
    let unseen = "plimsoll_control_reporters_left_total";
    for metric in METRICS.iter().filter(|metric| metric.name != unseen) {
        let base = metric
            .name
            .trim_end_matches("_total")
            .trim_end_matches("_info");
        for line in [
            format!("# TYPE {base} {}", metric.kind.name()),
            format!("# HELP {base} {}.", metric.help),
        ] {
            assert!(text.lines().any(|l| l == line), "{line} is not in\n{text}");
        }
        let start = format!("{}{{", metric.name);
        let sample = text.lines().find_map(|line| line.strip_prefix(&start));
        let labels: Vec<&str> = sample
            .and_then(|rest| rest.split_once('}'))
            .map(|(labels, _)| labels)
            .unwrap_or_default()
            .split(',')
            .filter_map(|one| Some(one.split_once('=')?.0))
            .collect();
        assert_eq!(labels, metric.labels, "{}", metric.name);
    }
}

#[cfg(feature = "etcd")]
#[tokio::test]
async fn replicas_and_their_store_are_shown() {
    let control = Control::new();
    let page = control.get("/api/v1/replicas").await;
    assert_eq!(page, json!({ "store": null, "replicas": [] }));
    let control = Control::replica().await;
    let _open = discover(&control, node("1", "a")).await;
    let page = control.get("/api/v1/replicas").await;
    let store = &page["store"];
    assert_eq!(store["endpoints"], json!(["localhost:2379"]));
    assert_eq!(
        (&store["connected"], &store["synced"]),
        (&json!(true), &json!(true))
    );
    assert_eq!(
        (&store["nodes"], &store["own_nodes"]),
        (&json!(1), &json!(1))
    );
    assert_eq!(store["pending_writes"], 1);
    assert_eq!(store["last_write_ms"], 0.0);
    let same = |index: usize| {
        let replica = &page["replicas"][index];
        (
            replica["this"] == true,
            replica["same_configuration"] == true,
        )
    };
    assert_eq!([same(0), same(1)], [(true, true), (false, false)]);
    let page = control.get("/api/v1/nodes").await;
    assert_eq!(page["nodes"][0]["replica"], "r0");
    let (_, ready) = control.request(Method::GET, "/readyz", "").await;
    assert_eq!(ready, "ready\nstore: connected\n");
    let lost = StoreInput::Disconnected("test".to_owned());
    control.handle.store(lost).await.unwrap();
    let (status, ready) = control.request(Method::GET, "/readyz", "").await;
    assert_eq!(
        (status, ready.as_str()),
        (StatusCode::OK, "ready\nstore: not connected\n")
    );
    assert!(
        control.handle.recent().all()[0]
            .text
            .contains("store unreachable")
    );
}

#[tokio::test]
async fn the_api_is_served_over_a_socket() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let control = Control::new();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let stopping = control.context.stopping.clone();
    let stopped = stopping.clone().cancelled_owned();
    let served = tokio::spawn(serve(listener, control.router(&[]), stopped));
    let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
    let request = b"GET /readyz HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";
    stream.write_all(request).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    stopping.cancel();
    served.await.unwrap();
}
