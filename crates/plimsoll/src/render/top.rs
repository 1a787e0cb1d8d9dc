//! The document of a dashboard as a page for terminals.
//!
//! Says what the dashboard says with the same words and the same thresholds; what is not known is a
//! dash. Called by `cmd::top`.

use plimsoll_admin::state::{
    Answer, ClusterState, DashboardState, EventState, NodeState, Notice, Severity, ZoneState,
};

use super::bar;
use super::style::{Style, Tone};
use super::table::{Align, Cell, Table, visible};
use super::words::{painted, title};
use super::wrap::{WIDTH, wrap_to};

/// Above this a zone is above its line, above the next one far above (docs/dashboard.md).
const ABOVE: f64 = 1.06;
const FAR_ABOVE: f64 = 1.25;
/// Events that are shown.
const EVENTS: usize = 5;
/// Nodes with trouble that are shown.
const TROUBLED: usize = 5;
/// Columns of a narrow terminal give way in this order; the others stay, names are shortened.
const GIVE_WAY: [&str; 4] = ["proxies", "served/s", "hosts", BAR];
const BAR: &str = "0      1.00     2";

/// How much of a terminal there is to write on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Room {
    /// Longest line.
    pub(crate) columns: usize,
    /// Lines, where more cannot be seen.
    pub(crate) rows: Option<usize>,
}

impl Room {
    /// A file or a pipe.
    pub(crate) const PAPER: Self = Self {
        columns: WIDTH,
        rows: None,
    };
}

/// The page, with a newline at its end.
pub(crate) fn page(state: &DashboardState, style: Style, room: Room) -> String {
    let pen = Pen {
        style,
        columns: room.columns,
    };
    let mut page = pen.heading(state);
    for notice in &state.notices {
        page.push_str(&pen.line("! ", &notice.text, tone_of_notice(notice)));
    }
    for cluster in &state.clusters {
        page.push('\n');
        page.push_str(&pen.cluster(cluster, state.taken_unix_ms));
    }
    if state.clusters.is_empty() {
        page.push_str("\nNo clusters.\n");
    }
    page.push_str(&pen.nodes(state.nodes.as_deref()));
    let rows = room.rows.unwrap_or(usize::MAX);
    let left = rows.saturating_sub(page.lines().count());
    page.push_str(&pen.events(&state.events, state.taken_unix_ms, left));
    page
}

/// How lines are written.
#[derive(Clone, Copy)]
struct Pen {
    style: Style,
    columns: usize,
}

impl Pen {
    fn heading(self, state: &DashboardState) -> String {
        let name = visible(format!("{} {}", state.title, state.version));
        let name = name.trim();
        let subtitle = visible(state.subtitle.clone());
        // One column is for the wider gap behind the name.
        let columns = self.columns.saturating_sub(1);
        let whole = wrap_to(columns, "", &format!("{name} {subtitle}"));
        let rest = whole.strip_prefix(name).unwrap_or(&whole);
        let painted = self.style.paint(Tone::Strong, name);
        match whole.starts_with(name) {
            true => format!("{painted}{}", rest.replacen(' ', "  ", 1)),
            false => whole,
        }
    }

    fn cluster(self, cluster: &ClusterState, now_unix_ms: u64) -> String {
        let mut section = title(&visible(name_of(cluster)), self.style);
        let goes_by = goes_by(cluster, now_unix_ms);
        if !goes_by.is_empty() {
            section.push_str(&self.line("  ", &goes_by, Tone::Dim));
        }
        let mut zones = zones(cluster);
        zones.give_way(self.columns, &GIVE_WAY);
        section.push_str(&zones.render_to(self.columns, self.style));
        if let Some(line) = crossing(cluster) {
            section.push_str(&self.line("  ", &line, Tone::Plain));
        }
        for note in &cluster.notes {
            section.push_str(&self.line("  ", note, Tone::Dim));
        }
        section
    }

