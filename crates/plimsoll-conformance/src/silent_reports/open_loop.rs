//! `kind.open_loop`: reports and demand of the case in, shares of one proxy out.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Value, json};

use super::proxy::Proxy;
use super::{SettingsInput, ZoneInput};
use crate::{CaseResult, Engine};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct OpenLoopInputs {
    config: SettingsInput,
    own: String,
    zones: Vec<ZoneInput>,
    steps: Vec<Step>,
}

#[derive(Debug, Deserialize)]
#[serde(tag = "op", rename_all = "snake_case", deny_unknown_fields)]
enum Step {
    /// Every second for `seconds`, the first `hosts` hosts (default: all) of each zone report.
    Report {
        utilization: BTreeMap<String, f64>,
        seconds: u32,
        hosts: Option<usize>,
        /// Part of the requests that the hosts of a zone report as failed.
        #[serde(default)]
        errors: BTreeMap<String, f64>,
        /// Requests of the proxy to each zone in each second that succeed, and that fail.
        #[serde(default)]
        sent: BTreeMap<String, [usize; 2]>,
    },
    Silence {
        seconds: u32,
    },
    /// Fractions that arrive every second from now on.
    Demand {
        fractions: BTreeMap<String, u64>,
    },
    SetHosts {
        zones: Vec<ZoneInput>,
    },
    /// Records shares, what decides them, and localities counted as stale since the last time.
    Observe {},
}

pub(super) fn run(inputs: OpenLoopInputs, engine: &dyn Engine) -> CaseResult {
    let mut proxy = Proxy::new(engine, &inputs.config, &inputs.own, &inputs.zones)?;
    let (mut shares, mut reasons, mut stale) = (Vec::new(), Vec::new(), Vec::new());
    let mut counted = 0;
    for step in inputs.steps {
        match step {
            Step::Report {
                utilization,
                seconds,
                hosts,
                errors,
                sent,
            } => {
                let hosts = hosts.unwrap_or(usize::MAX);
                for _ in 0..seconds {
                    for (zone, &utilization) in &utilization {
                        proxy.report(zone, utilization, errors.get(zone).copied(), hosts);
                    }
                    for (zone, &requests) in &sent {
                        proxy.send(zone, requests);
                    }
                    proxy.pass_second();
                }
            }
            Step::Silence { seconds } => (0..seconds).for_each(|_| proxy.pass_second()),
            Step::Demand { fractions } => proxy.set_demand(&fractions)?,
            Step::SetHosts { zones } => proxy.set_hosts(&zones)?,
            Step::Observe {} => {
                shares.push(proxy.shares());
                reasons.push(decides(&proxy.reason()));
                stale.push(proxy.stale_localities() > counted);
                counted = proxy.stale_localities();
            }
        }
    }
    let outcome = json!({ "shares": shares, "decides": reasons, "stale": stale });
    Ok(outcome.into())
}

/// Returns what decides the shares, by the words of the explanation.
fn decides(reason: &str) -> Value {
    let with = |words: &str| reason.contains(words);
    if with("by the last utilization") {
        return json!("last reports");
    }
    match (
        with("utilization"),
        with("by host counts"),
        with("by measured demand"),
    ) {
        (true, false, false) => json!("reports"),
        (true, true, false) => json!("reports, host counts"),
        (true, false, true) => json!("reports, demand"),
        (false, true, false) => json!("host counts"),
        (false, false, true) => json!("demand"),
        _ => json!(reason),
    }
}
