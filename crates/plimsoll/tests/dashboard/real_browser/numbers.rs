//! Every number on the page is that of the admin API, and reads as it.

use serde_json::{Value, json};

use crate::support::control::Control;
use crate::support::page::{DESKTOP, Page};

/// The number behind an element, and the one its text shows, without unit.
fn shown(page: &mut Page, selector: &str) -> (Value, String) {
    let selector = json!(selector);
    let found = page.eval(&format!(
        "(() => {{ const e = document.querySelector({selector});
           return e && [e.dataset.value, e.textContent]; }})()"
    ));
    let text = |index: usize| {
        found[index]
            .as_str()
            .unwrap_or_else(|| panic!("no {selector}"))
    };
    let value = text(0)
        .parse::<f64>()
        .map_or(Value::Null, |value| json!(value));
    (value, text(1).to_owned())
}

/// An element shows `wanted`: the number is it, and its text, times `factor`, rounds to it.
fn assert_shows(page: &mut Page, selector: &str, wanted: &Value, factor: f64) {
    let (value, text) = shown(page, selector);
    let Some(wanted) = wanted.as_f64() else {
        assert_eq!(value, Value::Null, "{selector} shows {text}");
        assert_eq!(text, "–", "{selector}");
        return;
    };
    assert_eq!(value.as_f64(), Some(wanted), "{selector} shows {text}");
    let digits: String = text
        .chars()
        .filter(|c| c.is_ascii_digit() || *c == '.')
        .collect();
    let read: f64 = digits
        .parse()
        .unwrap_or_else(|_| panic!("{selector} shows {text}"));
    let exact = wanted * factor;
    // Half of the last digit that is shown.
    let decimals = digits.split_once('.').map_or(0, |(_, rest)| rest.len());
    let half = 0.5 * 0.1_f64.powi(i32::try_from(decimals).unwrap()) + 1e-9;
    assert!(
        (read - exact).abs() <= half,
        "{selector}: {text} is not {exact}"
    );
    let unit = text.trim_start_matches(|c: char| c.is_ascii_digit() || "., ".contains(c));
    assert!(
        !unit.is_empty() || exact.fract() == 0.0,
        "{text} has no unit"
    );
}

/// As pages have it: three decimals.
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

#[test]
fn numbers_are_those_of_the_admin_api() {
    let control = Control::start("numbers").with_proxies();
    let mut page = Page::open("numbers-browser", &control.address(), DESKTOP);
    page.wait("document.querySelector('#routing [data-field=delivered]')?.dataset.value");
    page.next_document();
    let clusters = control.page("clusters?cluster=orders");
    let fleet = &clusters["clusters"][0]["fleets"][0];
    let fleets = control.page("fleets");
    let demand = &fleets["fleets"][0]["demand"][1];
    let explain = control.page("explain?cluster=orders&zone=zone-a");
    let mut total = 0.0;
    for zone in ["zone-a", "zone-b", "zone-c"] {
        let rate = &zone_of(&demand["zones"], zone)["requests_per_second"];
        total += rate.as_f64().unwrap();
        assert_shows(&mut page, &cell("zones", zone, "demand"), rate, 1.0);
        let locality = zone_of(&explain["localities"], zone);
        let (healthy, words) = shown(&mut page, &cell("zones", zone, "hosts"));
        assert_eq!(healthy.as_f64(), locality["healthy"].as_f64(), "{zone}");
        assert_eq!(
            words,
            format!("{} of {}", locality["healthy"], locality["hosts"])
        );
        let proxies = &zone_of(&fleets["fleets"][0]["zones"], zone)["nodes"];
        assert_shows(&mut page, &cell("zones", zone, "proxies"), proxies, 1.0);
        let capacity = rounded(&locality["capacity_share"]);
        let shown = cell("zones", zone, "capacity");
        assert_shows(&mut page, &shown, &capacity, 100.0);
        let delivered = &zone_of(&fleet["delivered"], zone)["fraction_bp"];
        assert_shows(
            &mut page,
            &cell("routing", zone, "delivered"),
            delivered,
            0.01,
        );
        let measured = &zone_of(&demand["measured"], zone)["fraction_bp"];
        assert_shows(
            &mut page,
            &cell("routing", zone, "measured"),
            measured,
            0.01,
        );
        let planned = rounded(&zone_of(&explain["zones"], zone)["kept_local"]);
        let shown = cell("routing", zone, "planned");
        assert_shows(&mut page, &shown, &planned, 100.0);
    }
    assert_shows(&mut page, "[data-tile=demand] dd", &json!(total), 1.0);
    flows(&mut page, &fleet["traffic"]);
    page.screenshot("control-light");
    page.assert_tidy();
    page.close();
}

