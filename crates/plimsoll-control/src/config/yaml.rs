//! What configuration files may say: raw structs, unknown fields denied.
//!
//! Ranges and meanings are checked in the neighbouring files. A file is read twice: once as
//! [`FileYaml`], whose clusters are read by plimsoll-xds, and once as [`ExtrasYaml`], for the
//! fields of a cluster that have nothing to do with load balancing but must be delivered.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use plimsoll_core::units::FieldError;
use plimsoll_xds::yaml::ClusterYaml;
use plimsoll_xds::yaml::proto_json::{Named, ProtoDuration, Uint};
use serde::Deserialize;
use serde::de::IgnoredAny;

use super::Relay;
use super::endpoints::LocalityLbEndpointsYaml;
use super::routes::ListenerYaml;
use super::service::{Delivery, Mode};

/// A whole file.
#[derive(Clone, Debug, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
#[derive(Default)]
pub(super) struct FileYaml {
    /// Where ADS and LRS are served, HTTP/2 without TLS; port 0 picks one. Default
    /// `127.0.0.1:18000`.
    pub(super) listen: Option<String>,
    /// Where the admin API and the dashboard are served, without authentication; an empty text is
    /// nowhere. Default `127.0.0.1:18001`.
    pub(super) admin: Option<String>,
    /// What proxies are asked to report.
    pub(super) load_reporting: LoadReportingYaml,
    /// How demand is made of reports.
    pub(super) demand: DemandYaml,
    /// What holds for every fleet.
    pub(super) fleets: FleetsYaml,
    /// A management server behind this one.
    pub(super) relay: Option<RelayYaml>,
    /// Files and directories with more services and listeners, relative to this file; of a
    /// directory, every `.yaml` and `.yml` file that is not hidden.
    pub(super) include: Vec<String>,
    /// Upstream clusters.
    pub(super) services: Vec<ServiceYaml>,
    /// Listeners for Envoys.
    pub(super) listeners: Vec<ListenerYaml>,
}

/// What proxies are asked to report.
#[derive(Clone, Debug, Default, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub(super) struct LoadReportingYaml {
    /// How often proxies are asked to report, 0.1s to 3600s. Default `10s`.
    pub(super) interval: Option<ProtoDuration>,
    /// Ask for counts per endpoint too; makes reports larger, changes no decision.
    pub(super) report_endpoint_granularity: bool,
}

/// How demand is made of reports.
#[derive(Clone, Debug, Default, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub(super) struct DemandYaml {
    /// Time constant of the smoothing of zone sums, above 0, to 3600s. Default `20s`.
    pub(super) smoothing_time_constant: Option<ProtoDuration>,
    /// Intervals that a proxy may miss before its demand leaves the sum, 1 to 1000. Default 3.
    pub(super) missed_intervals: Option<Uint<u32>>,
    /// A fraction that moved by this many basis points is told at once, 1 to 10000. Default 50.
    pub(super) material_change_bp: Option<Uint<u64>>,
    /// Plimsoll data planes hear at least this often that the fractions are fresh, 0.1s to 200s;
    /// at most a third of the shortest `staleness_threshold` of the services, which is also the
    /// default where it is shorter. Default `20s`.
    pub(super) heartbeat: Option<ProtoDuration>,
}

/// What holds for every fleet.
#[derive(Clone, Debug, Default, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub(super) struct FleetsYaml {
    /// Names under which a proxy may ask for the assignment of its own fleet; the fleet's own name
    /// works too. Default `[local_cluster, local]`.
    pub(super) local_cluster_names: Option<Vec<String>>,
    /// How long a proxy without a stream stays in its fleet. Default `30s`.
    pub(super) leave_after: Option<ProtoDuration>,
    /// Asks stock Envoys to forget their fleet's assignment after this silence. Default never.
    pub(super) endpoint_stale_after: Option<ProtoDuration>,
}

/// The management server behind this one.
#[derive(Clone, Debug, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(super) struct RelayYaml {
    /// Its `host:port`, plain-text HTTP/2.
    address: String,
    /// How it is spoken to. Default `GRPC`.
    #[serde(default)]
    api_type: Named<ApiType>,
}

/// Variants of ADS.
#[derive(Clone, Copy, Debug, Default)]
pub(super) enum ApiType {
    #[default]
    Grpc,
    DeltaGrpc,
}

