//! [`RouteTable`]: which route a request takes.
//!
//! Pure: host, path and headers in, a route out. Order and precedence are Envoy's: the virtual host
//! by domain (exact, then the longest `*.suffix`, then the longest `prefix.*`, then `*`), then the
//! first route that matches. Reading routes from files is in `config::route`, doing what they say
//! in `forward`. Header rules are in `header_rules`.

mod header_match;
mod path_match;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use plimsoll_client::RetryPolicy;

pub use header_match::{HeaderCheck, HeaderMatcher, HeaderSource};
pub use path_match::{Case, PathMatcher};

use crate::header_rules::HeaderRules;

/// What a request says that routes look at.
#[derive(Clone, Copy, Debug)]
pub struct RequestView<'a> {
    /// `Host` or `:authority`, as it came.
    pub host: &'a str,
    /// Without the query.
    pub path: &'a str,
    /// With the query.
    pub path_and_query: &'a str,
    /// The method.
    pub method: &'a Method,
    /// `http` or `https`.
    pub scheme: &'a str,
    /// Header fields.
    pub headers: &'a HeaderMap,
}

/// All routes of a listener.
#[derive(Debug, Default)]
pub struct RouteTable {
    /// Name of the route configuration.
    pub name: String,
    virtual_hosts: Vec<VirtualHost>,
    exact: HashMap<String, usize>,
    /// Without the asterisk, longest first.
    suffixes: Vec<(String, usize)>,
    prefixes: Vec<(String, usize)>,
    any: Option<usize>,
}

/// Routes of some domains.
#[derive(Debug)]
pub struct VirtualHost {
    /// For people.
    pub name: String,
    /// Domains, in lower case.
    pub domains: Vec<String>,
    /// In order.
    pub routes: Vec<Route>,
}

/// One route.
#[derive(Debug)]
pub struct Route {
    /// For people; may be empty.
    pub name: Arc<str>,
    /// The path.
    pub path: PathMatcher,
    /// Header fields, all of which must match.
    pub headers: Vec<HeaderMatcher>,
    /// Only gRPC requests.
    pub grpc: bool,
    /// What happens.
    pub action: Action,
    /// Changes of the request, those of the virtual host and the table included.
    pub request_rules: HeaderRules,
    /// Changes of the response.
    pub response_rules: HeaderRules,
}

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
    /// Name.
    pub name: Arc<str>,
    /// Draws below this (and not below the previous one's) are for it.
    pub until: u64,
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

impl RouteTable {
    /// Builds the search for domains. A domain that stands twice is an error: its name.
    pub fn new(name: String, virtual_hosts: Vec<VirtualHost>) -> Result<Self, String> {
        let mut table = Self {
            name,
            ..Default::default()
        };
        for (index, host) in virtual_hosts.iter().enumerate() {
            for domain in &host.domains {
                table.add_domain(domain, index)?;
            }
        }
        let longest = |list: &mut Vec<(String, usize)>| {
            list.sort_by(|a, b| b.0.len().cmp(&a.0.len()).then_with(|| a.0.cmp(&b.0)));
        };
        longest(&mut table.suffixes);
        longest(&mut table.prefixes);
        table.virtual_hosts = virtual_hosts;
        Ok(table)
    }

    fn add_domain(&mut self, domain: &str, index: usize) -> Result<(), String> {
        let twice = || Err(domain.to_owned());
        if domain == "*" {
            return match self.any.replace(index) {
                None => Ok(()),
                Some(_) => twice(),
            };
        }
        let (list, part) = match (domain.strip_prefix('*'), domain.strip_suffix('*')) {
            (Some(suffix), _) => (&mut self.suffixes, suffix),
            (None, Some(prefix)) => (&mut self.prefixes, prefix),
            (None, None) => {
                return match self.exact.insert(domain.to_owned(), index) {
                    None => Ok(()),
                    Some(_) => twice(),
                };
            }
        };
        if list.iter().any(|(known, _)| known == part) {
            return twice();
        }
        list.push((part.to_owned(), index));
        Ok(())
    }

    /// The virtual host of a domain.
    pub fn virtual_host(&self, host: &str) -> Option<&VirtualHost> {
        let any = || self.any.map(|index| &self.virtual_hosts[index]);
        // Most tables have nothing but `*`.
        if self.exact.is_empty() && self.suffixes.is_empty() && self.prefixes.is_empty() {
            return any();
        }
        let lower;
        let host = if host.bytes().any(|byte| byte.is_ascii_uppercase()) {
            lower = host.to_ascii_lowercase();
            &lower
        } else {
            host
        };
        let exact = self.exact.get(host).copied();
        // What stands for the asterisk must not be empty.
        let longer = |part: &str| host.len() > part.len();
        let suffix = || {
            let mut suffixes = self.suffixes.iter();
            suffixes.find(|(suffix, _)| longer(suffix) && host.ends_with(suffix))
        };
        let prefix = || {
            let mut prefixes = self.prefixes.iter();
            prefixes.find(|(prefix, _)| longer(prefix) && host.starts_with(prefix))
        };
        let found = exact.or_else(|| suffix().or_else(prefix).map(|(_, index)| *index));
        found.map(|index| &self.virtual_hosts[index]).or_else(any)
    }

    /// The first route that matches.
    pub fn route(&self, request: &RequestView<'_>) -> Option<&Route> {
        let host = self.virtual_host(request.host)?;
        host.routes.iter().find(|route| route.matches(request))
    }

    /// Everything in it, for pages.
    pub fn virtual_hosts(&self) -> &[VirtualHost] {
        &self.virtual_hosts
    }

    /// Clusters that routes name.
    pub fn cluster_names(&self) -> impl Iterator<Item = &Arc<str>> {
        let routes = self.virtual_hosts.iter().flat_map(|host| &host.routes);
        routes.flat_map(|route| match &route.action {
            Action::Forward(forward) => forward.target.names(),
            Action::Redirect(_) | Action::Direct(_) => Vec::new(),
        })
    }
}

impl Route {
    fn matches(&self, request: &RequestView<'_>) -> bool {
        self.path.matches(request.path)
            && self.headers.iter().all(|header| header.matches(request))
            && (!self.grpc || is_grpc(request.headers))
    }
}

impl Target {
    fn names(&self) -> Vec<&Arc<str>> {
        match self {
            Self::Cluster(name) => vec![name],
            Self::ClusterHeader(_) => Vec::new(),
            Self::Weighted(clusters) => clusters.iter().map(|cluster| &cluster.name).collect(),
        }
    }

    /// The cluster; a draw, which may be any number, is taken if there are weights.
    pub fn choose(&self, headers: &HeaderMap, draw: impl FnOnce() -> u64) -> Option<Arc<str>> {
        match self {
            Self::Cluster(name) => Some(Arc::clone(name)),
            Self::ClusterHeader(header) => Some(headers.get(header)?.to_str().ok()?.into()),
            Self::Weighted(clusters) => {
                let total = clusters.last()?.until;
                let draw = draw() % total.max(1);
                let found = clusters.iter().find(|cluster| draw < cluster.until);
                found.map(|cluster| Arc::clone(&cluster.name))
            }
        }
    }
}

/// Whether a request is gRPC.
pub fn is_grpc(headers: &HeaderMap) -> bool {
    let Some(kind) = headers.get(http::header::CONTENT_TYPE) else {
        return false;
    };
    let rest = kind.as_bytes().strip_prefix(b"application/grpc");
    rest.is_some_and(|rest| matches!(rest.first(), None | Some(b'+' | b';')))
}

#[cfg(test)]
mod tests;
