//! The control plane under attack, an honest fleet, and a raw gRPC client that sends any bytes.

use std::fs::{self, File};
use std::future::poll_fn;
use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use std::time::{Duration, Instant};

use bytes::{BufMut as _, Bytes, BytesMut};
use h2::client::SendRequest;
use h2::{RecvStream, SendStream};
use plimsoll_testing::tasks::{wait_to_see, wait_until};
use plimsoll_testing::{plimsoll, print_log_of_failed_test};
use plimsoll_xds::driver::STREAM_LOAD_STATS;
use plimsoll_xds::wire;
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};
use tokio::sync::oneshot;
use tokio::task::{JoinHandle, JoinSet};

/// Most memory of the process under attack. Release builds stay below 512 MiB as well.
const MAX_RSS: u64 = 512 << 20;
/// Type URL of assignments.
pub(crate) const ASSIGNMENTS: &str =
    "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment";
/// Most time for an answer of `/readyz` while an attack runs: what we promise (`make bench-loop`),
/// and what a busy machine does not reach, where a thread may wait for a processor. An attack that
/// keeps the writer busy delays all answers until it ends.
fn max_answer() -> Duration {
    let promised = std::env::var_os("PLIMSOLL_PROMISED_LIMITS").is_some();
    Duration::from_secs(if promised { 1 } else { 3 })
}
/// Basis points by which delivered fractions may differ from those of the demand. Reports of the
/// honest fleet say the same every time, so that only rounding does; a proxy that does not count
/// makes it 400 at least.
const TOLERANCE: i64 = 50;
/// Only failing tests wait this long: for a page of the admin API, or for a response.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(30);

/// Honest proxies report every second; on a busy machine a report may be five seconds late before
/// its node counts as idle and the fractions change.
const CONFIG: &str = "\
listen: 127.0.0.1:0
admin: 127.0.0.1:0
load_reporting: {interval: 1s}
demand: {smoothing_time_constant: 0.1s, idle_timeout: 6s}
limits:
  fleets: 20
  streams: 2000
  unfinished_bytes: 8388608
  subscription_bytes: 33554432
  handshake_timeout: 5s
services:
- cluster: {name: orders}
  endpoints:
  - {locality: {zone: zone-a}, lb_endpoints: ['10.0.0.1:80']}
  - {locality: {zone: zone-b}, lb_endpoints: ['10.0.1.1:80']}
  - {locality: {zone: zone-c}, lb_endpoints: ['10.0.2.1:80']}
";

