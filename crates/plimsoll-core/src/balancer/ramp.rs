//! Timer of slow start (envoy-semantics §8.2, docs/decisions/0006).
//!
//! While a host is in slow start, a tick stores the current factor in each healthy host, for
//! schedules to read; picks read no clock. As in Envoy, slow start counts as active for one window
//! after the newest host was added or the balancer was created.

use std::time::Duration;

use super::members::{Member, Members};
use crate::endpoint_picking::slow_start::factor;
use crate::model::endpoint_policy::SlowStart;
use crate::model::health::HealthClass;
use crate::time::Instant;

/// Steps per slow-start window; more would cost the writer time and change little.
const STEPS: u32 = 50;
const MIN_TICK: Duration = Duration::from_millis(50);
const MAX_TICK: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(super) struct Ramp {
    newest: Instant,
    active: bool,
    next_tick: Option<Instant>,
}

impl Ramp {
    pub(super) const fn new(now: Instant) -> Self {
        Self {
            newest: now,
            active: false,
            next_tick: None,
        }
    }

    /// Whether a host is in slow start: weighted schedules must be used even if weights are equal.
    pub(super) const fn is_active(&self) -> bool {
        self.active
    }

    pub(super) const fn poll_timeout(&self) -> Option<Instant> {
        self.next_tick
    }

    /// Updates the factors. Returns whether slow start began or ended: a new snapshot is needed.
    pub(super) fn refresh(
        &mut self,
        settings: Option<&SlowStart>,
        members: &Members,
        now: Instant,
    ) -> bool {
        let was_active = self.active;
        let Some(settings) = settings else {
            if was_active {
                members
                    .iter()
                    .for_each(|member| member.host.set_slow_start_factor(1.0));
            }
            (self.active, self.next_tick) = (false, None);
            return was_active;
        };
        for member in members.iter() {
            // Only healthy hosts are ramped; the others have their full weight, as in Envoy.
            let mut factor = 1.0;
            if member.health.class() == HealthClass::Healthy {
                factor = factor_of(member, settings, now);
                self.newest = self.newest.max(member.ramp_from);
            }
            member.host.set_slow_start_factor(factor);
        }
        self.active = now.saturating_duration_since(self.newest) <= settings.window();
        let tick = (settings.window() / STEPS).clamp(MIN_TICK, MAX_TICK);
        self.next_tick = self.active.then(|| now.saturating_add(tick));
        was_active != self.active
    }
}

fn factor_of(member: &Member, settings: &SlowStart, now: Instant) -> f64 {
    let elapsed = now.saturating_duration_since(member.ramp_from);
    factor(
        elapsed,
        settings.window(),
        settings.aggression(),
        settings.min_weight_percent(),
    )
}