/// Ribbons, served rates, loads and the cost follow from what the API says about traffic.
fn flows(page: &mut Page, traffic: &Value) {
    let flows = traffic.as_array().unwrap();
    assert_eq!(flows.len(), 5, "{traffic}");
    let rate = |flow: &Value| flow["requests_per_second"].as_f64().unwrap();
    let mut cross = 0.0;
    let sum: f64 = flows.iter().map(rate).sum();
    for flow in flows {
        let (from, to) = (
            flow["from"]["zone"].as_str().unwrap(),
            flow["to"]["zone"].as_str().unwrap(),
        );
        let ribbon = format!("#map path[data-from=\"{from}\"][data-to=\"{to}\"]");
        let drawn = page.eval(&format!(
            "Number(document.querySelector('{ribbon}').dataset.value)"
        ));
        assert_eq!(drawn.as_f64(), Some(rate(flow)), "{from} to {to}");
        if from != to {
            cross += rate(flow);
        }
    }
    for zone in ["zone-a", "zone-b", "zone-c"] {
        let own = flows.iter().filter(|flow| flow["to"]["zone"] == zone);
        let served: f64 = own.map(rate).sum();
        assert_shows(page, &cell("zones", zone, "served"), &json!(served), 1.0);
        let issued = flows.iter().filter(|flow| flow["from"]["zone"] == zone);
        let issued: f64 = issued.map(rate).sum();
        let stays = flows.iter().filter(|flow| flow["from"] == flow["to"]);
        let stays = stays.filter(|flow| flow["to"]["zone"] == zone).map(rate);
        let kept = (stays.sum::<f64>() / issued * 1000.0).round() / 1000.0;
        assert_shows(page, &cell("routing", zone, "kept"), &json!(kept), 100.0);
    }
    assert_shows(page, "#tiles [data-tile=cross] dd", &json!(cross), 1.0);
    assert_shows(
        page,
        "#tiles [data-tile=kept] dd",
        &json!(1.0 - cross / sum),
        100.0,
    );
    // 10 kB each, two cents per gigabyte.
    let hour = cross * 10_000.0 * 3600.0 * 0.02 / 1e9;
    assert_shows(page, "#cost-tiles [data-tile=hour] dd", &json!(hour), 1.0);
    assert_shows(
        page,
        "#cost-tiles [data-tile=month] dd",
        &json!(hour * 730.0),
        1.0,
    );
}

#[test]
fn reasons_states_and_nodes_are_those_of_the_admin_api() {
    let mut control = Control::start("words").with_proxies();
    let mut page = Page::open("words-browser", &control.address(), DESKTOP);
    page.wait("document.querySelector('#routing [data-field=delivered]')?.dataset.value");
    for zone in ["zone-a", "zone-b", "zone-c"] {
        let explain = control.page(&format!("explain?cluster=orders&zone={zone}"));
        let cell = cell("routing", zone, "reason");
        let words = page.text(&format!(
            "document.querySelector('{cell} span').textContent"
        ));
        assert_eq!(words, explain["reason"], "{zone}");
        let state = format!("#routing tr[data-key=\"r1/{zone}\"] .badge");
        let state = page.text(&format!("document.querySelector('{state}').dataset.state"));
        assert_eq!(state, explain["state"], "{zone}");
    }
    let nodes = control.page("nodes");
    let ids =
        page.eval("[...document.querySelectorAll('#nodes tr.node')].map((r) => r.dataset.key)");
    assert_eq!(
        ids.as_array().unwrap().len(),
        nodes["nodes"].as_array().unwrap().len()
    );
    assert_eq!(ids[0], "gateway-refuses", "trouble comes first");
    page.click("#nodes tr.node button");
    page.wait("document.querySelector('#detail').open");
    let words = page.text("document.querySelector('#detail pre').textContent");
    assert!(
        words.contains("weights of a kind that nobody can read"),
        "{words}"
    );
    page.screenshot("node-detail");
    page.press("Escape");
    page.wait("!document.querySelector('#detail').open");
    let notices = page.text("document.querySelector('#notices').textContent");
    assert!(notices.contains("1 node refused"), "{notices}");
    // The document is also there to be fetched.
    let state = page.eval("fetch('dashboard/state').then((r) => r.json())");
    assert_eq!(state["clusters"][0]["cluster"], "orders");
    assert_eq!(state["nodes"].as_array().unwrap().len(), 4);
    // An open page does not keep the control plane from ending.
    control.stop();
    page.wait("document.querySelector('#live').dataset.live === 'reconnecting'");
}
