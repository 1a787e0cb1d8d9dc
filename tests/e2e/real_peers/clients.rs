//! Three programs with the embedded client in three zones with uneven demand: every server gets its
//! share, with every delivery of demand, and no call fails while the control plane is down.

use std::time::{Duration, Instant};

use crate::support::backends::Backends;
use crate::support::client::{ClientProcess, run_if_client_process};
use crate::support::control::Control;
use crate::support::fleet::{ZONES, assert_fair, measure, start_backends};
use crate::support::load::{Load, Source};
use crate::support::{scratch, wait_to_see, wait_until};

/// Name of the test that client processes run.
const ENTRY: &str = "real_peers::clients::client_process";
/// 20 requests are sent per tick. The machine must sustain this rate: clients report over different
/// intervals, so a varying rate would look like other shares.
const TICK: Duration = Duration::from_millis(25);
/// Tolerance of the clients' view of demand in basis points, before loads are asserted. One percent
/// point of the smallest zone's demand is already the 5 % tolerance of its load.
const TOLERANCE_BP: u64 = 40;

#[test]
fn client_process() {
    run_if_client_process();
}

#[test]
fn demand_delivered_by_eds_field() {
    assert_delivered("EDS_FIELD", "eds_field");
}

#[test]
fn demand_delivered_by_locality_metadata() {
    assert_delivered("LOCALITY_METADATA", "locality_metadata");
}

#[test]
fn demand_delivered_by_lrs_response() {
    assert_delivered("LRS_RESPONSE", "lrs_response");
}

#[test]
fn demand_delivered_by_locality_weights() {
    let testbed = Testbed::start("locality_weights", "LOCALITY_WEIGHTS");
    let received = || testbed.clients.iter().all(has_expected_weights);
    wait_until("clients have the weights of their zone", received);
    for client in &testbed.clients {
        let node = format!("checkout-{}", client.zone);
        testbed.control.wait_for_delivery(&node, "locality_weights");
    }
    assert_fair(&testbed.backends, &testbed.load, received);
    assert_eq!(testbed.load.failed(), 0);
}

/// Whether a client keeps the expected share local: 60 % in zone-a, all requests elsewhere.
fn has_expected_weights(client: &ClientProcess) -> bool {
    let explained = client.explain();
    let mut localities = explained["localities"].as_array().into_iter().flatten();
    let own = localities.find(|locality| locality["zone"] == *client.zone);
    let share = own.and_then(|own| own["expected_share"].as_f64());
    let kept = if client.zone == ZONES[0].0 { 0.6 } else { 1.0 };
    share.is_some_and(|share| (share - kept).abs() <= 0.008)
}

/// Processes of the test. Dropped in this order: traffic, clients, control plane.
struct Testbed {
    load: Load,
    clients: Vec<ClientProcess>,
    control: Control,
    backends: Backends,
}

fn assert_delivered(setting: &str, delivery: &str) {
    let mut testbed = Testbed::start(delivery, setting);
    testbed.wait_for_demand();
    for client in &testbed.clients {
        let node = format!("checkout-{}", client.zone);
        testbed.control.wait_for_delivery(&node, delivery);
        let origin = || client.explain()["fractions"]["origin"].clone();
        wait_to_see(delivery, origin, |seen| seen == delivery);
    }
    testbed.assert_fair();

    testbed.control.kill();
    testbed.wait_for_status("stale");
    // Clients fall back to host counts, which are wrong; only failures are asserted.
    measure(&testbed.backends, &testbed.load, 1000);
    assert_eq!(testbed.load.failed(), 0);

    let restarted = Instant::now();
    testbed.control.restart();
    testbed.wait_for_demand();
    eprintln!(
        "{delivery}: recovered {:?} after the restart",
        restarted.elapsed()
    );
    testbed.assert_fair();
    assert_eq!(testbed.load.failed(), 0);
    assert!(testbed.clients.iter_mut().all(ClientProcess::is_alive));
}

impl Testbed {
    /// Starts everything. Clients listen once they know the service.
    fn start(name: &str, delivery: &str) -> Self {
        let directory = scratch(name);
        let backends = start_backends();
        let control = Control::start(&directory, &config(&backends, delivery));
        let start = |(zone, ..): &(&str, u64, u64, usize)| {
            ClientProcess::start(&directory, ENTRY, &control, zone)
        };
        let clients: Vec<_> = ZONES.iter().map(start).collect();
        let source = |(client, zone): (&ClientProcess, &(&str, u64, u64, usize))| Source {
            to: client.address,
            from: client.zone.clone(),
            per_tick: zone.1,
        };
        let sources: Vec<_> = clients.iter().zip(&ZONES).map(source).collect();
        Self {
            load: Load::start(&sources, TICK),
            clients,
            control,
            backends,
        }
    }

    /// Whether every client knows the true demand to within [`TOLERANCE_BP`].
    fn knows_demand(&self) -> bool {
        self.clients.iter().all(|client| {
            let explained = client.explain();
            let localities = explained["localities"].as_array();
            let is_close = |(zone, _, demand, _): &(&str, u64, u64, usize)| {
                let mut all = localities.into_iter().flatten();
                let own = all.find(|locality| locality["zone"] == *zone);
                let share = own.and_then(|own| own["local_bp"].as_u64());
                share.is_some_and(|share| share.abs_diff(*demand) <= TOLERANCE_BP)
            };
            explained["fractions"]["status"] == "fresh" && ZONES.iter().all(is_close)
        })
    }

    fn wait_for_demand(&self) {
        wait_until("clients use measured demand", || self.knows_demand());
    }

    /// Asserts that every zone has its fair load.
    fn assert_fair(&self) {
        assert_fair(&self.backends, &self.load, || self.knows_demand());
    }

    /// Waits until the fractions of every client have this status.
    fn wait_for_status(&self, status: &str) {
        let statuses = || -> Vec<_> {
            let clients = self.clients.iter();
            clients
                .map(|client| client.explain()["fractions"]["status"].clone())
                .collect()
        };
        wait_to_see(status, statuses, |seen| {
            seen.iter().all(|one| one == status)
        });
    }
}

/// Configuration with short times: minimum staleness threshold, two load reports per second.
fn config(backends: &Backends, delivery: &str) -> String {
    let endpoints = backends.endpoints();
    let policy = "type.googleapis.com/envoy.extensions.load_balancing_policies.round_robin.v3";
    format!(
        "load_reporting: {{interval: 0.5s}}
demand: {{smoothing_time_constant: 3s, heartbeat: 1s}}
services:
- delivery: {delivery}
  cluster:
    name: orders
    load_balancing_policy:
      policies:
      - typed_extension_config:
          name: envoy.load_balancing_policies.round_robin
          typed_config:
            '@type': {policy}.RoundRobin
            locality_lb_config:
              zone_aware_lb_config:
                min_cluster_size: 1
                locality_basis: LRS_REPORTED_RATE
                lrs_rate_config: {{staleness_threshold: 5s}}
  endpoints:
{endpoints}"
    )
}
