//! Proxy, backends and clients on the loopback interface, for the integration tests.

pub(crate) mod ads;
pub(crate) mod backend;
pub(crate) mod chains;
pub(crate) mod client;
#[path = "../../../plimsoll-client/tests/support/collector.rs"]
#[allow(dead_code, reason = "the client uses more")]
pub(crate) mod collector;
pub(crate) mod load;
#[path = "../../../plimsoll-client/tests/support/management.rs"]
#[allow(dead_code, reason = "the client uses more")]
pub(crate) mod management;
#[path = "../../../plimsoll-client/tests/support/resources.rs"]
#[allow(dead_code, reason = "the client uses more")]
pub(crate) mod resources;
pub(crate) mod tls;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Duration;

use plimsoll_proxy::{Bound, Context, Options};
use plimsoll_serve::AdminOptions;
pub(crate) use plimsoll_testing::tasks::wait_until;
use socket2::{Domain, Socket, Type};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

/// Timeout of every step of a test.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(20);

/// A proxy that runs in the test process.
pub(crate) struct Proxy {
    pub(crate) bound: Bound,
    pub(crate) file: PathBuf,
    pub(crate) reload: mpsc::Sender<()>,
    pub(crate) context: Context,
    task: JoinHandle<()>,
    _folder: tempfile::TempDir,
}

impl Proxy {
    /// Starts a proxy with one worker.
    pub(crate) async fn start(config: &str) -> Self {
        Self::start_with(config, 1, Duration::from_secs(10)).await
    }

    /// Starts a proxy with the given number of workers and waits until it accepts connections.
    pub(crate) async fn start_with(config: &str, workers: usize, drain_time: Duration) -> Self {
        let proxy = Self::launch(config, |options| {
            options.workers = workers;
            options.drain_time = drain_time;
        })
        .await;
        proxy.live().await;
        proxy
    }

    /// Waits until the proxy accepts connections.
    pub(crate) async fn live(&self) {
        let live = self.context.wait_until_live();
        let live = tokio::time::timeout(TIMEOUT, live).await;
        live.expect("the proxy accepts connections");
    }

    /// Starts a proxy with changed options, without waiting for resources of a management server.
    pub(crate) async fn launch(config: &str, change: impl FnOnce(&mut Options)) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("proxy.yaml");
        std::fs::write(&file, config).unwrap();
        let mut options = Options::new(&file);
        change(&mut options);
        let proxy = plimsoll_proxy::Proxy::start(options).await.unwrap();
        let (bound, context) = (proxy.bound(), proxy.context());
        let (reload, reloads) = mpsc::channel(1);
        let task = tokio::spawn(proxy.run(AdminOptions::default(), reloads));
        Self {
            bound,
            file,
            reload,
            context,
            task,
            _folder: folder,
        }
    }

    /// Returns the address of the first listener.
    pub(crate) fn address(&self) -> SocketAddr {
        self.bound.listeners[0].1
    }

    pub(crate) fn admin(&self) -> SocketAddr {
        self.bound.admin.unwrap()
    }

    /// Starts to drain the proxy.
    pub(crate) fn stop(&self) {
        self.context.stopping().cancel();
    }

    /// Shuts down and waits for the proxy to exit.
    pub(crate) async fn shut_down(self) {
        self.stop();
        self.ended().await;
    }

    /// Waits for the proxy to exit.
    pub(crate) async fn ended(self) {
        let ended = tokio::time::timeout(TIMEOUT, self.task).await;
        ended.expect("the proxy ends").unwrap();
    }

    /// Replaces the configuration file and triggers a reload.
    pub(crate) async fn edit(&self, config: &str) {
        replace(&self.file, config);
        self.reload.send(()).await.unwrap();
    }
}

/// Reads a counter or gauge of the admin page.
pub(crate) async fn counter(proxy: &Proxy, name: &str) -> u64 {
    let page = client::get(proxy.admin(), "/stats").await.body;
    let line = page
        .lines()
        .find_map(|line| line.strip_prefix(&format!("{name}: ")));
    line.unwrap_or_else(|| panic!("no {name} in {page}"))
        .parse()
        .unwrap()
}

