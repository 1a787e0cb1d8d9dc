//! Configurations as Envoy validates them: a good one, and one whose error names the field.

use serde_json::json;

use crate::support::bootstrap::{bootstrap, cluster, module, policy, write_endpoints};
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
