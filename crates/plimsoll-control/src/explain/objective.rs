//! What an explanation says of a service with an objective: how each zone is planned, and why one
//! is above its load line.

use plimsoll_core::explain::{AboveLineCode, Explanation};
use plimsoll_core::model::locality::Locality;
use plimsoll_core::planner::zone_plan::ZonePlan;

/// The plan is that of the measured demand.
const HYPOTHETICAL: &str = "the service has an objective, and this answer is for the plan in \
                            force: with other hosts or other demand there would be another plan";

/// Adds what the plan says of the zones: of `locality`, or of all that send requests away.
pub(super) fn explain(explanation: &mut Explanation, plan: &ZonePlan, locality: Option<&Locality>) {
    let shown = plan.zones().iter().filter(|zone| match locality {
        Some(locality) => zone.locality == *locality,
        None => zone.kept < zone.demand,
    });
    let sentences = shown.filter_map(|zone| plan.sentence(&zone.locality));
    explanation
        .notes
        .extend(sentences.map(|sentence| format!("objective: {sentence}")));
    let bill = plan.bill_sentence();
    explanation
        .notes
        .extend(bill.map(|sentence| format!("cost: {sentence}")));
    for row in &mut explanation.localities {
        let locality = row.locality();
        let by_plan = |code| {
            use AboveLineCode::{AssumedDemand, DeadBand, NoSpareCapacity, Rounding, Spill};
            // Others are settings that override the plan.
            matches!(
                code,
                AssumedDemand | DeadBand | NoSpareCapacity | Rounding | Spill
            )
        };
        if let Some(above) = row.above_line.as_mut().filter(|above| by_plan(above.code))
            && let Some(sentence) = plan.sentence(&locality)
        {
            above.code = AboveLineCode::Objective;
            above.text = sentence;
        }
    }
}

/// Says that hosts or demand that somebody supposes are not planned.
pub(super) fn explain_hypothetical(explanation: &mut Explanation) {
    explanation.notes.push(HYPOTHETICAL.to_owned());
}
