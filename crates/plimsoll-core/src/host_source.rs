//! Choice of the host list within a priority (envoy-semantics §1.6).
//!
//! Checked, and drawn for, in this order: panic, locality weights, sampling of zone-aware routing,
//! panic of the fleet, zone-aware routing. The lists are in `snapshot`.

use std::array;
use std::ops::{Index, IndexMut};

use crate::locality_picking::sampling::LocalitySampler;
use crate::locality_picking::zone_aware::ZoneRouting;
use crate::priority::Availability;
use crate::rng::Rng;
use crate::stats::PickerStats;

/// A host list of one priority.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostSource {
    /// All hosts of the priority, in panic.
    AllHosts,
    HealthyHosts,
    DegradedHosts,
    /// Healthy hosts of the locality slot at this index.
    LocalityHealthyHosts(usize),
    LocalityDegradedHosts(usize),
    /// All hosts of one locality slot, in panic under load_aware_locality.
    LocalityAllHosts(usize),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HostClass {
    All,
    Healthy,
    Degraded,
}

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PerClass<T>([T; 3]);

impl HostClass {
    pub(crate) const VARIANTS: [Self; 3] = [Self::All, Self::Healthy, Self::Degraded];
}

impl From<Availability> for HostClass {
    #[inline]
    fn from(availability: Availability) -> Self {
        match availability {
            Availability::Healthy => Self::Healthy,
            Availability::Degraded => Self::Degraded,
        }
    }
}

impl<T> PerClass<T> {
    pub(crate) fn from_fn(mut value: impl FnMut(HostClass) -> T) -> Self {
        Self(array::from_fn(|index| value(HostClass::VARIANTS[index])))
    }

    pub(crate) fn map<U>(self, change: impl FnMut(T) -> U) -> PerClass<U> {
        PerClass(self.0.map(change))
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (HostClass, &mut T)> {
        HostClass::VARIANTS.into_iter().zip(&mut self.0)
    }
}

impl<T> Index<HostClass> for PerClass<T> {
    type Output = T;

    #[inline]
    fn index(&self, class: HostClass) -> &T {
        &self.0[class as usize]
    }
}

impl<T> IndexMut<HostClass> for PerClass<T> {
    #[inline]
    fn index_mut(&mut self, class: HostClass) -> &mut T {
        &mut self.0[class as usize]
    }
}

impl HostSource {
    #[inline]
    pub(crate) const fn flat(class: HostClass) -> Self {
        match class {
            HostClass::All => Self::AllHosts,
            HostClass::Healthy => Self::HealthyHosts,
            HostClass::Degraded => Self::DegradedHosts,
        }
    }

    #[inline]
    pub(crate) const fn locality(class: HostClass, index: usize) -> Self {
        match class {
            HostClass::All => Self::LocalityAllHosts(index),
            HostClass::Healthy => Self::LocalityHealthyHosts(index),
            HostClass::Degraded => Self::LocalityDegradedHosts(index),
        }
    }

    #[inline]
    pub(crate) const fn class(self) -> HostClass {
        match self {
            Self::AllHosts | Self::LocalityAllHosts(_) => HostClass::All,
            Self::HealthyHosts | Self::LocalityHealthyHosts(_) => HostClass::Healthy,
            Self::DegradedHosts | Self::LocalityDegradedHosts(_) => HostClass::Degraded,
        }
    }

    /// Returns the slot of a locality's list; `None` for a list of the whole priority.
    #[inline]
    pub(crate) const fn slot(self) -> Option<usize> {
        match self {
            Self::AllHosts | Self::HealthyHosts | Self::DegradedHosts => None,
            Self::LocalityAllHosts(index)
            | Self::LocalityHealthyHosts(index)
            | Self::LocalityDegradedHosts(index) => Some(index),
        }
    }
}

/// Inputs of the choice of a host list, for one priority.
#[derive(Clone, Debug, PartialEq)]
pub struct SourcePolicy {
    pub panic: bool,
    pub fail_traffic_on_panic: bool,
    /// Percentage of requests that zone-aware routing considers.
    pub routing_enabled: u32,
    pub fleet_panic: bool,
    pub zone: ZoneRouting,
}

impl SourcePolicy {
    /// Chooses the list for one request; `None` fails the request on purpose. `weighted` queries
    /// the locality scheduler, if there is one.
    #[inline(always)]
    pub fn choose<R: Rng>(
        &self,
        availability: Availability,
        weighted: impl FnOnce() -> Option<usize>,
        sampler: &mut LocalitySampler,
        rng: &mut R,
        stats: &PickerStats,
    ) -> Option<HostSource> {
        if self.panic {
            stats.lb_healthy_panic.increment();
            return (!self.fail_traffic_on_panic).then_some(HostSource::AllHosts);
        }
        let class = HostClass::from(availability);
        if let Some(index) = weighted() {
            return Some(HostSource::locality(class, index));
        }
        if !self.zone.is_active() || !self.sampled(rng) {
            return Some(HostSource::flat(class));
        }
        if self.fleet_panic {
            stats.lb_local_cluster_not_ok.increment();
            return (!self.fail_traffic_on_panic).then_some(HostSource::flat(class));
        }
        let picked = self.zone.pick(sampler, rng, stats);
        Some(picked.map_or(HostSource::flat(class), |index| {
            HostSource::locality(class, index)
        }))
    }

