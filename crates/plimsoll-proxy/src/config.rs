//! [`ProxyConfig`]: validated configuration of a proxy.
//!
//! Files have the format of Envoy's bootstrap, so that listeners, routes and clusters can be copied
//! from an Envoy. Messages that management servers send as well are declared in plimsoll-schema;
//! the submodules convert listeners, plimsoll-xds converts routes and clusters. Structs for
//! messages that only occur in files are in `bootstrap` and `dynamic`. Unsupported fields are
//! rejected with their path, and in files with line and column. Parsing does not open sockets or
//! certificates.

mod access_log;
mod bootstrap;
mod dynamic;
mod extension;
mod filter_chain;
mod filters;
mod listener;
mod overload;
mod tls;
mod tracing;

#[cfg(test)]
mod tests;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use http::HeaderValue;
use plimsoll_core::log_line;
use plimsoll_core::model::locality::Locality;
use plimsoll_core::units::FieldError;
use plimsoll_serve::ServerTlsSettings;
use plimsoll_xds::pb::enums::{
    CodecType, ForwardClientCertDetails, HeadersWithUnderscoresAction, PathWithEscapedSlashesAction,
};
use plimsoll_xds::pb::listener::SetCurrentClientCertDetailsMessage;
use plimsoll_xds::upstream::{TrustedCa, UpstreamOptions};
use plimsoll_xds::yaml::{ConfigError, Document};

use crate::access_log::LogFormat;
use crate::clusters::UpstreamCluster;
use crate::filter_chain::FilterChainSelector;
use crate::log_lines;
use crate::rate_limit::TokenBucket;
use crate::router::RouteTable;
use crate::source::NodeOverrides;

pub use overload::{OverloadAction, OverloadConfig, OverloadTrigger, ResourceMonitor};
pub use tracing::{CollectorConfig, CustomTag, OtlpProtocol, Sampling, TagValue, TracingConfig};

/// Validated configuration of a proxy.
#[derive(Debug)]
pub struct ProxyConfig {
    pub node: NodeConfig,
    pub admin: Option<SocketAddr>,
    pub listeners: Vec<Arc<ListenerConfig>>,
    pub clusters: Vec<UpstreamCluster>,
    /// Paths of cluster fields that are set but have no effect.
    pub ignored_fields: Vec<String>,
    /// Name of the local cluster, which has this proxy as a host.
    pub local_cluster_name: Option<String>,
    pub xds: Option<XdsConfig>,
    /// Limits of downstream connections.
    pub max_connections: MaxConnections,
    /// What the proxy does when memory or time runs short.
    pub overload: OverloadConfig,
}

/// Limits of downstream connections; `None` is unlimited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MaxConnections {
    /// Over all clients and listeners.
    pub total: Option<u64>,
    /// From one IPv4 address or one IPv6 network of 64 bits.
    pub per_address: Option<u64>,
}

/// Identity and locality of a proxy.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeConfig {
    pub id: String,
    pub cluster: String,
    pub locality: Locality,
}

/// Settings of the management server, from `dynamic_resources` and `load_stats_config`.
#[derive(Clone, Debug, PartialEq)]
pub struct XdsConfig {
    /// Name of the cluster that has the address of the management server.
    pub server: String,
    /// URI of the management server, of the form `http://host:port`.
    pub uri: String,
    /// Options of the management server's cluster, if that cluster uses TLS.
    pub tls: Option<Box<UpstreamOptions>>,
    /// Whether to use incremental (delta) xDS instead of state of the world.
    pub delta: bool,
    pub clusters: bool,
    /// Whether to use all listeners of the management server (LDS).
    pub listeners: bool,
    pub report_load: bool,
    /// Initial and maximum back-off between connection attempts.
    pub back_off: Option<(Duration, Duration)>,
}

/// Configuration of a listener.
#[derive(Debug)]
pub struct ListenerConfig {
    pub name: String,
    /// Address to listen on; port 0 selects any free port.
    pub address: SocketAddr,
    /// Filter chains, at least one; the default one is the last.
    pub chains: Vec<FilterChainConfig>,
    pub selector: FilterChainSelector,
}

/// Configuration of a filter chain: what happens to the connections that use it.
#[derive(Debug)]
pub struct FilterChainConfig {
    /// TLS options; plain text if `None`. Without ALPN protocols, those that `codec_type` supports.
    pub tls: Option<ServerTlsSettings>,
    pub http: HttpOptions,
    pub routes: RouteSource,
    pub access_log: Vec<AccessLogConfig>,
    /// `None` passes trace headers through unchanged.
    pub tracing: Option<Arc<TracingConfig>>,
}

