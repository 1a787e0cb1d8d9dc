//! Measured fractions as the writer keeps them: receiving and expiring.
//!
//! Which of them count and how old they are is known by `locality_picking::fractions`; what shares
//! follow by `routing`.

use std::sync::Arc;

use super::Balancer;
use crate::event::Event;
use crate::locality_picking::demand::FractionMap;
use crate::locality_picking::fractions::FractionOrigin;
use crate::model::zone_aware::{FractionSource, ZoneAware};
use crate::time::Instant;

impl Balancer {
    /// Takes fractions that are too old out of force; tells whether there were any.
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

    /// Takes fractions that are as old as `at`; they may be too old already.
    pub(super) fn receive_fractions(
        &mut self,
        origin: FractionOrigin,
        fractions: Arc<FractionMap>,
        at: Instant,
        now: Instant,
    ) {
        if !fractions.is_empty() {
            self.stats.lrs_fractions_received.increment();
        }
        if Arc::make_mut(&mut self.fractions).receive(origin, fractions, at) {
            self.events.push_back(Event::FractionsRecovered { origin });
        }
        self.expire_fractions(now);
    }

    pub(super) fn fraction_source(&self) -> FractionSource {
        self.config
            .zone_aware()
            .map(ZoneAware::fraction_source)
            .unwrap_or_default()
    }
}