    fn nodes(self, nodes: Option<&[NodeState]>) -> String {
        let Some(nodes) = nodes else {
            return String::new();
        };
        let count =
            |wanted: fn(&NodeState) -> bool| nodes.iter().filter(|node| wanted(node)).count();
        let mut section = format!(
            "\n{}  {} known, {} connected, {} refused the last update\n",
            title("Nodes", self.style).trim_end(),
            nodes.len(),
            count(|node| node.connected),
            count(|node| node.answer == Answer::Refused),
        );
        let refused = nodes.iter().filter(|node| node.answer == Answer::Refused);
        for node in refused.take(TROUBLED) {
            let why = node.refusal.as_deref().unwrap_or("no reason given");
            let text = format!("{} ({}): {why}", node.id, node.locality);
            section.push_str(&self.line("  ! ", &text, Tone::Bad));
        }
        section
    }

    /// As many as there are lines left for: what is older matters least of all.
    fn events(self, events: &[EventState], now_unix_ms: u64, rows: usize) -> String {
        let mut section = format!("\n{}", title("Events", self.style));
        let mut rows = rows.saturating_sub(section.lines().count());
        let mut shown = false;
        for event in events.iter().take(EVENTS) {
            let text = format!("{}: {}", age(event.at_unix_ms, now_unix_ms), event.text);
            let lines = self.line("  ", &text, tone_of(event.severity));
            let Some(left) = rows.checked_sub(lines.lines().count()) else {
                break;
            };
            section.push_str(&lines);
            (rows, shown) = (left, true);
        }
        if shown { section } else { String::new() }
    }

    fn line(self, first: &str, text: &str, tone: Tone) -> String {
        painted(&wrap_to(self.columns, first, text), tone, self.style)
    }
}

fn name_of(cluster: &ClusterState) -> String {
    match cluster.fleet.as_str() {
        "" => cluster.cluster.clone(),
        fleet => format!("{} for {fleet}", cluster.cluster),
    }
}

/// What routing goes by, in a line.
fn goes_by(cluster: &ClusterState, now_unix_ms: u64) -> String {
    let mut words = Vec::new();
    if !cluster.basis.is_empty() {
        words.push(format!("by {}", cluster.basis.replace('_', " ")));
    }
    if let Some(confirmed) = cluster.confirmed_unix_ms {
        words.push(format!("confirmed {}", age(confirmed, now_unix_ms)));
    }
    if cluster.warming_up {
        words.push("warming up".to_owned());
    }
    words.extend(cluster.mode.clone());
    words.extend(cluster.ramp_percent.map(|ramp| format!("ramp {ramp} %")));
    if !cluster.policy.is_empty() {
        words.push(cluster.policy.clone());
    }
    words.join(", ")
}

fn zones(cluster: &ClusterState) -> Table {
    let mut table = Table::new(&[
        (Align::Left, "zone"),
        (Align::Right, "hosts"),
        (Align::Right, "proxies"),
        (Align::Right, "demand/s"),
        (Align::Right, "served/s"),
        (Align::Right, "load"),
        (Align::Left, BAR),
        (Align::Right, "stays"),
        (Align::Left, "state"),
    ]);
    for zone in &cluster.zones {
        table.row(false, zone_row(zone));
    }
    table
}

fn zone_row(zone: &ZoneState) -> Vec<Cell> {
    let estimated = if zone.demand_estimated { "~" } else { "" };
    let demand = zone
        .demand_requests_per_second
        .map(|rate| format!("{estimated}{rate:.1}"));
    let hosts = format!("{}/{}", zone.healthy_hosts, zone.hosts);
    let tone = zone.load.map_or(Tone::Plain, tone_of_load);
    vec![
        Cell::plain(zone.locality.to_string()),
        Cell::new(
            if zone.healthy_hosts < zone.hosts {
                Tone::Warning
            } else {
                Tone::Plain
            },
            hosts,
        ),
        known(zone.proxies.map(|proxies| proxies.to_string())),
        known(demand),
        known(
            zone.served_requests_per_second
                .map(|rate| format!("{rate:.1}")),
        ),
        zone.load
            .map_or_else(Cell::none, |load| Cell::new(tone, format!("{load:.2}"))),
        zone.load
            .map_or_else(Cell::none, |load| Cell::new(tone, bar::load(load))),
        known(zone.kept_local.or(zone.kept_local_planned).map(percent)),
        known(zone.state.clone()),
    ]
}

