//! [`Policy`]: the routing policies that can be compared, and the core settings behind each name.
//!
//! No routing rule is implemented here: a policy is a `ClusterConfig` of the production engine,
//! plus the inputs it needs (true demand as weights, fractions from a planner, load reports of
//! hosts). Policies with measured demand have the settings that `plimsoll control` would send.

use plimsoll_core::model::cluster::{ClusterConfig, ClusterConfigParts, LocalityPolicy};
use plimsoll_core::model::endpoint_policy::{EndpointPolicy, LeastRequest, LeastRequestParts};
use plimsoll_core::model::load_aware_locality::{
    LoadAwareLocality, LoadAwareLocalityParts, SpillController,
};
use plimsoll_core::model::zone_aware::{
    CapacityBasis, FractionSource, LocalityBasis, LrsRateConfigParts, ZoneAware, ZoneAwareParts,
};
use plimsoll_core::planner::steered::{DemandInput, steered};
use plimsoll_core::units::FieldError;
use serde::Serialize;

use crate::num;
use crate::scenario::{DataPlane, EndpointPolicyName, HumanDuration, Scenario};

pub(crate) const CLUSTER: &str = "orders";

/// A routing policy that can be compared with others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Policy {
    /// Flat round robin, ignoring localities.
    None,
    /// Zone-aware routing by host counts: Envoy's default.
    ZoneAwareHosts,
    /// Zone-aware routing by weights, given the true demand and the true capacities.
    ZoneAwareWeights,
    /// LRS_REPORTED_RATE, with demand counted where it arrives (decision 0022).
    LrsByReporter,
    /// LRS_REPORTED_RATE, with demand counted where it was sent: wrong, kept to show why.
    LrsByDestination,
    /// Each proxy's own view: how long its requests wait for a response, and how many fail to get
    /// one.
    ObservedLoad,
    Headroom,
    Convergent,
    /// CONVERGENT with LRS fractions as feed-forward.
    Hybrid,
    /// The theoretical optimum, computed from the demand: perfect balance, or what the objective
    /// asks for, at the least cross-zone traffic.
    Optimum,
    /// `LrsByReporter` as if the scenario had no target utilization.
    LrsLevel,
    /// `Optimum` as if the scenario had no target utilization.
    OptimumLevel,
}

/// Zone for which demand in load reports counts (decision 0022).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DemandKey {
    Reporter,
    Destination,
}

