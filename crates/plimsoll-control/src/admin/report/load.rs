//! Response of `/api/v1/load`: load lines of every fleet and service.

use std::sync::Arc;

use plimsoll_admin::api::{PlannedCost, TotalLoad, ZoneLoad, rounded};
use plimsoll_admin::zone_loss::ZoneLosses;
use plimsoll_core::planner::cost::{Cost, PairPrice};

use super::super::responses::{self, Load, Prices};
use super::{ListQuery, mode_name};
use crate::load_line::{LoadLine, LoadLines, PlannedZone, Traffic, ZoneLine, ZoneTraffic};
use crate::zone_loss::ServiceLosses;

/// Lists the load lines that match the query, by fleet and cluster.
pub(in crate::admin) fn load(lines: &LoadLines, general: &Cost, query: &ListQuery) -> Load {
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
        cost: prices(general),
        load_lines: shown.map(load_line).collect(),
    }
}

/// Lists what services would be without each of their zones, by name.
pub(in crate::admin) fn zone_losses(
    losses: &[ServiceLosses],
    max_utilization: f64,
    query: &ListQuery,
) -> ZoneLosses {
    let is_asked = |losses: &&ServiceLosses| {
        let name = query.name.as_deref();
        name.is_none_or(|name| *losses.service.cluster == *name)
    };
    let asked: Vec<&ServiceLosses> = losses.iter().filter(is_asked).collect();
    let page = asked.iter().skip(query.offset).take(query.limit);
    ZoneLosses {
        total: asked.len(),
        offset: query.offset,
        services: page.map(|losses| losses.shown(max_utilization)).collect(),
    }
}

/// Converts one load line.
pub(in crate::admin) fn load_line(line: &LoadLine) -> responses::LoadLine {
    let total = |traffic: &Traffic| total_load(traffic, line);
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
        cost: prices(&line.cost),
        planned: planned_cost(line),
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

fn prices(cost: &Cost) -> Prices {
    let pair = |pair: &PairPrice| responses::PairPrice {
        from: pair.from.clone(),
        to: pair.to.clone(),
        usd_per_gigabyte: pair.usd_per_gigabyte,
    };
    Prices {
        general: cost.into(),
        usd_per_gigabyte_between_regions: cost.usd_per_gigabyte_between_regions(),
        between: cost.pairs().iter().map(pair).collect(),
    }
}

/// Converts what the plan of a service costs; `None` without one.
pub fn planned_cost(line: &LoadLine) -> Option<PlannedCost> {
    let bill = line.bill?;
    Some(PlannedCost {
        usd_per_month: rounded(bill.objective),
        level_usd_per_month: rounded(bill.level),
        last_percent_usd_per_month: bill.last_percent.map(rounded),
    })
}

fn planned(zone: &PlannedZone) -> responses::PlannedZone {
    responses::PlannedZone {
        capacity_requests_per_second: zone.capacity.map(rounded),
        utilization: zone.utilization.map(rounded),
        wanted_hosts: zone.wanted_hosts,
        text: Arc::clone(&zone.text),
    }
}

/// Converts the traffic of all zones of a load line.
pub fn total_load(traffic: &Traffic, line: &LoadLine) -> TotalLoad {
    TotalLoad {
        requests_per_second: rounded(traffic.requests),
        cross_zone_requests_per_second: rounded(traffic.cross_zone),
        kept_local: traffic.kept_local().map(rounded),
        highest_load: traffic.highest_load().map(rounded),
        usd_per_month: rounded(line.usd_per_month(traffic)),
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
