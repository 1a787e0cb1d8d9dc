//! Every number on the page, and its text, agrees with the admin API.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::compare::compare;
use crate::support::checked::{Checked, as_sentence, reads_as};
use crate::support::control::Control;
use crate::support::page::{DESKTOP, Page};

/// Rounds to three decimals, like the document.
fn rounded(number: &Value) -> Value {
    json!((number.as_f64().unwrap() * 1000.0).round() / 1000.0)
}

fn cell(table: &str, zone: &str, field: &str) -> String {
    format!("#{table} tr[data-key=\"r1/{zone}\"] [data-field=\"{field}\"]")
}

fn zone_of<'a>(list: &'a Value, zone: &str) -> &'a Value {
    let mut all = list.as_array().unwrap().iter();
    let found = all.find(|entry| {
        entry["locality"]["zone"] == zone || (entry["zone"] == zone && entry["region"] == "r1")
    });
    found.unwrap_or(&Value::Null)
}

/// Returns the color class of a load (docs/dashboard.md).
fn level(load: Option<f64>) -> &'static str {
    match load {
        None => "unknown",
        Some(load) if load < 0.94 => "under",
        Some(load) if load <= 1.06 => "at",
        Some(load) if load <= 1.25 => "above",
        Some(_) => "far",
    }
}

#[test]
fn every_number_agrees_with_the_admin_api() {
    let control = Control::start("numbers").with_proxies();
    let mut page = Page::open("numbers-browser", &control.address(), DESKTOP);
    page.wait("document.querySelector('#routing [data-field=delivered]')?.dataset.value");
    page.eval("document.querySelectorAll('details').forEach((e) => { e.open = true; })");
    page.next_document();
    page.wait("document.querySelector('#history-table [data-field=now]')");
    let mut page = Checked::new(page);
    let api = Api::new(&control);
    zones(&mut page, &api);
    traffic(&mut page, &api);
    costs(&mut page, &api);
    history(&mut page, &api);
    clusters(&mut page, &api);
    age_and_staleness(&mut page, &control);
    nodes(&mut page, &control);
    in_use(&mut page, &control);
    compare(&mut page, &control, "orders");
    page.page.screenshot("control-light");
    page.page.assert_tidy();
    what_if(&mut page, &control);
    let unchecked = page.unchecked();
    assert!(
        unchecked.is_empty(),
        "not checked by this test: {unchecked:?}"
    );
    page.page.close();
}

const ZONES: [&str; 3] = ["zone-a", "zone-b", "zone-c"];

/// Responses of the admin API about `orders`.
struct Api {
    fleet: Value,
    fleets: Value,
    explain: Value,
    load: Value,
    clusters: Value,
}

impl Api {
    fn new(control: &Control) -> Self {
        let clusters = control.page("clusters");
        let mut all = clusters["clusters"].as_array().unwrap().iter();
        let orders = all.find(|cluster| cluster["cluster"] == "orders").unwrap();
        Self {
            fleet: orders["fleets"][0].clone(),
            fleets: control.page("fleets")["fleets"][0].clone(),
            explain: control.page("explain?cluster=orders&zone=zone-a"),
            load: control.page("load?cluster=orders")["load_lines"][0].clone(),
            clusters: clusters.clone(),
        }
    }

    fn demand(&self) -> &Value {
        let mut scopes = self.fleets["demand"].as_array().unwrap().iter();
        scopes.find(|scope| scope["cluster"] == "orders").unwrap()
    }

    fn arrives(&self, zone: &str) -> f64 {
        let zone = zone_of(&self.demand()["zones"], zone);
        zone["smoothed_requests_per_second"].as_f64().unwrap()
    }

    fn flows(&self) -> Vec<(String, String, f64)> {
        let name = |place: &Value| place["zone"].as_str().unwrap().to_owned();
        let flows = self.fleet["traffic"].as_array().unwrap().iter();
        let flow = |flow: &Value| {
            let rate = flow["requests_per_second"].as_f64().unwrap();
            (name(&flow["from"]), name(&flow["to"]), rate)
        };
        flows.map(flow).collect()
    }

