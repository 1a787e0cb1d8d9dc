//! Three programs with the embedded client, in three zones with unequal demand: every server gets
//! its share, by each of the ways in which demand is delivered, and the death of the control
//! plane costs no call.

use std::time::{Duration, Instant};

use crate::support::backends::Backends;
use crate::support::client::{ClientProcess, run_if_asked};
use crate::support::control::Control;
use crate::support::fleet::{ZONES, assert_fair, measure, start_backends};
use crate::support::load::{Load, Source};
use crate::support::{scratch, wait_until};

/// The test that client processes are.
const ENTRY: &str = "real_peers::clients::client_process";
/// Traffic comes in steps of 20 requests. A busy machine must be able to keep the pace: each client
/// reports over a time of its own, and a pace that changes in between looks like other shares.
const TICK: Duration = Duration::from_millis(25);
/// How near to the true demand clients go by it before loads are judged, in basis points. A point
/// of the smallest zone's demand already is the whole of the 5 % that its servers may be off.
const NEAR: u64 = 40;

#[test]
fn client_process() {
    run_if_asked();
}

#[test]
fn measured_demand_by_the_field_of_the_fleet_assignment() {
    follow("EDS_FIELD", "eds_field");
}

#[test]
fn measured_demand_by_the_metadata_of_localities() {
    follow("LOCALITY_METADATA", "locality_metadata");
}

#[test]
fn measured_demand_by_the_answer_to_load_reports() {
    follow("LRS_RESPONSE", "lrs_response");
}

#[test]
fn measured_demand_by_the_weights_of_localities() {
    let world = World::start("locality_weights", "LOCALITY_WEIGHTS");
    let follow = || world.clients.iter().all(follows_weights);
    wait_until("clients have the weights of their zone", follow);
    for client in &world.clients {
        let node = world.control.node(&format!("checkout-{}", client.zone));
        assert_eq!(
            node["delivery"][0]["delivery"], "locality_weights",
            "{node}"
        );
    }
    assert_fair(&world.backends, &world.load, follow);
    assert_eq!(world.load.failed(), 0);
}

/// Whether a client keeps local what the true demand lets it: 60 % in zone-a, everything elsewhere.
fn follows_weights(client: &ClientProcess) -> bool {
    let explained = client.explain();
    let mut localities = explained["localities"].as_array().into_iter().flatten();
    let own = localities.find(|locality| locality["zone"] == *client.zone);
    let share = own.and_then(|own| own["expected_share"].as_f64());
    let kept = if client.zone == ZONES[0].0 { 0.6 } else { 1.0 };
    share.is_some_and(|share| (share - kept).abs() <= 0.008)
}

/// Everything of one test. Dropped in this order: traffic, clients, control plane.
struct World {
    load: Load,
    clients: Vec<ClientProcess>,
    control: Control,
    backends: Backends,
}

fn follow(setting: &str, delivery: &str) {
    let mut world = World::start(delivery, setting);
    world.wait_for_demand();
    for client in &world.clients {
        let node = world.control.node(&format!("checkout-{}", client.zone));
        assert_eq!(node["delivery"][0]["delivery"], delivery, "{node}");
        assert_eq!(client.explain()["fractions"]["origin"], delivery);
    }
    world.assert_fair();

    world.control.kill();
    world.wait_for_status("stale");
    // Nobody is told anything now: half of the demand is in a zone with a third of the programs.
    measure(&world.backends, &world.load, 1000);
    assert_eq!(world.load.failed(), 0);

    let returned = Instant::now();
    world.control.restart();
    world.wait_for_demand();
    eprintln!(
        "{delivery}: {:?} after the return all is well",
        returned.elapsed()
    );
    world.assert_fair();
    assert_eq!(world.load.failed(), 0);
    assert!(world.clients.iter_mut().all(ClientProcess::is_alive));
}

impl World {
    /// Starts everything. Clients know the service before they take requests.
    fn start(name: &str, delivery: &str) -> Self {
        let folder = scratch(name);
        let backends = start_backends();
        let control = Control::start(&folder, &config(&backends, delivery));
        let start = |(zone, ..): &(&str, u64, u64, usize)| {
            ClientProcess::start(&folder, ENTRY, &control, zone)
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

    /// Whether every client goes by the true demand, to within [`NEAR`].
    fn knows_demand(&self) -> bool {
        self.clients.iter().all(|client| {
            let explained = client.explain();
            let localities = explained["localities"].as_array();
            let is_near = |(zone, _, demand, _): &(&str, u64, u64, usize)| {
                let mut all = localities.into_iter().flatten();
                let own = all.find(|locality| locality["zone"] == *zone);
                let share = own.and_then(|own| own["local_bp"].as_u64());
                share.is_some_and(|share| share.abs_diff(*demand) <= NEAR)
            };
            explained["fractions"]["status"] == "fresh" && ZONES.iter().all(is_near)
        })
    }

    fn wait_for_demand(&self) {
        wait_until("clients go by measured demand", || self.knows_demand());
    }

    /// Fails unless every zone has its fair load.
    fn assert_fair(&self) {
        assert_fair(&self.backends, &self.load, || self.knows_demand());
    }

    /// Waits until every client says this of its fractions.
    fn wait_for_status(&self, status: &str) {
        wait_until(status, || {
            let mut clients = self.clients.iter();
            clients.all(|client| client.explain()["fractions"]["status"] == status)
        });
    }
}

/// Short times: the shortest staleness threshold there is, and reports twice a second.
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
