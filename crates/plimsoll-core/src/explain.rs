//! [`Explanation`] of a routing snapshot, for people and programs.
//!
//! This module defines the types; `explain::build` fills them in from a snapshot by calling the
//! same functions that made the decisions; `explain::hypothetical` makes snapshots for what-if
//! questions. The CLI prints explanations, admin APIs serve them as JSON (feature `serde`). Field
//! names are stable.

use crate::locality_picking::fractions::FractionOrigin;
use crate::locality_picking::zone_aware::Reason;
use crate::model::locality::Locality;
use crate::model::zone_aware::LocalityBasis;

mod above_line;
pub(crate) mod build;
mod hypothetical;
mod ramped;
mod reports;
mod shares;
mod subsets;
mod words;

pub use above_line::{AboveLine, AboveLineCode};
pub use hypothetical::{KnownLocalities, ProxyInput};
pub use subsets::{SubsetExplanation, SubsetLocality, SubsetsExplanation};

/// Explanation of the routing of one cluster from one locality.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct Explanation {
    pub cluster: String,
    /// Locality of this proxy; `None` if its node has none.
    pub own_locality: Option<Locality>,
    pub generation: u64,
    /// `zone_aware`, `load_aware_locality`, `locality_weighted`, `wrr_locality` or `flat`.
    pub locality_policy: &'static str,
    /// Name as in `envoy.load_balancing_policies.*`, such as `round_robin` or `maglev`.
    pub endpoint_policy: &'static str,
    pub locality_basis: Option<LocalityBasis>,
    /// What chooses the locality of requests at priority 0, including panic and sampling.
    pub state: StateName,
    pub reason: String,
    /// Why zone-aware routing is off, for programs; `None` if it is on.
    pub reason_code: Option<Reason>,
    /// State of zone-aware routing alone; differs from `state` if something overrides it.
    pub zone_state: StateName,
    /// Share of this proxy's traffic kept local, basis points; `None` if zone-aware routing is off.
    pub local_percent_to_route_bp: Option<u64>,
    /// Preconditions of locality routing: first those of a regeneration, then those of a request.
    pub preconditions: Vec<PreconditionExplanation>,
    pub fractions: FractionsExplanation,
    /// Localities of priority 0: those with upstream hosts, the local one first, then only proxies.
    pub localities: Vec<LocalityExplanation>,
    /// Routing by the proxies of every zone, if all use the same rules.
    pub zones: Vec<ZoneExplanation>,
    pub priorities: Vec<PriorityExplanation>,
    pub subsets: Option<SubsetsExplanation>,
    /// Remarks for operators (panic, lost traffic, missing weights, regions that do not match).
    pub notes: Vec<String>,
    /// Settings that the control plane changes before sending; empty in a data plane.
    pub changes: Vec<ChangeExplanation>,
}

/// A setting that the control plane changes before it sends it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
pub struct ChangeExplanation {
    /// Name of the setting as in configuration files.
    pub setting: String,
    /// Configured value; `None` = unset, so that the default applies.
    pub written: Option<String>,
    pub sent: String,
    pub reason: String,
}

impl ChangeExplanation {
    /// Formats the change as one sentence.
    pub fn sentence(&self) -> String {
        let written = self.written.as_deref().unwrap_or("the default");
        let (setting, sent, reason) = (&self.setting, &self.sent, &self.reason);
        format!("{setting} is sent as {sent} instead of {written}: {reason}")
    }
}

/// How localities are chosen: the states of zone-aware routing, named as in Envoy, or the policy
/// that chooses instead of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub enum StateName {
    /// Hosts are picked regardless of their locality.
    NoLocalityRouting,
    LocalityDirect,
    LocalityResidual,
    /// `load_aware_locality` chooses, by the utilization that hosts report.
    LoadAwareLocality,
    /// `locality_weighted_lb_config` or `wrr_locality` chooses, by the weights of the assignment.
    LocalityWeighted,
}

impl StateName {
    /// Returns the name as Envoy spells it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::NoLocalityRouting => "NoLocalityRouting",
            Self::LocalityDirect => "LocalityDirect",
            Self::LocalityResidual => "LocalityResidual",
            Self::LoadAwareLocality => "LoadAwareLocality",
            Self::LocalityWeighted => "LocalityWeighted",
        }
    }
}

