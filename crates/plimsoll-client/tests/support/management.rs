//! [`Management`]: a conforming management server that can be killed and restarted.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use plimsoll_client::{Variant, XdsOptions};
use plimsoll_core::model::load_report::{ClusterStats, Node};
use plimsoll_core::model::locality::Locality;
use plimsoll_xds::ads::server::{ServerStream, StreamEvent};
use plimsoll_xds::ads::view::{Resource, TypeResources, View};
use plimsoll_xds::ads::{CLUSTER, CLUSTER_LOAD_ASSIGNMENT, LISTENER, ROUTE_CONFIGURATION};
use plimsoll_xds::driver::{
    AdsHandler, AdsObserver, AdsOpening, AdsSession, ClientInfo, LrsHandler, LrsInstructions,
    LrsReporter, LrsSession, ServerOptions, Status, serve,
};
use plimsoll_xds::lrs::message::ClusterTraffic;
use plimsoll_xds::lrs::{LrsSettings, LrsTraffic};
use plimsoll_xds::node::NodeInfo;
use tokio::runtime::Runtime;
use tokio::sync::watch;

use super::resources::Made;

/// Node of clients under test, in zone a.
pub(crate) fn node() -> Node {
    Node {
        id: "n1".into(),
        cluster: "fleet".into(),
        locality: Locality::zone_only("a"),
    }
}

/// Options of a client with a short reconnect backoff.
pub(crate) fn xds_options(address: SocketAddr, variant: Variant) -> XdsOptions {
    XdsOptions::new(format!("http://{address}"), node())
        .variant(variant)
        .backoff(Duration::from_millis(5), Duration::from_millis(50))
}

/// Sums of the load reports of a cluster.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Reported {
    pub(crate) issued: u64,
    pub(crate) succeeded: u64,
    pub(crate) failed: u64,
    pub(crate) dropped: u64,
}

/// A management server. Received load reports survive a restart.
pub(crate) struct Management {
    pub(crate) address: SocketAddr,
    desk: Desk,
    runtime: Option<Runtime>,
}

#[derive(Clone)]
struct Desk {
    views: watch::Sender<Arc<View>>,
    instructions: watch::Sender<LrsInstructions>,
    reported: Arc<Mutex<BTreeMap<String, Reported>>>,
    reports: Arc<Mutex<u64>>,
    rejections: Arc<Mutex<Vec<String>>>,
}

impl Management {
    /// Starts a server with these resources.
    pub(crate) fn start(resources: &[Made]) -> Self {
        let settings = LrsSettings {
            interval: Duration::from_millis(100),
            send_all_clusters: true,
            clusters: Vec::new(),
            report_endpoint_granularity: true,
        };
        let instructions = LrsInstructions {
            settings: Arc::new(settings),
            traffic: Arc::new(LrsTraffic::default()),
        };
        let desk = Desk {
            views: watch::Sender::new(Arc::new(view(resources))),
            instructions: watch::Sender::new(instructions),
            reported: Arc::default(),
            reports: Arc::default(),
            rejections: Arc::default(),
        };
        let (runtime, address) = listen(&desk, "127.0.0.1:0");
        Self {
            address,
            desk,
            runtime: Some(runtime),
        }
    }

    /// Replaces all served resources.
    pub(crate) fn set(&self, resources: &[Made]) {
        self.desk.views.send_replace(Arc::new(view(resources)));
    }

    /// Sets the fractions of demand in LRS responses.
    pub(crate) fn set_traffic(&self, epoch: u64, clusters: Vec<ClusterTraffic>) {
        let traffic = Arc::new(LrsTraffic { epoch, clusters });
        let instructions = &self.desk.instructions;
        instructions.send_modify(|current| current.traffic = traffic);
    }

    /// Closes all connections without notice, like a killed process.
    pub(crate) fn kill(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }

    /// Listens again at the same address.
    pub(crate) fn restart(&mut self) {
        self.kill();
        let (runtime, _) = listen(&self.desk, &self.address.to_string());
        self.runtime = Some(runtime);
    }

    /// Sums of the load reports of a cluster.
    pub(crate) fn reported(&self, cluster: &str) -> Reported {
        let reported = self.desk.reported.lock().unwrap();
        reported.get(cluster).copied().unwrap_or_default()
    }

    /// Number of load reports received.
    pub(crate) fn reports(&self) -> u64 {
        *self.desk.reports.lock().unwrap()
    }

    /// Reasons of all NACKs received.
    pub(crate) fn rejections(&self) -> Vec<String> {
        self.desk.rejections.lock().unwrap().clone()
    }
}

impl Drop for Management {
    fn drop(&mut self) {
        self.kill();
    }
}

fn listen(desk: &Desk, address: &str) -> (Runtime, SocketAddr) {
    let listener = bind(address);
    let address = listener.local_addr().unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap();
    let (ads, lrs) = (desk.clone(), desk.clone());
    runtime.spawn(async move {
        let listener = tokio::net::TcpListener::from_std(listener).unwrap();
        let options = ServerOptions::default();
        serve(listener, ads, lrs, options, std::future::pending()).await;
    });
    (runtime, address)
}

/// Retries, because a killed server may hold the port for a moment.
fn bind(address: &str) -> std::net::TcpListener {
    let deadline = std::time::Instant::now() + super::TIMEOUT;
    loop {
        match std::net::TcpListener::bind(address) {
            Ok(listener) => {
                listener.set_nonblocking(true).unwrap();
                return listener;
            }
            Err(error) => assert!(std::time::Instant::now() < deadline, "{address}: {error}"),
        }
        std::thread::yield_now();
    }
}

fn view(resources: &[Made]) -> View {
    let types = [
        LISTENER,
        ROUTE_CONFIGURATION,
        CLUSTER,
        CLUSTER_LOAD_ASSIGNMENT,
    ];
    types.into_iter().fold(View::new(0), |view, type_url| {
        let own = resources
            .iter()
            .filter(|made| made.0 == type_url)
            .map(|(_, name, body)| Resource::new(name.as_str(), body.clone()));
        view.with(type_url, Arc::new(TypeResources::new(own)))
    })
}

impl AdsHandler for Desk {
    type Observer = Self;

    async fn open(&self, _: AdsOpening) -> Result<AdsSession<Self>, Status> {
        Ok(AdsSession {
            views: self.views.subscribe(),
            observer: self.clone(),
        })
    }
}

impl AdsObserver for Desk {
    fn handle_event(&mut self, event: StreamEvent, _: &ServerStream) {
        if let StreamEvent::Nacked { nack, .. } = event {
            self.rejections.lock().unwrap().push(nack.detail.message);
        }
    }
}

impl LrsHandler for Desk {
    type Reporter = Self;

    async fn open(&self, _: &NodeInfo, _: &ClientInfo) -> Result<LrsSession<Self>, Status> {
        Ok(LrsSession {
            instructions: self.instructions.subscribe(),
            reporter: self.clone(),
        })
    }
}

impl LrsReporter for Desk {
    async fn report(&mut self, _: &Node, cluster_stats: Vec<ClusterStats>) {
        let mut reported = self.reported.lock().unwrap();
        for stats in cluster_stats {
            let sums = reported.entry(stats.cluster_name.to_string()).or_default();
            sums.dropped += stats.total_dropped_requests;
            for locality in &stats.upstream_locality_stats {
                sums.issued += locality.total_issued_requests;
                sums.succeeded += locality.total_successful_requests;
                sums.failed += locality.total_error_requests;
            }
        }
        *self.reports.lock().unwrap() += 1;
    }
}
