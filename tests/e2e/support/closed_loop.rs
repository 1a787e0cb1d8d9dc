//! Closed loop of three proxies or clients, servers in three zones that report their utilization,
//! and uneven demand.
//!
//! Time is counted in requests. All sources advance in lockstep, so a slow machine makes traffic
//! slower but does not change its distribution.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use plimsoll_testing::http::get;
use serde_json::{Value, json};

use super::client::ClientProcess;
use super::control::{Control, bootstrap};
use super::envoy::{CURRENT, Envoy, ingress};
use super::load::{Load, Source};
use super::loop_quality::{Quality, busiest_host, host_factors, settling_time};
use super::orca_backends::{MIXED, OrcaBackends, UNIFORM, ZONES};
use super::proxy::{Proxy, cluster, file, listener, route_all_to, steered};
use super::{scratch, wait_until};

/// Requests of each zone per tick: 60/20/20.
const DEMAND: [u64; 3] = [3, 1, 1];

/// Parameters of a measurement.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Setup {
    pub(crate) name: &'static str,
    pub(crate) policy: Policy,
    /// `LOW_DISCREPANCY` or `RANDOM`; `None` for the default.
    pub(crate) sampling: Option<&'static str>,
    /// 216 give a mean utilization of 0.6, 288 of 0.8.
    pub(crate) requests_per_second: u32,
    pub(crate) meter: Duration,
    /// `weight_expiration_period` of load reports; `None` for the default.
    pub(crate) expiration: Option<&'static str>,
    pub(crate) is_out_of_band: bool,
}

/// How requests are distributed over zones.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Policy {
    /// `load_aware_locality` with this `spill_controller`.
    LoadAware(&'static str),
    /// `load_aware_locality` in an Envoy.
    Envoy,
    /// `load_aware_locality` of the module inside an Envoy, with this `spill_controller`.
    Module(&'static str),
    /// Measured demand in the module inside an Envoy, which has everything from `plimsoll control`.
    ModuleLrs,
    /// Measured demand as locality weights, which the Envoy's own policy follows, in the same way.
    ModuleWeights,
    /// `CONVERGENT` in the same way, with or without demand as feed-forward.
    ModuleConvergent { feed_forward: bool },
    /// Measured demand from `plimsoll control`.
    LrsReportedRate,
    /// `CONVERGENT` from `plimsoll control`, with or without demand as feed-forward.
    Convergent { feed_forward: bool },
    /// `CONVERGENT` without feed-forward in programs with the embedded client, started through the
    /// test of this name.
    ConvergentInClients(&'static str),
    /// Measured demand for zones and `client_side_weighted_round_robin` for servers of unequal
    /// size.
    LrsOverOrca(DataPlane),
    /// A service with these settings, from `plimsoll control`.
    Service(ServiceSettings),
}

/// Settings of the service `orders` beside its cluster and its endpoints.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct ServiceSettings {
    /// As JSON, where `CAPACITY` is what the first server serves.
    pub(crate) json: &'static str,
    pub(crate) is_in_envoys: bool,
    /// Capacities of the servers of a zone.
    pub(crate) servers: &'static [f64],
}

/// Kind of data plane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DataPlane {
    Proxy,
    /// Programs with the embedded client, started through the test of this name.
    Client(&'static str),
}

impl Policy {
    const fn is_envoy(self) -> bool {
        matches!(
            self,
            Self::Envoy
                | Self::Module(_)
                | Self::ModuleLrs
                | Self::ModuleWeights
                | Self::ModuleConvergent { .. }
                | Self::Service(ServiceSettings {
                    is_in_envoys: true,
                    ..
                })
        )
    }

    /// Returns the capacities of the servers of a zone.
    const fn servers(self) -> &'static [f64] {
        match self {
            Self::LrsOverOrca(_) => MIXED,
            Self::Service(settings) => settings.servers,
            Self::LoadAware(_)
            | Self::Envoy
            | Self::Module(_)
            | Self::ModuleLrs
            | Self::ModuleWeights
            | Self::ModuleConvergent { .. }
            | Self::LrsReportedRate
            | Self::Convergent { .. }
            | Self::ConvergentInClients(_) => UNIFORM,
        }
    }
}

/// Processes of the test. Dropped in this order: traffic, proxies, control plane.
pub(crate) struct ClosedLoop {
    setup: Setup,
    load: Option<Load>,
    pub(crate) proxies: Vec<Proxy>,
    clients: Vec<ClientProcess>,
    pub(crate) envoys: Vec<Envoy>,
    pub(crate) control: Option<Control>,
    backends: OrcaBackends,
    directory: PathBuf,
}