/// Source of the routes of a filter chain: inline or RDS.
#[derive(Clone, Debug)]
pub enum RouteSource {
    Inline(Arc<RouteTable>),
    Rds(Arc<str>),
}

/// HTTP protocol options and limits of a listener.
#[derive(Clone, Debug, PartialEq)]
pub struct HttpOptions {
    pub stat_prefix: String,
    pub codec: CodecType,
    /// Limit of the size of all request headers in bytes; 60 KiB by default.
    pub max_request_header_bytes: u32,
    /// Limit of the number of request headers; 100 by default.
    pub max_headers: u32,
    /// Number of requests after which a connection is drained; unlimited by default.
    pub max_requests_per_connection: Option<u32>,
    /// Time limit from a request's first byte to the end of its headers; 10 s by default.
    pub request_headers_timeout: Option<Duration>,
    /// Time after which a connection without requests is closed; one hour by default.
    pub idle_timeout: Option<Duration>,
    /// Time after which a connection is drained; unlimited by default.
    pub max_connection_duration: Option<Duration>,
    /// Time without progress after which a request is aborted; 5 min by default.
    pub stream_idle_timeout: Option<Duration>,
    /// Time limit of receiving a request with its body; unlimited by default.
    pub request_timeout: Option<Duration>,
    /// Time limit of a request with its response; unlimited by default.
    pub max_stream_duration: Option<Duration>,
    /// Limit of the size of a request body in bytes; unlimited by default.
    pub max_request_bytes: Option<u64>,
    pub http2: Http2Config,
    /// Edge proxy: trust the peer address of the connection instead of the client's headers.
    pub use_remote_address: bool,
    /// Whether to add `x-request-id` to requests without one.
    pub generate_request_id: bool,
    /// Whether an edge proxy keeps the client's `x-request-id`.
    pub preserve_external_request_id: bool,
    pub always_set_request_id_in_response: bool,
    /// Value of the `server` response header; `None` keeps the header of the upstream.
    pub server: Option<HeaderValue>,
    /// Protocols that clients may upgrade to, in lower case.
    pub upgrades: Vec<String>,
    /// Whether responses do not get `x-envoy-upstream-service-time`.
    pub suppress_envoy_headers: bool,
    /// Token bucket of the local rate limit filter.
    pub local_rate_limit: Option<Arc<TokenBucket>>,
    /// Whether the CORS filter is present.
    pub cors: bool,
    /// Path that the health check filter answers.
    pub health_check_path: Option<String>,
    pub path: PathOptions,
    pub headers_with_underscores: HeadersWithUnderscoresAction,
    pub strip_host_port: StripHostPort,
    pub forward_client_cert: ForwardClientCertDetails,
    pub client_cert_details: SetCurrentClientCertDetailsMessage,
}

/// How the path of a request is normalized before it is routed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PathOptions {
    /// Resolve dot segments, decode unreserved characters, replace backslashes (RFC 3986, 6).
    pub normalize: bool,
    pub merge_slashes: bool,
    pub escaped_slashes: PathWithEscapedSlashesAction,
}

/// Which ports are removed from `Host` before a request is routed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StripHostPort {
    #[default]
    None,
    /// The port that the listener listens on.
    Matching,
    Any,
}

/// HTTP/2 options of a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Http2Config {
    /// Limit of concurrent requests per HTTP/2 connection; 1024 by default.
    pub max_concurrent_streams: u32,
    /// Flow-control window of a stream in bytes; 256 KiB by default.
    pub initial_stream_window_size: u32,
    /// Flow-control window of a connection in bytes; 1 MiB by default.
    pub initial_connection_window_size: u32,
    /// Interval of keep-alive pings; none by default.
    pub keepalive_interval: Option<Duration>,
    /// Timeout of a keep-alive ping; 20 s by default.
    pub keepalive_timeout: Duration,
}

/// Configuration of an access log.
#[derive(Clone, Debug, PartialEq)]
pub struct AccessLogConfig {
    /// Path of the log file; `None` is standard output.
    pub path: Option<PathBuf>,
    pub format: Arc<LogFormat>,
}

