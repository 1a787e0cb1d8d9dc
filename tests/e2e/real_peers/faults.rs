//! Failures: a control plane that is killed under load, and an update that an Envoy NACKs.

use std::net::TcpListener;
use std::time::Instant;

use plimsoll_testing::http::get;

use crate::support::envoy::Envoy;
use crate::support::fleet::{Testbed, TestbedSpec, shares};
use crate::support::{wait_for, wait_to_see, wait_until};

#[test]
fn requests_and_weights_survive_a_control_plane_outage() {
    let mut testbed = Testbed::start(&TestbedSpec {
        name: "kill",
        ..Default::default()
    });
    testbed.wait_for_fleet_weights(100);
    testbed.control.kill();
    let kept = testbed.envoys[0].weights("local_cluster");
    // More than a second of outage: proxies notice and reconnect.
    testbed.measure(2000);
    let restarted = Instant::now();
    testbed.control.restart();
    let fresh = wait_for("fresh fractions are in force", || {
        // Until demand is known again, host counts must not be delivered.
        let weights = shares(&testbed.envoys[0].weights("local_cluster"));
        assert!(
            weights["zone-a"].abs_diff(5000) < 500,
            "{weights:?} after {:?}, before it was {kept:?}",
            restarted.elapsed()
        );
        let fractions = testbed.control.fleet_fractions();
        (!fractions.is_empty()).then(|| restarted.elapsed())
    });
    eprintln!("fresh fractions {fresh:?} after the restart");
    testbed.wait_for_fleet_weights(100);
    testbed.assert_fair();
    assert_eq!(testbed.load.failed(), 0);
}

#[test]
fn a_nack_is_shown_and_the_previous_state_stays() {
    for delta in [false, true] {
        let mut testbed = Testbed::start(&TestbedSpec {
            name: "nack",
            delta,
            ..Default::default()
        });
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let listeners = format!(
            "listeners:
- name: taken
  address: {address}
  virtual_hosts:
  - name: any
    routes: [{{match: {{prefix: /}}, route: {{cluster: orders}}}}]
"
        );
        testbed
            .control
            .edit(&testbed.config("delivery: FLEET_WEIGHTS", &listeners));
        let nack = wait_for("the NACK is shown", || {
            let status = testbed.control.type_status("gateway-zone-a", "Listener");
            let message = status["nacked"]["message"].as_str()?;
            Some(message.to_owned())
        });
        assert!(nack.contains("taken"), "{nack}");
        // Other types still update, on the same stream.
        testbed.wait_for_fleet_weights(100);
        assert_eq!(testbed.load.failed(), 0);
        // After the cause is fixed, the next version is accepted.
        let free = listeners.replace(&address.to_string(), "127.0.0.1:0");
        testbed
            .control
            .edit(&testbed.config("delivery: FLEET_WEIGHTS", &free));
        wait_until("the fixed update is accepted", || {
            let status = testbed.control.type_status("gateway-zone-a", "Listener");
            status["nacked"].is_null() && status["acked_version"] == status["sent_version"]
        });
        let page = || get(testbed.envoys[0].admin, "/listeners");
        wait_to_see("the listener is active", page, |page| {
            page.as_ref().is_some_and(|page| page.contains("taken::"))
        });
        assert!(testbed.envoys.iter_mut().all(Envoy::is_alive));
        assert!(testbed.control.is_alive());
    }
}
