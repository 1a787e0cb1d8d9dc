//! `kind.subset_pick` and `kind.subset_build`: a real balancer, its snapshots, and a real picker.

mod rig;

use plimsoll_core::model::metadata::{MatchCriteria, Metadata};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::inputs::{Health, HostInput, Json, PriorityInput, SubsetConfig};
use super::inputs::{fields_to_json, metadata};
use crate::vectors::CaseError;
use crate::vectors::compare::Outcome;
use rig::Rig;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PickInputs {
    #[serde(default)]
    lb_subset_config: SubsetConfig,
    priorities: Vec<PriorityInput>,
    #[serde(default)]
    child: Child,
    /// Value of every draw made while balancers are built; no case has another than 0.
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
        #[expect(dead_code, reason = "nobody asks in advance here")]
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

pub(super) fn run(inputs: &PickInputs, expected: &Json) -> Result<Outcome, CaseError> {
    let mut rig = Rig::new(inputs)?;
    let mut results = Vec::with_capacity(inputs.steps.len());
    for (index, step) in inputs.steps.iter().enumerate() {
        results.push(match step {
            Step::Pick {
                metadata_match,
                random,
            } => {
                let criteria = metadata_match.as_ref().map(metadata).transpose()?;
                let criteria = criteria.map(MatchCriteria::new);
                json!({"host": rig.pick(criteria.as_ref(), random)?})
            }
            // There is no preconnecting here: nobody answers.
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
    Ok(Outcome::default().exact("results", results))
}

/// The subsets there are, in the order of the case; those it does not name come where others of it
/// are missing.
pub(super) fn build(inputs: &PickInputs, expected: &Json) -> Result<Outcome, CaseError> {
    if !inputs.steps.is_empty() {
        return Err(CaseError::inputs(
            "unknown field `steps`: nothing is picked",
        ));
    }
    let mut rig = Rig::new(inputs)?;
    let wanted = expected.get("subsets").and_then(Value::as_array);
    let wanted = wanted.into_iter().flatten().map(|subset| {
        let fields = subset.get("metadata").and_then(Value::as_object);
        fields.map(metadata).transpose()
    });
    let wanted: Vec<Option<Metadata>> = wanted.collect::<Result<_, _>>()?;
    let mut found = rig.subsets();
    let place = |subset: &Metadata| wanted.iter().position(|it| it.as_ref() == Some(subset));
    found.sort_by_key(|(metadata, _)| place(metadata).is_some());
    let known = found.partition_point(|(metadata, _)| place(metadata).is_none());
    let mut named = found.split_off(known);
    named.sort_by_key(|(metadata, _)| place(metadata));
    let mut others = found.into_iter();
    let mut named = named.into_iter().peekable();
    let mut shown = Vec::new();
    for index in 0..wanted.len() {
        let here = named.next_if(|(metadata, _)| place(metadata) == Some(index));
        shown.extend(here.or_else(|| others.next()));
    }
    shown.extend(named.chain(others));
    let shown = shown
        .iter()
        .map(|(metadata, hosts)| json!({"metadata": fields_to_json(metadata), "hosts": hosts}));
    Ok(Outcome::default()
        .exact("subsets", shown.collect::<Vec<_>>())
        .exact("default_subset", rig.default_subset()))
}
