//! Shadow mode: the page, the admin API, metrics and `plimsoll top` show the same numbers for what
//! proxies do now and for what ENFORCE would do.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::process::Command;

use plimsoll_admin::api::TotalLoad;
use plimsoll_admin::state::DashboardState;
use plimsoll_testing::plimsoll;
use serde_json::{Value, json};

use crate::support::checked::{Checked, reads_as};
use crate::support::control::Control;
use crate::support::documents::{Documents, uneven};
use crate::support::page::{DESKTOP, PHONE, Page};
use crate::support::wait_for;

/// Capacity 3/4/2 and a service in shadow mode.
const SHADOW: &str = "
load_reporting: {interval: 1s}
demand: {smoothing_time_constant: 0.001s}
services:
- cluster: {name: orders}
  mode: SHADOW
  endpoints:
  - locality: {region: r1, zone: zone-a}
    lb_endpoints: ['10.0.0.1:80', '10.0.0.2:80', '10.0.0.3:80']
  - locality: {region: r1, zone: zone-b}
    lb_endpoints: ['10.0.1.1:80', '10.0.1.2:80', '10.0.1.3:80', '10.0.1.4:80']
  - locality: {region: r1, zone: zone-c}
    lb_endpoints: ['10.0.2.1:80', '10.0.2.2:80']
";

/// Checks the card of a cluster against the admin API.
pub(super) fn compare(page: &mut Checked, control: &Control, cluster: &str) {
    let line = load_line(control, cluster);
    for kind in ["now", "enforce"] {
        for zone in line["zones"].as_array().unwrap() {
            let name = zone["locality"]["zone"].as_str().unwrap();
            let of = |field: &str| {
                format!("#compare-zones tr[data-key='r1/{name}'] [data-field={field}]")
            };
            page.says(&of("zone"), name);
            let shown = [("load", "load", 100.0), ("kept", "kept_local", 100.0)];
            for (field, source, factor) in shown {
                page.shows(&of(&format!("{field}-{kind}")), &zone[kind][source], factor);
            }
            let served = &zone[kind]["served_requests_per_second"];
            page.shows(&of(&format!("served-{kind}")), served, 1.0);
        }
        let total = &line[kind];
        let tile = |field: &str| format!("#compare-tiles [data-tile={field}] [data-kind={kind}]");
        page.shows(&tile("highest"), &total["highest_load"], 100.0);
        page.shows(&tile("kept"), &total["kept_local"], 100.0);
        let cross = &total["cross_zone_requests_per_second"];
        page.shows(&tile("cross"), cross, 1.0);
        let (_, cost) = page.shown(&tile("cost"));
        reads_as("cost", &cost, total["usd_per_month"].as_f64().unwrap());
    }
}

fn load_line(control: &Control, cluster: &str) -> Value {
    let page = control.page(&format!("load?cluster={cluster}"));
    page["load_lines"][0].clone()
}

