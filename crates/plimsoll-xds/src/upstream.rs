//! [`UpstreamOptions`]: what a cluster says beyond how to choose a host.
//!
//! Timeouts, protocol, breakers, checks and TLS, as nouns with Envoy's names and defaults. Which
//! host is chosen is in the core's `ClusterConfig`. Read from bytes in `convert::cluster` and from
//! files in `yaml`; used by whoever opens connections, the client and the proxy. Nothing here opens
//! one, reads a file or looks up a name.

mod health_check;
mod load_assignment;
mod outlier;
mod tls;

use std::time::Duration;

use plimsoll_core::model::cluster::ClusterConfig;
use plimsoll_core::model::outlier_detection::OutlierDetection;
use plimsoll_core::units::{FieldError, Percent};

pub(crate) use health_check::payload_text;
pub use health_check::{
    HealthCheck, HealthCheckKind, HealthCheckParts, HttpHealthCheck, HttpMethod, StatusRange,
};
pub use load_assignment::{EndpointExtras, LoadAssignment, NamedEndpoint, NamedLocality};
pub(crate) use outlier::OutlierFields;
pub use tls::{CertificatePair, DataSource, SanMatcher, SanType, TrustedCa, UpstreamTls};

/// Envoy's default of `connect_timeout`.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Envoy's default of `idle_timeout`: connections without requests are closed after this time.
const IDLE_TIMEOUT: Duration = Duration::from_secs(3600);

/// A cluster as somebody wrote it, read in full.
#[derive(Clone, Debug, PartialEq)]
pub struct UpstreamCluster {
    /// Name, policies and health settings.
    pub config: ClusterConfig,
    /// Everything else.
    pub options: UpstreamOptions,
    /// The endpoints, unless they come by EDS. Checked: for [`Discovery::Static`] it resolves
    /// without any lookup.
    pub load_assignment: Option<LoadAssignment>,
}

impl UpstreamCluster {
    /// Puts the parts together and checks what concerns several of them.
    pub fn try_new(
        config: ClusterConfig,
        options: UpstreamOptions,
        load_assignment: Option<LoadAssignment>,
    ) -> Result<Self, FieldError> {
        let options = options.checked()?;
        let eds = matches!(options.discovery, Discovery::Eds { .. });
        match &load_assignment {
            Some(_) if eds => {
                let reason = "has no effect with type EDS";
                return Err(FieldError::new("load_assignment", reason));
            }
            None if !eds => {
                let reason = "must be set, unless the type is EDS";
                return Err(FieldError::new("load_assignment", reason));
            }
            Some(assignment) => assignment
                .check(&options.discovery)
                .map_err(|error| error.under("load_assignment"))?,
            None => {}
        }
        Ok(Self {
            config,
            options,
            load_assignment,
        })
    }

    /// The name of the assignment that EDS is asked for.
    pub fn eds_name(&self) -> Option<&str> {
        match &self.options.discovery {
            Discovery::Eds { service_name, .. } => {
                Some(service_name.as_deref().unwrap_or(self.config.name()))
            }
            _ => None,
        }
    }
}

/// Everything about a cluster but its policies and its endpoints.
#[derive(Clone, Debug, PartialEq)]
pub struct UpstreamOptions {
    /// Where the endpoints come from.
    pub discovery: Discovery,
    /// How long a connection may take; above 0.
    pub connect_timeout: Duration,
    /// What is spoken to the endpoints.
    pub http_version: HttpVersion,
    /// Settings of HTTP/2, used with [`HttpVersion::Http2`].
    pub http2: Http2Options,
    /// Limits of the default priority.
    pub circuit_breakers: CircuitBreakers,
    /// Active health checks; a host is healthy when all of them say so.
    pub health_checks: Vec<HealthCheck>,
    /// Passive health checks.
    pub outlier_detection: Option<OutlierDetection>,
    /// A connection is closed after so many requests.
    pub max_requests_per_connection: Option<u32>,
    /// A connection without requests is closed after this time; `None` is never.
    pub idle_timeout: Option<Duration>,
    /// A connection is closed after this time.
    pub max_connection_duration: Option<Duration>,
    /// A request may take this long at most.
    pub max_stream_duration: Option<Duration>,
    /// TLS to the endpoints; `None` is plain text.
    pub tls: Option<UpstreamTls>,
    /// `auto_sni`: the server name is the host of the request.
    pub auto_sni: bool,
    /// `auto_san_validation`: the certificate must be for the host of the request.
    pub auto_san_validation: bool,
    /// `lrs_server: self`: load is reported to the server that sent the cluster.
    pub lrs: bool,
    /// Connections to a host are closed when its active checks fail.
    pub close_connections_on_host_health_failure: bool,
    /// Probes on idle connections.
    pub tcp_keepalive: Option<TcpKeepalive>,
}

impl Default for UpstreamOptions {
    fn default() -> Self {
        Self {
            discovery: Discovery::default(),
            connect_timeout: CONNECT_TIMEOUT,
            http_version: HttpVersion::default(),
            http2: Http2Options::default(),
            circuit_breakers: CircuitBreakers::default(),
            health_checks: Vec::new(),
            outlier_detection: None,
            max_requests_per_connection: None,
            idle_timeout: Some(IDLE_TIMEOUT),
            max_connection_duration: None,
            max_stream_duration: None,
            tls: None,
            auto_sni: false,
            auto_san_validation: false,
            lrs: false,
            close_connections_on_host_health_failure: false,
            tcp_keepalive: None,
        }
    }
}

