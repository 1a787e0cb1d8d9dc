//! Where requests go: shares per upstream locality of one priority, for proxies of any locality.
//!
//! Uses the tables and functions that decide picks; nothing is decided here. Called by `build` for
//! the own locality and for every zone of the fleet.

use crate::host_source::{HostSource, SourcePolicy};
use crate::locality_picking::zone_aware::ZoneRouting;
use crate::model::endpoint_policy::EndpointPolicy;
use crate::snapshot::{HostList, PriorityTable, RoutingSnapshot};

/// Shares of one priority; slots in the order of the snapshot's table.
pub(super) struct Shares<'a> {
    snapshot: &'a RoutingSnapshot,
    table: &'a PriorityTable,
    source: &'a SourcePolicy,
    priority: usize,
}

impl<'a> Shares<'a> {
    pub(super) fn new(snapshot: &'a RoutingSnapshot, priority: usize) -> Option<Self> {
        let view = snapshot.priorities.get(priority)?;
        Some(Self {
            snapshot,
            table: &view.table,
            source: &view.source,
            priority,
        })
    }

    /// Shares under `zone`, the routing as decided by the proxies in question. `None` = requests
    /// fail. `by_zone` gives the slots of this table the order in which `zone` counted them.
    pub(super) fn under(&self, zone: &ZoneRouting, by_zone: &[usize]) -> Option<Vec<f64>> {
        if let Some(weights) = self.load_aware_weights() {
            return Some(normalized(weights));
        }
        if self.source.panic {
            return (!self.source.fail_traffic_on_panic).then(|| self.flat(HostSource::AllHosts));
        }
        let (flat, degraded) = if self.serves_degraded() {
            (self.flat(HostSource::DegradedHosts), true)
        } else {
            (self.flat(HostSource::HealthyHosts), false)
        };
        if self.snapshot.config.locality_weighted()
            && let Some(weights) = &self.table.locality_weights[usize::from(degraded)]
        {
            return Some(normalized(weights.clone()));
        }
        let enabled = f64::from(self.source.routing_enabled.min(100)) / 100.0;
        let Some(picked) = zone.expected_shares().filter(|_| enabled > 0.0) else {
            return Some(flat);
        };
        if self.source.fleet_panic {
            return (!self.source.fail_traffic_on_panic).then_some(flat);
        }
        let mut shares: Vec<f64> = flat.iter().map(|share| share * (1.0 - enabled)).collect();
        for (share, &slot) in picked.iter().zip(by_zone) {
            shares[slot] += share * enabled;
        }
        Some(shares)
    }

    /// The weights that load_aware_locality gave this proxy, if that is the policy.
    fn load_aware_weights(&self) -> Option<Vec<f64>> {
        let table = self
            .snapshot
            .priorities
            .get(self.priority)?
            .load_aware
            .as_ref()?;
        let class = match (self.source.panic, self.serves_degraded()) {
            (true, _) => 2,
            (false, degraded) => usize::from(degraded),
        };
        let sums = &table.sources[class].prefix_sums;
        let before = std::iter::once(&0.0).chain(sums);
        Some(
            sums.iter()
                .zip(before)
                .map(|(upto, before)| upto - before)
                .collect(),
        )
    }

    /// Only degraded hosts of this priority get traffic.
    pub(super) fn serves_degraded(&self) -> bool {
        let load = |loads: &[u32]| loads.get(self.priority).copied().unwrap_or(0);
        load(self.snapshot.loads.healthy_load()) == 0
            && load(self.snapshot.loads.degraded_load()) > 0
    }

    /// Shares when localities play no part: by weight where the policy weighs, else by count.
    fn flat(&self, source: HostSource) -> Vec<f64> {
        let by_count = matches!(
            self.snapshot.config.endpoint_policy(),
            EndpointPolicy::Random
        );
        let weigh = |hosts: HostList<'_>| -> f64 {
            hosts
                .iter()
                .map(|host| {
                    if by_count {
                        1.0
                    } else {
                        f64::from(host.weight())
                    }
                })
                .sum()
        };
        normalized(self.table.hosts_by_slot(source).map(weigh).collect())
    }
}

/// Scales to a sum of 1; all zeros stay zeros.
fn normalized(mut weights: Vec<f64>) -> Vec<f64> {
    let total: f64 = weights.iter().sum();
    if total > 0.0 {
        weights.iter_mut().for_each(|weight| *weight /= total);
    }
    weights
}
