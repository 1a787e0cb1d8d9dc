//! Edits of the file while Envoys are connected: bad ones change nothing, mode and ramp take effect
//! live.

use crate::support::fleet::{World, WorldSpec, shares_from};
use crate::support::wait_until;

#[test]
fn bad_edits_change_nothing_and_good_ones_take_effect_live() {
    let world = World::start(&WorldSpec {
        name: "reload",
        ..Default::default()
    });
    world.wait_for_fleet_weights(100);
    let reloads = || world.control.page("status")["configuration"].clone();

    world
        .control
        .edit(&world.config("delivery: FLEET_WEIGHTS\n  ramp: 101", ""));
    wait_until("the refusal is shown", || reloads()["reloads_failed"] == 1);
    let why = reloads()["error"].as_str().unwrap().to_owned();
    assert!(
        why.contains("services[0].ramp") && why.contains("101"),
        "{why}"
    );
    let clusters = world.control.page("clusters");
    assert_eq!(clusters["clusters"][0]["ramp_percent"], 100);
    world.wait_for_fleet_weights(100);

    // Half of the way from 3333 to 5000.
    world
        .control
        .edit(&world.config("delivery: FLEET_WEIGHTS\n  ramp: 50", ""));
    wait_until("weights are half of the way", || {
        let fractions = world.control.fleet_fractions();
        let at_half = fractions
            .get("zone-a")
            .is_some_and(|bp| bp.abs_diff(4167) < 60);
        at_half && world.envoys[0].weights("local_cluster").len() == 3
    });
    assert!(
        reloads()["error"].is_null(),
        "a good edit clears the complaint"
    );
    wait_until("zone-a keeps 30/41.67", || {
        let local = shares_from(&world.measure(2000), "zone-a")["zone-a"];
        (local - 0.72).abs() < 0.045
    });

    // Shadow: measured and shown, while Envoys go by host counts.
    world.control.edit(&world.config("mode: SHADOW", ""));
    wait_until("zone-a keeps nine tenths", || {
        let local = shares_from(&world.measure(2000), "zone-a")["zone-a"];
        (local - 0.9).abs() < 0.04
    });
    wait_until("demand is shown while it is not delivered", || {
        let fleets = world.control.page("fleets");
        let measured = &fleets["fleets"][0]["demand"][0]["measured"];
        let zone_a = measured[0]["fraction_bp"].as_u64();
        zone_a.is_some_and(|zone_a| zone_a.abs_diff(5000) < 200)
    });
    assert!(world.control.service_fractions("orders").is_empty());

    world
        .control
        .edit(&world.config("delivery: FLEET_WEIGHTS", ""));
    world.wait_for_fleet_weights(100);
    assert_eq!(world.load.failed(), 0);
}
