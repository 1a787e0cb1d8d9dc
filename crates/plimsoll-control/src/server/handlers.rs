//! [`Discovery`] and [`LoadReporting`]: the stream handlers that plimsoll-xds calls. Each stream
//! opens a session with the writer; dropping the session closes it, however the stream ended.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

use plimsoll_core::model::load_report::{ClusterHostStats, ClusterStats, Node};
use plimsoll_xds::ads::CLUSTER_LOAD_ASSIGNMENT;
use plimsoll_xds::ads::message::NodeMessage;
use plimsoll_xds::ads::server::{ServerStream, StreamEvent};
use plimsoll_xds::ads::view::View;
use plimsoll_xds::driver::{
    AdsHandler, AdsObserver, AdsOpening, AdsSession, ClientInfo, Clock, LrsHandler,
    LrsInstructions, LrsReporter, LrsSession, Refusal,
};
use plimsoll_xds::node::NodeInfo;
use tokio::sync::{OwnedSemaphorePermit, oneshot, watch};
use tokio::time::Instant;
use tonic::Status;

use super::authorization::Authorization;
use super::channel::Subscribed;
use super::record::StreamRecord;
use super::report_rate::ReportRate;
use super::report_size::{host_report_size, report_size};
use super::{Handle, Message, OpenedStream, Stopped, StreamGuard};
use crate::audit::Answer;
use crate::events::Description;
use crate::events::streams::{
    NOT_READABLE, beyond_budget, nacked, not_readable, queue_full, report_too_early,
    request_refused,
};
use crate::fleet::Peer;
use crate::identity::Purpose;
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
    authorization: Authorization,
}

