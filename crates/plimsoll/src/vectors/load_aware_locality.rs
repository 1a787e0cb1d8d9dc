//! The suite `load_aware_locality`: from reports of hosts to weights of localities, the choice by
//! weight, its counters, and its settings.
//!
//! Weights (in `weights`) and counters (in `zone_stat`) come out of a real balancer and picker,
//! settings (in `config`) out of the reader of cluster files. Envoy prefers named metrics by
//! default, and so do these cases; our own default does not.

mod config;
mod weights;
mod zone_stat;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use plimsoll_core::balancer::Balancer;
use plimsoll_core::host::Host;
use plimsoll_core::locality_picking::load_aware_locality::{choose_locality, mix, usable_slot};
use plimsoll_core::model::assignment::{
    AssignmentParts, ClusterLoadAssignment, LbEndpoint, LocalityParts,
};
use plimsoll_core::model::client_side_weighted_round_robin::{
    ClientSideWeightedRoundRobin, ClientSideWeightedRoundRobinParts,
};
use plimsoll_core::model::cluster::{ClusterConfig, ClusterConfigParts, LocalityPolicy};
use plimsoll_core::model::endpoint_policy::EndpointPolicy;
use plimsoll_core::model::load_aware_locality::{LoadAwareLocality, LoadAwareLocalityParts};
use plimsoll_core::model::locality::Locality;
use plimsoll_core::model::orca::{OrcaLoadReport, UtilizationPrecedence};
use plimsoll_core::time::Instant;
use serde::Deserialize;

use super::compare::Outcome;
use super::report::{ReportInput, number};
use super::{Case, CaseError};

const KINDS: [&str; 7] = [
    "weights",
    "locality_pick",
    "worker_pick",
    "zone_stat",
    "config",
    "utilization",
    "fanout",
];

