//! The hosts of a cluster, with their health, by priority and locality.
//!
//! Applies health signals and builds the host tables of each priority; `reconcile` applies
//! assignments. The balancer acts on the result.

use std::net::SocketAddr;
use std::sync::Arc;

use super::load_stats::Ledger;
use crate::host::in_flight::{CounterBlocks, CounterIndex, InFlightCounters};
use crate::host::{ClusterLoad, DropCounts, Host, RequestCounts};
use crate::model::assignment::{DEFAULT_OVERPROVISIONING_FACTOR, DropOverload, LbEndpoint};
use crate::model::health::{HealthFlags, HealthSignal};
use crate::model::locality::Locality;
use crate::model::orca::MetricName;
use crate::priority::PriorityHealthPolicy;
use crate::snapshot::{PriorityTable, Roster, SlotHosts, SlotRoster};
use crate::time::Instant;

mod reconcile;

#[derive(Debug)]
pub(super) struct Member {
    pub(super) host: Arc<Host>,
    /// Kept beside the host, so that comparing assignments does not touch every host in memory.
    pub(super) endpoint: LbEndpoint,
    pub(super) counter: CounterIndex,
    pub(super) health: HealthFlags,
    /// Start of slow start: when the host was first seen, or its active health check began to pass.
    pub(super) ramp_from: Instant,
    pub(super) priority: u32,
    pub(super) reported: RequestCounts,
}

#[derive(Debug)]
pub(super) struct Slot {
    pub(super) locality: Locality,
    pub(super) weight: u32,
    /// Members of the slot, sorted by address for merge joins.
    pub(super) members: Vec<Member>,
    /// Hosts and counters of the members; `None` if membership changed since it was built.
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

/// Hosts of one priority, the local locality first.
#[derive(Debug, Default)]
struct Priority {
    slots: Vec<Slot>,
    has_local_locality: bool,
    /// Rosters of all slots joined; `None` if membership changed since it was built.
    roster: Option<Arc<Roster>>,
}

#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Change {
    pub(super) added: usize,
    pub(super) removed: usize,
    pub(super) total: usize,
    pub(super) dirty: Vec<usize>,
}

/// Position of a member: priority, slot, index in the slot.
pub(super) type MemberIndex = (usize, usize, usize);

#[derive(Debug)]
pub(super) struct Members {
    own: Option<Locality>,
    priorities: Vec<Priority>,
    pub(super) policy: PriorityHealthPolicy,
    pub(super) drop_overloads: Arc<[DropOverload]>,
    pub(super) drop_counts: Arc<DropCounts>,
    pub(super) ledger: Ledger,
    cluster: Arc<ClusterLoad>,
    /// Whether `lrs_report_endpoint_metrics` is configured, so that hosts sum backend metrics.
    sum_metrics: bool,
    counters: InFlightCounters,
    /// Host weights may differ from the assignment, because load reports set them.
    reported_weights: bool,
    /// Index of members by address; built on first use after a change of membership.
    places: Option<Vec<(SocketAddr, MemberIndex)>>,
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
            counters: InFlightCounters::default(),
            reported_weights: false,
            places: None,
        }
    }

    /// Applies a health signal. Returns the priority whose tables must be rebuilt, if any.
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
        member.health = before.with_signal(signal);
        if signal == HealthSignal::ActiveCheckPassed && before != member.health {
            member.ramp_from = now;
        }
        let class = |health: HealthFlags| (health.class(), health.excluded());
        (class(before) != class(member.health)).then_some(priority)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Member> {
        self.priorities
            .iter()
            .flat_map(|priority| &priority.slots)
            .flat_map(|slot| &slot.members)
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Member> {
        self.priorities
            .iter_mut()
            .flat_map(|priority| &mut priority.slots)
            .flat_map(|slot| &mut slot.members)
    }

    pub(super) const fn cluster_load(&self) -> &Arc<ClusterLoad> {
        &self.cluster
    }

    /// Configures the metrics of load reports. Allocates the sums here, not on the request path.
    pub(super) fn configure_metrics(&mut self, names: &[MetricName]) {
        if !names.is_empty() && !self.sum_metrics {
            self.sum_metrics = true;
            self.iter().for_each(|member| member.host.sum_metrics());
        }
        self.cluster.metrics.configure(names);
    }

    /// Host weights are set from load reports from now on, until the next assignment.
    pub(super) const fn use_reported_weights(&mut self) {
        self.reported_weights = true;
    }

    pub(super) fn hosts_of(&self, priority: usize) -> impl Iterator<Item = &Host> + Clone {
        self.priorities[priority]
            .slots
            .iter()
            .flat_map(|slot| slot.members.iter().map(|member| &*member.host))
    }

    pub(super) fn priorities(&self) -> usize {
        self.priorities.len()
    }

    pub(super) fn slots(&self, priority: usize) -> &[Slot] {
        &self.priorities[priority].slots
    }

    pub(super) fn has_local_locality(&self, priority: usize) -> bool {
        self.priorities[priority].has_local_locality
    }

    pub(super) fn weight_of(&self, member: &Member) -> u32 {
        member.weight(self.reported_weights)
    }

    pub(super) const fn counter_blocks(&self) -> &CounterBlocks {
        self.counters.blocks()
    }

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

    pub(super) fn place(&mut self, address: SocketAddr) -> Option<MemberIndex> {
        let priorities = &self.priorities;
        let places = self.places.get_or_insert_with(|| {
            let mut places = Vec::new();
            for (p, priority) in priorities.iter().enumerate() {
                for (s, slot) in priority.slots.iter().enumerate() {
                    let members = slot.members.iter().enumerate();
                    places.extend(members.map(|(m, member)| (member.endpoint.address, (p, s, m))));
                }
            }
            // The slots are sorted runs, which this stable sort merges cheaply.
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
    /// Returns the weight in force. Reads it from the host only if load reports may have set it.
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