/// What the delivered fractions of the honest fleet must be, in basis points.
pub(crate) type Bounds = [(&'static str, RangeInclusive<i64>); 3];

/// The fractions of the demand of the honest fleet.
pub(crate) const fn steady() -> Bounds {
    const fn near(share: i64) -> RangeInclusive<i64> {
        share - TOLERANCE..=share + TOLERANCE
    }
    [
        ("zone-a", near(6000)),
        ("zone-b", near(2000)),
        ("zone-c", near(2000)),
    ]
}

/// The fractions beside one misreporting node in `place` that has `share` of all demand: every
/// other zone seems to have that much less of its own demand (decision 0032).
pub(crate) fn beside_liar(place: &str, share: f64) -> Bounds {
    steady().map(|(zone, near)| {
        #[expect(clippy::cast_possible_truncation, reason = "at most 10,000")]
        let low = ((1.0 - share) * (near.start() + TOLERANCE) as f64) as i64;
        #[expect(clippy::cast_possible_truncation, reason = "at most 10,000")]
        let gained = (share * 10_000.0) as i64;
        let high = if zone == place {
            low + gained
        } else {
            near.end() - TOLERANCE
        };
        (zone, low - TOLERANCE..=high + TOLERANCE)
    })
}

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

/// The attacked program. `PLIMSOLL_ATTACKED` names another one, such as a release build.
fn binary() -> PathBuf {
    let other = std::env::var_os("PLIMSOLL_ATTACKED");
    other.map_or_else(|| plimsoll().to_owned(), PathBuf::from)
}

/// A running `plimsoll control`.
pub(crate) struct Control {
    child: Child,
    pub(crate) xds: SocketAddr,
    pub(crate) admin: SocketAddr,
    directory: tempfile::TempDir,
}

impl Control {
    pub(crate) fn start() -> Self {
        Self::start_with(CONFIG, |_| ())
    }

    /// Starts it with a configuration, and with files that `prepare` adds to its directory.
    pub(crate) fn start_with(config: &str, prepare: impl FnOnce(&Path)) -> Self {
        Self::start_command(Command::new(binary()), &[], config, prepare)
    }

    /// Like [`Self::start_with`], with more arguments.
    pub(crate) fn start_with_arguments(
        arguments: &[&str],
        config: &str,
        prepare: impl FnOnce(&Path),
    ) -> Self {
        Self::start_command(Command::new(binary()), arguments, config, prepare)
    }

    /// Starts it with no more than this number of open files.
    pub(crate) fn start_with_files(files: u32) -> Self {
        let mut command = Command::new("prlimit");
        command.arg(format!("--nofile={files}")).arg(binary());
        Self::start_command(command, &[], CONFIG, |_| ())
    }

    fn start_command(
        mut command: Command,
        arguments: &[&str],
        config: &str,
        prepare: impl FnOnce(&Path),
    ) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("control.yaml");
        fs::write(&file, config).unwrap();
        prepare(directory.path());
        let log = File::create(directory.path().join("log")).unwrap();
        let mut child = command
            .arg("control")
            .arg("-c")
            .arg(&file)
            .args(arguments)
            .env("NO_COLOR", "1")
            .current_dir(directory.path())
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut address = |prefix: &str| {
            let line = lines.next().unwrap().unwrap();
            let url = line.strip_prefix(prefix).expect("an address");
            url.rsplit('/').next().unwrap().parse().unwrap()
        };
        let xds = address("ADS and LRS on ");
        let admin = address("admin API on ");
        Self {
            child,
            xds,
            admin,
            directory,
        }
    }

    /// Replaces its configuration file.
    pub(crate) fn write_config(&self, config: &str) {
        fs::write(self.directory.path().join("control.yaml"), config).unwrap();
    }

    /// Waits until the log has a line with this text.
    pub(crate) async fn wait_for_log(&self, text: &str) {
        wait_until(text, async || self.log().contains(text)).await;
    }

    /// What it has logged so far.
    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.directory.path().join("log")).unwrap()
    }

    /// Sends a signal, named as by kill(1).
    pub(crate) fn signal(&self, name: &str) {
        let mut kill = Command::new("kill");
        kill.args(["-s", name, &self.child.id().to_string()]);
        assert!(kill.status().unwrap().success());
    }

    /// CPU time of the process so far.
    pub(crate) fn cpu(&self) -> Duration {
        let path = format!("/proc/{}/stat", self.child.id());
        let stat = fs::read_to_string(path).unwrap();
        let fields: Vec<_> = stat.rsplit(") ").next().unwrap().split(' ').collect();
        let ticks = |index: usize| fields[index].parse::<u64>().unwrap();
        // User and system time, in units of 10 ms.
        Duration::from_millis(10 * (ticks(11) + ticks(12)))
    }

    /// Memory of the process in bytes.
    fn rss(&self) -> u64 {
        let pid = self.child.id();
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
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
        self.wait_for_value(name, "above 0", |value| value > 0.0)
            .await;
    }

    /// Waits until a metric has a value: it may be counted after the client has its answer.
    pub(crate) async fn wait_for_value(&self, name: &str, what: &str, is: impl Fn(f64) -> bool) {
        let what = format!("{name} is {what}");
        wait_to_see(&what, async || self.metric(name).await, |seen| is(*seen)).await;
    }

    pub(crate) async fn fleets(&self) -> Value {
        serde_json::from_str(&self.get("/api/v1/fleets?fleet=edge").await).unwrap()
    }

    /// Waits until the fractions delivered to the honest fleet are those of its demand.
    pub(crate) async fn wait_for_fractions(&self) {
        let wrong = async || outside(&self.fleets().await, &steady());
        wait_to_see("fractions are 60/20/20", wrong, Option::is_none).await;
    }

    /// Watches memory, readiness and the fractions of the honest fleet until stopped.
    pub(crate) fn watch(self: &Arc<Self>, bounds: Bounds) -> Watch {
        let stop = Arc::new(AtomicBool::new(false));
        let (control, stopped) = (Arc::clone(self), Arc::clone(&stop));
        let watched = beside(async move {
            let mut watched = Watched::default();
            while !stopped.load(Ordering::Relaxed) {
                let asked = Instant::now();
                control.get("/readyz").await;
                watched.answer(asked.elapsed());
                watched.largest_rss = watched.largest_rss.max(control.rss());
                if watched.outside.is_none() {
                    watched.outside = outside(&control.fleets().await, &bounds);
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            watched
        });
        Watch { stop, watched }
    }
}

/// Runs a future on a thread of its own: what honest proxies and operators see must not depend on
/// the time that the code of an attack takes.
fn beside<T: Send + 'static>(
    future: impl Future<Output = T> + Send + 'static,
) -> std::thread::JoinHandle<T> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    std::thread::spawn(move || runtime.block_on(future))
}

