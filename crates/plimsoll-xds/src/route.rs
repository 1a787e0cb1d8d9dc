//! [`RouteConfiguration`]: which cluster a request goes to, and how often and how long it is tried.
//!
//! The nouns of RDS, and choosing among them: pure functions of a request and of draws that the
//! caller makes. Bytes become these nouns in `convert::route_in`. What a route asks for is done by
//! whoever forwards. The parts that match are in `matching`.

mod domain;
mod matching;

use std::collections::BTreeSet;
use std::time::Duration;

use plimsoll_core::model::metadata::{MatchCriteria, Metadata};
use plimsoll_core::units::FieldError;

pub use matching::{
    HeaderMatcher, HeaderPattern, PathMatcher, QueryParameterMatcher, RequestHead, RouteMatch,
    RuntimeFraction,
};

use self::domain::DomainIndex;
use crate::upstream::DataSource;

/// `RouteConfiguration`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RouteConfiguration {
    /// Its name.
    pub name: String,
    virtual_hosts: Vec<VirtualHost>,
    domains: DomainIndex,
    /// The port of an authority is cut off before it is looked for.
    pub ignore_port_in_host_matching: bool,
    /// What all requests and responses get and lose.
    pub headers: HeaderRules,
    /// Its rules come first and those of routes last, so that the latter have the last word. Those
    /// of a weighted cluster are the first in any case.
    pub most_specific_header_mutations_wins: bool,
    /// Paths of fields that are set and were passed over. gRPC ignores them; a proxy must not.
    pub unread: Vec<String>,
}

/// `VirtualHost`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VirtualHost {
    /// Its name.
    pub name: String,
    /// Authorities it answers to.
    pub domains: Vec<String>,
    /// The first that matches wins.
    pub routes: Vec<Route>,
    /// For routes without their own.
    pub retry_policy: Option<RetryPolicy>,
    /// What its requests and responses get and lose.
    pub headers: HeaderRules,
}

/// `Route`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// May be empty.
    pub name: String,
    /// Which requests.
    pub route_match: RouteMatch,
    /// What is done with them.
    pub action: Action,
    /// What they and their responses get and lose. gRPC clients do nothing of it.
    pub headers: HeaderRules,
}

/// `request_headers_to_add` and its three sisters, of one message.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HeaderRules {
    /// `request_headers_to_add`.
    pub request_add: Vec<HeaderValueOption>,
    /// `request_headers_to_remove`.
    pub request_remove: Vec<String>,
    /// `response_headers_to_add`.
    pub response_add: Vec<HeaderValueOption>,
    /// `response_headers_to_remove`.
    pub response_remove: Vec<String>,
}

/// `HeaderValueOption`: a header that is added.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HeaderValueOption {
    /// Its name.
    pub key: String,
    /// Its value, in Envoy's substitution format.
    pub value: String,
    /// What happens when it is there, or is not.
    pub append_action: AppendAction,
    /// A value that turns out empty is added all the same.
    pub keep_empty_value: bool,
}

/// `HeaderValueOption.HeaderAppendAction`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AppendAction {
    /// One more value.
    #[default]
    AppendIfExistsOrAdd,
    /// Nothing when there is one.
    AddIfAbsent,
    /// The only value.
    OverwriteIfExistsOrAdd,
    /// The only value, if there was one.
    OverwriteIfExists,
}

/// What is done with a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// It goes to a cluster.
    Forward(Box<RouteAction>),
    /// The client is sent elsewhere. gRPC clients fail the call.
    Redirect(Redirect),
    /// It is answered here. gRPC clients fail the call.
    DirectResponse {
        /// The status.
        status: u16,
        /// The body.
        body: Option<DataSource>,
    },
    /// `non_forwarding_action`: for servers.
    NonForwarding,
    /// Something that we do not have, by the name of its field: the request fails.
    Unsupported(&'static str),
}

/// `RouteAction`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RouteAction {
    /// Where it goes.
    pub target: Target,
    /// `metadata_match`: which hosts of the cluster, where it has subsets. gRPC clients ignore it.
    pub metadata_match: Option<MatchCriteria>,
    /// From the end of the request to the end of the response. Unset is 15 s in Envoy and nothing
    /// in gRPC; 0 is no limit.
    pub timeout: Option<Duration>,
    /// Time without any data; 0 is no limit.
    pub idle_timeout: Option<Duration>,
    /// `max_stream_duration.max_stream_duration`; 0 is no limit (gRFC A31).
    pub max_stream_duration: Option<Duration>,
    /// `max_stream_duration.grpc_timeout_header_max`; goes before the former; 0 is no limit.
    pub grpc_timeout_header_max: Option<Duration>,
    /// Its own, or that of the virtual host.
    pub retry_policy: Option<RetryPolicy>,
    /// What consistent hashing is based on, in this order (gRFC A42).
    pub hash_policy: Vec<HashPolicy>,
    /// What the matched prefix is replaced with, unless empty.
    pub prefix_rewrite: String,
    /// What the authority is replaced with, unless empty.
    pub host_rewrite_literal: String,
    /// The authority is replaced with the hostname of the endpoint.
    pub auto_host_rewrite: bool,
    /// An authority that is replaced is kept in `x-forwarded-host`.
    pub append_x_forwarded_host: bool,
}

