//! [`State`]: the core of the control plane, a state machine without IO.
//!
//! It has no state of its own beside its four owners, each of which is a state machine with its own
//! tests and does not know the others:
//!
//! * `Configuration`: services of all sources and a relayed server; yields what changed
//! * `Membership`: nodes of each fleet; yields nodes that left and fleets that changed
//! * `Demand`: the planner and what replicas share; yields plans that may be delivered, and what
//!   hosts can serve, which goes back to `Configuration`
//! * `Outputs`: encoded resources by key; yields those that changed
//!
//! The writer calls the `handle_*` methods for inputs and then drains [`State::poll_output`],
//! [`State::poll_traffic`], [`State::poll_event`] and [`State::poll_timeout`], in this order. An
//! input goes to its owner, and what follows from it to the next ones, always in the order above.

mod queries;

use std::sync::Arc;
use std::time::Duration;

use plimsoll_core::evacuation::{Order, Suspect, ZoneName};
use plimsoll_core::model::load_report::{ClusterHostStats, ClusterStats};
use plimsoll_core::time::Instant;
use plimsoll_xds::lrs::LrsTraffic;
use plimsoll_xds::node::NodeInfo;

use crate::config::ControlConfig;
use crate::demand::{Demand, SharedMember};
use crate::evacuation::{Commanded, ZoneCommand};
use crate::events::EventQueue;
use crate::fleet::{MemberKey, Membership, OpenRefusal, Peer, StreamKind};
use crate::output::{Inputs, Output, Outputs};
use crate::relay::RelayedResource;
use crate::replicas::{NodeKey, OrderInput, PlanKey, Proposal, StoreInput, Write};
use crate::services::{Configuration, ServiceChanges};

pub use crate::events::ControlEvent;
pub use crate::fleet::{Suspects, Suspicion};
pub use crate::output::{TrafficKey, ViewKey};

/// State of the control plane.
#[derive(Debug)]
pub struct State {
    services: Configuration,
    fleets: Membership,
    demand: Demand,
    outputs: Outputs,
    events: EventQueue,
}

impl State {
    /// Creates the state of a control plane that has not seen any node yet.
    pub fn new(config: Arc<ControlConfig>, now: Instant) -> Self {
        let services = Configuration::new(config);
        let settings = services.fleet_settings();
        let mut demand = Demand::new(services.in_force(), now);
        demand.handle_zones(settings.counted.clone());
        let mut state = Self {
            outputs: Outputs::new(services.in_force()),
            fleets: Membership::new(settings),
            services,
            demand,
            events: EventQueue::default(),
        };
        state.collect_events(now);
        state
    }

    /// Sets the Unix time of `Instant::ORIGIN`, for timestamps in LRS responses.
    #[must_use]
    pub fn with_unix_origin(mut self, since_epoch: Duration, now: Instant) -> Self {
        self.outputs.set_unix_origin(since_epoch);
        self.services.start_zones(since_epoch, now);
        self.apply_change(now);
        self.collect_events(now);
        self
    }

    /// Makes this control plane one of several replicas. `instance` differs between processes with
    /// the same name.
    #[must_use]
    pub fn with_replicas(mut self, replica: Arc<str>, instance: u64) -> Self {
        self.demand
            .set_replica(replica, instance, self.services.agreed());
        self.fleets.handle_store_connected(false, Instant::ORIGIN);
        self
    }

    /// Activates a new configuration and updates all outputs.
    pub fn handle_config(&mut self, config: Arc<ControlConfig>, now: Instant) {
        self.services.handle_config(config, now);
        self.apply_change(now);
        self.settle(now);
    }

    /// Adds, replaces and removes services of a source.
    pub fn handle_services(&mut self, changes: ServiceChanges, now: Instant) {
        self.services.handle_services(changes);
        self.apply_change(now);
        self.settle(now);
    }

    /// Takes a zone out of use, or returns it.
    pub(crate) fn handle_command(&mut self, command: ZoneCommand, now: Instant) -> Commanded {
        let done = self.services.handle_command(command, now);
        self.apply_change(now);
        self.settle(now);
        done
    }

    /// Replaces the zones that are ill by the latest reports.
    pub(crate) fn handle_suspects(
        &mut self,
        suspects: Vec<Suspect>,
        would: Option<Arc<str>>,
        now: Instant,
    ) {
        self.services.handle_suspects(suspects, would);
        self.collect_events(now);
    }