    fn sum(&self, predicate: impl Fn(&str, &str) -> bool) -> f64 {
        let flows = self.flows().into_iter();
        flows
            .filter(|(from, to, _)| predicate(from, to))
            .map(|flow| flow.2)
            .sum()
    }

    fn served(&self, zone: &str) -> f64 {
        self.sum(|_, to| to == zone)
    }

    /// Returns the load line: share of the capacity times all requests.
    fn line(&self, zone: &str) -> f64 {
        let share = zone_of(&self.explain["localities"], zone)["capacity_share"].as_f64();
        thousandths(share.unwrap() * self.sum(|_, _| true))
    }

    fn load(&self, zone: &str) -> f64 {
        let share = zone_of(&self.explain["localities"], zone)["capacity_share"].as_f64();
        thousandths(self.served(zone) / (share.unwrap() * self.sum(|_, _| true)))
    }

    fn crossing(&self) -> f64 {
        self.sum(|from, to| from != to)
    }
}

fn thousandths(number: f64) -> f64 {
    (number * 1000.0).round() / 1000.0
}

/// Checks demand, capacity and routing of every zone, and the tiles that sum them up.
fn zones(page: &mut Checked, api: &Api) {
    for zone in ZONES {
        let of = |field: &str| cell("zones", zone, field);
        page.says(&of("zone"), zone);
        page.shows(&of("demand"), &json!(api.arrives(zone)), 1.0);
        let locality = zone_of(&api.explain["localities"], zone);
        let (healthy, words) = page.shown(&of("hosts"));
        assert_eq!(healthy.as_f64(), locality["healthy"].as_f64(), "{zone}");
        let hosts = format!("{} of {}", locality["healthy"], locality["hosts"]);
        assert_eq!(words, hosts);
        let proxies = &zone_of(&api.fleets["zones"], zone)["nodes"];
        page.shows(&of("proxies"), proxies, 1.0);
        page.shows(
            &of("capacity"),
            &rounded(&locality["capacity_share"]),
            100.0,
        );
        page.shows(&of("served"), &json!(api.served(zone)), 1.0);
        // This column is visible on the page of a proxy only.
        page.shows(&of("sent"), &json!(api.served(zone)), 1.0);
        page.shows(&of("line"), &json!(api.line(zone)), 1.0);
        page.shows(&of("load"), &json!(api.load(zone)), 100.0);
        let color = page.attribute(&of("load"), "data-level");
        assert_eq!(color, level(Some(api.load(zone))), "{zone}");
        let failed = &zone_of(&api.load["zones"], zone)["failed_share"];
        assert_eq!(failed.as_f64() > Some(0.0), zone == "zone-b", "{failed}");
        page.shows(&of("errors"), &rounded(failed), 100.0);
        // The control plane receives no utilization; the column is hidden.
        page.shows(&of("utilization"), &Value::Null, 1.0);
        // Without an objective there is no plan of utilization; the column is hidden.
        page.shows(&of("planned-utilization"), &Value::Null, 1.0);
        routing(page, api, zone);
    }
    let total: f64 = ZONES.iter().map(|zone| api.arrives(zone)).sum();
    page.shows("#tiles [data-tile=demand] dd", &json!(total), 1.0);
    let loads = ZONES.map(|zone| api.load(zone));
    let busiest = loads.into_iter().fold(0.0, f64::max);
    page.shows("#tiles [data-tile=busiest] dd", &json!(busiest), 100.0);
    let place = loads.iter().position(|load| *load == busiest).unwrap();
    let (_, words) = page.shown("#tiles [data-tile=busiest] .note");
    assert!(words.starts_with(ZONES[place]), "{words}");
    bars(page, api);
}

/// Returns the label of a state.
fn state_label(state: &Value) -> &'static str {
    match state.as_str().unwrap() {
        "LocalityResidual" => "spills",
        "LocalityDirect" => "all local",
        _ => "not by zone",
    }
}

