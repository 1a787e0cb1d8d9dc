//! `kind.weights`: locality weights and counters after topology changes, load reports and ticks.
//!
//! A cluster of the engine computes the weights on its own timer. A case may tick twice at the same
//! time, which a timer cannot. The cluster's clock therefore runs ahead of the case's clock by one
//! period per tick, and before each tick all load reports are delivered again, backdated so that
//! their ages match the case. The settings come from `settings`.

mod inputs;
mod settings;

use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use plimsoll_core::host_source::HostSource;
use plimsoll_core::model::assignment::{
    AssignmentParts, ClusterLoadAssignment, LbEndpoint, LocalityParts,
};
use plimsoll_core::model::endpoint_policy::EndpointPolicy;
use plimsoll_core::model::locality::Locality;
use plimsoll_core::model::orca::OrcaLoadReport;
use plimsoll_core::time::Instant;
use serde_json::{Map, Value, json};

pub(super) use self::inputs::WeightsInputs;
use self::inputs::{LocalityInput, PriorityInput, Step};
use super::cluster;
use crate::compare::{Outcome, table};
use crate::{Case, CaseError, CaseResult, Cluster, Engine};

/// Time of the first tick: long enough after the origin that reports can be backdated.
const START: Instant = Instant::from_secs(1_000_000_000);

const SOURCES: [(&str, HostSource); 3] = [
    ("healthy", HostSource::HealthyHosts),
    ("degraded", HostSource::DegradedHosts),
    ("all", HostSource::AllHosts),
];

pub(super) fn run(case: &Case, inputs: WeightsInputs, engine: &dyn Engine) -> CaseResult {
    let mut rig = Rig::new(&inputs, engine)?;
    for step in inputs.steps {
        match step {
            Step::Tick {} => rig.tick()?,
            Step::Report(report) => rig.report(&report.hosts(), &report.report()?)?,
            Step::AdvanceMs { ms } => rig.clock += Duration::from_millis(ms),
            Step::SetTopology { topology } => rig.set_topology(topology)?,
            Step::AttachPolicyData(hosts) => rig.attach_policy_data(&hosts.hosts()),
        }
    }
    Ok(rig.outcome(case))
}

struct Rig {
    cluster: Box<dyn Cluster>,
    /// Time of the cluster; only ticks advance it, so that nothing else fires the timer.
    now: Instant,
    clock: Duration,
    /// Whether the cluster has got hosts, and with them has computed weights for the first time.
    ticked: bool,
    topology: Vec<PriorityInput>,
    names: BTreeSet<String>,
    addresses: BTreeMap<String, SocketAddr>,
    /// All load reports, with their hosts and their times on the case's clock.
    reports: Vec<(SocketAddr, OrcaLoadReport, Duration)>,
    without_policy_data: BTreeSet<String>,
    /// Locality weights after the last tick, by priority.
    weights: Vec<Map<String, Value>>,
    /// Whether all traffic stays local after the last tick, by priority.
    all_local: Vec<Map<String, Value>>,
}

impl Rig {
    fn new(inputs: &WeightsInputs, engine: &dyn Engine) -> Result<Self, CaseError> {
        let config = cluster(inputs.config.settings()?, EndpointPolicy::default())?;
        Ok(Self {
            cluster: engine.start(&config, &own(), START)?,
            now: START,
            clock: Duration::ZERO,
            ticked: false,
            topology: inputs.topology.clone(),
            names: BTreeSet::new(),
            addresses: BTreeMap::new(),
            reports: Vec::new(),
            without_policy_data: inputs.hosts_without_policy_data.iter().cloned().collect(),
            weights: Vec::new(),
            all_local: Vec::new(),
        })
    }

    fn set_topology(&mut self, topology: Vec<PriorityInput>) -> Result<(), CaseError> {
        self.topology = topology;
        if self.ticked {
            self.deliver_hosts()?;
        }
        Ok(())
    }

    fn deliver_hosts(&mut self) -> Result<(), CaseError> {
        let topology = self.topology.clone();
        let mut endpoints = Vec::new();
        for (priority, input) in (0..).zip(&topology) {
            for (index, entry) in input.localities.iter().enumerate() {
                self.names.insert(entry.name.clone());
                endpoints.push(LocalityParts {
                    locality: input.locality(index),
                    priority,
                    lb_endpoints: self.endpoints(entry)?,
                    ..LocalityParts::default()
                });
            }
        }
        let assignment = ClusterLoadAssignment::try_new(AssignmentParts {
            endpoints,
            ..AssignmentParts::default()
        })?;
        Ok(self.cluster.handle_hosts(assignment, self.now)?)
    }

