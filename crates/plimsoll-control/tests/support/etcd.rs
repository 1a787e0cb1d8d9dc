//! A real etcd, and replicas of the control plane in this process.

use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::time::Duration;

use plimsoll_control::run::{Context, Control, Options};
use plimsoll_control::server::{LoadReporting, Reporter};
use plimsoll_core::model::load_report::{ClusterStats, Node, UpstreamLocalityStats};
use plimsoll_core::model::locality::Locality;
use plimsoll_serve::AdminOptions;
use plimsoll_testing::tasks::wait_to_see;
use plimsoll_testing::{Authority, etcd, free_address, print_log_of_failed_test};
use plimsoll_xds::driver::{ClientInfo, LrsHandler as _, LrsReporter as _, LrsSession};
use plimsoll_xds::node::NodeInfo;
use tempfile::TempDir;
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;

/// A cluster of etcd with one member; killed when dropped.
pub(crate) struct Etcd {
    directory: TempDir,
    child: Child,
    client: u16,
    peer: u16,
    tls: bool,
}

impl Etcd {
    pub(crate) fn start() -> Self {
        Self::launch(tempfile::tempdir().unwrap(), false)
    }

    /// Starts etcd with TLS; clients need a certificate of the same authority.
    pub(crate) fn start_with_tls(authority: &Authority) -> Self {
        let directory = tempfile::tempdir().unwrap();
        for part in ["server", "client"] {
            std::fs::create_dir(directory.path().join(part)).unwrap();
            write(authority, &directory.path().join(part), &[authority]);
        }
        Self::launch(directory, true)
    }

    fn launch(directory: TempDir, tls: bool) -> Self {
        let (client, peer) = (free_address().port(), free_address().port());
        Self {
            child: spawn(directory.path(), client, peer, tls),
            directory,
            client,
            peer,
            tls,
        }
    }

    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Starts it again with the same data and address.
    pub(crate) fn restart(&mut self) {
        self.child = spawn(self.directory.path(), self.client, self.peer, self.tls);
    }

    /// Replaces certificate, key and trusted authorities of the server. etcd reads the first two at
    /// every handshake, and the authorities when it starts.
    pub(crate) fn replace_server_files(&self, issuer: &Authority, trusted: &[&Authority]) {
        write(issuer, &self.directory.path().join("server"), trusted);
    }

    /// Replaces the files that the settings of clients name.
    pub(crate) fn replace_client_files(&self, issuer: &Authority, trusted: &[&Authority]) {
        write(issuer, &self.directory.path().join("client"), trusted);
    }

    /// Settings of `store.etcd` for a client certificate that etcd accepts.
    pub(crate) fn tls_settings(&self) -> String {
        self.settings_of("client")
    }

    /// Settings with a certificate and authorities of their own, which nobody replaces.
    pub(crate) fn fixed_settings(&self, issuer: &Authority, trusted: &[&Authority]) -> String {
        let directory = self.directory.path().join("fixed");
        std::fs::create_dir(&directory).unwrap();
        write(issuer, &directory, trusted);
        self.settings_of("fixed")
    }

    fn settings_of(&self, part: &str) -> String {
        let directory = self.directory.path().join(part);
        let path = directory.display();
        format!(
            ", tls: {{ca: {path}/ca.pem, certificate: {path}/cert.pem, private_key: \
             {path}/key.pem, server_name: localhost}}"
        )
    }

    pub(crate) fn tls_settings_without_certificate(&self) -> String {
        let directory = self.directory.path().join("client");
        let path = directory.display();
        format!(", tls: {{ca: {path}/ca.pem, server_name: localhost}}")
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        print_log_of_failed_test(&self.directory.path().join("etcd.log"));
    }
}

fn spawn(directory: &Path, client: u16, peer: u16, tls: bool) -> Child {
    let scheme = if tls { "https" } else { "http" };
    let client = format!("{scheme}://127.0.0.1:{client}");
    let peer = format!("http://127.0.0.1:{peer}");
    let log = std::fs::File::create(directory.join("etcd.log")).unwrap();
    let mut command = etcd("etcd".as_ref(), &directory.join("data"), &client, &peer);
    command
        .args(["--initial-cluster", &format!("default={peer}")])
        .stdout(Stdio::null())
        .stderr(log);
    if tls {
        for (flag, file) in [
            ("--cert-file", "cert.pem"),
            ("--key-file", "key.pem"),
            ("--trusted-ca-file", "ca.pem"),
        ] {
            command.arg(flag).arg(directory.join("server").join(file));
        }
        command.arg("--client-cert-auth");
    }
    command
        .spawn()
        .expect("etcd is installed by scripts/deps.sh test")
}

/// Writes a new certificate of an authority, its key, and the authorities to trust.
fn write(issuer: &Authority, directory: &Path, trusted: &[&Authority]) {
    // etcd also connects to itself with this certificate.
    let names = ["localhost", "127.0.0.1"].map(str::to_owned);
    let mut params = rcgen::CertificateParams::new(names).unwrap();
    params.extended_key_usages = vec![
        rcgen::ExtendedKeyUsagePurpose::ServerAuth,
        rcgen::ExtendedKeyUsagePurpose::ClientAuth,
    ];
    let (certificate, key) = issuer.sign(params);
    let trusted: String = trusted.iter().map(|one| one.pem.as_str()).collect();
    for (file, content) in [
        ("ca.pem", trusted),
        ("cert.pem", certificate),
        ("key.pem", key),
    ] {
        std::fs::write(directory.join(file), content).unwrap();
    }
}