/// Where a request goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// One cluster.
    Cluster(String),
    /// The one that a header of the request names. gRPC clients fail the call.
    ClusterHeader(String),
    /// Several, by weight.
    Weighted(WeightedClusters),
}

/// `WeightedCluster`: names with weights of which at least one is above 0.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WeightedClusters {
    clusters: Vec<ClusterWeight>,
    /// Of each cluster: its own over those of the route.
    criteria: Vec<Option<MatchCriteria>>,
    total: u32,
}

/// `WeightedCluster.ClusterWeight`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClusterWeight {
    /// Name of the cluster.
    pub name: String,
    /// Its share of the sum.
    pub weight: u32,
    /// `metadata_match`, which goes over that of the route key by key.
    pub metadata_match: Option<Metadata>,
    /// What requests that go there and their responses get and lose. gRPC clients do nothing of it.
    pub headers: HeaderRules,
}

/// `HashPolicy`: the kinds of gRFC A42, and the one of proxies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HashPolicy {
    /// What is hashed.
    pub source: HashSource,
    /// Nothing behind it is looked at once there is a hash.
    pub terminal: bool,
}

/// What is hashed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HashSource {
    /// A header.
    Header(String),
    /// The address of whoever asks; clients have none.
    SourceIp,
    /// `io.grpc.channel_id`: the same for all requests of a channel.
    ChannelId,
    /// Another kind: it yields no hash.
    Unsupported,
}

/// `RedirectAction`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Redirect {
    /// New host, unless empty.
    pub host_redirect: String,
    /// New port.
    pub port_redirect: Option<u16>,
    /// New scheme, unless empty.
    pub scheme_redirect: String,
    /// New path, unless empty.
    pub path_redirect: String,
    /// What the matched prefix is replaced with, unless empty.
    pub prefix_rewrite: String,
    /// The query is cut off.
    pub strip_query: bool,
    /// 301, 302, 303, 307 or 308.
    pub response_code: u16,
}

/// `RetryPolicy`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RetryPolicy {
    /// Conditions, for example `5xx` and `connect-failure`.
    pub retry_on: Vec<String>,
    /// How often; default 1.
    pub num_retries: u32,
    /// How long one try may take; unset or 0 is the timeout of the route.
    pub per_try_timeout: Option<Duration>,
    /// Statuses that the condition `retriable-status-codes` means.
    pub retriable_status_codes: Vec<u32>,
    /// Pause before the first retry; default 25 ms.
    pub base_interval: Duration,
    /// Longest pause; default ten times the former.
    pub max_interval: Duration,
    /// Hosts that are not tried. gRPC clients do nothing of it.
    pub retry_host_predicate: Vec<RetryHostPredicate>,
    /// How often another host is looked for; 0 is unset.
    pub host_selection_retry_max_attempts: u32,
}

/// `RetryPolicy.RetryHostPredicate`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RetryHostPredicate {
    /// Hosts that were tried before.
    PreviousHosts,
    /// Another kind, by its name or its type.
    Other(String),
}

impl RetryHostPredicate {
    /// Name of the extension of [`Self::PreviousHosts`].
    pub const PREVIOUS_HOSTS: &'static str = "envoy.retry_host_predicates.previous_hosts";
    /// Type of its message, which has no fields.
    pub const PREVIOUS_HOSTS_TYPE: &'static str =
        "type.googleapis.com/envoy.extensions.retry.host.previous_hosts.v3.PreviousHostsPredicate";

    /// The predicate of that name, or of that type of message if there is one; the type decides, as
    /// in Envoy.
    pub fn new(name: &str, type_url: Option<&str>) -> Self {
        let known = match type_url {
            Some(type_url) => type_url == Self::PREVIOUS_HOSTS_TYPE,
            None => name == Self::PREVIOUS_HOSTS,
        };
        match known {
            true => Self::PreviousHosts,
            false => Self::Other(type_url.unwrap_or(name).to_owned()),
        }
    }
}

