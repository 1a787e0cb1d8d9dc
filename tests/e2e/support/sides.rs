//! Two equal fleets with equal traffic at the same time: one is steered by measured demand, the
//! other by host counts. What one does worse than the other is not the machine's doing.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use plimsoll_testing::http::get;
use serde_json::json;

use super::backends::{Backends, Counts};
use super::client::ClientProcess;
use super::control::{Control, bootstrap};
use super::envoy::{CURRENT, Envoy, EnvoySpec, ingress};
use super::gate::Gate;
use super::grpc::Peer;
use super::management_server::{ManagementServer, relayed};
use super::open_load::{OpenLoad, Tally};
use super::proxy::{Proxy, steered};
use super::{scratch, wait_until};

pub(crate) const ZONES: [&str; 3] = ["zone-a", "zone-b", "zone-c"];
/// Name of the test that client processes run.
const ENTRY: &str = "real_peers::clients::client_process";
/// Ten requests per tick are 200 per second on each side.
const TICK: Duration = Duration::from_millis(50);
const TICKS_PER_SECOND: u32 = 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DataPlane {
    Envoy,
    Envoy139,
    /// Envoy 1.38 reports nothing about a zone of which every host refuses connections.
    Envoy138,
    Module,
    Proxy,
    Client,
    Grpc,
    GrpcJs,
}

impl DataPlane {
    /// Whether it is a gRPC client: it calls by itself, and has no load reporting of its own link.
    pub(crate) const fn is_grpc(self) -> bool {
        matches!(self, Self::Grpc | Self::GrpcJs)
    }
}

/// What is compared with host counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Routing {
    Demand,
    /// Measured demand, behind a relay of another management server.
    RelayedDemand,
    /// `load_aware_locality`, compared with weights by host count.
    Convergent,
    ObservedLoad,
}

/// What routes the requests of a side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Basis {
    Demand,
    Hosts,
}

/// Properties of both sides.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Setup {
    pub(crate) data_plane: DataPlane,
    pub(crate) routing: Routing,
    /// `delivery` of the service.
    pub(crate) delivery: &'static str,
    /// Servers in each zone.
    pub(crate) hosts: usize,
    /// Further field of the cluster.
    pub(crate) field: &'static str,
}

/// Processes of one side, in the order in which they are dropped.
pub(crate) struct Side {
    planes: Vec<Plane>,
    /// Between data planes and control plane: only load reports of stock Envoys, otherwise all.
    pub(crate) gate: Gate,
    pub(crate) control: Control,
    /// Server behind the relay.
    _relayed: Option<ManagementServer>,
    pub(crate) backends: Arc<Backends>,
    served: Counts,
    is_grpc: bool,
}

enum Plane {
    Envoy(Envoy),
    Proxy(Proxy),
    Client(ClientProcess),
    Grpc(Peer),
}

/// Both sides under the same load.
pub(crate) struct Sides {
    /// `None` for gRPC clients, which call by themselves.
    load: Option<OpenLoad>,
    pub(crate) by_demand: Side,
    pub(crate) by_hosts: Side,
}

/// What happened to the requests of one side that started in a window.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Outcome {
    pub(crate) tally: Tally,
    /// Requests that the hosts of each zone answered.
    pub(crate) served: [u64; 3],
}

impl Outcome {
    /// Returns the highest load of a zone: its requests per host, relative to all requests per
    /// host.
    pub(crate) fn highest_load(&self) -> f64 {
        let most = self.served.into_iter().max().unwrap_or_default();
        most as f64 * ZONES.len() as f64 / self.tally.sent.max(1) as f64
    }
}