/// Session of a load reporting stream; dropping it closes the session.
#[derive(Debug)]
pub struct Reporter {
    handle: Handle,
    node: Arc<NodeInfo>,
    rate: ReportRate,
    /// Whether the latest report was used.
    is_admitted: bool,
    /// Dropped before the guard: the writer then looks whether somebody receives instructions.
    instructions: watch::Receiver<LrsInstructions>,
    _guard: StreamGuard,
    authorization: Authorization,
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
        let client = ClientInfo {
            peer: opening.peer,
            identity: opening.identity,
        };
        let peer = Peer::from(&client);
        let node = &opening.node.info.node;
        let authorization = Authorization::check(&self.handle, client, node, Purpose::Discovery)?;
        if let Some(source) = self.handle.discovery.awaited() {
            // Clients keep what they have and come back; a view without services would empty them.
            let source = source.name();
            let reason = format!("services of {source} have not been listed since the start");
            return Err(Status::unavailable(reason));
        }
        let (reply, response) = oneshot::channel();
        let info = Arc::new(opening.node.info);
        let open = Message::OpenAds {
            node: Arc::clone(&info),
            returning: opening.returning,
            peer,
            reply,
        };
        self.handle.send(open).await.map_err(stopped)?;
        let opened = response.await.map_err(|_| stopped(Stopped))?;
        let opened = opened.map_err(|refusal| refusal.status())?;
        let OpenedStream { subscribed, guard } = opened;
        let (views, subscriptions, guard) = match subscribed {
            Subscribed::Complete(views) => (views, None, Some(guard)),
            Subscribed::Patch(patches, relay) => {
                let upstream = self.handle.open_upstream(&relay)?;
                let node = NodeMessage {
                    info: NodeInfo::clone(&info),
                    raw: opening.node.raw,
                };
                let handle = self.handle.clone();
                let session = Session {
                    relay,
                    node,
                    patches,
                    upstream,
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
        let record = self.handle.records().open(StreamRecord {
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
            authorization,
        };
        Ok(AdsSession { views, observer })
    }

    fn refused(&self, refusal: &Refusal<'_>) {
        self.handle.request_refused(refusal);
    }
}

impl AdsObserver for Observer {
    fn handle_event(&mut self, event: StreamEvent, stream: &ServerStream) {
        if let StreamEvent::Nacked { type_url, nack } = &event {
            self.handle.tell(nacked(&self.node.node, type_url, nack));
            self.answer(Answer::Refused);
        }
        if let Some(subscriptions) = &self.subscriptions {
            update_subscriptions(subscriptions, &event);
        }
        self.record_subscriptions(&event);
        let types = stream.status().collect();
        self.handle.records().update(self.record, types);
    }

    fn handle_idle(&mut self, stream: &ServerStream) {
        // Comparing resources is work for each of thousands of streams: only while a change waits.
        if self.handle.audit().is_waiting()
            && let Some(generation) = stream.accepted_generation()
        {
            self.answer(Answer::Accepted(generation));
        }
    }

    fn readable(&self, view: Arc<View>) -> Arc<View> {
        self.authorization.readable(view)
    }

    fn revoked(&mut self) -> impl Future<Output = Status> + Send {
        self.authorization.revoked()
    }
}

impl Observer {
    /// Tells the audit how the client answered a change.
    fn answer(&self, answer: Answer) {
        let now = Clock::system().now();
        if let Some(delivered) = self.handle.audit().answer(self.record, answer, now) {
            self.handle.tell(delivered.describe());
        }
    }

    /// Records subscriptions to assignments; `Unreported` compares them with load reports.
    fn record_subscriptions(&self, event: &StreamEvent) {
        let records = self.handle.records();
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
        self.answer(Answer::Closed);
        self.handle.records().close(self.record);
    }
}

impl LrsHandler for LoadReporting {
    type Reporter = Reporter;

    async fn open(
        &self,
        node: &NodeInfo,
        client: &ClientInfo,
    ) -> Result<LrsSession<Reporter>, Status> {
        let purpose = Purpose::LoadReporting;
        let authorization =
            Authorization::check(&self.handle, client.clone(), &node.node, purpose)?;
        let (reply, response) = oneshot::channel();
        let node = Arc::new(node.clone());
        let open = Message::OpenLrs {
            node: Arc::clone(&node),
            peer: Peer::from(client),
            reply,
        };
        self.handle.send(open).await.map_err(stopped)?;
        let opened = response.await.map_err(|_| stopped(Stopped))?;
        let (instructions, guard) = opened.map_err(|refusal| refusal.status())?;
        let reporter = Reporter {
            handle: self.handle.clone(),
            node,
            rate: ReportRate::default(),
            is_admitted: false,
            instructions: instructions.clone(),
            _guard: guard,
            authorization,
        };
        Ok(LrsSession {
            instructions,
            reporter,
        })
    }

    fn refused(&self, refusal: &Refusal<'_>) {
        self.handle.request_refused(refusal);
    }
}

impl LrsReporter for Reporter {
    async fn report(&mut self, _node: &Node, mut stats: Vec<ClusterStats>) {
        self.handle.counters().load_report();
        if let Some((services, first)) = self.authorization.retain_reportable(&mut stats) {
            self.handle.counters().ignored(NOT_READABLE, services);
            self.handle.tell(not_readable(&self.node.node, &first));
        }
        self.is_admitted = false;
        if stats.is_empty() {
            return;
        }
        let interval = self.instructions.borrow().settings.interval;
        self.is_admitted = self.rate.admit(interval, Instant::now());
        if !self.is_admitted {
            self.handle.tell(report_too_early(&self.node.node));
            return;
        }
        let node = Arc::clone(&self.node);
        let Some(bytes) = self.handle.reserve(report_size(&stats)).await else {
            return;
        };
        let report = Message::Report {
            node,
            stats,
            _bytes: bytes,
        };
        // If the writer has exited, this stream is about to end: ignore the error.
        let _ = self.handle.send(report).await;
    }

    async fn report_hosts(&mut self, mut stats: Vec<ClusterHostStats>) {
        // Refused and counted with the report.
        stats.retain(|stats| self.authorization.may_report(&stats.cluster_name));
        if !self.is_admitted || stats.is_empty() {
            return;
        }
        let Some(bytes) = self.handle.reserve(host_report_size(&stats)).await else {
            return;
        };
        let report = Message::HostReport {
            node: Arc::clone(&self.node),
            stats,
            _bytes: bytes,
        };
        // If the writer has exited, this stream is about to end: ignore the error.
        let _ = self.handle.send(report).await;
    }

    fn readable(&self, instructions: LrsInstructions) -> LrsInstructions {
        self.authorization.readable_instructions(instructions)
    }

    fn revoked(&mut self) -> impl Future<Output = Status> + Send {
        self.authorization.revoked()
    }
}

impl Handle {
    /// Waits until the queue has room for a load report of this size, which slows down its stream.
    pub(super) async fn reserve(&self, bytes: usize) -> Option<OwnedSemaphorePermit> {
        // A report that is larger than the queue waits until the queue is empty.
        let bytes = bytes.clamp(1, self.queue_bytes_capacity);
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        let queue = Arc::clone(&self.queue_bytes);
        match Arc::clone(&queue).try_acquire_many_owned(bytes) {
            Ok(permit) => Some(permit),
            Err(_) => {
                self.tell(queue_full(self.queued_bytes()));
                queue.acquire_many_owned(bytes).await.ok()
            }
        }
    }

    fn request_refused(&self, refusal: &Refusal<'_>) {
        self.limit_exceeded(refusal.limit.name(), refusal.peer, refusal.reason);
    }

    /// Counts and logs a request beyond a limit.
    pub(crate) fn limit_exceeded(
        &self,
        limit: &'static str,
        peer: Option<SocketAddr>,
        reason: &str,
    ) {
        self.tell(request_refused(limit, peer, reason));
    }

    /// Counts and logs an object of Kubernetes beyond a limit.
    pub(crate) fn beyond_budget(&self, limit: &'static str, object: &str, reason: &str) {
        self.tell(beyond_budget(limit, object, reason));
    }

    /// Counts, shows and logs an event.
    pub(crate) fn tell(&self, event: Description<'_>) {
        self.shared.events.tell(event, Clock::system().now());
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
                for name in names {
                    subscribed.remove(name);
                }
            }
        }),
        StreamEvent::Acked { .. } | StreamEvent::Nacked { .. } => {}
    }
}

