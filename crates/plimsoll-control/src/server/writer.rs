//! [`Writer`]: the task that owns the state.
//!
//! Messages are taken in bursts, and what changed is published once after each: a storm of
//! reconnecting proxies costs as many updates as there were bursts, not proxies.

use std::collections::BTreeMap;
use std::sync::Arc;

use plimsoll_core::model::load_report::ClusterStats;
use plimsoll_core::planner::{Grain, PlannerEvent};
use plimsoll_xds::ads::view::View;
use plimsoll_xds::driver::{Clock, LrsInstructions};
use plimsoll_xds::node::NodeInfo;
use tokio::sync::{mpsc, watch};

use super::recent::Recent;
use super::record::Records;
use super::{Close, Handle, Message, Opened, QUEUE, Ticket};
use crate::config::ControlConfig;
use crate::counters::{Counters, cause};
use crate::fleet::StreamKind;
use crate::relay::Overlay;
use crate::state::{ControlEvent, State, ViewKey};

/// Messages that are taken before what changed is published.
const BURST: usize = 256;

/// The task that owns the state.
#[derive(Debug)]
pub struct Writer {
    state: State,
    clock: Clock,
    messages: mpsc::Receiver<Message>,
    closes: mpsc::UnboundedReceiver<Close>,
    counters: Counters,
    recent: Arc<Recent>,
    /// For tickets. Closing must not wait, and there are never more of these than open streams.
    closer: mpsc::UnboundedSender<Close>,
    views: BTreeMap<ViewKey, watch::Sender<Arc<View>>>,
    /// Instead of views, behind a relay.
    overlays: BTreeMap<ViewKey, watch::Sender<Arc<Overlay>>>,
    /// By fleet.
    instructions: BTreeMap<Arc<str>, watch::Sender<LrsInstructions>>,
}

/// A writer and the way to it. It works as long as somebody polls [`Writer::run`].
pub fn start(config: Arc<ControlConfig>) -> (Writer, Handle) {
    let (messages, receiver) = mpsc::channel(QUEUE);
    let (closes, close_receiver) = mpsc::unbounded_channel();
    let clock = Clock::system();
    let counters = Counters::default();
    let recent = Arc::new(Recent::default());
    let writer = Writer {
        state: State::new(config, clock.now()).with_unix_origin(clock.unix_origin()),
        clock,
        messages: receiver,
        closes: close_receiver,
        counters: counters.clone(),
        recent: Arc::clone(&recent),
        closer: closes,
        views: BTreeMap::new(),
        overlays: BTreeMap::new(),
        instructions: BTreeMap::new(),
    };
    let handle = Handle {
        messages,
        records: Arc::new(Records::default()),
        recent,
        upstreams: Arc::default(),
        counters,
    };
    (writer, handle)
}

