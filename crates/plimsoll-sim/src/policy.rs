//! [`Policy`]: what is compared, by name, and the settings of the core that stand behind a name.
//!
//! No routing rule lives here: a policy is a `ClusterConfig` of the production engine, plus what
//! the world must feed it (true demand as weights, fractions from a planner, load reports of
//! hosts).

use std::sync::Arc;

use plimsoll_core::model::cluster::{ClusterConfig, ClusterConfigParts, LocalityPolicy};
use plimsoll_core::model::endpoint_policy::{EndpointPolicy, LeastRequest, LeastRequestParts};
use plimsoll_core::model::load_aware_locality::{
    LoadAwareLocality, LoadAwareLocalityParts, SpillController,
};
use plimsoll_core::model::zone_aware::{
    CapacityBasis, LocalityBasis, LrsRateConfigParts, ZoneAware, ZoneAwareParts,
};
use plimsoll_core::units::FieldError;
use serde::Serialize;

use crate::num;
use crate::scenario::{EndpointPolicyName, Scenario, Span};

/// Name of the upstream cluster.
pub(crate) const CLUSTER: &str = "orders";

/// A way of routing that can be compared with others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Policy {
    /// Flat round robin: localities play no part.
    None,
    /// Zone-aware routing by host counts: Envoy's default.
    ZoneAwareHosts,
    /// Zone-aware routing by weights, given the true demand and the true capacities.
    ZoneAwareWeights,
    /// LRS_REPORTED_RATE, demand counted where it arrives (decisions D1).
    LrsByReporter,
    /// The same, demand counted where it was sent: wrong, kept as an exhibit.
    LrsByDestination,
    /// Each proxy's own view: how long its requests wait for an answer, and how many do.
    ObservedLoad,
    /// load_aware_locality with the seed's rule.
    Headroom,
    /// load_aware_locality with the controller that settles.
    Convergent,
    /// CONVERGENT with LRS fractions as feed-forward.
    Hybrid,
    /// What nobody can beat, computed from the demand: perfect balance at the least traffic between
    /// zones.
    Optimum,
}

/// How demand is counted from load reports (decisions D1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Keying {
    /// Where the reporter is.
    Reporter,
    /// Where it sent its requests.
    Destination,
}

impl Policy {
    /// All policies, in the order of reports.
    pub const ALL: &[Self] = &[
        Self::None,
        Self::ZoneAwareHosts,
        Self::ZoneAwareWeights,
        Self::LrsByReporter,
        Self::LrsByDestination,
        Self::ObservedLoad,
        Self::Headroom,
        Self::Convergent,
        Self::Hybrid,
        Self::Optimum,
    ];

