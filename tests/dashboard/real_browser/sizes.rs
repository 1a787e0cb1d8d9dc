//! Large documents and small windows. No time is asserted: instead the elements are counted, which
//! must not grow with the document.

use serde_json::json;

use crate::support::control::Control;
use crate::support::documents::{Documents, fourteen, large, one_of_thirty, thirty, uneven};
use crate::support::page::{DESKTOP, PHONE, Page};

/// Maximum number of elements of a page with 100 zones: visible rows and fields of the what-if
/// form.
const MAX_ELEMENTS: u64 = 2500;

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
    assert_eq!(
        page.text(first),
        "gateway-4321",
        "the node that rejected an update"
    );
    // Scroll to the end.
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
    // The matrix can be read by keyboard.
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
    eprintln!("{}", work_of_an_update(&mut page));
    page.screenshot("large");
    page.assert_tidy();
    page.close();
}

/// Maximum DOM changes and patch size per document.
const MAX_CHANGES: u64 = 1500;
const MAX_PATCH_BYTES: u64 = 400_000;

/// Counts DOM changes and bytes per update, which do not depend on the speed of the machine.
fn work_of_an_update(page: &mut Page) -> String {
    page.eval(
        "window.changes = 0; new MutationObserver((all) => { window.changes += all.length; })
          .observe(document.body, { subtree: true, childList: true, attributes: true,
            characterData: true });
         window.sizes = []; const listener = new EventSource('dashboard/events');
         listener.addEventListener('patch', (event) => window.sizes.push(event.data.length));
         listener.addEventListener('full', (event) => { window.whole = event.data.length; })",
    );
    page.next_document();
    let first = page
        .eval("Number(document.body.dataset.sequence)")
        .as_u64()
        .unwrap();
    page.eval("window.changes = 0");
    page.wait(&format!(
        "Number(document.body.dataset.sequence) >= {first} + 3"
    ));
    let last = page
        .eval("Number(document.body.dataset.sequence)")
        .as_u64()
        .unwrap();
    let changes = page.eval("window.changes").as_u64().unwrap() / (last - first);
    assert!(changes < MAX_CHANGES, "{changes} changes per document");
    page.wait("window.whole && window.sizes.length >= 2");
    let [whole, patch] =
        ["window.whole", "Math.min(...window.sizes)"].map(|size| page.eval(size).as_u64().unwrap());
    assert!(
        patch < MAX_PATCH_BYTES && patch * 4 < whole,
        "{patch} of {whole} bytes"
    );
    format!("{changes} changes and {patch} bytes per document, {whole} bytes at first")
}

#[test]
fn only_visible_rows_are_rendered() {
    let (address, _) = Documents::serve(large);
    let mut page = Page::open("large-rows", &format!("http://{address}/"), DESKTOP);
    page.next_document();
    for table in ["zones", "routing"] {
        let rows = format!("[...document.querySelectorAll('#{table} tbody:not(.filler) tr')]");
        let shown = page.eval(&format!("{rows}.length")).as_u64().unwrap();
        assert!((17..60).contains(&shown), "{shown} rows of {table}");
        let count = page.text(&format!("document.querySelector('#{table}').ariaRowCount"));
        assert_eq!(count, "101");
        let height = page
            .eval(&format!(
                "document.querySelector('#{table}-scroller').scrollHeight"
            ))
            .as_u64()
            .unwrap();
        assert!(
            (3000..3100).contains(&height),
            "{height}: room for all rows"
        );
        page.eval(&format!(
            "document.querySelector('#{table}-scroller').scrollTop = 1e9"
        ));
        page.wait(&format!("{rows}.at(-1).ariaRowIndex === '101'"));
        let last = page.eval(&format!(
            "(() => {{ const box = document.querySelector('#{table}-scroller');
               const [row, seen] = [{rows}.at(-1), box].map((e) => e.getBoundingClientRect());
               return Math.abs(row.bottom - seen.bottom); }})()"
        ));
        assert!(
            last.as_f64().unwrap() < 4.0,
            "the last row ends {last} from the end"
        );
    }
    page.close();
}

#[test]
fn a_phone_does_not_scroll_horizontally() {
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
fn many_zones_fit_a_phone_with_their_values() {
    for (zones, (address, _)) in [
        ("14", Documents::serve(fourteen)),
        ("30", Documents::serve(thirty)),
        ("100", Documents::serve(large)),
    ] {
        let mut page = Page::open("many-phone", &format!("http://{address}/"), PHONE);
        page.next_document();
        let wide = page.eval("document.documentElement.scrollWidth - window.innerWidth");
        assert!(
            wide.as_i64().unwrap() <= 0,
            "wider than the window by {wide}"
        );
        for (table, fields) in [
            ("zones", vec!["zone", "demand", "served", "load"]),
            ("routing", vec!["zone", "state", "kept"]),
        ] {
            for field in fields {
                let cell = format!(
                    "document.querySelector('#{table} tbody:not(.filler) [data-field={field}]')"
                );
                let seen = page.eval(&format!(
                    "(() => {{ const cell = {cell}; cell.scrollIntoView({{ block: 'center',
                       behavior: 'instant' }}); const box = cell.getBoundingClientRect();
                       return cell.textContent.trim() && box.width > 20 && box.left >= 0
                         && box.right <= window.innerWidth
                         && cell.contains(document.elementFromPoint(box.left + box.width / 2,
                              box.top + box.height / 2)); }})()"
                ));
                assert_eq!(seen, json!(true), "{zones} zones: {field} of {table}");
            }
        }
        page.screenshot(&format!("phone-{zones}-zones"));
        page.close();
    }
}

#[test]
fn the_matrix_is_read_by_touch_and_has_one_row_for_one_proxy() {
    let (address, _) = Documents::serve(one_of_thirty);
    let mut page = Page::open("one-row", &format!("http://{address}/"), PHONE);
    page.wait("document.querySelector('#map canvas')?.dataset.columns === '30'");
    assert_eq!(
        page.text("document.querySelector('#map canvas').dataset.rows"),
        "1"
    );
    let high = page.eval("document.querySelector('#map canvas').getBoundingClientRect().height");
    assert!(high.as_f64().unwrap() < 200.0, "{high} px for one row");
    page.eval(
        "(() => { const canvas = document.querySelector('#map canvas');
           const box = canvas.getBoundingClientRect();
           const { left, top, wide } = canvas.layout;
           canvas.dispatchEvent(new PointerEvent('pointerdown', { pointerType: 'touch',
             clientX: box.left + left + 3.5 * wide, clientY: box.top + top + 10 })); })()",
    );
    let tip = page.text("document.querySelector('#map .tip').textContent");
    assert!(
        tip.starts_with("zone-03 sends") && tip.contains("to zone-03"),
        "{tip}"
    );
    let legend = page.text("document.querySelector('.matrix-legend').textContent");
    assert!(legend.contains("stays in its zone"), "{legend}");
    page.screenshot("one-proxy-30-phone");
    page.resize(DESKTOP);
    page.next_document();
    page.screenshot("one-proxy-30");
    page.close();
}
