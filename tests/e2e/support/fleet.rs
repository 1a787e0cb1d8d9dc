//! Small fleet: three zones with 3, 5 and 2 servers, one Envoy in each, and traffic 50/35/15.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;
use std::time::Duration;

use plimsoll_testing::http::get;

use super::backends::{Backends, Counts};
use super::control::Control;
use super::envoy::{CURRENT, Envoy, EnvoySpec};
use super::gate::Gate;
use super::load::{Load, Source};
use super::{scratch, wait_to_see, wait_until};

/// Zone, requests per tick, share of demand in basis points, number of servers.
pub(crate) const ZONES: [(&str, u64, u64, usize); 3] = [
    ("zone-a", 10, 5000, 3),
    ("zone-b", 7, 3500, 5),
    ("zone-c", 3, 1500, 2),
];
/// Tolerance of the known demand when loads are asserted, in basis points: 1.4 % of the load of the
/// smallest zone.
const TOLERANCE_BP: u64 = 30;
/// Number of requests to measure loads; their relative standard deviation is at most 1.1 %.
const REQUESTS: u64 = 12_000;
/// Largest deviation of a load from fair. By host counts it is 0.5; what is tolerated of the
/// demand makes it 0.014, and chance adds 0.1 once in 10^18 measurements (9 standard deviations).
const UNFAIR: f64 = 0.12;
/// Number of requests between two looks at the demand: half a second.
const SLICE: u64 = 400;
/// 20 requests per tick are 800 per second.
const TICK: Duration = Duration::from_millis(25);

/// Properties of a [`Testbed`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct TestbedSpec {
    pub(crate) name: &'static str,
    /// Further fields of the service `orders`.
    pub(crate) service: &'static str,
    pub(crate) version: &'static str,
    pub(crate) delta: bool,
}

/// Processes of the test. Dropped in this order: traffic, proxies, control plane.
pub(crate) struct Testbed {
    pub(crate) load: Load,
    pub(crate) envoys: Vec<Envoy>,
    pub(crate) reports: Gate,
    pub(crate) control: Control,
    pub(crate) backends: Backends,
}

impl Default for TestbedSpec {
    fn default() -> Self {
        Self {
            name: "testbed",
            service: "delivery: FLEET_WEIGHTS",
            version: CURRENT,
            delta: false,
        }
    }
}

impl Testbed {
    /// Starts everything and waits until every Envoy knows the upstream cluster.
    pub(crate) fn start(spec: &TestbedSpec) -> Self {
        let directory = scratch(spec.name);
        let backends = start_backends();
        let config = config(&backends, spec.service, "");
        Self::start_with(spec, &directory, backends, &config)
    }

    /// Starts everything with another configuration of the control plane, which has `orders`.
    pub(crate) fn start_with(
        spec: &TestbedSpec,
        directory: &Path,
        backends: Backends,
        config: &str,
    ) -> Self {
        let control = Control::start(directory, config);
        let reports = Gate::to(control.xds);
        let envoys: Vec<_> = ZONES
            .iter()
            .map(|(zone, ..)| start_envoy(directory, spec, zone, &control, &reports))
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
        // Envoy's admin interface shows a cluster slightly before the workers use it.
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

    /// Returns the configuration with other fields of the service, and `more` at the end.
    pub(crate) fn config(&self, service: &str, more: &str) -> String {
        config(&self.backends, service, more)
    }

    /// Waits until the delivered fractions are correct to within `bp` basis points.
    pub(crate) fn wait_for_demand(&self, bp: u64) {
        let fractions = || self.control.service_fractions("orders");
        wait_to_see("demand is measured and delivered", fractions, |seen| {
            is_close(seen, bp)
        });
    }

    /// Waits until the weights in Envoys match the demand to within `bp` basis points.
    pub(crate) fn wait_for_fleet_weights(&self, bp: u64) {
        let weights = |envoy: &Envoy| shares(&envoy.weights("local_cluster"));
        let all = || self.envoys.iter().map(weights).collect::<Vec<_>>();
        let what = "Envoys have the weights of measured demand";
        wait_to_see(what, all, |seen| {
            seen.iter().all(|shares| is_close(shares, bp))
        });
    }

    /// Asserts that every zone has its fair load.
    pub(crate) fn assert_fair(&self) {
        let known = || is_close(&self.control.service_fractions("orders"), TOLERANCE_BP);
        assert_fair(&self.backends, &self.load, known);
    }

    /// Returns the counts of backends over the next `requests`.
    pub(crate) fn measure(&self, requests: u64) -> Counts {
        measure(&self.backends, &self.load, requests)
    }
}

/// Starts the servers of all zones.
pub(crate) fn start_backends() -> Backends {
    start_backends_on(Ipv4Addr::LOCALHOST.into())
}

/// Starts the servers of all zones on another address of this machine.
pub(crate) fn start_backends_on(address: IpAddr) -> Backends {
    Backends::start_on(address, &ZONES.map(|(zone, _, _, hosts)| (zone, hosts)))
}

/// Returns the counts of backends over the next `requests` of `load`.
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

/// Returns the load per server relative to the mean, by zone.
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

/// Returns the shares of one zone's requests by target zone.
pub(crate) fn shares_from(counts: &Counts, from: &str) -> BTreeMap<String, f64> {
    let own: Vec<_> = counts
        .iter()
        .filter(|((origin, _), _)| origin == from)
        .map(|((_, to), count)| (to.clone(), *count))
        .collect();
    let total: u64 = own.iter().map(|(_, count)| count).sum();
    let share = |(to, count)| (to, count as f64 / total as f64);
    own.into_iter().map(share).collect()
}

/// Asserts that the load per server of every zone is fair while `known` holds for the demand. On a
/// busy machine a proxy's report may come late, the known demand deviates until the next one, and
/// the split follows it: requests of such slices of time are not counted.
pub(crate) fn assert_fair(backends: &Backends, load: &Load, known: impl Fn() -> bool) {
    let (counts, left_out) = measure_while(backends, load, &known);
    let factors = load_factors(backends, &counts);
    eprintln!("load per server over the mean: {factors:.3?}; slices left out: {left_out}");
    for (zone, factor) in &factors {
        assert!(
            (factor - 1.0).abs() < UNFAIR,
            "{zone}: {factors:?} of {counts:?}"
        );
    }
}

/// Returns the counts of backends over at least [`REQUESTS`], taken in slices of [`SLICE`] at whose
/// beginning and end `known` holds, and the number of slices where it did not.
fn measure_while(backends: &Backends, load: &Load, known: impl Fn() -> bool) -> (Counts, u64) {
    let mut counts = Counts::new();
    let mut left_out = 0;
    wait_until("demand is known", &known);
    while counts.values().sum::<u64>() < REQUESTS {
        let slice = measure(backends, load, SLICE);
        if !known() {
            left_out += 1;
            assert!(left_out < 100, "demand does not stay known");
            wait_until("demand is known again", &known);
            continue;
        }
        for (key, count) in slice {
            *counts.entry(key).or_default() += count;
        }
    }
    (counts, left_out)
}

/// Starts additional requests of one zone at full speed.
pub(crate) fn burst(envoy: &Envoy) -> Load {
    let source = Source {
        to: envoy.listener,
        from: envoy.zone.clone(),
        per_tick: 50,
    };
    Load::start(&vec![source; 4], Duration::ZERO)
}

/// Converts weights to shares in basis points.
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
    directory: &Path,
    spec: &TestbedSpec,
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
    Envoy::start(directory, &spec)
}

pub(crate) fn is_close(fractions: &BTreeMap<String, u64>, bp: u64) -> bool {
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
