//! Connection settings of a cluster: timeouts, protocols, circuit breakers, health checks and TLS.
//!
//! Types have Envoy's names and defaults. Load balancing is in the core's `ClusterConfig`. Decoded
//! in `convert::cluster` and read from files in `yaml`; used by the client and the proxy. Nothing
//! here opens a connection, reads a file or resolves a name.

mod health_check;
mod load_assignment;
#[cfg(feature = "messages")]
mod outlier;
mod tls;

use std::time::Duration;

use plimsoll_core::model::cluster::ClusterConfig;
use plimsoll_core::model::outlier_detection::OutlierDetection;
pub use plimsoll_core::model::transport::{DnsLookupFamily, HttpMethod, HttpVersion, SanType};
use plimsoll_core::units::{FieldError, Percent};

#[cfg(feature = "messages")]
pub(crate) use health_check::payload_text;
pub use health_check::{
    HealthCheck, HealthCheckKind, HealthCheckParts, HttpHealthCheck, StatusRange,
};
pub use load_assignment::{
    ClusterEndpoints, EndpointExtras, LoadAssignment, NamedEndpoint, NamedLocality,
};
#[cfg(feature = "messages")]
pub(crate) use outlier::OutlierFields;
pub use tls::{CertificatePair, DataSource, SanMatcher, TrustedCa, UpstreamTls};

/// Envoy's default of `connect_timeout`.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Envoy's default of `idle_timeout`, after which idle connections are closed.
const IDLE_TIMEOUT: Duration = Duration::from_secs(3600);

/// Fully decoded cluster: policies, connection settings and endpoints.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct UpstreamCluster {
    pub config: ClusterConfig,
    pub options: UpstreamOptions,
    /// Unset with EDS. Checked by `try_new`: for [`Discovery::Static`] it resolves without DNS.
    pub load_assignment: Option<LoadAssignment>,
}

impl UpstreamCluster {
    /// Combines the parts and checks that they fit together.
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

    /// Returns the name of the EDS resource, if the cluster uses EDS.
    pub fn eds_name(&self) -> Option<&str> {
        match &self.options.discovery {
            Discovery::Eds { service_name, .. } => {
                Some(service_name.as_deref().unwrap_or(self.config.name()))
            }
            _ => None,
        }
    }
}

/// Settings of a cluster besides its policies and endpoints.
#[derive(Clone, Debug, PartialEq)]
pub struct UpstreamOptions {
    pub discovery: Discovery,
    /// Always positive; default 5 s.
    pub connect_timeout: Duration,
    pub http_version: HttpVersion,
    /// HTTP/2 settings, used only with [`HttpVersion::Http2`].
    pub http2: Http2Options,
    /// Limits of the default priority.
    pub circuit_breakers: CircuitBreakers,
    /// A host is healthy when all of these checks pass.
    pub health_checks: Vec<HealthCheck>,
    pub outlier_detection: Option<OutlierDetection>,
    pub max_requests_per_connection: Option<u32>,
    /// Closes a connection without requests after this time; `None` is never.
    pub idle_timeout: Option<Duration>,
    pub max_connection_duration: Option<Duration>,
    pub max_stream_duration: Option<Duration>,
    /// Plaintext if it is `None`.
    pub tls: Option<UpstreamTls>,
    pub auto_sni: bool,
    pub auto_san_validation: bool,
    /// `lrs_server: self`: load is reported to the server that sent the cluster.
    pub lrs: bool,
    pub close_connections_on_host_health_failure: bool,
    pub tcp_keepalive: Option<TcpKeepalive>,
    /// Keeps literals open for new fields: write `..Default::default()`.
    #[doc(hidden)]
    pub _non_exhaustive: (),
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
            _non_exhaustive: (),
        }
    }
}

impl UpstreamOptions {
    /// Checks dependencies between fields; error paths start at the cluster.
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

/// Source of a cluster's endpoints.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Discovery {
    #[default]
    Static,
    /// DNS names in the cluster; every address of a name is an endpoint.
    StrictDns(DnsOptions),
    /// One DNS name in the cluster; new connections go to its first address.
    LogicalDns(DnsOptions),
    Eds {
        /// Name of the assignment, if it differs from the name of the cluster.
        service_name: Option<String>,
        source: EdsSource,
    },
}

/// Source of EDS assignments (`eds_cluster_config.eds_config`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum EdsSource {
    /// The ADS stream that carries the other resources: `ads` or `self`.
    #[default]
    Ads,
    /// File path of `path_config_source`.
    Path(String),
}

/// DNS resolution settings of a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DnsOptions {
    /// Time between two lookups; default 5 s.
    pub refresh_rate: Duration,
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

/// HTTP/2 settings; unset is the default of the implementation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Http2Options {
    pub max_concurrent_streams: Option<u32>,
    pub initial_stream_window_size: Option<u32>,
    pub initial_connection_window_size: Option<u32>,
    pub keepalive_interval: Option<Duration>,
    pub keepalive_timeout: Option<Duration>,
}

/// TCP keepalive settings; unset is the default of the system.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TcpKeepalive {
    pub probes: Option<u32>,
    pub time: Option<Duration>,
    pub interval: Option<Duration>,
    /// Keeps literals open for new fields: write `..Default::default()`.
    #[doc(hidden)]
    pub _non_exhaustive: (),
}

/// Circuit breaker thresholds of the default priority, with Envoy's defaults.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CircuitBreakers {
    pub max_connections: u32,
    pub max_pending_requests: u32,
    pub max_requests: u32,
    /// Concurrent retries; unused with a retry budget.
    pub max_retries: u32,
    pub retry_budget: Option<RetryBudget>,
    /// Keeps literals open for new fields: write `..Default::default()`.
    #[doc(hidden)]
    pub _non_exhaustive: (),
}

impl Default for CircuitBreakers {
    fn default() -> Self {
        Self {
            max_connections: 1024,
            max_pending_requests: 1024,
            max_requests: 1024,
            max_retries: 3,
            retry_budget: None,
            _non_exhaustive: (),
        }
    }
}

/// Limit of retries as a percentage of active requests.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RetryBudget {
    /// Percent, 0 to 100.
    pub budget_percent: f64,
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
    fn errors_name_the_field() {
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