impl ClosedLoop {
    /// Starts a proxy per zone and full traffic: a cold start under load.
    pub(crate) fn start(setup: Setup) -> Self {
        let mut closed_loop = Self {
            setup,
            load: None,
            proxies: Vec::new(),
            clients: Vec::new(),
            envoys: Vec::new(),
            control: None,
            backends: OrcaBackends::start(
                setup.meter,
                setup.policy.servers(),
                setup.is_out_of_band,
            ),
            directory: scratch("closed-loop"),
        };
        let listeners = closed_loop.start_proxies();
        for ingress in &listeners {
            // Servers do not count requests without a zone.
            wait_until("the proxy serves", || get(*ingress, "/").is_some());
        }
        let zones = listeners.into_iter().zip(ZONES).zip(DEMAND);
        let sources = zones.map(|((to, zone), per_tick)| Source {
            to,
            from: zone.to_owned(),
            per_tick,
        });
        let per_tick = u32::try_from(DEMAND.iter().sum::<u64>()).unwrap();
        let tick = Duration::from_secs(u64::from(per_tick)) / setup.requests_per_second;
        closed_loop.load = Some(Load::start_at_rate(&sources.collect::<Vec<_>>(), tick));
        closed_loop
    }

    /// Waits for the number of requests of this many seconds.
    pub(crate) fn run_for(&self, seconds: usize) {
        let per_second = usize::try_from(self.setup.requests_per_second).unwrap();
        for _ in 0..seconds {
            let from = self.backends.count();
            wait_until("requests arrive", || {
                self.backends.count() >= from + per_second
            });
        }
    }

    /// Measures the next `seconds`.
    pub(crate) fn measure(&self, seconds: usize) -> Quality {
        self.measure_hosts(seconds).0
    }

    /// Measures the next `seconds`; also returns the relative load of every server, by zone.
    pub(crate) fn measure_hosts(&self, seconds: usize) -> (Quality, [Vec<f64>; 3]) {
        let from = self.backends.count();
        self.run_for(seconds);
        let requests = self.backends.requests_from(from);
        let quality = Quality::of(&requests);
        let hosts = host_factors(&requests, self.setup.policy.servers());
        eprintln!("{}: {hosts:.3?}", self.setup.name);
        eprintln!("{}: {quality:.3?}", self.setup.name);
        assert_eq!(self.load.as_ref().unwrap().failed(), 0);
        let intended = f64::from(self.setup.requests_per_second) / 360.0;
        let slow = "the machine is too slow for this test";
        assert!(quality.utilization > 0.8 * intended, "{slow}: {quality:?}");
        (quality, hosts)
    }

    /// Measures the next `seconds`; returns the busiest server relative to the mean in windows of
    /// five seconds, average and maximum.
    pub(crate) fn measure_busiest_host(&self, seconds: usize) -> (f64, f64) {
        let from = self.backends.count();
        self.run_for(seconds);
        let requests = self.backends.requests_from(from);
        let busiest = busiest_host(&requests, self.setup.policy.servers());
        eprintln!("{}: busiest host {busiest:.3?}", self.setup.name);
        assert_eq!(self.load.as_ref().unwrap().failed(), 0);
        busiest
    }

    /// Returns the explanation of every data plane.
    pub(crate) fn explanations(&self) -> Vec<Value> {
        let proxies = self.proxies.iter().map(|proxy| proxy.explain("orders"));
        let clients = self.clients.iter().map(ClientProcess::explain);
        proxies.chain(clients).collect()
    }

    /// Changes the demand and returns the seconds until zones are even again; `None` if they are
    /// not within `seconds`.
    pub(crate) fn step(&self, demand: [u64; 3], seconds: usize) -> Option<f64> {
        let (from, at) = (self.backends.count(), self.backends.now());
        let per_second = usize::try_from(self.setup.requests_per_second).unwrap();
        self.load.as_ref().unwrap().set(&demand);
        self.run_for(seconds);
        let before = from.saturating_sub(10 * per_second);
        let settled = settling_time(&self.backends.requests_from(before), at);
        eprintln!(
            "{}: settled {settled:?} s after a step to {demand:?}",
            self.setup.name
        );
        assert_eq!(self.load.as_ref().unwrap().failed(), 0);
        settled
    }

