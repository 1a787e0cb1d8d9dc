//! `kind.zone_stat`: which `lb_zone_*` counter a real picker increments.
//!
//! The case describes the state of a snapshot. A balancer is brought into that state, and picks are
//! made until one of them selects the locality of the case.

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
use serde_json::json;

use crate::{CaseError, CaseResult};

/// Limit of `locality_index`, above the index of any case.
const MAX_INDEX: u8 = 100;
/// Number of picks, enough to select any locality of a case.
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

pub(super) fn run(inputs: &ZoneStatInputs) -> CaseResult {
    if inputs.locality_index > MAX_INDEX {
        return Err(CaseError::inputs("locality_index: must be at most 100"));
    }
    let snapshot = inputs.snapshot()?;
    let (_publisher, reader) = channel(snapshot);
    let mut picker = Picker::new(reader, Xoshiro256::from_seed(1));
    let stats = Arc::clone(picker.stats());
    let zone_counters = || {
        stats
            .iter()
            .filter(|(name, _)| name.starts_with("lb_zone_"))
    };
    for _ in 0..PICKS {
        let before: Vec<_> = zone_counters().collect();
        if slot(&picker.pick(PickArgs::default())) != Some(usize::from(inputs.locality_index)) {
            continue;
        }
        let counter = zone_counters()
            .zip(before)
            .find(|(now, before)| now != before)
            .map(|((name, _), _)| name);
        return Ok(json!({"counter": counter}).into());
    }
    Err(CaseError::inputs("no pick selected that locality"))
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
    /// Creates a snapshot in the state of the case. In panic mode the other inputs have no effect,
    /// so only panic mode is set up.
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
            // The only tick saw priority 0; hosts of the pick are at priority 1, added later.
            balancer.handle_assignment(self.assignment(0, 0)?, now);
            balancer.handle_assignment(self.assignment(1, 0)?, now);
        }
        let by_weight = covered && !self.is_all_local();
        if !by_weight && !self.in_panic {
            // Picks prefer the first locality with healthy hosts: drain the localities before.
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

    const fn is_all_local(&self) -> bool {
        self.all_local && self.has_local_locality && !self.in_panic
    }

    /// Without load reports, all traffic except the probe fraction stays in the local locality, if
    /// there is one.
    fn config(&self) -> Result<ClusterConfig, CaseError> {
        let probe = if self.is_all_local() { 0.0 } else { 0.5 };
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

    /// Creates an assignment of localities 0 to `locality_index + 1`, with four hosts each; the
    /// first `drained` localities have no healthy host; in panic mode the others have only one.
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
