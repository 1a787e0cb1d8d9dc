//! The running control plane: one task owns the [`State`], and streams communicate with it over
//! channels.
//!
//! A discovery stream opens a session and gets a `watch` channel with its view. Load reports arrive
//! over a bounded queue, so that an overloaded writer slows down reporters instead of using more
//! memory. The admin API reads the state through [`Handle::inspect`]. plimsoll-xds serves the
//! sockets of ADS and LRS, `admin` serves HTTP; decisions are made in `state`.

mod authorization;
mod channel;
mod discovery;
mod handlers;
mod record;
mod report_rate;
mod report_size;
mod writer;

use std::sync::Arc;
use std::time::Duration;

use plimsoll_core::evacuation::{Order, Suspect};
use plimsoll_core::log_line;
use plimsoll_core::model::load_report::{ClusterHostStats, ClusterStats};
use plimsoll_core::time::Instant;
use plimsoll_serve::Administrators;
use plimsoll_xds::driver::{ClientIdentity, LrsInstructions};
use plimsoll_xds::node::NodeInfo;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, mpsc, oneshot, watch};
use tonic::Status;

use crate::audit::Audit;
use crate::certificates::Certificates;
use crate::config::{ControlConfig, Relay};
use crate::counters::Counters;
use crate::evacuation::{Commanded, ZoneCommand};
use crate::events::{Events, RecentEvents};
use crate::fleet::{OpenRefusal, Peer, StreamKind};
use crate::identity::Rules;
use crate::log_lines;
use crate::relay::{RelayUpstreams, RelayedResource, StreamStatus};
use crate::replicas::StoreInput;
use crate::services::ServiceChanges;
use crate::state::{State, ViewKey};
use crate::store::StoreLink;
use crate::supervisor::Supervisor;

pub use crate::events::{EventSeverity, RecentEvent};
use authorization::RefusalLog;
use channel::Subscribed;
pub(crate) use discovery::DiscoveryGate;
pub use handlers::{Discovery, LoadReporting, Reporter};
pub use record::{ResponseTotals, StreamRecord, StreamRecords};
pub(crate) use writer::start_with;
pub use writer::{Writer, start, start_replica};

/// Capacity of the writer's queue in messages. The size of load reports is limited beside it, by
/// `limits.queue_bytes`; other messages are small.
const QUEUE_CAPACITY: usize = 4096;

/// Handle to the writer task. Cloning is cheap.
#[derive(Clone, Debug)]
pub struct Handle {
    messages: mpsc::Sender<Message>,
    shared: Arc<Shared>,
    upstreams: Arc<RelayUpstreams>,
    /// One permit per byte of load reports that may wait in the queue.
    queue_bytes: Arc<Semaphore>,
    queue_bytes_capacity: usize,
    rules: Arc<watch::Sender<Arc<Rules>>>,
    discovery: Arc<DiscoveryGate>,
    refusals: Arc<RefusalLog>,
}

/// What the writer and all handles share.
#[derive(Debug, Default)]
struct Shared {
    events: Events,
    records: StreamRecords,
    audit: Audit,
    certificates: Certificates,
    supervisor: Supervisor,
    /// Notified when an order about a zone is to be kept.
    zones_changed: Arc<Notify>,
    /// `None` without a store.
    store: Option<Arc<StoreLink>>,
}

type Inspection = Box<dyn FnOnce(&State, Instant) + Send>;

pub(crate) enum Message {
    OpenAds {
        node: Arc<NodeInfo>,
        returning: bool,
        peer: Peer,
        reply: oneshot::Sender<Result<OpenedStream, OpenRefusal>>,
    },
    OpenLrs {
        node: Arc<NodeInfo>,
        peer: Peer,
        reply: oneshot::Sender<Result<OpenedReporting, OpenRefusal>>,
    },
    Report {
        node: Arc<NodeInfo>,
        stats: Vec<ClusterStats>,
        /// Memory of `stats`, which is free again when the message has been processed.
        _bytes: OwnedSemaphorePermit,
    },
    /// What a report says of single hosts, after the report.
    HostReport {
        node: Arc<NodeInfo>,
        stats: Vec<ClusterHostStats>,
        _bytes: OwnedSemaphorePermit,
    },
    RelayedResource(RelayedResource),
    Store(StoreInput),
    Config {
        config: Arc<ControlConfig>,
        /// Who or what changed it, for the audit.
        by: Arc<str>,
    },
    Services(ServiceChanges),
    Zone {
        command: ZoneCommand,
        /// Who gives it, for the audit.
        by: Arc<str>,
        reply: oneshot::Sender<Commanded>,
    },
    /// Orders of the state file.
    Orders(Vec<Order>),
    /// Zones that are ill, and what follows from it.
    Suspects(Vec<Suspect>, Option<Arc<str>>),
    Inspect(Inspection),
}