impl RouteConfiguration {
    /// Routes of these hosts. Domains must be patterns as Envoy has them, none twice.
    pub fn try_new(name: String, virtual_hosts: Vec<VirtualHost>) -> Result<Self, FieldError> {
        let domains = virtual_hosts.iter().map(|host| host.domains.as_slice());
        Ok(Self {
            name,
            domains: DomainIndex::try_new(domains)?,
            virtual_hosts,
            ..Self::default()
        })
    }

    /// Who is asked for.
    pub fn virtual_hosts(&self) -> &[VirtualHost] {
        &self.virtual_hosts
    }

    /// The virtual host for an authority: an exact domain goes before a suffix (`*.x`), that before
    /// a prefix (`x.*`), that before `*`; among two of a kind the longer one wins. Case does not
    /// matter.
    pub fn virtual_host(&self, authority: &str) -> Option<&VirtualHost> {
        self.virtual_hosts.get(self.virtual_host_index(authority)?)
    }

    /// Its place in the list.
    pub fn virtual_host_index(&self, authority: &str) -> Option<usize> {
        let host = if self.ignore_port_in_host_matching {
            domain::without_port(authority)
        } else {
            authority
        };
        self.domains.find(host)
    }

    /// The same with a limit for requests whose route says none (gRFC A31).
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

    /// Names of all clusters that requests may go to, sorted, each once.
    pub fn clusters(&self) -> BTreeSet<&str> {
        let routes = self.virtual_hosts.iter().flat_map(|host| &host.routes);
        let forwards = routes.filter_map(|route| match &route.action {
            Action::Forward(action) => Some(&action.target),
            _ => None,
        });
        forwards.flat_map(Target::clusters).collect()
    }
}

impl VirtualHost {
    /// The first route that matches. `draw` is any random number; it decides on fractions.
    pub fn route(&self, request: &RequestHead<'_>, draw: u64) -> Option<&Route> {
        self.routes.get(self.route_index(request, draw)?)
    }

    /// Its place in the list.
    pub fn route_index(&self, request: &RequestHead<'_>, draw: u64) -> Option<usize> {
        let mut routes = self.routes.iter();
        routes.position(|route| route.route_match.matches(request, draw))
    }
}

impl Route {
    /// Gives the route the retries of its virtual host, unless it has its own.
    pub fn inherit(&mut self, retry_policy: Option<&RetryPolicy>) {
        if let Action::Forward(action) = &mut self.action
            && action.retry_policy.is_none()
        {
            action.retry_policy = retry_policy.cloned();
        }
    }
}

impl RouteAction {
    /// What hosts of the cluster are matched by that [`Target::cluster`] names for the same `draw`.
    pub fn criteria(&self, draw: u64) -> Option<&MatchCriteria> {
        match &self.target {
            Target::Weighted(weighted) => weighted.criteria(weighted.pick(draw)),
            Target::Cluster(_) | Target::ClusterHeader(_) => self.metadata_match.as_ref(),
        }
    }
}

impl Target {
    /// The cluster, unless a header names it. `draw` is any random number, not the one that chose
    /// the route.
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

    /// All clusters that it may be.
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
    /// Checks names and the sum, which must be 1 to 2^32 - 1 (gRFC A28). `metadata_match` is that
    /// of the route.
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

    /// Names, weights and rules.
    pub fn clusters(&self) -> &[ClusterWeight] {
        &self.clusters
    }

    /// Sum of the weights, above 0.
    pub const fn total(&self) -> u32 {
        self.total
    }

    /// What hosts of the cluster at a place in the list are matched by.
    pub fn criteria(&self, index: usize) -> Option<&MatchCriteria> {
        self.criteria.get(index)?.as_ref()
    }

    /// The place in the list of the cluster that `draw`, any random number, falls on.
    pub fn pick(&self, draw: u64) -> usize {
        let mut left = draw % u64::from(self.total);
        for (index, cluster) in self.clusters.iter().enumerate() {
            match left.checked_sub(u64::from(cluster.weight)) {
                Some(rest) => left = rest,
                None => return index,
            }
        }
        // Not reached: what is left is below the sum of the weights.
        self.clusters.len().saturating_sub(1)
    }
}

/// Criteria of a weighted cluster over those of its route.
fn criteria(route: Option<&MatchCriteria>, own: Option<&Metadata>) -> Option<MatchCriteria> {
    match (route, own) {
        (Some(route), Some(own)) => Some(route.merged(own)),
        (None, Some(own)) => Some(MatchCriteria::new(own.clone())),
        (route, None) => route.cloned(),
    }
}

#[cfg(test)]
mod tests;