pub(super) fn run(case: &Case) -> Result<Outcome, CaseError> {
    match case.kind.as_str() {
        "weights" => weights::run(case, case.inputs()?),
        "locality_pick" => Ok(locality_pick(&case.inputs()?)),
        "worker_pick" => worker_pick(&case.inputs()?),
        "zone_stat" => zone_stat::run(&case.inputs()?),
        "config" => config::run(case, case.inputs()?),
        "utilization" => utilization(case.inputs()?),
        "fanout" => fanout(case.inputs()?),
        _ => Err(CaseError::unknown_kind(case, &KINDS)),
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct LocalityPickInputs {
    hash: u64,
    weights: Vec<f64>,
}

fn locality_pick(inputs: &LocalityPickInputs) -> Outcome {
    let mixed = mix(inputs.hash);
    let index = choose_locality(mixed, &prefix_sums(&inputs.weights));
    Outcome::default()
        .exact("splitmix64_hex", format!("{mixed:016x}"))
        .exact("locality_index", index)
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct WorkerPickInputs {
    hash: u64,
    aligned_weights: Vec<f64>,
    usable: Vec<bool>,
}

fn worker_pick(inputs: &WorkerPickInputs) -> Result<Outcome, CaseError> {
    let slots = inputs.usable.len();
    if slots != inputs.aligned_weights.len() {
        return Err(CaseError::inputs("usable: one per weight"));
    }
    let wanted = choose_locality(mix(inputs.hash), &prefix_sums(&inputs.aligned_weights));
    let index = usable_slot(wanted, slots, |slot| inputs.usable[slot]);
    Ok(Outcome::default().exact("locality_index", index))
}

fn prefix_sums(weights: &[f64]) -> Vec<f64> {
    let sums = weights.iter().scan(0.0, |sum, weight| {
        *sum += weight;
        Some(*sum)
    });
    sums.collect()
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct UtilizationInputs {
    report: ReportInput,
    #[serde(default)]
    metric_names: Vec<String>,
    #[serde(default = "yes")]
    named_metrics_first: bool,
}

fn utilization(inputs: UtilizationInputs) -> Result<Outcome, CaseError> {
    let settings = LoadAwareLocality::try_new(LoadAwareLocalityParts {
        metric_names_for_computing_utilization: inputs.metric_names,
        utilization_precedence: precedence(inputs.named_metrics_first),
        ..LoadAwareLocalityParts::default()
    })?;
    let config = cluster(settings, EndpointPolicy::default())?;
    let host = observing(&config, &inputs.report.0)?;
    let utilization = host.utilization().map(|(utilization, _)| utilization);
    Ok(Outcome::default()
        .exact("stored", utilization.is_some())
        .exact("utilization", utilization))
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct FanoutInputs {
    report: ReportInput,
    #[serde(default)]
    metric_names: Vec<String>,
    #[serde(default = "yes")]
    named_metrics_first: bool,
    #[serde(default, deserialize_with = "number")]
    error_utilization_penalty: f64,
}

/// One report feeds the parent and a child that weighs hosts.
fn fanout(inputs: FanoutInputs) -> Result<Outcome, CaseError> {
    let precedence = precedence(inputs.named_metrics_first);
    let settings = LoadAwareLocality::try_new(LoadAwareLocalityParts {
        metric_names_for_computing_utilization: inputs.metric_names.clone(),
        utilization_precedence: precedence,
        ..LoadAwareLocalityParts::default()
    })?;
    let child = ClientSideWeightedRoundRobin::try_new(ClientSideWeightedRoundRobinParts {
        error_utilization_penalty: Some(inputs.error_utilization_penalty),
        metric_names_for_computing_utilization: inputs.metric_names,
        utilization_precedence: precedence,
        ..ClientSideWeightedRoundRobinParts::default()
    })?;
    let child = EndpointPolicy::ClientSideWeightedRoundRobin(child);
    let host = observing(&cluster(settings, child)?, &inputs.report.0)?;
    let utilization = host.utilization().map(|(utilization, _)| utilization);
    Ok(Outcome::default()
        .exact("locality_utilization", utilization)
        .exact("cswrr_weight", host.orca_weight()))
}

/// A host that has just taken a report.
fn observing(config: &Arc<ClusterConfig>, report: &OrcaLoadReport) -> Result<Arc<Host>, CaseError> {
    let now = Instant::ORIGIN;
    let mut balancer = Balancer::new(Arc::clone(config), Locality::default(), now);
    let endpoint = LbEndpoint::new(SocketAddr::from(([10, 0, 0, 1], 80)));
    balancer.handle_assignment(
        ClusterLoadAssignment::try_new(AssignmentParts {
            endpoints: vec![LocalityParts {
                locality: Locality::zone_only("a"),
                lb_endpoints: vec![endpoint],
                ..LocalityParts::default()
            }],
            ..AssignmentParts::default()
        })?,
        now,
    );
    let snapshot = balancer.poll_snapshot();
    let host = snapshot.and_then(|snapshot| snapshot.hosts().next().cloned());
    let host = host.ok_or_else(|| CaseError::inputs("the balancer has no host"))?;
    host.observe_orca(report, config, now);
    Ok(host)
}

/// A cluster with the policy and its child.
fn cluster(
    settings: LoadAwareLocality,
    endpoint_policy: EndpointPolicy,
) -> Result<Arc<ClusterConfig>, CaseError> {
    let config = ClusterConfig::try_new(ClusterConfigParts {
        name: "case".into(),
        locality_policy: LocalityPolicy::LoadAwareLocality(settings),
        endpoint_policy,
        ..ClusterConfigParts::default()
    })?;
    Ok(Arc::new(config))
}

const fn precedence(named_metrics_first: bool) -> UtilizationPrecedence {
    if named_metrics_first {
        UtilizationPrecedence::NamedMetricsFirst
    } else {
        UtilizationPrecedence::ApplicationFirst
    }
}

const fn yes() -> bool {
    true
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