fn routing(page: &mut Checked, api: &Api, zone: &str) {
    let of = |field: &str| cell("routing", zone, field);
    page.says(&of("zone"), zone);
    let delivered = &zone_of(&api.fleet["delivered"], zone)["fraction_bp"];
    page.shows(&of("delivered"), delivered, 0.01);
    let measured = &zone_of(&api.demand()["measured"], zone)["fraction_bp"];
    page.shows(&of("measured"), measured, 0.01);
    let explained = zone_of(&api.explain["zones"], zone);
    page.shows(&of("planned"), &rounded(&explained["kept_local"]), 100.0);
    let stays = api.sum(|from, to| from == zone && to == zone);
    let kept = thousandths(stays / api.sum(|from, _| from == zone));
    page.shows(&of("kept"), &json!(kept), 100.0);
    page.says(&of("state"), state_label(&explained["state"]));
    if zone == "zone-a" {
        let (_, reason) = page.shown(&of("reason"));
        let wanted = as_sentence(api.explain["reason"].as_str().unwrap());
        assert!(reason.starts_with(&wanted), "{reason}");
    }
}

/// Checks that bars are scaled to the largest number.
fn bars(page: &mut Checked, api: &Api) {
    let numbers = ZONES.map(|zone| [api.served(zone), api.arrives(zone), api.line(zone)]);
    let most = numbers.iter().flatten().copied().fold(0.0, f64::max);
    for (zone, numbers) in ZONES.iter().zip(numbers) {
        for (place, number) in numbers.into_iter().enumerate() {
            let side = if place == 2 { "x" } else { "width" };
            let bar = format!(
                "{} rect:nth-of-type({})",
                cell("zones", zone, "bars"),
                place + 1
            );
            let drawn: f64 = page.attribute(&bar, side).parse().unwrap();
            let wanted = 98.0 * number / most;
            assert!(
                (drawn - wanted).abs() < 0.01,
                "{zone}: {drawn} is not {wanted}"
            );
        }
    }
}

/// Checks that ribbons have the width of their traffic and the color of the target zone, and that
/// the table agrees.
fn traffic(page: &mut Checked, api: &Api) {
    let flows = api.flows();
    assert_eq!(flows.len(), 5);
    let scale = |page: &mut Checked, (from, to, rate): &(String, String, f64)| {
        let ribbon = format!("#map path[data-from='{from}'][data-to='{to}']");
        let drawn: f64 = page.attribute(&ribbon, "data-value").parse().unwrap();
        assert_eq!(drawn, *rate, "{from} to {to}");
        let color = page.attribute(&ribbon, "data-level");
        assert_eq!(color, level(Some(api.load(to))), "{from} to {to}");
        let path = page.attribute(&ribbon, "d");
        let width: f64 = page.attribute(&ribbon, "data-width").parse().unwrap();
        // The right edge of the ribbon is the vertical part of the path.
        let (curve, edge) = path.split_once('V').unwrap();
        let top: f64 = curve.rsplit(' ').next().unwrap().parse().unwrap();
        let bottom: f64 = edge.split('C').next().unwrap().parse().unwrap();
        assert!(
            (bottom - top - width).abs() < 0.01,
            "{path} is not {width} wide"
        );
        width / rate
    };
    let scales: Vec<f64> = flows.iter().map(|flow| scale(page, flow)).collect();
    for other in &scales {
        assert!(
            (other / scales[0] - 1.0).abs() < 0.01,
            "different scales: {scales:?}"
        );
    }
    for zone in ZONES {
        let of = |class: &str| format!("#map .{class}[data-zone='{zone}']");
        let issued = api.sum(|from, _| from == zone);
        for (class, number) in [
            ("arrival", issued),
            ("served", api.served(zone)),
            ("load-line", api.line(zone)),
        ] {
            let drawn: f64 = page.attribute(&of(class), "data-value").parse().unwrap();
            assert!((drawn - number).abs() < 1e-9, "{class} of {zone}: {drawn}");
        }
        let height: f64 = page.attribute(&of("served"), "height").parse().unwrap();
        let wanted = api.served(zone) * scales[0];
        assert!(
            (height / wanted - 1.0).abs() < 0.01,
            "{zone}: {height} is not {wanted}"
        );
        assert_eq!(
            page.attribute(&of("served"), "data-level"),
            level(Some(api.load(zone)))
        );
    }
    for (from, to, rate) in &flows {
        let of = |field: &str| format!("#flows tr[data-key='{from}>{to}'] [data-field={field}]");
        page.says(&of("from"), from);
        page.says(&of("to"), to);
        page.shows(&of("flow"), &json!(rate), 1.0);
        let share = rate / api.sum(|other, _| other == from);
        page.shows(&of("share"), &json!(share), 100.0);
    }
    let (cross, total) = (api.crossing(), api.sum(|_, _| true));
    page.shows("#tiles [data-tile=cross] dd", &json!(cross), 1.0);
    page.shows(
        "#tiles [data-tile=kept] dd",
        &json!(1.0 - cross / total),
        100.0,
    );
}

