//! Metrics of load lines: by zone, by service, and between zones.
//!
//! Every service has its series from the start, with zeros. The number of series is bounded: by
//! zone, only services with most demand have them, up to [`MAX_ZONES`] zones of services; between
//! zones, the edges with most requests.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use super::Values;
use crate::config::Cost;
use crate::load_line::{LoadLine, LoadLines, Traffic};

/// Most zones of services with series of their own. Each has about 14 series.
pub(super) const MAX_ZONES: usize = 900;
/// Most pairs of fleet and service with series of their own. Each has about 14 series.
const MAX_CLUSTERS: usize = 300;
/// Most edges (pairs of zones of a fleet) with series of their own. Each has three.
const MAX_EDGES: usize = 400;

/// Fleet, cluster and locality of series by zone.
pub(super) type Detailed<'a> = BTreeSet<(&'a str, &'a str)>;

/// Selects the fleets and services with series by zone: those with most demand, and among about
/// equal ones the first by name, so that the selection is stable.
pub(super) fn detailed(lines: &LoadLines) -> Detailed<'_> {
    let mut ranked: Vec<&LoadLine> = lines.iter().collect();
    ranked.sort_by_key(|line| Reverse(magnitude(line.demand())));
    let mut left = MAX_ZONES;
    let mut detailed = Detailed::new();
    for line in ranked {
        if let Some(rest) = left.checked_sub(line.zones.len()) {
            left = rest;
            detailed.insert((&*line.fleet, &*line.cluster));
        }
    }
    detailed
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

pub(super) fn add(values: &mut Values, lines: &LoadLines, detailed: &Detailed<'_>, cost: &Cost) {
    let omitted = lines.iter().len() - detailed.len();
    values.add("load_lines_without_zones", &[], omitted as u64);
    for line in lines.iter().take(MAX_CLUSTERS) {
        add_cluster(values, line, cost);
    }
    for line in lines.iter() {
        if detailed.contains(&(&*line.fleet, &*line.cluster)) {
            add_zones(values, line);
        }
    }
    add_edges(values, lines);
}

fn add_cluster(values: &mut Values, line: &LoadLine, cost: &Cost) {
    let own = [&*line.fleet, &*line.cluster];
    let fallback = u64::from(line.on_fallback);
    values.add("cluster_on_fallback", &own, fallback);
    values.add("cluster_demand_requests_per_second", &own, line.demand());
    for (routing, traffic) in line.kinds() {
        let labels = [own[0], own[1], routing];
        let kept = traffic.and_then(Traffic::kept_local).unwrap_or(0.0);
        let highest = traffic.and_then(Traffic::highest_load).unwrap_or(0.0);
        let cross = traffic.map_or(0.0, |traffic| traffic.cross_zone);
        values.add("cluster_kept_local_ratio", &labels, kept);
        values.add("cluster_highest_load_ratio", &labels, highest);
        values.add("cluster_cross_zone_requests_per_second", &labels, cross);
        let usd = cost.usd_per_month(cross);
        values.add("cluster_cross_zone_usd_per_month", &labels, usd);
    }
}

fn add_zones(values: &mut Values, line: &LoadLine) {
    for (index, zone) in line.zones.iter().enumerate() {
        let locality = zone.locality.to_string();
        let own = [&*line.fleet, &*line.cluster, &*locality];
        values.add("demand_smoothed_requests_per_second", &own, zone.demand);
        values.add("zone_capacity_ratio", &own, zone.capacity_share);
        for (routing, traffic) in line.kinds() {
            let labels = [own[0], own[1], own[2], routing];
            let found = traffic.and_then(|traffic| traffic.zones.get(index));
            let served = found.copied().unwrap_or_default();
            values.add("zone_served_requests_per_second", &labels, served.served);
            values.add("zone_load_ratio", &labels, served.load.unwrap_or(0.0));
            let kept = served.kept_local.unwrap_or(0.0);
            values.add("zone_kept_local_ratio", &labels, kept);
        }
    }
}

/// Adds the requests per second between zones, summed over the services of a fleet: between all
/// zones if they are few, else the edges with most requests.
fn add_edges(values: &mut Values, lines: &LoadLines) {
    let mut edges: BTreeMap<(&str, String, String), [f64; 3]> = BTreeMap::new();
    for line in lines.iter() {
        let names: Vec<String> = line.zones.iter().map(|z| z.locality.to_string()).collect();
        if names.len() * names.len() <= MAX_EDGES {
            for (from, to) in names
                .iter()
                .flat_map(|from| names.iter().map(move |to| (from, to)))
            {
                if from != to {
                    edges
                        .entry((&line.fleet, from.clone(), to.clone()))
                        .or_default();
                }
            }
        }
        for (kind, (_, traffic)) in line.kinds().into_iter().enumerate() {
            let flows = traffic.map_or(&[][..], |traffic| &traffic.flows);
            for &(from, to, rate) in flows.iter().filter(|(from, to, _)| from != to) {
                let key = (&*line.fleet, names[from].clone(), names[to].clone());
                edges.entry(key).or_default()[kind] += rate;
            }
        }
    }
    let mut ranked: Vec<_> = edges.into_iter().collect();
    ranked.sort_by_key(|(_, rates)| Reverse(magnitude(rates.iter().copied().fold(0.0, f64::max))));
    for ((fleet, from, to), rates) in ranked.into_iter().take(MAX_EDGES) {
        for (routing, rate) in ["seen", "now", "enforce"].into_iter().zip(rates) {
            let labels = [fleet, &*from, &*to, routing];
            values.add("edge_requests_per_second", &labels, rate);
        }
    }
}
