//! Do no harm: the hosts of a zone die without health checks that would tell the Envoys.

use crate::support::backends::Death;
use crate::support::envoy::Envoy;
use crate::support::fleet::{Testbed, TestbedSpec};
use crate::support::wait_until;

/// Requests of which a share is measured, in 10 s.
const REQUESTS: u64 = 8000;
/// Only the spilled part of zone-a is random: its share has a standard deviation of 0.4 points, the
/// difference of two measured ones 0.6. A correct build exceeds 3 points once in 10^6 runs.
const TOLERANCE: f64 = 0.03;

#[test]
fn a_zone_that_refuses_fails_no_more_requests_than_by_host_counts() {
    no_more_failures_than_by_host_counts("dead-zone-refuses", Death::Refuse);
}

#[test]
fn a_zone_that_answers_errors_fails_no_more_requests_than_by_host_counts() {
    no_more_failures_than_by_host_counts("dead-zone-errors", Death::Error);
}

/// Zone-b has half of the hosts and 35 % of the demand, so the excess of zone-a would spill there:
/// by measured demand 20 of 100 requests, by host counts 11.
fn no_more_failures_than_by_host_counts(name: &'static str, death: Death) {
    let testbed = Testbed::start(&TestbedSpec {
        name,
        ..Default::default()
    });
    testbed.wait_for_fleet_weights(100);
    testbed.backends.kill("zone-b", death);
    wait_until("the page names the failing zone", || {
        testbed.control.notices().contains("fail in r1/zone-b")
    });
    // The weights of the fleet go on for other services; the cluster no longer follows them.
    wait_until("host counts are delivered", || {
        testbed.control.service_fractions("orders").is_empty()
    });
    wait_until("Envoys have the cluster with host counts", || {
        let modified = |envoy: &Envoy| envoy.stat("cluster_manager.cluster_modified") > Some(0);
        testbed.envoys.iter().all(modified)
    });
    let by_demand = failed_share(&testbed);
    testbed
        .control
        .edit(&testbed.config("delivery: FLEET_WEIGHTS\n  mode: OFF", ""));
    wait_until("the service is off", || {
        testbed
            .control
            .metric("config_reloads_total{result=\"ok\"}")
            > 0
    });
    let by_hosts = failed_share(&testbed);
    eprintln!("{name}: failed by demand {by_demand:.3}, by host counts {by_hosts:.3}");
    assert!(by_demand <= by_hosts + TOLERANCE);
}

fn failed_share(testbed: &Testbed) -> f64 {
    let load = &testbed.load;
    let (failed, succeeded) = (load.failed(), load.succeeded());
    let counted = || load.failed() + load.succeeded() - failed - succeeded;
    wait_until("requests are answered", || counted() >= REQUESTS);
    (load.failed() - failed) as f64 / counted() as f64
}
