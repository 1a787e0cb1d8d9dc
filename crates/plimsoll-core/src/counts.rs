//! Host counts by health class, for a whole host set and per locality slot.
//!
//! Priority load, panic and zone-aware routing are arithmetic on these numbers and never look at a
//! host. The balancer counts once per change of membership or health.

use crate::model::assignment::ClusterLoadAssignment;
use crate::model::health::{HealthClass, HealthFlags};
use crate::model::locality::Locality;

/// Host counts of one locality slot. An empty slot keeps its position (envoy-semantics §1.1).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LocalityCounts {
    pub locality: Locality,
    pub all: u64,
    pub healthy: u64,
    pub degraded: u64,
    pub excluded: u64,
    pub healthy_weight: u64,
}

/// Host counts of one host set: one priority of the upstream cluster, or the fleet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostSetCounts {
    /// Slots in balancer order: the local locality first if present, the others sorted.
    pub localities: Vec<LocalityCounts>,
    pub has_local_locality: bool,
    pub flat: ClassCounts,
    pub weights: ClassCounts,
}

/// One number per health class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClassCounts {
    pub all: u64,
    pub healthy: u64,
    pub degraded: u64,
    pub excluded: u64,
}

impl ClassCounts {
    /// Returns the hosts that count in denominators: all but excluded ones.
    pub const fn considered(&self) -> u64 {
        self.all.saturating_sub(self.excluded)
    }

    pub(crate) const fn add(&mut self, slot: &LocalityCounts) {
        self.all += slot.all;
        self.healthy += slot.healthy;
        self.degraded += slot.degraded;
        self.excluded += slot.excluded;
    }

    /// Whether the share of usable hosts is strictly below `threshold` percent (§1.4). By host
    /// count, not weight, in doubles and in this order, as in Envoy; a threshold of 0 never panics.
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
    /// Returns the slot of the local locality, if there is one.
    pub fn local(&self) -> Option<&LocalityCounts> {
        self.has_local_locality
            .then(|| self.localities.first())
            .flatten()
    }

    /// Counts hosts that are all healthy and have weight 1, by locality, without a local locality.
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

    /// Counts one priority of an assignment by its EDS health; slots are ordered as for a proxy in
    /// `own`.
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

    /// Sorts slots into balancer order (§1.2): the local locality first if present, the others by
    /// the bytes of (region, zone, sub_zone). Returns whether the local locality is present.
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
            "excluded hosts are not in the denominator"
        );
    }

    #[test]
    fn an_empty_set_panics_unless_the_threshold_is_zero() {
        assert!(counts(0, 0, 0, 0).in_panic(1));
        assert!(counts(3, 0, 0, 3).in_panic(1));
        assert!(!counts(0, 0, 0, 0).in_panic(0));
    }

    #[test]
    fn the_local_locality_comes_first_and_the_rest_is_sorted() {
        let mut zones = ["c", "b", "a"].map(Locality::zone_only);
        let own = Locality::zone_only("b");
        assert!(HostSetCounts::order(&mut zones, Some(&own), |zone| zone));
        assert_eq!(zones.map(|zone| zone.to_string()), ["b", "a", "c"]);
        let mut zones = ["c", "b", "a"].map(Locality::zone_only);
        assert!(!HostSetCounts::order(&mut zones, None, |zone| zone));
        assert_eq!(zones.map(|zone| zone.to_string()), ["a", "b", "c"]);
    }
}
