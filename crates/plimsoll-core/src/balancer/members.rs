//! [`Members`]: the hosts of a cluster as the writer keeps them, with every judge's word on them.
//!
//! Reconciles an assignment with what is known: a host that stays keeps its [`Host`], and with it
//! its counters and its requests in flight. Builds the tables of a priority. Deciding what follows
//! (loads, zone-aware routing, publication) is the balancer's business.

use std::collections::BTreeMap;
use std::mem;
use std::net::SocketAddr;
use std::sync::Arc;

use crate::counts::HostSetCounts;
use crate::host::{ClusterLoad, Host};
use crate::model::assignment::{
    ClusterLoadAssignment, DEFAULT_OVERPROVISIONING_FACTOR, DropOverload, LbEndpoint,
    LocalityLbEndpoints,
};
use crate::model::cluster::HealthChecking;
use crate::model::health::{HealthClass, HealthFlags, HealthSignal};
use crate::model::locality::Locality;
use crate::priority::PriorityHealthPolicy;
use crate::snapshot::{PriorityTable, SlotHosts};
use crate::time::Instant;

/// One host and what the judges say about it.
#[derive(Debug)]
pub(super) struct Member {
    pub(super) host: Arc<Host>,
    pub(super) health: HealthFlags,
    /// Start of its slow-start ramp: first seen, or when its active check began to pass.
    pub(super) ramp_from: Instant,
}

#[derive(Debug)]
struct Slot {
    locality: Locality,
    weight: u32,
    /// Sorted by address.
    members: Vec<Member>,
}