/// Checks costs with 10 kB per request, 0.02 USD per GB and 730 hours a month.
fn costs(page: &mut Checked, api: &Api) {
    let month = |rate: f64| rate * 10_000.0 * 3600.0 * 0.02 / 1e9 * 730.0;
    let cross = api.crossing();
    let tile = |field: &str| format!("#cost-tiles [data-tile={field}] dd");
    page.shows(&tile("cross"), &json!(cross), 1.0);
    page.shows(&tile("bytes"), &json!(cross * 10_000.0), 1e-6);
    page.shows(&tile("hour"), &json!(month(cross) / 730.0), 1.0);
    page.shows(&tile("month"), &json!(month(cross)), 1.0);
    let flat: f64 = ZONES
        .iter()
        .map(|zone| {
            let share = zone_of(&api.explain["localities"], zone)["capacity_share"].as_f64();
            api.sum(|from, _| from == *zone) * (1.0 - thousandths(share.unwrap()))
        })
        .sum();
    page.shows(&tile("saved"), &json!(month(flat - cross)), 1.0);
    let (_, words) = page.shown("#tiles [data-tile=cross] .note");
    reads_as("between zones", &words.replace("about ", ""), month(cross));
    let crossing = api.flows().into_iter().filter(|(from, to, _)| from != to);
    for (from, to, rate) in crossing {
        let of = |field: &str| format!("#costs tr[data-key='{from}>{to}'] [data-field={field}]");
        page.says(&of("from"), &from);
        page.says(&of("to"), &to);
        page.shows(&of("flow"), &json!(rate), 1.0);
        page.shows(&of("share"), &json!(rate / cross), 100.0);
        page.shows(&of("month"), &json!(month(rate)), 1.0);
    }
}

/// Checks the history; demand is constant in this test.
fn history(page: &mut Checked, api: &Api) {
    for zone in ZONES {
        let of = |field: &str| format!("#history-table tr[data-key={zone}] [data-field={field}]");
        page.says(&of("zone"), zone);
        page.shows(&of("now"), &json!(api.load(zone)), 100.0);
        let bound = |page: &mut Checked, field| page.shown(&of(field)).0.as_f64().unwrap();
        let (low, high) = (bound(page, "low"), bound(page, "high"));
        assert!(
            low <= api.load(zone) && api.load(zone) <= high,
            "{zone}: {low} to {high}"
        );
    }
    let words = page
        .page
        .text("document.querySelector('#history').ariaLabel");
    for zone in ZONES {
        let shown = format!("#history-table tr[data-key={zone}] [data-field=now]");
        let now = page.shown(&shown).1;
        assert!(words.contains(&format!("{zone} {now}")), "{words}");
    }
}

