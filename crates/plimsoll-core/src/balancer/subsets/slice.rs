//! [`Slice`]: some hosts of a cluster, by priority and locality, and what follows from them.
//!
//! Localities without a host of the slice keep their place, as in Envoy, so that zone-aware routing
//! and locality weights see the same localities everywhere. Lists are built anew only when hosts,
//! health or weights of the slice itself changed.

use std::collections::VecDeque;
use std::sync::Arc;

use super::{Members, Place};
use crate::balancer::members::{Member, Slot};
use crate::balancer::routing::{Changes, Routing, Shared};
use crate::model::cluster::ClusterConfig;
use crate::model::health::HealthFlags;
use crate::model::locality::Locality;
use crate::model::subset::LbSubsetConfig;
use crate::priority::PriorityHealthPolicy;
use crate::snapshot::{PriorityTable, Roster, RoutingSnapshot, SlotHosts, SlotRoster, ZoneContext};

/// What a refresh of subsets goes by.
pub(in crate::balancer) struct Refresh<'a> {
    /// Priorities whose hosts, health or weights changed, in ascending order.
    pub(in crate::balancer) priorities: &'a [usize],
    /// Endpoints, their metadata or the settings may have changed.
    pub(in crate::balancer) membership: bool,
    /// Nothing but the health of this host changed.
    pub(in crate::balancer) host: Option<Place>,
    /// The fleet or its demand changed.
    pub(in crate::balancer) zone: bool,
    /// The settings changed.
    pub(in crate::balancer) config: bool,
    /// What the snapshots of slices have in common.
    pub(in crate::balancer) common: Common<'a>,
}

/// What the snapshots of slices have in common.
pub(in crate::balancer) struct Common<'a> {
    pub(in crate::balancer) generation: u64,
    pub(in crate::balancer) config: &'a Arc<ClusterConfig>,
    pub(in crate::balancer) own: Option<&'a Locality>,
    pub(in crate::balancer) slow_start: bool,
    pub(in crate::balancer) zone: &'a ZoneContext,
}

/// Some hosts of a cluster.
#[derive(Debug, Default)]
pub(super) struct Slice {
    /// Positions by slot of the priority that is being divided.
    pub(super) incoming: Vec<Vec<u32>>,
    priorities: Vec<Selection>,
    routing: Routing,
    snapshot: Option<Arc<RoutingSnapshot>>,
}

/// The hosts of one priority.
#[derive(Debug, Default)]
struct Selection {
    /// Positions of the hosts, by slot, ascending.
    slots: Vec<Vec<u32>>,
    /// What its lists were built from.
    built: Option<Built>,
}

/// What the lists of a priority depend on.
#[derive(Debug)]
struct Built {
    roster: Arc<Roster>,
    terms: Terms,
}

/// What may change while the hosts stay.
#[derive(Debug, PartialEq)]
struct Terms {
    hosts: Vec<(HealthFlags, u32)>,
    localities: Vec<(Locality, u32)>,
    has_local_locality: bool,
    policy: PriorityHealthPolicy,
}

impl Slice {
    /// What joined since the last time is the hosts of this priority, which has so many slots.
    pub(super) fn settle(&mut self, priority: usize, slots: usize) {
        self.incoming.resize(slots, Vec::new());
        if self.priorities.len() <= priority {
            self.priorities
                .resize_with(priority + 1, Selection::default);
        }
        self.priorities[priority].slots = std::mem::take(&mut self.incoming);
    }

    pub(super) fn has_hosts(&self) -> bool {
        let mut slots = self.priorities.iter().flat_map(|it| &it.slots);
        slots.any(|slot| !slot.is_empty())
    }

    pub(super) fn contains(&self, (priority, slot, position): Place) -> bool {
        let slots = self.priorities.get(priority).map(|it| &*it.slots);
        let positions = slots.and_then(|slots| slots.get(slot));
        positions.is_some_and(|slot| {
            u32::try_from(position).is_ok_and(|position| slot.binary_search(&position).is_ok())
        })
    }

    pub(super) const fn snapshot(&self) -> Option<&Arc<RoutingSnapshot>> {
        self.snapshot.as_ref()
    }

    /// Recomputes what follows from what changed, if anything did.
    pub(super) fn refresh(
        &mut self,
        members: &Members,
        refresh: &Refresh<'_>,
        shared: &Shared<'_>,
    ) {
        let count = members.priorities();
        self.priorities.resize_with(count, Selection::default);
        let mut tables = Vec::new();
        for (priority, selection) in self.priorities.iter_mut().enumerate() {
            if selection.built.is_none() || refresh.priorities.contains(&priority) {
                let config = refresh.common.config.lb_subset_config();
                let table = selection.build(members, priority, config.map(|it| &**it));
                tables.extend(table.map(|table| (priority, Arc::new(table))));
            }
        }
        let common = &refresh.common;
        let ramped = |old: &RoutingSnapshot| old.slow_start != common.slow_start;
        let ticked = shared.load_tick && shared.config.load_aware_locality().is_some();
        let renew = self.snapshot.as_deref().is_none_or(ramped) || ticked;
        if tables.is_empty() && !refresh.zone && !refresh.config && !renew {
            return;
        }
        let changes = Changes {
            tables,
            zone: refresh.zone,
            config: refresh.config,
        };
        // Events speak of the whole cluster; explanations speak of subsets.
        self.routing.refresh(&changes, shared, &mut VecDeque::new());
        self.snapshot = Some(Arc::new(self.published(common)));
    }

    fn published(&self, common: &Common<'_>) -> RoutingSnapshot {
        RoutingSnapshot {
            generation: common.generation,
            ready: true,
            config: Arc::clone(common.config),
            own: common.own.cloned(),
            loads: self.routing.loads.clone(),
            priorities: self.routing.views.clone(),
            // Drops are decided before a subset is looked for.
            drop_overloads: Arc::default(),
            drop_counts: Arc::default(),
            slow_start: common.slow_start,
            zone: common.zone.clone(),
            subsets: None,
        }
    }
}

impl Selection {
    /// The lists of this priority, if they are others than before.
    fn build(
        &mut self,
        members: &Members,
        priority: usize,
        config: Option<&LbSubsetConfig>,
    ) -> Option<PriorityTable> {
        let slots = members.slots(priority);
        self.slots.resize(slots.len(), Vec::new());
        let terms = self.terms(members, priority, config);
        let roster = match &self.built {
            Some(built) if self.has_hosts(&built.roster, slots) => {
                if built.terms == terms {
                    return None;
                }
                Arc::clone(&built.roster)
            }
            _ => Arc::new(self.roster(members, priority)),
        };
        let mut left = &*terms.hosts;
        let lists = terms.localities.iter().zip(&self.slots);
        let lists: Vec<_> = lists
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
            terms.has_local_locality,
            terms.policy.overprovisioning_factor,
        );
        self.built = Some(Built { roster, terms });
        Some(table)
    }

    fn terms(&self, members: &Members, priority: usize, config: Option<&LbSubsetConfig>) -> Terms {
        let slots = members.slots(priority);
        let chosen = slots.iter().zip(&self.slots);
        Terms {
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

    /// Whether a roster has the hosts that are selected now.
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

/// The members of a slot at these positions.
fn hosts<'a>((slot, positions): (&'a Slot, &'a Vec<u32>)) -> impl Iterator<Item = &'a Member> {
    positions.iter().map(|&at| &slot.members[at as usize])
}

/// The weight of a locality of which `chosen` hosts are in the slice; 0 = none. In single
/// precision, as Envoy has it.
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