impl Drop for Control {
    fn drop(&mut self) {
        // It may have ended by itself, which the test has noticed.
        let _ = self.child.kill();
        let _ = self.child.wait();
        print_log_of_failed_test(&self.directory.path().join("log"));
    }
}

/// Number of nodes whose load reports count in the honest fleet.
pub(crate) fn reporters(fleets: &Value) -> u64 {
    let demand = fleets["fleets"][0]["demand"][0]["zones"].as_array();
    let zones = demand.expect("demand").iter();
    zones.map(|zone| zone["reporters"].as_u64().unwrap()).sum()
}

/// Fraction delivered for a zone, in basis points.
pub(crate) fn fraction(fleets: &Value, zone: &str) -> i64 {
    let delivered = fleets["fleets"][0]["delivered"].as_array();
    let entry = delivered.and_then(|all| all.iter().find(|one| one["locality"]["zone"] == zone));
    entry.map_or(-1, |entry| entry["fraction_bp"].as_i64().unwrap())
}

/// Names a zone whose delivered fraction is outside of its bounds.
fn outside(fleets: &Value, bounds: &Bounds) -> Option<String> {
    let describe = |(zone, bounds): &(&str, RangeInclusive<i64>)| {
        let share = fraction(fleets, zone);
        let is_outside = !bounds.contains(&share);
        is_outside.then(|| format!("{zone} has {share} basis points, outside {bounds:?}"))
    };
    bounds.iter().find_map(describe)
}

pub(crate) struct Watch {
    stop: Arc<AtomicBool>,
    watched: std::thread::JoinHandle<Watched>,
}

/// What a watch saw.
#[derive(Default)]
pub(crate) struct Watched {
    answers: u64,
    slowest: Duration,
    /// Whether the latest answer of `/readyz` was late, and whether two in a row were.
    late: bool,
    late_twice: bool,
    largest_rss: u64,
    /// The first zone that was outside of its bounds.
    outside: Option<String>,
}

impl Watched {
    fn answer(&mut self, took: Duration) {
        let is_late = took > max_answer();
        self.late_twice |= self.late && is_late;
        self.late = is_late;
        self.slowest = self.slowest.max(took);
        self.answers += 1;
    }

    /// Checks that nobody noticed the attack.
    ///
    /// Here a test asserts on time, which the others do not: the control plane promises to answer
    /// within a second under attack. On a machine with other work one answer may be late, so two
    /// in a row fail.
    pub(crate) fn check(&self) {
        let (answers, slowest, mib) = (self.answers, self.slowest, self.largest_rss >> 20);
        println!("at most {mib} MiB, slowest of {answers} answers of /readyz {slowest:?}");
        assert!(answers > 0);
        assert!(!self.late_twice, "/readyz took {slowest:?}");
        assert!(self.largest_rss < MAX_RSS, "{mib} MiB of memory");
        assert_eq!(self.outside, None, "during the attack");
    }
}

impl Watch {
    pub(crate) fn stop(self) -> Watched {
        self.stop.store(true, Ordering::Relaxed);
        self.watched.join().unwrap()
    }
}

/// Eleven proxies that report 60/20/20 % of 220 requests per second.
pub(crate) struct HonestFleet {
    stop: oneshot::Sender<()>,
    reporting: std::thread::JoinHandle<()>,
}

impl HonestFleet {
    /// Requests per second of all proxies, and the median of them.
    pub(crate) const DEMAND: f64 = 220.0;
    pub(crate) const MEDIAN: f64 = 11.0;

