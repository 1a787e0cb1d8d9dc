//! What decides under load_aware_locality instead of load reports, in words.

use super::{FractionStatus, build};
use crate::host_source::HostClass;
use crate::snapshot::{PriorityView, RoutingSnapshot};

/// Explains the shares if requests fail by load reports, or if those of a locality have expired;
/// `None` if load reports decide.
pub(super) fn without_valid(snapshot: &RoutingSnapshot, view: &PriorityView) -> Option<String> {
    let table = view.load_aware.as_ref()?;
    let source = &table.sources[HostClass::Healthy];
    if source.is_fallback {
        let reason = "localities are chosen by host counts: by load reports more requests fail";
        return Some(reason.to_owned());
    }
    let slots = view.table.counts.localities.iter();
    let slots = || {
        let states = source.silent.iter().zip(&source.utilization);
        let slots = slots.clone().zip(states);
        slots.filter(|(slot, _)| slot.healthy > 0)
    };
    let silent = slots().filter(|(_, (silent, _))| **silent);
    let silent: Vec<String> = silent.map(|(slot, _)| slot.locality.to_string()).collect();
    if silent.is_empty() {
        return None;
    }
    let by = if source.compares_expired {
        "by the last utilization that hosts reported"
    } else if follows_demand(snapshot) {
        "by measured demand"
    } else {
        "by host counts"
    };
    let mut fails = source.silent.iter().zip(&source.fails);
    let why = if fails.any(|(silent, fails)| *silent && *fails) {
        "to which requests fail"
    } else {
        "no valid reports"
    };
    let is_any_measured = slots().any(|(_, (_, utilization))| utilization.is_some());
    Some(if is_any_measured {
        format!(
            "localities are chosen by the utilization that hosts report; {} {by}, {why}",
            silent.join(", ")
        )
    } else {
        format!("localities are chosen {by}, no valid reports: the last ones have expired")
    })
}

/// Whether measured demand takes the place of reports.
fn follows_demand(snapshot: &RoutingSnapshot) -> bool {
    let fractions = snapshot.zone.fractions.current();
    snapshot.config.uses_demand_feed_forward()
        && fractions.is_some_and(|current| {
            build::in_force(snapshot, current.fractions) == FractionStatus::FeedForward
        })
}
