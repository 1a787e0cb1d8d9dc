//! [`Writer`]: the task that owns the state.
//!
//! It processes messages in bursts and publishes changed views once per burst: when a thousand
//! proxies reconnect, the number of updates is that of the bursts, not that of the proxies.

use std::collections::BTreeMap;
use std::sync::Arc;

use plimsoll_core::log_line;
use plimsoll_core::model::load_report::ClusterStats;
use plimsoll_core::planner::{PlanScope, PlannerEvent};
use plimsoll_core::time::Instant;
use plimsoll_xds::ads::view::View;
use plimsoll_xds::driver::{Clock, LrsInstructions};
use plimsoll_xds::node::NodeInfo;
use tokio::sync::{Semaphore, mpsc, watch};

use super::recent::RecentEvents;
use super::record::StreamRecords;
use super::throttle::Throttle;
use super::{
    ClosedStream, Handle, Message, OpenedReporting, OpenedStream, QUEUE_CAPACITY, StreamGuard,
};
use crate::config::ControlConfig;
use crate::counters::{Counters, cause};
use crate::fleet::{OpenRefusal, StreamKind};
use crate::log_lines;
use crate::relay::Overlay;
use crate::replicas::NodeKey;
use crate::state::{ControlEvent, State, ViewKey};
use crate::store::{ReplicaIdentity, StoreStats, TooLarge};

const BURST: usize = 256;

/// The task that owns the state.
#[derive(Debug)]
pub struct Writer {
    state: State,
    clock: Clock,
    messages: mpsc::Receiver<Message>,
    closes: mpsc::UnboundedReceiver<ClosedStream>,
    counters: Counters,
    recent: Arc<RecentEvents>,
    throttle: Arc<Throttle>,
    /// Sender for stream guards. Unbounded, because `drop` cannot wait; there are never more
    /// messages in it than open streams.
    close_sender: mpsc::UnboundedSender<ClosedStream>,
    views: BTreeMap<ViewKey, watch::Sender<Arc<View>>>,
    /// Used instead of `views` if the configuration has a relay.
    overlays: BTreeMap<ViewKey, watch::Sender<Arc<Overlay>>>,
    instructions: BTreeMap<Arc<str>, watch::Sender<LrsInstructions>>,
    store: Option<Arc<StoreStats>>,
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
    let (messages, receiver) = mpsc::channel(QUEUE_CAPACITY);
    let (closes, close_receiver) = mpsc::unbounded_channel();
    let clock = Clock::system();
    let counters = Counters::default();
    let recent = Arc::new(RecentEvents::default());
    let throttle = Arc::new(Throttle::default());
    let queue_bytes_capacity = config.limits.queue_bytes;
    let rules = Arc::new(watch::Sender::new(Arc::clone(&config.rules)));
    let store = replica.map(|_| Arc::<StoreStats>::default());
    let mut state = State::new(config, clock.now()).with_unix_origin(clock.unix_origin());
    if let Some(replica) = replica {
        state = state.with_replicas(Arc::clone(&replica.id), replica.instance);
    }
    let writer = Writer {
        state,
        store: store.clone(),
        clock,
        messages: receiver,
        closes: close_receiver,
        counters: counters.clone(),
        recent: Arc::clone(&recent),
        throttle: Arc::clone(&throttle),
        close_sender: closes,
        views: BTreeMap::new(),
        overlays: BTreeMap::new(),
        instructions: BTreeMap::new(),
    };
    let handle = Handle {
        messages,
        records: Arc::new(StreamRecords::default()),
        recent,
        upstreams: Arc::default(),
        counters,
        throttle,
        queue_bytes: Arc::new(Semaphore::new(queue_bytes_capacity)),
        queue_bytes_capacity,
        rules,
        refusals: Arc::default(),
        store,
    };
    (writer, handle)
}

