//! Scenarios of `plimsoll explain`: a situation in YAML, and the routing that follows from it.
//!
//! A scenario has the numbers of hosts in each locality, of the fleet and of the upstream cluster,
//! and the cluster as in an Envoy configuration (parsed by plimsoll-xds). They become assignments
//! and load reports for a real [`Balancer`], which makes all decisions. `hosts` creates the hosts,
//! `yaml` defines the file format. Called by `cmd::explain`.

mod hosts;
mod yaml;

use std::sync::Arc;
use std::time::Duration;

use plimsoll_core::balancer::Balancer;
use plimsoll_core::explain::Explanation;
use plimsoll_core::model::assignment::ClusterLoadAssignment;
use plimsoll_core::model::cluster::{ClusterConfig, HealthChecking, LocalityPolicy};
use plimsoll_core::model::locality::Locality;
use plimsoll_core::model::metadata::Metadata;
use plimsoll_core::model::orca::OrcaLoadReport;
use plimsoll_core::snapshot::RoutingSnapshot;
use plimsoll_core::time::Instant;
use plimsoll_core::units::FieldError;
use plimsoll_xds::yaml::{ConfigError, Document};

use yaml::ScenarioYaml;

/// A scenario whose values have been validated.
#[derive(Clone, Debug)]
pub(crate) struct Scenario {
    title: String,
    description: String,
    own_locality: Locality,
    config: Arc<ClusterConfig>,
    /// The cluster without load_aware_locality. Hosts report load under this configuration, so that
    /// the first update of weights under `config` sees all reports.
    config_before: Arc<ClusterConfig>,
    fleet: Option<ClusterLoadAssignment>,
    upstream: ClusterLoadAssignment,
    reports: hosts::Reports,
    fractions_age: Duration,
    subset: Option<Metadata>,
}

pub(crate) fn schema() -> schemars::Schema {
    schemars::schema_for!(ScenarioYaml)
}

impl Scenario {
    /// Parses a scenario file; errors name the field, line and column.
    pub(crate) fn parse(text: &str) -> Result<Self, ConfigError> {
        Self::read(&Document::parse(text)?)
    }

    /// Reads a scenario from a parsed document.
    pub(crate) fn read(document: &Document) -> Result<Self, ConfigError> {
        let yaml: ScenarioYaml = document.read()?;
        Self::validated(yaml).map_err(|error| document.locate(error))
    }

    fn validated(yaml: ScenarioYaml) -> Result<Self, FieldError> {
        let under = |error: FieldError| error.under("cluster");
        let mut parts = plimsoll_xds::yaml::cluster_config_parts(&yaml.cluster).map_err(under)?;
        parts.runtime = yaml.runtime.into();
        // Health comes from the scenario; there are no health checks to wait for.
        parts.health_checking = HealthChecking::default();
        let config = Arc::new(ClusterConfig::try_new(parts.clone()).map_err(under)?);
        let config_before = if config.load_aware_locality().is_some() {
            parts.locality_policy = LocalityPolicy::Flat;
            Arc::new(ClusterConfig::try_new(parts).map_err(under)?)
        } else {
            Arc::clone(&config)
        };
        let mut budget = hosts::Budget::default();
        let fleet = yaml
            .fleet
            .map(|fleet| fleet.assignment(&mut budget))
            .transpose()?;
        let (upstream, reports) = yaml.upstream.assignment(config.name(), &mut budget)?;
        let scenario = Self {
            title: yaml.title,
            description: yaml.description,
            own_locality: yaml.own_locality.validated("own_locality")?,
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

    /// Rejects a `subset` that the cluster does not have.
    fn check_subset(&self) -> Result<(), FieldError> {
        let Some(metadata) = &self.subset else {
            return Ok(());
        };
        let snapshot = self.snapshot();
        if routing_of(&snapshot, metadata).is_some() {
            return Ok(());
        }
        let known: Vec<String> = snapshot
            .subsets()
            .iter()
            .filter(|subset| subset.routing.is_some())
            .map(|subset| subset.metadata.to_string())
            .collect();
        let reason = match known.as_slice() {
            [] => "the cluster has no subset with routing of its own".to_owned(),
            known => format!(
                "unknown subset {metadata}, expected one of {}",
                known.join("; ")
            ),
        };
        Err(FieldError::new("subset", reason))
    }

    pub(crate) fn title(&self) -> &str {
        &self.title
    }

    pub(crate) fn description(&self) -> &str {
        &self.description
    }

    /// Runs a balancer on the scenario and returns its explanation.
    pub(crate) fn explain(&self) -> Explanation {
        let snapshot = self.snapshot();
        self.subset
            .as_ref()
            .and_then(|metadata| routing_of(&snapshot, metadata))
            .unwrap_or(&snapshot)
            .explain()
    }

    fn snapshot(&self) -> Arc<RoutingSnapshot> {
        let now = Instant::ORIGIN.saturating_add(self.fractions_age);
        let own = self.own_locality.clone();
        let mut balancer = Balancer::new(Arc::clone(&self.config_before), own, Instant::ORIGIN);
        if let Some(fleet) = &self.fleet {
            balancer.handle_fleet_assignment(fleet.clone(), Instant::ORIGIN);
        }
        // Endpoints arrive at `now`, so that the explanation shows the age of the fractions.
        balancer.handle_assignment(self.upstream.clone(), now);
        balancer.handle_timeout(now);
        let mut snapshot = latest_snapshot(&mut balancer, now);
        if !Arc::ptr_eq(&self.config, &self.config_before) {
            self.observe_reports(&snapshot, now);
            balancer.handle_config(Arc::clone(&self.config), now);
            snapshot = latest_snapshot(&mut balancer, now);
        }
        snapshot
    }

    fn observe_reports(&self, snapshot: &RoutingSnapshot, now: Instant) {
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

/// Finds the subset with exactly this metadata.
fn routing_of<'s>(
    snapshot: &'s RoutingSnapshot,
    metadata: &Metadata,
) -> Option<&'s Arc<RoutingSnapshot>> {
    snapshot
        .subsets()
        .into_iter()
        .find(|subset| subset.metadata == *metadata)?
        .routing
}

fn latest_snapshot(balancer: &mut Balancer, now: Instant) -> Arc<RoutingSnapshot> {
    let snapshot = balancer.poll_snapshot();
    snapshot.unwrap_or_else(|| balancer.initial_snapshot(now))
}

#[cfg(test)]
mod tests;