    pub(crate) fn start(address: SocketAddr) -> Self {
        let (stop, stopped) = oneshot::channel::<()>();
        let reporting = beside(async move {
            let mut tasks = JoinSet::new();
            let zones = [("zone-a", 3, 44), ("zone-b", 4, 11), ("zone-c", 4, 11)];
            for (place, proxies, rate) in zones {
                for index in 0..proxies {
                    let id = format!("{place}-{index}");
                    tasks.spawn(report_forever(address, id, place, rate));
                }
            }
            // The test ends it, also by failing.
            let _ = stopped.await;
        });
        Self { stop, reporting }
    }

    pub(crate) fn stop(self) {
        drop(self.stop);
        self.reporting.join().unwrap();
    }
}

async fn report_forever(address: SocketAddr, id: String, place: &'static str, rate: u64) {
    let mut peer = Peer::connect(address).await;
    let mut stream = peer.open(STREAM_LOAD_STATS).await;
    let hello = field(1, &node(&id, "edge", place));
    stream.send(&hello).await;
    let settings = stream.message().await;
    let settings = wire::decode_load_stats_response(&settings).unwrap();
    let mut ticks = tokio::time::interval(settings.load_reporting_interval);
    let entry = field(2, &[field(1, &zone(place)), number(8, rate)].concat());
    let interval = field(4, &number(1, 1));
    let stats = field(2, &[text(1, "orders"), entry, interval].concat());
    loop {
        ticks.tick().await;
        stream.send(&[hello.clone(), stats.clone()].concat()).await;
    }
}

/// An HTTP/2 connection of an attacker, or of an honest proxy.
pub(crate) struct Peer {
    requests: SendRequest<Bytes>,
    connection: JoinHandle<()>,
    stop_reading: Option<oneshot::Sender<()>>,
}

impl Drop for Peer {
    fn drop(&mut self) {
        self.connection.abort();
    }
}

impl Peer {
    pub(crate) async fn connect(address: SocketAddr) -> Self {
        Self::connect_with(address, &h2::client::Builder::new()).await
    }

    /// Connects with settings of HTTP/2.
    pub(crate) async fn connect_with(address: SocketAddr, settings: &h2::client::Builder) -> Self {
        let socket = TcpStream::connect(address).await.unwrap();
        // With Nagle's algorithm, each window of a long message would wait for a delayed ACK.
        socket.set_nodelay(true).unwrap();
        Self::handshake(socket, settings).await
    }

    /// Connects from another address of loopback.
    pub(crate) async fn connect_from(source: [u8; 4], address: SocketAddr) -> Self {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind((source, 0).into()).unwrap();
        let socket = socket.connect(address).await.unwrap();
        Self::handshake(socket, &h2::client::Builder::new()).await
    }

    /// Connects on a socket, which may use TLS.
    pub(crate) async fn handshake(
        socket: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
        settings: &h2::client::Builder,
    ) -> Self {
        let (requests, mut connection) = settings.handshake(socket).await.unwrap();
        let (stop_reading, stopped) = oneshot::channel();
        let connection = tokio::spawn(async move {
            // Either ends with the test.
            tokio::select! {
                _ = &mut connection => return,
                Ok(()) = stopped => connection.set_initial_window_size(0).unwrap(),
            }
            let _ = connection.await;
        });
        Self {
            requests,
            connection,
            stop_reading: Some(stop_reading),
        }
    }

    /// Takes back the windows of all streams, so that the server can send nothing on them.
    pub(crate) fn stop_reading(&mut self) {
        self.stop_reading.take().unwrap().send(()).unwrap();
    }

    pub(crate) async fn open(&mut self, path: &str) -> Stream {
        let request = http::Request::post(format!("http://control{path}"))
            .header("content-type", "application/grpc")
            .header("te", "trailers")
            .body(())
            .unwrap();
        let mut sender = self.requests.clone().ready().await.unwrap();
        let (response, requests) = sender.send_request(request, false).unwrap();
        let (head, responses) = response.await.unwrap().into_parts();
        Stream {
            requests,
            responses,
            headers: head.headers,
        }
    }
}

/// A gRPC stream on which any bytes can be sent as a message.
pub(crate) struct Stream {
    requests: SendStream<Bytes>,
    responses: RecvStream,
    /// They have the status of a stream that ends at once.
    headers: http::HeaderMap,
}

impl Stream {
    /// Sends a message; the peer may have ended the stream already.
    pub(crate) async fn send(&mut self, message: &[u8]) {
        self.send_part(message, message.len()).await;
    }