    /// Takes over orders that are kept, in the store or in a file.
    pub(crate) fn handle_orders(&mut self, input: OrderInput, now: Instant) {
        self.services.handle_orders(input, now);
        self.apply_change(now);
        self.settle(now);
    }

    /// Returns an order to keep; `None` as the order if it is to be deleted.
    pub(crate) fn poll_order_record(&mut self) -> Option<(ZoneName, Option<Order>)> {
        self.services.poll_record()
    }

    /// Updates the policy or endpoints of a cluster of the relayed server.
    pub fn handle_relayed(&mut self, relayed: RelayedResource, now: Instant) {
        self.services.handle_relayed(relayed);
        self.apply_change(now);
        self.settle(now);
    }

    /// Registers a stream of a node that `peer` opened. Returns the key of the node's output.
    pub fn handle_open(
        &mut self,
        node: &NodeInfo,
        kind: StreamKind,
        returning: bool,
        peer: &Peer,
        now: Instant,
    ) -> Result<ViewKey, OpenRefusal> {
        let is_starting = self.demand.gate().is_starting(&node.node.cluster, now);
        let key = ViewKey::of(node, returning && is_starting);
        if let Err(refusal) = self.fleets.handle_open(node, kind, peer, now) {
            self.collect_events(now);
            return Err(refusal);
        }
        self.apply_left();
        if self.demand.handle_open(node, kind, now) {
            let taken_over = NodeKey::of(&node.node);
            self.fleets
                .handle_unshared(&member_key(taken_over), false, now);
        }
        self.settle(now);
        if kind == StreamKind::Ads {
            let (outputs, inputs) = self.outputs_and_inputs();
            outputs.add(&key, &inputs);
        }
        Ok(key)
    }

    /// Unregisters a stream of a node.
    pub fn handle_close(&mut self, node: &NodeInfo, kind: StreamKind, now: Instant) {
        let is_last = self.fleets.handle_close(&node.node, kind, now);
        self.demand.handle_close(&node.node, kind, is_last, now);
        self.settle(now);
    }

    /// Drops an output that has no receivers left.
    pub fn handle_output_unused(&mut self, key: &ViewKey) {
        self.outputs.handle_unused(key);
    }

    /// Processes a load report. Only configured clusters count, unless `wants_all_reports`.
    pub fn handle_report(&mut self, node: &NodeInfo, stats: &[ClusterStats], now: Instant) {
        let counted = self.demand.counted(&node.node.cluster, stats);
        self.fleets.handle_report(&node.node, &counted);
        self.demand.handle_report(node, &counted, now);
        self.settle(now);
    }

    /// Processes what a load report says of hosts, after [`Self::handle_report`].
    pub fn handle_host_stats(&mut self, node: &NodeInfo, stats: &[ClusterHostStats]) {
        self.demand.handle_host_stats(node, stats);
    }

    /// Handles a change in the store, or of the connection to it.
    pub fn handle_store(&mut self, input: StoreInput, now: Instant) {
        if let StoreInput::Order(input) = input {
            self.handle_orders(input, now);
            return;
        }
        let change = self.demand.handle_store(input, now);
        self.apply_members(now);
        let is_connected = self.demand.is_connected();
        self.fleets.handle_store_connected(is_connected, now);
        self.demand.finish_store(change, self.fleets.fleets(), now);
        self.settle(now);
    }

