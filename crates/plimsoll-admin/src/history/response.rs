//! Response of `/api/v1/history`: the recorded values as columns, one value per time.

use plimsoll_core::model::locality::Locality;
use serde::{Deserialize, Serialize};

use super::series::{COARSE_STEP_MS, FINE_HORIZON_MS, FINE_STEP_MS, HORIZON_MS, Point, Series};
use super::{Cluster, History, Recorded};
use crate::api::rounded;
use crate::source::Rejection;
use crate::state::EventState;

/// Selects a part of the history; without fields all of the last hour.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct HistoryQuery {
    /// Only this cluster, with its zones; without it, the sums of every cluster.
    pub cluster: Option<String>,
    /// Only clusters of this fleet.
    pub fleet: Option<String>,
    /// Time to reach back, such as `15m`; an hour without it.
    pub range: Option<String>,
    /// Time between two values, such as `1m`; without it 5 s in the last quarter of an hour and
    /// 30 s before.
    pub step: Option<String>,
}

/// The recorded values. All columns have one value for each of `times_unix_ms`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct HistoryResponse {
    /// Beginning of the time that a value is the mean of.
    pub times_unix_ms: Vec<u64>,
    pub clusters: Vec<ClusterHistory>,
    /// Events of this time, newest first.
    pub events: Vec<EventState>,
    /// Zones and clusters that are not recorded, because there are too many.
    pub omitted_series: usize,
}

/// Recorded values of a cluster.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ClusterHistory {
    pub cluster: String,
    pub fleet: String,
    pub demand_requests_per_second: Vec<Option<f64>>,
    /// Requests that leave their zone.
    pub cross_zone_requests_per_second: Vec<Option<f64>>,
    pub kept_local: Vec<Option<f64>>,
    /// Load of the busiest zone relative to its load line.
    pub busiest_load: Vec<Option<f64>>,
    pub healthy_hosts: Vec<Option<u64>>,
    /// Zones, if the query names the cluster.
    pub zones: Vec<ZoneHistory>,
}

/// Recorded values of a zone, named as in [`crate::state::ZoneState`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ZoneHistory {
    pub locality: Locality,
    pub load: Vec<Option<f64>>,
    pub demand_requests_per_second: Vec<Option<f64>>,
    pub served_requests_per_second: Vec<Option<f64>>,
    pub kept_local: Vec<Option<f64>>,
    pub healthy_hosts: Vec<Option<u64>>,
    pub hosts: Vec<Option<u64>>,
}

/// A time and the width of its value, in milliseconds.
type Cell = (u64, u64);

impl History {
    /// Returns the selected part of the history, or which field of the query is invalid.
    pub fn response(&self, query: &HistoryQuery) -> Result<HistoryResponse, Rejection> {
        let range = duration("range", query.range.as_deref())?.unwrap_or(HORIZON_MS);
        let step = duration("step", query.step.as_deref())?;
        if step.is_some_and(|step| step < FINE_STEP_MS) {
            return Err(refused("step", "must be at least 5s"));
        }
        let recorded = self.lock();
        let cells = recorded.cells(range.min(HORIZON_MS), step);
        Ok(recorded.response(query, &cells))
    }
}

impl Recorded {
    /// Returns the times of a response. Values before the first document are left out.
    fn cells(&self, range_ms: u64, step_ms: Option<u64>) -> Vec<Cell> {
        if self.last_unix_ms == 0 {
            return Vec::new();
        }
        let now = self.last_unix_ms;
        let from = now.saturating_sub(range_ms).max(self.first_unix_ms);
        let fine_from = now.saturating_sub(FINE_HORIZON_MS);
        let mut cells = Vec::new();
        let first_step = step_ms.unwrap_or(if from < fine_from {
            COARSE_STEP_MS
        } else {
            FINE_STEP_MS
        });
        let mut at = from / first_step * first_step;
        while at <= now {
            let coarse = at < fine_from;
            let width = step_ms.unwrap_or(if coarse { COARSE_STEP_MS } else { FINE_STEP_MS });
            cells.push((at, width));
            at += width;
        }
        cells
    }