    /// Starts the data planes and returns the addresses of their listeners.
    fn start_proxies(&mut self) -> Vec<SocketAddr> {
        if let Policy::LrsOverOrca(DataPlane::Client(entry)) | Policy::ConvergentInClients(entry) =
            self.setup.policy
        {
            return self.start_clients(entry);
        }
        let files = match self.setup.policy {
            Policy::LoadAware(controller) => self.static_files(Some(controller)),
            Policy::Envoy => self.static_files(None),
            Policy::Module(controller) => self.module_files(controller),
            Policy::ModuleLrs | Policy::ModuleWeights | Policy::ModuleConvergent { .. } => {
                self.control_files(&["--module"])
            }
            Policy::Service(settings) if settings.is_in_envoys => self.control_files(&[]),
            Policy::LrsReportedRate
            | Policy::Convergent { .. }
            | Policy::ConvergentInClients(_)
            | Policy::LrsOverOrca(_)
            | Policy::Service(_) => self.dynamic_files(),
        };
        let files = ZONES.into_iter().zip(&files);
        if self.setup.policy.is_envoy() {
            let start = |(zone, file)| Envoy::start_with(&self.directory, zone, CURRENT, file);
            self.envoys = files.map(start).collect();
            return self.envoys.iter().map(|envoy| envoy.listener).collect();
        }
        let start = |(zone, file)| Proxy::start(&self.directory, zone, file);
        self.proxies = files.map(start).collect();
        let proxies = self.proxies.iter();
        proxies.map(|proxy| proxy.listener("ingress")).collect()
    }

    fn start_clients(&mut self, entry: &str) -> Vec<SocketAddr> {
        let control = Control::start(&self.directory, &self.control_config());
        let start = |zone| ClientProcess::start(&self.directory, entry, &control, zone);
        self.clients = ZONES.into_iter().map(start).collect();
        self.control = Some(control);
        self.clients.iter().map(|client| client.address).collect()
    }

    /// Returns configurations with the servers as a static cluster; without a controller they have
    /// only fields that Envoy supports.
    fn static_files(&self, spill_controller: Option<&str>) -> [Value; 3] {
        let child = typed("round_robin", "RoundRobin", json!({}));
        let mut settings = json!({ "endpoint_picking_policy": { "policies": [child] } });
        self.add_report_settings(&mut settings);
        let mut orders = cluster("orders", &self.backends.addresses());
        if let Some(controller) = spill_controller {
            settings["spill_controller"] = json!(controller);
            orders["plimsoll"] = self.extensions();
        }
        let policy = typed("load_aware_locality", "LoadAwareLocality", settings);
        orders["load_balancing_policy"] = json!({ "policies": [policy] });
        let listeners = [listener("ingress", &route_all_to("orders"))];
        ZONES.map(|zone| file(zone, &listeners, std::slice::from_ref(&orders)))
    }

    /// Returns configurations of Envoys whose policy is the module with `load_aware_locality`.
    fn module_files(&self, spill_controller: &str) -> [Value; 3] {
        let child = typed("round_robin", "RoundRobin", json!({}));
        let mut settings = json!({
            "endpoint_picking_policy": { "policies": [child] },
            "spill_controller": spill_controller,
        });
        self.add_report_settings(&mut settings);
        let policy = typed("load_aware_locality", "LoadAwareLocality", settings);
        let listeners = [listener("ingress", &route_all_to("orders"))];
        ZONES.map(|zone| {
            let mut orders = cluster("orders", &self.backends.addresses());
            orders["load_balancing_policy"] = module_policy(&json!({
                "node": { "locality": { "region": "r1", "zone": zone } },
                "cluster": {
                    "load_balancing_policy": { "policies": [policy] },
                    "plimsoll": self.extensions(),
                },
            }));
            orders["typed_extension_protocol_options"] = orca_filter();
            file(zone, &listeners, &[orders])
        })
    }

    /// Starts a control plane and returns bootstraps of Envoys, which may announce the module to
    /// it; their cluster with its policy comes from the control plane.
    fn control_files(&mut self, options: &[&str]) -> [Value; 3] {
        let control = Control::start(&self.directory, &self.control_config());
        let address = control.xds.to_string();
        self.control = Some(control);
        ZONES.map(|zone| {
            let mut args = vec!["envoy", "--zone", zone, "--region", "r1"];
            args.extend(options);
            args.extend(["--control", &address, "--admin-port", "0"]);
            let mut bootstrap = bootstrap(&args);
            bootstrap["static_resources"]["listeners"] = json!([ingress()]);
            bootstrap
        })
    }

    /// Returns our extensions of the cluster.
    fn extensions(&self) -> Value {
        match self.setup.sampling {
            Some(sampling) => json!({ "locality_sampling": sampling }),
            None => json!({}),
        }
    }

    /// Starts a control plane and returns configurations that use it.
    fn dynamic_files(&mut self) -> [Value; 3] {
        let control = Control::start(&self.directory, &self.control_config());
        let xds = control.xds;
        self.control = Some(control);
        ZONES.map(|zone| steered(zone, xds))
    }

