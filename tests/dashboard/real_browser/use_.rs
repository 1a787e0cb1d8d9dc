//! Interaction: themes, search, what-if questions, costs, actions, keyboard.

use serde_json::json;

use crate::support::checked::as_sentence;
use crate::support::control::Control;
use crate::support::documents::{Documents, nothing, uneven};
use crate::support::page::{DESKTOP, Page};
use crate::support::wait_for;

fn background(page: &mut Page) -> String {
    page.text("getComputedStyle(document.body).backgroundColor")
}

#[test]
fn the_theme_follows_the_system_until_it_is_chosen() {
    let (address, _) = Documents::serve(uneven);
    let mut page = Page::open("theme", &format!("http://{address}/"), DESKTOP);
    page.prefer("light");
    let light = background(&mut page);
    page.prefer("dark");
    let dark = background(&mut page);
    assert_ne!(light, dark);
    page.next_document();
    page.screenshot("demo-dark");
    page.click("#theme");
    assert_eq!(
        page.text("document.querySelector('#theme').textContent"),
        "Theme: dark"
    );
    page.click("#theme");
    assert_eq!(
        background(&mut page),
        light,
        "light although the system is dark"
    );
    // The choice survives a reload.
    page.reload();
    assert_eq!(
        page.text("document.querySelector('#theme').textContent"),
        "Theme: light"
    );
    page.screenshot("demo-light");
    page.assert_tidy();
    page.close();
}

#[test]
fn an_empty_document_shows_placeholders() {
    let (address, _) = Documents::serve(nothing);
    let mut page = Page::open("nothing", &format!("http://{address}/"), DESKTOP);
    let words = page.text("document.querySelector('main').innerText");
    for empty in [
        "No upstream cluster",
        "No proxy has connected yet",
        "No events yet",
    ] {
        assert!(words.contains(empty), "{words}");
    }
    page.screenshot("empty");
    page.close();
    let control = Control::start("idle");
    let mut page = Page::open("idle-browser", &control.address(), DESKTOP);
    let words = page.text("document.querySelector('main').innerText");
    assert!(words.contains("No load reports yet"), "{words}");
    page.screenshot("control-idle");
    page.assert_tidy();
    page.close();
}

#[test]
fn buttons_trigger_actions() {
    let (address, documents) = Documents::serve(uneven);
    let mut page = Page::open("actions", &format!("http://{address}/"), DESKTOP);
    let pressed = "document.querySelector('[data-action=headroom]').getAttribute('aria-pressed')";
    assert_eq!(page.text(pressed), "true");
    // This host does not support what-if questions, so there is no link to them.
    page.wait("!document.querySelector('a[href=\"#whatif-card\"]').checkVisibility()");
    // An unavailable action is disabled and shows the reason.
    let unavailable = "document.querySelector('[data-action=convergent]')";
    assert_eq!(page.eval(&format!("{unavailable}.disabled")), json!(true));
    let why = page.text(&format!(
        "{unavailable}.closest('fieldset').querySelector('p').textContent"
    ));
    assert_eq!(why, "CONVERGENT: not supported by this host.");
    // By keyboard alone.
    page.eval("document.querySelector('[data-action=kill]').focus()");
    page.press("Enter");
    wait_for("the action arrives", || {
        let acted = documents.actions_received.lock().unwrap().clone();
        (!acted.is_empty()).then_some(acted)
    });
    assert_eq!(*documents.actions_received.lock().unwrap(), ["kill"]);
    page.wait("document.querySelector('#said').textContent === 'did kill'");
    // A page of another origin cannot trigger actions: it cannot send JSON without a preflight.
    let status =
        "fetch('dashboard/actions/kill', {method: 'POST', body: 'x'}).then((r) => r.status)";
    assert_eq!(page.eval(status), json!(415));
}

#[test]
fn everything_is_reached_by_keyboard_and_has_a_name() {
    let (address, _) = Documents::serve(uneven);
    let mut page = Page::open("keyboard", &format!("http://{address}/"), DESKTOP);
    page.press("Tab");
    assert_eq!(
        page.text("document.activeElement.textContent"),
        "Skip to content"
    );
    let mut focused = Vec::new();
    for _ in 0..80 {
        page.press("Tab");
        let at = page.text("document.activeElement.id || document.activeElement.tagName");
        if at == "BODY" {
            break;
        }
        let ring = page.eval("getComputedStyle(document.activeElement).outlineStyle !== 'none'");
        assert_eq!(ring, json!(true), "focus on {at} is not visible");
        focused.push(at);
    }
    for expected in [
        "theme",
        "usd",
        "nodes-search",
        "nodes-filter",
        "nodes-scroller",
        "events",
    ] {
        assert!(
            focused.iter().any(|at| at == expected),
            "{expected} is not in {focused:?}"
        );
    }
    let unnamed = page.eval(
        "[...document.querySelectorAll('button, input, select, canvas, section, svg[role=img]')]
          .filter((e) => e.checkVisibility())
          .filter((e) => !(e.getAttribute('aria-label') || e.getAttribute('aria-labelledby')
            || e.textContent.trim() || e.labels?.length))
          .map((e) => e.outerHTML.slice(0, 80))",
    );
    assert_eq!(unnamed, json!([]));
    let landmarks =
        page.eval("['header', 'nav', 'main', 'footer'].every((t) => document.querySelector(t))");
    assert_eq!(landmarks, json!(true));
    page.close();
}

