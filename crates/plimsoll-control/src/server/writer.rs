//! [`Writer`]: the task that owns the state.
//!
//! It processes messages in bursts and publishes changed views once per burst: when a thousand
//! proxies reconnect, the number of updates is that of the bursts, not that of the proxies.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use plimsoll_core::evacuation::Order;
use plimsoll_core::model::load_report::ClusterStats;
use plimsoll_xds::driver::{Clock, LrsInstructions};
use plimsoll_xds::node::NodeInfo;
use tokio::sync::{Semaphore, mpsc, watch};

use super::channel::Channel;
use super::discovery::DiscoveryGate;
use super::{
    ClosedStream, Handle, Message, OpenedReporting, OpenedStream, QUEUE_CAPACITY, Shared,
    StreamGuard,
};
use crate::audit::{Audit, AuditKind, Change, RelayedAudit, changes, discovered_changes};
use crate::config::ControlConfig;
use crate::evacuation::{Commanded, ZoneCommand};
use crate::events::streams::record_too_large;
use crate::fleet::StreamKind;
use crate::output::Output;
use crate::replicas::{NodeKey, OrderInput, StoreInput};
use crate::services::ServiceChanges;
use crate::state::{State, TrafficKey, ViewKey};
use crate::store::{ReplicaIdentity, StoreLink, TooLarge};

const BURST: usize = 256;

/// The task that owns the state.
#[derive(Debug)]
pub struct Writer {
    state: State,
    clock: Clock,
    messages: mpsc::Receiver<Message>,
    closes: mpsc::UnboundedReceiver<ClosedStream>,
    shared: Arc<Shared>,
    /// Entry of the audit whose views are not published yet.
    undelivered: Option<u64>,
    /// Changes of the relayed server.
    relayed: RelayedAudit,
    /// Sender for stream guards. Unbounded, because `drop` cannot wait; there are never more
    /// messages in it than open streams.
    close_sender: mpsc::UnboundedSender<ClosedStream>,
    outputs: BTreeMap<ViewKey, Channel>,
    instructions: BTreeMap<TrafficKey, watch::Sender<LrsInstructions>>,
}

/// Creates a writer and a handle to it. [`Writer::run`] must be polled for the handle to work.
pub fn start(config: Arc<ControlConfig>) -> (Writer, Handle) {
    start_replica(config, None)
}

/// Like [`start`], for one of several replicas.
pub fn start_replica(
    config: Arc<ControlConfig>,
    replica: Option<&ReplicaIdentity>,
) -> (Writer, Handle) {
    start_with(config, replica, Audit::default())
}

/// Like [`start_replica`], with an audit that goes on.
pub(crate) fn start_with(
    config: Arc<ControlConfig>,
    replica: Option<&ReplicaIdentity>,
    audit: Audit,
) -> (Writer, Handle) {
    let (messages, receiver) = mpsc::channel(QUEUE_CAPACITY);
    let (closes, close_receiver) = mpsc::unbounded_channel();
    let clock = Clock::system();
    let shared = Arc::new(Shared {
        audit,
        store: replica.map(|_| Arc::<StoreLink>::default()),
        ..Shared::default()
    });
    let (found, now) = (changes(None, &config), clock.now());
    let started = shared.audit.add(AuditKind::Started, "start", found, now);
    shared.events.tell(started.describe(), now);
    let queue_bytes_capacity = config.operation.limits.queue_bytes;
    let rules = Arc::new(watch::Sender::new(Arc::clone(&config.rules)));
    let discovery = Arc::new(DiscoveryGate::new(&config));
    let mut state =
        State::new(config, clock.now()).with_unix_origin(clock.unix_origin(), clock.now());
    if let Some(replica) = replica {
        state = state.with_replicas(Arc::clone(&replica.id), replica.instance);
    }
    let writer = Writer {
        state,
        clock,
        messages: receiver,
        closes: close_receiver,
        shared: Arc::clone(&shared),
        undelivered: None,
        relayed: RelayedAudit::default(),
        close_sender: closes,
        outputs: BTreeMap::new(),
        instructions: BTreeMap::new(),
    };
    let handle = Handle {
        messages,
        shared,
        upstreams: Arc::default(),
        queue_bytes: Arc::new(Semaphore::new(queue_bytes_capacity)),
        queue_bytes_capacity,
        rules,
        discovery,
        refusals: Arc::default(),
    };
    (writer, handle)
}