fn known(text: Option<String>) -> Cell {
    text.map_or_else(Cell::none, Cell::plain)
}

/// How much leaves its zone, if there is traffic.
fn crossing(cluster: &ClusterState) -> Option<String> {
    let total: f64 = cluster.flows.iter().map(|flow| flow.2).sum();
    let crossing: f64 = cluster
        .flows
        .iter()
        .filter(|flow| flow.0 != flow.1)
        .map(|flow| flow.2)
        .sum();
    let how = if cluster.flows_measured {
        "reported"
    } else {
        "planned"
    };
    (total > 0.0).then(|| {
        let share = percent(crossing / total);
        format!("between zones: {share} of {total:.1} requests/s ({how})")
    })
}

fn tone_of_notice(notice: &Notice) -> Tone {
    match notice.severity {
        Severity::Info => Tone::Plain,
        severity => tone_of(severity),
    }
}

const fn tone_of(severity: Severity) -> Tone {
    match severity {
        Severity::Error => Tone::Bad,
        Severity::Warning => Tone::Warning,
        Severity::Info => Tone::Dim,
    }
}

fn tone_of_load(load: f64) -> Tone {
    match load {
        _ if load > FAR_ABOVE => Tone::Bad,
        _ if load > ABOVE => Tone::Warning,
        _ => Tone::Good,
    }
}

fn percent(share: f64) -> String {
    // The sum of nothing is negative zero.
    format!("{:.1} %", share * 100.0 + 0.0)
}

