//! Construction of host tables and hash tables from hosts and their health.
//!
//! Called by the balancer, per priority and only for changed priorities. Makes one pass over health
//! and weights; the hosts themselves are not touched, their roster is passed in.

use std::sync::Arc;

use super::table::{Extent, Within};
use super::{HashKind, HashTable, HostList, PriorityTable, Roster};
use crate::counts::{HostSetCounts, LocalityCounts};
use crate::endpoint_picking::hash_key::{HashedHost, normalize, normalize_by_locality};
use crate::endpoint_picking::maglev::MaglevTable;
use crate::endpoint_picking::ring_hash::Ring;
use crate::host::Host;
use crate::host_source::{HostClass, HostSource, PerClass};
use crate::locality_picking::locality_weighted::{WeightedSlot, effective_weights};
use crate::model::cluster::ClusterConfig;
use crate::model::endpoint_policy::{ConsistentHashing, EndpointPolicy};
use crate::model::health::{HealthClass, HealthFlags};
use crate::model::locality::Locality;

#[derive(Debug)]
pub(crate) struct SlotHosts<'a, I> {
    pub(crate) locality: &'a Locality,
    pub(crate) weight: u32,
    /// Health and weight of each host, in the order of the roster.
    pub(crate) hosts: I,
}

#[derive(Default)]
struct TableBuilder {
    counts: HostSetCounts,
    healthy: Vec<u32>,
    degraded: Vec<u32>,
    flat: PerClass<ListBuilder>,
    slots: Vec<SlotLists>,
}

struct SlotLists {
    lists: PerClass<ListBuilder>,
    weight: u32,
}

/// A host list being built: start among the lists of its class, length, and whether weights differ.
#[derive(Clone, Copy, Default)]
struct ListBuilder {
    start: u32,
    len: u32,
    first_weight: u32,
    weighted: bool,
}

impl ListBuilder {
    const fn push(&mut self, weight: u32) {
        if self.len == 0 {
            self.first_weight = weight;
        }
        self.weighted |= self.first_weight != weight;
        // Cannot overflow: four billion hosts do not fit in memory.
        self.len += 1;
    }

    /// Finishes the list, a part of `within`, where the lists of its class start at `base`.
    const fn extent(self, within: Within, base: u32, local: u32) -> Extent {
        Extent {
            start: base + self.start,
            len: self.len,
            local,
            weighted: self.weighted,
            within,
        }
    }
}

impl PriorityTable {
    /// Builds the table of `roster`; in `slots` the local locality is first if there is one.
    pub(crate) fn build<'a, I>(
        roster: Arc<Roster>,
        slots: impl ExactSizeIterator<Item = SlotHosts<'a, I>>,
        has_local_locality: bool,
        overprovisioning_factor: u32,
    ) -> Self
    where
        I: Iterator<Item = (HealthFlags, u32)>,
    {
        let mut builder = TableBuilder {
            healthy: Vec::with_capacity(roster.len()),
            ..Default::default()
        };
        builder.slots.reserve(slots.len());
        builder.counts.localities.reserve(slots.len());
        for slot in slots {
            builder.slot(slot);
        }
        assert_eq!(
            builder.flat[HostClass::All].len as usize,
            roster.len(),
            "slots and roster have the same number of hosts"
        );
        builder.finish(roster, has_local_locality, overprovisioning_factor)
    }
}

impl TableBuilder {
    fn slot<'a>(&mut self, slot: SlotHosts<'a, impl Iterator<Item = (HealthFlags, u32)>>) {
        let mut counts = LocalityCounts {
            locality: slot.locality.clone(),
            ..Default::default()
        };
        let mut lists = self.flat.map(|flat| ListBuilder {
            start: flat.len,
            ..Default::default()
        });
        for (health, weight) in slot.hosts {
            let position = self.flat[HostClass::All].len;
            let wide = u64::from(weight);
            let weights = &mut self.counts.weights;
            weights.all += wide;
            if health.excluded() {
                counts.excluded += 1;
                weights.excluded += wide;
            }
            let mut list = |class: HostClass| {
                lists[class].push(weight);
                self.flat[class].push(weight);
            };
            list(HostClass::All);
            match health.class() {
                HealthClass::Healthy => {
                    self.healthy.push(position);
                    counts.healthy_weight += wide;
                    weights.healthy += wide;
                    list(HostClass::Healthy);
                }
                HealthClass::Degraded => {
                    self.degraded.push(position);
                    weights.degraded += wide;
                    list(HostClass::Degraded);
                }
                HealthClass::Unhealthy => {}
            }
        }
        let listed = |class: HostClass| u64::from(lists[class].len);
        counts.all = listed(HostClass::All);
        counts.healthy = listed(HostClass::Healthy);
        counts.degraded = listed(HostClass::Degraded);
        self.counts.flat.add(&counts);
        self.counts.localities.push(counts);
        self.slots.push(SlotLists {
            lists,
            weight: slot.weight,
        });
    }

    fn finish(
        mut self,
        roster: Arc<Roster>,
        has_local_locality: bool,
        overprovisioning_factor: u32,
    ) -> PriorityTable {
        self.counts.has_local_locality = has_local_locality;
        let locality_weights = PerClass::from_fn(|class| match class {
            HostClass::All => None,
            _ => self.locality_weights(class, overprovisioning_factor),
        });
        // If every host is healthy, positions would only repeat the roster.
        let all_healthy = self.healthy.len() == roster.len();
        if all_healthy {
            self.healthy.clear();
        }
        PriorityTable {
            lists: self.lists(all_healthy),
            slot_weights: self.slots.iter().map(|slot| slot.weight).collect(),
            counts: self.counts,
            roster,
            positions: [self.healthy, self.degraded].concat().into(),
            locality_weights,
        }
    }

    fn lists(&self, all_healthy: bool) -> Box<[Extent]> {
        let own = self
            .slots
            .first()
            .filter(|_| self.counts.has_local_locality);
        let local = |class: HostClass| own.map_or(0, |slot| slot.lists[class].len);
        let whole = |class: HostClass| match class {
            HostClass::All => true,
            HostClass::Healthy => all_healthy,
            HostClass::Degraded => false,
        };
        // Positions of healthy hosts come first, if there are any.
        let base = |class: HostClass| match class {
            HostClass::Degraded if !all_healthy => self.flat[HostClass::Healthy].len,
            _ => 0,
        };
        let mut lists = Vec::with_capacity(HostClass::VARIANTS.len() * (1 + self.slots.len()));
        lists.extend(HostClass::VARIANTS.map(|class| {
            let within = if whole(class) {
                Within::Roster
            } else {
                Within::Positions
            };
            self.flat[class].extent(within, base(class), local(class))
        }));
        for (number, slot) in (0..).zip(&self.slots) {
            lists.extend(HostClass::VARIANTS.map(|class| {
                let within = if whole(class) {
                    Within::Slot(number)
                } else {
                    Within::Positions
                };
                let local = if number == 0 { local(class) } else { 0 };
                slot.lists[class].extent(within, base(class), local)
            }));
        }
        lists.into()
    }

    fn locality_weights(&self, class: HostClass, overprovisioning_factor: u32) -> Option<Vec<f64>> {
        let slots: Vec<WeightedSlot> = self
            .slots
            .iter()
            .zip(&self.counts.localities)
            .map(|(slot, counts)| WeightedSlot {
                weight: slot.weight,
                considered: counts.all - counts.excluded,
                eligible: u64::from(slot.lists[class].len),
            })
            .collect();
        effective_weights(&slots, overprovisioning_factor)
    }
}

