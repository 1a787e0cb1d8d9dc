//! `kind.subset_pick` and `kind.subset_build`: a real balancer, its snapshots, and a real picker.

mod rig;

use plimsoll_core::model::metadata::{MatchCriteria, Metadata};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::inputs::{Health, HostInput, Json, PriorityInput};
use super::inputs::{fields_to_json, metadata};
use crate::{CaseError, CaseResult};
use rig::Rig;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PickInputs {
    #[serde(default)]
    lb_subset_config: Json,
    priorities: Vec<PriorityInput>,
    #[serde(default)]
    child: Child,
    /// Random number used while balancers are built; always 0 in cases.
    #[serde(default)]
    seed: u64,
    local: Option<PriorityInput>,
    #[serde(default)]
    runtime: Runtime,
    #[serde(default = "default_threshold")]
    healthy_panic_threshold_percent: f64,
    #[serde(default)]
    steps: Vec<Step>,
}

const fn default_threshold() -> f64 {
    50.0
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Child {
    name: ChildName,
    locality_weighted: bool,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
enum ChildName {
    #[default]
    RoundRobin,
    Random,
    LeastRequest,
    RingHash,
    Maglev,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Runtime {
    #[serde(rename = "upstream.zone_routing.min_cluster_size")]
    min_cluster_size: Option<u64>,
    #[serde(rename = "upstream.healthy_panic_threshold")]
    healthy_panic_threshold: Option<u32>,
}

#[derive(Debug, Deserialize)]
#[serde(tag = "op", rename_all = "snake_case", deny_unknown_fields)]
enum Step {
    Pick {
        metadata_match: Option<Json>,
        #[serde(default)]
        random: Vec<u64>,
    },
    Peek {
        #[expect(dead_code, reason = "preconnecting is not supported")]
        metadata_match: Option<Json>,
    },
    Update(Update),
    UpdateLocal(Update),
    Destroy {},
    Stats {},
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Update {
    priority: usize,
    remove: Vec<String>,
    metadata: Map<String, Value>,
    health: std::collections::BTreeMap<String, Health>,
    add: Vec<HostInput>,
}

pub(super) fn run(inputs: &PickInputs, expected: &Json) -> CaseResult {
    let mut rig = Rig::new(inputs)?;
    let mut results = Vec::with_capacity(inputs.steps.len());
    for (index, step) in inputs.steps.iter().enumerate() {
        results.push(match step {
            Step::Pick {
                metadata_match,
                random,
            } => {
                let criteria = metadata_match
                    .as_ref()
                    .map(metadata)
                    .transpose()?
                    .map(MatchCriteria::new);
                json!({"host": rig.pick(criteria.as_ref(), random)?})
            }
            // Plimsoll does not support preconnecting.
            Step::Peek { .. } => json!({"host": null}),
            Step::Update(update) => {
                rig.update(update)?;
                json!({"done": true})
            }
            Step::UpdateLocal(update) => {
                rig.update_local(update)?;
                json!({"done": true})
            }
            Step::Destroy {} => {
                rig.destroy()?;
                json!({"done": true})
            }
            Step::Stats {} => {
                let named = expected.get("results").and_then(|all| all.get(index));
                json!({"stats": rig.stats(named.and_then(|it| it.get("stats")))})
            }
        });
    }
    Ok(json!({"results": results}).into())
}

/// Lists the subsets in the order of `expected`; subsets that `expected` does not name take the
/// places of missing subsets.
pub(super) fn build(inputs: &PickInputs, expected: &Json) -> CaseResult {
    if !inputs.steps.is_empty() {
        return Err(CaseError::inputs(
            "unknown field `steps`: nothing is picked",
        ));
    }
    let mut rig = Rig::new(inputs)?;
    let subset = |(metadata, hosts): &(Metadata, Vec<String>)| {
        let metadata = fields_to_json(metadata);
        json!({"metadata": metadata, "hosts": hosts})
    };
    let mut found: Vec<Value> = rig.subsets().iter().map(subset).collect();
    let expected = expected
        .get("subsets")
        .and_then(Value::as_array)
        .map_or(&[][..], Vec::as_slice);
    let same = |one: &Value, other: &Value| one["metadata"] == other["metadata"];
    let unnamed = |found: &Value| !expected.iter().any(|expected| same(expected, found));
    let mut sorted = Vec::new();
    for expected in expected {
        let named = found.iter().position(|found| same(expected, found));
        let index = named.or_else(|| found.iter().position(unnamed));
        sorted.extend(index.map(|index| found.remove(index)));
    }
    sorted.extend(found);
    Ok(json!({"subsets": sorted, "default_subset": rig.default_subset()}).into())
}
