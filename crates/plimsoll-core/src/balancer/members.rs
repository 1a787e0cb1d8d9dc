//! [`Members`]: the hosts of a cluster as the writer keeps them, with every judge's word on them.
//!
//! Takes the judges' words and builds the tables of a priority. How an assignment is taken over
//! lives in `reconcile`; deciding what follows (loads, zone-aware routing, publication) is the
//! balancer's business.

use std::net::SocketAddr;
use std::sync::Arc;

use super::load_stats::Ledger;
use crate::host::in_flight::{CounterBlocks, CounterPlace, Counters};
use crate::host::{ClusterLoad, DropCounts, Host, RequestCounts};
use crate::model::assignment::{DEFAULT_OVERPROVISIONING_FACTOR, DropOverload, LbEndpoint};
use crate::model::health::{HealthFlags, HealthSignal};
use crate::model::locality::Locality;
use crate::model::orca::MetricName;
use crate::priority::PriorityHealthPolicy;
use crate::snapshot::{PriorityTable, Roster, SlotHosts, SlotRoster};
use crate::time::Instant;

mod reconcile;

/// One host and what the judges say about it.
#[derive(Debug)]
pub(super) struct Member {
    pub(super) host: Arc<Host>,
    /// What the assignment last said of it. Kept beside the host, so that an assignment is compared
    /// and tables are built without a visit to every host in memory.
    pub(super) endpoint: LbEndpoint,
    pub(super) counter: CounterPlace,
    pub(super) health: HealthFlags,
    /// Start of its slow-start ramp: first seen, or when its active check began to pass.
    pub(super) ramp_from: Instant,
    pub(super) priority: u32,
    /// What of its requests was in load reports.
    pub(super) reported: RequestCounts,
}

/// The hosts of one locality at one priority.
#[derive(Debug)]
pub(super) struct Slot {
    pub(super) locality: Locality,
    pub(super) weight: u32,
    /// Sorted by address.
    pub(super) members: Vec<Member>,
    /// What tables need of the members; `None` when some came or went since it was built.
    roster: Option<SlotRoster>,
}

impl Slot {
    fn roster(&mut self) -> &SlotRoster {
        let members = &self.members;
        self.roster.get_or_insert_with(|| SlotRoster {
            hosts: members
                .iter()
                .map(|member| Arc::clone(&member.host))
                .collect(),
            counters: members.iter().map(|member| member.counter).collect(),
        })
    }
}

/// Hosts of one priority, in balancer order.
#[derive(Debug, Default)]
struct Priority {
    slots: Vec<Slot>,
    has_local_locality: bool,
    /// The hosts of all slots; `None` when some came or went since it was built.
    roster: Option<Arc<Roster>>,
}

/// What an assignment changed.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Change {
    pub(super) added: usize,
    pub(super) removed: usize,
    pub(super) total: usize,
    /// Priorities whose tables must be rebuilt.
    pub(super) dirty: Vec<usize>,
}

/// Where a member is: priority, slot, position.
pub(super) type Place = (usize, usize, usize);

/// All hosts of a cluster.
#[derive(Debug)]
pub(super) struct Members {
    own: Option<Locality>,
    priorities: Vec<Priority>,
    pub(super) policy: PriorityHealthPolicy,
    pub(super) drop_overloads: Arc<[DropOverload]>,
    pub(super) drop_counts: Arc<DropCounts>,
    /// Counts of hosts and orders that are no longer in force.
    pub(super) ledger: Ledger,
    cluster: Arc<ClusterLoad>,
    /// Metrics of load reports are asked for: hosts sum them.
    sum_metrics: bool,
    counters: Counters,
    /// Weights of hosts may be others than the assignment's: load reports made them.
    reported_weights: bool,
    /// Places by address; built when first asked for after a change of membership.
    places: Option<Vec<(SocketAddr, Place)>>,
}

impl Members {
    pub(super) fn new(own: Option<Locality>) -> Self {
        Self {
            own,
            priorities: Vec::new(),
            policy: PriorityHealthPolicy {
                overprovisioning_factor: DEFAULT_OVERPROVISIONING_FACTOR,
                weighted_priority_health: false,
            },
            drop_overloads: Arc::default(),
            drop_counts: Arc::default(),
            ledger: Ledger::default(),
            cluster: Arc::default(),
            sum_metrics: false,
            counters: Counters::default(),
            reported_weights: false,
            places: None,
        }
    }

