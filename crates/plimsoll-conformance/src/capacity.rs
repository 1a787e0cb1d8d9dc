//! Suite `capacity`: what hosts can serve, learned from their load reports.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::Duration;

use plimsoll_core::planner::capacity::{CapacityEstimator, Frozen, HostSample, LearnedCapacity};
use plimsoll_core::time::Instant;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::{Case, CaseError, CaseResult};

pub(super) fn run(case: &Case) -> CaseResult {
    match case.kind.as_str() {
        "learn" => learn(&case.inputs()?),
        _ => Err(CaseError::unknown_kind(case)),
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Inputs {
    steps: Vec<Step>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Step {
    at_s: u64,
    hosts: Option<BTreeSet<char>>,
    #[serde(default)]
    restarted: Vec<char>,
    window_s: Option<f64>,
    /// Succeeded and failed requests, and utilization.
    #[serde(default)]
    samples: BTreeMap<char, (u64, u64, f64)>,
}

fn learn(inputs: &Inputs) -> CaseResult {
    let mut estimator = CapacityEstimator::default();
    let steps = inputs.steps.iter().map(|step| handle(&mut estimator, step));
    let steps: Vec<Value> = steps.collect();
    Ok(json!({ "steps": steps }).into())
}

fn handle(estimator: &mut CapacityEstimator, step: &Step) -> Value {
    let mut result = Map::new();
    if let Some(hosts) = &step.hosts {
        estimator.handle_hosts(&hosts.iter().map(|name| address(*name)).collect());
    }
    for host in &step.restarted {
        estimator.handle_restart(address(*host));
    }
    if let Some(seconds) = step.window_s {
        let sample = |(name, &(succeeded, failed, utilization)): (&char, &(u64, u64, f64))| {
            let sample = HostSample {
                succeeded,
                failed,
                utilization,
            };
            (address(*name), sample)
        };
        let samples = step.samples.iter().map(sample).collect();
        let learned = estimator.handle_window(Duration::from_secs_f64(seconds), &samples);
        let frozen = learned.err().map(|frozen| match frozen {
            Frozen::Empty => "empty",
            Frozen::FewHosts => "few_hosts",
            Frozen::SilentNodes => "silent_nodes",
        });
        result.insert("frozen".to_owned(), json!(frozen));
    }
    let delivered = estimator.poll_learned(Instant::from_secs(step.at_s));
    result.insert(
        "delivered".to_owned(),
        delivered.as_ref().map_or(Value::Null, shown),
    );
    let rates: BTreeMap<char, f64> = ('a'..='z')
        .filter_map(|name| Some((name, estimator.rate(address(name))?)))
        .map(|(name, rate)| (name, (rate * 1000.0).round() / 1000.0))
        .collect();
    result.insert("rates".to_owned(), json!(rates));
    Value::Object(result)
}

fn shown(learned: &LearnedCapacity) -> Value {
    let weights: BTreeMap<char, u32> = ('a'..='z')
        .filter(|name| learned.weights().any(|(host, _)| host == address(*name)))
        .map(|name| (name, learned.weight(address(name))))
        .collect();
    json!({ "unit": learned.unit().rate(), "weights": weights })
}

fn address(name: char) -> SocketAddr {
    SocketAddr::from((
        [10, 0, 0, 1],
        u16::try_from(u32::from(name)).unwrap_or_default(),
    ))
}
