//! Receiving and expiring measured traffic fractions.
//!
//! Precedence and age are decided in `locality_picking::fractions`; `routing` computes the shares
//! that follow from them.

use std::sync::Arc;

use super::Balancer;
use crate::event::Event;
use crate::locality_picking::demand::FractionMap;
use crate::locality_picking::fractions::FractionOrigin;
use crate::model::zone_aware::{FractionSource, ZoneAware};
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

    /// Stores fractions whose age counts from `at`; they may be stale already.
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
