//! [`RouteConfiguration`]: which cluster a request goes to, and how often and how long it is tried.
//!
//! The nouns of RDS, and choosing among them: pure functions of a request and of draws that the
//! caller makes. Bytes become these nouns in `convert::route_in`. What a route asks for is done by
//! whoever forwards. The parts that match are in `matching`.

mod domain;
mod matching;

use std::collections::BTreeSet;
use std::time::Duration;

use plimsoll_core::units::FieldError;

pub use matching::{
    HeaderMatcher, HeaderPattern, PathMatcher, QueryParameterMatcher, RequestHead, RouteMatch,
    RuntimeFraction,
};

use crate::upstream::DataSource;

/// `RouteConfiguration`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RouteConfiguration {
    /// Its name.
    pub name: String,
    /// Who is asked for.
    pub virtual_hosts: Vec<VirtualHost>,
    /// The port of an authority is cut off before it is looked for.
    pub ignore_port_in_host_matching: bool,
    /// Paths of fields that are set and were passed over. gRPC ignores them; a proxy should not.
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
}

/// Where a request goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// One cluster.
    Cluster(String),
    /// Several, by weight.
    Weighted(WeightedClusters),
}

/// `WeightedCluster`: names with weights of which at least one is above 0.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WeightedClusters {
    clusters: Vec<(String, u32)>,
    total: u32,
}

/// `HashPolicy`, the kinds of gRFC A42.
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
}

impl RouteConfiguration {
    /// The virtual host for an authority: an exact domain goes before a suffix (`*.x`), that before
    /// a prefix (`x.*`), that before `*`; among two of a kind the longer one wins. Case does not
    /// matter.
    pub fn virtual_host(&self, authority: &str) -> Option<&VirtualHost> {
        let host = if self.ignore_port_in_host_matching {
            domain::without_port(authority)
        } else {
            authority
        };
        let ranked = self.virtual_hosts.iter().filter_map(|virtual_host| {
            let patterns = virtual_host.domains.iter();
            let rank = patterns.filter_map(|pattern| domain::rank(pattern, host));
            Some((rank.max()?, virtual_host))
        });
        let best = ranked.max_by_key(|&(rank, _)| rank);
        best.map(|(_, virtual_host)| virtual_host)
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

    /// Checks domains: patterns as Envoy has them, none twice.
    pub(crate) fn check_domains(&self) -> Result<(), FieldError> {
        let mut seen = BTreeSet::new();
        for (index, host) in self.virtual_hosts.iter().enumerate() {
            for (position, pattern) in host.domains.iter().enumerate() {
                let path = || format!("virtual_hosts[{index}].domains[{position}]");
                if !domain::is_pattern(pattern) {
                    let reason = format!("{pattern:?} may have one * only, at its start or end");
                    return Err(FieldError::new(path(), reason));
                }
                if !seen.insert(pattern.to_ascii_lowercase()) {
                    let reason = format!("{pattern:?} stands here twice");
                    return Err(FieldError::new(path(), reason));
                }
            }
        }
        Ok(())
    }
}

impl VirtualHost {
    /// The first route that matches. `draw` is any random number; it decides on fractions.
    pub fn route(&self, request: &RequestHead<'_>, draw: u64) -> Option<&Route> {
        let mut routes = self.routes.iter();
        routes.find(|route| route.route_match.matches(request, draw))
    }
}

impl Target {
    /// The cluster. `draw` is any random number, not the one that chose the route.
    pub fn cluster(&self, draw: u64) -> &str {
        match self {
            Self::Cluster(name) => name,
            Self::Weighted(clusters) => clusters.pick(draw),
        }
    }

    /// All clusters that it may be.
    pub fn clusters(&self) -> impl Iterator<Item = &str> {
        let (one, several) = match self {
            Self::Cluster(name) => (Some(name.as_str()), &[][..]),
            Self::Weighted(weighted) => (None, weighted.clusters()),
        };
        one.into_iter()
            .chain(several.iter().map(|(name, _)| name.as_str()))
    }
}

impl WeightedClusters {
    /// Checks names and the sum, which must be 1 to 2^32 - 1 (gRFC A28).
    pub fn try_new(clusters: Vec<(String, u32)>) -> Result<Self, FieldError> {
        if let Some(index) = clusters.iter().position(|(name, _)| name.is_empty()) {
            let path = format!("clusters[{index}].name");
            return Err(FieldError::new(path, "must not be empty"));
        }
        let total: u64 = clusters.iter().map(|&(_, weight)| u64::from(weight)).sum();
        match u32::try_from(total) {
            Ok(total @ 1..) => Ok(Self { clusters, total }),
            _ => {
                let reason = format!("the sum of the weights is {total}, not 1 to 4294967295");
                Err(FieldError::new("clusters", reason))
            }
        }
    }

    /// Names and weights.
    pub fn clusters(&self) -> &[(String, u32)] {
        &self.clusters
    }

    /// Sum of the weights, above 0.
    pub const fn total(&self) -> u32 {
        self.total
    }

    /// The cluster that `draw`, any random number, falls on.
    pub fn pick(&self, draw: u64) -> &str {
        let mut left = draw % u64::from(self.total);
        for (name, weight) in &self.clusters {
            match left.checked_sub(u64::from(*weight)) {
                Some(rest) => left = rest,
                None => return name,
            }
        }
        // Not reached: what is left is below the sum of the weights.
        self.clusters.last().map_or("", |(name, _)| name)
    }
}

#[cfg(test)]
mod tests;