    /// Takes a judge's word on a host. Returns the priority whose tables must be rebuilt, if its
    /// class changed; `None` also for an unknown address.
    pub(super) fn apply_signal(
        &mut self,
        address: SocketAddr,
        signal: HealthSignal,
        now: Instant,
    ) -> Option<usize> {
        let (priority, slot, position) = self.place(address)?;
        let member = self.priorities[priority].slots[slot]
            .members
            .get_mut(position)?;
        let before = member.health;
        member.health = before.after(signal);
        if signal == HealthSignal::ActiveCheckPassed && before != member.health {
            member.ramp_from = now;
        }
        let class = |health: HealthFlags| (health.class(), health.excluded());
        (class(before) != class(member.health)).then_some(priority)
    }

    /// All members, by priority, slot and address.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Member> {
        let slots = self.priorities.iter().flat_map(|priority| &priority.slots);
        slots.flat_map(|slot| &slot.members)
    }

    /// The same, to be changed.
    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Member> {
        let priorities = self.priorities.iter_mut();
        let slots = priorities.flat_map(|priority| &mut priority.slots);
        slots.flat_map(|slot| &mut slot.members)
    }

    /// What all hosts share.
    pub(super) const fn cluster_load(&self) -> &Arc<ClusterLoad> {
        &self.cluster
    }

    /// The metrics that load reports sum up. Hosts get room for them before anybody asks for it.
    pub(super) fn configure_metrics(&mut self, names: &[MetricName]) {
        if !names.is_empty() && !self.sum_metrics {
            self.sum_metrics = true;
            self.iter().for_each(|member| member.host.sum_metrics());
        }
        self.cluster.metrics.configure(names);
    }

    /// From now on weights of hosts are set from load reports, until the next assignment.
    pub(super) const fn use_reported_weights(&mut self) {
        self.reported_weights = true;
    }

    /// Hosts of one priority.
    pub(super) fn hosts_of(&self, priority: usize) -> impl Iterator<Item = &Host> + Clone {
        let slots = self.priorities[priority].slots.iter();
        slots.flat_map(|slot| slot.members.iter().map(|member| &*member.host))
    }

    /// How many priorities there are.
    pub(super) fn priorities(&self) -> usize {
        self.priorities.len()
    }

    /// The slots of one priority, in balancer order.
    pub(super) fn slots(&self, priority: usize) -> &[Slot] {
        &self.priorities[priority].slots
    }

    /// Whether the first slot of a priority is the own locality.
    pub(super) fn has_local_locality(&self, priority: usize) -> bool {
        self.priorities[priority].has_local_locality
    }

    /// The weight of a member in force.
    pub(super) fn weight_of(&self, member: &Member) -> u32 {
        member.weight(self.reported_weights)
    }

    /// Where requests in flight are counted.
    pub(super) const fn counter_blocks(&self) -> &CounterBlocks {
        self.counters.blocks()
    }

    /// The table of one priority.
    pub(super) fn table(&mut self, priority: usize) -> PriorityTable {
        let reported = self.reported_weights;
        let priority = &mut self.priorities[priority];
        let slots = &mut priority.slots;
        let roster = priority.roster.get_or_insert_with(|| {
            let slots: Vec<&SlotRoster> = slots.iter_mut().map(Slot::roster).collect();
            let blocks = self.counters.blocks().clone();
            Arc::new(Roster::new(slots.into_iter(), blocks))
        });
        let slots = slots.iter().map(|slot| SlotHosts {
            locality: &slot.locality,
            weight: slot.weight,
            hosts: slot
                .members
                .iter()
                .map(|member| (member.health, member.weight(reported))),
        });
        let factor = self.policy.overprovisioning_factor;
        PriorityTable::build(
            Arc::clone(roster),
            slots,
            priority.has_local_locality,
            factor,
        )
    }

    /// Where the host of an address is.
    pub(super) fn place(&mut self, address: SocketAddr) -> Option<Place> {
        let priorities = &self.priorities;
        let places = self.places.get_or_insert_with(|| {
            let mut places = Vec::new();
            for (p, priority) in priorities.iter().enumerate() {
                for (s, slot) in priority.slots.iter().enumerate() {
                    let members = slot.members.iter().enumerate();
                    places.extend(members.map(|(m, member)| (member.endpoint.address, (p, s, m))));
                }
            }
            // Slots are sorted already: a sort that knows runs has little to do.
            places.sort_by_key(|&(address, _)| address);
            places
        });
        let index = places
            .binary_search_by_key(&address, |&(key, _)| key)
            .ok()?;
        Some(places[index].1)
    }
}

impl Member {
    /// The weight in force; the host is asked only where it may know better.
    fn weight(&self, reported_weights: bool) -> u32 {
        if reported_weights {
            self.host.weight()
        } else {
            self.endpoint.weight()
        }
    }
}

#[cfg(test)]
mod tests;
