//! Runs the recorded cases of `load_aware_locality` through the module: hosts as Envoy shows them
//! and load reports as the filter finds them in responses in, locality weights out.
//!
//! A case may tick twice at the same time, which a timer cannot. The clock of the cluster therefore
//! runs ahead of the clock of the case by one period per tick, and before each tick all reports are
//! delivered again, backdated so that their ages match the case.

use std::collections::BTreeMap;
use std::time::Duration;

use plimsoll_core::host_source::HostSource;
use plimsoll_core::model::health::HealthStatus;
use plimsoll_core::model::locality::Locality;
use plimsoll_core::time::Instant;
use plimsoll_xds::orca::FirstReport;
use serde_json::{Value, json};

use crate::cluster::Cluster;
use crate::config::ModuleConfig;
use crate::host_sets::assignment;
use crate::host_sets::tests::{Fake, FakeHost};
use crate::orca::{Headers, OrcaHosts};

/// Time of the first tick: long enough after the origin that reports can be backdated.
const START: Instant = Instant::from_secs(1_000_000_000);
/// Cases that must have run, so that a change of their format does not skip them all.
const LEAST: usize = 40;

const SOURCES: [(&str, HostSource); 3] = [
    ("healthy", HostSource::HealthyHosts),
    ("degraded", HostSource::DegradedHosts),
    ("all", HostSource::AllHosts),
];

/// One response with a load report.
struct Report(String);

impl Headers for Report {
    fn get(&self, name: &str) -> Option<&[u8]> {
        (name == "endpoint-load-metrics").then_some(self.0.as_bytes())
    }
}

/// A cluster, the reports of its hosts and the clock of the case.
struct Rig {
    cluster: Cluster,
    hosts: OrcaHosts,
    addresses: BTreeMap<String, String>,
    /// Host, report and time on the case's clock.
    reports: Vec<(String, f64, Duration)>,
    clock: Duration,
    now: Instant,
    ticks: u32,
    weights: Vec<Value>,
    all_local: Vec<Value>,
}

/// Returns the configuration of a case; `None` if it cannot be written, as with the settings of
/// Envoy's unit tests that bypass validation.
fn config(inputs: &Value) -> Option<ModuleConfig> {
    let written = &inputs["config"];
    let alpha = written.get("ewma_alpha").and_then(Value::as_f64);
    let probe = written.get("remote_probe_fraction").and_then(Value::as_f64);
    if alpha.is_some_and(|alpha| alpha != 1.0) || probe.is_some_and(|probe| probe >= 1.0) {
        return None;
    }
    let package = "type.googleapis.com/envoy.extensions.load_balancing_policies";
    let typed = |name: &str, config: Value| {
        let name = format!("envoy.load_balancing_policies.{name}");
        json!({ "policies": [
            { "typed_extension_config": { "name": name, "typed_config": config } },
        ] })
    };
    let child = json!({ "@type": format!("{package}.round_robin.v3.RoundRobin") });
    let mut settings = json!({
        "@type": format!("{package}.load_aware_locality.v3.LoadAwareLocality"),
        "endpoint_picking_policy": typed("round_robin", child),
    });
    let millis = |name: &str| written.get(name).and_then(Value::as_u64);
    let seconds = |millis: u64| json!(format!("{}.{:03}s", millis / 1000, millis % 1000));
    for (field, key) in [
        ("weight_update_period", "weight_update_period_ms"),
        ("smoothing_time_constant", "smoothing_time_constant_ms"),
        ("weight_expiration_period", "weight_expiration_period_ms"),
    ] {
        if let Some(millis) = millis(key) {
            settings[field] = seconds(millis);
        }
    }
    if alpha.is_some() {
        // So short that nothing of the previous value is left.
        settings["smoothing_time_constant"] = json!("0.001s");
    }
    if let Some(threshold) = written.get("utilization_variance_threshold") {
        settings["utilization_variance_threshold"] = threshold.clone();
    }
    if let Some(probe) = probe {
        settings["remote_probe_fraction"] = json!(probe);
    }
    let policy = typed("load_aware_locality", settings);
    let text = json!({ "cluster": { "load_balancing_policy": policy } }).to_string();
    Some(ModuleConfig::parse(&text).unwrap())
}

/// Returns the zone of the node, if all topologies agree on it.
fn own_zone(inputs: &Value) -> Option<Locality> {
    let steps = inputs["steps"].as_array()?;
    let later = steps.iter().filter_map(|step| step.get("topology"));
    let mut own: Option<Option<String>> = None;
    for topology in std::iter::once(&inputs["topology"]).chain(later) {
        for priority in topology.as_array()? {
            let first = priority["localities"][0]["name"].as_str();
            let local = priority["has_local_locality"].as_bool()?;
            let zone = first.filter(|_| local).map(str::to_owned);
            if own.get_or_insert_with(|| zone.clone()) != &zone {
                return None;
            }
        }
    }
    let zone = own.flatten();
    Some(Locality::zone_only(zone.as_deref().unwrap_or("elsewhere")))
}

impl Rig {
    fn new(inputs: &Value) -> Option<Self> {
        if inputs.get("hosts_without_policy_data").is_some() {
            return None;
        }
        let config = config(inputs)?.cluster("case").unwrap();
        let mut rig = Self {
            cluster: Cluster::new(config, own_zone(inputs)?, None, START),
            hosts: OrcaHosts::default(),
            addresses: BTreeMap::new(),
            reports: Vec::new(),
            clock: Duration::ZERO,
            now: START,
            ticks: 0,
            weights: Vec::new(),
            all_local: Vec::new(),
        };
        rig.set_topology(&inputs["topology"])?;
        Some(rig)
    }

