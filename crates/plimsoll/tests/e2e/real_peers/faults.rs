//! What goes wrong: a control plane that dies under load, and an update that an Envoy refuses.

use std::net::TcpListener;
use std::time::Instant;

use crate::support::envoy::Envoy;
use crate::support::fleet::{World, WorldSpec, shares};
use crate::support::http::get;
use crate::support::{wait_for, wait_until};

#[test]
fn a_killed_control_plane_costs_no_request_and_no_weight() {
    let mut world = World::start(&WorldSpec {
        name: "kill",
        ..Default::default()
    });
    world.wait_for_fleet_weights(100);
    world.control.kill();
    let kept = world.envoys[0].weights("local_cluster");
    // More than a second without anybody: proxies notice and try again.
    world.measure(2000);
    let returned = Instant::now();
    world.control.restart();
    let fresh = wait_for("fresh fractions are in force", || {
        // Until demand is known again nobody may be told to go by host counts.
        let weights = shares(&world.envoys[0].weights("local_cluster"));
        assert!(
            weights["zone-a"].abs_diff(5000) < 500,
            "{weights:?} after {:?}, before it was {kept:?}",
            returned.elapsed()
        );
        let fractions = world.control.fleet_fractions();
        (!fractions.is_empty()).then(|| returned.elapsed())
    });
    eprintln!("fresh fractions {fresh:?} after the return");
    world.wait_for_fleet_weights(100);
    world.assert_fair();
    assert_eq!(world.load.failed(), 0);
}

#[test]
fn a_refused_update_is_shown_and_the_last_good_state_stays() {
    for delta in [false, true] {
        let mut world = World::start(&WorldSpec {
            name: "nack",
            delta,
            ..Default::default()
        });
        let taken = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = taken.local_addr().unwrap();
        let listeners = format!(
            "listeners:
- name: taken
  address: {address}
  virtual_hosts:
  - name: any
    routes: [{{match: {{prefix: /}}, route: {{cluster: orders}}}}]
"
        );
        world
            .control
            .edit(&world.config("delivery: FLEET_WEIGHTS", &listeners));
        let refusal = wait_for("the refusal is shown", || {
            let status = world.control.type_status("gateway-zone-a", "Listener");
            let message = status["nacked"]["message"].as_str()?;
            Some(message.to_owned())
        });
        assert!(refusal.contains("taken"), "{refusal}");
        // Everything else goes on, and so does what follows on the same stream.
        world.wait_for_fleet_weights(100);
        assert_eq!(world.load.failed(), 0);
        // The cause is mended: the next version is accepted.
        let free = listeners.replace(&address.to_string(), "127.0.0.1:0");
        world
            .control
            .edit(&world.config("delivery: FLEET_WEIGHTS", &free));
        wait_until("the mended update is accepted", || {
            let status = world.control.type_status("gateway-zone-a", "Listener");
            status["nacked"].is_null() && status["acked_version"] == status["sent_version"]
        });
        let page = get(world.envoys[0].admin, "/listeners").unwrap();
        assert!(page.contains("taken::"), "{page}");
        assert!(world.envoys.iter_mut().all(Envoy::is_alive));
        assert!(world.control.is_alive());
    }
}