impl Writer {
    /// Processes messages until every handle is dropped.
    pub async fn run(mut self) {
        loop {
            let deadlines = [self.state.poll_timeout(), self.relayed.poll_timeout()];
            let deadline = deadlines.into_iter().flatten().min();
            tokio::select! {
                message = self.messages.recv() => match message {
                    Some(message) => self.handle(message),
                    None => return,
                },
                Some(close) = self.closes.recv() => self.close(&close),
                () = self.clock.sleep_until(deadline) => {
                    self.state.handle_timeout(self.clock.now());
                }
            }
            for _ in 0..BURST {
                let Ok(message) = self.messages.try_recv() else {
                    break;
                };
                self.handle(message);
            }
            while let Ok(close) = self.closes.try_recv() {
                self.close(&close);
            }
            self.audit_relayed();
            self.publish();
        }
    }

    /// Records what a relayed server changed.
    fn audit_relayed(&mut self) {
        let now = self.clock.now();
        if self.relayed.poll_timeout().is_none_or(|due| due > now) {
            return;
        }
        let changed = self
            .relayed
            .poll(|name| self.state.relayed_service(name), now);
        let relay = self.state.config().relay.as_ref();
        if let Some(address) = relay.map(|relay| relay.address.clone())
            && !changed.is_empty()
        {
            self.audit(AuditKind::Changed, &format!("relay of {address}"), changed);
        }
    }

    fn handle(&mut self, message: Message) {
        let now = self.clock.now();
        match message {
            Message::OpenAds {
                node,
                returning,
                peer,
                reply,
            } => {
                let kind = StreamKind::Ads;
                let key = self.state.handle_open(&node, kind, returning, &peer, now);
                let opened = key.map(|key| {
                    let guard = self.guard(node, kind, Some(key.clone()));
                    self.open(key, guard)
                });
                // The caller may have been canceled; ignore send errors.
                let _ = reply.send(opened);
            }
            Message::OpenLrs { node, peer, reply } => {
                let kind = StreamKind::of_lrs(&node);
                let opened = self.state.handle_open(&node, kind, false, &peer, now);
                let _ = reply.send(opened.map(|_| self.open_reporting(node, kind)));
            }
            Message::Report { node, stats, .. } => {
                // Nodes that report all clusters also report ones unknown here, which is no error.
                if !node.supports_send_all_clusters() && !self.state.wants_all_reports() {
                    let services = &self.state.config().services;
                    let unknown =
                        |stats: &&ClusterStats| !services.contains_key(&stats.cluster_name);
                    let unknown = stats.iter().filter(unknown).count();
                    let counters = &self.shared.events.counters;
                    counters.ignored("unknown_cluster", unknown as u64);
                }
                self.state.handle_report(&node, &stats, now);
            }
            Message::HostReport { node, stats, .. } => self.state.handle_host_stats(&node, &stats),
            Message::RelayedResource(relayed) => {
                self.relayed.handle(&relayed, now);
                self.state.handle_relayed(relayed, now);
            }
            Message::Store(input) => self.state.handle_store(input, now),
            Message::Config { config, by } => self.configure(config, &by),
            Message::Services(changes) => self.discover(changes),
            Message::Zone { command, by, reply } => {
                // The caller may have been canceled; ignore send errors.
                let _ = reply.send(self.command(command, &by));
            }
            Message::Suspects(suspects, would) => {
                self.state.handle_suspects(suspects, would, now);
            }
            Message::Orders(orders) => self.state.handle_orders(OrderInput::All(orders), now),
            Message::Inspect(inspect) => inspect(&self.state, now),
        }
    }