/// Fetches a page that is not JSON.
fn text(control: &Control, path: &str) -> String {
    let mut stream = TcpStream::connect(control.admin).unwrap();
    let request = format!("GET {path} HTTP/1.0\r\nhost: localhost\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let mut response = String::new();
    stream.read_to_string(&mut response).unwrap();
    response
}

#[test]
fn shadow_shows_the_overload_of_now_and_what_enforce_would_do() {
    let control = Control::start_with("shadow", SHADOW).with_shadow_proxies();
    wait_for("the load line is complete", || {
        let line = load_line(&control, "orders");
        (line["warming_up"] == false && line["enforce"].is_object()).then_some(())
    });
    let line = load_line(&control, "orders");
    assert_eq!(line["basis"], "host_counts");
    let zone = &line["zones"][0];
    assert_eq!(zone["now"]["load"], 1.5, "{line}");
    assert_eq!(zone["seen"]["load"], 1.5, "{line}");
    assert!(zone["enforce"]["load"].as_f64().unwrap() < 1.01, "{line}");
    let page = Page::open("shadow-browser", &control.address(), DESKTOP);
    let mut page = Checked::new(page);
    page.page
        .wait("document.querySelector('#compare-zones [data-field=load-now]')?.dataset.value");
    compare(&mut page, &control, "orders");
    let lead = page.shown("#compare-lead").1;
    assert!(
        lead.starts_with("In SHADOW, the highest load is 150 % of the load line"),
        "{lead}"
    );
    page.says("#tiles [data-tile=basis] dd", "host counts");
    let note = page.shown("#tiles [data-tile=confirmed] .note").1;
    assert!(!note.contains("stale after"), "{note}");
    page.page.screenshot("control-shadow");
    metrics_agree(&text(&control, "/metrics"), &line);
    top_agrees(&control, &line);
    verdict_agrees(&mut page.page, &control);
    page.page.close();
    let mut page = Page::open("shadow-phone", &control.address(), PHONE);
    page.wait("document.querySelector('#verdict-what')?.textContent");
    let fits = "document.querySelector('#verdict').getBoundingClientRect().bottom < innerHeight";
    assert_eq!(page.eval(fits), true, "the verdict is on the first screen");
    page.screenshot("control-shadow-phone");
    page.close();
}

/// The page, the admin API and `plimsoll top` say the same sentence, and its first link explains
/// the zone that it is about.
fn verdict_agrees(page: &mut Page, control: &Control) {
    let verdict = control.page("status")["verdict"].clone();
    assert_eq!(verdict["kind"], "zone_above_line", "{verdict}");
    assert_eq!(verdict["severity"], "error", "{verdict}");
    let text = verdict["text"].as_str().unwrap();
    let expected = "r1/zone-a serves 150 % of its load line of orders for gateway: mode SHADOW: \
                    proxies route by host counts; mode ENFORCE would bring the highest load to";
    assert!(text.starts_with(expected), "{text}");
    let see = verdict["see"].as_str().unwrap();
    let explained = control.page(see.strip_prefix("/api/v1/").unwrap());
    assert_eq!(explained["own_locality"]["zone"], "zone-a", "{see}");
    let shown = |id: &str| format!("document.querySelector('#verdict-{id}').textContent");
    for (id, part) in [("what", "what"), ("why", "why"), ("why", "remedy")] {
        let shown = page.text(&shown(id)).to_lowercase();
        let part = verdict[part].as_str().unwrap().to_lowercase();
        assert!(shown.contains(&part), "{part:?} is not in {shown:?}");
    }
    let links = page.text("document.querySelector('#verdict-links').innerText");
    for link in ["Explain r1/zone-a", "Compare with ENFORCE", "What if"] {
        assert!(links.contains(link), "{links}");
    }
    page.click("#verdict-links a");
    page.wait("document.querySelector('#detail').open");
    let title = page.text("document.querySelector('#detail-title').textContent");
    assert_eq!(title, "How r1/zone-a routes to orders, and why");
}

fn metrics_agree(metrics: &str, line: &Value) {
    for zone in line["zones"].as_array().unwrap() {
        for kind in ["seen", "now", "enforce"] {
            let name = zone["locality"]["zone"].as_str().unwrap();
            let series = format!(
                "plimsoll_control_zone_load_ratio{{fleet=\"gateway\",cluster=\"orders\",\
                 locality=\"r1/{name}\",routing=\"{kind}\"}} "
            );
            let value = metrics.lines().find_map(|line| line.strip_prefix(&series));
            let value: f64 = value
                .unwrap_or_else(|| panic!("no {series}"))
                .parse()
                .unwrap();
            assert_eq!(
                json!((value * 1000.0).round() / 1000.0),
                zone[kind]["load"],
                "{series}"
            );
        }
    }
}

fn top_agrees(control: &Control, line: &Value) {
    let mut command = Command::new(plimsoll());
    command
        .args(["top", "--once"])
        .arg(control.admin.to_string());
    let output = command.output().unwrap();
    let page = String::from_utf8(output.stdout).unwrap();
    let highest = line["enforce"]["highest_load"].as_f64().unwrap();
    for part in [
        "\nr1/zone-a serves 150 % of its load line of orders for gateway: mode SHADOW: proxies"
            .to_owned(),
        "now: highest load 1.50".to_owned(),
        format!("with ENFORCE: highest load {highest:.2}"),
    ] {
        assert!(page.contains(&part), "{part:?} is missing:\n{page}");
    }
}

/// A service whose policy only proxies can predict: `now` is known, `enforce` has a reason.
fn predictable_by_proxies_only(request: u64) -> DashboardState {
    let mut state = uneven(request);
    let cluster = &mut state.clusters[0];
    cluster.mode = Some("SHADOW".to_owned());
    cluster.basis = "observed_load".to_owned();
    cluster.confirmed_unix_ms = None;
    cluster.now = Some(TotalLoad {
        highest_load: Some(1.35),
        kept_local: Some(0.9),
        ..TotalLoad::default()
    });
    cluster.enforce_unknown = Some("only proxies can tell the outcome".to_owned());
    cluster.zones[0].above_line = Some("proxies choose zones by load".to_owned());
    state
}

#[test]
fn what_is_not_known_has_a_reason() {
    let (address, _) = Documents::serve(predictable_by_proxies_only);
    let mut page = Page::open("unknown", &format!("http://{address}/"), DESKTOP);
    let card = page.text("document.querySelector('#compare-card').innerText");
    for part in [
        "The highest load is 135 % of the load line.",
        "With ENFORCE: not known, because only proxies can tell the outcome.",
    ] {
        assert!(card.contains(part), "{part}: {card}");
    }
    let why = page.text(
        "document.querySelector('#routing tr[data-key=\"eu-1/zone-a\"] [data-field=reason], \
         #routing [data-field=reason]').innerText",
    );
    assert!(
        why.starts_with("Above its line: proxies choose zones by load. The own locality"),
        "{why}"
    );
    let tiles = page.text("document.querySelector('main').innerText");
    assert!(tiles.contains("observed load"), "{tiles}");
    assert!(tiles.contains("proxies measure waiting times"), "{tiles}");
    page.screenshot("unknown-with-enforce");
    page.assert_tidy();
    page.close();
}
