//! History: charts are full when a page opens, and ages go on while the host is away.

use serde_json::json;

use crate::support::control::Control;
use crate::support::documents::{Documents, thirty, uneven};
use crate::support::page::{DESKTOP, PHONE, Page};
use crate::support::wait_for;

/// Samples in the chart, and the time that they cover in milliseconds.
fn chart(page: &mut Page) -> (u64, u64) {
    let number = |page: &mut Page, name: &str| {
        let value = format!("Number(document.querySelector('#history').dataset.{name})");
        page.eval(&value).as_u64().unwrap()
    };
    (number(page, "samples"), number(page, "span"))
}

#[test]
fn the_chart_is_full_when_a_page_opens() {
    let (address, _) = Documents::serve_with_history(uneven);
    let mut page = Page::open("history", &format!("http://{address}/"), DESKTOP);
    page.wait("Number(document.querySelector('#history')?.dataset.recorded) > 200");
    let (samples, span) = chart(&mut page);
    assert!(samples > 200 && span > 3_500_000, "{samples} in {span} ms");
    // The chart takes the height of the card beside it.
    let rest = page.eval(
        "(() => { const [card, note] = ['#history-card', '#history-card details']
            .map((name) => document.querySelector(name).getBoundingClientRect());
          return card.bottom - note.bottom; })()",
    );
    assert!(rest.as_f64().unwrap() < 40.0, "{rest} px are empty");
    // Another value and a shorter time of the same history.
    page.eval(
        "for (const [id, value] of [['history-value', 'served'], ['history-range', '15']]) {
           const field = document.getElementById(id); field.value = value;
           field.dispatchEvent(new Event('change')); }",
    );
    page.wait("Number(document.querySelector('#history').dataset.span) <= 900000");
    let title = page.text("document.querySelector('#history-title').textContent");
    assert_eq!(title, "Served requests over time");
    let (samples, _) = chart(&mut page);
    assert!(samples > 100, "{samples}");
    page.close();
}

#[test]
fn a_reload_keeps_what_the_control_plane_recorded() {
    let control = Control::start("history-control").with_proxies();
    let mut page = Page::open("history-browser", &control.address(), DESKTOP);
    let recorded = || {
        let answer = control.page("history?cluster=orders&fleet=gateway");
        let zones = answer["clusters"][0]["zones"].as_array()?.clone();
        let loads = zones[0]["load"].as_array()?.clone();
        let known = loads.iter().filter(|load| !load.is_null()).count();
        (known >= 2).then_some((answer, zones))
    };
    let (answer, zones) = wait_for("two samples are recorded", recorded);
    page.reload();
    for (name, least) in [("recorded", 2), ("samples", 3), ("span", 5000)] {
        page.wait(&format!(
            "Number(document.querySelector('#history')?.dataset.{name}) >= {least}"
        ));
    }
    // The values are those of the page: demand is constant in this test.
    let page_load = page.eval(
        "Number(document.querySelector('#zones tr[data-key=\"r1/zone-a\"] [data-field=load]')
          .dataset.value)",
    );
    let loads = zones[0]["load"].as_array().unwrap();
    let newest = loads.iter().rev().find_map(serde_json::Value::as_f64);
    let differs = (newest.unwrap() - page_load.as_f64().unwrap()).abs();
    assert!(differs < 0.002, "{newest:?} {page_load}");
    assert_eq!(zones[0]["locality"]["zone"], json!("zone-a"));
    let events = answer["events"].as_array().unwrap();
    let texts: Vec<&str> = events
        .iter()
        .filter_map(|one| one["text"].as_str())
        .collect();
    assert!(
        texts
            .iter()
            .any(|text| text.starts_with("started with orders: added (ENFORCE")),
        "{texts:?}"
    );
    page.close();
}

#[test]
fn ages_go_on_while_the_host_is_away() {
    let mut control = Control::start("away").with_proxies();
    let mut page = Page::open("away-browser", &control.address(), DESKTOP);
    page.wait("/ s ago/.test(document.querySelector('[data-tile=confirmed] dd')?.textContent)");
    control.stop();
    page.wait("document.querySelector('#live').dataset.live === 'reconnecting'");
    page.wait("document.querySelector('#live').textContent.includes('data is')");
    let shown = "parseFloat(document.querySelector('[data-tile=confirmed] dd').textContent)";
    let before = page.eval(shown).as_f64().unwrap();
    page.wait(&format!("{shown} > {before} + 1"));
}

#[test]
fn the_highest_of_many_zones_is_named() {
    let (address, _) = Documents::serve_with_history(thirty);
    let mut page = Page::open("highest", &format!("http://{address}/"), DESKTOP);
    page.wait("document.querySelector('#history')?.dataset.highest?.startsWith('zone-')");
    // The table has the same zone first.
    let first = "document.querySelector('#zones tbody:not(.filler) tr').dataset.key";
    let loads = page.eval(
        "[...document.querySelectorAll('#zones tbody:not(.filler) [data-field=load]')]
          .map((cell) => Number(cell.dataset.value))",
    );
    let loads: Vec<f64> = loads
        .as_array()
        .unwrap()
        .iter()
        .map(|v| v.as_f64().unwrap())
        .collect();
    assert!(loads.len() > 5);
    for pair in loads.windows(2) {
        assert!(pair[0] + 0.05 >= pair[1], "{loads:?} are not sorted");
    }
    assert!(page.text(first).starts_with("eu-1/zone-"));
    page.close();
}

/// Keeps pictures of 3 and 30 zones, for people to look at.
#[test]
fn pictures_of_three_and_thirty_zones() {
    for (name, make) in [("3", uneven as fn(u64) -> _), ("30", thirty)] {
        let (address, _) = Documents::serve_with_history(make);
        let mut page = Page::open("pictures", &format!("http://{address}/"), DESKTOP);
        page.wait("Number(document.querySelector('#history')?.dataset.recorded) > 200");
        for scheme in ["light", "dark"] {
            page.prefer(scheme);
            page.next_document();
            page.screenshot(&format!("zones-{name}-{scheme}"));
        }
        page.prefer("light");
        page.resize(PHONE);
        page.next_document();
        page.screenshot(&format!("zones-{name}-phone"));
        page.close();
    }
}