    /// Sends the first bytes of a message of this length.
    pub(crate) async fn send_part(&mut self, part: &[u8], length: usize) {
        let mut framed = BytesMut::with_capacity(part.len() + 5);
        framed.put_u8(0);
        framed.put_u32(u32::try_from(length).unwrap());
        framed.extend_from_slice(part);
        let mut rest = framed.freeze();
        while !rest.is_empty() {
            self.requests.reserve_capacity(rest.len());
            let room = poll_fn(|cx| self.requests.poll_capacity(cx)).await;
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

    /// Waits for a short message, which arrives in one piece.
    pub(crate) async fn message(&mut self) -> Bytes {
        let mut data = self.data().await.expect("a message");
        let _header = data.split_to(5);
        data
    }

    /// Waits for a message, or returns the status with which the stream ends.
    pub(crate) async fn response_or_end(&mut self) -> Option<String> {
        self.data().await.err()
    }

    async fn data(&mut self) -> Result<Bytes, String> {
        match tokio::time::timeout(TIMEOUT, self.responses.data()).await {
            Ok(Some(Ok(data))) => {
                let released = self.responses.flow_control().release_capacity(data.len());
                released.unwrap();
                Ok(data)
            }
            Ok(Some(Err(error))) => Err(format!("reset: {error}")),
            Ok(None) => Err(self.status().await),
            Err(_) => panic!("no response"),
        }
    }

    /// Returns what has arrived, as [`Self::response_or_end`] does; `None` if nothing has.
    pub(crate) async fn response_if_any(&mut self) -> Option<Option<String>> {
        let arrived = poll_fn(|cx| {
            let data = self.responses.poll_data(cx);
            Poll::Ready(data.is_ready().then_some(data))
        });
        match arrived.await? {
            Poll::Ready(Some(Ok(_))) => Some(None),
            Poll::Ready(Some(Err(error))) => Some(Some(format!("reset: {error}"))),
            Poll::Ready(None) => Some(Some(self.status().await)),
            Poll::Pending => None,
        }
    }

    /// Takes all responses that have arrived.
    pub(crate) async fn drain(&mut self) {
        loop {
            let arrived = poll_fn(|cx| Poll::Ready(self.responses.poll_data(cx)));
            let Poll::Ready(Some(Ok(data))) = arrived.await else {
                return;
            };
            let released = self.responses.flow_control().release_capacity(data.len());
            released.unwrap();
        }
    }

    /// Sends as much of a message as the peer takes at once.
    pub(crate) async fn send_what_fits(&mut self, message: &[u8]) {
        let sending = self.send(message);
        // It takes no more if it does not take the rest soon: nothing depends on how much it is.
        let _ = tokio::time::timeout(Duration::from_millis(20), sending).await;
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
        let received = self.responses.trailers().await.unwrap();
        let trailers = received.unwrap_or_else(|| self.headers.clone());
        let value = |name| {
            trailers
                .get(name)
                .map_or("", |value| value.to_str().unwrap())
        };
        // tonic escapes spaces in statuses that it writes itself.
        let message = value("grpc-message").replace("%20", " ");
        format!("{}: {message}", value("grpc-status"))
    }
}

/// Sends one HTTP/1.1 request; returns the status and the body.
async fn request(address: SocketAddr, method: &str, path: &str, body: String) -> (u16, String) {
    let socket = TcpStream::connect(address).await.unwrap();
    exchange(socket, address, method, path, body).await
}

/// Like [`request`], on a connection.
pub(crate) async fn exchange(
    mut socket: impl AsyncRead + AsyncWrite + Unpin,
    address: SocketAddr,
    method: &str,
    path: &str,
    body: String,
) -> (u16, String) {
    let exchange = async {
        let length = body.len();
        let head = format!(
            "{method} {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\
             content-type: application/json\r\ncontent-length: {length}\r\n\r\n"
        );
        socket.write_all(head.as_bytes()).await.unwrap();
        socket.write_all(body.as_bytes()).await.unwrap();
        let mut response = Vec::new();
        // A server that closes without close_notify has sent everything: the length says so.
        let _ = socket.read_to_end(&mut response).await;
        String::from_utf8(response).unwrap()
    };
    let response = tokio::time::timeout(TIMEOUT, exchange)
        .await
        .expect("an answer");
    let status = response.split(' ').nth(1).unwrap().parse().unwrap();
    let (_, body) = response.split_once("\r\n\r\n").unwrap();
    (status, body.to_owned())
}