/// Hosts of one priority, in balancer order.
#[derive(Debug, Default)]
struct Priority {
    slots: Vec<Slot>,
    has_local_locality: bool,
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
type Place = (usize, usize, usize);

/// All hosts of a cluster.
#[derive(Debug)]
pub(super) struct Members {
    own: Option<Locality>,
    priorities: Vec<Priority>,
    pub(super) policy: PriorityHealthPolicy,
    pub(super) drop_overloads: Arc<[DropOverload]>,
    cluster: Arc<ClusterLoad>,
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
            cluster: Arc::default(),
            places: None,
        }
    }

    /// Takes over an assignment. Priorities never disappear, as in Envoy: they become empty.
    pub(super) fn reconcile(
        &mut self,
        assignment: &ClusterLoadAssignment,
        checking: HealthChecking,
        now: Instant,
    ) -> Change {
        let policy = PriorityHealthPolicy {
            overprovisioning_factor: assignment.overprovisioning_factor(),
            weighted_priority_health: assignment.weighted_priority_health(),
        };
        let policy_changed = mem::replace(&mut self.policy, policy) != policy;
        if *self.drop_overloads != *assignment.drop_overloads() {
            self.drop_overloads = assignment.drop_overloads().into();
        }
        let mut pass = Reconciliation {
            cluster: Arc::clone(&self.cluster),
            checking,
            now,
            leftovers: Vec::new(),
            pending: Vec::new(),
        };
        let highest = assignment
            .endpoints()
            .last()
            .map_or(0, |entry| entry.priority as usize + 1);
        let count = highest.max(self.priorities.len()).max(1);
        let mut dirty = vec![policy_changed; count];
        let mut entries = assignment.endpoints().iter().peekable();
        let mut old = mem::take(&mut self.priorities).into_iter();
        for (number, changed) in dirty.iter_mut().enumerate() {
            let mut mine = Vec::new();
            while let Some(entry) = entries.next_if(|entry| entry.priority as usize == number) {
                mine.push(entry);
            }
            let before = old.next();
            *changed |= before.is_none();
            let (priority, differs) = pass.priority(number, before, &mine, self.own.as_ref());
            *changed |= differs;
            self.priorities.push(priority);
        }
        let (added, removed) = self.settle(pass);
        if added + removed > 0 || dirty.contains(&true) {
            self.places = None;
        }
        let dirty = dirty
            .iter()
            .enumerate()
            .filter(|&(_, &dirty)| dirty)
            .map(|(p, _)| p)
            .collect();
        Change {
            added,
            removed,
            total: self.iter().count(),
            dirty,
        }
    }

    /// Hosts that moved to another priority keep their `Host`. Returns (added, removed).
    fn settle(&mut self, mut pass: Reconciliation) -> (usize, usize) {
        let mut added = pass.pending.len();
        pass.leftovers.sort_by_key(|member| member.host.address());
        for (priority, slot, position) in pass.pending {
            let Some(slot) = self.priorities[priority].slots.get_mut(slot) else {
                continue;
            };
            let fresh = &mut slot.members[position];
            let address = fresh.host.address();
            let found = pass
                .leftovers
                .binary_search_by_key(&address, |old| old.host.address());
            if let Ok(index) = found
                && same_identity(&pass.leftovers[index].host, &fresh.host)
            {
                let mut old = pass.leftovers.remove(index);
                old.host.set_weight(fresh.host.weight());
                old.health = old.health.with_eds(fresh.health.eds());
                *fresh = old;
                added -= 1;
            }
        }
        (added, pass.leftovers.len())
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

    /// Healthy members: those that slow start is for.
    pub(super) fn healthy(&self) -> impl Iterator<Item = &Member> {
        self.iter()
            .filter(|member| member.health.class() == HealthClass::Healthy)
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

    /// The table of one priority.
    pub(super) fn table(&self, priority: usize) -> PriorityTable {
        let priority = &self.priorities[priority];
        let slots = priority.slots.iter().map(|slot| SlotHosts {
            locality: &slot.locality,
            weight: slot.weight,
            hosts: slot
                .members
                .iter()
                .map(|member| (&member.host, member.health)),
        });
        let factor = self.policy.overprovisioning_factor;
        PriorityTable::build(slots, priority.has_local_locality, factor)
    }

    fn place(&mut self, address: SocketAddr) -> Option<Place> {
        let priorities = &self.priorities;
        let places = self.places.get_or_insert_with(|| {
            let mut places = Vec::new();
            for (p, priority) in priorities.iter().enumerate() {
                for (s, slot) in priority.slots.iter().enumerate() {
                    let members = slot.members.iter().enumerate();
                    places.extend(members.map(|(m, member)| (member.host.address(), (p, s, m))));
                }
            }
            places.sort_unstable();
            places
        });
        let index = places
            .binary_search_by_key(&address, |&(key, _)| key)
            .ok()?;
        Some(places[index].1)
    }
}

/// State of one pass over an assignment.
struct Reconciliation {
    cluster: Arc<ClusterLoad>,
    checking: HealthChecking,
    now: Instant,
    /// Known hosts that are not where they were.
    leftovers: Vec<Member>,
    /// Places of hosts that were not known there.
    pending: Vec<Place>,
}

impl Reconciliation {
    /// One priority after the assignment, and whether anything in it changed.
    fn priority(
        &mut self,
        number: usize,
        old: Option<Priority>,
        entries: &[&LocalityLbEndpoints],
        own: Option<&Locality>,
    ) -> (Priority, bool) {
        let mut known: BTreeMap<Locality, Slot> = BTreeMap::new();
        for slot in old.map(|old| old.slots).unwrap_or_default() {
            known.insert(slot.locality.clone(), slot);
        }
        // Sorted already; the own locality moves to the front.
        let mut order: Vec<&LocalityLbEndpoints> = entries.to_vec();
        let has_local_locality = HostSetCounts::order(&mut order, own, |entry| &entry.locality);
        let mut changed = false;
        let mut slots = Vec::with_capacity(order.len());
        for (index, entry) in order.into_iter().enumerate() {
            let before = known.remove(&entry.locality);
            changed |= before
                .as_ref()
                .is_none_or(|old| old.weight != entry.load_balancing_weight);
            let old = before.map(|slot| slot.members).unwrap_or_default();
            let (members, differs) = self.slot(old, entry, (number, index));
            changed |= differs;
            slots.push(Slot {
                locality: entry.locality.clone(),
                weight: entry.load_balancing_weight,
                members,
            });
        }
        changed |= !known.is_empty();
        self.leftovers
            .extend(known.into_values().flat_map(|slot| slot.members));
        (
            Priority {
                slots,
                has_local_locality,
            },
            changed,
        )
    }

    /// Merge-joins one slot by address; both sides are sorted.
    fn slot(
        &mut self,
        old: Vec<Member>,
        entry: &LocalityLbEndpoints,
        (priority, slot): (usize, usize),
    ) -> (Vec<Member>, bool) {
        let mut changed = old.len() != entry.lb_endpoints.len();
        let mut old = old.into_iter().peekable();
        let mut members = Vec::with_capacity(entry.lb_endpoints.len());
        for endpoint in &entry.lb_endpoints {
            while let Some(gone) = old.next_if(|old| old.host.address() < endpoint.address) {
                self.leftovers.push(gone);
                changed = true;
            }
            let same = |old: &Member| old.host.address() == endpoint.address;
            match old.next_if(same) {
                Some(kept) if is_endpoint(&kept.host, endpoint) => {
                    let (kept, differs) = update(kept, endpoint);
                    changed |= differs;
                    members.push(kept);
                }
                other => {
                    self.leftovers.extend(other);
                    self.pending.push((priority, slot, members.len()));
                    members.push(self.fresh(endpoint, &entry.locality));
                    changed = true;
                }
            }
        }
        changed |= old.peek().is_some();
        self.leftovers.extend(old);
        (members, changed)
    }

    fn fresh(&self, endpoint: &LbEndpoint, locality: &Locality) -> Member {
        let eds = endpoint.health_status;
        let health = if self.checking.active {
            let ignore = self.checking.ignore_new_hosts_until_first_hc;
            HealthFlags::awaiting_first_check(eds, ignore)
        } else {
            HealthFlags::from_eds(eds)
        };
        let host = Arc::new(Host::new(endpoint, locality, Arc::clone(&self.cluster)));
        Member {
            host,
            health,
            ramp_from: self.now,
        }
    }
}

/// The same member after the assignment's new word on it, and whether that changed anything.
fn update(mut member: Member, endpoint: &LbEndpoint) -> (Member, bool) {
    let changed =
        member.host.weight() != endpoint.weight() || member.health.eds() != endpoint.health_status;
    member.host.set_weight(endpoint.weight());
    member.health = member.health.with_eds(endpoint.health_status);
    (member, changed)
}

/// A host whose name or hash key changed is another host: both are part of its identity in tables.
fn is_endpoint(host: &Host, endpoint: &LbEndpoint) -> bool {
    host.hostname() == &endpoint.hostname && host.hash_key() == endpoint.hash_key.as_ref()
}

fn same_identity(one: &Host, other: &Host) -> bool {
    one.locality() == other.locality()
        && one.hostname() == other.hostname()
        && one.hash_key() == other.hash_key()
}
