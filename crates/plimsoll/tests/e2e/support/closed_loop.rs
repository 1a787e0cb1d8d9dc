//! [`ClosedLoop`]: three proxies or clients, servers in three zones that report their utilization,
//! and uneven demand.
//!
//! Time is counted in requests. Sources move in step, so a slow machine makes traffic slower and
//! never changes how it is spread.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use serde_json::{Value, json};

use super::client::ClientProcess;
use super::control::Control;
use super::envoy::{CURRENT, Envoy};
use super::http::get;
use super::load::{Load, Source};
use super::loop_quality::{Quality, host_factors, level_after};
use super::orca_backends::{ALIKE, OrcaBackends, UNLIKE, ZONES};
use super::proxy::{Proxy, cluster, everything, file, listener, steered_by};
use super::{scratch, wait_until};

/// Requests of each zone per tick: 60/20/20.
const DEMAND: [u64; 3] = [3, 1, 1];

/// What is measured.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Setup {
    pub(crate) name: &'static str,
    pub(crate) policy: Policy,
    /// `LOW_DISCREPANCY` or `RANDOM`; none is the default.
    pub(crate) sampling: Option<&'static str>,
    /// 216 are a mean utilization of 0.6, and 288 one of 0.8.
    pub(crate) requests_per_second: u32,
    pub(crate) meter: Duration,
}

/// How requests are spread over zones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Policy {
    /// `load_aware_locality` with this `spill_controller`.
    LoadAware(&'static str),
    /// The same in Envoy.
    Envoy,
    /// Measured demand from `plimsoll control`.
    LrsReportedRate,
    /// `CONVERGENT` from `plimsoll control`, led by measured demand or not.
    Convergent { led: bool },
    /// The same over `client_side_weighted_round_robin`, and servers that are not alike.
    LrsOverOrca(DataPlane),
}

/// Who balances.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DataPlane {
    /// `plimsoll proxy`.
    Proxy,
    /// Programs with the embedded client; the test of this name becomes one.
    Client(&'static str),
}

impl Policy {
    /// Capacities of the servers of a zone.
    const fn servers(self) -> &'static [f64] {
        match self {
            Self::LrsOverOrca(_) => UNLIKE,
            Self::LoadAware(_) | Self::Envoy | Self::LrsReportedRate | Self::Convergent { .. } => {
                ALIKE
            }
        }
    }
}

/// Everything. Dropped in this order: traffic, proxies, control plane.
pub(crate) struct ClosedLoop {
    setup: Setup,
    load: Option<Load>,
    pub(crate) proxies: Vec<Proxy>,
    clients: Vec<ClientProcess>,
    envoys: Vec<Envoy>,
    pub(crate) control: Option<Control>,
    backends: OrcaBackends,
    folder: PathBuf,
}

impl ClosedLoop {
    /// Starts a proxy per zone, and traffic at once: a cold start under full load.
    pub(crate) fn start(setup: Setup) -> Self {
        let mut world = Self {
            setup,
            load: None,
            proxies: Vec::new(),
            clients: Vec::new(),
            envoys: Vec::new(),
            control: None,
            backends: OrcaBackends::start(setup.meter, setup.policy.servers()),
            folder: scratch("closed-loop"),
        };
        let entrances = world.start_proxies();
        for entrance in &entrances {
            // No zone is named: servers do not count it.
            wait_until("the proxy serves", || get(*entrance, "/").is_some());
        }
        let sources = entrances.into_iter().zip(ZONES).zip(DEMAND);
        let sources = sources.map(|((to, zone), per_tick)| Source {
            to,
            from: zone.to_owned(),
            per_tick,
        });
        let per_tick = u32::try_from(DEMAND.iter().sum::<u64>()).unwrap();
        let tick = Duration::from_secs(u64::from(per_tick)) / setup.requests_per_second;
        world.load = Some(Load::start_at_rate(&sources.collect::<Vec<_>>(), tick));
        world
    }

