//! Route configuration: which cluster a request goes to, with timeouts and retries.
//!
//! The types of RDS and the selection among them, as pure functions of a request and of random
//! draws by the caller. `convert::route` decodes them. The data plane forwards requests; `matching`
//! holds the matchers.

mod domain;
mod filter_config;
mod matching;

pub use plimsoll_schema::pb::enums::AppendAction;
use std::collections::BTreeSet;
use std::time::Duration;

use bytes::Bytes;
use plimsoll_core::model::metadata::{MatchCriteria, Metadata};
use plimsoll_core::units::FieldError;

pub use filter_config::{CorsPolicy, MirrorTarget, PerFilterConfig, RequestMirrorPolicy};
pub use matching::{
    HeaderMatcher, HeaderPattern, PathMatcher, QueryParameterMatcher, RequestHead, RouteMatch,
    RuntimeFraction,
};

use self::domain::DomainIndex;
use crate::upstream::DataSource;

/// Decoded route configuration resource (`RouteConfiguration`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RouteConfiguration {
    pub name: String,
    virtual_hosts: Vec<VirtualHost>,
    domains: DomainIndex,
    pub ignore_port_in_host_matching: bool,
    pub headers: HeaderRules,
    /// Applies the header rules of the configuration first and those of routes last, so that a
    /// route's rules win. Rules of a weighted cluster are applied first in any case.
    pub most_specific_header_mutations_wins: bool,
    /// Ignored by gRPC clients.
    pub filters: PerFilterConfig,
    /// Paths of fields that are set but not supported. gRPC ignores them; a proxy must not.
    pub unread: Vec<String>,
    /// Encoded message, for the admin API.
    pub message: WireBytes,
}

/// Encoded message, kept for debugging. Ignored by equality.
#[derive(Clone, Debug, Default)]
pub struct WireBytes(pub Bytes);

impl PartialEq for WireBytes {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for WireBytes {}

/// Routes of a set of domains (`VirtualHost`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VirtualHost {
    pub name: String,
    /// Authorities it serves, possibly with a wildcard.
    pub domains: Vec<String>,
    /// The first match wins.
    pub routes: Vec<Route>,
    /// Default for routes without a retry policy of their own.
    pub retry_policy: Option<RetryPolicy>,
    pub headers: HeaderRules,
    /// Ignored by gRPC clients.
    pub filters: PerFilterConfig,
}

/// Match conditions with an action (`Route`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    pub name: String,
    pub route_match: RouteMatch,
    pub action: Action,
    /// Ignored by gRPC clients.
    pub headers: HeaderRules,
    /// Ignored by gRPC clients.
    pub filters: PerFilterConfig,
}

/// The four header mutation lists of one message.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HeaderRules {
    pub request_add: Vec<HeaderValueOption>,
    pub request_remove: Vec<String>,
    pub response_add: Vec<HeaderValueOption>,
    pub response_remove: Vec<String>,
}

/// Header to add (`HeaderValueOption`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HeaderValueOption {
    pub key: String,
    /// Value in Envoy's substitution format.
    pub value: String,
    pub append_action: AppendAction,
    pub keep_empty_value: bool,
}

/// Action of a route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    Forward(Box<RouteAction>),
    /// Redirects the client. gRPC clients fail the call.
    Redirect(Redirect),
    /// Responds locally. gRPC clients fail the call.
    DirectResponse {
        status: u16,
        body: Option<DataSource>,
    },
    /// `non_forwarding_action`, which only servers support.
    NonForwarding,
    /// Unsupported action, by field name: requests that match the route fail.
    Unsupported(&'static str),
}

