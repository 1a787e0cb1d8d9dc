//! Envoys with Plimsoll's module and the control plane: identity, certificates, reconnects.

use plimsoll_testing::http::{Connection, get};
use plimsoll_testing::{Authority, free_address};
use serde_json::{Value, json};

use crate::support::backends::Backends;
use crate::support::certificate::Files;
use crate::support::control::{Control, bootstrap};
use crate::support::envoy::{CURRENT, Envoy, ingress};
use crate::support::{scratch, wait_until};

const GATEWAY: &str = "spiffe://td/fleet/gateway/zone/zone-a";

fn config(tls: &Files, backends: &Backends) -> String {
    let identified = tls.control_config();
    let endpoints = backends.endpoints();
    format!(
        "{identified}
services:
- cluster: {{name: orders, plimsoll: {{endpoint_load_metrics_format: JSON}}}}
  endpoints:
{endpoints}"
    )
}

#[test]
fn modules_connect_with_certificates_and_reconnect() {
    let directory = scratch("modules");
    let ca = Authority::named("CA");
    let certificates =
        |name: &str, pair: &(String, String)| Files::new(directory.join(name), pair, &ca.pem);
    let server = certificates("server", &ca.issue(&["127.0.0.1", "spiffe://td/control"]));
    let gateway = certificates("gateway", &ca.issue(&["127.0.0.1", GATEWAY]));
    let backends = Backends::start(&[("zone-a", 1), ("zone-b", 1)]);
    let mut control = Control::start(&directory, &config(&server, &backends));
    let address = control.xds.to_string();
    // Free until Envoy binds it: the module's own port is only known from the bootstrap.
    let explanations = free_address();
    let port = explanations.port().to_string();
    let mut arguments = vec!["envoy", "--module", "--zone", "zone-a", "--region", "r1"];
    arguments.extend(["--module-admin-port", &port]);
    arguments.extend(["--control", &address, "--admin-port", "0"]);
    let tls = gateway.arguments();
    arguments.extend(tls.iter().map(String::as_str));
    let mut bootstrap = bootstrap(&arguments);
    bootstrap["static_resources"]["listeners"] = json!([ingress()]);
    let envoy = Envoy::start_with(&directory, "zone-a", CURRENT, &bootstrap);
    let is_connected = |control: &Control| {
        let node = control.node("gateway-zone-a");
        node["module_streams"] == 1 && node["discovery_streams"] == 1
    };
    wait_until("the module is connected", || is_connected(&control));
    control.wait_for_node("gateway-zone-a", "is known by its module", |node| {
        node["class"] == "envoy_module"
    });
    wait_until("Envoy serves", || get(envoy.listener, "/").is_some());
    // The cluster of the control plane has its settings in the module.
    wait_until("the module explains the cluster", || {
        let Ok(mut connection) = Connection::open(explanations) else {
            return false;
        };
        let head = "GET /explain?cluster=orders HTTP/1.1\r\nhost: localhost\r\n\r\n";
        let Ok((200, body)) = connection.request(head) else {
            return false;
        };
        let explained: Value = serde_json::from_slice(&body).unwrap();
        explained["locality_basis"] == "LRS_REPORTED_RATE"
    });
    // The filter of the module asks for load reports, as the cluster says.
    wait_until("requests ask for load reports", || {
        get(envoy.listener, "/").is_some() && backends.asking() > 0
    });
    control.restart();
    wait_until("the module is connected again", || is_connected(&control));
    let log = control.log();
    assert!(!log.contains("shares its id"), "{log}");
}
