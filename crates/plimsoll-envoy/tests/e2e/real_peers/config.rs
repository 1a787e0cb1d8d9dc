//! Configurations as Envoy validates them: a good one, which starts nothing, and one whose error
//! names the field.

use std::io::ErrorKind;
use std::net::TcpListener;

use serde_json::json;

use crate::support::bootstrap::{bootstrap, cluster, module, policy, socket, write_endpoints};
use crate::support::envoy::validate;
use crate::support::{RELEASES, scratch};

#[test]
fn validation_accepts_and_rejects_with_the_path_of_the_field() {
    for release in RELEASES {
        let directory = scratch("validate");
        write_endpoints(&directory, "orders", []);
        let run = |settings| {
            let policy = policy("plimsoll", &module(&settings));
            let orders = cluster(&directory, "orders", &policy);
            let output = validate(release, &directory, &bootstrap(&[orders], &[]));
            let log = String::from_utf8_lossy(&output.stderr).into_owned();
            (output.status.success(), log)
        };
        let (accepted, log) = run(json!({ "lb_policy": "LEAST_REQUEST" }));
        assert!(accepted, "{release}: {log}");
        let (accepted, log) = run(json!({ "lb_policy": "FASTEST" }));
        assert!(!accepted, "{release}: {log}");
        assert!(log.contains("cluster.lb_policy"), "{release}: {log}");
    }
}

/// The module has threads for timers, for explanations and for the control plane. Validation starts
/// none of them: nobody connects to the control plane, and no port is bound.
#[test]
fn validation_starts_nothing() {
    let control = TcpListener::bind("127.0.0.1:0").unwrap();
    control.set_nonblocking(true).unwrap();
    let address = control.local_addr().unwrap();
    for release in RELEASES {
        let directory = scratch("validate-only");
        write_endpoints(&directory, "orders", []);
        let endpoint = json!({ "endpoint": { "address": socket(address) } });
        let mut config = module(&json!({}));
        config["node"]["id"] = json!("gateway");
        config["node"]["cluster"] = json!("gateway");
        config["management_server"] = json!({
            "name": "control",
            "type": "STATIC",
            "load_assignment": {
                "cluster_name": "control",
                "endpoints": [{ "lb_endpoints": [endpoint] }],
            },
        });
        let orders = cluster(&directory, "orders", &policy("plimsoll", &config));
        let output = validate(release, &directory, &bootstrap(&[orders], &[]));
        let log = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{release}: {log}");
        assert!(!log.contains("explanations on"), "{release}: {log}");
        let connection = control.accept().map_err(|error| error.kind());
        assert_eq!(connection.err(), Some(ErrorKind::WouldBlock), "{release}");
    }
}
