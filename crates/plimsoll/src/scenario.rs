//! [`Scenario`]: a situation written down in YAML, and what the core makes of it.
//!
//! A scenario has a fleet and an upstream cluster as numbers of hosts per locality, and the cluster
//! in Envoy's YAML shape (plimsoll-xds reads that). Here they become assignments and load reports
//! that are fed to a real [`Balancer`]; nothing is computed here. How hosts are made lives in
//! `hosts`, what a file may say in `yaml`. Called by `cmd::explain`.

mod hosts;
mod yaml;

use std::sync::Arc;
use std::time::Duration;

use plimsoll_core::balancer::Balancer;
use plimsoll_core::explain::Explanation;
use plimsoll_core::model::assignment::ClusterLoadAssignment;
use plimsoll_core::model::cluster::{
    ClusterConfig, ClusterConfigParts, HealthChecking, LocalityPolicy,
};
use plimsoll_core::model::locality::Locality;
use plimsoll_core::model::metadata::Metadata;
use plimsoll_core::model::orca::OrcaLoadReport;
use plimsoll_core::snapshot::RoutingSnapshot;
use plimsoll_core::time::Instant;
use plimsoll_core::units::FieldError;
use plimsoll_xds::yaml::{ConfigError, Document};

use yaml::ScenarioYaml;

/// A situation, checked.
#[derive(Clone, Debug)]
pub(crate) struct Scenario {
    title: String,
    description: String,
    own_locality: Locality,
    config: Arc<ClusterConfig>,
    /// The cluster as it was before its policy started: hosts report before the first tick of
    /// load_aware_locality, so that one tick shows them.
    config_before: Arc<ClusterConfig>,
    fleet: Option<ClusterLoadAssignment>,
    upstream: ClusterLoadAssignment,
    reports: hosts::Reports,
    fractions_age: Duration,
    /// Which subset to explain, by its metadata.
    subset: Option<Metadata>,
}

/// JSON Schema of a scenario file.
pub(crate) fn schema() -> schemars::Schema {
    schemars::schema_for!(ScenarioYaml)
}

impl Scenario {
    /// Reads a scenario file; the error names the field and its place.
    pub(crate) fn parse(text: &str) -> Result<Self, ConfigError> {
        let document = Document::parse(text)?;
        let yaml: ScenarioYaml = document.read()?;
        Self::checked(yaml).map_err(|error| document.locate(error))
    }

    fn checked(yaml: ScenarioYaml) -> Result<Self, FieldError> {
        let under = |error: FieldError| error.under("cluster");
        let mut parts = ClusterConfigParts::try_from(yaml.cluster).map_err(under)?;
        parts.runtime = yaml.runtime.into();
        // A scenario says how many hosts are healthy; there is no prober whose word to wait for.
        parts.health_checking = HealthChecking::default();
        let config = Arc::new(ClusterConfig::try_new(parts.clone()).map_err(under)?);
        let config_before = if config.load_aware_locality().is_some() {
            parts.locality_policy = LocalityPolicy::Flat;
            Arc::new(ClusterConfig::try_new(parts).map_err(under)?)
        } else {
            Arc::clone(&config)
        };
        let mut budget = hosts::Budget::default();
        let fleet = yaml.fleet.map(|fleet| fleet.assignment(&mut budget));
        let fleet = fleet.transpose()?;
        let (upstream, reports) = yaml.upstream.assignment(config.name(), &mut budget)?;
        let scenario = Self {
            title: yaml.title,
            description: yaml.description,
            own_locality: yaml.own_locality.checked("own_locality")?,
            config,
            config_before,
            fleet,
            upstream,
            reports,
            fractions_age: yaml.fractions_age.unwrap_or_default().0,
            subset: yaml.subset.map(|fields| fields.0),
        };
        scenario.check_subset()?;
        Ok(scenario)
    }

    /// The subset must be there, or there is nothing to explain.
    fn check_subset(&self) -> Result<(), FieldError> {
        let Some(wanted) = &self.subset else {
            return Ok(());
        };
        let snapshot = self.snapshot();
        if routing_of(&snapshot, wanted).is_some() {
            return Ok(());
        }
        let known = snapshot.subsets();
        let known = known.iter().filter(|subset| subset.routing.is_some());
        let known: Vec<String> = known.map(|subset| subset.metadata.to_string()).collect();
        let reason = match known.as_slice() {
            [] => "the cluster has no subsets that could be explained".to_owned(),
            known => format!("there is no subset {wanted}, only {}", known.join("; ")),
        };
        Err(FieldError::new("subset", reason))
    }

    /// What it is called; may be empty.
    pub(crate) fn title(&self) -> &str {
        &self.title
    }

    /// What it shows; may be empty.
    pub(crate) fn description(&self) -> &str {
        &self.description
    }

    /// Lets a balancer decide and asks it why.
    pub(crate) fn explain(&self) -> Explanation {
        let snapshot = self.snapshot();
        let subset = self.subset.as_ref();
        let subset = subset.and_then(|wanted| routing_of(&snapshot, wanted));
        subset.unwrap_or(&snapshot).explain()
    }

    /// What a balancer decides.
    fn snapshot(&self) -> Arc<RoutingSnapshot> {
        let now = Instant::ORIGIN.saturating_add(self.fractions_age);
        let own = self.own_locality.clone();
        let mut balancer = Balancer::new(Arc::clone(&self.config_before), own, Instant::ORIGIN);
        if let Some(fleet) = &self.fleet {
            balancer.handle_originating(fleet.clone(), Instant::ORIGIN);
        }
        // Endpoints arrive when the fractions have their age, so that the snapshot shows it.
        balancer.handle_assignment(self.upstream.clone(), now);
        balancer.handle_timeout(now);
        let mut snapshot = newest(&mut balancer, now);
        if !Arc::ptr_eq(&self.config, &self.config_before) {
            self.report(&snapshot, now);
            balancer.handle_config(Arc::clone(&self.config), now);
            snapshot = newest(&mut balancer, now);
        }
        snapshot
    }

    /// Every host that reports does so once.
    fn report(&self, snapshot: &RoutingSnapshot, now: Instant) {
        for host in snapshot.hosts() {
            if let Some(&utilization) = self.reports.get(&host.address()) {
                let report = OrcaLoadReport {
                    application_utilization: utilization,
                    ..Default::default()
                };
                host.observe_orca(&report, &self.config, now);
            }
        }
    }
}

/// The routing of the subset whose hosts have exactly this metadata in common.
fn routing_of<'s>(
    snapshot: &'s RoutingSnapshot,
    wanted: &Metadata,
) -> Option<&'s Arc<RoutingSnapshot>> {
    let subsets = snapshot.subsets();
    let mut subsets = subsets.into_iter();
    subsets.find(|subset| subset.metadata == *wanted)?.routing
}

fn newest(balancer: &mut Balancer, now: Instant) -> Arc<RoutingSnapshot> {
    let snapshot = balancer.poll_snapshot();
    snapshot.unwrap_or_else(|| balancer.initial_snapshot(now))
}

#[cfg(test)]
mod tests;
