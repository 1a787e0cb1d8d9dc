//! Building the tables of a snapshot from hosts and their health.
//!
//! Called by the balancer, per priority and only for what changed. One pass over the hosts; lists
//! are shared instead of copied where every host is healthy.

use std::ops::Range;
use std::sync::Arc;

use super::{HashKind, HashTable, HostArray, PriorityTable, Slot};
use crate::counts::{HostSetCounts, LocalityCounts};
use crate::endpoint_picking::hash_key::{HashedHost, normalize, normalize_by_locality};
use crate::endpoint_picking::maglev::MaglevTable;
use crate::endpoint_picking::ring_hash::Ring;
use crate::host::Host;
use crate::locality_picking::locality_weighted::{WeightedSlot, effective_weights};
use crate::model::cluster::ClusterConfig;
use crate::model::endpoint_policy::{ConsistentHashing, EndpointPolicy};
use crate::model::health::{HealthClass, HealthFlags};
use crate::model::locality::Locality;

/// Hosts of one locality at one priority, as the balancer keeps them.
#[derive(Debug)]
pub(crate) struct SlotHosts<'a, I> {
    pub(crate) locality: &'a Locality,
    pub(crate) weight: u32,
    pub(crate) hosts: I,
}

/// Running state of one pass over the hosts of a priority.
#[derive(Default)]
struct Pass {
    counts: HostSetCounts,
    all: Vec<Arc<Host>>,
    healthy: Vec<Arc<Host>>,
    degraded: Vec<Arc<Host>>,
    slots: Vec<Slot>,
    uniform: [Uniform; 3],
}

/// Whether all weights seen so far are equal.
#[derive(Clone, Copy, Default)]
struct Uniform {
    first: Option<u32>,
    differ: bool,
}

impl Uniform {
    fn see(&mut self, weight: u32) {
        match self.first {
            None => self.first = Some(weight),
            Some(first) => self.differ |= first != weight,
        }
    }
}

impl PriorityTable {
    /// The table of `slots`, which are in balancer order (own locality first if
    /// `has_local_locality`).
    pub(crate) fn build<'a, I>(
        slots: impl Iterator<Item = SlotHosts<'a, I>>,
        has_local_locality: bool,
        overprovisioning_factor: u32,
    ) -> Self
    where
        I: ExactSizeIterator<Item = (&'a Arc<Host>, HealthFlags)>,
    {
        let mut pass = Pass::default();
        for slot in slots {
            pass.slot(slot);
        }
        pass.finish(has_local_locality, overprovisioning_factor)
    }
}

impl Pass {
    fn slot<'a>(
        &mut self,
        slot: SlotHosts<'a, impl ExactSizeIterator<Item = (&'a Arc<Host>, HealthFlags)>>,
    ) {
        let starts = [self.all.len(), self.healthy.len(), self.degraded.len()];
        let mut counts = LocalityCounts {
            locality: slot.locality.clone(),
            ..Default::default()
        };
        let mut uniform = [Uniform::default(); 3];
        self.all.reserve(slot.hosts.len());
        for (host, health) in slot.hosts {
            let weight = host.weight();
            self.all.push(Arc::clone(host));
            self.uniform[0].see(weight);
            uniform[2].see(weight);
            let weights = &mut self.counts.weights;
            counts.all += 1;
            weights.all += u64::from(weight);
            if health.excluded() {
                counts.excluded += 1;
                weights.excluded += u64::from(weight);
            }
            match health.class() {
                HealthClass::Healthy => {
                    self.healthy.push(Arc::clone(host));
                    counts.healthy += 1;
                    counts.healthy_weight += u64::from(weight);
                    weights.healthy += u64::from(weight);
                    uniform[0].see(weight);
                    self.uniform[1].see(weight);
                }
                HealthClass::Degraded => {
                    self.degraded.push(Arc::clone(host));
                    counts.degraded += 1;
                    weights.degraded += u64::from(weight);
                    uniform[1].see(weight);
                    self.uniform[2].see(weight);
                }
                HealthClass::Unhealthy => {}
            }
        }
        self.slots.push(Slot {
            all: range(starts[0], self.all.len()),
            healthy: range(starts[1], self.healthy.len()),
            degraded: range(starts[2], self.degraded.len()),
            weighted: uniform.map(|uniform| uniform.differ),
            weight: slot.weight,
        });
        self.counts.flat.add(&counts);
        self.counts.localities.push(counts);
    }

    fn finish(mut self, has_local_locality: bool, overprovisioning_factor: u32) -> PriorityTable {
        self.counts.has_local_locality = has_local_locality;
        let locality_weights = [false, true].map(|degraded| {
            let slots = self.slots.iter().zip(&self.counts.localities);
            let slots: Vec<WeightedSlot> = slots
                .map(|(slot, counts)| WeightedSlot {
                    weight: slot.weight,
                    considered: counts.all - counts.excluded,
                    eligible: if degraded {
                        counts.degraded
                    } else {
                        counts.healthy
                    },
                })
                .collect();
            effective_weights(&slots, overprovisioning_factor)
        });
        let all: HostArray = self.all.into();
        let healthy = if self.healthy.len() == all.len() {
            Arc::clone(&all)
        } else {
            self.healthy.into()
        };
        PriorityTable {
            counts: self.counts,
            all,
            healthy,
            degraded: self.degraded.into(),
            slots: self.slots,
            weighted: self.uniform.map(|uniform| uniform.differ),
            locality_weights,
        }
    }
}

