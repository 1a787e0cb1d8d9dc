//! Load reporting stream of the module to `plimsoll control`: receives the measured demand of the
//! fleet for each cluster.
//!
//! Envoy reports load itself; this stream reports nothing. It announces the same node with the
//! feature of Plimsoll data planes, so that the control plane sends demand with its responses
//! (decision 0028). It runs on a thread of its own, reconnects forever, and ends when the last
//! cluster that wants it is dropped.

use std::sync::Arc;
use std::thread;

use plimsoll_core::locality_picking::demand::FractionMap;
use plimsoll_core::time::Instant;
use plimsoll_core::units::FieldError;
use plimsoll_xds::driver::ConnectOptions;
use plimsoll_xds::driver::lrs_client::{self, LrsClientChannels};
use plimsoll_xds::lrs::{Client, ClientEvent};
use plimsoll_xds::node::{ENVOY_MODULE_FEATURE, NodeInfo, PLIMSOLL_FEATURE};
use plimsoll_xds::upstream::UpstreamCluster;
use tokio::sync::{mpsc, oneshot};

use crate::guard::{RESTART_DELAY, run_restarting};
use crate::log::{self, Level};
use crate::tls::TlsConnector;

/// A management server and the node that connects to it.
#[derive(Clone, Debug, PartialEq)]
pub struct ManagementServer {
    pub node: plimsoll_core::model::load_report::Node,
    uri: String,
    tls: Option<TlsConnector>,
}

impl ManagementServer {
    /// Takes the first endpoint and the TLS settings of a cluster.
    pub fn try_new(
        cluster: UpstreamCluster,
        node: plimsoll_core::model::load_report::Node,
    ) -> Result<Self, FieldError> {
        let endpoint = cluster
            .load_assignment
            .as_ref()
            .and_then(|assignment| assignment.endpoints.first()?.endpoints.first());
        let Some(endpoint) = endpoint else {
            return Err(FieldError::new("load_assignment", "must have an endpoint"));
        };
        let host = if endpoint.host.contains(':') {
            format!("[{}]", endpoint.host)
        } else {
            endpoint.host.clone()
        };
        let tls = cluster.options.tls.map(TlsConnector::try_new).transpose();
        Ok(Self {
            node,
            uri: format!("http://{host}:{}", endpoint.port),
            tls: tls.map_err(|error| error.under("transport_socket"))?,
        })
    }

    fn options(&self) -> ConnectOptions {
        let mut options = ConnectOptions::new(&self.uri);
        if let Some(tls) = &self.tls {
            options.connector = Some(Arc::new(tls.clone()));
        }
        options
    }

    fn node_info(&self) -> NodeInfo {
        NodeInfo {
            node: self.node.clone(),
            user_agent_name: "envoy".to_owned(),
            user_agent_version: String::new(),
            client_features: [PLIMSOLL_FEATURE, ENVOY_MODULE_FEATURE]
                .map(str::to_owned)
                .into(),
        }
    }
}

/// Receives demand: name of the cluster, fractions, and when they were observed.
pub type Sink = Box<dyn Fn(&Arc<str>, FractionMap, Instant) + Send>;

/// A running stream; dropping it ends the stream.
#[derive(Debug)]
pub struct Stream {
    _stop: oneshot::Sender<()>,
}

impl Stream {
    /// Starts the thread of a stream.
    pub fn start(server: &ManagementServer, sink: Sink) -> std::io::Result<Self> {
        let (stop, stopped) = oneshot::channel::<()>();
        let (options, node) = (server.options(), server.node_info());
        let run = move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build();
            match runtime {
                Ok(runtime) => {
                    let start = || receive(options.clone(), node.clone(), &sink);
                    run_restarting("plimsoll-lrs", &runtime, RESTART_DELAY, stopped, start);
                }
                Err(error) => {
                    let line = format!("plimsoll: no stream to the control plane: {error}");
                    log::write(Level::Error, &line);
                }
            }
        };
        let thread = thread::Builder::new().name("plimsoll-lrs".to_owned());
        thread.spawn(run)?;
        Ok(Self { _stop: stop })
    }
}

async fn receive(options: ConnectOptions, node: NodeInfo, sink: &Sink) {
    let (events, mut client_events) = mpsc::channel(16);
    let (drained, stats) = mpsc::channel(1);
    let channels = LrsClientChannels {
        events,
        stats,
        end: None,
    };
    let driver = lrs_client::run(options, Client::new(node), channels);
    let handle = async {
        while let Some(event) = client_events.recv().await {
            match event {
                ClientEvent::Select(_) => {}
                ClientEvent::Collect { .. } => {
                    // Envoy reports the load; two reports of one node would count twice.
                    if drained.send(Vec::new()).await.is_err() {
                        return;
                    }
                }
                ClientEvent::ObservedTraffic(clusters) => {
                    for observed in clusters {
                        let fractions = observed.traffic.fractions.into_iter().collect();
                        sink(&observed.traffic.cluster_name, fractions, observed.at);
                    }
                }
            }
        }
    };
    tokio::join!(driver, handle);
}
