//! [`Discovery`] and [`LoadReporting`]: the stream handlers that plimsoll-xds calls. Each stream
//! opens a session with the writer; dropping the session closes it, however the stream ended.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

use plimsoll_core::log_line;
use plimsoll_core::model::load_report::{ClusterStats, Node};
use plimsoll_xds::ads::CLUSTER_LOAD_ASSIGNMENT;
use plimsoll_xds::ads::message::NodeMessage;
use plimsoll_xds::ads::server::{ServerStream, StreamEvent};
use plimsoll_xds::driver::{
    AdsHandler, AdsObserver, AdsOpening, AdsSession, Clock, LrsHandler, LrsReporter, LrsSession,
};
use plimsoll_xds::node::NodeInfo;
use tokio::sync::{oneshot, watch};
use tonic::Status;

use super::record::StreamRecord;
use super::{Handle, Message, OpenedStream, Stopped, StreamGuard};
use crate::log_lines;
use crate::relay::{ResourceSubscriptions, Session};

/// Handler of discovery streams (ADS).
#[derive(Clone, Debug)]
pub struct Discovery {
    pub(super) handle: Handle,
}

/// Handler of load reporting streams (LRS).
#[derive(Clone, Debug)]
pub struct LoadReporting {
    pub(super) handle: Handle,
}

/// Session of a discovery stream; dropping it closes the session.
#[derive(Debug)]
pub struct Observer {
    handle: Handle,
    node: Arc<NodeInfo>,
    record: u64,
    /// Subscriptions to forward to the relayed server, if there is one.
    subscriptions: Option<watch::Sender<ResourceSubscriptions>>,
    /// `None` for relayed streams: the relay session owns the guard and outlives this session.
    _guard: Option<StreamGuard>,
}

/// Session of a load reporting stream; dropping it closes the session.
#[derive(Debug)]
pub struct Reporter {
    handle: Handle,
    node: Arc<NodeInfo>,
    _guard: StreamGuard,
}

impl Discovery {
    /// Creates a handler that uses the writer behind `handle`.
    pub const fn new(handle: Handle) -> Self {
        Self { handle }
    }
}

impl LoadReporting {
    /// Creates a handler that uses the writer behind `handle`.
    pub const fn new(handle: Handle) -> Self {
        Self { handle }
    }
}

impl AdsHandler for Discovery {
    type Observer = Observer;

    async fn open(&self, opening: AdsOpening) -> Result<AdsSession<Observer>, Status> {
        let (reply, response) = oneshot::channel();
        let info = Arc::new(opening.node.info);
        let open = Message::OpenAds {
            node: Arc::clone(&info),
            returning: opening.returning,
            reply,
        };
        self.handle.send(open).await.map_err(stopped)?;
        let opened = response.await.map_err(|_| stopped(Stopped))?;
        let (views, subscriptions, guard) = match opened {
            OpenedStream::View(views, guard) => (views, None, Some(guard)),
            OpenedStream::Relay(overlays, relay, guard) => {
                let node = NodeMessage {
                    info: NodeInfo::clone(&info),
                    raw: opening.node.raw,
                };
                let handle = self.handle.clone();
                let session = Session {
                    relay,
                    node,
                    overlays,
                    upstreams: Arc::clone(&self.handle.upstreams),
                    on_resource: move |relayed| {
                        let handle = handle.clone();
                        // If the writer has exited, this stream is about to end: ignore the error.
                        async move {
                            let _ = handle.send(Message::RelayedResource(relayed)).await;
                        }
                    },
                };
                let (views, subscriptions) = session.start(guard);
                (views, Some(subscriptions), None)
            }
        };
        let record = self.handle.records.open(StreamRecord {
            node: Arc::clone(&info),
            peer: opening.peer,
            variant: opening.variant,
            since: Clock::system().now(),
            types: Vec::new(),
            assignments: BTreeMap::new(),
        });
        let observer = Observer {
            handle: self.handle.clone(),
            node: info,
            record,
            subscriptions,
            _guard: guard,
        };
        Ok(AdsSession { views, observer })
    }
}

