//! Sections of a page that are tables: localities, routing of every zone, priorities.

use plimsoll_core::explain::{
    Explanation, LocalityExplanation, PriorityExplanation, StateName, ZoneExplanation,
};
use plimsoll_core::locality_picking::zone_aware::Reason;

use super::bar;
use super::names::Names;
use super::style::{Style, Tone};
use super::table::{Align, Cell, Table, end_of};
use super::text::{basis_points, painted, routing, title};
use super::wrap::wrap;

/// Maximum width of a locality's name in the header of the matrix.
const SHORT_NAME: usize = 8;
/// Maximum number of columns for upstream localities; if there are more, the last column sums up
/// the rest.
const MATRIX: usize = 6;

pub(super) fn localities(explanation: &Explanation, names: &Names, style: Style) -> String {
    if explanation.localities.is_empty() {
        return String::new();
    }
    // With reported utilization, the shares of demand and capacity have no effect.
    let reported = explanation
        .localities
        .iter()
        .any(|row| row.utilization.is_some());
    let mut columns = vec![(Align::Left, "locality"), (Align::Right, "healthy")];
    if reported {
        columns.push((Align::Right, "utilization"));
    } else {
        let shares = ["demand%", "capacity%", "spare%"];
        columns.extend(shares.map(|name| (Align::Right, name)));
    }
    columns.extend([
        (Align::Right, "share"),
        (Align::Left, ""),
        (Align::Right, "load"),
        (Align::Left, "0      1.00     2"),
    ]);
    let mut table = Table::new(&columns);
    for row in &explanation.localities {
        let mut cells = name_and_health(row, names);
        if reported {
            cells.push(utilization(row));
        } else {
            cells.extend(percentages(row, explanation));
        }
        cells.extend(share_and_load(row));
        table.row(row.own, cells);
    }
    let legend = if reported { REPORTED_LEGEND } else { LEGEND };
    title("Localities at priority 0 (▸ own)", style)
        + &table.render(style)
        + &above_line(explanation, names, style)
        + &painted(&wrap("  ", legend), Tone::Dim, style)
}

/// Says why localities are above their load line.
fn above_line(explanation: &Explanation, names: &Names, style: Style) -> String {
    let rows = explanation.localities.iter();
    let line = |row: &LocalityExplanation| {
        let why = &row.above_line.as_ref()?.text;
        let text = format!("{} is above its line: {why}", names.row(row));
        let tone = row.load_factor.map_or(Tone::Plain, load_tone);
        Some(painted(&wrap("  ! ", &text), tone, style))
    };
    rows.filter_map(line).collect()
}

const LEGEND: &str = "\
    demand: share of all requests that arrives here; capacity: share of the hosts; spare: capacity \
    for requests that spill; share: of this proxy's requests; load: traffic ÷ \
    capacity, if the proxies of every zone decide the same way";

const REPORTED_LEGEND: &str = "\
    utilization: mean of the hosts' reports, smoothed; share: of this proxy's requests; load: \
    utilization ÷ mean utilization of all hosts";

fn name_and_health(row: &LocalityExplanation, names: &Names) -> Vec<Cell> {
    let tone = if row.own { Tone::Strong } else { Tone::Plain };
    let healthy_tone = if row.healthy < row.hosts {
        Tone::Warning
    } else {
        Tone::Plain
    };
    vec![
        Cell::new(tone, names.row(row)),
        Cell::new(healthy_tone, format!("{}/{}", row.healthy, row.hosts)),
    ]
}

fn utilization(row: &LocalityExplanation) -> Cell {
    let cell = |utilization| Cell::plain(format!("{utilization:.2}"));
    row.utilization.map_or_else(Cell::none, cell)
}

/// Returns demand, capacity and spare capacity, as far as zone-aware routing computed them.
fn percentages(row: &LocalityExplanation, explanation: &Explanation) -> [Cell; 3] {
    let percent = |known: bool, bp: u64| {
        if known {
            Cell::plain(basis_points(bp))
        } else {
            Cell::none()
        }
    };
    let by_zone = explanation.zone_state != StateName::NoLocalityRouting;
    let residual = explanation.zone_state == StateName::LocalityResidual;
    [
        percent(by_zone, row.local_bp),
        percent(by_zone, row.upstream_bp),
        percent(residual, row.residual_bp),
    ]
}

fn share_and_load(row: &LocalityExplanation) -> [Cell; 4] {
    let (load, bar) = match row.load_factor {
        Some(factor) => {
            let tone = load_tone(factor);
            (
                Cell::new(tone, format!("{factor:.2}")),
                Cell::new(tone, bar::load(factor)),
            )
        }
        None => (Cell::none(), Cell::default()),
    };
    [
        Cell::plain(format!("{:.1} %", row.expected_share * 100.0)),
        Cell::plain(bar::share(row.expected_share, 8)),
        load,
        bar,
    ]
}

