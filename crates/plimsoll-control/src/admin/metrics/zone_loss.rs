//! Metrics of lost zones: how full services would be without each of their zones.

use plimsoll_core::evacuation::Ended;
use plimsoll_core::time::Instant;

use super::Values;
use crate::evacuation::errors;
use crate::state::State;
use crate::zone_loss::ServiceLosses;

/// Most zones of services with series; the worst ones if there are more. Each has two.
const MAX_ZONES: usize = 200;
/// Most pairs of zones with a series.
const MAX_LINKS: usize = 400;

pub(super) fn add(values: &mut Values, losses: &[ServiceLosses]) {
    let mut found: Vec<_> = losses
        .iter()
        .flat_map(|service| {
            let worst = service.worst();
            worst.map(move |(zone, figure)| (&*service.service.cluster, zone, figure))
        })
        .filter_map(|(cluster, zone, figure)| Some((cluster, zone, figure?)))
        .collect();
    if found.len() > MAX_ZONES {
        found.sort_by(|a, b| b.2.load.total_cmp(&a.2.load));
    }
    for (cluster, zone, figure) in found.into_iter().take(MAX_ZONES) {
        let locality = zone.to_string();
        let labels = [cluster, &*locality];
        values.add("zone_loss_load_ratio", &labels, figure.load);
        if let Some(utilization) = figure.utilization {
            values.add("zone_loss_utilization_ratio", &labels, utilization);
        }
    }
}

/// Adds which zones are out of use or ill, and what fails between zones.
pub(super) fn add_states(values: &mut Values, state: &State, now: Instant) {
    let out = state.zones_out();
    let now_ms = out.unix_ms(now);
    for order in out.orders().orders() {
        let drained = f64::from(order.drained(now_ms)) / 100.0;
        values.add("zone_drained_ratio", &[order.zone.as_str()], drained);
    }
    for suspect in out.suspects() {
        let locality = suspect.zone.to_string();
        values.add("zone_suspect", &[&*locality, suspect.illness.name()], 1);
    }
    let errors = errors(state, now);
    let links = errors
        .iter()
        .flat_map(|(from, row)| row.iter().map(move |cell| (from, cell)));
    for (from, (to, ended)) in links.take(MAX_LINKS) {
        let [from, to] = [from, to].map(ToString::to_string);
        let share = failed_share(*ended);
        values.add("link_failed_ratio", &[&*from, &*to], share);
    }
}

#[expect(clippy::cast_precision_loss, reason = "a ratio of counts")]
fn failed_share(ended: Ended) -> f64 {
    ended.failed as f64 / ended.requests.max(1) as f64
}