    fn set_topology(&mut self, topology: &Value) -> Option<()> {
        let names = |locality: &Value, field: &str| -> Option<Vec<String>> {
            let list = locality.get(field)?.as_array()?.iter();
            list.map(|name| name.as_str().map(str::to_owned)).collect()
        };
        let mut priorities = Vec::new();
        for priority in topology.as_array()? {
            let mut hosts = Vec::new();
            for locality in priority["localities"].as_array()? {
                let zone: &'static str = locality["name"].as_str()?.to_owned().leak();
                let all = names(locality, "hosts")?;
                let healthy = names(locality, "healthy").unwrap_or_else(|| all.clone());
                let degraded = names(locality, "degraded").unwrap_or_default();
                if all.is_empty() {
                    // A locality exists through its hosts.
                    return None;
                }
                for name in all {
                    let mut host = FakeHost::new(zone, &self.address(&name));
                    host.health = if degraded.contains(&name) {
                        HealthStatus::Degraded
                    } else if healthy.contains(&name) {
                        HealthStatus::Healthy
                    } else {
                        HealthStatus::Unhealthy
                    };
                    hosts.push(host);
                }
            }
            priorities.push(hosts);
        }
        let fake = Fake {
            priorities,
            weights: Vec::new(),
        };
        let hosts = assignment(&fake, "case").unwrap();
        self.cluster.handle_hosts(hosts, self.now);
        self.hosts.publish(self.cluster.orca_targets());
        Some(())
    }

    fn address(&mut self, host: &str) -> String {
        let next = self.addresses.len();
        let address = format!("10.0.{}.{}:80", next / 250, next % 250 + 1);
        let known = self.addresses.entry(host.to_owned());
        known.or_insert(address).clone()
    }

    /// Computes weights: the cluster does so when it gets its first hosts, and then periodically.
    fn tick(&mut self, topology: &Value) {
        let backdated = self.reports.iter().map(|(host, utilization, at)| {
            let text = format!("TEXT application_utilization={utilization}");
            (&self.addresses[host], Report(text), self.clock - *at)
        });
        let due = self.cluster.handle_timeout(self.now).unwrap();
        let next = if self.ticks == 0 { self.now } else { due };
        for (address, report, age) in backdated {
            let age = u64::try_from(age.as_nanos()).unwrap();
            let at = Instant::from_nanos(next.as_nanos() - age);
            let mut first = FirstReport::default();
            self.hosts.observe(|| address, &report, &mut first, || at);
        }
        if self.ticks > 0 {
            self.now = due;
            self.cluster.handle_timeout(self.now);
        }
        self.ticks += 1;
        self.record(topology);
    }

    /// Records the weights after a tick, because later topology changes would change them.
    fn record(&mut self, topology: &Value) {
        let snapshot = self.cluster.snapshot();
        self.weights.clear();
        self.all_local.clear();
        for priority in 0..topology.as_array().unwrap().len() {
            let (mut weights, mut all_local) = (json!({}), json!({}));
            for (name, source) in SOURCES {
                let found = snapshot
                    .load_aware_weights(priority, source)
                    .unwrap_or_default();
                let by_zone = found.weights.iter();
                weights[name] = by_zone
                    .map(|(locality, weight)| (locality.zone().to_owned(), json!(weight)))
                    .collect::<serde_json::Map<_, _>>()
                    .into();
                all_local[name] = json!(found.all_local);
            }
            self.weights.push(weights);
            self.all_local.push(all_local);
        }
    }
}

/// Runs a case; `None` if hosts of Envoy cannot have its inputs.
fn run(inputs: &Value) -> Option<Rig> {
    let mut rig = Rig::new(inputs)?;
    let mut topology = inputs["topology"].clone();
    for step in inputs["steps"].as_array()? {
        match step["op"].as_str()? {
            "tick" => rig.tick(&topology),
            // The module has computed weights before hosts can report.
            "report" if rig.ticks == 0 => return None,
            "report" => {
                let one = || vec![step["host"].clone()];
                for host in step["hosts"].as_array().cloned().unwrap_or_else(one) {
                    let utilization = step["application_utilization"].as_f64()?;
                    let host = host.as_str()?.to_owned();
                    rig.reports.push((host, utilization, rig.clock));
                }
            }
            "advance_ms" => rig.clock += Duration::from_millis(step["ms"].as_u64()?),
            "set_topology" => {
                topology = step["topology"].clone();
                rig.set_topology(&topology)?;
            }
            _ => return None,
        }
    }
    Some(rig)
}

#[test]
fn load_aware_locality_cases_hold_for_hosts_of_envoy() {
    let mut ran = 0;
    for case in super::cases("load_aware_locality") {
        if case["kind"] != "weights" {
            continue;
        }
        let Some(rig) = run(&case["inputs"]) else {
            continue;
        };
        ran += 1;
        let (id, expected) = (&case["id"], &case["expected"]);
        for (priority, weights) in rig.weights.iter().enumerate() {
            for (source, _) in SOURCES {
                let wanted = expected["weights"][priority][source].as_object();
                for (zone, wanted) in wanted.into_iter().flatten() {
                    let got = weights[source].get(zone).and_then(Value::as_f64);
                    let distance = (got.unwrap_or(0.0) - wanted.as_f64().unwrap()).abs();
                    assert!(
                        distance < 1e-9,
                        "{id}: {source} {zone}: {got:?}, not {wanted}"
                    );
                }
                let all_local = &expected["all_local"][priority][source];
                if !all_local.is_null() {
                    assert_eq!(
                        rig.all_local[priority][source], *all_local,
                        "{id}: {source}"
                    );
                }
            }
        }
    }
    assert!(ran >= LEAST, "{ran} cases");
}