impl ListenerConfig {
    /// Whether only the routes differ. Routes of a listener can change under open connections;
    /// connections that were accepted with any other setting are drained.
    pub(crate) fn differs_only_in_routes(&self, other: &Self) -> bool {
        let same = |(one, other): (&FilterChainConfig, &FilterChainConfig)| {
            one.tls == other.tls
                && one.http == other.http
                && one.access_log == other.access_log
                && one.tracing == other.tracing
        };
        self.name == other.name
            && self.selector == other.selector
            && self.chains.len() == other.chains.len()
            && self.chains.iter().zip(&other.chains).all(same)
    }

    /// Returns the names of the route configurations that come from RDS.
    pub(crate) fn rds_names(&self) -> impl Iterator<Item = &Arc<str>> {
        self.chains.iter().filter_map(FilterChainConfig::rds_name)
    }

    /// Returns the files of certificates and keys of all chains.
    pub(crate) fn tls_files(&self) -> impl Iterator<Item = &PathBuf> {
        let chains = self.chains.iter();
        chains
            .filter_map(|chain| chain.tls.as_ref())
            .flat_map(ServerTlsSettings::files)
    }

    /// Returns the field of a chain.
    fn chain_path(&self, chain: usize) -> String {
        if self.selector.default_chain() == Some(chain) {
            "default_filter_chain".to_owned()
        } else {
            format!("filter_chains[{chain}]")
        }
    }
}

impl FilterChainConfig {
    /// Returns the name of the routes if they come from RDS.
    pub(crate) const fn rds_name(&self) -> Option<&Arc<str>> {
        match &self.routes {
            RouteSource::Rds(name) => Some(name),
            RouteSource::Inline(_) => None,
        }
    }
}

impl Default for HttpOptions {
    fn default() -> Self {
        Self {
            stat_prefix: "ingress_http".to_owned(),
            codec: CodecType::Auto,
            max_request_header_bytes: 60 << 10,
            max_headers: 100,
            max_requests_per_connection: None,
            request_headers_timeout: Some(Duration::from_secs(10)),
            idle_timeout: Some(Duration::from_secs(3600)),
            max_connection_duration: None,
            stream_idle_timeout: Some(Duration::from_secs(300)),
            request_timeout: None,
            max_stream_duration: None,
            max_request_bytes: None,
            http2: Http2Config::default(),
            use_remote_address: false,
            generate_request_id: true,
            preserve_external_request_id: false,
            always_set_request_id_in_response: false,
            server: None,
            upgrades: Vec::new(),
            suppress_envoy_headers: false,
            local_rate_limit: None,
            cors: false,
            health_check_path: None,
            path: PathOptions::default(),
            headers_with_underscores: HeadersWithUnderscoresAction::default(),
            strip_host_port: StripHostPort::default(),
            forward_client_cert: ForwardClientCertDetails::default(),
            client_cert_details: SetCurrentClientCertDetailsMessage::default(),
        }
    }
}

impl Http2Config {
    /// Defaults of Envoy's edge guide, which bound the memory that one client can take.
    pub(crate) fn edge() -> Self {
        Self {
            max_concurrent_streams: 100,
            initial_stream_window_size: 64 << 10,
            ..Self::default()
        }
    }
}

impl Default for Http2Config {
    fn default() -> Self {
        Self {
            max_concurrent_streams: 1024,
            initial_stream_window_size: 256 << 10,
            initial_connection_window_size: 1 << 20,
            keepalive_interval: None,
            keepalive_timeout: Duration::from_secs(20),
        }
    }
}

/// Returns the JSON Schema of the bootstrap file. Ranges and mutually exclusive fields are only
/// checked by [`ProxyConfig::parse`].
#[cfg(feature = "schema")]
pub fn schema() -> schemars::Schema {
    schemars::schema_for!(bootstrap::BootstrapYaml)
}

/// Whether a cluster uses TLS without verifying its hosts, as Envoy does without `trusted_ca`.
fn is_unverified(cluster: &UpstreamCluster) -> bool {
    let tls = cluster.options.tls.as_ref();
    tls.is_some_and(|tls| tls.ca == TrustedCa::Unverified)
}

impl ProxyConfig {
    /// Parses and validates a bootstrap file in YAML or JSON.
    ///
    /// ```
    /// use plimsoll_proxy::config::ProxyConfig;
    ///
    /// let error = ProxyConfig::parse("static_resources:\n  listners: []\n").unwrap_err();
    /// assert_eq!(error.path(), "static_resources.listners");
    /// assert!(error.to_string().ends_with("(at 2:3)"));
    /// ```
    pub fn parse(text: &str) -> Result<Self, ConfigError> {
        Self::parse_with(text, &NodeOverrides::default())
    }

