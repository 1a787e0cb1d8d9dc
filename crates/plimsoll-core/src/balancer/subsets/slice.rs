//! Part of the hosts of a cluster, by priority and locality, with routing of its own.
//!
//! Localities without a host in the slice keep their slot, as in Envoy, so that zone-aware routing
//! and locality weights see the same localities everywhere. Host lists are rebuilt only if hosts,
//! health or weights of the slice itself changed.

use std::collections::VecDeque;
use std::sync::Arc;

use super::{MemberIndex, Members};
use crate::balancer::members::{Member, Slot};
use crate::balancer::routing::{Changes, ClusterContext, Routing};
use crate::model::cluster::ClusterConfig;
use crate::model::health::HealthFlags;
use crate::model::locality::Locality;
use crate::model::subset::LbSubsetConfig;
use crate::priority::PriorityHealthPolicy;
use crate::snapshot::{PriorityTable, Roster, RoutingSnapshot, SlotHosts, SlotRoster, ZoneContext};

pub(in crate::balancer) struct SubsetRefresh<'a> {
    /// Priorities whose hosts, health or weights changed, ascending.
    pub(in crate::balancer) priorities: &'a [usize],
    pub(in crate::balancer) membership: bool,
    pub(in crate::balancer) host: Option<MemberIndex>,
    pub(in crate::balancer) zone: bool,
    pub(in crate::balancer) config: bool,
    pub(in crate::balancer) snapshot: SnapshotContext<'a>,
}

pub(in crate::balancer) struct SnapshotContext<'a> {
    pub(in crate::balancer) generation: u64,
    pub(in crate::balancer) config: &'a Arc<ClusterConfig>,
    pub(in crate::balancer) own: Option<&'a Locality>,
    pub(in crate::balancer) slow_start: bool,
    pub(in crate::balancer) zone: &'a ZoneContext,
}

#[derive(Debug, Default)]
pub(super) struct Slice {
    /// Positions of the hosts that join, by slot of the priority that is being partitioned.
    pub(super) incoming: Vec<Vec<u32>>,
    priorities: Vec<Selection>,
    routing: Routing,
    snapshot: Option<Arc<RoutingSnapshot>>,
}

#[derive(Debug, Default)]
struct Selection {
    /// Ascending positions of the hosts in their slot, by slot.
    slots: Vec<Vec<u32>>,
    built: Option<Built>,
}

#[derive(Debug)]
struct Built {
    roster: Arc<Roster>,
    inputs: TableInputs,
}

/// Inputs of a host table that may change while the hosts stay.
#[derive(Debug, PartialEq)]
struct TableInputs {
    hosts: Vec<(HealthFlags, u32)>,
    localities: Vec<(Locality, u32)>,
    has_local_locality: bool,
    policy: PriorityHealthPolicy,
}

impl Slice {
    /// Makes the hosts that joined in this pass the hosts of `priority`, which has `slots` slots.
    pub(super) fn commit(&mut self, priority: usize, slots: usize) {
        self.incoming.resize(slots, Vec::new());
        if self.priorities.len() <= priority {
            self.priorities
                .resize_with(priority + 1, Selection::default);
        }
        self.priorities[priority].slots = std::mem::take(&mut self.incoming);
    }

    pub(super) fn has_hosts(&self) -> bool {
        self.priorities
            .iter()
            .flat_map(|it| &it.slots)
            .any(|slot| !slot.is_empty())
    }

    pub(super) fn contains(&self, (priority, slot, position): MemberIndex) -> bool {
        let selection = self.priorities.get(priority);
        let positions = selection.and_then(|it| it.slots.get(slot));
        positions.is_some_and(|slot| {
            u32::try_from(position).is_ok_and(|position| slot.binary_search(&position).is_ok())
        })
    }

    pub(super) const fn snapshot(&self) -> Option<&Arc<RoutingSnapshot>> {
        self.snapshot.as_ref()
    }

    pub(super) fn refresh(
        &mut self,
        members: &Members,
        refresh: &SubsetRefresh<'_>,
        context: &ClusterContext<'_>,
    ) {
        let count = members.priorities();
        self.priorities.resize_with(count, Selection::default);
        let mut tables = Vec::new();
        for (priority, selection) in self.priorities.iter_mut().enumerate() {
            if selection.built.is_none() || refresh.priorities.contains(&priority) {
                let config = refresh.snapshot.config.lb_subset_config();
                let table = selection.build(members, priority, config.map(|it| &**it));
                tables.extend(table.map(|table| (priority, Arc::new(table))));
            }
        }
        let snapshot_context = &refresh.snapshot;
        let ramped = |old: &RoutingSnapshot| old.slow_start != snapshot_context.slow_start;
        let ticked = context.load_tick && context.config.load_aware_locality().is_some();
        let renew = self.snapshot.as_deref().is_none_or(ramped) || ticked;
        if tables.is_empty() && !refresh.zone && !refresh.config && !renew {
            return;
        }
        let changes = Changes {
            tables,
            zone: refresh.zone,
            config: refresh.config,
        };
        // Discard a subset's events: events describe the cluster, explanations its subsets.
        self.routing
            .refresh(&changes, context, &mut VecDeque::new());
        self.snapshot = Some(Arc::new(self.published(snapshot_context)));
    }