impl Writer {
    /// Works until every handle is gone.
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
                reply,
            } => {
                let key = self
                    .state
                    .handle_open(&node, StreamKind::Ads, returning, now);
                let ticket = self.ticket(node, StreamKind::Ads, Some(key.clone()));
                // Who asked may have gone.
                let _ = reply.send(self.open(key, ticket));
            }
            Message::OpenLrs { node, reply } => {
                self.state.handle_open(&node, StreamKind::Lrs, false, now);
                let fleet = &node.node.cluster;
                if !self.instructions.contains_key(fleet) {
                    let first = LrsInstructions {
                        settings: Arc::new(self.state.lrs_settings()),
                        traffic: self.state.traffic(fleet),
                    };
                    let sender = watch::Sender::new(first);
                    self.instructions.insert(Arc::clone(fleet), sender);
                }
                let instructions = self.instructions.get(fleet).map(watch::Sender::subscribe);
                let ticket = self.ticket(node, StreamKind::Lrs, None);
                if let Some(instructions) = instructions {
                    let _ = reply.send((instructions, ticket));
                }
            }
            Message::Report { node, stats } => {
                // Who was asked for all reports clusters of its own too, and rightly so.
                if !node.supports_send_all_clusters() && !self.state.wants_all_reports() {
                    let services = &self.state.config().services;
                    let unknown =
                        |stats: &&ClusterStats| !services.contains_key(&stats.cluster_name);
                    let unknown = stats.iter().filter(unknown).count();
                    self.counters.ignored("unknown_cluster", unknown as u64);
                }
                self.state.handle_report(&node, &stats, now);
            }
            Message::Relayed(relayed) => self.state.handle_relayed(relayed, now),
            Message::Config(config) => self.configure(config),
            Message::Inspect(look) => look(&self.state, now),
        }
    }

    /// What a stream with this key gets. It must not see an empty world first.
    fn open(&mut self, key: ViewKey, ticket: Ticket) -> Opened {
        if !self.views.contains_key(&key) && !self.overlays.contains_key(&key) {
            self.publish();
        }
        if let Some(relay) = self.state.config().relay.clone() {
            let overlays = self.overlays.entry(key.clone()).or_insert_with(|| {
                let overlay = self.state.overlay_of(&key).cloned();
                watch::Sender::new(overlay.unwrap_or_default())
            });
            return Opened::Relay(overlays.subscribe(), relay, ticket);
        }
        let views = self.views.entry(key.clone()).or_insert_with(|| {
            let view = self.state.view(&key).cloned();
            watch::Sender::new(view.unwrap_or_default())
        });
        Opened::View(views.subscribe(), ticket)
    }

    fn ticket(&self, node: Arc<NodeInfo>, kind: StreamKind, key: Option<ViewKey>) -> Ticket {
        Ticket {
            closes: self.closer.clone(),
            node,
            kind,
            key,
        }
    }

    fn configure(&mut self, config: Arc<ControlConfig>) {
        if config.relay != self.state.config().relay {
            // Streams end and come back to the other world.
            self.views.clear();
            self.overlays.clear();
        }
        self.state.handle_config(config, self.clock.now());
        let settings = Arc::new(self.state.lrs_settings());
        for instructions in self.instructions.values() {
            instructions.send_modify(|current| current.settings = Arc::clone(&settings));
        }
    }

    fn close(&mut self, close: &Close) {
        let now = self.clock.now();
        self.state.handle_close(&close.node, close.kind, now);
        if let Some(key) = &close.key {
            let unseen = self
                .views
                .get(key)
                .is_some_and(|view| view.receiver_count() == 0);
            let overlay = self.overlays.get(key);
            if unseen || overlay.is_some_and(|overlay| overlay.receiver_count() == 0) {
                self.views.remove(key);
                self.overlays.remove(key);
                self.state.handle_unused(key);
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
            self.recent.event(&event, self.clock.now());
            log(&event, self.state.config());
        }
    }
}

fn log(event: &ControlEvent, config: &ControlConfig) {
    match event {
        ControlEvent::HeartbeatShortened {
            cluster,
            staleness_threshold: threshold,
            written,
            heartbeat,
        } => {
            const MESSAGE: &str = "heartbeat is too long for a staleness threshold; shortened";
            match &config.heartbeat_fault {
                Some(_) => tracing::warn!(%cluster, ?threshold, ?written, ?heartbeat, MESSAGE),
                // Nobody wrote it down, so nobody is contradicted.
                None => tracing::info!(%cluster, ?threshold, ?written, ?heartbeat, MESSAGE),
            }
        }
        ControlEvent::ConfigApplied { services } => {
            tracing::info!(services, "configuration applied");
        }
        ControlEvent::FleetChanged { fleet, nodes } => {
            tracing::debug!(%fleet, nodes, "fleet changed");
        }
        ControlEvent::Planner(event @ PlannerEvent::ReportIgnored { .. }) => {
            tracing::warn!(?event, "load report ignored");
        }
        ControlEvent::Planned(plan) => {
            let Grain {
                fleet,
                upstream_cluster,
            } = &plan.grain;
            let cause = cause(plan.cause);
            tracing::debug!(%fleet, ?upstream_cluster, cause, "plan");
        }
        ControlEvent::Planner(event) => tracing::info!(?event, "demand"),
    }
}
