//! The control plane under attack, an honest fleet, and a raw gRPC client that sends any bytes.

use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::{BufMut as _, Bytes, BytesMut};
use h2::client::SendRequest;
use h2::{RecvStream, SendStream};
use plimsoll_xds::driver::STREAM_LOAD_STATS;
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;

/// Most memory of the process under attack. Release builds stay below 512 MiB as well.
pub(crate) const MAX_RSS: u64 = 512 << 20;
/// Type URL of assignments.
pub(crate) const ASSIGNMENTS: &str =
    "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment";
/// Only failing tests wait this long: for a page of the admin API, or for a response.
const TIMEOUT: Duration = Duration::from_secs(30);

const CONFIG: &str = "\
listen: 127.0.0.1:0
admin: 127.0.0.1:0
load_reporting: {interval: 0.2s}
demand: {smoothing_time_constant: 0.1s}
limits: {fleets: 20}
services:
- cluster: {name: orders}
  endpoints:
  - {locality: {zone: zone-a}, lb_endpoints: ['10.0.0.1:80']}
  - {locality: {zone: zone-b}, lb_endpoints: ['10.0.1.1:80']}
  - {locality: {zone: zone-c}, lb_endpoints: ['10.0.2.1:80']}
";

/// A field with a length: string, bytes or message.
pub(crate) fn field(number: u8, content: &[u8]) -> Vec<u8> {
    let mut out = vec![number << 3 | 2];
    put_varint(&mut out, content.len() as u64);
    out.extend_from_slice(content);
    out
}

pub(crate) fn text(number: u8, content: &str) -> Vec<u8> {
    field(number, content.as_bytes())
}

pub(crate) fn number(number: u8, value: u64) -> Vec<u8> {
    let mut out = vec![number << 3];
    put_varint(&mut out, value);
    out
}

fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(u8::try_from(value & 0x7f).unwrap() | 0x80);
        value >>= 7;
    }
    out.push(u8::try_from(value).unwrap());
}

pub(crate) fn zone(name: &str) -> Vec<u8> {
    text(2, name)
}

/// Encodes `envoy.config.core.v3.Node`, with a zone as its locality.
pub(crate) fn node(id: &str, fleet: &str, place: &str) -> Vec<u8> {
    [text(1, id), text(2, fleet), field(4, &zone(place))].concat()
}

/// A running `plimsoll control`.
pub(crate) struct Control {
    child: Child,
    pub(crate) xds: SocketAddr,
    admin: SocketAddr,
    _directory: tempfile::TempDir,
}

