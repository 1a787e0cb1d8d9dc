//! Suite `cswrr` (client-side weighted round robin): host weights from load reports, settings, and
//! counters of out-of-band load reports (in `oob`). Envoy prefers named metrics by default, and so
//! do the cases; Plimsoll does not by default.

mod inputs;
mod oob;

use std::sync::atomic::{AtomicU32, Ordering};

use plimsoll_core::endpoint_picking::client_side_weighted_round_robin::{
    OrcaWeightSlot, WeightError, WeightUpdater, weight,
};
use plimsoll_core::model::client_side_weighted_round_robin::{
    ClientSideWeightedRoundRobin, ClientSideWeightedRoundRobinParts, OobReporting,
};
use serde_json::{Map, Value, json};

use plimsoll_core::model::endpoint_policy::EndpointPolicy;
use plimsoll_xds::yaml::parse_cluster;

use self::inputs::{HostInput, Seconds, UpdateInputs, ValidityInputs, rules, seconds, slot};
use super::compare::Outcome;
use super::policies::{cluster_with, message, policy};
use super::report::ReportInput;
use super::translate::millis;
use super::{Case, CaseError, CaseResult};

const POLICY: &str = "envoy.load_balancing_policies.client_side_weighted_round_robin";

pub(super) fn run(case: &Case) -> CaseResult {
    match case.kind.as_str() {
        "utilization" => utilization(case),
        "weight" => weight_of(case),
        "validity" => Ok(validity(&case.inputs()?)),
        "report" => report(case),
        "update_weights" => update_weights(&case.inputs()?),
        "config" => config(case),
        "oob" => oob::run(case.inputs()?),
        _ => Err(CaseError::unknown_kind(case)),
    }
}

fn utilization(case: &Case) -> CaseResult {
    let settings = rules(case)?;
    let (names, precedence) = (settings.metric_names(), settings.utilization_precedence());
    let report: ReportInput = case.input("report")?;
    Ok(json!({"utilization": report.0.utilization(names, precedence)}).into())
}

fn weight_of(case: &Case) -> CaseResult {
    let weight = weight(&case.input::<ReportInput>("report")?.0, &rules(case)?);
    let mut outcome = result(weight);
    outcome["weight"] = weight.ok().into();
    Ok(outcome.into())
}

fn validity(inputs: &ValidityInputs) -> Outcome {
    let times = (inputs.non_empty_since_s, inputs.last_update_s);
    let slot = if inputs.has_data {
        slot(inputs.weight, times)
    } else {
        OrcaWeightSlot::default()
    };
    // The case gives both limits as instants; any `now` after them leads to the same result.
    let since = inputs.max_non_empty_since_s.instant();
    let update = inputs.min_last_update_s.instant();
    let now = since.max(update);
    let blackout = now.saturating_duration_since(since);
    let expiration = now.saturating_duration_since(update);
    let weight = slot.if_valid(blackout, expiration, now);
    json!({"weight": weight, "non_empty_since_s": seconds(slot.load().non_empty_since)}).into()
}

fn report(case: &Case) -> CaseResult {
    let times = (
        case.input("non_empty_since_s")?,
        case.input("last_update_s")?,
    );
    let weight: Option<u32> = case.input("weight")?;
    let slot = slot(weight.unwrap_or_default(), times);
    let report: ReportInput = case.input("report")?;
    let now = case.input::<Seconds>("now_s")?.instant();
    let observed = slot.observe(&report.0, &rules(case)?, now);
    let state = slot.load();
    let mut outcome = result(observed);
    outcome["weight"] = state.weight.into();
    outcome["non_empty_since_s"] = seconds(state.non_empty_since);
    outcome["last_update_s"] = seconds(state.last_update);
    Ok(outcome.into())
}

fn result(weight: Result<u32, WeightError>) -> Value {
    let message = weight.err().map(|error| error.to_string());
    json!({"result": if weight.is_ok() { "ok" } else { "error" }, "message": message})
}

fn update_weights(inputs: &UpdateInputs) -> CaseResult {
    let settings = ClientSideWeightedRoundRobin::try_new(ClientSideWeightedRoundRobinParts {
        blackout_period: Some(inputs.blackout_s.0),
        weight_expiration_period: Some(inputs.expiration_s.0),
        ..ClientSideWeightedRoundRobinParts::default()
    })?;
    let priorities: Vec<Vec<_>> = inputs
        .priorities
        .iter()
        .map(|hosts| hosts.iter().map(HostInput::host).collect())
        .collect();
    let (mut updater, mut callback) = (WeightUpdater::default(), false);
    for now in inputs.now_s.all() {
        for hosts in &priorities {
            let hosts = hosts.iter().map(|(slot, weight)| (slot, weight));
            callback |= updater.update(hosts, &settings, now.instant());
        }
    }
    let weight = |(_, weight): &(_, AtomicU32)| weight.load(Ordering::Relaxed);
    let weights: Vec<Vec<u32>> = priorities
        .iter()
        .map(|hosts| hosts.iter().map(weight).collect())
        .collect();
    Ok(json!({"lb_weights": weights, "callback": callback}).into())
}

fn config(case: &Case) -> CaseResult {
    let mut proto: Map<String, Value> = case.input("proto")?;
    // For Envoy, negative durations mean the default; Plimsoll rejects them.
    proto.retain(|_, value| value.as_i64().is_none_or(|value| value >= 0));
    let json = cluster_with(policy(POLICY, POLICY, message(proto)));
    let cluster =
        parse_cluster(&json.to_string()).map_err(|error| CaseError::inputs(error.to_string()))?;
    let EndpointPolicy::ClientSideWeightedRoundRobin(settings) = cluster.endpoint_policy() else {
        return Err(CaseError::inputs("the cluster has another policy"));
    };
    let oob = settings.oob_reporting();
    let authority = oob.and_then(OobReporting::authority).map(|name| &**name);
    let names = settings.metric_names().iter().map(ToString::to_string);
    Ok(json!({
        "enable_oob_load_report": settings.enable_oob_load_report(),
        "oob_reporting_period_ms": millis(settings.oob_reporting_period()),
        "blackout_period_ms": millis(settings.blackout_period()),
        "weight_expiration_period_ms": millis(settings.weight_expiration_period()),
        "weight_update_period_ms": millis(settings.weight_update_period()),
        "error_utilization_penalty": settings.error_utilization_penalty(),
        "metric_names_for_computing_utilization": names.collect::<Vec<_>>(),
        "oob_port": oob.and_then(OobReporting::port).unwrap_or(0),
        "oob_authority": authority.unwrap_or_default(),
        "oob_manager_created": oob.is_some(),
    })
    .into())
}
