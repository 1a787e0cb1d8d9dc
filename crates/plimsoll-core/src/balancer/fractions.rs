//! Receiving and expiring traffic fractions, measured or stated, and the demand that follows.
//!
//! Precedence and age are decided in `locality_picking::fractions`; `routing` computes the shares
//! that follow from demand.

use std::sync::Arc;

use super::{Balancer, Dirty};
use crate::counts::HostSetCounts;
use crate::event::Event;
use crate::locality_picking::demand::{Demand, FractionMap};
use crate::locality_picking::fractions::FractionOrigin;
use crate::locality_picking::zone_aware::seen_from;
use crate::model::zone_aware::{FractionSource, LocalityBasis, ZoneAware};
use crate::time::Instant;

impl Balancer {
    /// Marks fractions that are too old as stale. Returns whether there were any.
    pub(super) fn expire_fractions(&mut self, now: Instant) -> bool {
        let Some(threshold) = self.config.staleness_threshold() else {
            return false;
        };
        let deadline = self.fractions.poll_timeout(threshold);
        if deadline.is_none_or(|deadline| deadline > now) {
            return false;
        }
        for (origin, age) in Arc::make_mut(&mut self.fractions).expire(threshold, now) {
            self.stats.lrs_fractions_stale.increment();
            let event = Event::FractionsStale {
                origin,
                age,
                threshold,
            };
            self.events.push_back(event);
        }
        true
    }

    /// Stores fractions whose age counts from `at`; they may be stale already. `None` = stated.
    pub(super) fn receive_fractions(
        &mut self,
        origin: FractionOrigin,
        fractions: Arc<FractionMap>,
        at: Option<Instant>,
        now: Instant,
    ) {
        if at.is_some() && !fractions.is_empty() {
            self.stats.lrs_fractions_received.increment();
        }
        if Arc::make_mut(&mut self.fractions).receive(origin, fractions, at) {
            self.events.push_back(Event::FractionsRecovered { origin });
        }
        self.expire_fractions(now);
    }

    /// Applies demand that the program or configuration states: it has no age, so it never expires.
    /// Measured fractions take precedence while they are fresh. An empty map withdraws it.
    ///
    /// While the fleet's assignment is unknown, the fleet is assumed to be in the zones of
    /// `demand`, and every `locality_basis` uses it.
    pub fn handle_stated_demand(&mut self, demand: FractionMap, now: Instant) {
        self.stated_fleet = (!demand.is_empty()).then(|| {
            let one_each = demand.keys().map(|locality| (locality.clone(), 1));
            let counts = HostSetCounts::all_healthy(one_each);
            Arc::new(match &self.own {
                Some(own) => seen_from(own, &counts),
                None => counts,
            })
        });
        self.receive_fractions(FractionOrigin::Stated, Arc::new(demand), None, now);
        self.refresh(Dirty::zone(), now);
    }

    /// Returns where the fleet is: by its assignment, or by stated demand.
    pub(super) fn fleet_counts(&self) -> Option<&Arc<HostSetCounts>> {
        let assigned = self.fleet.as_ref().map(|fleet| &fleet.counts);
        assigned.or(self.stated_fleet.as_ref())
    }

    /// Demand per zone: fractions in force, else host counts (decisions 0023, 0024).
    pub(super) fn refresh_demand(&mut self, config: Option<&ZoneAware>) {
        let (Some(config), Some(fleet)) = (config, self.fleet_counts()) else {
            self.demand = Arc::default();
            return;
        };
        let current = self.fractions.current().map(|current| current.fractions);
        let demand = match (config.locality_basis(), current) {
            (LocalityBasis::LrsReportedRate, Some(fractions)) => {
                let demand = Demand::from_fractions(fractions, fleet);
                if demand.is_none() {
                    self.stats.lrs_fractions_all_zero.increment();
                } else if demand.as_ref().is_some_and(Demand::is_partial) {
                    self.stats.lrs_fractions_partial.increment();
                }
                demand.unwrap_or_else(|| Demand::from_host_counts(fleet))
            }
            // One host per zone stands for a fleet that only stated demand tells of.
            (_, Some(fractions)) if self.fleet.is_none() => Demand::assumed(fractions),
            (LocalityBasis::HealthyHostsWeight, _) => Demand::from_host_weights(fleet),
            _ => Demand::from_host_counts(fleet),
        };
        self.demand = Arc::new(demand);
    }

    pub(super) fn fraction_source(&self) -> FractionSource {
        self.config
            .zone_aware()
            .map(ZoneAware::fraction_source)
            .unwrap_or_default()
    }
}
