//! Actions of routes, as requests need them. `compile` creates them; `forward` and `local_reply`
//! execute them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use plimsoll_client::{MatchCriteria, RetryPolicy};

use crate::header_rules::HeaderRules;
use crate::mirror::MirrorPolicy;

/// What a route does with a request: forward, redirect or respond.
#[derive(Debug)]
pub enum CompiledAction {
    Forward(Box<Forward>),
    Redirect(Redirect),
    Direct(DirectResponse),
}

/// Options of a route that forwards to a cluster.
#[derive(Debug)]
pub struct Forward {
    pub id: ForwardId,
    pub cluster: ClusterSelector,
    /// Metadata that selects a subset of hosts. Weighted clusters have their own.
    pub metadata_match: Option<MatchCriteria>,
    /// Limit of the time from the end of the request to the end of the response; `None` means
    /// unlimited.
    pub timeout: Option<Duration>,
    pub per_try_timeout: Option<Duration>,
    /// Limit of the time without a frame in either direction. Zero disables the listener's limit;
    /// `None` uses it.
    pub idle_timeout: Option<Duration>,
    /// Limit of the time of the request with its response, as `idle_timeout`.
    pub max_stream_duration: Option<Duration>,
    pub retry: RetryPolicy,
    pub prefix_rewrite: Option<String>,
    pub host_rewrite: Option<HeaderValue>,
    pub append_x_forwarded_host: bool,
    pub hash_policy: Vec<HashPolicy>,
    /// Clusters that get copies of requests.
    pub mirrors: Vec<MirrorPolicy>,
}

/// Identifies a [`Forward`] or [`WeightedCluster`] within the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ForwardId(u64);

impl ForwardId {
    /// Returns an id that no other route has.
    #[expect(clippy::new_without_default, reason = "two of them are never equal")]
    pub fn new() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

/// How a route selects the cluster of a request.
#[derive(Debug)]
pub enum ClusterSelector {
    Cluster(Arc<str>),
    ClusterHeader(HeaderName),
    /// A random cluster. `until` is cumulative; in the last entry it is the sum of the weights.
    Weighted(Vec<WeightedCluster>),
}

/// An entry of `weighted_clusters` and its share of the requests.
#[derive(Debug)]
pub struct WeightedCluster {
    pub id: ForwardId,
    pub name: Arc<str>,
    /// Exclusive upper bound of the random numbers that select this cluster.
    pub until: u64,
    /// Metadata that selects a subset of hosts, merged over the `metadata_match` of the route.
    pub metadata_match: Option<MatchCriteria>,
    /// Mutations of request headers, applied before those of the route.
    pub request_rules: HeaderRules,
    /// Mutations of response headers, applied before those of the route.
    pub response_rules: HeaderRules,
}

/// The cluster selected for one request.
#[derive(Debug)]
pub struct SelectedCluster<'t> {
    pub cluster: Arc<str>,
    pub weighted: Option<&'t WeightedCluster>,
}

/// An entry of `hash_policy`: an input of consistent hashing.
#[derive(Debug)]
pub struct HashPolicy {
    pub source: HashSource,
    /// Whether to skip the remaining `hash_policy` entries if this one has a value.
    pub terminal: bool,
}

/// The part of a request that a `hash_policy` entry hashes.
#[derive(Debug)]
pub enum HashSource {
    Header(HeaderName),
    SourceIp,
}

/// A redirect response and its location.
#[derive(Debug, Default)]
pub struct Redirect {
    pub scheme: Option<String>,
    pub host: Option<String>,
    pub port: Option<u16>,
    pub path: PathRedirect,
    pub strip_query: bool,
    /// Status of the response, one of 301, 302, 303, 307 and 308.
    pub status: StatusCode,
}

/// How a redirect changes the path.
#[derive(Debug, Default)]
pub enum PathRedirect {
    #[default]
    Keep,
    Replace(String),
    Prefix(String),
}

/// A response with fixed content (`direct_response`).
#[derive(Debug)]
pub struct DirectResponse {
    pub status: StatusCode,
    pub body: Bytes,
}

impl ClusterSelector {
    /// Selects the cluster of a request. `draw` returns a random number, for weighted clusters.
    pub fn select(
        &self,
        headers: &HeaderMap,
        draw: impl FnOnce() -> u64,
    ) -> Option<SelectedCluster<'_>> {
        let (cluster, weighted) = match self {
            Self::Cluster(name) => (Arc::clone(name), None),
            Self::ClusterHeader(header) => (headers.get(header)?.to_str().ok()?.into(), None),
            Self::Weighted(clusters) => {
                let total = clusters.last()?.until;
                let draw = draw() % total.max(1);
                let found = clusters.iter().find(|cluster| draw < cluster.until)?;
                (Arc::clone(&found.name), Some(found))
            }
        };
        Some(SelectedCluster { cluster, weighted })
    }

    pub(crate) fn needs_request_info(&self) -> bool {
        let Self::Weighted(clusters) = self else {
            return false;
        };
        let mut rules = clusters
            .iter()
            .flat_map(|cluster| [&cluster.request_rules, &cluster.response_rules]);
        rules.any(HeaderRules::needs_request_info)
    }
}