impl Policy {
    /// All policies, in the order used if a scenario names none.
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
        Self::LrsLevel,
        Self::Optimum,
        Self::OptimumLevel,
    ];

    /// Returns the policy that this one is with another objective.
    pub(crate) const fn with_level(self) -> Option<Self> {
        match self {
            Self::LrsLevel => Some(Self::LrsByReporter),
            Self::OptimumLevel => Some(Self::Optimum),
            _ => None,
        }
    }

    /// Returns the policy's name in scenarios and reports.
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
            Self::LrsLevel => "lrs_level",
            Self::OptimumLevel => "optimum_level",
        }
    }

    /// Returns a one-sentence description for people.
    pub const fn description(self) -> &'static str {
        match self {
            Self::None => "Round robin over all hosts, ignoring zones.",
            Self::ZoneAwareHosts => "Zone-aware routing by host counts.",
            Self::ZoneAwareWeights => {
                "Zone-aware routing that knows the true demand and the true capacities."
            }
            Self::LrsByReporter => {
                "Zone-aware routing with demand measured by load reports, counted where it arrives."
            }
            Self::LrsByDestination => "Measured demand counted where it was sent: a feedback loop.",
            Self::ObservedLoad => {
                "Each proxy routes by how long its own requests wait for a response."
            }
            Self::Headroom => "load_aware_locality as specified: all local, or by headroom.",
            Self::Convergent => "load_aware_locality with a controller that converges.",
            Self::Hybrid => "CONVERGENT with measured demand as feed-forward.",
            Self::Optimum => "Computed: the objective at the least cross-zone traffic.",
            Self::LrsLevel => "Measured demand with all zones equally full, whatever the target.",
            Self::OptimumLevel => {
                "Computed: all zones equally full at the least cross-zone traffic."
            }
        }
    }

    /// Looks up a policy by name.
    pub fn parse(name: &str) -> Result<Self, String> {
        let found = Self::ALL
            .iter()
            .copied()
            .find(|policy| policy.name() == name);
        found.ok_or_else(|| {
            let names: Vec<&str> = Self::ALL.iter().map(|policy| policy.name()).collect();
            format!(
                "unknown policy {name:?}: expected one of {}",
                names.join(", ")
            )
        })
    }

    /// Whether the policy is computed instead of simulated.
    pub const fn is_computed(self) -> bool {
        matches!(self, Self::Optimum | Self::OptimumLevel)
    }

    /// Whether the policy prefers local hosts; only then can a proxy be locked out of its own zone.
    pub(crate) const fn prefers_local(self) -> bool {
        !matches!(self, Self::None | Self::Optimum | Self::OptimumLevel)
    }

    /// Returns how a control plane counts load reports for the policy; `None` if it uses none.
    pub(crate) const fn demand_key(self) -> Option<DemandKey> {
        match self {
            Self::LrsByReporter | Self::LrsLevel | Self::Hybrid => Some(DemandKey::Reporter),
            Self::LrsByDestination => Some(DemandKey::Destination),
            _ => None,
        }
    }

    /// Whether the policy gets the true demand and capacity as weights.
    pub(crate) const fn is_oracle(self) -> bool {
        matches!(self, Self::ZoneAwareWeights)
    }

    pub(crate) const fn uses_reports(self) -> bool {
        matches!(self, Self::Headroom | Self::Convergent | Self::Hybrid)
    }

    /// Returns how data planes learn demand: what a control plane decides for a service that wrote
    /// nothing about it. Policies without one are what their data planes do by themselves.
    fn demand_input(self, scenario: &Scenario) -> DemandInput {
        match (self, scenario.balancer.data_plane) {
            (Self::Hybrid, _) => DemandInput::FeedForward(100),
            (Self::LrsByReporter | Self::LrsLevel | Self::LrsByDestination, DataPlane::Envoy) => {
                DemandInput::FleetWeights
            }
            (
                Self::LrsByReporter | Self::LrsLevel | Self::LrsByDestination,
                DataPlane::Plimsoll,
            ) => DemandInput::Fractions(FractionSource::EdsField),
            _ => DemandInput::AsWritten,
        }
    }

    /// Whether proxies get demand as weights of the fleet's assignment.
    pub(crate) fn gets_fleet_weights(self, scenario: &Scenario) -> bool {
        self.demand_input(scenario) == DemandInput::FleetWeights
    }

    /// Returns the core settings behind the policy's name.
    pub fn cluster_config(self, scenario: &Scenario) -> Result<ClusterConfig, FieldError> {
        let written = self.written_config(scenario)?;
        Ok(steered(&written, self.demand_input(scenario)))
    }

    /// Returns what a control plane sends instead while a zone fails into which demand would spill.
    pub(crate) fn config_while_failing(
        self,
        scenario: &Scenario,
    ) -> Result<ClusterConfig, FieldError> {
        let written = self.written_config(scenario)?;
        let input = match self.demand_input(scenario) {
            DemandInput::AsWritten | DemandInput::FeedForward(_) => DemandInput::AsWritten,
            _ => DemandInput::ZoneFails,
        };
        Ok(steered(&written, input))
    }

    /// Returns the settings of a service that wrote nothing but the policy and what the scenario
    /// has.
    fn written_config(self, scenario: &Scenario) -> Result<ClusterConfig, FieldError> {
        let balancer = scenario.balancer;
        let locality_policy = match self {
            Self::None => zone_aware(scenario, |parts| parts.routing_enabled = Some(0.0))?,
            // `steered` gives the measured policies their basis.
            Self::ZoneAwareHosts
            | Self::Optimum
            | Self::OptimumLevel
            | Self::LrsByReporter
            | Self::LrsLevel
            | Self::LrsByDestination => zone_aware(scenario, |_| {})?,
            Self::ZoneAwareWeights => zone_aware(scenario, |parts| {
                parts.locality_basis = LocalityBasis::HealthyHostsWeight;
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
        ClusterConfig::try_new(ClusterConfigParts {
            name: CLUSTER.into(),
            locality_policy,
            endpoint_policy,
            locality_sampling: balancer.sampling,
            ..Default::default()
        })
    }

    /// Checks that the core accepts the settings of this scenario.
    pub(crate) fn check(self, scenario: &Scenario) -> Result<(), FieldError> {
        self.cluster_config(scenario).map(drop)
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

fn duration(value: Option<HumanDuration>) -> Option<std::time::Duration> {
    value.map(|value| std::time::Duration::from_nanos(num::nanos(value.0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_round_trip() {
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
