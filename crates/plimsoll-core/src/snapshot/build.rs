//! Building the tables of a snapshot from hosts and their health.
//!
//! Called by the balancer, per priority and only for what changed. One pass over health and
//! weights; the hosts themselves are not touched, their roster is handed in.

use std::sync::Arc;

use super::table::{Extent, Within};
use super::{HashKind, HashTable, HostList, PriorityTable, Roster};
use crate::counts::{HostSetCounts, LocalityCounts};
use crate::endpoint_picking::hash_key::{HashedHost, normalize, normalize_by_locality};
use crate::endpoint_picking::maglev::MaglevTable;
use crate::endpoint_picking::ring_hash::Ring;
use crate::host::Host;
use crate::host_source::HostSource;
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
    /// Health and weight of each host, in the order of the roster.
    pub(crate) hosts: I,
}

/// Running state of one pass over the hosts of a priority. Threes are: all, healthy, degraded.
#[derive(Default)]
struct Pass {
    counts: HostSetCounts,
    healthy: Vec<u32>,
    degraded: Vec<u32>,
    flat: [Run; 3],
    slots: Vec<SlotRuns>,
}

/// The lists of one slot.
struct SlotRuns {
    runs: [Run; 3],
    /// Weight in the assignment.
    weight: u32,
}

/// A list in the making: where it starts among those of its class, how long it is so far, and
/// whether all its weights are equal.
#[derive(Clone, Copy, Default)]
struct Run {
    start: u32,
    len: u32,
    first_weight: u32,
    weighted: bool,
}

impl Run {
    const fn push(&mut self, weight: u32) {
        if self.len == 0 {
            self.first_weight = weight;
        }
        self.weighted |= self.first_weight != weight;
        // Four billion hosts do not fit in memory.
        self.len += 1;
    }

    /// The finished list, a part of `within`; what it is a part of has its class start at `base`.
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
    /// The table of the hosts in `roster` and of their `slots`, which are in balancer order (own
    /// locality first if `has_local_locality`).
    pub(crate) fn build<'a, I>(
        roster: Arc<Roster>,
        slots: impl ExactSizeIterator<Item = SlotHosts<'a, I>>,
        has_local_locality: bool,
        overprovisioning_factor: u32,
    ) -> Self
    where
        I: Iterator<Item = (HealthFlags, u32)>,
    {
        let mut pass = Pass {
            healthy: Vec::with_capacity(roster.len()),
            ..Default::default()
        };
        pass.slots.reserve(slots.len());
        pass.counts.localities.reserve(slots.len());
        for slot in slots {
            pass.slot(slot);
        }
        assert_eq!(
            pass.flat[0].len as usize,
            roster.len(),
            "the slots have the hosts of the roster"
        );
        pass.finish(roster, has_local_locality, overprovisioning_factor)
    }
}

impl Pass {
    fn slot<'a>(&mut self, slot: SlotHosts<'a, impl Iterator<Item = (HealthFlags, u32)>>) {
        let mut counts = LocalityCounts {
            locality: slot.locality.clone(),
            ..Default::default()
        };
        let mut runs = self.flat.map(|flat| Run {
            start: flat.len,
            ..Default::default()
        });
        for (health, weight) in slot.hosts {
            let position = self.flat[0].len;
            let wide = u64::from(weight);
            let weights = &mut self.counts.weights;
            weights.all += wide;
            if health.excluded() {
                counts.excluded += 1;
                weights.excluded += wide;
            }
            match health.class() {
                HealthClass::Healthy => {
                    self.healthy.push(position);
                    counts.healthy_weight += wide;
                    weights.healthy += wide;
                    runs[1].push(weight);
                    self.flat[1].push(weight);
                }
                HealthClass::Degraded => {
                    self.degraded.push(position);
                    weights.degraded += wide;
                    runs[2].push(weight);
                    self.flat[2].push(weight);
                }
                HealthClass::Unhealthy => {}
            }
            runs[0].push(weight);
            self.flat[0].push(weight);
        }
        [counts.all, counts.healthy, counts.degraded] = runs.map(|run| u64::from(run.len));
        self.counts.flat.add(&counts);
        self.counts.localities.push(counts);
        self.slots.push(SlotRuns {
            runs,
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
        let locality_weights =
            [1, 2].map(|class| self.locality_weights(class, overprovisioning_factor));
        // Where every host is healthy, positions would only repeat the roster.
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

    /// All lists, in the order of their numbers.
    fn lists(&self, all_healthy: bool) -> Box<[Extent]> {
        let own = self
            .slots
            .first()
            .filter(|_| self.counts.has_local_locality);
        let local = |class: usize| own.map_or(0, |slot| slot.runs[class].len);
        let whole = |class: usize| class == 0 || (class == 1 && all_healthy);
        // Positions of healthy hosts come first, if there are any.
        let base = |class: usize| match class {
            2 if !all_healthy => self.flat[1].len,
            _ => 0,
        };
        let mut lists = Vec::with_capacity(3 + 3 * self.slots.len());
        lists.extend([0, 1, 2].map(|class| {
            let within = if whole(class) {
                Within::Roster
            } else {
                Within::Positions
            };
            self.flat[class].extent(within, base(class), local(class))
        }));
        for (number, slot) in (0..).zip(&self.slots) {
            lists.extend([1, 2, 0].map(|class| {
                let within = if whole(class) {
                    Within::Slot(number)
                } else {
                    Within::Positions
                };
                let local = if number == 0 { local(class) } else { 0 };
                slot.runs[class].extent(within, base(class), local)
            }));
        }
        lists.into()
    }

    fn locality_weights(&self, class: usize, overprovisioning_factor: u32) -> Option<Vec<f64>> {
        let slots = self.slots.iter().zip(&self.counts.localities);
        let slots: Vec<WeightedSlot> = slots
            .map(|(slot, counts)| WeightedSlot {
                weight: slot.weight,
                considered: counts.all - counts.excluded,
                eligible: u64::from(slot.runs[class].len),
            })
            .collect();
        effective_weights(&slots, overprovisioning_factor)
    }
}

/// The hash table of a priority, over its healthy hosts or, in panic, over all; `None` when the
/// policy does not hash.
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
    // Hosts of localities without weight are not in the table at all, as in Envoy.
    let local = weights
        .iter()
        .take(listed.local() as usize)
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

/// Normalized weights of the hosts in a hash table; with locality weights, locality share × host
/// share.
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

/// What a host is hashed by: its hash key, else its name if asked for, else its address.
fn key(host: &Host, consistent_hashing: ConsistentHashing) -> String {
    match host.hash_key() {
        Some(key) => key.to_string(),
        None if consistent_hashing.use_hostname_for_hashing() => host.hostname().to_string(),
        None => host.address().to_string(),
    }
}
