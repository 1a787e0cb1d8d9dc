//! Large documents and small windows. No time is asserted: a page whose work does not grow with the
//! document has few elements, and that can be counted.

use serde_json::json;

use crate::support::control::Control;
use crate::support::documents::{Documents, large, uneven};
use crate::support::page::{DESKTOP, PHONE, Page};

/// Elements of a page with a hundred zones: two tables of them and little else.
const MAX_ELEMENTS: u64 = 5000;

#[test]
fn a_hundred_zones_and_five_thousand_nodes_stay_small() {
    let (address, _) = Documents::serve(large);
    let mut page = Page::open("large", &format!("http://{address}/"), DESKTOP);
    page.wait("document.querySelector('#map').dataset.kind === 'matrix'");
    page.next_document();
    let elements = page
        .eval("document.querySelectorAll('*').length")
        .as_u64()
        .unwrap();
    assert!(elements < MAX_ELEMENTS, "{elements} elements");
    let rows = page
        .eval("document.querySelectorAll('#nodes tr.node').length")
        .as_u64()
        .unwrap();
    assert!((5..80).contains(&rows), "{rows} rows");
    assert_eq!(
        page.text("document.querySelector('#nodes-count').textContent"),
        "5,000 nodes"
    );
    let first = "document.querySelector('#nodes tr.node').dataset.key";
    assert_eq!(page.text(first), "gateway-4321", "the one that refused");
    // All the way down, row by row of what is seen.
    page.eval("document.querySelector('#nodes-scroller').scrollTop = 1e9");
    page.wait(
        "[...document.querySelectorAll('#nodes tr.node')].at(-1).dataset.key === 'gateway-4999'",
    );
    let last = page.eval("[...document.querySelectorAll('#nodes tr.node')].at(-1).ariaRowIndex");
    assert_eq!(last, json!("5001"));
    page.type_into("#nodes-search", "zone-42 envoy");
    page.wait("document.querySelector('#nodes-count').textContent === '50 of 5,000 nodes'");
    page.type_into("#nodes-search", "gateway-0777");
    page.wait("document.querySelectorAll('#nodes tr.node').length === 1");
    page.type_into("#nodes-search", "");
    page.eval(
        "const f = document.querySelector('#nodes-filter'); f.value = 'gone';
         f.dispatchEvent(new Event('change'))",
    );
    page.wait("document.querySelector('#nodes-count').textContent === '1 of 5,000 nodes'");
    // The matrix is read by keyboard too.
    page.eval("document.querySelector('#map canvas').focus()");
    page.press("ArrowRight");
    let tip = page.text("document.querySelector('#map .tip').textContent");
    assert!(tip.starts_with("zone-00 sends"), "{tip}");
    let spent = page.eval(
        "new Promise((done) => { const from = performance.now(); let frames = 0;
          const step = () => { frames += 1; frames < 60 ? requestAnimationFrame(step)
            : done((performance.now() - from) / frames); }; requestAnimationFrame(step); })",
    );
    eprintln!("100 zones, 5,000 nodes: {elements} elements, {spent:.1} ms per frame");
    page.screenshot("large");
    page.assert_tidy();
    page.close();
}

#[test]
fn a_phone_needs_no_sideways_scrolling() {
    let (address, _) = Documents::serve(uneven);
    let mut page = Page::open("phone", &format!("http://{address}/"), PHONE);
    page.next_document();
    page.screenshot("demo-phone");
    page.assert_tidy();
    page.close();
    let control = Control::start("phone-control").with_proxies();
    let mut page = Page::open("phone-browser", &control.address(), PHONE);
    page.wait("document.querySelector('#routing [data-field=delivered]')?.dataset.value");
    page.screenshot("control-phone");
    page.assert_tidy();
    page.close();
}

#[test]
fn a_large_document_fits_a_phone() {
    let (address, _) = Documents::serve(large);
    let mut page = Page::open("large-phone", &format!("http://{address}/"), PHONE);
    page.next_document();
    let wide = page.eval("document.documentElement.scrollWidth - window.innerWidth");
    assert!(
        wide.as_i64().unwrap() <= 0,
        "wider than the window by {wide}"
    );
    page.close();
}