    /// Whether zone-aware routing considers this request; draws only if the answer is not fixed.
    #[inline]
    fn sampled(&self, rng: &mut impl Rng) -> bool {
        match self.routing_enabled {
            0 => false,
            100.. => true,
            percent => rng.next_u64() % 100 < u64::from(percent),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::locality_picking::zone_aware::{Observed, Reason, ZoneState};
    use crate::rng::ScriptedRng;

    fn direct() -> SourcePolicy {
        let zone = ZoneRouting {
            state: ZoneState::LocalityDirect,
            preconditions: Vec::new(),
            percentages: Vec::new(),
            observed: Observed::Unused,
            failing: Vec::new(),
        };
        SourcePolicy {
            panic: false,
            fail_traffic_on_panic: false,
            routing_enabled: 100,
            fleet_panic: false,
            zone,
        }
    }

    fn choose(policy: &SourcePolicy, weighted: Option<usize>, draws: &[u64]) -> Option<HostSource> {
        let mut rng = ScriptedRng::new(draws);
        let sampler = &mut LocalitySampler::Random;
        let stats = PickerStats::default();
        policy.choose(
            Availability::Healthy,
            || weighted,
            sampler,
            &mut rng,
            &stats,
        )
    }

    #[test]
    fn panic_comes_first() {
        let mut policy = SourcePolicy {
            panic: true,
            ..direct()
        };
        assert_eq!(choose(&policy, Some(3), &[]), Some(HostSource::AllHosts));
        policy.fail_traffic_on_panic = true;
        assert_eq!(choose(&policy, Some(3), &[]), None);
    }

    #[test]
    fn locality_weights_come_before_zone_awareness() {
        assert_eq!(
            choose(&direct(), Some(3), &[]),
            Some(HostSource::LocalityHealthyHosts(3))
        );
        assert_eq!(
            choose(&direct(), None, &[]),
            Some(HostSource::LocalityHealthyHosts(0))
        );
    }

    #[test]
    fn sampling_draws_only_if_the_answer_is_not_fixed() {
        let policy = SourcePolicy {
            routing_enabled: 30,
            ..direct()
        };
        assert_eq!(
            choose(&policy, None, &[29]),
            Some(HostSource::LocalityHealthyHosts(0))
        );
        assert_eq!(
            choose(&policy, None, &[130]),
            Some(HostSource::HealthyHosts)
        );
        let never = SourcePolicy {
            routing_enabled: 0,
            ..direct()
        };
        assert_eq!(choose(&never, None, &[]), Some(HostSource::HealthyHosts));
        let off = SourcePolicy {
            zone: ZoneRouting::off(Reason::NoLocalCluster),
            ..policy
        };
        let mut rng = ScriptedRng::default();
        let sampler = &mut LocalitySampler::Random;
        off.choose(
            Availability::Healthy,
            || None,
            sampler,
            &mut rng,
            &PickerStats::default(),
        );
        assert_eq!(rng.used(), 0);
    }

    #[test]
    fn a_fleet_in_panic_disables_zone_awareness_or_fails() {
        let mut policy = SourcePolicy {
            fleet_panic: true,
            ..direct()
        };
        assert_eq!(choose(&policy, None, &[]), Some(HostSource::HealthyHosts));
        policy.fail_traffic_on_panic = true;
        assert_eq!(choose(&policy, None, &[]), None);
    }

    #[test]
    fn degraded_uses_the_degraded_lists() {
        let stats = PickerStats::default();
        let mut rng = ScriptedRng::default();
        let sampler = &mut LocalitySampler::Random;
        let mut ask = |policy: &SourcePolicy, weighted| {
            policy.choose(
                Availability::Degraded,
                || weighted,
                sampler,
                &mut rng,
                &stats,
            )
        };
        assert_eq!(
            ask(&direct(), None),
            Some(HostSource::LocalityDegradedHosts(0))
        );
        assert_eq!(
            ask(&direct(), Some(1)),
            Some(HostSource::LocalityDegradedHosts(1))
        );
        let never = SourcePolicy {
            routing_enabled: 0,
            ..direct()
        };
        assert_eq!(ask(&never, None), Some(HostSource::DegradedHosts));
    }
}
