//! Suite `load_aware_locality`: locality weights from load reports, selection by weight, counters
//! and settings. Weights (in `weights`) are those of a cluster of the engine, counters (in
//! `zone_stat`) those of a real picker, settings (in `config`) from the parser of cluster files.
//! Envoy prefers named metrics by default, and so do the cases; Plimsoll does not by default.

mod config;
mod weights;
mod zone_stat;

use std::net::SocketAddr;
use std::sync::Arc;

use plimsoll_core::balancer::Balancer;
use plimsoll_core::host::Host;
use plimsoll_core::locality_picking::load_aware_locality::{choose_locality, usable_slot};
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
use plimsoll_core::model::orca::OrcaLoadReport;
use plimsoll_core::rng::splitmix64;
use plimsoll_core::time::Instant;
use serde_json::json;

use super::report::{Number, ReportInput, metric_rules};
use super::{Case, CaseError, CaseResult, Engine};

pub(super) fn run(case: &Case, engine: &dyn Engine) -> CaseResult {
    if case.kind == "weights" {
        return weights::run(case, case.inputs()?, engine);
    }
    CaseError::unless_functions(engine)?;
    match case.kind.as_str() {
        "locality_pick" => locality_pick(case),
        "worker_pick" => worker_pick(case),
        "zone_stat" => zone_stat::run(&case.inputs()?),
        "config" => config::run(case, case.inputs()?),
        "utilization" => utilization(case),
        "fanout" => fanout(case),
        _ => Err(CaseError::unknown_kind(case)),
    }
}

fn locality_pick(case: &Case) -> CaseResult {
    let mixed = splitmix64(case.input("hash")?);
    let index = choose_locality(mixed, &prefix_sums(&case.input::<Vec<f64>>("weights")?));
    Ok(json!({"splitmix64_hex": format!("{mixed:016x}"), "locality_index": index}).into())
}

fn worker_pick(case: &Case) -> CaseResult {
    let usable: Vec<bool> = case.input("usable")?;
    let weights: Vec<f64> = case.input("aligned_weights")?;
    if usable.len() != weights.len() {
        return Err(CaseError::inputs("usable: must have one entry per weight"));
    }
    let preferred = choose_locality(splitmix64(case.input("hash")?), &prefix_sums(&weights));
    let index = usable_slot(preferred, usable.len(), |slot| usable[slot]);
    Ok(json!({"locality_index": index}).into())
}

fn prefix_sums(weights: &[f64]) -> Vec<f64> {
    let sums = weights.iter().scan(0.0, |sum, weight| {
        *sum += weight;
        Some(*sum)
    });
    sums.collect()
}

fn utilization(case: &Case) -> CaseResult {
    let (metric_names, precedence) = metric_rules(case)?;
    let settings = LoadAwareLocality::try_new(LoadAwareLocalityParts {
        metric_names_for_computing_utilization: metric_names,
        utilization_precedence: precedence,
        ..LoadAwareLocalityParts::default()
    })?;
    let config = cluster(settings, EndpointPolicy::default())?;
    let host = observing(&config, &case.input::<ReportInput>("report")?.0)?;
    let utilization = host.utilization().map(|(utilization, _)| utilization);
    Ok(json!({"stored": utilization.is_some(), "utilization": utilization}).into())
}

/// `kind.fanout`: the locality policy and a child policy that weighs hosts use the same report.
fn fanout(case: &Case) -> CaseResult {
    let (metric_names, precedence) = metric_rules(case)?;
    let settings = LoadAwareLocality::try_new(LoadAwareLocalityParts {
        metric_names_for_computing_utilization: metric_names.clone(),
        utilization_precedence: precedence,
        ..LoadAwareLocalityParts::default()
    })?;
    let child = ClientSideWeightedRoundRobin::try_new(ClientSideWeightedRoundRobinParts {
        error_utilization_penalty: Some(case.input::<Number>("error_utilization_penalty")?.0),
        metric_names_for_computing_utilization: metric_names,
        utilization_precedence: precedence,
        ..ClientSideWeightedRoundRobinParts::default()
    })?;
    let child = EndpointPolicy::ClientSideWeightedRoundRobin(child);
    let report: ReportInput = case.input("report")?;
    let host = observing(&cluster(settings, child)?, &report.0)?;
    let utilization = host.utilization().map(|(utilization, _)| utilization);
    Ok(json!({"locality_utilization": utilization, "cswrr_weight": host.orca_weight()}).into())
}

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
    let host = balancer
        .poll_snapshot()
        .and_then(|snapshot| snapshot.hosts().next().cloned())
        .ok_or_else(|| CaseError::inputs("the balancer has no host"))?;
    host.observe_orca(report, config, now);
    Ok(host)
}

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