    /// Like [`Self::parse`], with the identity of the proxy from the command line.
    pub fn parse_with(text: &str, node: &NodeOverrides) -> Result<Self, ConfigError> {
        let config = Self::read(&Document::parse(text)?, node)?;
        if !config.ignored_fields.is_empty() {
            let fields = config.ignored_fields.join(", ");
            log_line!(log_lines::FIELDS_IGNORED, fields);
        }
        for cluster in config
            .clusters
            .iter()
            .filter(|cluster| is_unverified(cluster))
        {
            let cluster = cluster.config.name();
            log_line!(log_lines::UPSTREAM_UNVERIFIED, %cluster);
        }
        Ok(config)
    }

    /// Reads a bootstrap from a parsed document.
    pub fn read(document: &Document, node: &NodeOverrides) -> Result<Self, ConfigError> {
        let mut raw: bootstrap::BootstrapYaml = document.read()?;
        raw.override_node(node);
        raw.validate().map_err(|error| document.locate(error))
    }

    fn check(self) -> Result<Self, FieldError> {
        let at = |index: usize, field: &str| format!("static_resources.listeners[{index}].{field}");
        for (index, listener) in self.listeners.iter().enumerate() {
            let earlier = &self.listeners[..index];
            if earlier.iter().any(|other| other.name == listener.name) {
                let reason = format!("another listener is already named {:?}", listener.name);
                return Err(FieldError::new(at(index, "name"), reason));
            }
            let same = |other: &&Arc<ListenerConfig>| {
                other.address == listener.address && listener.address.port() != 0
            };
            let from_rds = |chain: &FilterChainConfig| chain.rds_name().is_some();
            if let Some(chain) = listener.chains.iter().position(from_rds)
                && self.xds.is_none()
            {
                let chain = listener.chain_path(chain);
                let rds = format!("{chain}.filters[0].typed_config.rds");
                let reason = "requires dynamic_resources.ads_config";
                return Err(FieldError::new(at(index, &rds), reason));
            }
            if let Some(other) = earlier.iter().find(same) {
                let reason = format!("is already used by listener {:?}", other.name);
                return Err(FieldError::new(at(index, "address"), reason));
            }
            let is_admin = |admin| plimsoll_serve::same_socket(listener.address, admin);
            if self.admin.is_some_and(is_admin) {
                let reason = format!("{} is already the address of admin", listener.address);
                return Err(FieldError::new(at(index, "address"), reason));
            }
        }
        self.check_clusters()?;
        self.check_collectors()?;
        Ok(self)
    }

    /// Checks that clusters of collectors are known, unless the management server may send them.
    fn check_collectors(&self) -> Result<(), FieldError> {
        if self.xds.as_ref().is_some_and(|xds| xds.clusters) {
            return Ok(());
        }
        for (index, listener) in self.listeners.iter().enumerate() {
            for (chain, config) in listener.chains.iter().enumerate() {
                let tracing = config.tracing.as_ref();
                let Some(collector) = tracing.and_then(|tracing| tracing.collector.as_ref()) else {
                    continue;
                };
                let mut clusters = self.clusters.iter();
                if clusters.any(|one| **one.config.name() == *collector.cluster) {
                    continue;
                }
                let path = format!(
                    "static_resources.listeners[{index}].{}.filters[0].typed_config.tracing.\
                     provider.typed_config.{}",
                    listener.chain_path(chain),
                    collector.cluster_field()
                );
                let reason = format!("no cluster {:?} in static_resources", collector.cluster);
                return Err(FieldError::new(path, reason));
            }
        }
        Ok(())
    }

    fn check_clusters(&self) -> Result<(), FieldError> {
        for (index, cluster) in self.clusters.iter().enumerate() {
            let name = cluster.config.name();
            let earlier = &self.clusters[..index];
            if earlier.iter().any(|other| other.config.name() == name) {
                let path = format!("static_resources.clusters[{index}].name");
                let reason = format!("another cluster is already named {name:?}");
                return Err(FieldError::new(path, reason));
            }
        }
        let known = |name: &str| self.clusters.iter().any(|one| &**one.config.name() == name);
        if let Some(local) = &self.local_cluster_name
            && !known(local)
        {
            let reason = format!("no cluster {local:?} in static_resources.clusters");
            return Err(FieldError::new(
                "cluster_manager.local_cluster_name",
                reason,
            ));
        }
        Ok(())
    }
}
