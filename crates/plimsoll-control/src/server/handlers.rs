//! [`Discovery`] and [`LoadReporting`]: what the drivers of plimsoll-xds call.
//!
//! Each opens a session with the writer and closes it when dropped, whatever ended the stream.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

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
use super::{Handle, Message, Opened, Stopped, Ticket};
use crate::relay::{Session, Wanted};

/// Serves discovery.
#[derive(Clone, Debug)]
pub struct Discovery {
    pub(super) handle: Handle,
}

/// Takes load reports.
#[derive(Clone, Debug)]
pub struct LoadReporting {
    pub(super) handle: Handle,
}

/// One discovery stream, until it is dropped.
#[derive(Debug)]
pub struct Observer {
    handle: Handle,
    node: Arc<NodeInfo>,
    record: u64,
    /// What the other server is asked for, behind a relay.
    wanted: Option<watch::Sender<Wanted>>,
    /// `None` behind a relay: the session there has it, and ends after this.
    _ticket: Option<Ticket>,
}

/// One load reporting stream, until it is dropped.
#[derive(Debug)]
pub struct Reporter {
    handle: Handle,
    node: Arc<NodeInfo>,
    _ticket: Ticket,
}

impl Discovery {
    /// Discovery by the writer behind `handle`.
    pub const fn new(handle: Handle) -> Self {
        Self { handle }
    }
}

impl LoadReporting {
    /// Load reports for the writer behind `handle`.
    pub const fn new(handle: Handle) -> Self {
        Self { handle }
    }
}

impl AdsHandler for Discovery {
    type Observer = Observer;

    async fn open(&self, opening: AdsOpening) -> Result<AdsSession<Observer>, Status> {
        let (reply, answer) = oneshot::channel();
        let info = Arc::new(opening.node.info);
        let open = Message::OpenAds {
            node: Arc::clone(&info),
            returning: opening.returning,
            reply,
        };
        self.handle.send(open).await.map_err(stopped)?;
        let opened = answer.await.map_err(|_| stopped(Stopped))?;
        let (views, wanted, ticket) = match opened {
            Opened::View(views, ticket) => (views, None, Some(ticket)),
            Opened::Relay(overlays, relay, ticket) => {
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
                    tell: move |relayed| {
                        let handle = handle.clone();
                        // Without a writer the stream is about to end anyway.
                        async move {
                            let _ = handle.send(Message::Relayed(relayed)).await;
                        }
                    },
                };
                let (views, wanted) = session.start(ticket);
                (views, Some(wanted), None)
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
            wanted,
            _ticket: ticket,
        };
        Ok(AdsSession { views, observer })
    }
}

impl AdsObserver for Observer {
    fn handle_event(&mut self, event: StreamEvent, stream: &ServerStream) {
        if let StreamEvent::Nacked { type_url, refusal } = &event {
            tracing::warn!(
                node = %self.node.node.id,
                fleet = %self.node.node.cluster,
                type_url = %type_url,
                version = %refusal.version,
                reason = %refusal.detail.message,
                "a proxy refused an update and keeps what it had"
            );
            let node = &self.node.node.id;
            let (_, what) = type_url.rsplit_once('.').unwrap_or(("", type_url));
            let (why, now) = (&refusal.detail.message, Clock::system().now());
            self.handle.recent.refused(node, what, why, now);
        }
        if let Some(wanted) = &self.wanted {
            want(wanted, &event);
        }
        self.remember_assignments(&event);
        let types = stream.status().collect();
        self.handle.records.update(self.record, types);
    }
}

impl Observer {
    /// Which services a node subscribes to is compared with what its load reports name.
    fn remember_assignments(&self, event: &StreamEvent) {
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
        let (reply, answer) = oneshot::channel();
        let node = Arc::new(node.clone());
        let open = Message::OpenLrs {
            node: Arc::clone(&node),
            reply,
        };
        self.handle.send(open).await.map_err(stopped)?;
        let (instructions, ticket) = answer.await.map_err(|_| stopped(Stopped))?;
        let reporter = Reporter {
            handle: self.handle.clone(),
            node,
            _ticket: ticket,
        };
        Ok(LrsSession {
            instructions,
            reporter,
        })
    }
}

impl LrsReporter for Reporter {
    async fn report(&mut self, _node: &Node, stats: Vec<ClusterStats>) {
        self.handle.counters.load_reports.inc();
        if stats.is_empty() {
            return;
        }
        let node = Arc::clone(&self.node);
        // Without a writer the stream is about to end anyway.
        let _ = self.handle.send(Message::Report { node, stats }).await;
    }
}

fn is_assignment(type_url: &str) -> bool {
    type_url == CLUSTER_LOAD_ASSIGNMENT
}

/// Keeps what the other server is asked for in step with what the receiver wants.
fn want(wanted: &watch::Sender<Wanted>, event: &StreamEvent) {
    match event {
        StreamEvent::Subscribed { type_url, names } => wanted.send_modify(|wanted| {
            let known = wanted.entry(Arc::clone(type_url)).or_default();
            known.extend(names.iter().cloned());
        }),
        StreamEvent::Unsubscribed { type_url, names } => wanted.send_modify(|wanted| {
            if let Some(known) = wanted.get_mut(type_url) {
                known.retain(|name| !names.contains(name));
            }
        }),
        StreamEvent::Acked { .. } | StreamEvent::Nacked { .. } => {}
    }
}

fn stopped(stopped: Stopped) -> Status {
    Status::unavailable(stopped.to_string())
}
