//! The dashboard of `plimsoll demo`: an overloaded zone, a click, and evenly loaded zones.

use crate::support::demo::Demo;
use crate::support::page::{DESKTOP, PHONE, Page};

/// Loads of the zones in the table.
const LOADS: &str = "[...document.querySelectorAll('#zones [data-field=load]')]\
                     .map((cell) => Number(cell.dataset.value))";

#[test]
fn a_click_evens_out_the_overloaded_zone() {
    let demo = Demo::start();
    let mut page = Page::open("demo", &demo.address, DESKTOP);
    page.wait(&format!("Math.max(...{LOADS}) > 1.5"));
    page.wait("document.querySelector('#notices').textContent.includes('Watch zone-a')");
    page.assert_tidy();
    page.screenshot("visit-host-counts");
    page.click("[data-action=lrs-reported-rate]");
    let pressed = "document.querySelector('[data-action=lrs-reported-rate]').ariaPressed";
    page.wait(&format!("{pressed} === 'true'"));
    page.wait(&format!(
        "{LOADS}.every((load) => load > 0.9 && load < 1.1)"
    ));
    page.screenshot("visit-measured-demand");
    page.resize(PHONE);
    page.next_document();
    page.assert_tidy();
    page.screenshot("visit-phone");
    page.click("[data-action=stop-control]");
    page.wait("document.querySelector('#notices').textContent.includes('is stopped')");
    page.close();
}