    fn published(&self, snapshot_context: &SnapshotContext<'_>) -> RoutingSnapshot {
        RoutingSnapshot {
            generation: snapshot_context.generation,
            ready: true,
            config: Arc::clone(snapshot_context.config),
            own: snapshot_context.own.cloned(),
            loads: self.routing.loads.clone(),
            priorities: self.routing.views.clone(),
            // Drops are decided before the subset is chosen.
            drop_overloads: Arc::default(),
            drop_counts: Arc::default(),
            slow_start: snapshot_context.slow_start,
            zone: snapshot_context.zone.clone(),
            subsets: None,
        }
    }
}

impl Selection {
    fn build(
        &mut self,
        members: &Members,
        priority: usize,
        config: Option<&LbSubsetConfig>,
    ) -> Option<PriorityTable> {
        let slots = members.slots(priority);
        self.slots.resize(slots.len(), Vec::new());
        let inputs = self.inputs(members, priority, config);
        let roster = match &self.built {
            Some(built) if self.has_hosts(&built.roster, slots) => {
                if built.inputs == inputs {
                    return None;
                }
                Arc::clone(&built.roster)
            }
            _ => Arc::new(self.roster(members, priority)),
        };
        let mut left = &*inputs.hosts;
        let lists: Vec<_> = inputs
            .localities
            .iter()
            .zip(&self.slots)
            .map(|((locality, weight), positions)| {
                let (mine, rest) = left.split_at(positions.len());
                left = rest;
                SlotHosts {
                    locality,
                    weight: *weight,
                    hosts: mine.iter().copied(),
                }
            })
            .collect();
        let table = PriorityTable::build(
            Arc::clone(&roster),
            lists.into_iter(),
            inputs.has_local_locality,
            inputs.policy.overprovisioning_factor,
        );
        self.built = Some(Built { roster, inputs });
        Some(table)
    }

    fn inputs(
        &self,
        members: &Members,
        priority: usize,
        config: Option<&LbSubsetConfig>,
    ) -> TableInputs {
        let slots = members.slots(priority);
        let chosen = slots.iter().zip(&self.slots);
        TableInputs {
            hosts: chosen
                .clone()
                .flat_map(|(slot, positions)| {
                    let members_of = positions.iter().map(|&at| &slot.members[at as usize]);
                    members_of.map(|member| (member.health, members.weight_of(member)))
                })
                .collect(),
            localities: chosen
                .map(|(slot, positions)| {
                    let weight = config.map_or(0, |config| weight(config, slot, positions.len()));
                    (slot.locality.clone(), weight)
                })
                .collect(),
            has_local_locality: members.has_local_locality(priority),
            policy: members.policy,
        }
    }

    fn has_hosts(&self, roster: &Roster, slots: &[Slot]) -> bool {
        let selected = slots.iter().zip(&self.slots);
        roster.has_hosts(selected.map(|slot| hosts(slot).map(|member| &member.host)))
    }

    fn roster(&self, members: &Members, priority: usize) -> Roster {
        let slots: Vec<SlotRoster> = members
            .slots(priority)
            .iter()
            .zip(&self.slots)
            .map(|slot| SlotRoster {
                hosts: hosts(slot).map(|member| Arc::clone(&member.host)).collect(),
                counters: hosts(slot).map(|member| member.counter).collect(),
            })
            .collect();
        Roster::new(slots.iter(), members.counter_blocks().clone())
    }
}

fn hosts<'a>((slot, positions): (&'a Slot, &'a Vec<u32>)) -> impl Iterator<Item = &'a Member> {
    positions.iter().map(|&at| &slot.members[at as usize])
}

/// Weight of a locality with `chosen` hosts in the slice, 0 = none. Single precision, as in Envoy.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a part of a 32-bit weight, rounded as in Envoy"
)]
fn weight(config: &LbSubsetConfig, slot: &Slot, chosen: usize) -> u32 {
    if !config.locality_weight_aware() {
        return 0;
    }
    if !config.scale_locality_weight() {
        return slot.weight;
    }
    if slot.members.is_empty() {
        return 0;
    }
    let whole = u64::from(slot.weight) * chosen as u64;
    (whole as f32 / slot.members.len() as f32).round() as u32
}
