//! Expected shares of requests per upstream locality of one priority, for proxies of any locality.
//!
//! Uses the tables and functions that decide picks. `build` calls it for the local proxy and for
//! every zone of the fleet.

use crate::host_source::{HostClass, HostSource, SourcePolicy};
use crate::locality_picking::zone_aware::ZoneRouting;
use crate::model::endpoint_policy::EndpointPolicy;
use crate::model::locality::Locality;
use crate::priority::Availability;
use crate::snapshot::{HostList, PriorityTable, RoutingSnapshot};

/// Shares of one priority; localities in the order of the snapshot's table.
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

    /// Shares under `zone`; `None` if requests fail. `by_zone` maps slots of `zone` to this table.
    pub(super) fn under(&self, zone: &ZoneRouting, by_zone: &[usize]) -> Option<Vec<f64>> {
        if let Some(weights) = self.load_aware_weights() {
            return Some(normalized(weights));
        }
        if self.snapshot.config.endpoint_policy().is_hash() {
            return self.hashed();
        }
        if self.source.panic {
            return (!self.source.fail_traffic_on_panic).then(|| self.flat(HostSource::AllHosts));
        }
        let healthy = self.load(Availability::Healthy);
        let degraded = self.load(Availability::Degraded);
        if degraded == 0.0 {
            return self.available(Availability::Healthy, zone, by_zone);
        }
        let parts = [
            (Availability::Healthy, healthy),
            (Availability::Degraded, degraded),
        ];
        let mut shares = vec![0.0; self.table.counts.localities.len()];
        for (availability, load) in parts.into_iter().filter(|&(_, load)| load > 0.0) {
            let part = self.available(availability, zone, by_zone)?;
            for (share, part) in shares.iter_mut().zip(part) {
                *share += part * load / (healthy + degraded);
            }
        }
        Some(shares)
    }

    fn available(
        &self,
        availability: Availability,
        zone: &ZoneRouting,
        by_zone: &[usize],
    ) -> Option<Vec<f64>> {
        let class = HostClass::from(availability);
        let flat = self.flat(HostSource::flat(class));
        if self.snapshot.config.locality_weighted()
            && let Some(weights) = &self.table.locality_weights[class]
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

    /// Shares of consistent hashing by the weights in its table; `None` if that is empty.
    fn hashed(&self) -> Option<Vec<f64>> {
        let table = self.snapshot.priorities.get(self.priority)?.hash.as_ref()?;
        let weight_in = |locality: &Locality| -> f64 {
            let hosts = table.hosts.iter().zip(&table.weights);
            hosts
                .filter(|(host, _)| host.locality() == locality)
                .map(|(_, weight)| weight)
                .sum()
        };
        let slots = self.table.counts.localities.iter();
        let shares = normalized(slots.map(|slot| weight_in(&slot.locality)).collect());
        (!table.hosts.is_empty()).then_some(shares)
    }

    fn load_aware_weights(&self) -> Option<Vec<f64>> {
        let table = self
            .snapshot
            .priorities
            .get(self.priority)?
            .load_aware
            .as_ref()?;
        let class = match (self.source.panic, self.serves_degraded()) {
            (true, _) => HostClass::All,
            (false, true) => HostClass::Degraded,
            (false, false) => HostClass::Healthy,
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

    /// Returns the percentage of all traffic that goes to one class of this priority's hosts.
    fn load(&self, availability: Availability) -> f64 {
        let loads = match availability {
            Availability::Healthy => self.snapshot.loads.healthy_load(),
            Availability::Degraded => self.snapshot.loads.degraded_load(),
        };
        f64::from(loads.get(self.priority).copied().unwrap_or(0))
    }

    fn serves_degraded(&self) -> bool {
        self.load(Availability::Healthy) == 0.0 && self.load(Availability::Degraded) > 0.0
    }

    /// Shares without locality routing: by weight if the policy uses weights, else by count.
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

/// Scales to a sum of 1; zeros never become negative zero, as the sum of an empty list is.
fn normalized(mut weights: Vec<f64>) -> Vec<f64> {
    let total: f64 = weights.iter().sum();
    let scale = if total > 0.0 { 1.0 / total } else { 1.0 };
    weights
        .iter_mut()
        .for_each(|weight| *weight = *weight * scale + 0.0);
    weights
}