/// Hash table of a priority, over its healthy hosts or, in panic, all; `None` without hashing.
pub(crate) fn build_hash_table(
    table: &PriorityTable,
    config: &ClusterConfig,
    panic: bool,
) -> Option<HashTable> {
    config.endpoint_policy().consistent_hashing()?;
    let source = if panic {
        HostSource::AllHosts
    } else {
        HostSource::HealthyHosts
    };
    let listed = table.list(source);
    let weights = table_weights(table, config, source);
    // Hosts of localities without weight are not in the table, as in Envoy.
    let local = weights
        .iter()
        .take(listed.local() as usize)
        .filter(|&&weight| weight > 0.0)
        .count();
    let weighted = listed
        .iter()
        .zip(weights)
        .filter(|&(_, weight)| weight > 0.0);
    let (hosts, weights): (Vec<Arc<Host>>, Vec<f64>) = weighted
        .map(|(host, weight)| (Arc::clone(host), weight))
        .unzip();
    let kind = hash_kind(&hosts, &weights, config)?;
    Some(HashTable {
        kind,
        hosts: hosts.into(),
        weights,
        local,
        panic,
    })
}

/// Hash table of a slot under load_aware_locality (decision 0025); `None` if empty or unhashed.
pub(crate) fn build_slot_hash_table(
    hosts: HostList<'_>,
    config: &ClusterConfig,
) -> Option<HashTable> {
    if hosts.is_empty() {
        return None;
    }
    let local = hosts.local() as usize;
    let hosts: Vec<Arc<Host>> = hosts.iter().cloned().collect();
    let weights = normalize(&hosts.iter().map(|host| host.weight()).collect::<Vec<_>>());
    Some(HashTable {
        kind: hash_kind(&hosts, &weights, config)?,
        hosts: hosts.into(),
        weights,
        local,
        panic: false,
    })
}

fn hash_kind(hosts: &[Arc<Host>], weights: &[f64], config: &ClusterConfig) -> Option<HashKind> {
    let policy = config.endpoint_policy();
    let consistent_hashing = policy.consistent_hashing()?;
    let keys: Vec<String> = hosts
        .iter()
        .map(|host| key(host, consistent_hashing))
        .collect();
    let hashed: Vec<HashedHost<'_>> = keys
        .iter()
        .zip(weights)
        .map(|(key, &weight)| HashedHost { key, weight })
        .collect();
    match policy {
        EndpointPolicy::RingHash(ring) => Some(HashKind::Ring(Ring::build(&hashed, ring))),
        EndpointPolicy::Maglev(maglev) => Some(HashKind::Maglev(MaglevTable::build(
            &hashed,
            maglev.table_size(),
        ))),
        _ => None,
    }
}

/// Normalized host weights; with locality weights, locality share × host share.
fn table_weights(table: &PriorityTable, config: &ClusterConfig, source: HostSource) -> Vec<f64> {
    let weights = |list: HostList<'_>| -> Vec<u32> { list.iter().map(|h| h.weight()).collect() };
    if !config.locality_weighted() {
        return normalize(&weights(table.list(source)));
    }
    let by_slot: Vec<(u32, Vec<u32>)> = table
        .assigned_weights()
        .zip(table.hosts_by_slot(source).map(weights))
        .collect();
    let by_slot: Vec<(u32, &[u32])> = by_slot.iter().map(|(w, hosts)| (*w, &**hosts)).collect();
    normalize_by_locality(&by_slot)
}

/// The string a host is hashed by: its hash key, its hostname if configured, or its address.
fn key(host: &Host, consistent_hashing: ConsistentHashing) -> String {
    match host.hash_key() {
        Some(key) => key.to_string(),
        None if consistent_hashing.use_hostname_for_hashing() => host.hostname().to_string(),
        None => host.address().to_string(),
    }
}
