//! [`guard`]: the task that watches zones while they move, and keeps orders in the state file.
//!
//! It also judges load reports: a zone whose backends are ill is drained if the configuration says
//! so, else told. Demand changes while a drain runs: each step is checked with what is measured by
//! then, and a drain that does not fit any more stays where it is.

use std::collections::BTreeMap;
use std::time::Duration;

use plimsoll_core::evacuation::{ErrorMatrix, Illness, Noticing, STEP, WHOLE, ZoneName, ZoneState};
use plimsoll_core::log_line;
use plimsoll_core::model::locality::Locality;
use plimsoll_core::time::Instant;
use plimsoll_xds::driver::Clock;

use super::{EvacuationError, OrderRecord, StateFile, ZoneCommand};
use crate::config::Mode;
use crate::log_lines;
use crate::run::Context;
use crate::state::State;

/// Time between two checks: half a step.
const INTERVAL: Duration = Duration::from_secs(5);
/// Time between two attempts to drain the same zone.
const AGAIN: Duration = Duration::from_secs(300);
/// Who holds a drain, in the audit.
const BY: &str = "the control plane";

/// Watches zones until the control plane stops.
pub(crate) async fn guard(context: Context, file: Option<StateFile>) {
    let changed = context.handle.zones_changed();
    let mut watch = Watch::default();
    let mut ticks = tokio::time::interval(INTERVAL);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        let checked = tokio::select! {
            () = context.stopping.cancelled() => return,
            () = changed.notified() => save(&context, file.as_ref()).await,
            _ = ticks.tick() => match check_moving(&context).await {
                Ok(()) => watch.judge(&context).await,
                stopped => stopped,
            },
        };
        if checked.is_err() {
            // The writer has ended; the process does, too.
            return;
        }
    }
}

/// Writes the orders to the state file; those of the configuration are there already.
async fn save(context: &Context, file: Option<&StateFile>) -> Result<(), EvacuationError> {
    let Some(file) = file else {
        return Ok(());
    };
    let orders = context.handle.inspect(|state, _| kept(state)).await?;
    let (to, name) = (file.clone(), file.path().display().to_string());
    let saved = tokio::task::spawn_blocking(move || to.save(&orders)).await;
    if let Ok(Err(error)) = saved {
        log_line!(log_lines::STATE_FILE_FAILED, file = %name, %error);
    }
    Ok(())
}

fn kept(state: &State) -> Vec<OrderRecord> {
    let orders = state.zones_out().orders().orders();
    let own = orders.filter(|order| order.origin != plimsoll_core::evacuation::Origin::File);
    own.map(OrderRecord::from).collect()
}

/// Holds drains that do not fit any more.
async fn check_moving(context: &Context) -> Result<(), EvacuationError> {
    let moving = context.handle.inspect(|state, now| {
        let out = state.zones_out();
        let now_ms = out.unix_ms(now);
        let orders = out.orders().orders();
        let moving = orders.filter(|one| !one.forced && one.state(now_ms) == ZoneState::Draining);
        moving
            .map(|order| (order.zone.clone(), order.drained(now_ms)))
            .collect::<Vec<(ZoneName, u32)>>()
    });
    for (zone, drained) in moving.await? {
        let found = match context.check_drain(&zone).await {
            Ok(found) => found,
            Err(stopped @ EvacuationError::Stopped(_)) => return Err(stopped),
            // Its last endpoints are gone.
            Err(_) => continue,
        };
        if found.allowed == WHOLE {
            continue;
        }
        let command = ZoneCommand::Hold {
            allowed: total(drained, found.allowed),
            reason: found.text().into(),
            zone,
        };
        // A drain that has ended meanwhile cannot be held.
        let _ = context.handle.command(command, BY).await?;
    }
    Ok(())
}

/// What is remembered between two judgements of load reports.
#[derive(Default)]
struct Watch {
    noticing: Noticing,
    judged: Option<Instant>,
    /// When zones were drained, or could not be: not again for a while.
    tried: BTreeMap<Locality, Instant>,
}

/// What the latest load reports say, and who hears it.
struct Reports {
    matrix: ErrorMatrix,
    hosts: BTreeMap<Locality, usize>,
    automatic: Mode,
    interval: Duration,
}

impl Watch {
    /// Judges the latest load reports, once per interval, and drains an ill zone if it may.
    async fn judge(&mut self, context: &Context) -> Result<(), EvacuationError> {
        let reports = context.handle.inspect(reports).await?;
        let now = Clock::system().now();
        let is_early = self
            .judged
            .is_some_and(|at| now.saturating_duration_since(at) < reports.interval);
        if is_early || reports.automatic == Mode::Off {
            return Ok(());
        }
        self.judged = Some(now);
        let suspects = self
            .noticing
            .handle_reports(&reports.matrix, &reports.hosts);
        let ill = suspects
            .iter()
            .find(|one| one.illness == Illness::Backends && !one.is_one_host)
            .cloned();
        let Some(ill) = ill else {
            context.handle.suspect(suspects, None).await?;
            return Ok(());
        };
        let zone = name_of(&ill.zone)?;
        let would = match (reports.automatic, context.check_drain(&zone).await) {
            (_, Err(stopped @ EvacuationError::Stopped(_))) => return Err(stopped),
            (Mode::Enforce, _) => None,
            (_, Ok(found)) if found.allowed > 0 => {
                Some(format!("would have drained {zone} by {} %", found.allowed))
            }
            (_, Ok(found)) => Some(format!("would not have drained {zone}: {}", found.text())),
            (_, Err(_)) => None,
        };
        context
            .handle
            .suspect(suspects, would.map(Into::into))
            .await?;
        let is_tried = self
            .tried
            .get(&ill.zone)
            .is_some_and(|at| now.saturating_duration_since(*at) < AGAIN);
        if reports.automatic == Mode::Enforce && !is_tried {
            self.tried.insert(ill.zone.clone(), now);
            let share = 100.0 * ill.failed_share;
            let reason = format!("{share:.1} % of the requests to it fail");
            match context.drain_ill(zone, &reason, BY).await {
                // A refusal is in the audit.
                Ok(_) | Err(EvacuationError::Refused(_) | EvacuationError::Question(_)) => {}
                Err(stopped) => return Err(stopped),
            }
        }
        Ok(())
    }
}

fn reports(state: &State, now: Instant) -> Reports {
    let mut hosts: BTreeMap<Locality, usize> = BTreeMap::new();
    for service in state.config().services.values() {
        for entry in service.assignment.endpoints() {
            *hosts.entry(entry.locality.clone()).or_default() += entry.lb_endpoints.len();
        }
    }
    let config = state.config();
    Reports {
        matrix: super::errors(state, now),
        hosts,
        automatic: config.operation.evacuation.automatic,
        interval: config.reporting.load_reporting_interval,
    }
}

fn name_of(zone: &Locality) -> Result<ZoneName, EvacuationError> {
    let name = match zone.region() {
        "" => zone.zone().to_owned(),
        region => format!("{region}/{}", zone.zone()),
    };
    Ok(ZoneName::try_new(&name)?)
}

/// Converts points of what is left of a zone to points of the zone, in whole steps.
fn total(drained: u32, allowed: u32) -> u32 {
    let left = WHOLE.saturating_sub(drained);
    (drained + left * allowed / WHOLE) / STEP * STEP
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_of_what_is_left_are_points_of_the_zone() {
        assert_eq!(total(0, 70), 70);
        assert_eq!(total(50, 100), 100);
        assert_eq!(total(50, 50), 70);
        assert_eq!(total(80, 0), 80);
    }
}