/// Target cluster, timeouts, retries and rewrites of a route (`RouteAction`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RouteAction {
    pub target: ClusterSpecifier,
    /// Selects a subset of the cluster's hosts. gRPC clients ignore it.
    pub metadata_match: Option<MatchCriteria>,
    /// Time from the end of the request to the end of the response. Unset is 15 s in Envoy and no
    /// limit in gRPC; 0 is unlimited.
    pub timeout: Option<Duration>,
    /// Longest time without any data; 0 is unlimited.
    pub idle_timeout: Option<Duration>,
    /// `max_stream_duration.max_stream_duration`; 0 is unlimited (gRFC A31).
    pub max_stream_duration: Option<Duration>,
    /// `max_stream_duration.grpc_timeout_header_max`; takes precedence over `max_stream_duration`;
    /// 0 is unlimited.
    pub grpc_timeout_header_max: Option<Duration>,
    /// Retry policy of the route, or else of its virtual host.
    pub retry_policy: Option<RetryPolicy>,
    /// Inputs of consistent hashing, in order (gRFC A42).
    pub hash_policy: Vec<HashPolicy>,
    /// Replacement of the matched prefix, unless empty.
    pub prefix_rewrite: String,
    /// Replacement of the authority, unless empty.
    pub host_rewrite_literal: String,
    pub auto_host_rewrite: bool,
    pub append_x_forwarded_host: bool,
    /// Mirror policies of the route, or else of its virtual host or of the route configuration.
    /// Ignored by gRPC clients.
    pub request_mirror_policies: Vec<RequestMirrorPolicy>,
}

/// Cluster selection of a route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClusterSpecifier {
    Cluster(String),
    /// Named by a request header. gRPC clients fail the call.
    ClusterHeader(String),
    Weighted(WeightedClusters),
}

/// Weighted clusters whose sum of weights is positive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WeightedClusters {
    clusters: Vec<ClusterWeight>,
    /// Merged match criteria of each cluster: its own override those of the route.
    criteria: Vec<Option<MatchCriteria>>,
    total: u32,
}

/// One cluster of a `WeightedCluster`, with its weight.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClusterWeight {
    pub name: String,
    pub weight: u32,
    /// Overrides `metadata_match` of the route key by key.
    pub metadata_match: Option<Metadata>,
    /// Ignored by gRPC clients.
    pub headers: HeaderRules,
}

/// Hash policy: the kinds of gRFC A42, and the source IP for proxies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HashPolicy {
    pub source: HashSource,
    /// Ends the evaluation of hash policies once there is a hash.
    pub terminal: bool,
}

/// Input of a hash policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HashSource {
    Header(String),
    /// Address of the downstream client; embedded clients have none.
    SourceIp,
    /// `io.grpc.channel_id`: constant for all requests of a channel.
    ChannelId,
    /// Unsupported kind, which yields no hash.
    Unsupported,
}

/// Settings of a redirect (`RedirectAction`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Redirect {
    /// Empty keeps the host.
    pub host_redirect: String,
    pub port_redirect: Option<u16>,
    /// Empty keeps the scheme.
    pub scheme_redirect: String,
    /// Empty keeps the path.
    pub path_redirect: String,
    pub prefix_rewrite: String,
    pub strip_query: bool,
    /// 301, 302, 303, 307 or 308.
    pub response_code: u16,
}

/// Retry conditions, limits and backoff (`RetryPolicy`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RetryPolicy {
    /// Conditions, for example `5xx` and `connect-failure`.
    pub retry_on: Vec<String>,
    /// Maximum number of retries; default 1.
    pub num_retries: u32,
    /// Timeout of one try; unset or 0 uses the route's timeout.
    pub per_try_timeout: Option<Duration>,
    pub retriable_status_codes: Vec<u32>,
    /// Backoff before the first retry; default 25 ms.
    pub base_interval: Duration,
    /// Longest backoff; default ten times `base_interval`.
    pub max_interval: Duration,
    /// Hosts to avoid in retries. Ignored by gRPC clients.
    pub retry_host_predicate: Vec<RetryHostPredicate>,
    /// Attempts to select another host; 0 is unset.
    pub host_selection_retry_max_attempts: u32,
}

/// Excludes hosts from retries (`RetryPolicy.RetryHostPredicate`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RetryHostPredicate {
    PreviousHosts,
    /// Unsupported predicate, by name or type URL.
    Other(String),
}

impl RetryHostPredicate {
    /// Extension name of [`Self::PreviousHosts`].
    pub const PREVIOUS_HOSTS: &'static str = "envoy.retry_host_predicates.previous_hosts";
    /// Type URL of the message of [`Self::PreviousHosts`], which has no fields.
    pub const PREVIOUS_HOSTS_TYPE: &'static str =
        "type.googleapis.com/envoy.extensions.retry.host.previous_hosts.v3.PreviousHostsPredicate";

