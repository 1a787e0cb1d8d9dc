//! [`Report`]: the results of a simulation, for people and programs.
//!
//! `metrics` computes the numbers; this module presents them: `table` for terminals, `csv` for
//! spreadsheets, `page` for the charts that the dashboard's modules draw. The binary writes files.

mod csv;
mod page;
pub(crate) mod series;
pub(crate) mod table;
#[cfg(test)]
pub(crate) mod tests;

use serde::Serialize;

use crate::checker::Check;
use crate::metrics::Metrics;
use crate::num;
use crate::policy::Policy;
use crate::scenario::{Arrivals, HumanDuration, Scenario, Service};
use series::Series;

/// Results of a simulation.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    pub facts: RunInfo,
    /// One entry per policy, in the order of the scenario.
    pub policies: Vec<PolicyReport>,
    /// Bounds of the scenario and whether they held.
    pub checks: Vec<Check>,
}

/// Parameters of the simulation.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RunInfo {
    pub title: String,
    pub description: String,
    pub seed: u64,
    pub duration_s: f64,
    pub measured_from_s: f64,
    pub zones: Vec<String>,
    pub hosts: u32,
    pub proxies: u32,
    /// Number of simulated balancers, each of which may represent several proxies.
    pub balancers: usize,
    /// Requests per second at the start.
    pub requests_per_second: f64,
    /// Number of real requests that each simulated one represents.
    pub requests_per_sample: u32,
    /// Time in seconds and description of each event.
    pub events: Vec<(f64, String)>,
    pub notes: Vec<String>,
}

/// Results of one policy.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PolicyReport {
    pub policy: Policy,
    pub description: &'static str,
    pub metrics: Metrics,
    /// Zone and reason: why the first proxy of each zone routes as it does at the end, as `explain`
    /// reports it.
    pub endings: Vec<(String, String)>,
    /// When and why the proxies chose hosts regardless of zones, although the policy has zones.
    pub zones_ignored: Vec<ZonesIgnored>,
    #[serde(skip)]
    pub(crate) series: Series,
}

/// A time in which proxies ignored zones. Only the first proxy of each zone is asked.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ZonesIgnored {
    /// Zones of these proxies.
    pub at: Vec<String>,
    pub from_s: f64,
    /// `null` = until the end.
    pub until_s: Option<f64>,
    /// As `explain` reports it.
    pub reason: String,
}

impl ZonesIgnored {
    /// Formats when it was: `from 94 s to 120 s`.
    pub(crate) fn when(&self) -> String {
        let from = self.from_s;
        self.until_s.map_or_else(
            || format!("from {from:.0} s on"),
            |until| format!("from {from:.0} s to {until:.0} s"),
        )
    }
}

impl Report {
    /// Whether every check passed.
    pub fn passed(&self) -> bool {
        self.checks.iter().all(|check| check.passed)
    }
}

impl RunInfo {
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

    /// Returns a one-line summary: size, duration and seed.
    pub(crate) fn summary(&self) -> String {
        let length = HumanDuration(std::time::Duration::from_secs_f64(self.duration_s));
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

/// Returns the time and description of each event of the scenario.
fn events(scenario: &Scenario) -> Vec<(f64, String)> {
    let mut events: Vec<(f64, String)> = Vec::new();
    for event in &scenario.events {
        let words = scenario.describe(&event.kind);
        if event.until < scenario.duration {
            events.push((num::seconds(event.until), format!("end of: {words}")));
        }
        events.push((num::seconds(event.from), words));
    }
    events.sort_by(|a, b| a.0.total_cmp(&b.0));
    events
}

fn notes(scenario: &Scenario) -> Vec<String> {
    let mut notes = Vec::new();
    if scenario.requests_per_sample > 1 {
        notes.push(format!(
            "sampled traffic: each simulated request represents {}; hosts of one zone and group \
             report their common utilization, and waiting times are drawn from a queue at that \
             utilization instead of being simulated",
            scenario.requests_per_sample
        ));
    }
    let (proxies, balancers) = (scenario.proxy_count(), scenario.balancer_count());
    if balancers < proxies as usize {
        notes.push(format!(
            "representative proxies: {balancers} balancers represent {proxies} proxies"
        ));
    }
    if scenario.host.service == Service::Instant {
        notes.push("hosts respond at once; overload is counted but has no effect".into());
    }
    if scenario.traffic.arrivals == Arrivals::Poisson {
        notes.push("requests arrive independently of each other (Poisson)".into());
    }
    notes
}