impl UpstreamOptions {
    /// Checks what the types alone do not: paths of errors start at the cluster.
    pub fn checked(self) -> Result<Self, FieldError> {
        if self.connect_timeout.is_zero() {
            return Err(FieldError::new("connect_timeout", "must be above 0"));
        }
        if self.auto_san_validation && self.tls.is_none() {
            let reason = "needs a transport_socket with TLS";
            let path = "upstream_http_protocol_options.auto_san_validation";
            return Err(FieldError::new(path, reason));
        }
        Ok(self)
    }
}

/// Where the endpoints of a cluster come from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Discovery {
    /// The cluster lists their addresses.
    #[default]
    Static,
    /// The cluster lists names; every address of a name is an endpoint.
    StrictDns(DnsOptions),
    /// The cluster lists one name; new connections go to its first address.
    LogicalDns(DnsOptions),
    /// An assignment.
    Eds {
        /// Name of the assignment, when it differs from the cluster's.
        service_name: Option<String>,
        /// Who has it.
        source: EdsSource,
    },
}

/// Where an assignment comes from: `eds_cluster_config.eds_config`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum EdsSource {
    /// The stream that other resources come on: `ads` or `self`.
    #[default]
    Ads,
    /// A file: `path_config_source`.
    Path(String),
}

/// How names become addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DnsOptions {
    /// Time between two lookups; Envoy: 5 s.
    pub refresh_rate: Duration,
    /// Which addresses are asked for.
    pub lookup_family: DnsLookupFamily,
}

impl Default for DnsOptions {
    fn default() -> Self {
        Self {
            refresh_rate: Duration::from_secs(5),
            lookup_family: DnsLookupFamily::Auto,
        }
    }
}

/// `Cluster.DnsLookupFamily`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DnsLookupFamily {
    /// IPv6, and IPv4 only if there are none.
    #[default]
    Auto,
    /// IPv4 only.
    V4Only,
    /// IPv6 only.
    V6Only,
    /// IPv4, and IPv6 only if there are none.
    V4Preferred,
    /// Both.
    All,
}

/// What is spoken to the endpoints.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HttpVersion {
    /// HTTP/1.1.
    #[default]
    Http1,
    /// HTTP/2, without TLS by prior knowledge.
    Http2,
}

/// `Http2ProtocolOptions`; unset means the default of the implementation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Http2Options {
    /// Requests at a time on one connection.
    pub max_concurrent_streams: Option<u32>,
    /// Bytes in flight of one request.
    pub initial_stream_window_size: Option<u32>,
    /// Bytes in flight of one connection.
    pub initial_connection_window_size: Option<u32>,
    /// Time between two pings.
    pub keepalive_interval: Option<Duration>,
    /// How long the answer to a ping may take.
    pub keepalive_timeout: Option<Duration>,
}

/// `TcpKeepalive`; unset means the default of the system.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TcpKeepalive {
    /// Probes without an answer that end a connection.
    pub probes: Option<u32>,
    /// Idle time before the first probe.
    pub time: Option<Duration>,
    /// Time between two probes.
    pub interval: Option<Duration>,
}

/// `CircuitBreakers.Thresholds` of the default priority, with Envoy's defaults.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CircuitBreakers {
    /// Connections.
    pub max_connections: u32,
    /// Requests that wait for a connection.
    pub max_pending_requests: u32,
    /// Requests at a time.
    pub max_requests: u32,
    /// Retries at a time; not used with a budget.
    pub max_retries: u32,
    /// Retries as a share of the requests.
    pub retry_budget: Option<RetryBudget>,
}

impl Default for CircuitBreakers {
    fn default() -> Self {
        Self {
            max_connections: 1024,
            max_pending_requests: 1024,
            max_requests: 1024,
            max_retries: 3,
            retry_budget: None,
        }
    }
}

/// `RetryBudget`: retries as a share of the requests in flight.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RetryBudget {
    /// Percent, 0 to 100.
    pub budget_percent: f64,
    /// So many are allowed in any case.
    pub min_retry_concurrency: u32,
}

impl RetryBudget {
    /// Checks the percentage; defaults are 20 percent and 3.
    pub fn try_new(
        budget_percent: Option<f64>,
        min_retry_concurrency: Option<u32>,
    ) -> Result<Self, FieldError> {
        let percent = Percent::new(budget_percent.unwrap_or(20.0), "budget_percent")?;
        Ok(Self {
            budget_percent: percent.get(),
            min_retry_concurrency: min_retry_concurrency.unwrap_or(3),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_are_those_of_envoy() {
        let options = UpstreamOptions::default().checked().unwrap();
        assert_eq!(options.connect_timeout, Duration::from_secs(5));
        assert_eq!(options.idle_timeout, Some(Duration::from_secs(3600)));
        let breakers = options.circuit_breakers;
        assert_eq!((breakers.max_connections, breakers.max_retries), (1024, 3));
        assert_eq!(breakers.retry_budget, None);
        let budget = RetryBudget::try_new(None, None).unwrap();
        assert_eq!(
            (budget.budget_percent, budget.min_retry_concurrency),
            (20.0, 3)
        );
    }

    #[test]
    fn what_is_wrong_is_named() {
        let timeout = UpstreamOptions {
            connect_timeout: Duration::ZERO,
            ..Default::default()
        };
        assert_eq!(timeout.checked().unwrap_err().path(), "connect_timeout");
        let validation = UpstreamOptions {
            auto_san_validation: true,
            ..Default::default()
        };
        let error = validation.checked().unwrap_err();
        assert!(error.path().ends_with("auto_san_validation"), "{error}");
        for percent in [-1.0, 100.5, f64::NAN] {
            let error = RetryBudget::try_new(Some(percent), None).unwrap_err();
            assert_eq!(error.path(), "budget_percent");
        }
    }
}