pub(super) fn zones(explanation: &Explanation, names: &Names, style: Style) -> String {
    if explanation.zones.is_empty() {
        return String::new();
    }
    let upstream = explanation
        .zones
        .iter()
        .map(|zone| zone.shares.len())
        .max()
        .unwrap_or(0);
    let shown = if upstream > MATRIX {
        MATRIX - 1
    } else {
        upstream
    };
    let mut head: Vec<String> = explanation.localities[..shown.min(explanation.localities.len())]
        .iter()
        .map(|row| end_of(&names.row(row), SHORT_NAME))
        .collect();
    if upstream > shown {
        head.push(format!("{} more", upstream - shown));
    }
    let mut columns = vec![
        (Align::Left, "proxies in"),
        (Align::Right, "demand"),
        (Align::Left, "routing"),
    ];
    columns.extend(head.iter().map(|name| (Align::Right, name.as_str())));
    let mut table = Table::new(&columns);
    for zone in &explanation.zones {
        let own = explanation.own_locality.as_ref() == Some(&zone.locality);
        table.row(own, matrix_row(zone, own, names, shown));
    }
    title("Where the proxies of every zone send their requests", style) + &table.render(style)
}

fn matrix_row(zone: &ZoneExplanation, own: bool, names: &Names, shown: usize) -> Vec<Cell> {
    let tone = if own { Tone::Strong } else { Tone::Plain };
    let state = routing(zone.state.as_str());
    let mut cells = vec![
        Cell::new(tone, names.short(&zone.locality)),
        Cell::plain(format!("{:.1} %", zone.demand_share * 100.0)),
        Cell::plain(state),
    ];
    let share = |share: f64| match share {
        share if share > 0.0 => Cell::plain(format!("{:.1} %", share * 100.0)),
        _ => Cell::none(),
    };
    cells.extend(zone.shares.iter().take(shown).map(|&value| share(value)));
    if zone.shares.len() > shown {
        cells.push(share(zone.shares.iter().skip(shown).sum()));
    }
    cells
}

pub(super) fn priorities(explanation: &Explanation, style: Style) -> String {
    if explanation.priorities.is_empty() {
        return String::new();
    }
    let mut table = Table::new(&[
        (Align::Left, "priority"),
        (Align::Right, "load"),
        (Align::Right, "degraded load"),
        (Align::Right, "healthy"),
        (Align::Right, "degraded"),
        (Align::Right, "excluded"),
        (Align::Left, "state"),
    ]);
    for priority in &explanation.priorities {
        table.row(false, priority_row(priority));
    }
    title("Priorities", style) + &table.render(style)
}

fn priority_row(priority: &PriorityExplanation) -> Vec<Cell> {
    let state = match (priority.panic, priority.reason_code) {
        (true, _) => Cell::new(Tone::Bad, "panic"),
        (false, Some(reason @ (Reason::LoadAwareLocality | Reason::LocalityWeights))) => {
            Cell::plain(short_reason(reason))
        }
        (false, Some(reason)) => Cell::plain(format!("none: {}", short_reason(reason))),
        (false, None) => Cell::plain(priority.state.as_str()),
    };
    vec![
        Cell::plain(priority.priority.to_string()),
        Cell::plain(format!("{} %", priority.healthy_load)),
        Cell::plain(format!("{} %", priority.degraded_load)),
        Cell::plain(format!("{}/{}", priority.healthy, priority.hosts)),
        Cell::plain(priority.degraded.to_string()),
        Cell::plain(priority.excluded.to_string()),
        state,
    ]
}

const fn short_reason(reason: Reason) -> &'static str {
    match reason {
        Reason::NotConfigured => "policy does not choose by zone",
        Reason::NoLocalCluster => "no local cluster",
        Reason::PriorityNotZero => "priority 0 only",
        Reason::UpstreamFewerThan2Localities => "upstream in one locality",
        Reason::LocalFewerThan2Localities => "fleet in one locality",
        Reason::LocalClusterHasNoHostInOwnLocality => "no fleet host in own locality",
        Reason::UpstreamTooSmall => "upstream too small",
        Reason::UpstreamInPanic => "panic",
        Reason::LocalityWeights => "by locality weights",
        Reason::RoutingNotEnabled => "routing_enabled is 0 %",
        Reason::LocalClusterInPanic => "fleet in panic",
        Reason::LoadAwareLocality => "by reported utilization",
        _ => "another reason",
    }
}

/// Returns the color of a load: rounding explains up to 5 % above the line; over 25 % is overload.
fn load_tone(factor: f64) -> Tone {
    match factor {
        ..=1.05 => Tone::Good,
        ..=1.25 => Tone::Warning,
        _ => Tone::Bad,
    }
}