fn stopped(stopped: Stopped) -> Status {
    Status::unavailable(stopped.to_string())
}

#[cfg(test)]
mod tests {
    use plimsoll_xds::ads::CLUSTER;

    use super::*;

    #[test]
    fn subscriptions_of_the_receiver_are_kept_by_type() {
        let names = |names: &[&str]| names.iter().map(|&name| name.into()).collect::<Vec<_>>();
        let subscribed = |type_url: &str, added: &[&str]| StreamEvent::Subscribed {
            type_url: type_url.into(),
            names: names(added),
        };
        let unsubscribed = |type_url: &str, removed: &[&str]| StreamEvent::Unsubscribed {
            type_url: type_url.into(),
            names: names(removed),
        };
        let subscriptions = watch::Sender::new(ResourceSubscriptions::new());
        for event in [
            subscribed(CLUSTER, &["a"]),
            subscribed(CLUSTER_LOAD_ASSIGNMENT, &["a", "b"]),
            subscribed(CLUSTER_LOAD_ASSIGNMENT, &["c"]),
            unsubscribed(CLUSTER_LOAD_ASSIGNMENT, &["b", "unknown"]),
            unsubscribed("unknown", &["a"]),
        ] {
            update_subscriptions(&subscriptions, &event);
        }
        let expected = [
            (CLUSTER.into(), names(&["a"]).into_iter().collect()),
            (
                CLUSTER_LOAD_ASSIGNMENT.into(),
                names(&["a", "c"]).into_iter().collect(),
            ),
        ];
        assert_eq!(
            *subscriptions.borrow(),
            ResourceSubscriptions::from(expected)
        );
    }
}
