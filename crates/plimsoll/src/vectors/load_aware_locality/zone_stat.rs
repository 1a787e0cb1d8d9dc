//! `kind.zone_stat`: which counter a pick bumps, asked of a real picker.
//!
//! The case gives what a pick finds. Here a balancer is brought into that situation, and picks are
//! made until one lands in the locality in question.

use std::net::SocketAddr;
use std::sync::Arc;

use plimsoll_core::balancer::Balancer;
use plimsoll_core::host_source::HostSource;
use plimsoll_core::model::assignment::{
    AssignmentParts, ClusterLoadAssignment, LbEndpoint, LocalityParts,
};
use plimsoll_core::model::cluster::{ClusterConfig, ClusterConfigParts, LocalityPolicy};
use plimsoll_core::model::health::HealthStatus;
use plimsoll_core::model::load_aware_locality::{LoadAwareLocality, LoadAwareLocalityParts};
use plimsoll_core::model::locality::Locality;
use plimsoll_core::picker::{PickArgs, PickResult, Picker};
use plimsoll_core::publish::channel;
use plimsoll_core::rng::Xoshiro256;
use plimsoll_core::snapshot::RoutingSnapshot;
use plimsoll_core::time::Instant;
use serde::Deserialize;

use crate::vectors::CaseError;
use crate::vectors::compare::Outcome;

/// More localities than any case needs.
const MAX_INDEX: u8 = 100;
/// Every locality in question gets far more than one in so many picks.
const PICKS: usize = 100_000;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ZoneStatInputs {
    in_panic: bool,
    snapshot_covers_priority: bool,
    has_local_locality: bool,
    locality_index: u8,
    all_local: bool,
}

pub(super) fn run(inputs: &ZoneStatInputs) -> Result<Outcome, CaseError> {
    if inputs.locality_index > MAX_INDEX {
        return Err(CaseError::inputs("locality_index: at most 100"));
    }
    let snapshot = inputs.snapshot()?;
    let (_publisher, reader) = channel(snapshot);
    let mut picker = Picker::new(reader, Xoshiro256::from_seed(1));
    let stats = Arc::clone(picker.stats());
    let zone_counters = || {
        let counters = stats.iter();
        counters.filter(|(name, _)| name.starts_with("lb_zone_"))
    };
    for _ in 0..PICKS {
        let before: Vec<_> = zone_counters().collect();
        if slot(&picker.pick(PickArgs::default())) != Some(usize::from(inputs.locality_index)) {
            continue;
        }
        let bumped = zone_counters().zip(before);
        let mut bumped = bumped.filter(|(now, before)| now != before);
        let counter = bumped.next().map(|((name, _), _)| name);
        return Ok(Outcome::default().exact("counter", counter));
    }
    Err(CaseError::inputs("no pick comes into that locality"))
}

fn slot(pick: &PickResult<'_>) -> Option<usize> {
    match pick {
        PickResult::Complete(pick) => match pick.source {
            HostSource::LocalityHealthyHosts(slot)
            | HostSource::LocalityDegradedHosts(slot)
            | HostSource::LocalityAllHosts(slot) => Some(slot),
            _ => None,
        },
        _ => None,
    }
}

impl ZoneStatInputs {
    /// A snapshot in which a pick finds what the case says. In panic nothing else matters, so that
    /// only the panic is brought about.
    fn snapshot(&self) -> Result<Arc<RoutingSnapshot>, CaseError> {
        let now = Instant::ORIGIN;
        let own = Locality::zone_only(if self.has_local_locality {
            "000"
        } else {
            "own"
        });
        let mut balancer = Balancer::new(Arc::new(self.config()?), own, now);
        let covered = self.snapshot_covers_priority || self.in_panic;
        if covered {
            balancer.handle_assignment(self.assignment(0, 0)?, now);
        } else {
            // The only tick saw priority 0; what is in question is priority 1, which came later.
            balancer.handle_assignment(self.assignment(0, 0)?, now);
            balancer.handle_assignment(self.assignment(1, 0)?, now);
        }
        let by_weight = covered && !self.all_local_in_force();
        if !by_weight && !self.in_panic {
            // Picks want the first locality; those before the one in question have drained since.
            let priority = u32::from(!covered);
            let drained = self.locality_index;
            balancer.handle_assignment(self.assignment(priority, drained)?, now);
        }
        let mut newest = balancer.initial_snapshot(now);
        while let Some(snapshot) = balancer.poll_snapshot() {
            newest = snapshot;
        }
        Ok(newest)
    }

    const fn all_local_in_force(&self) -> bool {
        self.all_local && self.has_local_locality && !self.in_panic
    }

    /// Nobody has reported: with an own locality everything is local, but for the probe.
    fn config(&self) -> Result<ClusterConfig, CaseError> {
        let probe = if self.all_local_in_force() { 0.0 } else { 0.5 };
        let settings = LoadAwareLocality::try_new(LoadAwareLocalityParts {
            remote_probe_fraction: Some(probe),
            ..LoadAwareLocalityParts::default()
        })?;
        Ok(ClusterConfig::try_new(ClusterConfigParts {
            name: "case".into(),
            healthy_panic_threshold: Some(if self.in_panic { 50.0 } else { 0.0 }),
            locality_policy: LocalityPolicy::LoadAwareLocality(settings),
            ..ClusterConfigParts::default()
        })?)
    }

    /// Localities beyond the one in question, four hosts each; the first `drained` have no healthy
    /// one, and in panic the others have only one.
    fn assignment(&self, priority: u32, drained: u8) -> Result<ClusterLoadAssignment, CaseError> {
        let healthy = |locality: u8| match locality {
            locality if locality < drained => 0,
            _ if self.in_panic => 1,
            _ => 4,
        };
        let endpoint = |locality: u8, host: u8| LbEndpoint {
            health_status: if host < healthy(locality) {
                HealthStatus::Healthy
            } else {
                HealthStatus::Unhealthy
            },
            ..LbEndpoint::new(SocketAddr::from(([10, 0, locality, host], 80)))
        };
        let entry = |locality: u8| LocalityParts {
            locality: Locality::zone_only(&format!("{locality:03}")),
            priority,
            lb_endpoints: (0..4).map(|host| endpoint(locality, host)).collect(),
            ..LocalityParts::default()
        };
        Ok(ClusterLoadAssignment::try_new(AssignmentParts {
            endpoints: (0..=self.locality_index + 1).map(entry).collect(),
            ..AssignmentParts::default()
        })?)
    }
}