/// Checks the list of clusters and the heading of the selected one.
fn clusters(page: &mut Checked, api: &Api) {
    for cluster in api.clusters["clusters"].as_array().unwrap() {
        let name = cluster["cluster"].as_str().unwrap();
        let of = |field: &str| format!("#clusters tr[data-key$='{name}'] [data-field={field}]");
        page.says(&of("cluster"), name);
        page.says(&of("fleet"), "gateway");
        page.says(&of("mode"), cluster["mode"].as_str().unwrap());
        let fleet = &cluster["fleets"][0];
        let basis = fleet["basis"].as_str().unwrap_or("host_counts");
        page.says(&of("basis"), &basis.replace('_', " "));
    }
    let of = |field: &str| format!("#clusters tr[data-key$='orders'] [data-field={field}]");
    let total: f64 = ZONES.iter().map(|zone| api.arrives(zone)).sum();
    page.shows(&of("demand"), &json!(total), 1.0);
    let kept = 1.0 - api.crossing() / api.sum(|_, _| true);
    page.shows(&of("kept"), &json!(kept), 100.0);
    let busiest = ZONES
        .map(|zone| api.load(zone))
        .into_iter()
        .fold(0.0, f64::max);
    page.shows(&of("busiest"), &json!(busiest), 100.0);
    page.says("#tiles [data-tile=basis] dd", "measured demand");
    assert_eq!(api.fleet["basis"], "measured_demand");
}

/// Checks the age of the fractions; the admin API is queried afterwards.
fn age_and_staleness(page: &mut Checked, control: &Control) {
    let threshold = control.page("explain?cluster=orders&zone=zone-a");
    let threshold = threshold["fractions"]["staleness_threshold_ms"].as_u64();
    let seconds = threshold.map_or(0, |threshold| threshold / 1000);
    let note = page.shown("#tiles [data-tile=confirmed] .note").1;
    match threshold {
        Some(_) => assert_eq!(note, format!("stale after {seconds} s")),
        // Envoy has no staleness threshold.
        None => assert_eq!(note, "proxies keep it"),
    }
    let confirmed = page.shown("#tiles [data-tile=confirmed] dd").0;
    let taken = page
        .page
        .eval("fetch('dashboard/state').then((r) => r.json())");
    let age = taken["taken_unix_ms"].as_f64().unwrap() - confirmed.as_f64().unwrap();
    let delivered = &control.page("clusters?cluster=orders")["clusters"][0]["fleets"][0];
    let delivered = delivered["delivered_age_ms"].as_f64().unwrap();
    // Between both queries it was confirmed again, or grew older, by less than a report interval.
    assert!(
        (age - delivered).abs() < 15_000.0,
        "{age} is not {delivered}"
    );
    let words = page
        .page
        .text("document.querySelector('#fractions').textContent");
    assert!(
        words.starts_with("routes by measured demand, confirmed "),
        "{words}"
    );
    assert!(
        words.contains(" ago, ") && words.ends_with(&note),
        "{words}"
    );
}

/// Checks the zones in use, what would be without each, and which requests between zones failed.
fn in_use(page: &mut Checked, control: &Control) {
    let listed = control.page("zones");
    for zone in listed["zones"].as_array().unwrap() {
        let name = zone["zone"].as_str().unwrap();
        let of = |field: &str| format!("#evacuation tr[data-key='{name}'] [data-field={field}]");
        page.says(&of("zone"), name);
        page.says(
            &of("state"),
            &zone["state"].as_str().unwrap().replace('_', " "),
        );
        let (in_use, words) = page.shown(&of("hosts"));
        assert_eq!(in_use.as_f64(), zone["hosts_in_use"].as_f64(), "{name}");
        assert_eq!(
            words,
            format!("{} of {}", zone["hosts_in_use"], zone["hosts"])
        );
        let (_, why) = page.shown(&of("why"));
        assert_eq!(why.is_empty(), zone["state"] == "in_service", "{why}");
        page.says(&of("change"), "Drain…");
    }
    let losses = control.page("zone-loss");
    let mut services = losses["services"].as_array().unwrap().iter();
    let orders = services
        .find(|service| service["cluster"] == "orders")
        .unwrap();
    for zone in orders["zones"].as_array().unwrap() {
        let name = zone["locality"]["zone"].as_str().unwrap();
        let text = as_sentence(zone["text"].as_str().unwrap());
        page.says(&cell("zones", name, "loss"), &text);
    }
    let links = listed["links"].as_array().unwrap();
    let names =
        |end: &str| -> BTreeSet<String> { links.iter().map(|link| name_of(&link[end])).collect() };
    let (from, to) = (names("from"), names("to"));
    for link in links {
        let place = |all: &BTreeSet<String>, end: &str| {
            all.iter()
                .position(|name| *name == name_of(&link[end]))
                .unwrap()
        };
        let row = format!("#errors tbody tr:nth-child({})", place(&from, "from") + 1);
        let (_, head) = page.shown(&format!("{row} > :nth-child(1)"));
        assert!(name_of(&link["from"]).ends_with(&head), "{head}");
        let share = format!("{row} > :nth-child({})", place(&to, "to") + 2);
        let (_, text) = page.shown(&share);
        let requests = link["requests"].as_f64().unwrap().max(1.0);
        reads_as(
            &share,
            &text,
            100.0 * link["failed"].as_f64().unwrap() / requests,
        );
    }
}