/// What a replica knows.
#[derive(Debug)]
pub(crate) struct Seen {
    /// Demand by zone, in requests per second, without zones that have none.
    pub(crate) demand: Vec<u64>,
    /// Fractions that are delivered to the fleet, in basis points.
    pub(crate) fractions: Vec<u64>,
    pub(crate) nodes: usize,
    pub(crate) replicas: usize,
    pub(crate) connected: bool,
    pub(crate) compactions: u64,
}

/// One control plane of several, with its own runtime in place of a process.
pub(crate) struct Replica {
    context: Context,
    _running: JoinHandle<()>,
    /// Its own, so that it can end as a process does.
    runtime: Option<Runtime>,
    interval: u64,
    _directory: TempDir,
}

impl Replica {
    /// Starts a replica that asks for reports every `interval` seconds; `settings` are further
    /// fields of `store.etcd`.
    pub(crate) async fn start(name: &str, etcd: &Etcd, interval: u64, settings: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let port = etcd.client;
        let endpoints: Vec<_> = (1..4)
            .map(|host| {
                format!(
                    "{{locality: {{zone: {}}}, lb_endpoints: ['10.0.0.{host}:80']}}",
                    ["a", "b", "c"][host - 1]
                )
            })
            .collect();
        let text = format!(
            "listen: 127.0.0.1:0\nadmin: ''\nload_reporting: {{interval: {interval}s}}\n\
             store: {{etcd: {{endpoints: ['127.0.0.1:{port}']{settings}}}}}\n\
             services: [{{cluster: {{name: orders}}, endpoints: [{}]}}]",
            endpoints.join(", ")
        );
        let config = directory.path().join("control.yaml");
        std::fs::write(&config, text).unwrap();
        let options = Options {
            config,
            replica_id: Some(name.to_owned()),
            ..Options::default()
        };
        let runtime = Runtime::new().unwrap();
        let starting = runtime.spawn(async move { Control::start(options).await.unwrap() });
        let control = starting.await.unwrap();
        let context = control.context().clone();
        let running = runtime.spawn(async move {
            control.run(AdminOptions::default()).await.unwrap();
        });
        Self {
            context,
            _running: running,
            runtime: Some(runtime),
            interval,
            _directory: directory,
        }
    }

    /// Opens a load reporting stream of a node.
    pub(crate) async fn open(&self, node: &NodeInfo) -> Session {
        let handler = LoadReporting::new(self.context.handle.clone());
        let client = ClientInfo {
            peer: None,
            identity: None,
        };
        let session = handler.open(node, &client).await.unwrap();
        Session {
            session,
            node: node.clone(),
            interval: self.interval,
        }
    }

    /// Address of discovery and load reporting.
    pub(crate) fn xds(&self) -> SocketAddr {
        self.context.bound.xds
    }

    pub(crate) async fn seen(&self) -> Seen {
        let stats = self.context.handle.store_stats().cloned().unwrap();
        let seen = self.context.handle.inspect(move |state, now| {
            let replicas = state.replicas().expect("there is a store");
            let fleet = state.planner().fleet("edge", now);
            let scope = fleet.and_then(|fleet| fleet.scopes().next());
            let zones = scope.map(|scope| {
                let rates = scope.demand().map(|zone| rounded(zone.raw_per_second));
                rates.filter(|rate| *rate > 0).collect()
            });
            let plan = state.fleet_plan("edge").into_iter();
            let zones_of_plan = plan.flat_map(|plan| plan.zones.clone());
            Seen {
                fractions: zones_of_plan.map(|zone| zone.fraction.get()).collect(),
                demand: zones.unwrap_or_default(),
                nodes: state.fleets().node_count("edge"),
                replicas: replicas.all().count(),
                connected: replicas.is_connected(),
                compactions: stats.compactions(),
            }
        });
        seen.await.unwrap()
    }

    pub(crate) async fn wait_for(&self, what: &str, is: impl Fn(&Seen) -> bool) {
        wait_to_see(what, async || self.seen().await, is).await;
    }

    /// Waits until the store could not be reached, `times` since the start.
    pub(crate) async fn failures(&self, times: u64) {
        let stats = self.context.handle.store_stats().unwrap();
        let what = format!("the store has failed {times} times");
        wait_to_see(&what, async || stats.failures(), |seen| *seen >= times).await;
    }

    /// Ends it as SIGTERM does: it removes itself from the store, but not its nodes.
    pub(crate) fn shut_down(&self) {
        self.context.stopping.cancel();
    }

    /// Ends the process, as far as others can see.
    pub(crate) fn abort(mut self) {
        self.end();
    }

    fn end(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

impl Drop for Replica {
    fn drop(&mut self) {
        self.end();
    }
}

/// A load reporting stream.
pub(crate) struct Session {
    session: LrsSession<Reporter>,
    node: NodeInfo,
    interval: u64,
}

impl Session {
    /// Reports this many requests per second.
    pub(crate) async fn report(&mut self, requests: u64) {
        let stats = ClusterStats {
            cluster_name: "orders".into(),
            upstream_locality_stats: vec![UpstreamLocalityStats {
                locality: Locality::zone_only("a"),
                total_issued_requests: requests * self.interval,
                total_successful_requests: requests * self.interval,
                ..Default::default()
            }],
            total_dropped_requests: 0,
            load_report_interval: Duration::from_secs(self.interval),
        };
        let reporter = &mut self.session.reporter;
        reporter.report(&self.node.node, vec![stats]).await;
    }
}

/// A node of the fleet `edge`.
pub(crate) fn node(id: &str, zone: &str) -> NodeInfo {
    NodeInfo {
        node: Node {
            id: id.into(),
            cluster: Arc::from("edge"),
            locality: Locality::zone_only(zone),
        },
        user_agent_name: "envoy".to_owned(),
        user_agent_version: String::new(),
        client_features: Vec::new(),
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "rates of tests are small"
)]
fn rounded(rate: f64) -> u64 {
    rate.round() as u64
}
