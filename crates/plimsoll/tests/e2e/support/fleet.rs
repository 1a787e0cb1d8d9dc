//! [`World`]: the worked example alive. Three zones with 3, 5 and 2 servers, one Envoy in each, and
//! traffic 50/35/15.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use super::backends::{Backends, Counts};
use super::control::Control;
use super::envoy::{CURRENT, Envoy, EnvoySpec};
use super::gate::Gate;
use super::http::get;
use super::load::{Load, Source};
use super::{scratch, wait_for, wait_until};

/// Traffic per tick by zone; what it is of the whole in basis points; servers.
pub(crate) const ZONES: [(&str, u64, u64, usize); 3] = [
    ("zone-a", 10, 5000, 3),
    ("zone-b", 7, 3500, 5),
    ("zone-c", 3, 1500, 2),
];
/// How near demand is to the example's when loads are judged, in basis points. As many of the
/// smallest zone's demand make 1.4 % of its load.
const NEAR: u64 = 30;
/// Requests by which loads are judged: their relative deviation is at most 1.1 %.
const ENOUGH: u64 = 12_000;
/// 20 requests per tick, so 800 requests per second.
const TICK: Duration = Duration::from_millis(25);

/// What a world is to be.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WorldSpec {
    pub(crate) name: &'static str,
    /// Further fields of the service `orders`.
    pub(crate) service: &'static str,
    pub(crate) version: &'static str,
    pub(crate) delta: bool,
}

/// Everything of one test. Dropped in this order: traffic, proxies, control plane.
pub(crate) struct World {
    pub(crate) load: Load,
    pub(crate) envoys: Vec<Envoy>,
    pub(crate) reports: Gate,
    pub(crate) control: Control,
    pub(crate) backends: Backends,
}

impl Default for WorldSpec {
    fn default() -> Self {
        Self {
            name: "world",
            service: "delivery: FLEET_WEIGHTS",
            version: CURRENT,
            delta: false,
        }
    }
}

impl World {
    /// Starts everything and waits until every Envoy knows the upstream cluster.
    pub(crate) fn start(spec: &WorldSpec) -> Self {
        let folder = scratch(spec.name);
        let backends = start_backends();
        let config = config(&backends, spec.service, "");
        Self::start_with(spec, &folder, backends, &config)
    }

    /// The same with another configuration.
    pub(crate) fn start_with(
        spec: &WorldSpec,
        folder: &Path,
        backends: Backends,
        config: &str,
    ) -> Self {
        let control = Control::start(folder, config);
        let reports = Gate::to(control.xds);
        let envoys: Vec<_> = ZONES
            .iter()
            .map(|(zone, ..)| start_envoy(folder, spec, zone, &control, &reports))
            .collect();
        wait_until(
            "every Envoy knows its fleet and the upstream cluster",
            || {
                envoys.iter().all(|envoy| {
                    let zones = |cluster| envoy.weights(cluster).len();
                    (zones("local_cluster"), zones("orders")) == (3, 3)
                })
            },
        );
        // The admin page knows a cluster a moment before the workers do.
        wait_until("every Envoy serves", || {
            envoys
                .iter()
                .all(|envoy| get(envoy.listener, "/").is_some())
        });
        Self {
            load: Load::start(&sources(&envoys), TICK),
            envoys,
            reports,
            control,
            backends,
        }
    }

    /// The configuration with other fields of the service, or more beside it.
    pub(crate) fn config(&self, service: &str, more: &str) -> String {
        config(&self.backends, service, more)
    }

    /// Waits until measured demand is known to within `bp` and in force.
    pub(crate) fn wait_for_demand(&self, bp: u64) {
        wait_until("demand is measured and delivered", || {
            is_near(&self.control.service_fractions("orders"), bp)
        });
    }

    /// Waits until Envoys have weights that say the measured demand to within `bp`.
    pub(crate) fn wait_for_fleet_weights(&self, bp: u64) {
        wait_until("Envoys have the weights of measured demand", || {
            let known = |envoy: &Envoy| is_near(&shares(&envoy.weights("local_cluster")), bp);
            self.envoys.iter().all(known)
        });
    }

    /// Fails unless every zone has its fair load.
    pub(crate) fn assert_fair(&self) {
        let known = || is_near(&self.control.service_fractions("orders"), NEAR);
        assert_fair(&self.backends, &self.load, known);
    }

    /// What backends count while `requests` more are answered.
    pub(crate) fn measure(&self, requests: u64) -> Counts {
        measure(&self.backends, &self.load, requests)
    }
}

/// The servers of the example.
pub(crate) fn start_backends() -> Backends {
    Backends::start(&ZONES.map(|(zone, _, _, hosts)| (zone, hosts)))
}