impl Writer {
    /// Processes messages until every handle is dropped.
    pub async fn run(mut self) {
        loop {
            let deadline = self.state.poll_timeout();
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
            self.publish();
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
                let key = self.state.handle_open(&node, kind, returning, peer, now);
                let opened = key.map(|key| {
                    let guard = self.guard(node, kind, Some(key.clone()));
                    self.open(key, guard)
                });
                // The caller may have been canceled; ignore send errors.
                let _ = reply.send(opened);
            }
            Message::OpenLrs { node, peer, reply } => {
                let kind = StreamKind::Lrs;
                let opened = self.state.handle_open(&node, kind, false, peer, now);
                let _ = reply.send(opened.map(|_| self.open_reporting(node)));
            }
            Message::Report { node, stats, .. } => {
                // Nodes that report all clusters also report ones unknown here, which is no error.
                if !node.supports_send_all_clusters() && !self.state.wants_all_reports() {
                    let services = &self.state.config().services;
                    let unknown =
                        |stats: &&ClusterStats| !services.contains_key(&stats.cluster_name);
                    let unknown = stats.iter().filter(unknown).count();
                    self.counters.ignored("unknown_cluster", unknown as u64);
                }
                self.state.handle_report(&node, &stats, now);
            }
            Message::RelayedResource(relayed) => self.state.handle_relayed(relayed, now),
            Message::Store(input) => self.state.handle_store(input, now),
            Message::Config(config) => self.configure(config),
            Message::Inspect(inspect) => inspect(&self.state, now),
        }
    }

    /// Returns the channel for a discovery stream. Its first view must be complete.
    fn open(&mut self, key: ViewKey, guard: StreamGuard) -> OpenedStream {
        if !self.views.contains_key(&key) && !self.overlays.contains_key(&key) {
            self.publish();
        }
        if let Some(relay) = self.state.config().relay.clone() {
            let overlays = self.overlays.entry(key.clone()).or_insert_with(|| {
                let overlay = self.state.overlay(&key).cloned();
                watch::Sender::new(overlay.unwrap_or_default())
            });
            return OpenedStream::Relay(overlays.subscribe(), relay, guard);
        }
        let views = self.views.entry(key.clone()).or_insert_with(|| {
            let view = self.state.view(&key).cloned();
            watch::Sender::new(view.unwrap_or_default())
        });
        OpenedStream::View(views.subscribe(), guard)
    }

    fn open_reporting(&mut self, node: Arc<NodeInfo>) -> OpenedReporting {
        let fleet = Arc::clone(&node.node.cluster);
        let state = &self.state;
        let sender = self.instructions.entry(fleet).or_insert_with_key(|fleet| {
            watch::Sender::new(LrsInstructions {
                settings: Arc::new(state.lrs_settings()),
                traffic: state.traffic(fleet),
            })
        });
        let instructions = sender.subscribe();
        (instructions, self.guard(node, StreamKind::Lrs, None))
    }

    fn guard(&self, node: Arc<NodeInfo>, kind: StreamKind, key: Option<ViewKey>) -> StreamGuard {
        StreamGuard {
            closes: self.close_sender.clone(),
            node,
            kind,
            key,
        }
    }

    fn configure(&mut self, config: Arc<ControlConfig>) {
        if config.relay != self.state.config().relay {
            // Dropping the senders closes the streams; proxies reconnect and get new resources.
            self.views.clear();
            self.overlays.clear();
        }
        self.state.handle_config(config, self.clock.now());
        let settings = Arc::new(self.state.lrs_settings());
        for instructions in self.instructions.values() {
            instructions.send_modify(|current| current.settings = Arc::clone(&settings));
        }
    }

    fn close(&mut self, close: &ClosedStream) {
        let now = self.clock.now();
        self.state.handle_close(&close.node, close.kind, now);
        if let Some(key) = &close.key {
            let view = self.views.get(key);
            let overlay = self.overlays.get(key);
            if view.is_some_and(|view| view.receiver_count() == 0)
                || overlay.is_some_and(|overlay| overlay.receiver_count() == 0)
            {
                self.views.remove(key);
                self.overlays.remove(key);
                self.state.handle_view_unused(key);
            }
        }
        let fleet = &close.node.node.cluster;
        if close.kind == StreamKind::Lrs
            && let Some(instructions) = self.instructions.get(fleet)
            && instructions.receiver_count() == 0
        {
            self.instructions.remove(fleet);
        }
    }

    fn publish(&mut self) {
        while let Some((key, view)) = self.state.poll_view() {
            if let Some(views) = self.views.get(&key) {
                views.send_replace(view);
            }
        }
        while let Some((key, overlay)) = self.state.poll_overlay() {
            if let Some(overlays) = self.overlays.get(&key) {
                overlays.send_replace(overlay);
            }
        }
        while let Some((fleet, traffic)) = self.state.poll_traffic() {
            if let Some(instructions) = self.instructions.get(&fleet) {
                instructions.send_modify(|current| current.traffic = traffic);
            }
        }
        while let Some(event) = self.state.poll_event() {
            self.counters.event(&event);
            let now = self.clock.now();
            self.recent.event(&event, now);
            log(&event, self.state.config(), &self.throttle, now);
        }
        self.publish_records();
    }

    /// Hands over the records that changed to the task that writes them to the store.
    fn publish_records(&mut self) {
        let Some(store) = &self.store else {
            return;
        };
        let mut changed = false;
        while let Some((key, write)) = self.state.poll_store_write() {
            changed = true;
            let Err(TooLarge(bytes)) = store.outbox.push(key.clone(), &write) else {
                continue;
            };
            self.counters.limit_exceeded("store_record");
            if let Some(suppressed) = self.throttle.admit("store_record", self.clock.now()) {
                let NodeKey { fleet, id } = key;
                log_line!(log_lines::RECORD_TOO_LARGE, %fleet, node = %id, bytes, suppressed);
            }
        }
        if changed {
            store.changed.notify_one();
        }
    }
}

