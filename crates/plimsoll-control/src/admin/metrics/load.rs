//! Metrics of load lines: by zone, by service, and between zones.
//!
//! Every service has its series from the start, with zeros. The number of series is bounded: all
//! zones have the essential series (demand, load and kept local as seen) as far as the budget
//! reaches, and the services with most demand have the others too; between zones, the edges with
//! most requests.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap};

use plimsoll_core::model::locality::Locality;

use super::Values;
use crate::load_line::{LoadLine, LoadLines, Traffic, ZoneLine};

/// Most series of load lines, by service and by zone. With edges, nodes and counters, 50 services
/// in 100 zones stay below 20,000 series.
const MAX_SERIES: usize = 17_100;
/// Most pairs of fleet and service with series of their own.
const MAX_CLUSTERS: usize = 300;
/// Series of a pair of fleet and service, beside those by zone.
const CLUSTER_SERIES: usize = 17;
/// Essential series of a zone of a service.
const ESSENTIAL_SERIES: usize = 3;
/// All series of a zone of a service.
const ALL_SERIES: usize = 15;
/// Most failing zones of services with a series of their own.
const MAX_FAILING_ZONES: usize = 400;
/// Most edges (pairs of zones of a fleet) with series of their own. Each has three.
const MAX_EDGES: usize = 400;

/// Which series the zones of a service have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Detail {
    /// Demand, and load and kept local as seen.
    Essential,
    All,
}

/// Detail by fleet and cluster; services without any are left out.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Details<'a>(BTreeMap<(&'a str, &'a str), Detail>);

impl<'a> Details<'a> {
    /// Divides the budget: first the essential series of as many services as fit, then all series.
    /// Services with most demand come first, and among about equal ones the first by name, so that
    /// the selection is stable.
    pub(super) fn new(lines: &'a LoadLines) -> Self {
        let mut ranked: Vec<&LoadLine> = lines.iter().collect();
        ranked.sort_by_key(|line| Reverse(magnitude(line.demand())));
        let clusters = ranked.len().min(MAX_CLUSTERS);
        let mut left = MAX_SERIES - clusters * CLUSTER_SERIES;
        let mut details = BTreeMap::new();
        for (detail, series) in [
            (Detail::Essential, ESSENTIAL_SERIES),
            (Detail::All, ALL_SERIES - ESSENTIAL_SERIES),
        ] {
            for line in &ranked {
                let key = (&*line.fleet, &*line.cluster);
                let is_next = detail == Detail::Essential || details.contains_key(&key);
                let rest = left.checked_sub(line.zones.len() * series);
                if let Some(rest) = rest.filter(|_| is_next) {
                    left = rest;
                    details.insert(key, detail);
                }
            }
        }
        Self(details)
    }

    pub(super) fn get(&self, fleet: &str, cluster: &str) -> Option<Detail> {
        self.0.get(&(fleet, cluster)).copied()
    }

    /// Whether a service has all series by zone.
    pub(super) fn has_all(&self, fleet: &str, cluster: &str) -> bool {
        self.get(fleet, cluster) == Some(Detail::All)
    }

    fn count(&self, detail: Detail) -> usize {
        self.0.values().filter(|own| **own == detail).count()
    }
}

/// Power of two of a rate.
#[expect(clippy::cast_possible_truncation, reason = "a logarithm")]
fn magnitude(rate: f64) -> i32 {
    if rate > 0.0 {
        rate.log2() as i32
    } else {
        i32::MIN
    }
}

pub(super) fn add(values: &mut Values, lines: &LoadLines, details: &Details<'_>) {
    let omitted = lines.iter().len() - details.0.len();
    values.add("load_lines_without_zones", &[], omitted as u64);
    let reduced = details.count(Detail::Essential);
    values.add("load_lines_with_essential_series", &[], reduced as u64);
    for line in lines.iter().take(MAX_CLUSTERS) {
        add_cluster(values, line);
    }
    for line in lines.iter() {
        if let Some(detail) = details.get(&line.fleet, &line.cluster) {
            add_zones(values, line, detail);
        }
    }
    add_failing_zones(values, lines, details);
    add_edges(values, lines);
}