/// One upstream cluster.
#[derive(Clone, Debug, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(super) struct ServiceYaml {
    /// The cluster as in an Envoy.
    #[cfg_attr(feature = "schema", schemars(schema_with = "super::schema::cluster"))]
    pub(super) cluster: ClusterYaml,
    /// Its endpoints, by locality and priority.
    #[serde(default)]
    pub(super) endpoints: Vec<LocalityLbEndpointsYaml>,
    /// Percent by which healthy hosts may stand for others, above 0. Default 140.
    pub(super) overprovisioning_factor: Option<Uint<u32>>,
    /// How far demand may steer it. Default `ENFORCE`.
    pub(super) mode: Option<Named<Mode>>,
    /// Percent of the way from host counts to measured demand, 0 to 100. Default 100.
    pub(super) ramp: Option<Uint<u32>>,
    /// How demand reaches data planes. Default `AUTO`.
    #[serde(default)]
    pub(super) delivery: Named<Delivery>,
}

/// The same file, for what [`ClusterYaml`] passes over.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct ExtrasYaml {
    #[serde(default)]
    pub(super) services: Vec<ServiceExtrasYaml>,
}

/// The same service.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct ServiceExtrasYaml {
    pub(super) cluster: ClusterExtrasYaml,
}

/// Fields of a cluster that are delivered as they are, and the names of all others.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct ClusterExtrasYaml {
    pub(super) connect_timeout: Option<ProtoDuration>,
    pub(super) http2_protocol_options: Option<IgnoredAny>,
    #[serde(default)]
    pub(super) lrs_report_endpoint_metrics: Vec<String>,
    #[serde(rename = "type")]
    pub(super) kind: Option<String>,
    #[serde(flatten)]
    pub(super) others: BTreeMap<String, IgnoredAny>,
}

impl FileYaml {
    /// An included file holds services and listeners; settings have one place.
    pub(super) fn only_services(&self) -> Result<(), FieldError> {
        let Self {
            load_reporting,
            demand,
            fleets,
            ..
        } = self;
        let reporting =
            load_reporting.interval.is_some() || load_reporting.report_endpoint_granularity;
        let demand = demand.smoothing_time_constant.is_some()
            || demand.missed_intervals.is_some()
            || demand.material_change_bp.is_some()
            || demand.heartbeat.is_some();
        let fleets = fleets.local_cluster_names.is_some()
            || fleets.leave_after.is_some()
            || fleets.endpoint_stale_after.is_some();
        let settings = [
            ("listen", self.listen.is_some()),
            ("admin", self.admin.is_some()),
            ("load_reporting", reporting),
            ("demand", demand),
            ("fleets", fleets),
            ("relay", self.relay.is_some()),
            ("include", !self.include.is_empty()),
        ];
        match settings.iter().find(|(_, set)| *set) {
            Some((field, _)) => Err(FieldError::new(
                *field,
                "belongs into the main file: an included one holds services and listeners",
            )),
            None => Ok(()),
        }
    }

    /// An address of this file, or the default.
    pub(super) fn address(
        &self,
        field: &str,
        written: Option<&str>,
        default: &str,
    ) -> Result<SocketAddr, FieldError> {
        let text = written.unwrap_or(default);
        text.parse().map_err(|_| {
            FieldError::new(
                field,
                format!("{text:?} is not an address such as {default}"),
            )
        })
    }
}

impl RelayYaml {
    /// The address must have a port: there is no usual one.
    pub(super) fn checked(&self) -> Result<Relay, FieldError> {
        let port = self
            .address
            .rsplit_once(':')
            .map(|(host, port)| (host, port.parse::<u16>()));
        match port {
            Some((host, Ok(port))) if !host.is_empty() && port > 0 => Ok(Relay {
                address: self.address.clone(),
                delta: matches!(self.api_type.0, ApiType::DeltaGrpc),
            }),
            _ => Err(FieldError::new(
                "relay.address",
                format!("{:?} is not host:port", self.address),
            )),
        }
    }
}

impl plimsoll_xds::yaml::proto_json::ProtoEnum for ApiType {
    const VALUES: &'static [(&'static str, i64, Self)] =
        &[("GRPC", 2, Self::Grpc), ("DELTA_GRPC", 3, Self::DeltaGrpc)];
}