impl Sides {
    /// Starts both fleets and a load of `per_tick` in each zone, and waits until all requests of
    /// the one are routed by demand: no zone has a load far above 1.
    pub(crate) fn start(name: &str, setup: Setup, per_tick: [u64; 3]) -> Self {
        let start = |basis: Basis| {
            let directory = scratch(&format!("{name}-{basis:?}").to_lowercase());
            Side::start(&directory, setup, basis)
        };
        let by_demand = start(Basis::Demand);
        let by_hosts = start(Basis::Hosts);
        let addresses = by_demand.addresses().chain(by_hosts.addresses());
        let zones = ZONES.into_iter().cycle().map(str::to_owned);
        let targets: Vec<_> = addresses.zip(zones).collect();
        let load = (!targets.is_empty()).then(|| OpenLoad::start(&targets, TICK));
        let mut sides = Self {
            load,
            by_demand,
            by_hosts,
        };
        sides.set(per_tick);
        wait_until("the one side is routed by demand, the other is not", || {
            let [by_demand, by_hosts] = sides.window(300);
            let (is_level, by_hosts_is_level) = (
                by_demand.highest_load() < 1.13,
                by_hosts.highest_load() < 1.13,
            );
            let is_ready = match setup.routing {
                Routing::Demand | Routing::RelayedDemand => is_level && !by_hosts_is_level,
                // Weights by host count are level as well.
                Routing::Convergent => is_level && by_hosts_is_level,
                // No server here is slower than another.
                Routing::ObservedLoad => true,
            };
            is_ready && by_demand.tally.failed + by_hosts.tally.failed == 0
        });
        sides
    }

    /// Changes the requests per tick in each zone.
    pub(crate) fn set(&mut self, per_tick: [u64; 3]) {
        if let Some(load) = &self.load {
            load.set(&per_tick.repeat(2));
        }
        for side in [&mut self.by_demand, &mut self.by_hosts] {
            for (plane, count) in side.planes.iter_mut().zip(per_tick) {
                if let Plane::Grpc(peer) = plane {
                    peer.set_rate(u32::try_from(count).unwrap() * TICKS_PER_SECOND);
                }
            }
        }
    }

    /// Returns what happened to at least this many requests of each side.
    pub(crate) fn window(&mut self, requests: u64) -> [Outcome; 2] {
        let Some(load) = &self.load else {
            return self.grpc_window(requests);
        };
        wait_until("requests are sent", || load.sent() >= 2 * requests);
        let ended = load.end_window();
        // Before the last requests end, which takes long if hosts do not answer.
        let served = [&mut self.by_demand, &mut self.by_hosts].map(Side::take_served);
        let tallies = ended.wait();
        let (by_demand, by_hosts) = tallies.split_at(ZONES.len());
        outcomes([sum(by_demand), sum(by_hosts)], served)
    }

    /// As clients that call by themselves cannot be asked before their window ends, it consists of
    /// shorter ones.
    fn grpc_window(&mut self, requests: u64) -> [Outcome; 2] {
        let mut tallies = [Tally::default(); 2];
        let mut served = [[0; 3]; 2];
        wait_until("calls are sent", || {
            let mut sides = [&mut self.by_demand, &mut self.by_hosts];
            for side in &mut sides {
                side.peers().for_each(Peer::end_window);
            }
            for (sum, side) in served.iter_mut().zip(&mut sides) {
                let taken = side.take_served();
                sum.iter_mut()
                    .zip(taken)
                    .for_each(|(sum, count)| *sum += count);
            }
            for (tally, side) in tallies.iter_mut().zip(&mut sides) {
                side.peers().for_each(|peer| tally.add(peer.window()));
            }
            tallies.iter().all(|tally| tally.sent >= requests)
        });
        outcomes(tallies, served)
    }

    /// Kills hosts on both sides.
    pub(crate) fn for_backends(&self, change: impl Fn(&Backends)) {
        change(&self.by_demand.backends);
        change(&self.by_hosts.backends);
    }
}

impl Side {
    fn start(directory: &Path, setup: Setup, basis: Basis) -> Self {
        let zones = ZONES.map(|zone| (zone, setup.hosts));
        let backends = match setup.routing {
            _ if setup.data_plane.is_grpc() => Backends::start_grpc(&zones),
            Routing::Convergent | Routing::ObservedLoad => Backends::start_reporting(&zones),
            Routing::Demand | Routing::RelayedDemand => Backends::start(&zones),
        };
        let relayed = (setup.routing == Routing::RelayedDemand)
            .then(|| ManagementServer::start(directory, &relayed(&backends, "5s")));
        let config = match &relayed {
            Some(server) => relay_config(server, setup, basis),
            None => config(&backends, setup, basis),
        };
        let control = Control::start(directory, &config);
        let gate = Gate::to(control.xds);
        let start = |zone| Plane::start(directory, setup.data_plane, zone, control.xds, &gate);
        let side = Self {
            planes: ZONES.map(start).into(),
            gate,
            control,
            _relayed: relayed,
            backends: Arc::new(backends),
            served: Counts::new(),
            is_grpc: setup.data_plane.is_grpc(),
        };
        for address in side.addresses() {
            wait_until("the data plane serves", || get(address, "/").is_some());
        }
        side
    }