    /// Returns the predicate of this extension. The type URL takes precedence over the name, as in
    /// Envoy.
    pub fn new(name: &str, type_url: Option<&str>) -> Self {
        let known = match type_url {
            Some(type_url) => type_url == Self::PREVIOUS_HOSTS_TYPE,
            None => name == Self::PREVIOUS_HOSTS,
        };
        if known {
            Self::PreviousHosts
        } else {
            Self::Other(type_url.unwrap_or(name).to_owned())
        }
    }
}

impl RouteConfiguration {
    /// Creates a route configuration. Domains must be valid in Envoy, and unique.
    pub fn try_new(name: String, virtual_hosts: Vec<VirtualHost>) -> Result<Self, FieldError> {
        let domains = virtual_hosts.iter().map(|host| host.domains.as_slice());
        Ok(Self {
            name,
            domains: DomainIndex::try_new(domains)?,
            virtual_hosts,
            ..Self::default()
        })
    }

    /// Returns the virtual hosts in configuration order.
    pub fn virtual_hosts(&self) -> &[VirtualHost] {
        &self.virtual_hosts
    }

    /// Returns the virtual host of an authority. Precedence: exact domain, suffix (`*.x`), prefix
    /// (`x.*`), `*`; among two of a kind the longer one wins. Case-insensitive.
    pub fn virtual_host(&self, authority: &str) -> Option<&VirtualHost> {
        self.virtual_hosts.get(self.virtual_host_index(authority)?)
    }

    /// Returns the index of the virtual host of an authority.
    pub fn virtual_host_index(&self, authority: &str) -> Option<usize> {
        let host = if self.ignore_port_in_host_matching {
            domain::without_port(authority)
        } else {
            authority
        };
        self.domains.find(host)
    }

    /// Sets `max_stream_duration` of routes that have none (gRFC A31).
    #[must_use]
    pub fn with_max_stream_duration(&self, limit: Duration) -> Self {
        let mut limited = self.clone();
        let hosts = limited.virtual_hosts.iter_mut();
        for route in hosts.flat_map(|host| &mut host.routes) {
            if let Action::Forward(action) = &mut route.action {
                action.max_stream_duration.get_or_insert(limit);
            }
        }
        limited
    }

    /// Returns the names of all clusters that routes refer to, those of mirrors included.
    pub fn clusters(&self) -> BTreeSet<&str> {
        let routes = self.virtual_hosts.iter().flat_map(|host| &host.routes);
        let forwards = routes.filter_map(|route| match &route.action {
            Action::Forward(action) => Some(action),
            _ => None,
        });
        forwards.flat_map(|action| action.clusters()).collect()
    }
}

impl VirtualHost {
    /// Returns the first matching route. `draw` is any random number; it decides on runtime
    /// fractions.
    pub fn route(&self, request: &RequestHead<'_>, draw: u64) -> Option<&Route> {
        self.routes.get(self.route_index(request, draw)?)
    }

    /// Returns the index of the first matching route.
    pub fn route_index(&self, request: &RequestHead<'_>, draw: u64) -> Option<usize> {
        let mut routes = self.routes.iter();
        routes.position(|route| route.route_match.matches(request, draw))
    }
}

impl Route {
    /// Applies the retry policy of the virtual host, unless the route has its own.
    pub fn inherit(&mut self, retry_policy: Option<&RetryPolicy>) {
        if let Action::Forward(action) = &mut self.action
            && action.retry_policy.is_none()
        {
            action.retry_policy = retry_policy.cloned();
        }
    }

    /// Applies the mirror policies of the virtual host or the route configuration, unless the route
    /// has its own.
    pub fn inherit_mirrors(&mut self, policies: &[RequestMirrorPolicy]) {
        if let Action::Forward(action) = &mut self.action
            && action.request_mirror_policies.is_empty()
        {
            action.request_mirror_policies = policies.to_vec();
        }
    }
}

