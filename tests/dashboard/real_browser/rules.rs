//! What every page must be: accessible by the rules of axe-core, drawn soon, and as large after an
//! hour as at first. The limits of time and memory are wide: only a wrong build exceeds them.

use std::fs;

use plimsoll_testing::peers;
use serde_json::{Value, json};

use crate::support::control::Control;
use crate::support::documents::{Documents, fourteen, large, large_with_services, nothing, uneven};
use crate::support::page::{DESKTOP, PHONE, Page};

/// Violations of the rules, as rule and elements.
const VIOLATIONS: &str = "axe.run(document, { resultTypes: ['violations'] }).then((found) =>
  found.violations.map((rule) => `${rule.id}: ${rule.nodes.slice(0, 3).map((node) =>
    `${node.target} (${node.failureSummary})`).join('; ')}`))";

fn assert_accessible(page: &mut Page, what: &str) {
    let axe = fs::read_to_string(peers().join("axe/node_modules/axe-core/axe.min.js")).unwrap();
    page.eval(&format!("{axe}; 0"));
    for scheme in ["light", "dark"] {
        page.prefer(scheme);
        let found = page.eval(VIOLATIONS);
        assert_eq!(found, json!([]), "{what}, {scheme}");
    }
}

#[test]
fn the_rules_of_axe_core_are_kept() {
    let control = Control::start("rules-control").with_proxies();
    let served = [
        ("uneven", Documents::serve(uneven).0.to_string()),
        ("fourteen", Documents::serve(fourteen).0.to_string()),
        ("large", Documents::serve(large).0.to_string()),
        ("nothing", Documents::serve(nothing).0.to_string()),
    ];
    let urls = served.map(|(what, address)| (what, format!("http://{address}/")));
    let all = urls.into_iter().chain([("control", control.address())]);
    for (what, address) in all {
        for (size, name) in [(DESKTOP, "desktop"), (PHONE, "phone")] {
            let mut page = Page::open(&format!("rules-{what}-{name}"), &address, size);
            page.next_document();
            assert_accessible(&mut page, &format!("{what}, {name}"));
            page.close();
        }
    }
}

/// Milliseconds until the first paint. The bar of the project is 1000 on a quiet machine.
const PAINT: &str = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? 1e9";
/// Bytes of the heap after a collection.
const HEAP: &str = "performance.memory.usedJSHeapSize";

#[test]
fn a_hundred_zones_of_fifty_services_are_drawn_soon_and_do_not_grow() {
    let (address, _) = Documents::serve(large_with_services);
    let mut page = Page::open("rules-large", &format!("http://{address}/"), DESKTOP);
    let number = |value: Value| value.as_f64().unwrap();
    let paint = number(page.eval(PAINT));
    page.next_document();
    let size = |page: &mut Page| {
        page.collect_garbage();
        (
            number(page.eval(HEAP)),
            number(page.eval("document.querySelectorAll('*').length")),
        )
    };
    let (before, elements) = size(&mut page);
    let first = number(page.eval("Number(document.body.dataset.sequence)"));
    let last = first + 60.0;
    page.wait(&format!("Number(document.body.dataset.sequence) >= {last}"));
    let (after, then) = size(&mut page);
    eprintln!(
        "100 zones, 50 services: painted after {paint:.0} ms; heap {:.1} and {:.1} MB",
        before / 1e6,
        after / 1e6
    );
    assert!(paint < 5000.0, "{paint} ms");
    assert!(after < 1.5 * before + 4e6, "{before} and {after} bytes");
    assert!(then < 1.2 * elements, "{elements} and {then} elements");
    page.close();
}
