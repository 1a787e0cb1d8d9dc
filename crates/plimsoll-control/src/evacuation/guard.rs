//! [`guard`]: the task that watches zones while they move, and keeps orders in the state file.
//!
//! Demand changes while a drain runs: each step is checked with what is measured by then, and a
//! drain that does not fit any more stays where it is.

use std::sync::Arc;
use std::time::Duration;

use plimsoll_core::evacuation::{STEP, WHOLE, ZoneName, ZoneState};
use plimsoll_core::log_line;
use tokio::sync::Notify;

use super::{EvacuationError, OrderRecord, StateFile, ZoneCommand};
use crate::log_lines;
use crate::run::Context;
use crate::state::State;

/// Time between two checks: half a step.
const INTERVAL: Duration = Duration::from_secs(5);
/// Who holds a drain, in the audit.
const BY: &str = "the control plane";

/// Watches zones until the control plane stops. `changed` tells that orders are to be kept.
pub(crate) async fn guard(context: Context, file: Option<StateFile>, changed: Arc<Notify>) {
    let mut ticks = tokio::time::interval(INTERVAL);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        let checked = tokio::select! {
            () = context.stopping.cancelled() => return,
            () = changed.notified() => save(&context, file.as_ref()).await,
            _ = ticks.tick() => check_moving(&context).await,
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