    fn endpoints(&mut self, entry: &LocalityInput) -> Result<Vec<LbEndpoint>, CaseError> {
        let mut endpoints = Vec::with_capacity(entry.hosts.len());
        for host in &entry.hosts {
            endpoints.push(LbEndpoint {
                health_status: entry.health(host)?,
                ..LbEndpoint::new(self.address(host))
            });
        }
        Ok(endpoints)
    }

    fn address(&mut self, host: &str) -> SocketAddr {
        const FIRST: u32 = 0x0a00_0001;
        let next = FIRST.saturating_add(u32::try_from(self.addresses.len()).unwrap_or(u32::MAX));
        let address = SocketAddr::from((Ipv4Addr::from(next), 80));
        *self.addresses.entry(host.to_owned()).or_insert(address)
    }

    fn report(&mut self, hosts: &[String], report: &OrcaLoadReport) -> Result<(), CaseError> {
        if !self.ticked {
            let reason = "a report before the first tick: the cluster has no hosts yet";
            return Err(CaseError::inputs(reason));
        }
        for host in hosts {
            // A host without policy data cannot store the load report.
            if self.without_policy_data.contains(host) {
                continue;
            }
            let address = self.address(host);
            self.reports.push((address, report.clone(), self.clock));
        }
        Ok(())
    }

    fn attach_policy_data(&mut self, hosts: &[String]) {
        for host in hosts {
            self.without_policy_data.remove(host);
        }
    }

    /// Computes weights: a cluster does so when it gets its first hosts, and then periodically.
    fn tick(&mut self) -> Result<(), CaseError> {
        if self.ticked {
            self.now = self.cluster.poll_timeout().unwrap_or(self.now);
            for (host, report, at) in &self.reports {
                let age = u64::try_from((self.clock - *at).as_nanos()).unwrap_or(u64::MAX);
                let at = Instant::from_nanos(self.now.as_nanos().saturating_sub(age));
                self.cluster.handle_report(*host, report, at);
            }
            self.cluster.handle_timeout(self.now);
        } else {
            self.ticked = true;
            self.deliver_hosts()?;
        }
        self.record_weights();
        Ok(())
    }

    /// Records the weights after a tick, because later topology changes would change them.
    fn record_weights(&mut self) {
        self.weights.clear();
        self.all_local.clear();
        let snapshot = self.cluster.snapshot();
        for (priority, input) in self.topology.iter().enumerate() {
            let (mut weights, mut all_local) = (Map::new(), Map::new());
            for (name, source) in SOURCES {
                let found = snapshot
                    .load_aware_weights(priority, source)
                    .unwrap_or_default();
                let mut by_name: Map<String, Value> = self
                    .names
                    .iter()
                    .map(|name| (name.clone(), json!(0.0)))
                    .collect();
                for (index, entry) in input.localities.iter().enumerate() {
                    let locality = input.locality(index);
                    let weight = found
                        .weights
                        .iter()
                        .find(|(other, _)| *other == locality)
                        .map_or(0.0, |&(_, weight)| weight);
                    by_name.insert(entry.name.clone(), weight.into());
                }
                weights.insert(name.into(), by_name.into());
                all_local.insert(name.into(), found.all_local.into());
            }
            self.weights.push(weights);
            self.all_local.push(all_local);
        }
    }

    fn outcome(&self, case: &Case) -> Outcome {
        json!({
            "weights": self.weights,
            "all_local": self.all_local,
            "counters": table(self.cluster.load_aware_counters()),
            "shares": self.shares(case),
        })
        .into()
    }

    /// Returns each locality's share of the healthy weights of priority 0, by name, or in order if
    /// the case has a list.
    fn shares(&self, case: &Case) -> Value {
        let healthy = self
            .weights
            .first()
            .and_then(|weights| weights.get("healthy"));
        let Some(healthy) = healthy.and_then(Value::as_object) else {
            return json!({});
        };
        let weight = |value: &Value| value.as_f64().unwrap_or(0.0);
        let total: f64 = healthy.values().map(weight).sum();
        let share = |value: &Value| {
            if total > 0.0 {
                weight(value) / total
            } else {
                0.0
            }
        };
        if case.expected.get("shares").is_some_and(Value::is_array) {
            let localities = self
                .topology
                .iter()
                .take(1)
                .flat_map(|input| &input.localities);
            return localities
                .map(|entry| share(&healthy[&entry.name]))
                .collect();
        }
        let shares = healthy
            .iter()
            .map(|(name, value)| (name.clone(), json!(share(value))));
        Value::Object(shares.collect())
    }
}

/// Locality of the proxy in all cases.
fn own() -> Locality {
    Locality::new("own", "own", "")
}