impl AdsObserver for Observer {
    fn handle_event(&mut self, event: StreamEvent, stream: &ServerStream) {
        if let StreamEvent::Nacked { type_url, nack } = &event {
            log_line!(log_lines::UPDATE_REJECTED, node = %self.node.node.id,
                fleet = %self.node.node.cluster,
                type_url = %type_url,
                version = %nack.version,
                reason = %nack.detail.message);
            let node = &self.node.node.id;
            let (_, what) = type_url.rsplit_once('.').unwrap_or(("", type_url));
            let (why, now) = (&nack.detail.message, Clock::system().now());
            self.handle.recent.nacked(node, what, why, now);
        }
        if let Some(subscriptions) = &self.subscriptions {
            update_subscriptions(subscriptions, &event);
        }
        self.record_subscriptions(&event);
        let types = stream.status().collect();
        self.handle.records.update(self.record, types);
    }
}

impl Observer {
    /// Records subscriptions to assignments; `Unreported` compares them with load reports.
    fn record_subscriptions(&self, event: &StreamEvent) {
        let records = &self.handle.records;
        match event {
            StreamEvent::Subscribed { type_url, names } if is_assignment(type_url) => {
                records.subscribe(self.record, names, Clock::system().now());
            }
            StreamEvent::Unsubscribed { type_url, names } if is_assignment(type_url) => {
                records.unsubscribe(self.record, names);
            }
            _ => {}
        }
    }
}

impl Drop for Observer {
    fn drop(&mut self) {
        self.handle.records.close(self.record);
    }
}

impl LrsHandler for LoadReporting {
    type Reporter = Reporter;

    async fn open(
        &self,
        node: &NodeInfo,
        _peer: Option<SocketAddr>,
    ) -> Result<LrsSession<Reporter>, Status> {
        let (reply, response) = oneshot::channel();
        let node = Arc::new(node.clone());
        let open = Message::OpenLrs {
            node: Arc::clone(&node),
            reply,
        };
        self.handle.send(open).await.map_err(stopped)?;
        let (instructions, guard) = response.await.map_err(|_| stopped(Stopped))?;
        let reporter = Reporter {
            handle: self.handle.clone(),
            node,
            _guard: guard,
        };
        Ok(LrsSession {
            instructions,
            reporter,
        })
    }
}

impl LrsReporter for Reporter {
    async fn report(&mut self, _node: &Node, stats: Vec<ClusterStats>) {
        self.handle.counters.load_report();
        if stats.is_empty() {
            return;
        }
        let node = Arc::clone(&self.node);
        // If the writer has exited, this stream is about to end: ignore the error.
        let _ = self.handle.send(Message::Report { node, stats }).await;
    }
}

fn is_assignment(type_url: &str) -> bool {
    type_url == CLUSTER_LOAD_ASSIGNMENT
}

/// Updates the subscriptions at the relayed server after an ADS request of the receiver.
fn update_subscriptions(subscriptions: &watch::Sender<ResourceSubscriptions>, event: &StreamEvent) {
    match event {
        StreamEvent::Subscribed { type_url, names } => subscriptions.send_modify(|all| {
            let subscribed = all.entry(Arc::clone(type_url)).or_default();
            subscribed.extend(names.iter().cloned());
        }),
        StreamEvent::Unsubscribed { type_url, names } => subscriptions.send_modify(|all| {
            if let Some(subscribed) = all.get_mut(type_url) {
                subscribed.retain(|name| !names.contains(name));
            }
        }),
        StreamEvent::Acked { .. } | StreamEvent::Nacked { .. } => {}
    }
}

fn stopped(stopped: Stopped) -> Status {
    Status::unavailable(stopped.to_string())
}
