//! [`Report`]: what came out of a run, for people and programs.
//!
//! Numbers live in `metrics`; here they are put beside each other: `table` for terminals, `csv` for
//! spreadsheets, `html` for a page that explains itself. Everything is built in memory as text; the
//! binary writes files.

mod csv;
mod html;
pub(crate) mod series;
pub(crate) mod table;
#[cfg(test)]
pub(crate) mod tests;

use serde::Serialize;

use crate::checker::Check;
use crate::metrics::Metrics;
use crate::num;
use crate::policy::Policy;
use crate::scenario::{Arrivals, Scenario, Service, Span};
use series::Series;

/// What came out of a run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// What was simulated.
    pub facts: Facts,
    /// One entry per policy, in the order of the scenario.
    pub policies: Vec<PolicyReport>,
    /// Bounds and how they went.
    pub checks: Vec<Check>,
}

/// What was simulated, in numbers.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Facts {
    /// Title of the scenario.
    pub title: String,
    /// Its description.
    pub description: String,
    /// Same seed, same bytes.
    pub seed: u64,
    /// Simulated seconds.
    pub duration_s: f64,
    /// Averages and peaks count from here, seconds.
    pub measured_from_s: f64,
    /// Names of the zones.
    pub zones: Vec<String>,
    /// Upstream hosts.
    pub hosts: u32,
    /// Proxies.
    pub proxies: u32,
    /// Balancers that were simulated for them.
    pub balancers: usize,
    /// Requests per second at the start.
    pub requests_per_second: f64,
    /// Requests that each simulated one stands for.
    pub requests_per_sample: u32,
    /// When something happens, seconds, and what.
    pub events: Vec<(f64, String)>,
    /// What was left out or simplified in this run.
    pub notes: Vec<String>,
}

/// One policy's outcome.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PolicyReport {
    /// The policy.
    pub policy: Policy,
    /// What it is, in one sentence.
    pub description: &'static str,
    /// Its numbers.
    pub metrics: Metrics,
    /// Zone and reason: how the first proxy of each zone routes at the end, as `explain` says it.
    pub endings: Vec<(String, String)>,
    #[serde(skip)]
    pub(crate) series: Series,
}

impl Report {
    /// Whether every check holds.
    pub fn passed(&self) -> bool {
        self.checks.iter().all(|check| check.passed)
    }
}

impl Facts {
    pub(crate) fn new(scenario: &Scenario) -> Self {
        Self {
            title: scenario.title.clone(),
            description: scenario.description.trim().to_owned(),
            seed: scenario.seed,
            duration_s: num::seconds(scenario.duration),
            measured_from_s: num::seconds(scenario.measure_from),
            zones: scenario
                .zones
                .iter()
                .map(|zone| zone.name.clone())
                .collect(),
            hosts: scenario.host_count(),
            proxies: scenario.proxy_count(),
            balancers: scenario.balancer_count(),
            requests_per_second: scenario.traffic.requests_per_second,
            requests_per_sample: scenario.requests_per_sample,
            events: events(scenario),
            notes: notes(scenario),
        }
    }

    /// One line: how large, how long, which seed.
    pub(crate) fn in_words(&self) -> String {
        let length = Span(std::time::Duration::from_secs_f64(self.duration_s));
        format!(
            "{} zones, {} hosts, {} proxies, {:.0} requests/s, {length} simulated, seed {}",
            self.zones.len(),
            self.hosts,
            self.proxies,
            self.requests_per_second,
            self.seed
        )
    }
}

/// Moments and words for what the scenario does on the way.
fn events(scenario: &Scenario) -> Vec<(f64, String)> {
    let mut events: Vec<(f64, String)> = Vec::new();
    for event in &scenario.events {
        let words = scenario.in_words(&event.what);
        if event.until < scenario.duration {
            events.push((num::seconds(event.until), format!("over: {words}")));
        }
        events.push((num::seconds(event.from), words));
    }
    events.sort_by(|a, b| a.0.total_cmp(&b.0));
    events
}

/// What a reader must know about how this run was simplified.
fn notes(scenario: &Scenario) -> Vec<String> {
    let mut notes = Vec::new();
    if scenario.requests_per_sample > 1 {
        notes.push(format!(
            "sampled traffic: each simulated request stands for {}; hosts of one zone and group \
             report their common utilization, and waiting times are drawn from a queue at that \
             utilization instead of being simulated",
            scenario.requests_per_sample
        ));
    }
    let (proxies, balancers) = (scenario.proxy_count(), scenario.balancer_count());
    if balancers < proxies as usize {
        notes.push(format!(
            "representative proxies: {balancers} balancers stand for {proxies} proxies"
        ));
    }
    if scenario.host.service == Service::Instant {
        notes.push("hosts answer at once; overload is counted but burns nothing".into());
    }
    if scenario.traffic.arrivals == Arrivals::Poisson {
        notes.push("requests arrive independently of each other (Poisson)".into());
    }
    notes
}
