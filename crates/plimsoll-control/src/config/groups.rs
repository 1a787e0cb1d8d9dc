//! Settings of a [`ControlConfig`](super::ControlConfig) that belong together.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use plimsoll_core::model::locality::Locality;
use plimsoll_core::planner::PlannerConfig;
use plimsoll_core::planner::cost::Cost;
use plimsoll_serve::ServerTlsSettings;

use super::{Evacuation, FileError, Limits, Otlp};

/// Where the control plane listens, and with which certificates.
#[derive(Clone, Debug, PartialEq)]
pub struct Addresses {
    pub listen: SocketAddr,
    /// Certificates of ADS and LRS; `None` for plain text.
    pub tls: Option<ServerTlsSettings>,
    /// Allows `listen` and `admin` to be reachable from other machines without TLS.
    pub insecure: bool,
    /// Address of the admin API; `None` disables it.
    pub admin: Option<SocketAddr>,
    pub admin_tls: Option<ServerTlsSettings>,
    /// Address of the admin API for reading only.
    pub read_only: Option<SocketAddr>,
}

/// How load is reported, and how demand is computed from the reports.
#[derive(Clone, Debug, PartialEq)]
pub struct Reporting {
    pub load_reporting_interval: Duration,
    pub report_endpoint_granularity: bool,
    /// Settings of the planner as in the file; [`ControlConfig::heartbeat`] may shorten its
    /// heartbeat.
    ///
    /// [`ControlConfig::heartbeat`]: super::ControlConfig::heartbeat
    pub planner: PlannerConfig,
    /// Error if `demand.heartbeat` is too long for the `staleness_threshold` of a service. The
    /// command `plimsoll check` reports it; a running control plane uses a shorter heartbeat.
    pub heartbeat_error: Option<FileError>,
}

/// Settings of all fleets.
#[derive(Clone, Debug, PartialEq)]
pub struct FleetOptions {
    /// Names under which a proxy may request the assignment of its own fleet.
    pub local_cluster_names: Vec<Arc<str>>,
    pub leave_after: Duration,
    /// Time without updates after which stock Envoys discard the assignment of their own fleet.
    pub endpoint_stale_after: Option<Duration>,
    /// Zones of proxies whose demand counts, beside those with endpoints of a service.
    pub zones: BTreeSet<Locality>,
}

/// Settings of the process.
#[derive(Clone, Debug, PartialEq)]
pub struct Operation {
    pub limits: Limits,
    /// Largest part of the services, listeners, endpoints or rules that an edit may remove. Below
    /// 100, it may not remove a section that protects the control plane or finds services either.
    pub max_removed_percent: u32,
    /// Prices of traffic between zones, for services without their own.
    pub cost: Arc<Cost>,
    /// Where metrics are exported to; `None` for nowhere.
    pub otlp: Option<Otlp>,
    pub evacuation: Evacuation,
}
