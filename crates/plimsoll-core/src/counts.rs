//! [`HostSetCounts`]: how many hosts of which class a host set has, flat and per locality slot.
//!
//! Priority load, panic and zone-aware routing are arithmetic on these numbers and never look at a
//! host. The balancer counts once per change of membership or health; vectors write them down.

use crate::model::assignment::ClusterLoadAssignment;
use crate::model::health::{HealthClass, HealthFlags};
use crate::model::locality::Locality;

/// Counts of one locality slot. An empty slot keeps its place (envoy-semantics §1.1).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LocalityCounts {
    /// Where.
    pub locality: Locality,
    /// All hosts, excluded ones included.
    pub all: u64,
    /// Healthy hosts.
    pub healthy: u64,
    /// Degraded hosts.
    pub degraded: u64,
    /// Excluded hosts.
    pub excluded: u64,
    /// Sum of the weights of the healthy hosts.
    pub healthy_weight: u64,
}

/// Counts of one host set: one priority of the upstream cluster, or the fleet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostSetCounts {
    /// Slots in balancer order: own locality first if there, the others sorted.
    pub localities: Vec<LocalityCounts>,
    /// Slot 0 is the own locality.
    pub has_local_locality: bool,
    /// The flat lists.
    pub flat: ClassCounts,
    /// Sums of host weights of the flat lists.
    pub weights: ClassCounts,
}

/// One number per class of hosts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClassCounts {
    /// All hosts, excluded ones included.
    pub all: u64,
    /// Healthy hosts.
    pub healthy: u64,
    /// Degraded hosts.
    pub degraded: u64,
    /// Excluded hosts.
    pub excluded: u64,
}

impl ClassCounts {
    /// Hosts that count in denominators.
    pub const fn considered(&self) -> u64 {
        self.all.saturating_sub(self.excluded)
    }

    /// Adds the counts of one slot to the flat ones.
    pub(crate) const fn add(&mut self, slot: &LocalityCounts) {
        self.all += slot.all;
        self.healthy += slot.healthy;
        self.degraded += slot.degraded;
        self.excluded += slot.excluded;
    }

    /// Whether the share of usable hosts is strictly below `threshold` percent (§1.4). Always by
    /// count, in doubles and in this order, as Envoy does; threshold 0 never panics.
    #[expect(clippy::cast_precision_loss, reason = "host counts are far below 2^53")]
    pub fn in_panic(&self, threshold: u32) -> bool {
        let considered = self.considered();
        if considered == 0 {
            return threshold > 0;
        }
        let percent = |count: u64| 100.0 * count as f64 / considered as f64;
        percent(self.healthy) + percent(self.degraded) < f64::from(threshold)
    }
}

impl HostSetCounts {
    /// The own-locality slot, if there is one.
    pub fn local(&self) -> Option<&LocalityCounts> {
        self.has_local_locality
            .then(|| self.localities.first())
            .flatten()
    }

    /// Counts of hosts that are all healthy and of weight 1, by locality, for a proxy without own.
    pub fn all_healthy(zones: impl IntoIterator<Item = (Locality, u64)>) -> Self {
        let mut counts = Self::default();
        for (locality, hosts) in zones {
            let slot = LocalityCounts {
                locality,
                all: hosts,
                healthy: hosts,
                healthy_weight: hosts,
                ..Default::default()
            };
            counts.flat.add(&slot);
            counts.localities.push(slot);
        }
        counts.weights = counts.flat;
        Self::order(&mut counts.localities, None, |slot| &slot.locality);
        counts
    }

    /// Counts one priority of an assignment by what the assignment says of health; slots as a proxy
    /// in `own` holds them.
    pub fn of_assignment(
        assignment: &ClusterLoadAssignment,
        priority: u32,
        own: Option<&Locality>,
    ) -> Self {
        let mut counts = Self::default();
        for entry in assignment
            .endpoints()
            .iter()
            .filter(|entry| entry.priority == priority)
        {
            let locality = entry.locality.clone();
            let mut slot = LocalityCounts {
                locality,
                ..Default::default()
            };
            for endpoint in &entry.lb_endpoints {
                let health = HealthFlags::from_eds(endpoint.health_status);
                let weight = u64::from(endpoint.weight());
                slot.all += 1;
                counts.weights.all += weight;
                if health.excluded() {
                    slot.excluded += 1;
                    counts.weights.excluded += weight;
                }
                match health.class() {
                    HealthClass::Healthy => {
                        slot.healthy += 1;
                        slot.healthy_weight += weight;
                        counts.weights.healthy += weight;
                    }
                    HealthClass::Degraded => {
                        slot.degraded += 1;
                        counts.weights.degraded += weight;
                    }
                    HealthClass::Unhealthy => {}
                }
            }
            counts.flat.add(&slot);
            counts.localities.push(slot);
        }
        counts.has_local_locality = Self::order(&mut counts.localities, own, |slot| &slot.locality);
        counts
    }

    /// Puts slots into balancer order (§1.2): the own locality first if it is there, the others by
    /// the bytes of (region, zone, sub_zone). Returns whether the own locality is there.
    pub fn order<T>(slots: &mut [T], own: Option<&Locality>, of: impl Fn(&T) -> &Locality) -> bool {
        slots.sort_by(|a, b| of(a).cmp(of(b)));
        let found = own.and_then(|own| slots.binary_search_by(|slot| of(slot).cmp(own)).ok());
        if let Some(index) = found
            && let Some(head) = slots.get_mut(..=index)
        {
            head.rotate_right(1);
        }
        found.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(all: u64, healthy: u64, degraded: u64, excluded: u64) -> ClassCounts {
        ClassCounts {
            all,
            healthy,
            degraded,
            excluded,
        }
    }

    #[test]
    fn panic_is_strictly_below_the_threshold() {
        assert!(!counts(10, 5, 0, 0).in_panic(50));
        assert!(counts(10, 4, 0, 0).in_panic(50));
        assert!(!counts(10, 4, 1, 0).in_panic(50));
        assert!(
            !counts(10, 4, 0, 2).in_panic(50),
            "excluded hosts leave the denominator"
        );
    }

    #[test]
    fn an_empty_set_panics_unless_the_threshold_is_zero() {
        assert!(counts(0, 0, 0, 0).in_panic(1));
        assert!(counts(3, 0, 0, 3).in_panic(1));
        assert!(!counts(0, 0, 0, 0).in_panic(0));
    }

    #[test]
    fn the_own_locality_comes_first_and_the_rest_is_sorted() {
        let mut zones = ["c", "b", "a"].map(Locality::zone_only);
        let own = Locality::zone_only("b");
        assert!(HostSetCounts::order(&mut zones, Some(&own), |zone| zone));
        assert_eq!(zones.map(|zone| zone.to_string()), ["b", "a", "c"]);
        let mut zones = ["c", "b", "a"].map(Locality::zone_only);
        assert!(!HostSetCounts::order(&mut zones, None, |zone| zone));
        assert_eq!(zones.map(|zone| zone.to_string()), ["a", "b", "c"]);
    }
}