/// What backends count while `requests` more are answered by `load`.
pub(crate) fn measure(backends: &Backends, load: &Load, requests: u64) -> Counts {
    let (before, from) = (backends.counts(), load.succeeded());
    wait_until("requests are answered", || {
        load.succeeded() >= from + requests
    });
    let mut counts = backends.counts();
    for (key, count) in &mut counts {
        *count -= before.get(key).copied().unwrap_or_default();
    }
    counts
}

/// Load per server over the mean, by zone.
pub(crate) fn load_factors(backends: &Backends, counts: &Counts) -> BTreeMap<String, f64> {
    let total: u64 = counts.values().sum();
    let hosts: usize = backends.hosts().map(|(_, hosts)| hosts).sum();
    let mean = total as f64 / hosts as f64;
    let factor = |(zone, hosts): (&str, usize)| {
        let to_zone = counts.iter().filter(|((_, to), _)| to == zone);
        let served: u64 = to_zone.map(|(_, count)| count).sum();
        (zone.to_owned(), served as f64 / hosts as f64 / mean)
    };
    backends.hosts().map(factor).collect()
}

/// Where the requests of one zone go: shares by zone.
pub(crate) fn shares_from(counts: &Counts, from: &str) -> BTreeMap<String, f64> {
    let own = counts.iter().filter(|((origin, _), _)| origin == from);
    let own: Vec<_> = own.map(|((_, to), count)| (to.clone(), *count)).collect();
    let total: u64 = own.iter().map(|(_, count)| count).sum();
    let share = |(to, count)| (to, count as f64 / total as f64);
    own.into_iter().map(share).collect()
}

/// Fails unless every zone has its fair load per server to within 5 % while demand is `known`.
/// Where the machine held traffic up meanwhile, demand was not what the example says, and loads say
/// nothing: then they are measured again.
pub(crate) fn assert_fair(backends: &Backends, load: &Load, known: impl Fn() -> bool) {
    let counts = wait_for("demand holds while loads are measured", || {
        wait_until("demand is known", &known);
        let counts = measure(backends, load, ENOUGH);
        known().then_some(counts)
    });
    let factors = load_factors(backends, &counts);
    eprintln!("load per server over the mean: {factors:.3?}");
    for (zone, factor) in &factors {
        assert!(
            (factor - 1.0).abs() < 0.05,
            "{zone}: {factors:?} of {counts:?}"
        );
    }
}

/// Requests of one zone as fast as they go, past the pace of the example.
pub(crate) fn burst(envoy: &Envoy) -> Load {
    let source = Source {
        to: envoy.listener,
        from: envoy.zone.clone(),
        per_tick: 50,
    };
    Load::start(&vec![source; 4], Duration::ZERO)
}

/// Weights as shares in basis points.
pub(crate) fn shares(weights: &BTreeMap<String, u64>) -> BTreeMap<String, u64> {
    let total: u64 = weights.values().sum::<u64>().max(1);
    let share = |(zone, weight): (&String, &u64)| (zone.clone(), weight * 10_000 / total);
    weights.iter().map(share).collect()
}

fn sources(envoys: &[Envoy]) -> Vec<Source> {
    let source = |(envoy, zone): (&Envoy, &(&str, u64, u64, usize))| Source {
        to: envoy.listener,
        from: envoy.zone.clone(),
        per_tick: zone.1,
    };
    envoys.iter().zip(&ZONES).map(source).collect()
}

fn start_envoy(
    folder: &Path,
    spec: &WorldSpec,
    zone: &str,
    control: &Control,
    reports: &Gate,
) -> Envoy {
    let spec = EnvoySpec {
        zone: zone.to_owned(),
        version: spec.version,
        delta: spec.delta,
        control: control.xds,
        reports_to: Some(reports.address),
    };
    Envoy::start(folder, &spec)
}

fn is_near(fractions: &BTreeMap<String, u64>, bp: u64) -> bool {
    ZONES.iter().all(|(zone, _, expected, _)| {
        let found = fractions.get(*zone);
        found.is_some_and(|found| found.abs_diff(*expected) <= bp)
    })
}

fn config(backends: &Backends, service: &str, more: &str) -> String {
    let endpoints = backends.endpoints();
    let policy = "type.googleapis.com/envoy.extensions.load_balancing_policies.round_robin.v3";
    format!(
        "load_reporting: {{interval: 1s}}
demand: {{smoothing_time_constant: 5s, material_change_bp: 10}}
services:
- {service}
  cluster:
    name: orders
    connect_timeout: 5s
    load_balancing_policy:
      policies:
      - typed_extension_config:
          name: envoy.load_balancing_policies.round_robin
          typed_config:
            '@type': {policy}.RoundRobin
            locality_lb_config: {{zone_aware_lb_config: {{min_cluster_size: 1}}}}
  endpoints:
{endpoints}{more}"
    )
}