/// Logs an event. Lines that peers cause are limited.
fn log(event: &ControlEvent, config: &ControlConfig, throttle: &Throttle, now: Instant) {
    match event {
        ControlEvent::StreamRefused {
            fleet,
            node,
            refusal,
        } => {
            let Some(suppressed) = throttle.admit(refusal.limit(), now) else {
                return;
            };
            let reason = refusal.to_string();
            if matches!(refusal, OpenRefusal::DuplicateId { .. }) {
                log_line!(log_lines::DUPLICATE_NODE, %fleet, %node, reason, suppressed);
            } else {
                log_line!(log_lines::STREAM_REFUSED, %fleet, %node, reason, suppressed);
            }
        }
        ControlEvent::Planner(event @ PlannerEvent::NodeCapped { .. }) => {
            if let Some(suppressed) = throttle.admit("node_capped", now) {
                log_line!(log_lines::NODE_CAPPED, ?event, suppressed);
            }
        }
        ControlEvent::HeartbeatShortened {
            cluster,
            staleness_threshold: threshold,
            written,
            heartbeat,
        } => {
            if config.heartbeat_error.is_some() {
                log_line!(
                    log_lines::HEARTBEAT_SHORTENED,
                    %cluster, ?threshold, ?written, ?heartbeat
                );
            } else {
                log_line!(log_lines::DEFAULT_HEARTBEAT_SHORTENED, %cluster, ?threshold, ?heartbeat);
            }
        }
        ControlEvent::DuplicateNode {
            fleet,
            node,
            replica,
        } => log_duplicate([fleet, node, replica], throttle, now),
        ControlEvent::StoreConnected { nodes } => log_line!(log_lines::STORE_CONNECTED, nodes),
        ControlEvent::StoreLost { reason } => log_line!(log_lines::STORE_LOST, reason),
        ControlEvent::ConfigApplied { services } => {
            log_line!(log_lines::CONFIG_APPLIED, services);
        }
        ControlEvent::FleetChanged { fleet, nodes } => {
            log_line!(log_lines::FLEET_CHANGED, %fleet, nodes);
        }
        ControlEvent::Planner(event @ PlannerEvent::ReportIgnored { .. }) => {
            if let Some(suppressed) = throttle.admit("report_ignored", now) {
                log_line!(log_lines::REPORT_IGNORED, ?event, suppressed);
            }
        }
        ControlEvent::Planned(plan) => {
            let PlanScope {
                fleet,
                upstream_cluster,
            } = &plan.scope;
            let cause = cause(plan.cause);
            log_line!(log_lines::PLANNED, %fleet, ?upstream_cluster, cause);
        }
        ControlEvent::Planner(event) => {
            if let Some(suppressed) = throttle.admit("demand_changed", now) {
                log_line!(log_lines::DEMAND_CHANGED, ?event, suppressed);
            }
        }
    }
}

fn log_duplicate([fleet, node, replica]: [&Arc<str>; 3], throttle: &Throttle, now: Instant) {
    if let Some(suppressed) = throttle.admit("duplicate_at_replicas", now) {
        log_line!(log_lines::DUPLICATE_AT_REPLICAS, %fleet, %node, %replica, suppressed);
    }
}
