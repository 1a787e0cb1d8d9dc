//! [`Explanation`]: why a routing snapshot looks as it does, for people and programs.
//!
//! Here live the nouns; `explain::build` fills them from a snapshot by asking the same functions
//! that decided. Rendering does not live here: the CLI prints pages, admin APIs serve the JSON
//! (feature `serde`). Field names are stable.

use crate::locality_picking::fractions::FractionOrigin;
use crate::locality_picking::zone_aware::Reason;
use crate::model::locality::Locality;
use crate::model::zone_aware::LocalityBasis;

pub(crate) mod build;
mod shares;
mod subsets;
mod words;

pub use subsets::{SubsetExplanation, SubsetLocality, SubsetsExplanation};

/// Everything there is to say about the routing of one cluster from one locality.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Explanation {
    /// The cluster.
    pub cluster: String,
    /// Where this proxy is; `None` when its node has no locality.
    pub own_locality: Option<Locality>,
    /// Generation of the snapshot that was explained.
    pub generation: u64,
    /// `zone_aware`, `locality_weighted`, `wrr_locality` or `flat`.
    pub locality_policy: &'static str,
    /// `round_robin`, `least_request`, `random`, `ring_hash` or `maglev`.
    pub endpoint_policy: &'static str,
    /// Basis of zone-aware shares, where there is one.
    pub locality_basis: Option<LocalityBasis>,
    /// What happens to requests at priority 0, panic and sampling included.
    pub state: StateName,
    /// Why, in words.
    pub reason: String,
    /// Why localities play no part, for programs; `None` when they do.
    pub reason_code: Option<Reason>,
    /// What zone-aware routing alone would do; differs from `state` when something overrules it.
    pub zone_state: StateName,
    /// Share of own traffic kept local, basis points; `None` when localities play no part.
    pub local_percent_to_route_bp: Option<u64>,
    /// The tests made before localities matter: those of a regeneration, then those of a request.
    pub preconditions: Vec<PreconditionExplanation>,
    /// The measured fractions and their age.
    pub fractions: FractionsExplanation,
    /// Priority 0, one entry per upstream locality, own one first; then localities that only the
    /// fleet has.
    pub localities: Vec<LocalityExplanation>,
    /// What the proxies of every zone do, if all decide by the same rules.
    pub zones: Vec<ZoneExplanation>,
    /// All priorities.
    pub priorities: Vec<PriorityExplanation>,
    /// The subsets, where the cluster has them.
    pub subsets: Option<SubsetsExplanation>,
    /// Things an operator should know (panic, lost traffic, missing weights), in words.
    pub notes: Vec<String>,
    /// Settings that the control plane sends otherwise than they are written. Filled by control
    /// planes; a data plane knows only what it got.
    pub changes: Vec<ChangeExplanation>,
}

/// A setting that reaches a data plane otherwise than it is written.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct ChangeExplanation {
    /// The setting, spelled as in files.
    pub setting: String,
    /// What is written; `None` = nothing, so that a default would hold.
    pub written: Option<String>,
    /// What is sent instead.
    pub sent: String,
    /// Why.
    pub reason: String,
}

impl ChangeExplanation {
    /// The same as one sentence.
    pub fn sentence(&self) -> String {
        let written = self.written.as_deref().unwrap_or("the default");
        let (setting, sent, reason) = (&self.setting, &self.sent, &self.reason);
        format!("{setting} is sent as {sent} instead of {written}: {reason}")
    }
}

/// The three states of zone-aware routing, spelled as in Envoy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub enum StateName {
    /// Localities play no part.
    NoLocalityRouting,
    /// Everything stays.
    LocalityDirect,
    /// Part stays, the rest spills.
    LocalityResidual,
}

/// One precondition.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct PreconditionExplanation {
    /// What follows when it fails.
    pub name: Reason,
    /// Whether it held.
    pub passed: bool,
    /// The number found.
    pub actual: u64,
    /// The number needed.
    pub required: u64,
    /// The same in words.
    pub text: String,
}

