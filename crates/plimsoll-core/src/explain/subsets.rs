//! Explanation of the subsets of a cluster: which exist, and how their requests are routed.

use super::{Explanation, StateName};
use crate::model::locality::Locality;
use crate::model::subset::SubsetFallbackPolicy;
use crate::snapshot::{RoutingSnapshot, SubsetView};
use crate::time::Instant;

/// Limit of subsets in an explanation; more would be unreadable.
const SHOWN: usize = 100;

/// Explanation of the subsets of a cluster. The rest of the [`Explanation`] describes all its
/// hosts, which serve requests that fall back to any endpoint.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct SubsetsExplanation {
    pub active: u64,
    pub max_subsets: u32,
    pub limited: bool,
    /// Fallback of requests without matching subset, spelled as in xDS.
    pub fallback_policy: &'static str,
    /// Whether all hosts are tried if the fallback has no host.
    pub panic_mode_any: bool,
    pub default_subset: Option<SubsetExplanation>,
    /// The first hundred subsets, sorted by metadata.
    pub subsets: Vec<SubsetExplanation>,
}

/// Explanation of one subset.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct SubsetExplanation {
    /// Metadata that the hosts of the subset share: `stage="prod", version="2"`.
    pub metadata: String,
    /// The subset is a single host, regardless of its health (`single_host_per_subset`).
    pub single_host: bool,
    pub hosts: u64,
    /// Healthy hosts of all priorities; 1 for a single-host subset, which ignores health.
    pub healthy: u64,
    pub panic: bool,
    pub state: StateName,
    pub reason: String,
    pub localities: Vec<SubsetLocality>,
}

/// Explanation of one locality of a subset at priority 0.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct SubsetLocality {
    pub locality: Locality,
    pub hosts: u64,
    pub healthy: u64,
    /// Share of this proxy's requests for the subset sent to the locality, 0.0 to 1.0.
    pub expected_share: f64,
}

pub(super) fn explain(snapshot: &RoutingSnapshot, now: Instant) -> Option<SubsetsExplanation> {
    let table = snapshot.subsets.as_deref()?;
    let config = &table.config;
    let subsets = snapshot.subsets();
    Some(SubsetsExplanation {
        active: u64::from(table.active),
        max_subsets: config.max_subsets(),
        limited: table.limited,
        fallback_policy: match config.fallback_policy() {
            SubsetFallbackPolicy::NoFallback => "NO_FALLBACK",
            SubsetFallbackPolicy::AnyEndpoint => "ANY_ENDPOINT",
            SubsetFallbackPolicy::DefaultSubset => "DEFAULT_SUBSET",
        },
        panic_mode_any: config.panic_mode_any(),
        default_subset: table.default.as_deref().map(|routing| {
            let metadata = config.default_subset().to_string();
            balanced(metadata, &super::build::explain(routing, None, now))
        }),
        subsets: subsets
            .iter()
            .take(SHOWN)
            .map(|subset| one(subset, now))
            .collect(),
    })
}

fn one(subset: &SubsetView<'_>, now: Instant) -> SubsetExplanation {
    let metadata = subset.metadata.to_string();
    if let Some(routing) = subset.routing {
        return balanced(metadata, &super::build::explain(routing, None, now));
    }
    SubsetExplanation {
        metadata,
        single_host: true,
        hosts: subset.hosts.len() as u64,
        healthy: subset.hosts.len() as u64,
        panic: false,
        state: StateName::NoLocalityRouting,
        reason: "single_host_per_subset: its one host gets everything".into(),
        localities: subset
            .hosts
            .iter()
            .map(|host| SubsetLocality {
                locality: host.locality().clone(),
                hosts: 1,
                healthy: 1,
                expected_share: 1.0,
            })
            .collect(),
    }
}

fn balanced(metadata: String, routing: &Explanation) -> SubsetExplanation {
    let priorities = &routing.priorities;
    let localities = routing.localities.iter();
    SubsetExplanation {
        metadata,
        single_host: false,
        hosts: priorities.iter().map(|it| it.hosts).sum(),
        healthy: priorities.iter().map(|it| it.healthy).sum(),
        panic: priorities.iter().any(|it| it.panic),
        state: routing.state,
        reason: routing.reason.clone(),
        localities: localities
            .filter(|it| it.hosts > 0)
            .map(|it| SubsetLocality {
                locality: Locality::new(&it.region, &it.zone, &it.sub_zone),
                hosts: it.hosts,
                healthy: it.healthy,
                expected_share: it.expected_share,
            })
            .collect(),
    }
}
