//! Reconciliation of [`Members`] with a new assignment.
//!
//! A host that stays keeps its [`Host`], and with it its counters and its requests in flight, even
//! if it moves to another priority. Slots whose hosts are unchanged are updated in place: usually
//! an assignment differs from the last one in a few hosts only.

use std::collections::BTreeMap;
use std::mem;
use std::sync::Arc;

use super::{Change, Member, MemberIndex, Members, Priority, Slot};
use crate::counts::HostSetCounts;
use crate::host::in_flight::InFlightCounters;
use crate::host::{ClusterLoad, DropCounts, Host, RequestCounts};
use crate::model::assignment::{ClusterLoadAssignment, LbEndpoint, LocalityLbEndpoints};
use crate::model::cluster::HealthChecking;
use crate::model::health::HealthFlags;
use crate::model::locality::Locality;
use crate::priority::PriorityHealthPolicy;
use crate::time::Instant;

impl Members {
    /// Applies an assignment. Priorities never disappear, as in Envoy: they become empty.
    pub(in crate::balancer) fn reconcile(
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
        self.take_over_drops(assignment);
        // The ledger goes first: it may hold the last reference to a removed host.
        self.ledger.sweep();
        self.counters.reclaim();
        let mut pass = Reconciliation {
            cluster: Arc::clone(&self.cluster),
            counters: mem::take(&mut self.counters),
            // After the reconciliation all host weights are those of the assignment.
            reported_weights: mem::take(&mut self.reported_weights),
            sum_metrics: self.sum_metrics,
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
        let (added, removed) = self.adopt_moved_hosts(pass);
        if self.priorities.iter().any(|it| it.roster.is_none()) {
            self.places = None;
        }
        Change {
            added,
            removed,
            total: self.iter().count(),
            dirty: (0..count).filter(|&priority| dirty[priority]).collect(),
        }
    }

    /// Replaces drop counters if `drop_overloads` changed; the ledger keeps unreported counts.
    fn take_over_drops(&mut self, assignment: &ClusterLoadAssignment) {
        if *self.drop_overloads != *assignment.drop_overloads() {
            self.drop_overloads = assignment.drop_overloads().into();
            let counts = Arc::new(DropCounts::new(&self.drop_overloads));
            let before = mem::replace(&mut self.drop_counts, counts);
            self.ledger.retire_drops(before);
        }
    }

    /// Reuses each `Host` that only changed priority, retires the others. Returns (added, removed).
    fn adopt_moved_hosts(&mut self, mut pass: Reconciliation) -> (usize, usize) {
        let mut added = pass.pending.len();
        pass.leftovers.sort_by_key(|member| member.endpoint.address);
        for (priority, slot, position) in pass.pending {
            let Some(slot) = self.priorities[priority].slots.get_mut(slot) else {
                continue;
            };
            let fresh = &mut slot.members[position];
            let address = fresh.endpoint.address;
            let found = pass
                .leftovers
                .binary_search_by_key(&address, |old| old.endpoint.address);
            if let Ok(index) = found
                && pass.leftovers[index].host.locality() == fresh.host.locality()
                && pass.leftovers[index].is(&fresh.endpoint)
            {
                let mut old = pass.leftovers.remove(index);
                old.update(&fresh.endpoint, pass.reported_weights);
                pass.counters.retire(&fresh.host);
                let before = mem::replace(&mut old.priority, fresh.priority);
                self.ledger.carry(&old.host, before, &mut old.reported);
                *fresh = old;
                added -= 1;
            }
        }
        let removed = pass.leftovers.len();
        for gone in pass.leftovers {
            pass.counters.retire(&gone.host);
            self.ledger.retire(gone.host, gone.priority, gone.reported);
        }
        self.counters = pass.counters;
        (added, removed)
    }
}

struct Reconciliation {
    cluster: Arc<ClusterLoad>,
    counters: InFlightCounters,
    reported_weights: bool,
    sum_metrics: bool,
    checking: HealthChecking,
    now: Instant,
    /// Hosts that the assignment no longer lists in their previous slot.
    leftovers: Vec<Member>,
    /// Positions of hosts that were not in the same slot before.
    pending: Vec<MemberIndex>,
}

#[derive(Clone, Copy, Default)]
struct Differs {
    hosts: bool,
    weights_or_health: bool,
}

impl Differs {
    const fn any(self) -> bool {
        self.hosts || self.weights_or_health
    }