impl Control {
    pub(crate) fn start() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("control.yaml");
        std::fs::write(&file, CONFIG).unwrap();
        let mut child = Command::new(env!("CARGO_BIN_EXE_plimsoll"))
            .arg("control")
            .arg("-c")
            .arg(&file)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut address = |prefix: &str| {
            let line = lines.next().unwrap().unwrap();
            let address = line.strip_prefix(prefix).expect("an address");
            address.parse().unwrap()
        };
        let xds = address("ADS and LRS on ");
        let admin = address("admin API on http://");
        Self {
            child,
            xds,
            admin,
            _directory: directory,
        }
    }

    /// Memory of the process in bytes.
    fn rss(&self) -> u64 {
        let pid = self.child.id();
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        let line = status
            .lines()
            .find(|line| line.starts_with("VmRSS:"))
            .unwrap();
        let kilobytes: u64 = line.split_whitespace().nth(1).unwrap().parse().unwrap();
        kilobytes << 10
    }

    pub(crate) async fn get(&self, path: &str) -> String {
        let (status, body) = request(self.admin, "GET", path, String::new()).await;
        assert_eq!(status, 200, "{body}");
        body
    }

    pub(crate) async fn post(&self, path: &str, body: String) -> (u16, String) {
        request(self.admin, "POST", path, body).await
    }

    /// Returns a metric by its name without prefix, with labels; 0 if it is missing.
    pub(crate) async fn metric(&self, name: &str) -> f64 {
        let page = self.get("/metrics").await;
        let prefix = format!("plimsoll_control_{name} ");
        let line = page.lines().find_map(|line| line.strip_prefix(&prefix));
        line.map_or(0.0, |value| value.parse().unwrap())
    }

    /// Waits until a counter is above zero.
    pub(crate) async fn wait_for_metric(&self, name: &str) {
        until(name, async || self.metric(name).await > 0.0).await;
    }

    pub(crate) async fn fleets(&self) -> Value {
        serde_json::from_str(&self.get("/api/v1/fleets?fleet=edge").await).unwrap()
    }

    /// Waits until the fractions delivered to the honest fleet are those of its demand.
    pub(crate) async fn wait_for_fractions(&self) {
        until("60/20/20", async || {
            let fleets = self.fleets().await;
            let near =
                |(zone, expected): (&str, i64)| (fraction(&fleets, zone) - expected).abs() <= 50;
            [("zone-a", 6000), ("zone-b", 2000), ("zone-c", 2000)]
                .into_iter()
                .all(near)
        })
        .await;
    }

    /// Watches memory and readiness until stopped.
    pub(crate) fn watch(self: &Arc<Self>) -> Watch {
        let stop = Arc::new(AtomicBool::new(false));
        let (control, stopped) = (Arc::clone(self), Arc::clone(&stop));
        let task = tokio::spawn(async move {
            let mut watched = Watched::default();
            while !stopped.load(Ordering::Relaxed) {
                control.get("/readyz").await;
                watched.largest_rss = watched.largest_rss.max(control.rss());
                watched.answers += 1;
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            watched
        });
        Watch { stop, task }
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        // It may have ended by itself, which the test has noticed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Fraction delivered for a zone, in basis points.
pub(crate) fn fraction(fleets: &Value, zone: &str) -> i64 {
    let delivered = fleets["fleets"][0]["delivered"].as_array();
    let entry = delivered.and_then(|all| all.iter().find(|one| one["locality"]["zone"] == zone));
    entry.map_or(-1, |entry| entry["fraction_bp"].as_i64().unwrap())
}

async fn until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let waiting = async {
        while !holds().await {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let done = tokio::time::timeout(TIMEOUT, waiting).await;
    done.unwrap_or_else(|_| panic!("{what} did not happen"));
}

pub(crate) struct Watch {
    stop: Arc<AtomicBool>,
    task: JoinHandle<Watched>,
}

/// What a watch saw.
#[derive(Default)]
pub(crate) struct Watched {
    pub(crate) answers: u64,
    pub(crate) largest_rss: u64,
}

impl Watch {
    pub(crate) async fn stop(self) -> Watched {
        self.stop.store(true, Ordering::Relaxed);
        self.task.await.unwrap()
    }
}

/// Eleven proxies that report 60/20/20 % of 220 requests per second.
pub(crate) struct HonestFleet(Vec<JoinHandle<()>>);

impl HonestFleet {
    pub(crate) fn start(address: SocketAddr) -> Self {
        let mut tasks = Vec::new();
        let zones = [("zone-a", 3, 44), ("zone-b", 4, 11), ("zone-c", 4, 11)];
        for (place, proxies, rate) in zones {
            for index in 0..proxies {
                let id = format!("{place}-{index}");
                tasks.push(tokio::spawn(report_forever(address, id, place, rate)));
            }
        }
        Self(tasks)
    }

    pub(crate) fn stop(self) {
        self.0.iter().for_each(JoinHandle::abort);
    }
}

async fn report_forever(address: SocketAddr, id: String, place: &'static str, rate: u64) {
    let mut peer = Peer::connect(address).await;
    let mut stream = peer.open(STREAM_LOAD_STATS).await;
    let hello = field(1, &node(&id, "edge", place));
    stream.send(&hello).await;
    stream.response().await;
    let entry = field(2, &[field(1, &zone(place)), number(8, rate)].concat());
    let interval = field(4, &number(1, 1));
    let stats = field(2, &[text(1, "orders"), entry, interval].concat());
    loop {
        stream.send(&[hello.clone(), stats.clone()].concat()).await;
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

/// An HTTP/2 connection of an attacker, or of an honest proxy.
pub(crate) struct Peer {
    requests: SendRequest<Bytes>,
    connection: JoinHandle<()>,
}

impl Drop for Peer {
    fn drop(&mut self) {
        self.connection.abort();
    }
}

impl Peer {
    pub(crate) async fn connect(address: SocketAddr) -> Self {
        let socket = TcpStream::connect(address).await.unwrap();
        let (requests, connection) = h2::client::handshake(socket).await.unwrap();
        let connection = tokio::spawn(async move {
            // Ends with the test.
            let _ = connection.await;
        });
        Self {
            requests,
            connection,
        }
    }

    pub(crate) async fn open(&mut self, path: &str) -> Stream {
        let request = http::Request::post(format!("http://control{path}"))
            .header("content-type", "application/grpc")
            .header("te", "trailers")
            .body(())
            .unwrap();
        let mut sender = self.requests.clone().ready().await.unwrap();
        let (response, requests) = sender.send_request(request, false).unwrap();
        Stream {
            requests,
            responses: response.await.unwrap().into_body(),
        }
    }
}

/// A gRPC stream on which any bytes can be sent as a message.
pub(crate) struct Stream {
    requests: SendStream<Bytes>,
    responses: RecvStream,
}

impl Stream {
    /// Sends a message; the peer may have ended the stream already.
    pub(crate) async fn send(&mut self, message: &[u8]) {
        let mut framed = BytesMut::with_capacity(message.len() + 5);
        framed.put_u8(0);
        framed.put_u32(u32::try_from(message.len()).unwrap());
        framed.extend_from_slice(message);
        let mut rest = framed.freeze();
        while !rest.is_empty() {
            self.requests.reserve_capacity(rest.len());
            let room = std::future::poll_fn(|cx| self.requests.poll_capacity(cx)).await;
            let Some(Ok(room)) = room else {
                return;
            };
            let part = rest.split_to(room.min(rest.len()));
            if self.requests.send_data(part, false).is_err() {
                return;
            }
        }
    }

    /// Waits for a message.
    pub(crate) async fn response(&mut self) {
        let end = self.response_or_end().await;
        assert_eq!(end, None, "the stream has ended");
    }

    /// Waits for a message, or returns the status with which the stream ends.
    pub(crate) async fn response_or_end(&mut self) -> Option<String> {
        match tokio::time::timeout(TIMEOUT, self.responses.data()).await {
            Ok(Some(Ok(data))) => {
                let released = self.responses.flow_control().release_capacity(data.len());
                released.unwrap();
                None
            }
            Ok(Some(Err(error))) => Some(format!("reset: {error}")),
            Ok(None) => Some(self.status().await),
            Err(_) => panic!("no response"),
        }
    }

    /// Returns the status, as `code: message`, with which the stream ends.
    pub(crate) async fn end(&mut self) -> String {
        loop {
            if let Some(end) = self.response_or_end().await {
                return end;
            }
        }
    }

    async fn status(&mut self) -> String {
        let trailers = self.responses.trailers().await.unwrap().unwrap();
        let value = |name| {
            trailers
                .get(name)
                .map_or("", |value| value.to_str().unwrap())
        };
        let message = value("grpc-message").replace("%20", " ");
        format!("{}: {message}", value("grpc-status"))
    }
}

/// Sends one HTTP/1.1 request; returns the status and the body.
async fn request(address: SocketAddr, method: &str, path: &str, body: String) -> (u16, String) {
    let exchange = async {
        let mut socket = TcpStream::connect(address).await.unwrap();
        let length = body.len();
        let head = format!(
            "{method} {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\
             content-type: application/json\r\ncontent-length: {length}\r\n\r\n"
        );
        socket.write_all(head.as_bytes()).await.unwrap();
        socket.write_all(body.as_bytes()).await.unwrap();
        let mut response = String::new();
        socket.read_to_string(&mut response).await.unwrap();
        response
    };
    let response = tokio::time::timeout(TIMEOUT, exchange)
        .await
        .expect("an answer");
    let status = response.split(' ').nth(1).unwrap().parse().unwrap();
    let (_, body) = response.split_once("\r\n\r\n").unwrap();
    (status, body.to_owned())
}