    fn response(&self, query: &HistoryQuery, cells: &[Cell]) -> HistoryResponse {
        let matches = |name: &String, wanted: &Option<String>| {
            wanted.as_ref().is_none_or(|wanted| wanted == name)
        };
        let clusters = self.clusters.iter().filter(|((fleet, cluster), _)| {
            matches(fleet, &query.fleet) && matches(cluster, &query.cluster)
        });
        let with_zones = query.cluster.is_some();
        let from = cells.first().map_or(0, |(at, _)| *at);
        let newest = self.events.iter().rev();
        let events = newest.filter(|((at, _), _)| *at >= from);
        HistoryResponse {
            times_unix_ms: cells.iter().map(|(at, _)| *at).collect(),
            clusters: clusters
                .map(|((fleet, name), cluster)| {
                    self.cluster([fleet, name], cluster, cells, with_zones)
                })
                .collect(),
            events: events
                .map(|((at, text), severity)| EventState {
                    at_unix_ms: *at,
                    severity: *severity,
                    text: text.clone(),
                })
                .collect(),
            omitted_series: self.omitted,
        }
    }

    fn cluster(
        &self,
        [fleet, name]: [&str; 2],
        cluster: &Cluster,
        cells: &[Cell],
        with_zones: bool,
    ) -> ClusterHistory {
        let total = self.points(&cluster.total, cells);
        let zones = cluster.zones.iter().filter(|_| with_zones);
        ClusterHistory {
            cluster: name.to_owned(),
            fleet: fleet.to_owned(),
            demand_requests_per_second: column(&total, |point| point.demand),
            cross_zone_requests_per_second: column(&total, |point| point.traffic),
            kept_local: column(&total, |point| point.kept_local),
            busiest_load: column(&total, |point| point.load),
            healthy_hosts: total.iter().map(|point| point.healthy_hosts).collect(),
            zones: zones
                .map(|(locality, series)| zone(locality, &self.points(series, cells)))
                .collect(),
        }
    }

    fn points(&self, series: &Series, cells: &[Cell]) -> Vec<Point> {
        let cells = cells.iter();
        cells
            .map(|(at, width)| series.mean(*at, *width, self.last_unix_ms))
            .collect()
    }
}

fn zone(locality: &Locality, points: &[Point]) -> ZoneHistory {
    ZoneHistory {
        locality: locality.clone(),
        load: column(points, |point| point.load),
        demand_requests_per_second: column(points, |point| point.demand),
        served_requests_per_second: column(points, |point| point.traffic),
        kept_local: column(points, |point| point.kept_local),
        healthy_hosts: points.iter().map(|point| point.healthy_hosts).collect(),
        hosts: points.iter().map(|point| point.hosts).collect(),
    }
}

fn column(points: &[Point], value: impl Fn(&Point) -> Option<f64>) -> Vec<Option<f64>> {
    points
        .iter()
        .map(|point| value(point).map(rounded))
        .collect()
}

/// Parses a whole number with the unit `s`, `m` or `h`, as milliseconds.
fn duration(field: &str, text: Option<&str>) -> Result<Option<u64>, Rejection> {
    let Some(text) = text else {
        return Ok(None);
    };
    let parsed = text.char_indices().last().and_then(|(at, unit)| {
        let seconds = match unit {
            's' => 1,
            'm' => 60,
            'h' => 3600,
            _ => return None,
        };
        let number: u64 = text[..at].parse().ok()?;
        number.checked_mul(seconds * 1000).filter(|ms| *ms > 0)
    });
    match parsed {
        Some(ms) => Ok(Some(ms)),
        None => Err(refused(
            field,
            &format!("{text:?} is not a duration such as 30s, 15m or 1h"),
        )),
    }
}

fn refused(field: &str, reason: &str) -> Rejection {
    Rejection {
        error: reason.to_owned(),
        field: Some(field.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_a_unit() {
        let read = |text| duration("range", Some(text));
        assert_eq!(read("90s"), Ok(Some(90_000)));
        assert_eq!(read("15m"), Ok(Some(900_000)));
        assert_eq!(read("1h"), Ok(Some(3_600_000)));
        assert_eq!(duration("range", None), Ok(None));
        for wrong in [
            "",
            "1",
            "m",
            "-1s",
            "0s",
            "1d",
            "1.5m",
            "99999999999999999h",
        ] {
            let error = read(wrong).unwrap_err();
            assert_eq!(error.field.as_deref(), Some("range"));
            assert!(error.error.contains("15m"), "{}", error.error);
        }
    }
}
