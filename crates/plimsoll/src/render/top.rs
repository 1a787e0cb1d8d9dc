//! Page of `plimsoll top`: the dashboard document as text. Uses the words and thresholds of the web
//! dashboard; unknown values are a dash.

use plimsoll_admin::api::Verdict;
use plimsoll_admin::state::{
    AckStatus, ClusterState, DashboardState, EventState, NodeState, Notice, ReplicasState,
    Severity, ZoneState,
};

use super::style::{Style, Tone};
use super::table::{Align, Cell, Table, visible};
use super::text::{painted, routing, title};
use super::wrap::{WIDTH, wrap_to};
use super::{bar, compare};

/// Load factors above which a zone is marked as above or far above its load line.
const ABOVE: f64 = 1.06;
const FAR_ABOVE: f64 = 1.25;
const MAX_EVENTS: usize = 5;
/// Maximum number of nodes to list that rejected an update.
const MAX_NACKED_NODES: usize = 5;
/// Columns that are dropped on a narrow terminal, in this order.
const DROPPABLE: [&str; 5] = ["proxies", "served/s", "hosts", BAR, "demand/s"];
const BAR: &str = "0      1.00     2";
/// Position of the column of errors, after that of load.
const ERRORS_AT: usize = 6;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PageSize {
    pub(crate) columns: usize,
    /// Maximum number of lines; `None` if unlimited.
    pub(crate) rows: Option<usize>,
}

impl PageSize {
    /// Page size if the output is a file or pipe.
    pub(crate) const UNLIMITED: Self = Self {
        columns: WIDTH,
        rows: None,
    };
}

/// Renders the page; ends with a newline.
pub(crate) fn page(state: &DashboardState, style: Style, size: PageSize) -> String {
    let renderer = Renderer {
        style,
        columns: size.columns,
    };
    let mut page = renderer.heading(state);
    if let Some(verdict) = &state.verdict {
        page.push_str(&renderer.verdict(verdict));
    }
    for notice in &state.notices {
        page.push_str(&renderer.line("! ", &notice.text, tone_of_notice(notice)));
    }
    for cluster in &state.clusters {
        page.push('\n');
        page.push_str(&renderer.cluster(cluster, state.taken_unix_ms));
    }
    if state.clusters.is_empty() {
        page.push_str("\nNo clusters.\n");
    }
    page.push_str(&renderer.nodes(state.nodes.as_deref()));
    if let Some(replicas) = &state.replicas {
        page.push_str(&renderer.replicas(replicas, state.taken_unix_ms));
    }
    let rows = size.rows.unwrap_or(usize::MAX);
    let left = rows.saturating_sub(page.lines().count());
    page.push_str(&renderer.events(&state.events, state.taken_unix_ms, left));
    page
}

#[derive(Clone, Copy)]
struct Renderer {
    style: Style,
    columns: usize,
}

impl Renderer {
    fn heading(self, state: &DashboardState) -> String {
        let title = visible(format!("{} {}", state.title, state.version));
        let name = title.trim();
        let subtitle = visible(state.subtitle.clone());
        // One column is reserved for the wider gap after the title.
        let columns = self.columns.saturating_sub(1);
        let whole = wrap_to(columns, "", &format!("{name} {subtitle}"));
        let rest = whole.strip_prefix(name).unwrap_or(&whole);
        let painted = self.style.paint(Tone::Strong, name);
        if whole.starts_with(name) {
            format!("{painted}{}", rest.replacen(' ', "  ", 1))
        } else {
            whole
        }
    }

    fn verdict(self, verdict: &Verdict) -> String {
        let tone = match verdict.severity.as_str() {
            "error" => Tone::Bad,
            "warning" => Tone::Warning,
            "fine" => Tone::Good,
            _ => Tone::Plain,
        };
        let others = match verdict.others {
            0 => String::new(),
            1 => " (and 1 other problem)".to_owned(),
            others => format!(" (and {others} other problems)"),
        };
        self.line("", &format!("{}{others}", verdict.text), tone)
    }

