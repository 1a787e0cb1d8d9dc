//! [`ProxyConfig`]: what a proxy is told to do, checked.
//!
//! Files have the shape of Envoy's bootstrap, so that listeners, routes and clusters can be pasted
//! from one. Raw structs with unknown fields denied are in the files below, one per message; here
//! are the nouns that the rest of the crate uses. What is not supported is an error that names the
//! field. Nothing is opened here but the files that a configuration names.

mod access_log;
mod bootstrap;
mod dynamic;
mod listener;
mod route;
mod tls;

#[cfg(test)]
mod tests;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use http::HeaderValue;
use plimsoll_core::model::locality::Locality;
use plimsoll_core::units::FieldError;
use plimsoll_xds::upstream::UpstreamOptions;
use plimsoll_xds::yaml::{ConfigError, Document};

use crate::access_log::LogFormat;
use crate::clusters::UpstreamCluster;
use crate::router::RouteTable;

pub(crate) use self::route::json::route_configuration as route_json;

/// Everything in one file.
#[derive(Debug)]
pub struct ProxyConfig {
    /// Who we are.
    pub node: NodeConfig,
    /// Where the admin pages are, if anywhere.
    pub admin: Option<SocketAddr>,
    /// Where requests come in.
    pub listeners: Vec<Arc<ListenerConfig>>,
    /// Where they go.
    pub clusters: Vec<UpstreamCluster>,
    /// The cluster that this proxy is a host of: the fleet.
    pub local_cluster_name: Option<String>,
    /// Where more clusters come from.
    pub xds: Option<XdsConfig>,
    /// Connections of clients at a time, all listeners together.
    pub max_connections: Option<u64>,
}

/// Who we are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeConfig {
    /// Unique among the proxies.
    pub id: String,
    /// The fleet.
    pub cluster: String,
    /// Where we are.
    pub locality: Locality,
}

/// A management server.
#[derive(Clone, Debug, PartialEq)]
pub struct XdsConfig {
    /// Name of the cluster that says where it is.
    pub server: String,
    /// `http://host:port`
    pub uri: String,
    /// Options of that cluster, if it has TLS.
    pub tls: Option<Box<UpstreamOptions>>,
    /// Incremental instead of state of the world.
    pub delta: bool,
    /// All its clusters are wanted.
    pub clusters: bool,
    /// Load is reported to it.
    pub report_load: bool,
    /// Pauses between attempts to connect, the first and the longest.
    pub back_off: Option<(Duration, Duration)>,
}

/// One listener.
#[derive(Debug)]
pub struct ListenerConfig {
    /// Name, unique.
    pub name: String,
    /// Where it listens.
    pub address: SocketAddr,
    /// TLS; plain text without.
    pub tls: Option<TlsConfig>,
    /// Protocol and limits.
    pub http: HttpOptions,
    /// Routes.
    pub routes: RouteSource,
    /// Access logs.
    pub access_log: Vec<AccessLogConfig>,
}

/// Where the routes of a listener are.
#[derive(Clone, Debug)]
pub enum RouteSource {
    /// In the file.
    Inline(Arc<RouteTable>),
    /// At the management server, under this name.
    Rds(Arc<str>),
}

/// TLS of a listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsConfig {
    /// Certificate chain, PEM.
    pub certificate: Source,
    /// Its key, PEM.
    pub key: Source,
    /// Protocols by preference; empty is `h2`, then `http/1.1`.
    pub alpn: Vec<String>,
    /// Who may sign certificates of clients.
    pub client_ca: Option<Source>,
    /// A client without a certificate is turned away.
    pub require_client_certificate: bool,
}

/// Bytes in the configuration or beside it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// A file, looked at again when it changes.
    File(PathBuf),
    /// The bytes themselves.
    Inline(String),
}

/// Protocol and limits of a listener.
#[derive(Clone, Debug)]
pub struct HttpOptions {
    /// Prefix of its counters.
    pub stat_prefix: String,
    /// Which protocol is expected.
    pub codec: Codec,
    /// All header fields of a request together, bytes; 60 KiB.
    pub max_request_header_bytes: u32,
    /// Header fields of a request; 100.
    pub max_headers: u32,
    /// From the first byte of a request to the end of its header; 10 s.
    pub request_headers_timeout: Option<Duration>,
    /// A connection without a request is closed after this; one hour.
    pub idle_timeout: Option<Duration>,
    /// A connection is closed after this, when its requests are done.
    pub max_connection_duration: Option<Duration>,
    /// A request on which nothing moves is ended after this; 5 min.
    pub stream_idle_timeout: Option<Duration>,
    /// Body of a request, bytes.
    pub max_request_bytes: Option<u64>,
    /// HTTP/2.
    pub http2: Http2Config,
    /// We are the edge: the address of the client is believed, not what it says of itself.
    pub use_remote_address: bool,
    /// Requests without `x-request-id` get one.
    pub generate_request_id: bool,
    /// At the edge, an id of the client is kept.
    pub preserve_external_request_id: bool,
    /// The id is in the response too.
    pub always_set_request_id_in_response: bool,
    /// The `server` field of responses; `None` leaves what the upstream said.
    pub server: Option<HeaderValue>,
    /// Protocols that may be upgraded to, in lower case.
    pub upgrades: Vec<String>,
}