    /// Returns the channel for a discovery stream. Its first view must be complete.
    fn open(&mut self, key: ViewKey, guard: StreamGuard) -> OpenedStream {
        if !self.outputs.contains_key(&key) && !self.state.is_current(&key.fleet) {
            self.publish();
        }
        let channel = self.outputs.entry(key).or_insert_with_key(|key| {
            let relay = self.state.config().relay.as_ref();
            Channel::new(self.state.output(key).cloned(), relay)
        });
        let subscribed = channel.subscribe();
        OpenedStream { subscribed, guard }
    }

    fn open_reporting(&mut self, node: Arc<NodeInfo>, kind: StreamKind) -> OpenedReporting {
        let key = TrafficKey::of(&node);
        let state = &self.state;
        let sender = self.instructions.entry(key).or_insert_with_key(|key| {
            watch::Sender::new(LrsInstructions {
                settings: Arc::new(state.lrs_settings()),
                traffic: state.traffic(key),
            })
        });
        let instructions = sender.subscribe();
        (instructions, self.guard(node, kind, None))
    }

    fn guard(&self, node: Arc<NodeInfo>, kind: StreamKind, key: Option<ViewKey>) -> StreamGuard {
        StreamGuard {
            closes: self.close_sender.clone(),
            node,
            kind,
            key,
        }
    }

    fn configure(&mut self, config: Arc<ControlConfig>, by: &str) {
        let changes = changes(Some(self.state.file_config()), &config);
        self.audit(AuditKind::Changed, by, changes);
        if config.relay != self.state.config().relay {
            // Dropping the senders closes the streams; proxies reconnect and get new resources.
            self.outputs.clear();
            self.relayed.clear();
        }
        self.state.handle_config(config, self.clock.now());
        self.publish_lrs_settings();
    }

    fn discover(&mut self, changes: ServiceChanges) {
        let source = changes.source;
        let before = Arc::clone(self.state.config());
        let mut names: BTreeSet<Arc<str>> = changes.services.keys().cloned().collect();
        if changes.is_complete {
            names.extend(self.state.services().names(source).cloned());
        }
        self.state.handle_services(changes, self.clock.now());
        let changed = discovered_changes(&before, self.state.config(), names.iter());
        if changed.is_empty() {
            return;
        }
        self.audit(AuditKind::Changed, source.name(), changed);
        self.publish_lrs_settings();
    }

    /// Takes a zone out of use, or returns it, and keeps who did or was refused.
    fn command(&mut self, command: ZoneCommand, by: &str) -> Commanded {
        let now = self.clock.now();
        let is_hold = matches!(command, ZoneCommand::Hold { .. });
        let done = self.state.handle_command(command, now);
        match &done {
            Ok(order) => {
                let change = zone_change(order, self.state.zones_out().unix_ms(now));
                self.audit(AuditKind::Changed, by, vec![change]);
            }
            Err(_) if is_hold => {}
            Err(refusal) => {
                let entry = self.shared.audit.refuse(by, &refusal.to_string(), now);
                self.shared.events.tell(entry.describe(), now);
            }
        }
        done
    }

    fn publish_lrs_settings(&self) {
        let settings = Arc::new(self.state.lrs_settings());
        for instructions in self.instructions.values() {
            instructions.send_if_modified(|current| {
                let has_changed = current.settings != settings;
                current.settings = Arc::clone(&settings);
                has_changed
            });
        }
    }

    fn audit(&mut self, kind: AuditKind, by: &str, changes: Vec<Change>) {
        let now = self.clock.now();
        let entry = self.shared.audit.add(kind, by, changes, now);
        self.shared.events.tell(entry.describe(), now);
        self.undelivered = Some(entry.number);
    }

    /// Lets the audit wait for the streams whose views change with a configuration. Called before
    /// the views are published, so that no answer is missed.
    fn await_answers(&mut self, changed: &BTreeMap<ViewKey, Output>) {
        let Some(number) = self.undelivered.take() else {
            return;
        };
        let mut streams = BTreeMap::new();
        self.shared.records.for_each_numbered(|stream, record| {
            let keys = [false, true].map(|returning| ViewKey::of(&record.node, returning));
            // What a relay sends has generations of its own for each stream.
            let changed = keys.iter().filter_map(|key| changed.get(key)?.complete());
            if let Some(generation) = changed.map(|view| view.generation()).max() {
                streams.insert(stream, generation);
            }
        });
        self.shared.audit.await_answers(number, streams);
    }

