//! Response of `/api/v1/load`: load lines of every fleet and service.

use std::sync::Arc;

use plimsoll_admin::api::{Cost, TotalLoad, ZoneLoad, rounded};

use super::super::responses::{self, Load};
use super::{ListQuery, mode_name};
use crate::load_line::{LoadLine, LoadLines, PlannedZone, Traffic, ZoneLine, ZoneTraffic};

/// Lists the load lines that match the query, by fleet and cluster.
pub(in crate::admin) fn load(lines: &LoadLines, cost: &Cost, query: &ListQuery) -> Load {
    let matches = |line: &&LoadLine| {
        let is = |wanted: &Option<String>, name: &str| {
            wanted.as_deref().is_none_or(|wanted| wanted == name)
        };
        is(&query.fleet, &line.fleet) && is(&query.name, &line.cluster)
    };
    let matching = || lines.iter().filter(matches);
    let shown = matching().skip(query.offset).take(query.limit);
    Load {
        total: matching().count(),
        offset: query.offset,
        cost: *cost,
        load_lines: shown.map(|line| load_line(line, cost)).collect(),
    }
}

/// Converts one load line.
pub(in crate::admin) fn load_line(line: &LoadLine, cost: &Cost) -> responses::LoadLine {
    let total = |traffic: &Traffic| total_load(traffic, cost);
    let zone = |(index, zone): (usize, &ZoneLine)| {
        let of = |traffic: Option<&Traffic>| {
            let traffic = traffic?.zones.get(index)?;
            Some(zone_load(*traffic))
        };
        responses::ZoneLine {
            locality: zone.locality.clone(),
            demand_requests_per_second: rounded(zone.demand),
            capacity_share: rounded(zone.capacity_share),
            line_requests_per_second: rounded(zone.line),
            above_line: zone.above_line.clone(),
            failed_share: zone.failed_share.map(rounded),
            fails: zone.fails,
            fails_only_from: zone.fails_only_from.clone(),
            planned: zone.planned.as_ref().map(planned),
            seen: of(line.seen.as_ref()),
            now: of(line.now.as_ref().ok()),
            enforce: of(line.enforce.as_ref().ok()),
        }
    };
    responses::LoadLine {
        fleet: Arc::clone(&line.fleet),
        cluster: Arc::clone(&line.cluster),
        mode: mode_name(line.mode),
        ramp_percent: line.ramp,
        basis: line.basis,
        warming_up: line.warming_up,
        target_utilization: line.target_utilization,
        withheld: line.withheld_text(),
        demand_requests_per_second: rounded(line.demand()),
        seen: line.seen.as_ref().map(total),
        now: line.now.as_ref().ok().map(total),
        now_unknown: line.now.as_ref().err().map(|unknown| unknown.text()),
        enforce: line.enforce.as_ref().ok().map(total),
        enforce_unknown: line.enforce.as_ref().err().map(|unknown| unknown.text()),
        zones: line.zones.iter().enumerate().map(zone).collect(),
    }
}

fn planned(zone: &PlannedZone) -> responses::PlannedZone {
    responses::PlannedZone {
        capacity_requests_per_second: rounded(zone.capacity),
        utilization: zone.utilization.map(rounded),
        wanted_hosts: zone.wanted_hosts,
        text: Arc::clone(&zone.text),
    }
}

/// Converts the traffic of all zones.
pub fn total_load(traffic: &Traffic, cost: &Cost) -> TotalLoad {
    TotalLoad {
        requests_per_second: rounded(traffic.requests),
        cross_zone_requests_per_second: rounded(traffic.cross_zone),
        kept_local: traffic.kept_local().map(rounded),
        highest_load: traffic.highest_load().map(rounded),
        usd_per_month: rounded(cost.usd_per_month(traffic.cross_zone)),
    }
}

/// Converts the traffic of one zone.
pub fn zone_load(traffic: ZoneTraffic) -> ZoneLoad {
    ZoneLoad {
        served_requests_per_second: rounded(traffic.served),
        load: traffic.load.map(rounded),
        kept_local: traffic.kept_local.map(rounded),
    }
}