/// Name of the zone of a locality, as on the page.
fn name_of(locality: &Value) -> String {
    let of = |field: &str| locality[field].as_str().unwrap_or_default();
    format!("{}/{}", of("region"), of("zone"))
}

/// Checks every node: delivery, last response and load reports.
fn nodes(page: &mut Checked, control: &Control) {
    let nodes = control.page("nodes");
    for node in nodes["nodes"].as_array().unwrap() {
        let id = node["id"].as_str().unwrap();
        let of = |field: &str| format!("#nodes tr[data-key='{id}'] [data-field={field}]");
        page.says(&of("id"), id);
        page.says(
            &of("zone"),
            &format!("r1/{}", node["locality"]["zone"].as_str().unwrap()),
        );
        let software = page.shown(&of("software")).1;
        let agent = node["user_agent_name"].as_str().unwrap_or_default();
        assert!(software.contains(agent), "{software} is not {agent}");
        let deliveries = node["delivery"].as_array().unwrap().iter();
        let shown = page.shown(&of("delivery")).1;
        for delivery in deliveries {
            let delivery = delivery["delivery"].as_str().unwrap();
            assert!(
                shown.contains(delivery),
                "{shown} does not contain {delivery}"
            );
        }
        let types = node["discovery"][0]["types"].as_array().unwrap();
        let refused = types.iter().any(|kind| !kind["nacked"].is_null());
        page.says(&of("update"), if refused { "refused" } else { "accepted" });
        let answered = page.shown(&of("answered")).1;
        assert!(answered.ends_with(" ago"), "{answered}");
        let reported = page.shown(&of("reported")).1;
        let reports = node["last_report_age_ms"].is_u64();
        assert_eq!(reported.ends_with(" ago"), reports, "{id}: {reported}");
        page.shows(&of("demand"), &node["requests_per_second"], 1.0);
    }
}