    fn close(&mut self, close: &ClosedStream) {
        let now = self.clock.now();
        self.state.handle_close(&close.node, close.kind, now);
        if let Some(key) = &close.key {
            let channel = self.outputs.get(key);
            if channel.is_some_and(|channel| channel.receiver_count() == 0) {
                self.outputs.remove(key);
                self.state.handle_output_unused(key);
            }
        }
        let receivers = TrafficKey::of(&close.node);
        if close.kind != StreamKind::Ads
            && let Some(instructions) = self.instructions.get(&receivers)
            && instructions.receiver_count() == 0
        {
            self.instructions.remove(&receivers);
        }
    }

    fn publish(&mut self) {
        self.publish_orders();
        // First: plans that are too large for the store are delivered at once.
        self.publish_records();
        let mut changed = BTreeMap::new();
        while let Some((key, output)) = self.state.poll_output() {
            changed.insert(key, output);
        }
        self.await_answers(&changed);
        for (key, output) in changed {
            if let Some(channel) = self.outputs.get(&key) {
                channel.send(output);
            }
        }
        while let Some((receivers, traffic)) = self.state.poll_traffic() {
            if let Some(instructions) = self.instructions.get(&receivers) {
                // Sending wakes up every load reporting stream of the fleet.
                instructions.send_if_modified(|current| {
                    let has_changed = current.traffic != traffic;
                    current.traffic = traffic;
                    has_changed
                });
            }
        }
        while let Some(event) = self.state.poll_event() {
            self.shared.events.tell(event.describe(), self.clock.now());
        }
    }

    /// Hands over orders about zones to the store, or to the task that keeps the state file.
    fn publish_orders(&mut self) {
        let mut changed = false;
        while let Some((zone, order)) = self.state.poll_order_record() {
            changed = true;
            if let Some(store) = &self.shared.store {
                store.orders.push(zone, order.as_ref());
            }
        }
        if changed {
            self.shared.zones_changed.notify_one();
        }
    }

    /// Hands over records that changed, and plans, to the task that writes them to the store.
    fn publish_records(&mut self) {
        let Some(store) = self.shared.store.clone() else {
            return;
        };
        let settings = self.state.config().store.as_ref();
        if let (Some(settings), Some(replicas)) = (settings, self.state.replicas()) {
            store.outbox.limit(settings.max_record(replicas.nodes()));
        }
        let mut changed = false;
        while let Some((key, write)) = self.state.poll_store_write() {
            changed = true;
            let Err(TooLarge(bytes)) = store.outbox.push(key.clone(), &write) else {
                continue;
            };
            let NodeKey { fleet, id } = &key;
            let event = record_too_large(fleet, id, bytes);
            self.shared.events.tell(event, self.clock.now());
        }
        if changed {
            store.changed.notify_one();
        }
        let mut proposed = false;
        while let Some((key, proposal)) = self.state.poll_proposal() {
            proposed = true;
            if let Err(TooLarge(bytes)) = store.proposals.push(key.clone(), &proposal) {
                let refused = StoreInput::PlanTooLarge { key, bytes };
                self.state.handle_store(refused, self.clock.now());
            }
        }
        if proposed {
            store.proposed.notify_one();
        }
    }
}

/// Returns what a command changed, for the audit.
fn zone_change(order: &Order, now_unix_ms: u64) -> Change {
    let state = order.state(now_unix_ms).name();
    let forced = if order.forced { ", forced" } else { "" };
    Change {
        service: None,
        field: format!("zone {}", order.zone),
        before: None,
        after: Some(format!(
            "{state}, {} % of its hosts{forced}: {}",
            order.limit, order.reason
        )),
        source: None,
    }
}

#[cfg(test)]
mod tests;