/// Whether measured demand is in force.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize),
    serde(rename_all = "snake_case")
)]
pub enum FractionStatus {
    /// The basis does not use them.
    Unused,
    /// None arrived so far; host counts are used, or reports of hosts alone.
    Absent,
    /// In force for every zone.
    Fresh,
    /// In force: they lead the controller of load_aware_locality, and reports of hosts trim.
    FeedForward,
    /// In force; zones without one share the rest by host count.
    Partial,
    /// All of them are 0: no data, as if none had arrived.
    AllZero,
    /// Too old, as if none had arrived.
    Stale,
}

/// The measured fractions.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct FractionsExplanation {
    /// Whether they are in force.
    pub status: FractionStatus,
    /// Which way they came.
    pub origin: Option<FractionOrigin>,
    /// Age when the question was asked, milliseconds.
    pub age_ms: Option<u64>,
    /// Age at which they stop counting, milliseconds.
    pub staleness_threshold_ms: Option<u64>,
}

/// One locality at priority 0.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct LocalityExplanation {
    /// Region.
    pub region: String,
    /// Zone.
    pub zone: String,
    /// Sub-zone.
    pub sub_zone: String,
    /// This proxy's own locality.
    pub own: bool,
    /// Upstream hosts, excluded ones included.
    pub hosts: u64,
    /// Healthy upstream hosts.
    pub healthy: u64,
    /// Degraded upstream hosts.
    pub degraded: u64,
    /// Excluded upstream hosts.
    pub excluded: u64,
    /// Sum of weights of healthy upstream hosts.
    pub healthy_weight: u64,
    /// Weight of the locality in the assignment, 0 = none.
    pub load_balancing_weight: u32,
    /// Proxies of the fleet here.
    pub fleet_hosts: u64,
    /// Healthy ones among them.
    pub fleet_healthy: u64,
    /// Smoothed utilization that its hosts report, under load_aware_locality.
    pub utilization: Option<f64>,
    /// Measured share of demand, basis points, if known.
    pub observed_traffic_fraction_bp: Option<u64>,
    /// Share of the fleet's demand that the decision used, basis points.
    pub local_bp: u64,
    /// Share of the upstream capacity, basis points.
    pub upstream_bp: u64,
    /// Spare capacity offered to spill, basis points.
    pub residual_bp: u64,
    /// Share of *this proxy's* requests that go there, 0.0 to 1.0.
    pub expected_share: f64,
    /// True share of the fleet's demand that arrives here (measured if known), 0.0 to 1.0.
    pub demand_share: f64,
    /// Share of the fleet's requests served here if every zone's proxies decide by these rules.
    pub traffic_share: f64,
    /// Share of the healthy upstream hosts (or weight) that is here, 0.0 to 1.0.
    pub capacity_share: f64,
    /// `traffic_share ÷ capacity_share`: 1.0 is a fair load; `None` without capacity.
    pub load_factor: Option<f64>,
}

/// What the proxies of one zone do.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct ZoneExplanation {
    /// Where the proxies are.
    pub locality: Locality,
    /// Share of the fleet's demand that arrives there, 0.0 to 1.0.
    pub demand_share: f64,
    /// Their state.
    pub state: StateName,
    /// Share of their requests kept local, 0.0 to 1.0.
    pub kept_local: f64,
    /// Share of their requests per upstream locality, in the order of [`Explanation::localities`].
    pub shares: Vec<f64>,
}

/// One priority.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct PriorityExplanation {
    /// The priority.
    pub priority: usize,
    /// Percent of traffic to its healthy hosts.
    pub healthy_load: u32,
    /// Percent of traffic to its degraded hosts.
    pub degraded_load: u32,
    /// Whether it is in panic.
    pub panic: bool,
    /// All hosts.
    pub hosts: u64,
    /// Healthy hosts.
    pub healthy: u64,
    /// Degraded hosts.
    pub degraded: u64,
    /// Excluded hosts.
    pub excluded: u64,
    /// Its state.
    pub state: StateName,
    /// Why localities play no part; `None` when they do.
    pub reason_code: Option<Reason>,
}
