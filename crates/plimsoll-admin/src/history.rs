//! [`History`]: an hour of what the dashboard draws, and of events, in bounded memory.
//!
//! `recorder` adds a document every few seconds, whether or not a page is open; `response` serves
//! `/api/v1/history`. Each zone of a cluster has a `Series`: fine steps for the last
//! quarter of an hour, coarse ones for the rest. The number of series is limited, because names of
//! fleets and zones come from the network.

mod recorder;
mod response;
mod series;

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use plimsoll_core::model::locality::Locality;

use crate::state::{ClusterState, DashboardState, Flow, Severity, ZoneState};

pub(crate) use recorder::record_until_closed;
pub use response::{ClusterHistory, HistoryQuery, HistoryResponse, ZoneHistory};
use series::{HORIZON_MS, Point, Series};

/// Most series of zones and clusters. With 5 kB each they need less than 64 MiB.
const MAX_SERIES: usize = 12_000;
/// Most events that are kept; each text is limited by its host.
const MAX_EVENTS: usize = 1000;

/// What the dashboard drew during the last hour.
#[derive(Debug, Default)]
pub struct History {
    recorded: Mutex<Recorded>,
}

#[derive(Debug, Default)]
struct Recorded {
    /// By fleet and cluster.
    clusters: BTreeMap<(String, String), Cluster>,
    /// Events by time and text.
    events: BTreeMap<(u64, String), Severity>,
    /// Time of the first and last document; 0 without any.
    first_unix_ms: u64,
    last_unix_ms: u64,
    series: usize,
    /// Zones and clusters of the last document for which there was no room.
    omitted: usize,
}

#[derive(Debug)]
struct Cluster {
    total: Series,
    zones: BTreeMap<Locality, Series>,
}

impl History {
    /// Adds a document. Documents that are not newer than the last one are ignored.
    pub fn record(&self, state: &DashboardState) {
        let mut recorded = self.lock();
        let now = state.taken_unix_ms;
        if now <= recorded.last_unix_ms {
            return;
        }
        if recorded.first_unix_ms == 0 {
            recorded.first_unix_ms = now;
        }
        recorded.last_unix_ms = now;
        recorded.forget(now);
        recorded.omitted = 0;
        for cluster in &state.clusters {
            recorded.add(cluster, now);
        }
        for event in &state.events {
            let key = (event.at_unix_ms, event.text.clone());
            recorded.events.insert(key, event.severity);
        }
        while recorded.events.len() > MAX_EVENTS {
            recorded.events.pop_first();
        }
    }

    /// Returns the bytes that the samples of zones and clusters need.
    pub fn memory_bytes(&self) -> usize {
        self.lock().series * Series::BYTES
    }

    fn lock(&self) -> MutexGuard<'_, Recorded> {
        // Every critical section leaves the data consistent, so poisoning can be ignored.
        self.recorded.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Recorded {
    /// Drops events, zones and clusters of which nothing is left within the hour.
    fn forget(&mut self, now: u64) {
        let oldest = now.saturating_sub(HORIZON_MS);
        self.events.retain(|(at, _), _| *at >= oldest);
        let mut series = 0;
        self.clusters.retain(|_, cluster| {
            cluster
                .zones
                .retain(|_, zone| zone.last_unix_ms() >= oldest);
            let keep = cluster.total.last_unix_ms() >= oldest;
            series += if keep { 1 + cluster.zones.len() } else { 0 };
            keep
        });
        self.series = series;
    }

    fn add(&mut self, cluster: &ClusterState, now: u64) {
        let key = (cluster.fleet.clone(), cluster.cluster.clone());
        if !self.clusters.contains_key(&key) {
            if self.series >= MAX_SERIES {
                self.omitted += 1 + cluster.zones.len();
                return;
            }
            self.series += 1;
        }
        let own = self.clusters.entry(key).or_insert_with(|| Cluster {
            total: Series::new(),
            zones: BTreeMap::new(),
        });
        own.total.put(now, total(cluster));
        for zone in &cluster.zones {
            if let Some(series) = own.zones.get_mut(&zone.locality) {
                series.put(now, point(zone));
            } else if self.series < MAX_SERIES {
                self.series += 1;
                let mut series = Series::new();
                series.put(now, point(zone));
                own.zones.insert(zone.locality.clone(), series);
            } else {
                self.omitted += 1;
            }
        }
    }
}

/// Values of a zone.
fn point(zone: &ZoneState) -> Point {
    Point {
        load: zone.load,
        kept_local: zone.kept_local,
        healthy_hosts: Some(zone.healthy_hosts),
        hosts: Some(zone.hosts),
        demand: zone.demand_requests_per_second,
        traffic: zone.served_requests_per_second,
    }
}

/// Values of a cluster: the highest load of its zones, and rates of all and between zones.
fn total(cluster: &ClusterState) -> Point {
    let sum = |flows: &mut dyn Iterator<Item = &Flow>| flows.map(|Flow(.., rate)| rate).sum();
    let all: f64 = sum(&mut cluster.flows.iter());
    let cross: f64 = sum(&mut cluster.flows.iter().filter(|Flow(from, to, _)| from != to));
    let zones = cluster.zones.iter();
    let demands = zones
        .clone()
        .filter_map(|zone| zone.demand_requests_per_second);
    Point {
        load: zones
            .clone()
            .filter_map(|zone| zone.load)
            .max_by(f64::total_cmp),
        kept_local: (all > 0.0).then(|| 1.0 - cross / all),
        healthy_hosts: Some(zones.clone().map(|zone| zone.healthy_hosts).sum()),
        hosts: Some(zones.map(|zone| zone.hosts).sum()),
        demand: (demands.clone().count() > 0).then(|| demands.sum()),
        traffic: (all > 0.0).then_some(cross),
    }
}

#[cfg(test)]
mod tests;
