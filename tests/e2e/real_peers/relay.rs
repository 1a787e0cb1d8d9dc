//! The control plane as a relay of another management server: Envoys get their clusters and
//! endpoints from that server, and balance by measured demand.

use crate::support::fleet::{Testbed, TestbedSpec, start_backends};
use crate::support::management_server::{ManagementServer, relayed};
use crate::support::{scratch, wait_until};

#[test]
fn envoys_behind_a_relay_balance_by_demand() {
    for (name, service) in [
        ("relay-fleet-weights", "delivery: FLEET_WEIGHTS"),
        ("relay-locality-weights", "delivery: LOCALITY_WEIGHTS"),
    ] {
        let directory = scratch(name);
        let backends = start_backends();
        let mut server = ManagementServer::start(&directory, &relayed(&backends, "5s"));
        let spec = TestbedSpec {
            name,
            // The relay uses state of the testbed upstream, and incremental discovery to Envoys.
            delta: service.contains("LOCALITY"),
            ..Default::default()
        };
        let config = config(server.port, service);
        let mut testbed = Testbed::start_with(&spec, &directory, backends, &config);
        testbed.wait_for_demand(60);
        let relay = testbed.control.page("status")["relay"].clone();
        assert_eq!(relay["upstream"]["connected"], 3, "{relay}");
        assert_eq!(relay["upstream"]["unreadable"], 0, "{relay}");
        testbed.assert_fair();
        // Changes of the upstream server arrive.
        server.replace(&relayed(&testbed.backends, "7s"));
        wait_until("every Envoy has the changed cluster", || {
            testbed
                .envoys
                .iter()
                .all(|envoy| envoy.connect_timeout("orders") == "7s")
        });
        // An outage of the upstream server causes no failures.
        server.kill();
        wait_until("the outage is detected", || {
            let relay = testbed.control.page("status")["relay"].clone();
            relay["upstream"]["connected"] == 0
        });
        testbed.assert_fair();
        assert!(testbed.control.is_alive());
        assert_eq!(testbed.load.failed(), 0);
    }
}

fn config(port: u16, service: &str) -> String {
    format!(
        "load_reporting: {{interval: 1s}}\n\
         demand: {{smoothing_time_constant: 5s, material_change_bp: 10}}\n\
         relay: {{address: '127.0.0.1:{port}'}}\n\
         services:\n- cluster: {{name: orders}}\n  {service}\n"
    )
}