/// Returns an address on loopback that nobody listens on. It stays reserved for this process, or
/// another test would get it too and share it with the proxy (`SO_REUSEPORT`).
pub(crate) fn free_address() -> SocketAddr {
    static RESERVED: Mutex<Vec<Socket>> = Mutex::new(Vec::new());
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.set_reuse_address(true).unwrap();
    socket.set_reuse_port(true).unwrap();
    let any: SocketAddr = ([127, 0, 0, 1], 0).into();
    socket.bind(&any.into()).unwrap();
    let address = socket.local_addr().unwrap().as_socket().unwrap();
    RESERVED.lock().unwrap().push(socket);
    address
}

/// Replaces a file atomically.
pub(crate) fn replace(path: &Path, text: &str) {
    let beside = path.with_extension("new");
    std::fs::write(&beside, text).unwrap();
    std::fs::rename(beside, path).unwrap();
}

/// A configuration with one listener, one virtual host, and the given routes and clusters.
pub(crate) fn config(routes: &str, clusters: &[(&str, &[SocketAddr], &str)]) -> String {
    config_with("", routes, clusters)
}

/// Like `config`, with further fields of the connection manager.
pub(crate) fn config_with(
    manager: &str,
    routes: &str,
    clusters: &[(&str, &[SocketAddr], &str)],
) -> String {
    let mut text = format!(
        "admin: {{address: {{socket_address: {{address: 127.0.0.1, port_value: 0}}}}}}\n\
         static_resources:\n  listeners:\n  - name: front\n    \
         address: {{socket_address: {{address: 127.0.0.1, port_value: 0}}}}\n    \
         filter_chains:\n    - filters:\n      - typed_config:\n          \
         '@type': type.googleapis.com/envoy.extensions.filters.network.\
         http_connection_manager.v3.HttpConnectionManager\n          \
         stat_prefix: front\n{}          route_config:\n            virtual_hosts:\n            \
         - name: all\n              domains: ['*']\n              routes:\n{}  clusters:{}\n",
        indent(manager, 10),
        indent(routes, 14),
        if clusters.is_empty() { " []" } else { "" },
    );
    for (name, hosts, more) in clusters {
        text.push_str(&cluster(name, hosts, more));
    }
    text
}

fn indent(text: &str, by: usize) -> String {
    let lines = text.lines().filter(|line| !line.trim().is_empty());
    lines
        .map(|line| format!("{}{line}\n", " ".repeat(by)))
        .collect()
}

fn cluster(name: &str, hosts: &[SocketAddr], more: &str) -> String {
    let endpoints: Vec<String> = hosts
        .iter()
        .map(|host| {
            let (ip, port) = (host.ip(), host.port());
            let socket = format!("{{address: {ip}, port_value: {port}}}");
            format!("{{endpoint: {{address: {{socket_address: {socket}}}}}}}")
        })
        .collect();
    format!(
        "  - name: {name}\n    type: STATIC\n{}    load_assignment:\n      \
         cluster_name: {name}\n      endpoints: [{{lb_endpoints: [{}]}}]\n",
        indent(more, 4),
        endpoints.join(", "),
    )
}

/// A route that sends every request to one cluster.
pub(crate) fn route_all_to(cluster: &str) -> String {
    format!("- match: {{prefix: /}}\n  route: {{cluster: {cluster}}}\n")
}

/// Fields of a cluster that uses HTTP/2.
pub(crate) const HTTP2: &str = "http2_protocol_options: {}\n";

/// Returns a stream of frames that are all available.
pub(crate) fn frames<T: Send + Unpin + 'static, const N: usize>(frames: [T; N]) -> Frames<T> {
    Frames(frames.into_iter().collect())
}

pub(crate) struct Frames<T>(std::collections::VecDeque<T>);

impl<T: Unpin> futures_core::Stream for Frames<T> {
    type Item = T;

    fn poll_next(
        mut self: std::pin::Pin<&mut Self>,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<T>> {
        std::task::Poll::Ready(self.0.pop_front())
    }
}