    /// Returns the addresses of data planes that take requests.
    fn addresses(&self) -> impl Iterator<Item = SocketAddr> {
        self.planes.iter().filter_map(|plane| match plane {
            Plane::Envoy(envoy) => Some(envoy.listener),
            Plane::Proxy(proxy) => Some(proxy.listener("ingress")),
            Plane::Client(client) => Some(client.address),
            Plane::Grpc(_) => None,
        })
    }

    /// Returns the load reports so far; 0 if the control plane does not respond.
    pub(crate) fn load_reports(&self) -> u64 {
        self.control.metric("load_reports_total")
    }

    /// Whether all data planes still run.
    pub(crate) fn is_alive(&mut self) -> bool {
        self.planes.iter_mut().all(|plane| match plane {
            Plane::Envoy(envoy) => envoy.is_alive(),
            Plane::Proxy(proxy) => proxy.is_alive(),
            Plane::Client(client) => client.is_alive(),
            Plane::Grpc(peer) => peer.is_alive(),
        })
    }

    fn peers(&mut self) -> impl Iterator<Item = &mut Peer> {
        self.planes.iter_mut().filter_map(|plane| match plane {
            Plane::Grpc(peer) => Some(peer),
            _ => None,
        })
    }

    /// Returns the requests that each zone answered since the last call.
    fn take_served(&mut self) -> [u64; 3] {
        let before = std::mem::replace(&mut self.served, self.backends.counts());
        ZONES.map(|zone| {
            let by_zone = |counts: &Counts| {
                // Health checks have no zone, and calls of gRPC clients neither.
                let is_request = |from: &String| self.is_grpc || !from.is_empty();
                let entries = counts.iter();
                let to_zone = entries.filter(|((from, to), _)| to == zone && is_request(from));
                to_zone.map(|(_, count)| count).sum::<u64>()
            };
            by_zone(&self.served) - by_zone(&before)
        })
    }
}

fn outcomes(tallies: [Tally; 2], served: [[u64; 3]; 2]) -> [Outcome; 2] {
    let [by_demand, by_hosts] = tallies;
    let [demand_served, hosts_served] = served;
    let outcome = |tally, served| Outcome { tally, served };
    [
        outcome(by_demand, demand_served),
        outcome(by_hosts, hosts_served),
    ]
}

impl Plane {
    fn start(
        directory: &Path,
        data_plane: DataPlane,
        zone: &str,
        control: SocketAddr,
        gate: &Gate,
    ) -> Self {
        match data_plane {
            DataPlane::Envoy => Self::envoy(CURRENT, directory, zone, control, gate),
            DataPlane::Envoy139 => Self::envoy("1.39.3", directory, zone, control, gate),
            DataPlane::Envoy138 => Self::envoy("1.38.3", directory, zone, control, gate),
            DataPlane::Module => {
                let address = gate.address.to_string();
                let mut args = vec!["envoy", "--module", "--zone", zone, "--region", "r1"];
                args.extend(["--control", &address, "--admin-port", "0"]);
                let mut bootstrap = bootstrap(&args);
                bootstrap["static_resources"]["listeners"] = json!([ingress()]);
                Self::Envoy(Envoy::start_with(directory, zone, CURRENT, &bootstrap))
            }
            DataPlane::Proxy => {
                let file = steered(zone, gate.address);
                Self::Proxy(Proxy::start(directory, zone, &file))
            }
            DataPlane::Client => {
                let client = ClientProcess::start_at(directory, ENTRY, gate.address, zone);
                Self::Client(client)
            }
            DataPlane::Grpc => Self::Grpc(Peer::load(directory, gate.address, zone)),
            DataPlane::GrpcJs => Self::Grpc(Peer::load_js(directory, gate.address, zone)),
        }
    }

    fn envoy(
        version: &'static str,
        directory: &Path,
        zone: &str,
        control: SocketAddr,
        gate: &Gate,
    ) -> Self {
        let spec = EnvoySpec {
            zone: zone.to_owned(),
            version,
            delta: false,
            control,
            reports_to: Some(gate.address),
        };
        Self::Envoy(Envoy::start(directory, &spec))
    }
}

