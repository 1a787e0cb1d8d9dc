//! `kind.observed_load`: response times and errors of the case in, shares of one proxy out.

use std::collections::BTreeMap;

use plimsoll_core::model::cluster::LocalityPolicy;
use plimsoll_core::model::zone_aware::{LocalityBasis, ZoneAware, ZoneAwareParts};
use serde::Deserialize;
use serde_json::{Value, json};

use super::ZoneInput;
use super::proxy::Proxy;
use crate::{CaseError, CaseResult, Engine};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ObservedLoadInputs {
    own: String,
    zones: Vec<ZoneInput>,
    steps: Vec<Step>,
}

#[derive(Debug, Deserialize)]
#[serde(tag = "op", rename_all = "snake_case", deny_unknown_fields)]
enum Step {
    Serve {
        seconds: u32,
        /// Milliseconds after which hosts answer, by zone.
        answers: BTreeMap<String, u64>,
        /// Requests to each zone in each second that are answered with an error at once.
        #[serde(default)]
        errors: BTreeMap<String, usize>,
    },
    /// Records shares and what decides them.
    Observe {},
}

/// Requests per second that every host answers.
const ANSWERED: u32 = 100;

pub(super) fn run(inputs: ObservedLoadInputs, engine: &dyn Engine) -> CaseResult {
    let mut proxy = Proxy::with_policy(engine, policy()?, &inputs.own, &inputs.zones)?;
    let (mut shares, mut reasons) = (Vec::new(), Vec::new());
    for step in inputs.steps {
        match step {
            Step::Serve {
                seconds,
                answers,
                errors,
            } => {
                for _ in 0..seconds {
                    for (zone, &milliseconds) in &answers {
                        proxy.answer(zone, ANSWERED, milliseconds);
                    }
                    for (zone, &failed) in &errors {
                        proxy.send(zone, [0, failed]);
                    }
                    proxy.pass_second();
                }
            }
            Step::Observe {} => {
                shares.push(proxy.zone_aware_shares());
                reasons.push(decides(&proxy.reason()));
            }
        }
    }
    Ok(json!({ "shares": shares, "decides": reasons }).into())
}

fn policy() -> Result<LocalityPolicy, CaseError> {
    let rules = ZoneAware::try_new(ZoneAwareParts {
        locality_basis: LocalityBasis::ObservedLoad,
        ..ZoneAwareParts::default()
    })?;
    Ok(LocalityPolicy::ZoneAware(rules))
}

/// Returns what decides the shares, by the words of the explanation.
fn decides(reason: &str) -> Value {
    if reason.starts_with("response times of this proxy's own requests decide") {
        json!("response times")
    } else if reason.starts_with("host counts decide") {
        json!("host counts")
    } else {
        json!(reason)
    }
}