pub(crate) struct OpenedStream {
    subscribed: Subscribed,
    guard: StreamGuard,
}

pub(crate) type OpenedReporting = (watch::Receiver<LrsInstructions>, StreamGuard);

#[derive(Debug)]
pub(crate) struct ClosedStream {
    node: Arc<NodeInfo>,
    kind: StreamKind,
    key: Option<ViewKey>,
}

/// Registration of an open stream. The writer sends it with the reply to the opening message, so
/// that it learns exactly once that the stream ended, even if the reply is never received.
#[derive(Debug)]
pub(crate) struct StreamGuard {
    closes: mpsc::UnboundedSender<ClosedStream>,
    node: Arc<NodeInfo>,
    kind: StreamKind,
    key: Option<ViewKey>,
}

impl Drop for StreamGuard {
    fn drop(&mut self) {
        // If the writer has exited, there is no registration left to close.
        let _ = self.closes.send(ClosedStream {
            node: Arc::clone(&self.node),
            kind: self.kind,
            key: self.key.take(),
        });
    }
}

/// Error: the writer has exited because the process is shutting down.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the control plane is shutting down")]
pub struct Stopped;

impl Handle {
    /// Activates a configuration whose files were edited.
    pub async fn apply(&self, config: Arc<ControlConfig>) -> Result<(), Stopped> {
        self.apply_by(config, "edit of the files").await
    }

    /// Activates a new configuration. `by` says who or what changed it, for the audit.
    pub async fn apply_by(&self, config: Arc<ControlConfig>, by: &str) -> Result<(), Stopped> {
        self.publish_rules(self.discovery.set_file_rules(&config.rules));
        let by = by.into();
        self.send(Message::Config { config, by }).await
    }

    /// Adds, replaces and removes services of a source beside the files.
    pub async fn discover(&self, changes: ServiceChanges) -> Result<(), Stopped> {
        let ServiceChanges {
            source,
            is_complete,
            ..
        } = changes;
        if let Some(rules) = self.discovery.apply(&changes) {
            self.publish_rules(rules);
        }
        self.send(Message::Services(changes)).await?;
        // The views are complete when the writer has processed the message.
        self.inspect(|_, _| ()).await?;
        if is_complete {
            self.discovery.listed(source);
        }
        Ok(())
    }

    /// Takes a zone out of use, or returns it.
    pub(crate) async fn command(
        &self,
        command: ZoneCommand,
        by: &str,
    ) -> Result<Commanded, Stopped> {
        let (reply, response) = oneshot::channel();
        let by = by.into();
        self.send(Message::Zone { command, by, reply }).await?;
        response.await.map_err(|_| Stopped)
    }

    /// Takes over the orders of the state file.
    pub(crate) async fn adopt_orders(&self, orders: Vec<Order>) -> Result<(), Stopped> {
        self.send(Message::Orders(orders)).await
    }

    /// Replaces the zones that are ill by the latest reports.
    pub(crate) async fn suspect(
        &self,
        suspects: Vec<Suspect>,
        would: Option<Arc<str>>,
    ) -> Result<(), Stopped> {
        self.send(Message::Suspects(suspects, would)).await
    }

    /// Returns what is notified when an order about a zone is to be kept.
    pub(crate) fn zones_changed(&self) -> Arc<Notify> {
        Arc::clone(&self.shared.zones_changed)
    }

    /// Returns which services were discovered, and whether proxies wait for them.
    pub(crate) const fn discovery(&self) -> &Arc<DiscoveryGate> {
        &self.discovery
    }

    fn publish_rules(&self, next: Arc<Rules>) {
        self.rules.send_if_modified(|rules| {
            let changed = *rules != next;
            *rules = next;
            changed
        });
    }

    /// Records a change of the configuration that was refused.
    pub fn refuse(&self, by: &str, reason: &str, now: Instant) {
        let entry = self.shared.audit.refuse(by, reason, now);
        self.shared.events.tell(entry.describe(), now);
    }

