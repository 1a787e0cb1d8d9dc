//! Which list of hosts a request is served from, once its priority is chosen (envoy-semantics
//! §1.6).
//!
//! Panic, locality weights, sampling of zone-aware routing, panic of the fleet, zone-aware routing:
//! in this order and with these draws. Lists themselves live in `snapshot`; hosts are picked from
//! them in `endpoint_picking`.

use crate::locality_picking::sampling::LocalitySampler;
use crate::locality_picking::zone_aware::ZoneRouting;
use crate::priority::Availability;
use crate::rng::Rng;
use crate::stats::PickerStats;

/// A list of hosts of one priority.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostSource {
    /// All hosts: panic.
    AllHosts,
    /// All healthy hosts.
    HealthyHosts,
    /// All degraded hosts.
    DegradedHosts,
    /// Healthy hosts of one locality slot.
    LocalityHealthyHosts(usize),
    /// Degraded hosts of one locality slot.
    LocalityDegradedHosts(usize),
    /// All hosts of one locality slot: panic under load_aware_locality.
    LocalityAllHosts(usize),
}

impl HostSource {
    /// The flat list of an availability.
    const fn flat(availability: Availability) -> Self {
        match availability {
            Availability::Healthy => Self::HealthyHosts,
            Availability::Degraded => Self::DegradedHosts,
        }
    }

    /// The list of slot `index`.
    const fn locality(availability: Availability, index: usize) -> Self {
        match availability {
            Availability::Healthy => Self::LocalityHealthyHosts(index),
            Availability::Degraded => Self::LocalityDegradedHosts(index),
        }
    }
}

/// Everything of one priority that the choice of a list depends on.
#[derive(Clone, Debug, PartialEq)]
pub struct SourcePolicy {
    /// The priority is in panic.
    pub panic: bool,
    /// Panic, of the priority or of the fleet, fails requests.
    pub fail_traffic_on_panic: bool,
    /// Percent of requests that zone-aware routing considers.
    pub routing_enabled: u32,
    /// The fleet itself is in panic.
    pub fleet_panic: bool,
    /// Zone-aware routing of this priority.
    pub zone: ZoneRouting,
}

impl SourcePolicy {
    /// The list for one request; `None` = no host on purpose. `weighted` asks the locality
    /// scheduler (and is `None` when there is none or it yields nothing).
    #[inline(always)]
    pub fn choose<R: Rng>(
        &self,
        availability: Availability,
        weighted: impl FnOnce() -> Option<usize>,
        (sampler, rng): (&mut LocalitySampler, &mut R),
        stats: &PickerStats,
    ) -> Option<HostSource> {
        if self.panic {
            stats.lb_healthy_panic.increment();
            return (!self.fail_traffic_on_panic).then_some(HostSource::AllHosts);
        }
        if let Some(index) = weighted() {
            return Some(HostSource::locality(availability, index));
        }
        if !self.zone.is_active() || !self.sampled(rng) {
            return Some(HostSource::flat(availability));
        }
        if self.fleet_panic {
            stats.lb_local_cluster_not_ok.increment();
            return (!self.fail_traffic_on_panic).then_some(HostSource::flat(availability));
        }
        let picked = self.zone.pick(sampler, rng, stats);
        Some(picked.map_or(HostSource::flat(availability), |index| {
            HostSource::locality(availability, index)
        }))
    }

    /// Whether zone-aware routing considers this request; draws only when there is something to
    /// decide.
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
    use crate::locality_picking::zone_aware::{Reason, ZoneState};
    use crate::rng::Script;

    fn direct() -> SourcePolicy {
        let zone = ZoneRouting {
            state: ZoneState::LocalityDirect,
            preconditions: Vec::new(),
            percentages: Vec::new(),
            observed: false,
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
        let mut rng = Script::new(draws);
        let sampler = &mut LocalitySampler::Random;
        let stats = PickerStats::default();
        policy.choose(
            Availability::Healthy,
            || weighted,
            (sampler, &mut rng),
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
    fn sampling_draws_only_when_there_is_something_to_decide() {
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
        let mut rng = Script::default();
        let sampler = &mut LocalitySampler::Random;
        off.choose(
            Availability::Healthy,
            || None,
            (sampler, &mut rng),
            &PickerStats::default(),
        );
        assert_eq!(rng.used(), 0);
    }

    #[test]
    fn a_panicking_fleet_switches_zone_awareness_off_or_fails() {
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
        let mut rng = Script::default();
        let sampler = &mut LocalitySampler::Random;
        let mut ask = |policy: &SourcePolicy, weighted| {
            policy.choose(
                Availability::Degraded,
                || weighted,
                (sampler, &mut rng),
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
