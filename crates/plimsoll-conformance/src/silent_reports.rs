//! Suite `silent_reports`: locality shares of `load_aware_locality` when load reports stop, and of
//! `OBSERVED_LOAD` when requests fail.
//!
//! A proxy is a cluster of the engine with its own timer. Every second of a case hosts report,
//! measured demand arrives, and the timer fires; nothing else computes shares. In `open_loop`
//! (module `open_loop`) the case has the reports; in `closed_loop` one proxy per zone routes the
//! demand of its zone, and hosts report the load that results. In `observed_load` the case has the
//! response times and errors of one proxy's requests.

mod closed_loop;
mod observed_load;
mod open_loop;
mod proxy;

use std::time::Duration;

use plimsoll_core::model::load_aware_locality::{
    ColdStart, LoadAwareLocality, LoadAwareLocalityParts, SpillController,
};
use serde::Deserialize;

use super::{Case, CaseError, CaseResult, Engine};

pub(super) fn run(case: &Case, engine: &dyn Engine) -> CaseResult {
    match case.kind.as_str() {
        "open_loop" => open_loop::run(case.inputs()?, engine),
        "closed_loop" => closed_loop::run(case.inputs()?, engine),
        "observed_load" => observed_load::run(case.inputs()?, engine),
        _ => Err(CaseError::unknown_kind(case)),
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct SettingsInput {
    spill_controller: Controller,
    weight_expiration_period_s: Option<u64>,
    utilization_variance_threshold: Option<f64>,
    remote_probe_fraction: Option<f64>,
    demand_feed_forward: Option<bool>,
    #[serde(default)]
    cold_start_by_host_count: bool,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
enum Controller {
    Headroom,
    Convergent,
}

impl SettingsInput {
    fn settings(&self) -> Result<LoadAwareLocality, CaseError> {
        Ok(LoadAwareLocality::try_new(LoadAwareLocalityParts {
            spill_controller: match self.spill_controller {
                Controller::Headroom => SpillController::Headroom,
                Controller::Convergent => SpillController::Convergent,
            },
            weight_expiration_period: self.weight_expiration_period_s.map(Duration::from_secs),
            utilization_variance_threshold: self.utilization_variance_threshold,
            remote_probe_fraction: self.remote_probe_fraction,
            demand_feed_forward: self.demand_feed_forward,
            cold_start: if self.cold_start_by_host_count {
                ColdStart::HostCount
            } else {
                ColdStart::Local
            },
            ..LoadAwareLocalityParts::default()
        })?)
    }
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ZoneInput {
    name: String,
    hosts: u8,
}
