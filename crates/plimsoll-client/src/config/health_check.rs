//! [`ActiveHealthCheck`]: active health checks of a cluster's hosts.

use std::time::Duration;

use plimsoll_core::units::FieldError;
use plimsoll_xds::upstream::{HealthCheck, HealthCheckKind, HealthCheckParts, HttpHealthCheck};

const INTERVAL: Duration = Duration::from_secs(5);
const TIMEOUT: Duration = Duration::from_secs(1);
const UNHEALTHY_THRESHOLD: u32 = 3;
const HEALTHY_THRESHOLD: u32 = 2;

/// An active health check, for [`Cluster::health_check`](crate::Cluster::health_check).
///
/// Envoy has no defaults for the first four settings; here a host is checked every 5 s with a
/// timeout of 1 s, fails after 3 failures and recovers after 2 successes.
///
/// ```
/// use plimsoll_client::{ActiveHealthCheck, Cluster};
///
/// let check = ActiveHealthCheck::http("/healthz").unhealthy_threshold(2);
/// let cluster = Cluster::new("orders").zone("zone-a", ["10.0.0.1:80"]).health_check(check);
/// # cluster.build()?;
/// # Ok::<(), plimsoll_client::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct ActiveHealthCheck {
    parts: HealthCheckParts,
}

impl ActiveHealthCheck {
    /// Sends `GET path` and expects status 200.
    pub fn http(path: &str) -> Self {
        let request = HttpHealthCheck {
            path: path.to_owned(),
            ..HttpHealthCheck::default()
        };
        Self::of(HealthCheckKind::Http(request))
    }

    /// Calls `grpc.health.v1.Health/Check` for a service; empty is the whole server.
    pub fn grpc(service_name: &str) -> Self {
        Self::of(HealthCheckKind::Grpc {
            service_name: service_name.to_owned(),
            authority: String::new(),
            initial_metadata: Vec::new(),
        })
    }

    /// Opens a connection, and expects no more.
    pub fn tcp() -> Self {
        Self::of(HealthCheckKind::Tcp {
            send: None,
            receive: Vec::new(),
        })
    }

    /// Checks with all settings of a kind, such as other statuses or request headers.
    pub fn of(kind: HealthCheckKind) -> Self {
        let mut parts = HealthCheckParts::new(kind);
        parts.interval = Some(INTERVAL);
        parts.timeout = Some(TIMEOUT);
        parts.unhealthy_threshold = Some(UNHEALTHY_THRESHOLD);
        parts.healthy_threshold = Some(HEALTHY_THRESHOLD);
        Self { parts }
    }

    setters! {
        /// Sets the time between two checks; 5 s by default.
        interval(interval: Duration) => parts.interval = Some(interval);
        /// Sets the time after which a check fails; 1 s by default.
        timeout(timeout: Duration) => parts.timeout = Some(timeout);
        /// Sets how many failures in a row make a host unhealthy; 3 by default.
        unhealthy_threshold(failures: u32) => parts.unhealthy_threshold = Some(failures);
        /// Sets how many successes in a row make a host healthy; 2 by default.
        healthy_threshold(successes: u32) => parts.healthy_threshold = Some(successes);
        /// Sets the interval before the first request to the cluster; 60 s by default, as in Envoy.
        no_traffic_interval(interval: Duration) => parts.no_traffic_interval = Some(interval);
        /// Sets the interval while a host is unhealthy; `interval` by default.
        unhealthy_interval(interval: Duration) => parts.unhealthy_interval = Some(interval);
        /// Sets the port of checks, if it is not the port of requests.
        port(port: u16) => parts.alt_port = Some(u32::from(port));
    }

    pub(super) fn checked(self) -> Result<HealthCheck, FieldError> {
        HealthCheck::try_new(self.parts)
    }
}