    /// Waits for as many requests as so many seconds have.
    pub(crate) fn pass(&self, seconds: usize) {
        let per_second = usize::try_from(self.setup.requests_per_second).unwrap();
        for _ in 0..seconds {
            let from = self.backends.count();
            wait_until("requests arrive", || {
                self.backends.count() >= from + per_second
            });
        }
    }

    /// Judges so many seconds from now on.
    pub(crate) fn judge(&self, seconds: usize) -> Quality {
        self.judge_hosts(seconds).0
    }

    /// The same, and the load over the mean of every server, by zone.
    pub(crate) fn judge_hosts(&self, seconds: usize) -> (Quality, [Vec<f64>; 3]) {
        let from = self.backends.count();
        self.pass(seconds);
        let taken = self.backends.taken_from(from);
        let quality = Quality::of(&taken);
        let hosts = host_factors(&taken, self.setup.policy.servers());
        eprintln!("{}: {hosts:.3?}", self.setup.name);
        eprintln!("{}: {quality:.3?}", self.setup.name);
        assert_eq!(self.load.as_ref().unwrap().failed(), 0);
        let intended = f64::from(self.setup.requests_per_second) / 360.0;
        let slow = "the machine is too slow for this";
        assert!(quality.utilization > 0.8 * intended, "{slow}: {quality:?}");
        (quality, hosts)
    }

    /// What every data plane says about its routing.
    pub(crate) fn explanations(&self) -> Vec<Value> {
        let proxies = self.proxies.iter().map(|proxy| proxy.explain("orders"));
        let clients = self.clients.iter().map(ClientProcess::explain);
        proxies.chain(clients).collect()
    }

    /// Moves the demand, and says how many seconds later zones were level again, if they were
    /// within so many.
    pub(crate) fn step(&self, demand: [u64; 3], seconds: usize) -> Option<f64> {
        let (from, at) = (self.backends.count(), self.backends.now());
        let per_second = usize::try_from(self.setup.requests_per_second).unwrap();
        self.load.as_ref().unwrap().set(&demand);
        self.pass(seconds);
        let before = from.saturating_sub(10 * per_second);
        let level = level_after(&self.backends.taken_from(before), at);
        eprintln!(
            "{}: level {level:?} s after a step to {demand:?}",
            self.setup.name
        );
        assert_eq!(self.load.as_ref().unwrap().failed(), 0);
        level
    }

    /// Where the proxies take requests.
    fn start_proxies(&mut self) -> Vec<SocketAddr> {
        if let Policy::LrsOverOrca(DataPlane::Client(entry)) = self.setup.policy {
            return self.start_clients(entry);
        }
        let files = match self.setup.policy {
            Policy::LoadAware(controller) => self.static_files(Some(controller)),
            Policy::Envoy => self.static_files(None),
            Policy::LrsReportedRate | Policy::Convergent { .. } | Policy::LrsOverOrca(_) => {
                self.steered_files()
            }
        };
        let files = ZONES.into_iter().zip(&files);
        if self.setup.policy == Policy::Envoy {
            let start = |(zone, file)| Envoy::start_with(&self.folder, (zone, CURRENT), file);
            self.envoys = files.map(start).collect();
            return self.envoys.iter().map(|envoy| envoy.listener).collect();
        }
        let start = |(zone, file)| Proxy::start(&self.folder, zone, file);
        self.proxies = files.map(start).collect();
        let proxies = self.proxies.iter();
        proxies.map(|proxy| proxy.listener("entrance")).collect()
    }

    fn start_clients(&mut self, entry: &str) -> Vec<SocketAddr> {
        let control = Control::start(&self.folder, &self.control_config());
        let start = |zone| ClientProcess::start(&self.folder, entry, &control, zone);
        self.clients = ZONES.into_iter().map(start).collect();
        self.control = Some(control);
        self.clients.iter().map(|client| client.address).collect()
    }

