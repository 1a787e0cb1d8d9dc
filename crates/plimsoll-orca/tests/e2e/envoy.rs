//! [`Envoy`]: a stock Envoy with one cluster per load-aware policy, over the same hosts.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use bytes::Bytes;
use http::{Request, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http2::{SendRequest, handshake};
use hyper_util::rt::{TokioExecutor, TokioIo};
use plimsoll_testing::{tasks, wait_for};
use serde_json::{Value, json};
use tokio::net::TcpStream;

use super::backends::{Kind, ZONES};

/// Cluster names: the policy, and whether reports are out of band.
pub(crate) const CLUSTERS: [&str; 4] = [
    "load_aware_locality",
    "load_aware_locality_oob",
    "client_side_weighted_round_robin",
    "client_side_weighted_round_robin_oob",
];

/// An Envoy process in the zone of the first hosts; killed on drop.
pub(crate) struct Envoy {
    child: Child,
    admin: SocketAddr,
    requests: Option<SendRequest<Full<Bytes>>>,
}

impl Envoy {
    pub(crate) fn start(name: &str, hosts: &[(usize, SocketAddr)]) -> Self {
        let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR"))
            .join(format!("orca-e2e-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("envoy.json"), bootstrap(hosts).to_string()).unwrap();
        let log = std::fs::File::create(folder.join("envoy.log")).unwrap();
        let child = Command::new(plimsoll_testing::envoy("1.40.0"))
            .arg("-c")
            .arg(folder.join("envoy.json"))
            .arg("--admin-address-path")
            .arg(folder.join("admin"))
            .args([
                "--concurrency",
                "1",
                "--disable-hot-restart",
                "-l",
                "warning",
            ])
            .stdin(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap();
        let mut envoy = Self {
            child,
            admin: SocketAddr::from(([127, 0, 0, 1], 0)),
            requests: None,
        };
        envoy.admin = wait_for("Envoy has an admin page", || {
            let running = envoy.child.try_wait().unwrap().is_none();
            let folder = folder.display();
            assert!(running, "Envoy ended: see envoy.log in {folder}");
            let text = std::fs::read_to_string(format!("{folder}/admin")).unwrap_or_default();
            text.trim().parse().ok()
        });
        envoy
    }

    /// Sends requests to a cluster, and counts the responses by zone.
    pub(crate) async fn send(&mut self, kind: Kind, cluster: &str, number: u32) -> [u32; 3] {
        if self.requests.is_none() {
            let listener = self.listener().await;
            self.requests = Some(connect(listener).await);
        }
        let sender = self.requests.clone().unwrap();
        let mut counts = [0; 3];
        // A few at a time, so that reports arrive in between.
        let workers = (0..4).map(|_| {
            let (sender, cluster) = (sender.clone(), cluster.to_owned());
            tokio::spawn(worker(sender, kind, cluster, number / 4))
        });
        for worker in workers.collect::<Vec<_>>() {
            for (total, count) in counts.iter_mut().zip(worker.await.unwrap()) {
                *total += count;
            }
        }
        counts
    }

    /// Reads a counter of Envoy.
    pub(crate) async fn stat(&self, name: &str) -> u64 {
        let text = page(self.admin, &format!("/stats?filter=^{name}$")).await;
        let value = text
            .trim()
            .rsplit(' ')
            .next()
            .and_then(|it| it.parse().ok());
        value.unwrap_or_else(|| panic!("no counter {name}: {text:?}"))
    }

    /// Address of the listener; the system chose its port.
    async fn listener(&self) -> SocketAddr {
        let port = tasks::wait_for("Envoy has a listener", async || {
            let text = page(self.admin, "/listeners?format=json").await;
            let page: Value = serde_json::from_str(&text).unwrap();
            let address = "/listener_statuses/0/local_address/socket_address/port_value";
            page.pointer(address).and_then(Value::as_u64)
        });
        SocketAddr::from(([127, 0, 0, 1], u16::try_from(port.await).unwrap()))
    }
}

impl Drop for Envoy {
    fn drop(&mut self) {
        // The process may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

async fn connect(address: SocketAddr) -> SendRequest<Full<Bytes>> {
    let stream = TcpStream::connect(address).await.unwrap();
    stream.set_nodelay(true).unwrap();
    let connection = handshake(TokioExecutor::new(), TokioIo::new(stream)).await;
    let (sender, connection) = connection.unwrap();
    tokio::spawn(connection);
    sender
}

async fn worker(
    mut sender: SendRequest<Full<Bytes>>,
    kind: Kind,
    cluster: String,
    number: u32,
) -> [u32; 3] {
    let mut counts = [0; 3];
    for _ in 0..number {
        let request = match kind {
            Kind::Axum => Request::get("http://backend/"),
            Kind::Tonic => Request::post("http://backend/test.Zone/Ask")
                .header("content-type", "application/grpc")
                .header("te", "trailers"),
        };
        let body = match kind {
            Kind::Axum => Full::default(),
            Kind::Tonic => Full::from(&[0; 5][..]),
        };
        let request = request.header("x-cluster", &cluster).body(body).unwrap();
        sender.ready().await.unwrap();
        let response = sender.send_request(request).await.unwrap();
        let (head, body) = response.into_parts();
        let body = body.collect().await.unwrap();
        assert_eq!(head.status, StatusCode::OK, "{:?}", body.to_bytes());
        let zone = &head.headers["x-zone"];
        let zone = ZONES.iter().position(|name| zone == name).unwrap();
        counts[zone] += 1;
    }
    counts
}

/// Reads a page of the admin interface, which only speaks HTTP/1.1.
async fn page(admin: SocketAddr, path: &str) -> String {
    let stream = TcpStream::connect(admin).await.unwrap();
    let connection = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await;
    let (mut sender, connection) = connection.unwrap();
    let connection = tokio::spawn(connection);
    let request = Request::get(path)
        .header("host", "admin")
        .body(Full::<Bytes>::default())
        .unwrap();
    let response = sender.send_request(request).await.unwrap();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    connection.abort();
    String::from_utf8(body.to_vec()).unwrap()
}

fn bootstrap(hosts: &[(usize, SocketAddr)]) -> Value {
    let clusters: Vec<Value> = CLUSTERS.iter().map(|name| cluster(name, hosts)).collect();
    json!({
        "node": { "id": "test", "cluster": "test", "locality": { "zone": ZONES[0] } },
        "admin": { "address": address(SocketAddr::from(([127, 0, 0, 1], 0))) },
        "static_resources": { "listeners": [entrance()], "clusters": clusters },
    })
}

fn address(at: SocketAddr) -> Value {
    json!({ "socket_address": { "address": at.ip().to_string(), "port_value": at.port() } })
}

fn cluster(name: &str, hosts: &[(usize, SocketAddr)]) -> Value {
    let locality = |zone: usize| {
        let own = hosts.iter().filter(|(of, _)| *of == zone);
        let endpoints: Vec<Value> = own
            .map(|(_, at)| json!({ "endpoint": { "address": address(*at) } }))
            .collect();
        json!({ "locality": { "zone": ZONES[zone] }, "lb_endpoints": endpoints })
    };
    let options = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions";
    json!({
        "name": name,
        "type": "STATIC",
        "load_assignment": {
            "cluster_name": name,
            "endpoints": [locality(0), locality(1), locality(2)],
        },
        "typed_extension_protocol_options": { options: {
            "@type": format!("type.googleapis.com/{options}"),
            "explicit_http_config": { "http2_protocol_options": {} },
        } },
        "load_balancing_policy": { "policies": [policy(name)] },
    })
}

fn policy(cluster: &str) -> Value {
    let out_of_band = cluster.ends_with("_oob");
    let mut config = json!({ "weight_update_period": "0.2s" });
    if out_of_band {
        config["enable_oob_load_report"] = json!(true);
        config["oob_reporting_period"] = json!("1s");
    }
    if cluster.starts_with("load_aware_locality") {
        config["smoothing_time_constant"] = json!("1s");
        let child = extension("round_robin", "RoundRobin", json!({}));
        config["endpoint_picking_policy"] = json!({ "policies": [child] });
        extension("load_aware_locality", "LoadAwareLocality", config)
    } else {
        config["blackout_period"] = json!("1s");
        let name = "client_side_weighted_round_robin";
        extension(name, "ClientSideWeightedRoundRobin", config)
    }
}

fn extension(name: &str, message: &str, mut config: Value) -> Value {
    let package = format!("envoy.extensions.load_balancing_policies.{name}.v3");
    config["@type"] = json!(format!("type.googleapis.com/{package}.{message}"));
    let name = format!("envoy.load_balancing_policies.{name}");
    json!({ "typed_extension_config": { "name": name, "typed_config": config } })
}

/// A listener that routes a request to the cluster named in its header.
fn entrance() -> Value {
    let filters = "type.googleapis.com/envoy.extensions.filters";
    let manager = "network.http_connection_manager.v3.HttpConnectionManager";
    json!({
        "name": "entrance",
        "address": address(SocketAddr::from(([127, 0, 0, 1], 0))),
        "filter_chains": [{ "filters": [{
            "name": "http",
            "typed_config": {
                "@type": format!("{filters}.{manager}"),
                "stat_prefix": "entrance",
                "http_filters": [{
                    "name": "router",
                    "typed_config": { "@type": format!("{filters}.http.router.v3.Router") },
                }],
                "route_config": { "virtual_hosts": [{
                    "name": "any",
                    "domains": ["*"],
                    "routes": [{
                        "match": { "prefix": "/" },
                        "route": { "cluster_header": "x-cluster" },
                    }],
                }] },
            },
        }] }],
    })
}
