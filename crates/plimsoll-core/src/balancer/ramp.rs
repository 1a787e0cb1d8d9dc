//! [`Ramp`]: slow start as the writer runs it (envoy-semantics §8.2, docs/decisions/0006).
//!
//! While some host is in slow start, a tick writes each healthy host's factor into the host, where
//! schedules read it when the host comes round. Picks read no clock. Somebody counts as being in
//! slow start for one window after the newest host, and for one window after the balancer itself
//! was made, as in Envoy.

use std::time::Duration;

use super::members::{Member, Members};
use crate::endpoint_picking::slow_start::factor;
use crate::model::endpoint_policy::SlowStart;
use crate::model::health::HealthClass;
use crate::time::Instant;

/// Fifty steps to a window are smooth enough; faster than 50 ms would only burn the writer.
const STEPS: u32 = 50;
const SHORTEST_TICK: Duration = Duration::from_millis(50);
const LONGEST_TICK: Duration = Duration::from_secs(1);

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

    /// Whether schedules must be used although weights may be equal.
    pub(super) const fn is_active(&self) -> bool {
        self.active
    }

    pub(super) const fn poll_timeout(&self) -> Option<Instant> {
        self.next_tick
    }

    /// Rewrites the factors after hosts, health or settings changed, or when the tick is due.
    /// Returns whether slow start began or ended, so that a new snapshot is needed.
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
            // Slow start is for healthy hosts; the others have their full weight, as in Envoy.
            let healthy = member.health.class() == HealthClass::Healthy;
            let factor = if healthy {
                factor_of(member, settings, now)
            } else {
                1.0
            };
            if healthy {
                self.newest = self.newest.max(member.ramp_from);
            }
            member.host.set_slow_start_factor(factor);
        }
        self.active = now.saturating_duration_since(self.newest) <= settings.window();
        let tick = (settings.window() / STEPS).clamp(SHORTEST_TICK, LONGEST_TICK);
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
