//! The part of an explanation that speaks of subsets: which there are, and what each of them does
//! with its requests.

use super::{Explanation, StateName};
use crate::model::locality::Locality;
use crate::model::subset::SubsetFallbackPolicy;
use crate::snapshot::{RoutingSnapshot, SubsetView};
use crate::time::Instant;

/// Subsets that an explanation shows; a page with more is read by nobody.
const SHOWN: usize = 100;

/// The subsets of a cluster. What an [`Explanation`] says besides is true of all its hosts, which
/// serve requests that fall back to any endpoint.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct SubsetsExplanation {
    /// How many there are.
    pub active: u64,
    /// How many there may be.
    pub max_subsets: u32,
    /// Some could not be made because there were too many.
    pub limited: bool,
    /// What serves a request for which there is no subset, spelled as in xDS.
    pub fallback_policy: &'static str,
    /// All hosts are tried when that has none.
    pub panic_mode_any: bool,
    /// The default subset, where some request can fall back to it.
    pub default_subset: Option<SubsetExplanation>,
    /// The first hundred, sorted by metadata.
    pub subsets: Vec<SubsetExplanation>,
}

/// One subset.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct SubsetExplanation {
    /// What its hosts have in common: `stage="prod", version="2"`.
    pub metadata: String,
    /// It is one host, whatever its health (`single_host_per_subset`).
    pub single_host: bool,
    /// Hosts of all priorities.
    pub hosts: u64,
    /// Healthy ones among them; of a subset of one host, 1, because health is not asked.
    pub healthy: u64,
    /// Some priority is in panic.
    pub panic: bool,
    /// What happens to its requests at priority 0.
    pub state: StateName,
    /// Why, in words.
    pub reason: String,
    /// Where its requests at priority 0 go.
    pub localities: Vec<SubsetLocality>,
}

/// One locality at priority 0 of a subset.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct SubsetLocality {
    /// Where.
    pub locality: Locality,
    /// Hosts of the subset there.
    pub hosts: u64,
    /// Healthy ones among them.
    pub healthy: u64,
    /// Share of this proxy's requests for the subset that go there, 0.0 to 1.0.
    pub expected_share: f64,
}

/// Explains the subsets of a snapshot; `None` where the cluster has none.
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
            balanced(metadata, &super::build::explain(routing, now))
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
        return balanced(metadata, &super::build::explain(routing, now));
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
