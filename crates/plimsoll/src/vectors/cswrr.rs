//! The suite `cswrr`: client side weighted round robin, from one report to the weights in force,
//! its settings, and the counters of out-of-band sessions (in `oob`).
//!
//! Envoy prefers named metrics by default, and so do these cases; our own default does not.

mod inputs;
mod oob;

use std::sync::atomic::Ordering;
use std::time::Duration;

use plimsoll_core::endpoint_picking::client_side_weighted_round_robin::{
    OrcaWeightSlot, WeightError, WeightUpdater, weight,
};
use plimsoll_core::model::client_side_weighted_round_robin::{
    ClientSideWeightedRoundRobin, ClientSideWeightedRoundRobinParts, OobReporting,
};
use serde_json::Value;

use self::inputs::{
    ConfigInputs, HostInput, ReportInputs, UpdateInputs, UtilizationInputs, ValidityInputs,
    WeightInputs, rules, seconds, slot,
};
use super::compare::Outcome;
use super::{Case, CaseError};

const KINDS: [&str; 7] = [
    "utilization",
    "weight",
    "validity",
    "report",
    "update_weights",
    "config",
    "oob",
];

pub(super) fn run(case: &Case) -> Result<Outcome, CaseError> {
    match case.kind.as_str() {
        "utilization" => utilization(case.inputs()?),
        "weight" => weight_of(case.inputs()?),
        "validity" => Ok(validity(&case.inputs()?)),
        "report" => report(case.inputs()?),
        "update_weights" => update_weights(&case.inputs()?),
        "config" => config(case.inputs()?),
        "oob" => oob::run(case.inputs()?),
        _ => Err(CaseError::unknown_kind(case, &KINDS)),
    }
}

fn utilization(inputs: UtilizationInputs) -> Result<Outcome, CaseError> {
    let report = inputs.report.0;
    let settings = rules(inputs.metric_names, inputs.named_metrics_first, 0.0)?;
    let (names, precedence) = (settings.metric_names(), settings.utilization_precedence());
    Ok(Outcome::default().exact("utilization", report.utilization(names, precedence)))
}

fn weight_of(inputs: WeightInputs) -> Result<Outcome, CaseError> {
    let report = inputs.report.0;
    let penalty = inputs.error_utilization_penalty;
    let settings = rules(inputs.metric_names, inputs.named_metrics_first, penalty)?;
    let weight = weight(&report, &settings);
    Ok(result(weight).exact("weight", weight.ok()))
}

fn validity(inputs: &ValidityInputs) -> Outcome {
    let times = (inputs.non_empty_since_s, inputs.last_update_s);
    let slot = if inputs.has_data {
        slot(inputs.weight, times)
    } else {
        OrcaWeightSlot::default()
    };
    // The case gives the limits themselves; any time not before both of them gives the same.
    let since = inputs.max_non_empty_since_s.instant();
    let update = inputs.min_last_update_s.instant();
    let now = since.max(update);
    let blackout = now.saturating_duration_since(since);
    let expiration = now.saturating_duration_since(update);
    let weight = slot.if_valid(blackout, expiration, now);
    Outcome::default()
        .exact("weight", weight)
        .exact("non_empty_since_s", seconds(slot.load().non_empty_since))
}

fn report(inputs: ReportInputs) -> Result<Outcome, CaseError> {
    let slot = slot(
        inputs.weight,
        (inputs.non_empty_since_s, inputs.last_update_s),
    );
    let report = inputs.report.0;
    let penalty = inputs.error_utilization_penalty;
    let settings = rules(inputs.metric_names, inputs.named_metrics_first, penalty)?;
    let observed = slot.observe(&report, &settings, inputs.now_s.instant());
    let state = slot.load();
    Ok(result(observed)
        .exact("weight", state.weight)
        .exact("non_empty_since_s", seconds(state.non_empty_since))
        .exact("last_update_s", seconds(state.last_update)))
}

fn result(weight: Result<u32, WeightError>) -> Outcome {
    let message = weight.err().map(|error| error.to_string());
    Outcome::default()
        .exact("result", if weight.is_ok() { "ok" } else { "error" })
        .exact("message", message)
}

fn update_weights(inputs: &UpdateInputs) -> Result<Outcome, CaseError> {
    let settings = ClientSideWeightedRoundRobin::try_new(ClientSideWeightedRoundRobinParts {
        blackout_period: Some(inputs.blackout_s.0),
        weight_expiration_period: Some(inputs.expiration_s.0),
        ..ClientSideWeightedRoundRobinParts::default()
    })?;
    let priorities = inputs.priorities.iter();
    let priorities: Vec<Vec<_>> = priorities
        .map(|hosts| hosts.iter().map(HostInput::host).collect())
        .collect();
    let (mut updater, mut callback) = (WeightUpdater::default(), false);
    for now in inputs.now_s.all() {
        for hosts in &priorities {
            let hosts = hosts.iter().map(|(slot, weight)| (slot, weight));
            callback |= updater.update(hosts, &settings, now.instant());
        }
    }
    let weights = priorities.iter().map(|hosts| {
        let weights = hosts.iter();
        let weights = weights.map(|(_, weight)| Value::from(weight.load(Ordering::Relaxed)));
        weights.collect::<Value>()
    });
    Ok(Outcome::default()
        .exact("lb_weights", weights.collect::<Value>())
        .exact("callback", callback))
}

fn config(inputs: ConfigInputs) -> Result<Outcome, CaseError> {
    let settings = ClientSideWeightedRoundRobin::try_new(inputs.proto.parts())?;
    let millis = |period: Duration| u64::try_from(period.as_millis()).ok();
    let oob = settings.oob_reporting();
    let port = oob.and_then(OobReporting::port).unwrap_or(0);
    let authority = oob.and_then(OobReporting::authority).map(|name| &**name);
    let names = settings.metric_names().iter().map(ToString::to_string);
    let names: Vec<_> = names.collect();
    Ok(Outcome::default()
        .exact("enable_oob_load_report", settings.enable_oob_load_report())
        .exact(
            "oob_reporting_period_ms",
            millis(settings.oob_reporting_period()),
        )
        .exact("blackout_period_ms", millis(settings.blackout_period()))
        .exact(
            "weight_expiration_period_ms",
            millis(settings.weight_expiration_period()),
        )
        .exact(
            "weight_update_period_ms",
            millis(settings.weight_update_period()),
        )
        .exact(
            "error_utilization_penalty",
            settings.error_utilization_penalty(),
        )
        .exact("metric_names_for_computing_utilization", names)
        .exact("oob_port", port)
        .exact("oob_authority", authority.unwrap_or_default())
        .exact("oob_manager_created", oob.is_some()))
}

#[cfg(test)]
mod tests;