    /// Files with the servers as a cluster; without a controller there is nothing in them that
    /// Envoy does not know.
    fn static_files(&self, spill_controller: Option<&str>) -> [Value; 3] {
        let child = typed("round_robin", "RoundRobin", json!({}));
        let mut settings = json!({ "endpoint_picking_policy": { "policies": [child] } });
        let mut orders = cluster("orders", &self.backends.addresses());
        if let Some(controller) = spill_controller {
            settings["spill_controller"] = json!(controller);
            orders["plimsoll"] = self.extensions();
        }
        let policy = typed("load_aware_locality", "LoadAwareLocality", settings);
        orders["load_balancing_policy"] = json!({ "policies": [policy] });
        let listeners = [listener("entrance", &everything("orders"))];
        ZONES.map(|zone| file(zone, &listeners, std::slice::from_ref(&orders)))
    }

    /// Our own settings of the cluster.
    fn extensions(&self) -> Value {
        match self.setup.sampling {
            Some(sampling) => json!({ "locality_sampling": sampling }),
            None => json!({}),
        }
    }

    /// Starts a control plane, and files that name it.
    fn steered_files(&mut self) -> [Value; 3] {
        let control = Control::start(&self.folder, &self.control_config());
        let xds = control.xds;
        self.control = Some(control);
        ZONES.map(|zone| {
            let local = json!({
                "name": "local_cluster",
                "type": "EDS",
                "eds_cluster_config": { "eds_config": { "ads": {} } },
            });
            let listeners = [listener("entrance", &everything("orders"))];
            let mut file = steered_by(file(zone, &listeners, &[local]), xds, "GRPC");
            file["cluster_manager"] = json!({
                "local_cluster_name": "local_cluster",
                "load_stats_config": file["dynamic_resources"]["ads_config"],
            });
            file
        })
    }

    fn control_config(&self) -> String {
        let (policy, smoothing) = match self.setup.policy {
            Policy::Convergent { led } => {
                let child = typed("round_robin", "RoundRobin", json!({}));
                let settings = json!({
                    "endpoint_picking_policy": { "policies": [child] },
                    "spill_controller": "CONVERGENT",
                    "demand_feed_forward": led,
                });
                let policy = typed("load_aware_locality", "LoadAwareLocality", settings);
                (policy, "1s")
            }
            // As an Envoy would have it: the control plane adds the zones.
            Policy::LrsOverOrca(_) => {
                let name = "client_side_weighted_round_robin";
                (typed(name, "ClientSideWeightedRoundRobin", json!({})), "5s")
            }
            _ => {
                let rules = json!({ "locality_basis": "LRS_REPORTED_RATE" });
                let settings = json!({ "locality_lb_config": { "zone_aware_lb_config": rules } });
                (typed("round_robin", "RoundRobin", settings), "5s")
            }
        };
        let zones = self.backends.addresses().into_iter().map(|(zone, hosts)| {
            json!({ "locality": { "region": "r1", "zone": zone }, "lb_endpoints": hosts })
        });
        let config = json!({
            "load_reporting": { "interval": "1s" },
            "demand": { "smoothing_time_constant": smoothing, "heartbeat": "1s" },
            "services": [{
                "cluster": {
                    "name": "orders",
                    "load_balancing_policy": { "policies": [policy] },
                    "plimsoll": self.extensions(),
                },
                "endpoints": zones.collect::<Vec<_>>(),
            }],
        });
        config.to_string()
    }
}

/// A policy as Envoy writes it.
fn typed(name: &str, message: &str, mut settings: Value) -> Value {
    let package = format!("envoy.extensions.load_balancing_policies.{name}.v3.{message}");
    settings["@type"] = json!(format!("type.googleapis.com/{package}"));
    json!({ "typed_extension_config": {
        "name": format!("envoy.load_balancing_policies.{name}"),
        "typed_config": settings,
    } })
}
