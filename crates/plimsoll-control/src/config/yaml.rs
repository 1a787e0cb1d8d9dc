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
#[serde(default, deny_unknown_fields)]
#[derive(Default)]
pub(super) struct FileYaml {
    pub(super) listen: Option<String>,
    /// An empty string switches it off.
    pub(super) admin: Option<String>,
    pub(super) load_reporting: LoadReportingYaml,
    pub(super) demand: DemandYaml,
    pub(super) fleets: FleetsYaml,
    pub(super) relay: Option<RelayYaml>,
    pub(super) include: Vec<String>,
    pub(super) services: Vec<ServiceYaml>,
    pub(super) listeners: Vec<ListenerYaml>,
}

/// What proxies are asked to report.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct LoadReportingYaml {
    pub(super) interval: Option<ProtoDuration>,
    pub(super) report_endpoint_granularity: bool,
}

/// How demand is made of reports.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct DemandYaml {
    pub(super) smoothing_time_constant: Option<ProtoDuration>,
    pub(super) missed_intervals: Option<Uint<u32>>,
    pub(super) material_change_bp: Option<Uint<u64>>,
    pub(super) heartbeat: Option<ProtoDuration>,
}

/// What holds for every fleet.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct FleetsYaml {
    pub(super) local_cluster_names: Option<Vec<String>>,
    pub(super) leave_after: Option<ProtoDuration>,
    pub(super) endpoint_stale_after: Option<ProtoDuration>,
}

/// The management server behind this one.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RelayYaml {
    address: String,
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
#[serde(deny_unknown_fields)]
pub(super) struct ServiceYaml {
    pub(super) cluster: ClusterYaml,
    #[serde(default)]
    pub(super) endpoints: Vec<LocalityLbEndpointsYaml>,
    pub(super) overprovisioning_factor: Option<Uint<u32>>,
    #[serde(default)]
    pub(super) mode: Named<Mode>,
    pub(super) ramp: Option<Uint<u32>>,
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