/// Adds the failing zones of services that do not have all series.
fn add_failing_zones(values: &mut Values, lines: &LoadLines, details: &Details<'_>) {
    let all = lines.iter();
    let reduced = all.filter(|line| !details.has_all(&line.fleet, &line.cluster));
    let zones = reduced.flat_map(|line| {
        let failing = line.zones.iter().filter(|zone| zone.fails);
        failing.map(move |zone| (line, zone.locality.to_string()))
    });
    for (line, locality) in zones.take(MAX_FAILING_ZONES) {
        let labels = [&*line.fleet, &*line.cluster, &*locality];
        values.add("zone_fails", &labels, 1);
    }
}

fn add_cluster(values: &mut Values, line: &LoadLine) {
    let own = [&*line.fleet, &*line.cluster];
    let fallback = u64::from(line.on_fallback);
    values.add("cluster_on_fallback", &own, fallback);
    let failing = line.zones.iter().filter(|zone| zone.fails).count();
    values.add("cluster_failing_zones", &own, failing as u64);
    for (reason, zones) in [
        ("zone_fails", &line.withheld.failing),
        ("zone_unseen", &line.withheld.unseen),
    ] {
        let labels = [own[0], own[1], reason];
        values.add("cluster_withheld_zones", &labels, zones.len() as u64);
    }
    values.add("cluster_demand_requests_per_second", &own, line.demand());
    for (routing, traffic) in line.kinds() {
        let labels = [own[0], own[1], routing];
        let kept = traffic.and_then(Traffic::kept_local).unwrap_or(0.0);
        let highest = traffic.and_then(Traffic::highest_load).unwrap_or(0.0);
        let cross = traffic.map_or(0.0, |traffic| traffic.cross_zone);
        values.add("cluster_kept_local_ratio", &labels, kept);
        values.add("cluster_highest_load_ratio", &labels, highest);
        values.add("cluster_cross_zone_requests_per_second", &labels, cross);
        let usd = traffic.map_or(0.0, |traffic| line.usd_per_month(traffic));
        values.add("cluster_cross_zone_usd_per_month", &labels, usd);
    }
}

fn add_zones(values: &mut Values, line: &LoadLine, detail: Detail) {
    let all = detail == Detail::All;
    for (index, zone) in line.zones.iter().enumerate() {
        let locality = zone.locality.to_string();
        let own = [&*line.fleet, &*line.cluster, &*locality];
        values.add("demand_smoothed_requests_per_second", &own, zone.demand);
        if all {
            let failed = zone.failed_share.unwrap_or(0.0);
            values.add("zone_failed_ratio", &own, failed);
            values.add("zone_fails", &own, u64::from(zone.fails));
            values.add("zone_capacity_ratio", &own, zone.capacity_share);
        }
        // The first kind is `seen`.
        let kinds = line.kinds().into_iter().take(if all { 3 } else { 1 });
        for (routing, traffic) in kinds {
            let labels = [own[0], own[1], own[2], routing];
            let found = traffic.and_then(|traffic| traffic.zones.get(index));
            let served = found.copied().unwrap_or_default();
            values.add("zone_load_ratio", &labels, served.load.unwrap_or(0.0));
            let kept = served.kept_local.unwrap_or(0.0);
            values.add("zone_kept_local_ratio", &labels, kept);
            if all {
                values.add("zone_served_requests_per_second", &labels, served.served);
            }
        }
    }
}

/// Adds the requests per second between zones, summed over the services of a fleet: between all
/// zones if they are few, else the edges with most requests.
fn add_edges(values: &mut Values, lines: &LoadLines) {
    let mut edges: Vec<Edge<'_>> = Vec::new();
    // Lines are sorted by fleet.
    let lines: Vec<&LoadLine> = lines.iter().collect();
    for fleet in lines.chunk_by(|a, b| a.fleet == b.fleet) {
        edges.extend(edges_of(fleet));
    }
    edges.sort_by_key(|edge| {
        let most = edge.rates.iter().copied().fold(0.0, f64::max);
        (Reverse(magnitude(most)), edge.fleet, edge.from, edge.to)
    });
    for edge in edges.iter().take(MAX_EDGES) {
        let [from, to] = [edge.from, edge.to].map(Locality::to_string);
        for (routing, rate) in ["seen", "now", "enforce"].into_iter().zip(edge.rates) {
            let labels = [edge.fleet, &*from, &*to, routing];
            values.add("edge_requests_per_second", &labels, rate);
        }
    }
}

/// Requests per second from one zone to another, by kind of traffic.
struct Edge<'a> {
    fleet: &'a str,
    from: &'a Locality,
    to: &'a Locality,
    rates: [f64; 3],
}