/// Table positions are 32 bits wide: four billion hosts in one priority do not fit in memory.
fn range(start: usize, end: usize) -> Range<u32> {
    let position = |n: usize| u32::try_from(n).expect("fewer than 2^32 hosts in a priority");
    position(start)..position(end)
}

/// The hash table of a priority, over its healthy hosts or, in panic, over all; `None` when the
/// policy does not hash.
pub(crate) fn build_hash_table(
    table: &PriorityTable,
    config: &ClusterConfig,
    panic: bool,
) -> Option<HashTable> {
    config.endpoint_policy().consistent_hashing()?;
    let listed = if panic { &table.all } else { &table.healthy };
    let own = table
        .own_slot()
        .map_or(0, |slot| slot_range(slot, panic).len());
    let weights = table_weights(table, config, panic);
    // Hosts of localities without weight are not in the table at all, as in Envoy.
    let local = weights
        .iter()
        .take(own)
        .filter(|&&weight| weight > 0.0)
        .count();
    let weighty = listed
        .iter()
        .zip(weights)
        .filter(|&(_, weight)| weight > 0.0);
    let (hosts, weights): (Vec<Arc<Host>>, Vec<f64>) = weighty
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

/// The hash table over the hosts of one slot, for a hash policy under load_aware_locality
/// (decisions D6); `None` when the policy does not hash or the slot is empty.
pub(crate) fn build_slot_hash_table(
    hosts: &[Arc<Host>],
    config: &ClusterConfig,
    local: bool,
) -> Option<HashTable> {
    if hosts.is_empty() {
        return None;
    }
    let weights = normalize(&hosts.iter().map(|host| host.weight()).collect::<Vec<_>>());
    let kind = hash_kind(hosts, &weights, config)?;
    let local = if local { hosts.len() } else { 0 };
    Some(HashTable {
        kind,
        hosts: hosts.into(),
        weights,
        local,
        panic: false,
    })
}

/// The ring or table that the policy asks for over these hosts.
fn hash_kind(hosts: &[Arc<Host>], weights: &[f64], config: &ClusterConfig) -> Option<HashKind> {
    let policy = config.endpoint_policy();
    let consistent_hashing = policy.consistent_hashing()?;
    let keys: Vec<String> = hosts
        .iter()
        .map(|host| key(host, consistent_hashing))
        .collect();
    let hashed = keys
        .iter()
        .zip(weights)
        .map(|(key, &weight)| HashedHost { key, weight });
    let hashed: Vec<HashedHost<'_>> = hashed.collect();
    match policy {
        EndpointPolicy::RingHash(ring) => Some(HashKind::Ring(Ring::build(&hashed, ring))),
        EndpointPolicy::Maglev(maglev) => Some(HashKind::Maglev(MaglevTable::build(
            &hashed,
            maglev.table_size(),
        ))),
        _ => None,
    }
}

fn slot_range(slot: &Slot, panic: bool) -> &Range<u32> {
    if panic { &slot.all } else { &slot.healthy }
}

/// Normalized weights of the hosts in a hash table; with locality weights, locality share × host
/// share.
fn table_weights(table: &PriorityTable, config: &ClusterConfig, panic: bool) -> Vec<f64> {
    let hosts = if panic { &table.all } else { &table.healthy };
    let weights: Vec<u32> = hosts.iter().map(|host| host.weight()).collect();
    if !config.locality_weighted() {
        return normalize(&weights);
    }
    let by_slot = table.slots.iter().map(|slot| {
        let range = slot_range(slot, panic);
        (
            slot.weight,
            &weights[range.start as usize..range.end as usize],
        )
    });
    normalize_by_locality(&by_slot.collect::<Vec<_>>())
}

/// What a host is hashed by: its hash key, else its name if asked for, else its address.
fn key(host: &Host, consistent_hashing: ConsistentHashing) -> String {
    match host.hash_key() {
        Some(key) => key.to_string(),
        None if consistent_hashing.use_hostname_for_hashing() => host.hostname().to_string(),
        None => host.address().to_string(),
    }
}