/// Checks the shares of every zone before and after a what-if question.
fn what_if(page: &mut Checked, control: &Control) {
    let hosts = "#whatif-zones tr[data-key='r1/zone-a'] [data-field=hosts]";
    page.page.type_into(hosts, "6");
    page.page.click("#whatif-ask");
    page.page.wait("document.querySelector('#whatif-shares')");
    let question = json!({ "cluster": "orders", "hosts": { "zone-a": 6 } });
    let answer = control.post("what-if", &question);
    for zone in ZONES {
        let of = |field: &str| format!("#whatif-shares tr[data-key={zone}] [data-field={field}]");
        let [before, after] = ["before", "after"].map(|side| &answer[side]);
        let row = zone_of(&after["localities"], zone);
        page.says(&of("zone"), zone);
        page.shows(&of("hosts"), &row["hosts"], 1.0);
        for (field, name) in [
            ("demand", "demand_share"),
            ("traffic", "traffic_share"),
            ("load", "load_factor"),
        ] {
            let shown = page.shown(&of(field)).0;
            assert_eq!(shown.as_f64(), row[name].as_f64(), "{zone} {field}");
            let was = page.attribute(&of(field), "data-before");
            let wanted = zone_of(&before["localities"], zone)[name].as_f64();
            assert_eq!(was.parse::<f64>().ok(), wanted, "{zone} {field} before");
        }
        let kept = &zone_of(&after["zones"], zone)["kept_local"];
        assert_eq!(
            page.shown(&of("kept")).0.as_f64(),
            rounded(kept).as_f64(),
            "{zone}"
        );
        let state = &zone_of(&after["zones"], zone)["state"];
        page.says(&of("state"), state_label(state));
    }
    for zone in ZONES {
        let of = |field: &str| format!("#whatif-enforce tr[data-key={zone}] [data-field={field}]");
        let after = &answer["enforce"]["after"];
        page.says(&of("zone"), zone);
        let load = page.shown(&of("load")).0;
        let row = zone_of(&after["localities"], zone);
        assert_eq!(load.as_f64(), row["load_factor"].as_f64(), "{zone}");
        let kept = page.shown(&of("kept")).0;
        let row = zone_of(&after["zones"], zone);
        assert_eq!(kept.as_f64(), row["kept_local"].as_f64(), "{zone}");
    }
    // The form is filled with the current numbers.
    for zone in ZONES {
        for field in ["0", "1", "2"] {
            page.kinds.insert(format!("whatif-zones {field}"));
        }
        let typed = format!("#whatif-zones tr[data-key='r1/{zone}'] [data-field=demand]");
        let typed = page
            .page
            .text(&format!("document.querySelector(\"{typed}\").value"));
        let wanted = Api::new(control).arrives(zone);
        assert!(
            (typed.parse::<f64>().unwrap() / wanted - 1.0).abs() < 0.01,
            "{zone}: {typed}"
        );
    }
}

#[test]
fn reasons_states_and_nodes_agree_with_the_admin_api() {
    let mut control = Control::start("words").with_proxies();
    let mut page = Page::open("words-browser", &control.address(), DESKTOP);
    page.wait("document.querySelector('#routing [data-field=delivered]')?.dataset.value");
    for zone in ["zone-a", "zone-b", "zone-c"] {
        let explain = control.page(&format!("explain?cluster=orders&zone={zone}"));
        let cell = cell("routing", zone, "reason");
        let words = page.text(&format!(
            "document.querySelector('{cell} span').textContent"
        ));
        // Before it, the page says why a zone is above its line.
        let reason = as_sentence(explain["reason"].as_str().unwrap());
        assert!(words.ends_with(&reason), "{zone}: {words}, not {reason}");
        let state = format!("#routing tr[data-key=\"r1/{zone}\"] .badge");
        let state = page.text(&format!("document.querySelector('{state}').dataset.state"));
        assert_eq!(state, explain["state"], "{zone}");
    }
    let nodes = control.page("nodes")["nodes"].as_array().unwrap().len();
    page.wait(&format!(
        "document.querySelectorAll('#nodes tr.node').length === {nodes}"
    ));
    // Nodes with problems come first.
    page.wait("document.querySelector('#nodes tr.node').dataset.key === 'gateway-refuses'");
    page.click("#nodes tr.node button");
    page.wait_for_text("#detail pre", "unsupported kind of weights");
    page.screenshot("node-detail");
    page.press("Escape");
    page.wait("!document.querySelector('#detail').open");
    page.wait_for_text("#notices", "1 node rejected");
    // The document can also be fetched.
    let state = page.eval("fetch('dashboard/state').then((r) => r.json())");
    assert_eq!(state["clusters"][0]["cluster"], "orders");
    assert_eq!(state["nodes"].as_array().unwrap().len(), 4);
    // An open page does not block the shutdown of the control plane.
    control.stop();
    page.wait("document.querySelector('#live').dataset.live === 'reconnecting'");
}
