//! What a route does with a request, in the form that serving needs.
//!
//! Made of the nouns of plimsoll-xds in `compile`, done in `forward` and `local_reply`.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use plimsoll_client::{MatchCriteria, RetryPolicy};

use crate::header_rules::HeaderRules;

/// What happens to a request.
#[derive(Debug)]
pub enum Action {
    /// It goes to a cluster.
    Forward(Box<Forward>),
    /// It is sent elsewhere.
    Redirect(Redirect),
    /// It is answered here.
    Direct(DirectResponse),
}

/// A request that goes to a cluster.
#[derive(Debug)]
pub struct Forward {
    /// Tells it from all others of the process, those of earlier files included.
    pub id: ForwardId,
    /// Where to.
    pub target: Target,
    /// The metadata that hosts must have, where the cluster has subsets; entries of weighted
    /// clusters have their own.
    pub metadata_match: Option<MatchCriteria>,
    /// From the request to the end of the response; `None` is no limit.
    pub timeout: Option<Duration>,
    /// For one try.
    pub per_try_timeout: Option<Duration>,
    /// Without a frame in either direction; `None` is the listener's.
    pub idle_timeout: Option<Duration>,
    /// Retries.
    pub retry: RetryPolicy,
    /// Replaces what the path matched.
    pub prefix_rewrite: Option<String>,
    /// Replaces the host.
    pub host_rewrite: Option<HeaderValue>,
    /// Keeps the host that was replaced in `x-forwarded-host`.
    pub append_x_forwarded_host: bool,
    /// For consistent hashing.
    pub hash_policy: Vec<HashPolicy>,
}

/// A number that no other has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ForwardId(u64);

impl ForwardId {
    /// One more.
    #[expect(clippy::new_without_default, reason = "two of them are never equal")]
    pub fn new() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

/// Which cluster.
#[derive(Debug)]
pub enum Target {
    /// This one.
    Cluster(Arc<str>),
    /// The one named by a header field.
    ClusterHeader(HeaderName),
    /// One of these by weight: cumulative, the last is the total.
    Weighted(Vec<WeightedCluster>),
}

/// A cluster with a weight.
#[derive(Debug)]
pub struct WeightedCluster {
    /// Tells it from all others of the process.
    pub id: ForwardId,
    /// Name.
    pub name: Arc<str>,
    /// Draws below this (and not below the previous one's) are for it.
    pub until: u64,
    /// The metadata that hosts must have: its own over that of the route.
    pub metadata_match: Option<MatchCriteria>,
    /// Changes of requests that go there, before those of the route.
    pub request_rules: HeaderRules,
    /// Changes of their responses, before those of the route.
    pub response_rules: HeaderRules,
}

/// The cluster of one request.
#[derive(Debug)]
pub struct Chosen<'t> {
    /// Its name.
    pub cluster: Arc<str>,
    /// Where it was chosen by weight: the entry.
    pub weighted: Option<&'t WeightedCluster>,
}

/// What a hash is made of.
#[derive(Debug)]
pub struct HashPolicy {
    /// Value that is hashed.
    pub source: HashSource,
    /// Later ones are not looked at if this one yields something.
    pub terminal: bool,
}

/// A value to hash.
#[derive(Debug)]
pub enum HashSource {
    /// A header field.
    Header(HeaderName),
    /// The address of the client.
    SourceIp,
}

/// A request that is sent elsewhere.
#[derive(Debug, Default)]
pub struct Redirect {
    /// Another scheme.
    pub scheme: Option<String>,
    /// Another host.
    pub host: Option<String>,
    /// Another port.
    pub port: Option<u16>,
    /// Another path.
    pub path: PathRedirect,
    /// Without the query.
    pub strip_query: bool,
    /// 301, 302, 303, 307 or 308.
    pub status: StatusCode,
}

/// How the path of a redirect is made.
#[derive(Debug, Default)]
pub enum PathRedirect {
    /// As it is.
    #[default]
    Keep,
    /// This one.
    Replace(String),
    /// What was matched becomes this.
    Prefix(String),
}

/// A request that is answered here.
#[derive(Debug)]
pub struct DirectResponse {
    /// Status.
    pub status: StatusCode,
    /// Body.
    pub body: Bytes,
}

impl Target {
    /// The cluster; a draw, which may be any number, is taken if there are weights.
    pub fn choose(&self, headers: &HeaderMap, draw: impl FnOnce() -> u64) -> Option<Chosen<'_>> {
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
        Some(Chosen { cluster, weighted })
    }

    /// Whether rules of an entry make values for each message.
    pub(crate) fn needs_facts(&self) -> bool {
        let Self::Weighted(clusters) = self else {
            return false;
        };
        let mut rules = clusters
            .iter()
            .flat_map(|cluster| [&cluster.request_rules, &cluster.response_rules]);
        rules.any(HeaderRules::needs_facts)
    }
}