    /// Its name in scenarios and reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::ZoneAwareHosts => "zone_aware_hosts",
            Self::ZoneAwareWeights => "zone_aware_weights",
            Self::LrsByReporter => "lrs_by_reporter",
            Self::LrsByDestination => "lrs_by_destination",
            Self::ObservedLoad => "observed_load",
            Self::Headroom => "headroom",
            Self::Convergent => "convergent",
            Self::Hybrid => "hybrid",
            Self::Optimum => "optimum",
        }
    }

    /// One sentence for people.
    pub const fn describe(self) -> &'static str {
        match self {
            Self::None => "Round robin over all hosts; zones play no part.",
            Self::ZoneAwareHosts => "Zone-aware routing that takes host counts for demand.",
            Self::ZoneAwareWeights => {
                "Zone-aware routing that is told the true demand and the true capacities."
            }
            Self::LrsByReporter => {
                "Zone-aware routing with demand measured by load reports, counted where it arrives."
            }
            Self::LrsByDestination => {
                "The same with demand counted where it was sent: it measures its own outcome."
            }
            Self::ObservedLoad => {
                "Each proxy judges by how long its own requests wait for an answer."
            }
            Self::Headroom => {
                "load_aware_locality as specified: a switch, all local or by headroom."
            }
            Self::Convergent => "load_aware_locality with a controller that settles.",
            Self::Hybrid => "CONVERGENT that starts from measured demand and only trims.",
            Self::Optimum => "Computed: perfect balance at the least traffic between zones.",
        }
    }

    /// The policy of a name.
    pub fn parse(name: &str) -> Result<Self, String> {
        let found = Self::ALL
            .iter()
            .copied()
            .find(|policy| policy.name() == name);
        found.ok_or_else(|| {
            let names: Vec<&str> = Self::ALL.iter().map(|policy| policy.name()).collect();
            format!("there is no policy {name:?}: {}", names.join(", "))
        })
    }

    /// Whether it is computed instead of simulated.
    pub const fn is_computed(self) -> bool {
        matches!(self, Self::Optimum)
    }

    /// Whether it tries to keep traffic local; only then can a proxy be locked out of its own zone.
    pub(crate) const fn prefers_local(self) -> bool {
        !matches!(self, Self::None | Self::Optimum)
    }

    /// Whether a control plane collects load reports for it, and how it counts.
    pub(crate) const fn keying(self) -> Option<Keying> {
        match self {
            Self::LrsByReporter | Self::Hybrid => Some(Keying::Reporter),
            Self::LrsByDestination => Some(Keying::Destination),
            _ => None,
        }
    }

    /// Whether it is told the truth as weights.
    pub(crate) const fn is_oracle(self) -> bool {
        matches!(self, Self::ZoneAwareWeights)
    }

    /// Whether it listens to load reports of hosts.
    pub(crate) const fn uses_reports(self) -> bool {
        matches!(self, Self::Headroom | Self::Convergent | Self::Hybrid)
    }

    /// The settings of the core that stand behind the name.
    pub fn cluster_config(self, scenario: &Scenario) -> Result<ClusterConfigParts, FieldError> {
        let balancer = scenario.balancer;
        let locality_policy = match self {
            Self::None => zone_aware(scenario, |parts| parts.routing_enabled = Some(0.0))?,
            Self::ZoneAwareHosts | Self::Optimum => zone_aware(scenario, |_| {})?,
            Self::ZoneAwareWeights => zone_aware(scenario, |parts| {
                parts.locality_basis = LocalityBasis::HealthyHostsWeight;
            })?,
            Self::LrsByReporter | Self::LrsByDestination => zone_aware(scenario, |parts| {
                parts.locality_basis = LocalityBasis::LrsReportedRate;
            })?,
            Self::ObservedLoad => zone_aware(scenario, |parts| {
                parts.locality_basis = LocalityBasis::ObservedLoad;
            })?,
            Self::Headroom => load_aware(scenario, SpillController::Headroom)?,
            Self::Convergent | Self::Hybrid => load_aware(scenario, SpillController::Convergent)?,
        };
        let endpoint_policy = match balancer.endpoint_policy {
            EndpointPolicyName::RoundRobin => EndpointPolicy::default(),
            EndpointPolicyName::Random => EndpointPolicy::Random,
            EndpointPolicyName::LeastRequest => {
                EndpointPolicy::LeastRequest(LeastRequest::try_new(LeastRequestParts::default())?)
            }
        };
        Ok(ClusterConfigParts {
            name: CLUSTER.into(),
            locality_policy,
            endpoint_policy,
            locality_sampling: balancer.sampling,
            ..Default::default()
        })
    }

    /// The same, checked.
    pub(crate) fn checked_config(
        self,
        scenario: &Scenario,
    ) -> Result<Arc<ClusterConfig>, FieldError> {
        let parts = self.cluster_config(scenario)?;
        ClusterConfig::try_new(parts).map(Arc::new)
    }

    /// Whether the core takes the settings of this scenario.
    pub(crate) fn check(self, scenario: &Scenario) -> Result<(), FieldError> {
        self.checked_config(scenario).map(|_| ())
    }
}

fn zone_aware(
    scenario: &Scenario,
    change: impl FnOnce(&mut ZoneAwareParts),
) -> Result<LocalityPolicy, FieldError> {
    let mut parts = ZoneAwareParts {
        min_cluster_size: scenario.balancer.min_cluster_size,
        lrs_rate_config: LrsRateConfigParts {
            staleness_threshold: duration(scenario.control_plane.planner.staleness_threshold),
            ..Default::default()
        },
        upstream_locality_basis: if scenario.balancer.capacity_by_weights {
            CapacityBasis::HealthyHostsWeight
        } else {
            CapacityBasis::HealthyHostsNum
        },
        ..Default::default()
    };
    change(&mut parts);
    let checked = ZoneAware::try_new(parts).map_err(|error| error.under("zone_aware"))?;
    Ok(LocalityPolicy::ZoneAware(checked))
}

fn load_aware(
    scenario: &Scenario,
    spill_controller: SpillController,
) -> Result<LocalityPolicy, FieldError> {
    let given = &scenario.load_aware;
    let period = scenario.reports.out_of_band_period;
    let parts = LoadAwareLocalityParts {
        weight_update_period: duration(given.weight_update_period),
        utilization_variance_threshold: given.utilization_variance_threshold,
        smoothing_time_constant: duration(given.smoothing_time_constant),
        remote_probe_fraction: given.remote_probe_fraction,
        local_probe_fraction: given.local_probe_fraction,
        weight_expiration_period: duration(given.weight_expiration_period),
        enable_oob_load_report: period.is_some(),
        oob_reporting_period: period.map(std::time::Duration::from_nanos),
        spill_controller,
        ..Default::default()
    };
    let checked =
        LoadAwareLocality::try_new(parts).map_err(|error| error.under("load_aware_locality"))?;
    Ok(LocalityPolicy::LoadAwareLocality(checked))
}

fn duration(span: Option<Span>) -> Option<std::time::Duration> {
    span.map(|span| std::time::Duration::from_nanos(num::nanos(span.0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_lead_back_to_their_policies() {
        for &policy in Policy::ALL {
            assert_eq!(Policy::parse(policy.name()), Ok(policy));
            let json = serde_json::to_string(&policy).unwrap();
            assert_eq!(json, format!("\"{}\"", policy.name()));
        }
        let error = Policy::parse("fastest").unwrap_err();
        assert!(
            error.contains("fastest") && error.contains("convergent"),
            "{error}"
        );
    }
}