    /// Processes timers that have expired.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.services.handle_timeout(now);
        self.apply_change(now);
        self.demand.handle_replicas_timeout(now);
        self.apply_members(now);
        self.demand.handle_planner_timeout(now);
        self.fleets.handle_timeout(now);
        self.apply_left();
        if self.demand.handle_start_timeout(now) {
            self.outputs.handle_started();
        }
        self.settle(now);
    }

    /// Returns the latest version of an output that has changed since the last call.
    pub fn poll_output(&mut self) -> Option<(ViewKey, Output)> {
        self.refresh();
        self.outputs.poll_output()
    }

    /// Returns receivers whose demand has changed, with the demand for their LRS responses.
    pub fn poll_traffic(&mut self) -> Option<(TrafficKey, Arc<LrsTraffic>)> {
        self.refresh();
        self.outputs.poll_traffic()
    }

    /// Returns the next event.
    pub fn poll_event(&mut self) -> Option<ControlEvent> {
        self.events.pop()
    }

    /// Returns the next record to write to the store.
    pub fn poll_store_write(&mut self) -> Option<(NodeKey, Write)> {
        self.demand.poll_write()
    }

    /// Returns the next plan to propose to the store.
    pub fn poll_proposal(&mut self) -> Option<(PlanKey, Proposal)> {
        self.demand.poll_proposal()
    }

    /// Returns when to call [`State::handle_timeout`]; may be in the past.
    pub fn poll_timeout(&self) -> Option<Instant> {
        let deadlines = [
            self.services.poll_timeout(),
            self.demand.poll_timeout(),
            self.fleets.poll_timeout(),
        ];
        deadlines.into_iter().flatten().min()
    }

    /// Passes what changed in the configuration to the owners that depend on it.
    fn apply_change(&mut self, now: Instant) {
        let Some(change) = self.services.poll_change() else {
            return;
        };
        let (config, agreed) = (self.services.in_force(), self.services.agreed());
        let fleets = self.fleets.fleets();
        let is_all = self.outputs.handle_change(&change, config, fleets);
        if is_all || change.services.settings {
            self.demand.handle_settings(config, agreed, now);
        } else {
            self.demand.handle_endpoints(config, agreed);
        }
        if change.is_edit {
            let interval = config.reporting.load_reporting_interval;
            self.demand.handle_interval(interval, now);
        }
        if is_all || change.has_new_zones {
            let settings = self.services.fleet_settings();
            self.demand.handle_zones(settings.counted.clone());
            self.fleets.handle_settings(settings, now);
        }
        let names = Some(&change.services.names).filter(|_| !is_all);
        self.demand.handle_services(names, now);
    }

    /// Passes on nodes of other replicas that joined or left.
    fn apply_members(&mut self, now: Instant) {
        while let Some(member) = self.demand.poll_member(self.fleets.fleets(), now) {
            match member {
                SharedMember::Joined(node) => {
                    if self.fleets.handle_shared(&node, now).is_err() {
                        self.demand.handle_refused(&NodeKey::of(&node.node));
                    }
                    self.apply_left();
                }
                SharedMember::Owned(node) => {
                    self.fleets.handle_unshared(&member_key(node), false, now);
                }
                SharedMember::Left(node) => {
                    self.fleets.handle_unshared(&member_key(node), true, now);
                }
            }
        }
    }

    /// Passes on nodes that left their fleets.
    fn apply_left(&mut self) {
        while let Some((fleet, id)) = self.fleets.poll_left() {
            self.demand.handle_left(&NodeKey { fleet, id });
        }
    }

    /// Passes on what is due, and collects what the owners have to tell.
    fn settle(&mut self, now: Instant) {
        self.demand.handle_replicas_timeout(now);
        self.apply_members(now);
        while let Some((fleet, hosts)) = self.fleets.poll_due(now) {
            self.demand.handle_hosts(&fleet, hosts, now);
        }
        self.demand.handle_due(self.fleets.fleets(), now);
        while let Some((service, learned)) = self.demand.poll_learned(now) {
            self.services.handle_learned(service, learned);
        }
        self.apply_change(now);
        while let Some(fleet) = self.demand.poll_fleet() {
            self.outputs.handle_fleet(fleet);
        }
        while let Some(service) = self.demand.poll_service() {
            self.outputs.handle_service(service);
        }
        self.collect_events(now);
    }

    fn collect_events(&mut self, now: Instant) {
        while let Some(event) = self.services.poll_event() {
            self.events.push(event);
        }
        while let Some(event) = self.fleets.poll_event() {
            self.events.push(event);
        }
        while let Some(event) = self.demand.poll_event() {
            self.fleets.handle_event(&event, now);
            self.events.push(event);
        }
    }

    /// Brings outputs up to date.
    fn refresh(&mut self) {
        let (outputs, inputs) = self.outputs_and_inputs();
        for fleet in outputs.refresh(&inputs) {
            self.demand.handle_fleet_gone(&fleet);
        }
    }

    fn outputs_and_inputs(&mut self) -> (&mut Outputs, Inputs<'_>) {
        let inputs = Inputs {
            config: self.services.in_force(),
            relayed: self.services.relayed(),
            fleets: self.fleets.fleets(),
            plans: self.demand.plans(),
            gate: self.demand.gate(),
        };
        (&mut self.outputs, inputs)
    }
}

fn member_key(NodeKey { fleet, id }: NodeKey) -> MemberKey {
    (fleet, id)
}

#[cfg(test)]
pub(crate) mod tests;