/// How long ago, by the clock of the document.
fn age(at_unix_ms: u64, now_unix_ms: u64) -> String {
    let seconds = now_unix_ms.saturating_sub(at_unix_ms) / 1000;
    match seconds {
        0..120 => format!("{seconds} s ago"),
        120..7200 => format!("{} min ago", seconds / 60),
        _ => format!("{} h ago", seconds / 3600),
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_admin::state::{Flow, Place};

    use super::*;

    fn state() -> DashboardState {
        let zone = |name: &str, load: f64| ZoneState {
            locality: Place {
                zone: name.to_owned(),
                ..Place::default()
            },
            proxies: Some(2),
            healthy_hosts: 3,
            hosts: 3,
            demand_requests_per_second: Some(50.0),
            load: Some(load),
            kept_local: Some(0.6),
            state: Some("LocalityResidual".to_owned()),
            ..ZoneState::default()
        };
        let cluster = ClusterState {
            cluster: "orders".to_owned(),
            fleet: "gateway".to_owned(),
            mode: Some("ENFORCE".to_owned()),
            basis: "measured_demand".to_owned(),
            confirmed_unix_ms: Some(7_000),
            zones: vec![zone("a", 1.5), zone("b", 1.0)],
            flows: vec![Flow(0, 0, 60.0), Flow(0, 1, 20.0)],
            flows_measured: true,
            ..ClusterState::default()
        };
        let node = NodeState {
            id: "gateway-7".to_owned(),
            answer: Answer::Refused,
            refusal: Some("no such\u{1b}field".to_owned()),
            connected: true,
            ..NodeState::default()
        };
        DashboardState {
            title: "plimsoll control".to_owned(),
            version: "0.1.0".to_owned(),
            taken_unix_ms: 10_000,
            notices: vec![Notice {
                severity: Severity::Error,
                text: "one node refused an update".to_owned(),
            }],
            clusters: vec![cluster],
            nodes: Some(vec![node, NodeState::default()]),
            events: vec![EventState {
                at_unix_ms: 1_000,
                severity: Severity::Info,
                text: "a node joined".to_owned(),
            }],
            ..DashboardState::default()
        }
    }

    #[test]
    fn the_page_has_every_part() {
        let page = page(&state(), Style::new(false, None), Room::PAPER);
        for part in [
            "plimsoll control 0.1.0",
            "! one node refused an update",
            "orders for gateway",
            "by measured demand, confirmed 3 s ago, ENFORCE",
            "1.50  ████████│████····  60.0 %  LocalityResidual",
            "between zones: 25.0 % of 80.0 requests/s (reported)",
            "2 known, 1 connected, 1 refused",
            "gateway-7 ((none)): no such\u{fffd}field",
            "9 s ago: a node joined",
        ] {
            assert!(page.contains(part), "{part:?} is missing:\n{page}");
        }
        assert!(
            page.lines().all(|line| line.chars().count() <= 100),
            "{page}"
        );
        assert!(page.lines().all(|line| line.trim_end() == line), "{page}");
    }

    #[test]
    fn a_narrow_terminal_loses_what_matters_least() {
        let mut state = state();
        state.subtitle = "a subtitle ".repeat(9);
        state.clusters[0].policy = "load_aware_locality, client_side_weighted_round_robin".into();
        for zone in &mut state.clusters[0].zones {
            zone.locality.region = "region-1".to_owned();
            zone.served_requests_per_second = Some(12_345.6);
        }
        let event = state.events[0].clone();
        state.events = vec![event; 9];
        let room = |columns, rows| Room {
            columns,
            rows: Some(rows),
        };
        let style = Style::new(false, None);
        for columns in [100, 80, 60] {
            let page = page(&state, style, room(columns, 24));
            let wide = page.lines().find(|line| line.chars().count() > columns);
            assert_eq!(wide, None, "{columns} columns:\n{page}");
            assert!(page.contains("1.50"), "load stays:\n{page}");
            assert!(page.contains("LocalityResidual"), "{page}");
            assert!(page.lines().count() <= 24, "{page}");
        }
        let narrow = page(&state, style, room(80, 24));
        assert!(
            !narrow.contains("proxies") && narrow.contains("stays"),
            "{narrow}"
        );
        let lines = narrow.lines().count();
        let low = page(&state, style, room(80, lines - 2));
        assert_eq!(
            low.matches("a node joined").count(),
            narrow.matches("a node joined").count() - 2
        );
        let lower = page(&state, style, room(80, 5));
        assert!(!lower.contains("Events"), "{lower}");
    }

    #[test]
    fn what_is_not_known_is_a_dash_or_left_out() {
        let zone = ZoneState::default();
        assert_eq!(zone_row(&zone)[5], Cell::none());
        assert_eq!(crossing(&ClusterState::default()), None);
        let style = Style::new(false, None);
        let page = page(&DashboardState::default(), style, Room::PAPER);
        assert!(
            !page.contains("Nodes") && !page.contains("Events"),
            "{page}"
        );
        assert!(page.contains("No clusters."), "{page}");
    }

    #[test]
    fn colours_follow_the_load_line() {
        let tones = [0.5, 1.06, 1.07, 1.25, 1.3].map(tone_of_load);
        let expected = [
            Tone::Good,
            Tone::Good,
            Tone::Warning,
            Tone::Warning,
            Tone::Bad,
        ];
        assert_eq!(tones, expected);
        assert_eq!(age(0, 119_999), "119 s ago");
        assert_eq!(age(0, 120_000), "2 min ago");
        assert_eq!(age(9, 0), "0 s ago", "clocks may step");
        assert_eq!(percent(-0.0), "0.0 %");
    }
}