fn sum(tallies: &[Tally]) -> Tally {
    let mut sum = Tally::default();
    tallies.iter().for_each(|tally| sum.add(*tally));
    sum
}

/// Clusters and endpoints are those of the other server.
fn relay_config(server: &ManagementServer, setup: Setup, basis: Basis) -> String {
    let mode = match basis {
        Basis::Demand => "ENFORCE",
        Basis::Hosts => "SHADOW",
    };
    format!(
        "load_reporting: {{interval: 1s}}
demand: {{smoothing_time_constant: 3s, material_change_bp: 10, heartbeat: 1s}}
relay: {{address: '{}'}}
services:
- mode: {mode}
  delivery: {}
  cluster: {{name: orders}}
",
        server.address(),
        setup.delivery,
    )
}

/// Returns the policies of a cluster as YAML in one line.
fn policies(setup: Setup, basis: Basis) -> String {
    let types = "type.googleapis.com/envoy.extensions.load_balancing_policies";
    let one = |name: &str, typed: &str| {
        format!(
            "{{policies: [{{typed_extension_config: \
             {{name: envoy.load_balancing_policies.{name}, typed_config: {{{typed}}}}}}}]}}"
        )
    };
    let child = format!("'@type': {types}.round_robin.v3.RoundRobin");
    let round_robin = |rules: &str| {
        let rules = format!("locality_lb_config: {{zone_aware_lb_config: {{{rules}}}}}");
        one("round_robin", &format!("{child}, {rules}"))
    };
    match (setup.routing, basis, setup.data_plane) {
        (Routing::Convergent, Basis::Demand, _) => {
            let child = one("round_robin", &child);
            let settings = format!(
                "'@type': {types}.load_aware_locality.v3.LoadAwareLocality, \
                 spill_controller: CONVERGENT, endpoint_picking_policy: {child}"
            );
            one("load_aware_locality", &settings)
        }
        (Routing::Convergent, Basis::Hosts, _) => round_robin("routing_enabled: {value: 0}"),
        (Routing::ObservedLoad, Basis::Demand, _) => {
            round_robin("min_cluster_size: 1, locality_basis: OBSERVED_LOAD")
        }
        (_, _, DataPlane::Module | DataPlane::Proxy | DataPlane::Client) => {
            round_robin("min_cluster_size: 1, lrs_rate_config: {staleness_threshold: 5s}")
        }
        _ => round_robin("min_cluster_size: 1"),
    }
}

/// gRPC clients have no zone-aware routing of their own: SHADOW sends to all hosts alike. What they
/// are sent without measured demand is routing by host counts, so their control plane asks for the
/// first report when the test has ended.
fn config(backends: &Backends, setup: Setup, basis: Basis) -> String {
    let (mode, interval) = match (basis, setup.data_plane) {
        (Basis::Demand, _) => ("ENFORCE", "1s"),
        (Basis::Hosts, data_plane) if data_plane.is_grpc() => ("ENFORCE", "300s"),
        (Basis::Hosts, _) => ("SHADOW", "1s"),
    };
    let endpoints = backends.endpoints();
    let Setup {
        delivery, field, ..
    } = setup;
    let field = field.trim_start();
    // Settings of demand are refused beside policies that have no use for it.
    let service = match setup.routing {
        Routing::Demand | Routing::RelayedDemand => {
            format!("mode: {mode}\n  delivery: {delivery}\n  ")
        }
        Routing::Convergent | Routing::ObservedLoad if basis == Basis::Hosts => {
            "mode: 'OFF'\n  ".to_owned()
        }
        Routing::Convergent | Routing::ObservedLoad => String::new(),
    };
    let policies = policies(setup, basis);
    let timeout = if field.contains("connect_timeout") {
        ""
    } else {
        "connect_timeout: 5s"
    };
    format!(
        "load_reporting: {{interval: {interval}}}
demand: {{smoothing_time_constant: 3s, material_change_bp: 10, heartbeat: 1s}}
fleets: {{endpoint_stale_after: 5s}}
services:
- {service}cluster:
    name: orders
    {timeout}
    {field}
    load_balancing_policy: {policies}
  endpoints:
{endpoints}"
    )
}