    fn cluster(self, cluster: &ClusterState, now_unix_ms: u64) -> String {
        let mut section = title(&visible(name_of(cluster)), self.style);
        let basis_line = basis_line(cluster, now_unix_ms);
        if !basis_line.is_empty() {
            section.push_str(&self.line("  ", &basis_line, Tone::Dim));
        }
        let mut zones = zones(cluster);
        zones.drop_columns(self.columns, &DROPPABLE);
        section.push_str(&zones.render_to(self.columns, self.style));
        for zone in worst_first(cluster) {
            if let Some(why) = &zone.above_line {
                let text = format!("{} is above its line: {why}", zone.locality);
                let tone = zone.load.map_or(Tone::Plain, tone_of_load);
                section.push_str(&self.line("  ! ", &text, tone));
            }
        }
        if let Some(line) = crossing(cluster) {
            section.push_str(&self.line("  ", &line, Tone::Plain));
        }
        if let Some((tone, line)) = worst_loss(cluster) {
            section.push_str(&self.line("  ", &line, tone));
        }
        for line in compare::lines(cluster) {
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
            |predicate: fn(&NodeState) -> bool| nodes.iter().filter(|node| predicate(node)).count();
        let mut section = format!(
            "\n{}  {} known, {} connected, {} rejected the last update\n",
            title("Nodes", self.style).trim_end(),
            nodes.len(),
            count(|node| node.connected),
            count(|node| node.answer == AckStatus::Refused),
        );
        let with_module = count(|node| node.class == "envoy_module");
        if with_module > 0 {
            let text = format!("{with_module} with Plimsoll's module inside Envoy");
            section.push_str(&self.line("  ", &text, Tone::Plain));
        }
        let refused = nodes
            .iter()
            .filter(|node| node.answer == AckStatus::Refused);
        for node in refused.take(MAX_NACKED_NODES) {
            let reason = node.refusal.as_deref().unwrap_or("no reason given");
            let text = format!("{} ({}): {reason}", node.id, node.locality);
            section.push_str(&self.line("  ! ", &text, Tone::Bad));
        }
        section
    }

    fn replicas(self, replicas: &ReplicasState, now_unix_ms: u64) -> String {
        let store = replicas.store;
        let connected = if store.connected {
            "store connected"
        } else {
            "store not connected"
        };
        let not_read = if store.synced { "" } else { ", not read yet" };
        let nodes = store.nodes;
        let text = format!("{connected}{not_read}, {nodes} nodes of all replicas");
        let mut section = format!("\n{}", title("Replicas", self.style));
        section.push_str(&self.line("  ", &text, Tone::Plain));
        for replica in &replicas.list {
            let this = if replica.this { " (this one)" } else { "" };
            let other = if replica.same_configuration {
                ""
            } else {
                ", another configuration"
            };
            let heard = age(replica.heard_unix_ms, now_unix_ms);
            let (name, nodes) = (&replica.name, replica.nodes);
            let text = format!("{name}{this}: {nodes} nodes, heard {heard}{other}");
            section.push_str(&self.line("  ", &text, Tone::Plain));
        }
        section
    }

    /// Renders as many events as fit into `rows`, newest first.
    fn events(self, events: &[EventState], now_unix_ms: u64, rows: usize) -> String {
        let mut section = format!("\n{}", title("Events", self.style));
        let mut rows = rows.saturating_sub(section.lines().count());
        let mut shown = false;
        for event in events.iter().take(MAX_EVENTS) {
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

fn basis_line(cluster: &ClusterState, now_unix_ms: u64) -> String {
    let mut words = Vec::new();
    if cluster.warming_up {
        words.push("warming up".to_owned());
    } else if !cluster.basis.is_empty() {
        words.push(format!("by {}", cluster.basis.replace('_', " ")));
    }
    if let Some(confirmed) = cluster.confirmed_unix_ms {
        words.push(format!("confirmed {}", age(confirmed, now_unix_ms)));
    }
    words.extend(cluster.mode.clone());
    words.extend(cluster.ramp_percent.map(|ramp| format!("ramp {ramp} %")));
    if !cluster.policy.is_empty() {
        words.push(cluster.policy.clone());
    }
    words.join(", ")
}

fn zones(cluster: &ClusterState) -> Table {
    let mut columns = vec![
        (Align::Left, "zone"),
        (Align::Right, "hosts"),
        (Align::Right, "proxies"),
        (Align::Right, "demand/s"),
        (Align::Right, "served/s"),
        (Align::Right, "load"),
        (Align::Left, BAR),
        (Align::Right, "kept local"),
        (Align::Left, "routing"),
    ];
    // Without errors the room is for the bar.
    let has_errors = cluster
        .zones
        .iter()
        .any(|zone| zone.failed_share.is_some_and(|share| share > 0.0));
    if has_errors {
        columns.insert(ERRORS_AT, (Align::Right, "errors"));
    }
    let mut table = Table::new(&columns);
    for zone in worst_first(cluster) {
        let mut row = zone_row(zone);
        if has_errors {
            row.insert(ERRORS_AT, failed(zone));
        }
        table.row(false, row);
    }
    table
}

/// Returns the zones by how far they are above their load line; unknown loads come last.
fn worst_first(cluster: &ClusterState) -> Vec<&ZoneState> {
    let mut zones: Vec<&ZoneState> = cluster.zones.iter().collect();
    let load = |zone: &ZoneState| zone.load.unwrap_or(f64::NEG_INFINITY);
    zones.sort_by(|one, other| load(other).total_cmp(&load(one)));
    zones
}

/// Renders a line above the page, for example that the server does not answer.
pub(crate) fn banner(text: &str, style: Style, columns: usize) -> String {
    let renderer = Renderer { style, columns };
    renderer.line("! ", &visible(text.to_owned()), Tone::Bad)
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
        known(zone.state.as_deref().map(|state| routing(state).to_owned())),
    ]
}

fn failed(zone: &ZoneState) -> Cell {
    let tone = if zone.fails { Tone::Bad } else { Tone::Plain };
    zone.failed_share
        .map_or_else(Cell::none, |share| Cell::new(tone, percent(share)))
}

fn known(text: Option<String>) -> Cell {
    text.map_or_else(Cell::none, Cell::plain)
}

/// Says which zone the service can least do without.
fn worst_loss(cluster: &ClusterState) -> Option<(Tone, String)> {
    let losses = cluster.zones.iter().filter_map(|zone| zone.loss.as_ref());
    let worst = losses.max_by(|a, b| a.severity().total_cmp(&b.severity()))?;
    let tone = if worst.exceeds {
        Tone::Warning
    } else {
        Tone::Plain
    };
    Some((tone, worst.text.clone()))
}

/// Describes the traffic between zones, if there is any.
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
    // The sum of an empty iterator of floats is -0.0.
    format!("{:.1} %", share * 100.0 + 0.0)
}

/// Formats the age of an event at the time when the document was created.
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
    use plimsoll_admin::state::{Flow, ReplicaState, StoreState};
    use plimsoll_core::model::locality::Locality;

    use super::*;

    fn state() -> DashboardState {
        let zone = |name: &str, load: f64| ZoneState {
            locality: Locality::zone_only(name),
            proxies: Some(2),
            healthy_hosts: 3,
            hosts: 3,
            demand_requests_per_second: Some(50.0),
            load: Some(load),
            kept_local: Some(0.6),
            state: Some("LocalityResidual".to_owned()),
            ..ZoneState::default()
        };
        let above = ZoneState {
            above_line: Some("demand is 2 % above the capacity of the zone".to_owned()),
            failed_share: Some(0.25),
            ..zone("a", 1.5)
        };
        let cluster = ClusterState {
            cluster: "orders".to_owned(),
            fleet: "gateway".to_owned(),
            mode: Some("ENFORCE".to_owned()),
            basis: "measured_demand".to_owned(),
            confirmed_unix_ms: Some(7_000),
            zones: vec![zone("b", 1.0), above],
            flows: vec![Flow(0, 0, 60.0), Flow(0, 1, 20.0)],
            flows_measured: true,
            ..ClusterState::default()
        };
        let node = NodeState {
            id: "gateway-7".to_owned(),
            answer: AckStatus::Refused,
            refusal: Some("unknown\u{1b}field".to_owned()),
            connected: true,
            class: "envoy_module".to_owned(),
            ..NodeState::default()
        };
        DashboardState {
            title: "plimsoll control".to_owned(),
            version: "0.1.0".to_owned(),
            taken_unix_ms: 10_000,
            verdict: Some(Verdict {
                severity: "error".to_owned(),
                text: "a serves 150 % of its load line: mode SHADOW; set ENFORCE".to_owned(),
                others: 2,
                ..Verdict::default()
            }),
            notices: vec![Notice {
                severity: Severity::Error,
                text: "one node rejected an update".to_owned(),
            }],
            clusters: vec![cluster],
            nodes: Some(vec![node, NodeState::default()]),
            replicas: Some(ReplicasState {
                store: StoreState {
                    nodes: 7,
                    ..StoreState::default()
                },
                list: vec![ReplicaState {
                    name: "r0".to_owned(),
                    this: true,
                    nodes: 3,
                    heard_unix_ms: 6_000,
                    ..ReplicaState::default()
                }],
                ..ReplicasState::default()
            }),
            events: vec![EventState {
                at_unix_ms: 1_000,
                severity: Severity::Info,
                text: "a node joined".to_owned(),
            }],
            ..DashboardState::default()
        }
    }

    #[test]
    fn a_page_has_every_section() {
        let page = page(&state(), Style::new(false, None), PageSize::UNLIMITED);
        for part in [
            "plimsoll control 0.1.0",
            "\na serves 150 % of its load line: mode SHADOW; set ENFORCE (and 2 other problems)\n",
            "! one node rejected an update",
            "orders for gateway",
            "by measured demand, confirmed 3 s ago, ENFORCE",
            "1.50  25.0 %  ████████│████····      60.0 %  spills",
            "a is above its line: demand is 2 % above",
            "between zones: 25.0 % of 80.0 requests/s (reported)",
            "2 known, 1 connected, 1 rejected",
            "1 with Plimsoll's module inside Envoy",
            "gateway-7 ((none)): unknown\u{fffd}field",
            "Replicas\n  store not connected, not read yet, 7 nodes of all replicas",
            "r0 (this one): 3 nodes, heard 4 s ago, another configuration",
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
    fn a_narrow_terminal_drops_columns_and_events() {
        let mut state = state();
        state.subtitle = "a subtitle ".repeat(9);
        state.clusters[0].policy = "load_aware_locality, client_side_weighted_round_robin".into();
        for zone in &mut state.clusters[0].zones {
            zone.locality = Locality::new("region-1", zone.locality.zone(), "");
            zone.served_requests_per_second = Some(12_345.6);
        }
        let event = state.events[0].clone();
        state.events = vec![event; 9];
        let size = |columns, rows| PageSize {
            columns,
            rows: Some(rows),
        };
        let style = Style::new(false, None);
        for columns in [100, 80, 60] {
            let page = page(&state, style, size(columns, 26));
            let wide = page.lines().find(|line| line.chars().count() > columns);
            assert_eq!(wide, None, "{columns} columns:\n{page}");
            assert!(page.contains("1.50"), "load stays:\n{page}");
            assert!(page.contains("spills"), "{page}");
            let row = |name: &str| page.lines().position(|line| line.contains(name));
            assert!(
                row("/a ").is_some() && row("/a ") < row("/b "),
                "worst first:\n{page}"
            );
            assert!(page.lines().count() <= 26, "{page}");
        }
        let narrow = page(&state, style, size(80, 28));
        assert!(
            !narrow.contains("proxies") && narrow.contains("kept local"),
            "{narrow}"
        );
        let lines = narrow.lines().count();
        let low = page(&state, style, size(80, lines - 2));
        assert_eq!(
            low.matches("a node joined").count(),
            narrow.matches("a node joined").count() - 2
        );
        let lower = page(&state, style, size(80, 5));
        assert!(!lower.contains("Events"), "{lower}");
    }

    #[test]
    fn unknown_values_are_dashes_or_omitted() {
        let zone = ZoneState::default();
        assert_eq!(zone_row(&zone)[5], Cell::none());
        assert_eq!(crossing(&ClusterState::default()), None);
        let style = Style::new(false, None);
        let page = page(&DashboardState::default(), style, PageSize::UNLIMITED);
        assert!(
            !page.contains("Nodes") && !page.contains("Events"),
            "{page}"
        );
        assert!(page.contains("No clusters."), "{page}");
    }

    #[test]
    fn colors_depend_on_the_load() {
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