/// Sums up the flows of one fleet. Zones are numbered first: with many zones there are a million
/// flows, and names would be compared for each.
fn edges_of<'a>(lines: &[&'a LoadLine]) -> Vec<Edge<'a>> {
    let zones: BTreeSet<&Locality> = lines
        .iter()
        .flat_map(|line| line.zones.iter().map(|zone| &zone.locality))
        .collect();
    let names: Vec<&Locality> = zones.into_iter().collect();
    let numbers: BTreeMap<&Locality, usize> = names.iter().copied().zip(0..).collect();
    let mut sums: HashMap<(usize, usize), [f64; 3]> = HashMap::new();
    if names.len() * names.len() <= MAX_EDGES {
        let all = (0..names.len()).flat_map(|from| (0..names.len()).map(move |to| (from, to)));
        sums.extend(
            all.filter(|(from, to)| from != to)
                .map(|edge| (edge, [0.0; 3])),
        );
    }
    for line in lines {
        let number = |zone: &ZoneLine| numbers.get(&zone.locality).copied().unwrap_or_default();
        let numbered: Vec<usize> = line.zones.iter().map(number).collect();
        for (kind, (_, traffic)) in line.kinds().into_iter().enumerate() {
            let flows = traffic.map_or(&[][..], |traffic| &traffic.flows);
            for &(from, to, rate) in flows.iter().filter(|(from, to, _)| from != to) {
                sums.entry((numbered[from], numbered[to])).or_default()[kind] += rate;
            }
        }
    }
    let Some(first) = lines.first() else {
        return Vec::new();
    };
    let edge = |((from, to), rates): ((usize, usize), [f64; 3])| Edge {
        fleet: &first.fleet,
        from: names[from],
        to: names[to],
        rates,
    };
    sums.into_iter().map(edge).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Mode;
    use crate::load_line::{FailingZones, Unknown};

    /// A load line of zones `0`, `1` and so on, with these flows as seen.
    fn line(zones: usize, flows: &[(usize, usize, f64)]) -> LoadLine {
        let zone = |number: usize| ZoneLine {
            locality: Locality::zone_only(&format!("{number:02}")),
            demand: 0.0,
            proxies: 1,
            capacity_share: 0.0,
            capacity: None,
            line: 0.0,
            above_line: None,
            failed_share: None,
            fails: false,
            fails_only_from: Vec::new(),
            planned: None,
        };
        LoadLine {
            fleet: "gateway".into(),
            cluster: "orders".into(),
            mode: Mode::Enforce,
            ramp: 100,
            basis: "host_counts",
            on_fallback: false,
            objective: Default::default(),
            target_utilization: None,
            bill: None,
            cost: std::sync::Arc::default(),
            withheld: FailingZones::default(),
            undelivered: None,
            warming_up: false,
            zones: (0..zones).map(zone).collect(),
            seen: Some(Traffic {
                flows: flows.to_vec(),
                ..Traffic::default()
            }),
            now: Err(Unknown::NoDemand),
            enforce: Err(Unknown::NoDemand),
        }
    }

    #[test]
    fn all_edges_have_series_if_zones_are_few() {
        let count = |zones| edges_of(&[&line(zones, &[])]).len();
        assert_eq!((count(2), count(20), count(21)), (2, 380, 0));
        assert!(edges_of(&[]).is_empty());
    }

    #[test]
    fn edges_are_summed_over_services_without_what_stays_in_a_zone() {
        let lines = [
            line(21, &[(0, 0, 9.0), (0, 1, 2.0)]),
            line(21, &[(0, 1, 3.0), (1, 0, 4.0)]),
        ];
        let lines: Vec<&LoadLine> = lines.iter().collect();
        let edges = edges_of(&lines);
        let mut found: Vec<_> = edges
            .iter()
            .map(|edge| (edge.fleet, edge.from.zone(), edge.to.zone(), edge.rates))
            .collect();
        found.sort_by_key(|(_, from, ..)| *from);
        let expected = [
            ("gateway", "00", "01", [5.0, 0.0, 0.0]),
            ("gateway", "01", "00", [4.0, 0.0, 0.0]),
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn rates_are_ranked_by_their_power_of_two() {
        let rates = [0.0, 0.001, 1.0, 1.9, 2.0, 1024.0];
        assert_eq!(rates.map(magnitude), [i32::MIN, -9, 0, 0, 1, 10]);
    }
}