/// A precondition of zone-aware routing and its result.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct PreconditionExplanation {
    /// Reason for `NoLocalityRouting` if the test fails.
    pub name: Reason,
    pub passed: bool,
    pub actual: u64,
    pub required: u64,
    pub text: String,
}

/// Whether measured demand is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize),
    serde(rename_all = "snake_case")
)]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub enum FractionStatus {
    Unused,
    /// No fractions received so far; host counts are used, or load reports of hosts alone.
    Absent,
    /// Fractions are in use for every zone.
    Fresh,
    /// Fractions are fed forward to load_aware_locality, whose shares host reports then correct.
    FeedForward,
    /// Fractions are in use; zones without one share the rest by host count.
    Partial,
    /// All fractions are 0, which counts as no data.
    AllZero,
    /// Fractions are too old, which counts as no data.
    Stale,
}

/// The measured fractions and their age.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct FractionsExplanation {
    pub status: FractionStatus,
    pub origin: Option<FractionOrigin>,
    /// Age of the fractions at the time of the explanation, milliseconds; `None` if stated.
    pub age_ms: Option<u64>,
    /// Age at which fractions expire, milliseconds; `None` if those in force never do.
    pub staleness_threshold_ms: Option<u64>,
}

/// Explanation of one locality at priority 0.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct LocalityExplanation {
    pub region: String,
    pub zone: String,
    pub sub_zone: String,
    pub own: bool,
    /// Upstream hosts in this locality, including excluded ones.
    pub hosts: u64,
    pub healthy: u64,
    pub degraded: u64,
    pub excluded: u64,
    pub healthy_weight: u64,
    /// Weight of the locality in the assignment, 0 = none.
    pub load_balancing_weight: u32,
    /// Number of proxies of the fleet in this locality.
    pub fleet_hosts: u64,
    pub fleet_healthy: u64,
    /// Smoothed utilization that hosts report, under load_aware_locality.
    pub utilization: Option<f64>,
    /// Measured share of the fleet's demand in this locality, basis points, if known.
    pub observed_traffic_fraction_bp: Option<u64>,
    /// Share of the fleet's demand used in the decision, basis points.
    pub local_bp: u64,
    /// Share of the upstream capacity in this locality, basis points.
    pub upstream_bp: u64,
    /// Spare capacity of this locality offered to spilled requests, basis points.
    pub residual_bp: u64,
    /// Share of *this proxy's* requests sent to this locality, 0.0 to 1.0.
    pub expected_share: f64,
    /// Actual share of the fleet's demand in this locality (measured if known), 0.0 to 1.0.
    pub demand_share: f64,
    /// Share of the fleet's requests served in this locality if all proxies use the same rules.
    pub traffic_share: f64,
    /// Share of the healthy upstream hosts (or weight) in this locality, 0.0 to 1.0.
    pub capacity_share: f64,
    /// `traffic_share ÷ capacity_share`: 1.0 is a fair load; `None` without capacity.
    pub load_factor: Option<f64>,
    /// Why the load factor is above 1; `None` if it is not, or if other proxies are unknown.
    pub above_line: Option<AboveLine>,
}

impl LocalityExplanation {
    /// Returns region, zone and sub-zone as one value.
    pub fn locality(&self) -> Locality {
        Locality::new(&self.region, &self.zone, &self.sub_zone)
    }
}

/// Routing by the proxies of one zone.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct ZoneExplanation {
    pub locality: Locality,
    /// Share of the fleet's demand that arrives in the zone, 0.0 to 1.0.
    pub demand_share: f64,
    pub state: StateName,
    /// Share of the proxies' requests kept local, 0.0 to 1.0.
    pub kept_local: f64,
    /// Shares of the proxies' requests by locality, in the order of [`Explanation::localities`].
    pub shares: Vec<f64>,
}

/// Explanation of one priority.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct PriorityExplanation {
    pub priority: usize,
    /// Percent of the cluster's traffic that goes to healthy hosts of the priority.
    pub healthy_load: u32,
    /// Percent of the cluster's traffic that goes to degraded hosts of the priority.
    pub degraded_load: u32,
    pub panic: bool,
    pub hosts: u64,
    pub healthy: u64,
    pub degraded: u64,
    pub excluded: u64,
    pub state: StateName,
    pub reason_code: Option<Reason>,
}
