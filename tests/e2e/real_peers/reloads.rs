//! Edits of the configuration while Envoys are connected: invalid ones change nothing, mode and
//! ramp take effect at run time.

use crate::support::fleet::{Testbed, TestbedSpec, shares_from};
use crate::support::wait_until;

#[test]
fn invalid_edits_change_nothing_and_valid_ones_take_effect() {
    let testbed = Testbed::start(&TestbedSpec {
        name: "reload",
        ..Default::default()
    });
    testbed.wait_for_fleet_weights(100);
    let reloads = || testbed.control.page("status")["configuration"].clone();

    testbed
        .control
        .edit(&testbed.config("delivery: FLEET_WEIGHTS\n  ramp: 101", ""));
    wait_until("the error is shown", || reloads()["reloads_failed"] == 1);
    let error = reloads()["error"].as_str().unwrap().to_owned();
    assert!(
        error.contains("services[0].ramp") && error.contains("101"),
        "{error}"
    );
    let clusters = testbed.control.page("clusters");
    assert_eq!(clusters["clusters"][0]["ramp_percent"], 100);
    testbed.wait_for_fleet_weights(100);

    // Half way from the 90 % that host counts keep local to the 60 % by demand.
    testbed
        .control
        .edit(&testbed.config("delivery: FLEET_WEIGHTS\n  ramp: 50", ""));
    wait_until("zone-a keeps 75 %", || {
        let local = shares_from(&testbed.measure(2000), "zone-a")["zone-a"];
        (local - 0.75).abs() < 0.045
    });
    assert!(
        reloads()["error"].is_null(),
        "a valid edit clears the error"
    );

    // SHADOW: demand is measured and shown, but host counts are delivered.
    testbed.control.edit(&testbed.config("mode: SHADOW", ""));
    wait_until("zone-a keeps 90 %", || {
        let local = shares_from(&testbed.measure(2000), "zone-a")["zone-a"];
        (local - 0.9).abs() < 0.04
    });
    wait_until("demand is shown while it is not delivered", || {
        let fleets = testbed.control.page("fleets");
        let measured = &fleets["fleets"][0]["demand"][0]["measured"];
        let zone_a = measured[0]["fraction_bp"].as_u64();
        zone_a.is_some_and(|zone_a| zone_a.abs_diff(5000) < 200)
    });
    assert!(testbed.control.service_fractions("orders").is_empty());

    testbed
        .control
        .edit(&testbed.config("delivery: FLEET_WEIGHTS", ""));
    testbed.wait_for_fleet_weights(100);
    assert_eq!(testbed.load.failed(), 0);
}
