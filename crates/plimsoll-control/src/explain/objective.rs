//! What an explanation says of a service with an objective: how each zone is planned, and why one
//! is above its load line.

use plimsoll_core::explain::{AboveLineCode, Explanation};
use plimsoll_core::model::locality::Locality;
use plimsoll_core::planner::capacity::{CapacityLearner, Frozen, MEDIAN_WEIGHT};
use plimsoll_core::planner::zone_plan::ZonePlan;

/// A plan by prices is a row for each zone, which no balancer computes from demand.
const HYPOTHETICAL: &str = "prices differ from pair to pair, and this answer is for the plan in \
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

/// Says what is known of the capacity of the hosts, and why not more.
pub(super) fn learned(learner: &CapacityLearner) -> String {
    let estimator = learner.estimator();
    let (hosts, known) = estimator.hosts();
    let mut text = match estimator.delivered() {
        None => format!(
            "capacity: is learned, and weights are as written until half of the hosts are known: \
             {known} of {hosts} are"
        ),
        Some(learned) => {
            let weights = || learned.weights().map(|(_, weight)| weight);
            let (least, most) = (weights().min(), weights().max());
            format!(
                "capacity: learned of {known} of {hosts} hosts: one like most serves {:.1} \
                 requests/s at utilization 1; weights are {} to {}, {} of one like most",
                learned.unit().of_typical_host(),
                least.unwrap_or(MEDIAN_WEIGHT),
                most.unwrap_or(MEDIAN_WEIGHT),
                MEDIAN_WEIGHT,
            )
        }
    };
    text += match estimator.frozen() {
        None | Some(Frozen::Empty) => "",
        Some(Frozen::FewHosts) => {
            "; the latest reports taught nothing: less than half of the hosts had requests, few \
             errors and a utilization between 0.1 and 10 in them"
        }
        Some(Frozen::SilentNodes) => {
            "; nothing is learned while proxies that sent more than 5 % of the requests do not \
             report"
        }
    };
    text
}

/// Says that hosts or demand that somebody supposes are not planned.
pub(super) fn explain_hypothetical(explanation: &mut Explanation) {
    explanation.notes.push(HYPOTHETICAL.to_owned());
}
