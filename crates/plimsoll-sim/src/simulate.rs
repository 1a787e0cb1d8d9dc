//! [`run`]: simulates every policy of a scenario on the same demand and seed.

use plimsoll_core::units::FieldError;

use crate::checker;
use crate::metrics::Metrics;
use crate::metrics::recorder::Recorder;
use crate::metrics::windows::Windows;
use crate::optimum::optimum;
use crate::policy::Policy;
use crate::report::{PolicyReport, Report, RunInfo, series::Series};
use crate::scenario::Scenario;
use crate::workload::Workload;
use crate::world::{Run, World};

/// Progress of a simulation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Progress {
    pub policy: Policy,
    /// Index of the policy, from 0.
    pub index: usize,
    pub policies: usize,
    /// Fraction of the policy's simulated time, 0.0 to 1.0.
    pub done: f64,
}

/// Simulates every policy of a scenario. `progress` is called about once per simulated second.
///
/// Fails before the simulation starts if the engine rejects a setting; the error has its path.
pub fn run(scenario: &Scenario, mut progress: impl FnMut(Progress)) -> Result<Report, FieldError> {
    let workload = Workload::new(scenario);
    let mut report = Report {
        facts: RunInfo::new(scenario),
        policies: Vec::new(),
        checks: Vec::new(),
    };
    let policies = scenario.policies.len();
    let level = scenario.leveling();
    for (index, &policy) in scenario.policies.iter().enumerate() {
        let mut tell = |at: u64| {
            let done = at as f64 / scenario.duration as f64;
            progress(Progress {
                policy,
                index,
                policies,
                done,
            });
        };
        let (simulates, scenario) = match policy.with_level() {
            Some(same) => (same, &level),
            None => (policy, scenario),
        };
        let one = if policy.is_computed() {
            computed(scenario, &workload, policy)
        } else {
            let run = World::new(scenario, &workload, simulates)?.run(&mut tell);
            let totals = run.recorder.totals();
            report.checks.push(checker::conservation(policy, totals));
            simulated(scenario, &workload, policy, run)
        };
        report.policies.push(one);
    }
    let policies = report.policies.iter();
    let results = policies.map(|one| (one.policy, &one.metrics)).collect();
    for &policy in &scenario.policies {
        report
            .checks
            .extend(checker::check(scenario, policy, &results));
    }
    Ok(report)
}

fn simulated(scenario: &Scenario, workload: &Workload, policy: Policy, run: Run) -> PolicyReport {
    let windows = Windows::new(scenario, workload, &run.recorder);
    PolicyReport {
        policy,
        description: policy.description(),
        metrics: Metrics::measure(&windows),
        endings: run
            .endings
            .into_iter()
            .map(|ending| (ending.zone, ending.reason))
            .collect(),
        zones_ignored: run.zones_ignored,
        series: Series::measure(&windows),
    }
}

fn computed(scenario: &Scenario, workload: &Workload, policy: Policy) -> PolicyReport {
    let recorder = Recorder::new(scenario);
    let windows = Windows::new(scenario, workload, &recorder);
    PolicyReport {
        policy,
        description: policy.description(),
        metrics: optimum(&windows),
        endings: Vec::new(),
        zones_ignored: Vec::new(),
        series: Series::optimum(&windows),
    }
}
