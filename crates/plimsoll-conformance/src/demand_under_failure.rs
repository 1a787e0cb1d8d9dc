//! Suite `demand_under_failure`: what a control plane makes of load reports that stock data planes
//! sent while requests failed.
//!
//! Production code decodes the recorded bytes (`wire`), completes the reports of the stream
//! (`lrs::ServerStream`) and counts (`ClusterStats`). This module adds up the reports of a case.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use plimsoll_core::model::load_report::ClusterStats;
use plimsoll_core::time::Instant;
use plimsoll_xds::lrs::{LrsSettings, ServerStream};
use plimsoll_xds::wire;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::{Case, CaseError, CaseResult};

pub(super) fn run(case: &Case) -> CaseResult {
    if case.kind != "demand_under_failure" {
        return Err(CaseError::unknown_kind(case));
    }
    let inputs: Inputs = case.inputs()?;
    let mut stream = ServerStream::new(Arc::new(settings()));
    let mut sums: BTreeMap<Arc<str>, Sums> = BTreeMap::new();
    let mut reporter = None;
    for (index, report) in inputs.reports.iter().enumerate() {
        let bytes = STANDARD.decode(report);
        let bytes = bytes.map_err(|error| CaseError::inputs(error.to_string()))?;
        let request = wire::decode_load_stats_request(bytes.into());
        let request = request.map_err(|error| CaseError::inputs(error.to_string()))?;
        let now = Instant::from_secs(index as u64);
        let report = stream.handle_request(request, now);
        let report = report.map_err(|error| CaseError::inputs(error.to_string()))?;
        reporter = Some(report.node.node.locality.zone().to_owned());
        for stats in &report.cluster_stats {
            let sum = sums.entry(Arc::clone(&stats.cluster_name)).or_default();
            sum.add(stats);
        }
    }
    let clusters = sums.into_iter();
    let clusters: Map<String, Value> = clusters
        .map(|(name, sum)| (name.as_ref().to_owned(), sum.outcome()))
        .collect();
    Ok(json!({ "zone": reporter, "clusters": clusters }).into())
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Inputs {
    reports: Vec<String>,
}

/// Requests of all reports on one cluster.
#[derive(Default)]
struct Sums {
    demand: f64,
    /// Arrived and failed requests by upstream zone.
    zones: BTreeMap<String, (u64, u64)>,
}

impl Sums {
    fn add(&mut self, stats: &ClusterStats) {
        let seconds = stats.load_report_interval.as_secs_f64();
        self.demand += stats.demand_per_second().unwrap_or(f64::NAN) * seconds;
        for entry in &stats.upstream_locality_stats {
            let zone = entry.locality.zone().to_owned();
            let (arrived, failed) = self.zones.entry(zone).or_default();
            *arrived += entry.arrived_requests();
            *failed += entry.total_error_requests;
        }
    }

    fn outcome(&self) -> Value {
        let zones = self.zones.iter();
        let zones: Map<String, Value> = zones
            .map(|(zone, (arrived, failed))| {
                let outcome = json!({ "arrived": arrived, "failed": failed });
                (zone.clone(), outcome)
            })
            .collect();
        // Exact up to the rounding of a rate.
        let demand = (self.demand * 1e6).round() / 1e6;
        json!({ "demand": demand, "upstream": zones })
    }
}

fn settings() -> LrsSettings {
    LrsSettings {
        interval: Duration::from_secs(1),
        send_all_clusters: true,
        clusters: Vec::new(),
        report_endpoint_granularity: false,
    }
}