    /// Returns which certificates are administrators', by the rules in force at each request.
    pub(crate) fn administrators(&self) -> Administrators {
        let rules = self.rules.subscribe();
        Administrators::new(move |identity| {
            let identity = ClientIdentity {
                uris: identity.uris.clone(),
                dns_names: identity.dns_names.clone(),
            };
            rules.borrow().is_administrator(&identity)
        })
    }

    /// Returns what was changed and refused.
    pub fn audit(&self) -> &Audit {
        &self.shared.audit
    }

    /// Returns until when certificates can be used.
    pub fn certificates(&self) -> &Certificates {
        &self.shared.certificates
    }

    /// Returns which client was refused in the last minute, and why.
    pub fn recently_refused(&self) -> Option<String> {
        self.refusals.recent()
    }

    /// Reserves a connection to the relayed server.
    fn open_upstream(&self, relay: &Relay) -> Result<StreamStatus, Status> {
        self.upstreams.open(relay.max_connections).ok_or_else(|| {
            self.counters().relay_refused();
            if let Some(suppressed) = self.refusals.allow() {
                let max = relay.max_connections;
                log_line!(log_lines::RELAY_STREAM_REFUSED, max, suppressed);
            }
            Status::resource_exhausted("too many streams to the relayed server")
        })
    }

    /// Calls `inspect` between two messages. It must return quickly: it blocks the writer.
    pub async fn inspect<T: Send + 'static>(
        &self,
        inspect: impl FnOnce(&State, Instant) -> T + Send + 'static,
    ) -> Result<T, Stopped> {
        let (reply, response) = oneshot::channel();
        let inspect = move |state: &State, now| {
            // The caller may have been canceled; ignore send errors.
            let _ = reply.send(inspect(state, now));
        };
        self.send(Message::Inspect(Box::new(inspect))).await?;
        response.await.map_err(|_| Stopped)
    }

    /// Whether the writer responds within `timeout`: it neither ended nor hangs.
    pub async fn responds(&self, timeout: Duration) -> bool {
        let response = tokio::time::timeout(timeout, self.inspect(|_, _| ()));
        matches!(response.await, Ok(Ok(())))
    }

    /// Returns the status of every discovery stream.
    pub fn records(&self) -> &StreamRecords {
        &self.shared.records
    }

    /// Returns the latest events, for the dashboard.
    pub fn recent(&self) -> &RecentEvents {
        &self.shared.events.recent
    }

    /// Passes on a change in the store that replicas share.
    pub async fn store(&self, input: StoreInput) -> Result<(), Stopped> {
        self.send(Message::Store(input)).await
    }

    /// Returns statistics of the store; `None` without a store.
    pub fn store_stats(&self) -> Option<&Arc<StoreLink>> {
        self.shared.store.as_ref()
    }

    /// Returns whether to write a log line that may be frequent, and how many were left out.
    #[cfg(feature = "etcd")]
    pub(crate) fn admit(&self, kind: &'static str, now: Instant) -> Option<u64> {
        self.shared.events.throttle.admit(kind, now)
    }

    /// Returns the status of the streams to the relayed server.
    pub const fn upstreams(&self) -> &Arc<RelayUpstreams> {
        &self.upstreams
    }

    /// Returns what notices that a task has ended without which the process cannot work.
    pub(crate) fn supervisor(&self) -> &Supervisor {
        &self.shared.supervisor
    }

    pub(crate) fn counters(&self) -> &Counters {
        &self.shared.events.counters
    }

    pub(crate) fn queued(&self) -> usize {
        let free = self.messages.capacity();
        self.queue_capacity().saturating_sub(free)
    }

    pub(crate) fn queue_capacity(&self) -> usize {
        self.messages.max_capacity()
    }

    /// Returns the bytes of load reports that wait for the writer.
    pub(crate) fn queued_bytes(&self) -> usize {
        let free = self.queue_bytes.available_permits();
        self.queue_bytes_capacity.saturating_sub(free)
    }

    pub(crate) const fn queue_bytes_capacity(&self) -> usize {
        self.queue_bytes_capacity
    }

    async fn send(&self, message: Message) -> Result<(), Stopped> {
        self.messages.send(message).await.map_err(|_| Stopped)
    }
}

#[cfg(test)]
pub(crate) mod tests;