/// Which protocol is expected.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Codec {
    /// Found out.
    #[default]
    Auto,
    /// HTTP/1.1.
    Http1,
    /// HTTP/2.
    Http2,
}

/// HTTP/2 of a listener.
#[derive(Clone, Copy, Debug)]
pub struct Http2Config {
    /// Requests at a time on one connection; 1024.
    pub max_concurrent_streams: u32,
    /// Bytes in flight of one request; 256 KiB.
    pub initial_stream_window_size: u32,
    /// Bytes in flight of one connection; 1 MiB.
    pub initial_connection_window_size: u32,
    /// Time between two pings.
    pub keepalive_interval: Option<Duration>,
    /// How long an answer may take.
    pub keepalive_timeout: Duration,
}

/// One access log.
#[derive(Clone, Debug, PartialEq)]
pub struct AccessLogConfig {
    /// Where lines go; `None` is standard output.
    pub path: Option<PathBuf>,
    /// What they look like.
    pub format: Arc<LogFormat>,
}

impl Default for HttpOptions {
    fn default() -> Self {
        Self {
            stat_prefix: "ingress_http".to_owned(),
            codec: Codec::Auto,
            max_request_header_bytes: 60 << 10,
            max_headers: 100,
            request_headers_timeout: Some(Duration::from_secs(10)),
            idle_timeout: Some(Duration::from_secs(3600)),
            max_connection_duration: None,
            stream_idle_timeout: Some(Duration::from_secs(300)),
            max_request_bytes: None,
            http2: Http2Config::default(),
            use_remote_address: false,
            generate_request_id: true,
            preserve_external_request_id: false,
            always_set_request_id_in_response: false,
            server: None,
            upgrades: Vec::new(),
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

/// JSON Schema of the file. Ranges, and what cannot stand together, are known to
/// [`ProxyConfig::parse`] only.
#[cfg(feature = "schema")]
pub fn schema() -> schemars::Schema {
    schemars::schema_for!(bootstrap::BootstrapYaml)
}

impl ProxyConfig {
    /// Reads a text.
    ///
    /// ```
    /// use plimsoll_proxy::config::ProxyConfig;
    ///
    /// let error = ProxyConfig::parse("static_resources:\n  listners: []\n").unwrap_err();
    /// assert_eq!(error.path(), "static_resources.listners");
    /// assert!(error.to_string().ends_with("(at 2:3)"));
    /// ```
    pub fn parse(text: &str) -> Result<Self, ConfigError> {
        let document = Document::parse(text)?;
        let raw: bootstrap::BootstrapYaml = document.read()?;
        raw.checked().map_err(|error| document.locate(error))
    }

    fn check(self) -> Result<Self, FieldError> {
        let at = |index: usize, field: &str| format!("static_resources.listeners[{index}].{field}");
        for (index, listener) in self.listeners.iter().enumerate() {
            let earlier = &self.listeners[..index];
            if earlier.iter().any(|other| other.name == listener.name) {
                let reason = format!("a listener {:?} stands above", listener.name);
                return Err(FieldError::new(at(index, "name"), reason));
            }
            let same = |other: &&Arc<ListenerConfig>| {
                other.address == listener.address && listener.address.port() != 0
            };
            if matches!(listener.routes, RouteSource::Rds(_)) && self.xds.is_none() {
                let manager = at(index, "filter_chains[0].filters[0].typed_config");
                let reason = "needs dynamic_resources.ads_config";
                return Err(FieldError::new(format!("{manager}.rds"), reason));
            }
            if let Some(other) = earlier.iter().find(same) {
                let reason = format!("is that of listener {:?}", other.name);
                return Err(FieldError::new(at(index, "address"), reason));
            }
        }
        self.check_clusters()?;
        Ok(self)
    }

    fn check_clusters(&self) -> Result<(), FieldError> {
        for (index, cluster) in self.clusters.iter().enumerate() {
            let name = cluster.config.name();
            let earlier = &self.clusters[..index];
            if earlier.iter().any(|other| other.config.name() == name) {
                let path = format!("static_resources.clusters[{index}].name");
                let reason = format!("a cluster {name:?} stands above");
                return Err(FieldError::new(path, reason));
            }
        }
        let known = |name: &str| self.clusters.iter().any(|one| &**one.config.name() == name);
        if let Some(local) = &self.local_cluster_name
            && !known(local)
        {
            let reason = format!("no cluster {local:?} in static_resources");
            return Err(FieldError::new(
                "cluster_manager.local_cluster_name",
                reason,
            ));
        }
        Ok(())
    }
}