impl RouteAction {
    /// Returns all clusters that get requests or copies of them.
    pub fn clusters(&self) -> impl Iterator<Item = &str> {
        let policies = self.request_mirror_policies.iter();
        let mirrors = policies.filter_map(|policy| match &policy.target {
            MirrorTarget::Cluster(name) => Some(name.as_str()),
            MirrorTarget::ClusterHeader(_) => None,
        });
        self.target.clusters().chain(mirrors)
    }

    /// Returns the subset criteria for the cluster that [`ClusterSpecifier::cluster`] returns for
    /// the same `draw`.
    pub fn criteria(&self, draw: u64) -> Option<&MatchCriteria> {
        match &self.target {
            ClusterSpecifier::Weighted(weighted) => weighted.criteria(weighted.pick(draw)),
            ClusterSpecifier::Cluster(_) | ClusterSpecifier::ClusterHeader(_) => {
                self.metadata_match.as_ref()
            }
        }
    }
}

impl ClusterSpecifier {
    /// Returns the cluster, unless a request header names it. `draw` is any random number, other
    /// than the one that chose the route.
    pub fn cluster(&self, draw: u64) -> Option<&str> {
        match self {
            Self::Cluster(name) => Some(name),
            Self::ClusterHeader(_) => None,
            Self::Weighted(weighted) => {
                let cluster = weighted.clusters().get(weighted.pick(draw))?;
                Some(&cluster.name)
            }
        }
    }

    /// Returns all clusters that may be selected.
    pub fn clusters(&self) -> impl Iterator<Item = &str> {
        let (one, several) = match self {
            Self::Cluster(name) => (Some(name.as_str()), &[][..]),
            Self::ClusterHeader(_) => (None, &[][..]),
            Self::Weighted(weighted) => (None, weighted.clusters()),
        };
        one.into_iter()
            .chain(several.iter().map(|cluster| cluster.name.as_str()))
    }
}

impl WeightedClusters {
    /// Checks the names and the total weight, which must be 1 to 2^32 - 1 (gRFC A28).
    /// `metadata_match` is that of the route.
    pub fn try_new(
        clusters: Vec<ClusterWeight>,
        metadata_match: Option<&MatchCriteria>,
    ) -> Result<Self, FieldError> {
        let nameless = |cluster: &ClusterWeight| cluster.name.is_empty();
        if let Some(index) = clusters.iter().position(nameless) {
            let path = format!("clusters[{index}].name");
            return Err(FieldError::new(path, "must not be empty"));
        }
        let weights = clusters.iter().map(|cluster| u64::from(cluster.weight));
        let total: u64 = weights.sum();
        match u32::try_from(total) {
            Ok(total @ 1..) => Ok(Self {
                criteria: clusters
                    .iter()
                    .map(|cluster| criteria(metadata_match, cluster.metadata_match.as_ref()))
                    .collect(),
                clusters,
                total,
            }),
            _ => {
                let reason = format!("the sum of the weights is {total}, not 1 to 4294967295");
                Err(FieldError::new("clusters", reason))
            }
        }
    }

    /// Returns the clusters with their weights and header rules.
    pub fn clusters(&self) -> &[ClusterWeight] {
        &self.clusters
    }

    /// Returns the total weight, which is positive.
    pub const fn total(&self) -> u32 {
        self.total
    }

    /// Returns the subset criteria of the cluster at `index`.
    pub fn criteria(&self, index: usize) -> Option<&MatchCriteria> {
        self.criteria.get(index)?.as_ref()
    }

    /// Returns the index of the cluster that `draw`, any random number, selects.
    pub fn pick(&self, draw: u64) -> usize {
        let mut left = draw % u64::from(self.total);
        for (index, cluster) in self.clusters.iter().enumerate() {
            match left.checked_sub(u64::from(cluster.weight)) {
                Some(rest) => left = rest,
                None => return index,
            }
        }
        // Not reached: the remainder is below the total weight.
        self.clusters.len().saturating_sub(1)
    }
}

fn criteria(route: Option<&MatchCriteria>, own: Option<&Metadata>) -> Option<MatchCriteria> {
    match (route, own) {
        (Some(route), Some(own)) => Some(route.merged(own)),
        (None, Some(own)) => Some(MatchCriteria::new(own.clone())),
        (route, None) => route.cloned(),
    }
}

#[cfg(test)]
mod tests;