    fn convergent(&self, feed_forward: bool) -> Value {
        let child = typed("round_robin", "RoundRobin", json!({}));
        let mut settings = json!({
            "endpoint_picking_policy": { "policies": [child] },
            "spill_controller": "CONVERGENT",
            "demand_feed_forward": feed_forward,
        });
        self.add_report_settings(&mut settings);
        typed("load_aware_locality", "LoadAwareLocality", settings)
    }

    /// Adds where load reports come from and when they expire.
    fn add_report_settings(&self, settings: &mut Value) {
        if let Some(expiration) = self.setup.expiration {
            settings["weight_expiration_period"] = json!(expiration);
        }
        if let Some(port) = self.backends.out_of_band_port() {
            settings["enable_oob_load_report"] = json!(true);
            settings["oob_reporting_period"] = json!("0.2s");
            settings["oob_reporting_config"] = json!({ "port_value": port });
        }
    }

    /// Stops the load reports of the servers in these zones, and starts those of the others.
    pub(crate) fn silence(&self, zones: &[usize]) {
        self.backends.silence(zones);
    }

    /// Sets the requests of each zone per tick.
    pub(crate) fn set_demand(&self, demand: [u64; 3]) {
        self.load.as_ref().unwrap().set(&demand);
    }

    fn control_config(&self) -> String {
        let (policy, smoothing) = match self.setup.policy {
            Policy::Convergent { feed_forward } | Policy::ModuleConvergent { feed_forward } => {
                (self.convergent(feed_forward), "1s")
            }
            Policy::ConvergentInClients(_) => (self.convergent(false), "1s"),
            // As for an Envoy; the control plane adds zone-aware routing.
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
        let is_by_weights = self.setup.policy == Policy::ModuleWeights;
        let mut config = json!({
            "load_reporting": { "interval": "1s" },
            "demand": { "smoothing_time_constant": smoothing, "heartbeat": "1s" },
            "services": [{
                "delivery": if is_by_weights { "LOCALITY_WEIGHTS" } else { "AUTO" },
                "cluster": {
                    "name": "orders",
                    "load_balancing_policy": { "policies": [policy] },
                    "plimsoll": self.extensions(),
                },
                "endpoints": zones.collect::<Vec<_>>(),
            }],
        });
        if let Policy::Service(settings) = self.setup.policy {
            let capacity = settings.servers[0].to_string();
            let written = settings.json.replace("CAPACITY", &capacity);
            let written: Value = serde_json::from_str(&written).unwrap();
            let service = config["services"][0].as_object_mut().unwrap();
            service.extend(written.as_object().unwrap().clone());
        }
        config.to_string()
    }
}

/// Returns the module as a policy of an Envoy.
fn module_policy(config: &Value) -> Value {
    let settings = json!({
        "dynamic_module_config": { "name": "plimsoll_envoy" },
        "lb_policy_name": "plimsoll",
        "lb_policy_config": {
            "@type": "type.googleapis.com/google.protobuf.Struct",
            "value": config,
        },
    });
    let policy = typed(
        "dynamic_modules",
        "DynamicModulesLoadBalancerConfig",
        settings,
    );
    json!({ "policies": [policy] })
}

/// Returns protocol options with the module's filter for load reports.
fn orca_filter() -> Value {
    let extensions = "type.googleapis.com/envoy.extensions";
    let options = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions";
    let filter = json!({
        "@type": format!("{extensions}.filters.http.dynamic_modules.v3.DynamicModuleFilter"),
        "dynamic_module_config": { "name": "plimsoll_envoy" },
        "filter_name": "plimsoll.orca",
    });
    let codec = format!("{extensions}.filters.http.upstream_codec.v3.UpstreamCodec");
    json!({ options: {
        "@type": format!("type.googleapis.com/{options}"),
        "explicit_http_config": { "http_protocol_options": {} },
        "http_filters": [
            { "name": "plimsoll.orca", "typed_config": filter },
            { "name": "envoy.filters.http.upstream_codec", "typed_config": { "@type": codec } },
        ],
    } })
}

/// Wraps a policy in Envoy's `typed_extension_config`.
fn typed(name: &str, message: &str, mut settings: Value) -> Value {
    let package = format!("envoy.extensions.load_balancing_policies.{name}.v3.{message}");
    settings["@type"] = json!(format!("type.googleapis.com/{package}"));
    json!({ "typed_extension_config": {
        "name": format!("envoy.load_balancing_policies.{name}"),
        "typed_config": settings,
    } })
}