    const fn add(&mut self, other: Self) {
        self.hosts |= other.hosts;
        self.weights_or_health |= other.weights_or_health;
    }
}

impl Reconciliation {
    fn priority(
        &mut self,
        number: usize,
        old: Option<Priority>,
        entries: &[&LocalityLbEndpoints],
        own: Option<&Locality>,
    ) -> (Priority, bool) {
        let old = old.unwrap_or_default();
        let mut known: BTreeMap<Locality, Slot> = BTreeMap::new();
        for slot in old.slots {
            known.insert(slot.locality.clone(), slot);
        }
        // The entries are sorted already; only the local locality moves to the front.
        let mut order: Vec<&LocalityLbEndpoints> = entries.to_vec();
        let has_local_locality = HostSetCounts::order(&mut order, own, |entry| &entry.locality);
        let mut differs = Differs::default();
        let mut slots = Vec::with_capacity(order.len());
        for (index, entry) in order.into_iter().enumerate() {
            let before = known.remove(&entry.locality);
            differs.hosts |= before.is_none();
            differs.weights_or_health |= before
                .as_ref()
                .is_none_or(|old| old.weight != entry.load_balancing_weight);
            let (old, roster) = before
                .map(|slot| (slot.members, slot.roster))
                .unwrap_or_default();
            let (members, slot_differs) = self.slot(old, entry, number, index);
            differs.add(slot_differs);
            slots.push(Slot {
                locality: entry.locality.clone(),
                weight: entry.load_balancing_weight,
                members,
                roster: roster.filter(|_| !slot_differs.hosts),
            });
        }
        differs.hosts |= !known.is_empty();
        self.leftovers
            .extend(known.into_values().flat_map(|slot| slot.members));
        let roster = old.roster.filter(|_| !differs.hosts);
        (
            Priority {
                slots,
                has_local_locality,
                roster,
            },
            differs.any(),
        )
    }

    /// Reconciles one slot; in place if its hosts are unchanged, which is the usual case.
    fn slot(
        &mut self,
        mut old: Vec<Member>,
        entry: &LocalityLbEndpoints,
        priority: usize,
        slot: usize,
    ) -> (Vec<Member>, Differs) {
        let endpoints = &entry.lb_endpoints;
        let same = old.len() == endpoints.len()
            && old
                .iter()
                .zip(endpoints)
                .all(|(member, endpoint)| member.is(endpoint));
        if !same {
            return self.join(old, entry, priority, slot);
        }
        let mut differs = Differs::default();
        for (member, endpoint) in old.iter_mut().zip(endpoints) {
            differs.weights_or_health |= member.update(endpoint, self.reported_weights);
        }
        (old, differs)
    }

    /// Merge-joins the members of one slot with its new endpoints; both are sorted by address.
    fn join(
        &mut self,
        old: Vec<Member>,
        entry: &LocalityLbEndpoints,
        priority: usize,
        slot: usize,
    ) -> (Vec<Member>, Differs) {
        let mut old = old.into_iter().peekable();
        let mut members = Vec::with_capacity(entry.lb_endpoints.len());
        for endpoint in &entry.lb_endpoints {
            while let Some(gone) = old.next_if(|old| old.endpoint.address < endpoint.address) {
                self.leftovers.push(gone);
            }
            let same = |old: &Member| old.endpoint.address == endpoint.address;
            match old.next_if(same) {
                Some(mut kept) if kept.is(endpoint) => {
                    kept.update(endpoint, self.reported_weights);
                    members.push(kept);
                }
                other => {
                    self.leftovers.extend(other);
                    self.pending.push((priority, slot, members.len()));
                    members.push(self.fresh(endpoint, entry));
                }
            }
        }
        self.leftovers.extend(old);
        (
            members,
            Differs {
                hosts: true,
                weights_or_health: true,
            },
        )
    }

    fn fresh(&mut self, endpoint: &LbEndpoint, entry: &LocalityLbEndpoints) -> Member {
        let eds = endpoint.health_status;
        let health = if self.checking.active {
            let ignore = self.checking.ignore_new_hosts_until_first_hc;
            HealthFlags::awaiting_first_check(eds, ignore)
        } else {
            HealthFlags::from_eds(eds)
        };
        let active = self.counters.take();
        let counter = active.place();
        let host = Arc::new(Host::new(
            endpoint,
            &entry.locality,
            Arc::clone(&self.cluster),
            active,
        ));
        if self.sum_metrics {
            host.sum_metrics();
        }
        Member {
            host,
            endpoint: endpoint.clone(),
            counter,
            health,
            ramp_from: self.now,
            priority: entry.priority,
            reported: RequestCounts::default(),
        }
    }
}

impl Member {
    /// Hostname and hash key are part of the identity: both determine positions in hash tables.
    fn is(&self, endpoint: &LbEndpoint) -> bool {
        self.endpoint.address == endpoint.address
            && self.endpoint.hostname == endpoint.hostname
            && self.endpoint.hash_key == endpoint.hash_key
    }

    /// Applies weight, health and metadata of the assignment. Returns whether anything changed.
    fn update(&mut self, endpoint: &LbEndpoint, reported_weights: bool) -> bool {
        let other_metadata = self.endpoint.metadata != endpoint.metadata;
        let changed = self.weight(reported_weights) != endpoint.weight()
            || self.endpoint.health_status != endpoint.health_status;
        if other_metadata {
            self.endpoint.metadata = endpoint.metadata.clone();
        }
        if changed {
            self.host.set_weight(endpoint.weight());
            self.health = self.health.with_eds(endpoint.health_status);
            self.endpoint.health_status = endpoint.health_status;
        }
        // Always set: a load report may have made the weight in force equal to the new one.
        self.endpoint.load_balancing_weight = endpoint.load_balancing_weight;
        changed || other_metadata
    }
}