#[test]
fn the_price_can_be_set_and_is_remembered() {
    let control = Control::start("cost").with_proxies();
    let mut page = Page::open("cost-browser", &control.address(), DESKTOP);
    page.wait(
        "Number(document.querySelector('#cost-tiles [data-tile=hour] dd')?.dataset.value) > 0",
    );
    let hour = "Number(document.querySelector('#cost-tiles [data-tile=hour] dd').dataset.value)";
    let before = page.eval(hour).as_f64().unwrap();
    page.type_into("#usd", "0.2");
    page.wait(&format!("Math.abs({hour} - {before} * 10) < 1e-9"));
    page.type_into("#size", "20");
    page.wait(&format!("Math.abs({hour} - {before} * 20) < 1e-9"));
    page.reload();
    page.wait(&format!("Math.abs({hour} - {before} * 20) < 1e-9"));
    assert_eq!(page.text("document.querySelector('#usd').value"), "0.2");
    page.click("#cost-reset");
    page.wait(&format!("Math.abs({hour} - {before}) < 1e-9"));
    page.close();
}

#[test]
fn a_what_if_answer_agrees_with_the_admin_api() {
    let control = Control::start("whatif").with_proxies();
    let mut page = Page::open("whatif-browser", &control.address(), DESKTOP);
    page.wait("document.querySelector('#routing [data-field=delivered]')?.dataset.value");
    page.type_into(
        "#whatif-zones tr[data-key='r1/zone-a'] [data-field=hosts]",
        "6",
    );
    page.click("#whatif-ask");
    page.wait("document.querySelector('#whatif-answer table')");
    let question = json!({ "cluster": "orders", "hosts": { "zone-a": 6 } });
    let answer = control.post("what-if", &question);
    for (index, zone) in ["zone-a", "zone-b", "zone-c"].into_iter().enumerate() {
        for (field, name) in [
            ("traffic", "traffic_share"),
            ("load", "load_factor"),
            ("demand", "demand_share"),
        ] {
            let cell = format!(
                "#whatif-shares tbody tr:nth-child({}) [data-field={field}]",
                index + 1
            );
            let value = page.eval(&format!(
                "Number(document.querySelector('{cell}').dataset.value)"
            ));
            let localities = answer["after"]["localities"].as_array().unwrap();
            let own = localities
                .iter()
                .find(|each| each["locality"]["zone"] == zone);
            assert_eq!(
                value.as_f64(),
                own.unwrap()[name].as_f64(),
                "{zone} {field}"
            );
        }
    }
    // A new zone, and an invalid question.
    page.type_into("#whatif-new", "zone-d");
    page.click("#whatif-add");
    page.type_into(
        "#whatif-zones tr[data-key='zone-d'] [data-field=hosts]",
        "4",
    );
    page.click("#whatif-ask");
    page.wait("document.querySelectorAll('#whatif-shares tbody tr').length === 4");
    page.screenshot("what-if");
    page.assert_tidy();
    page.type_into(
        "#whatif-zones tr[data-key='zone-d'] [data-field=hosts]",
        "200000",
    );
    page.click("#whatif-ask");
    page.wait("document.querySelector('#whatif-answer .error')?.textContent.includes('100000')");
    page.click("#whatif-reset");
    page.wait("document.querySelectorAll('#whatif-zones tbody tr').length === 3");
}

#[test]
fn a_cluster_can_be_selected_and_a_zone_explained() {
    let control = Control::start("choose").with_proxies();
    let mut page = Page::open("choose-browser", &control.address(), DESKTOP);
    page.wait("document.querySelectorAll('#clusters tbody tr').length === 2");
    // The cluster with demand is selected.
    page.wait("document.body.dataset.cluster === 'orders'");
    page.click("#routing tr[data-key='r1/zone-a'] button");
    page.wait("document.querySelector('#detail').open");
    let explain = control.page("explain?cluster=orders&zone=zone-a");
    page.wait_for_text("#detail", &as_sentence(explain["reason"].as_str().unwrap()));
    page.screenshot("explain");
    page.press("Escape");
    page.type_into("#clusters-search", "sea");
    page.wait("document.querySelectorAll('#clusters tbody tr').length === 1");
    page.click("#clusters tbody button");
    page.wait("document.body.dataset.cluster === 'search'");
    page.reload();
    page.wait("document.body?.dataset.cluster === 'search'");
    page.close();
}
