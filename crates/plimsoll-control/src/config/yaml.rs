//! Format of the configuration files; unknown fields are rejected. Values are validated in the
//! other modules of `config`. Envoy's messages are parsed by plimsoll-xds.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;

use plimsoll_core::model::locality::Locality;
use plimsoll_core::planner::cost::Cost;
use plimsoll_core::units::FieldError;
use plimsoll_xds::yaml::ClusterYaml;
use plimsoll_xds::yaml::proto_json::{BasisPointShare, Named, ProtoDuration, Uint, WholePercent};
use serde::Deserialize;

use super::consul::ConsulYaml;
use super::cost::CostYaml;
use super::dns::DnsYaml;
use super::endpoints::LocalityLbEndpointsYaml;
use super::evacuation::{Evacuation, EvacuationYaml};
use super::kubernetes::KubernetesYaml;
use super::limits::LimitsYaml;
use super::objective::{CapacityYaml, ObjectiveYaml};
use super::otlp::{Otlp, OtlpYaml};
use super::routes::ListenerYaml;
use super::security::{AdminIdentityYaml, IdentityYaml, RelayTlsYaml, TlsYaml};
use super::service::{Delivery, Mode};
use super::store::StoreYaml;
use super::{Relay, Sources};

/// Default of `reload.max_removed_percent`: half of a file is often a valid file.
const DEFAULT_MAX_REMOVED_PERCENT: u32 = 50;

/// A configuration file of the control plane.
#[derive(Clone, Debug, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
#[derive(Default)]
pub(super) struct FileYaml {
    /// Address of ADS and LRS, served as HTTP/2; port 0 selects any. Default `127.0.0.1:18000`.
    pub(super) listen: Option<String>,
    /// Certificates of ADS and LRS. Default none: plain text.
    pub(super) tls: Option<TlsYaml>,
    /// Allows `listen` to be an address that other machines reach without `tls`, and `admin`
    /// without `admin_tls`. Default false.
    pub(super) insecure: bool,
    /// Which nodes clients may be, by the names in their certificates. The first rule that matches
    /// a certificate decides; a client without rule is refused. Needs `tls.client_ca`. Default
    /// none: every client may be any node.
    pub(super) identities: Option<Vec<IdentityYaml>>,
    /// Address of the admin API and the dashboard; an empty string disables them. Requests from
    /// other machines need the admin token or the certificate of an administrator. Default
    /// `127.0.0.1:18001`.
    pub(super) admin: Option<String>,
    /// Certificates of the admin API. Default none: plain text.
    pub(super) admin_tls: Option<TlsYaml>,
    /// Which certificates are administrators', who may do and read everything at `admin` from other
    /// machines. Needed with `admin_tls.client_ca`, and for nothing else.
    pub(super) admin_identities: Option<Vec<AdminIdentityYaml>>,
    /// Another address of the admin API and the dashboard, for reading only, without
    /// authentication: for probes and Prometheus. Default none.
    pub(super) read_only: Option<String>,
    /// Load reporting of proxies.
    pub(super) load_reporting: LoadReportingYaml,
    /// How demand is computed from load reports.
    pub(super) demand: DemandYaml,
    /// Settings that apply to every fleet.
    pub(super) fleets: FleetsYaml,
    /// Limits of what proxies can make the control plane keep or compute.
    pub(super) limits: LimitsYaml,
    /// How edits of the files take effect.
    pub(super) reload: ReloadYaml,
    /// Prices of traffic between zones, for services without their own.
    pub(super) cost: CostYaml,
    /// When a zone may be taken out of use.
    pub(super) evacuation: EvacuationYaml,
    /// Export of metrics to an OpenTelemetry collector. Default none.
    pub(super) otlp: Option<OtlpYaml>,
    /// Another management server whose resources are relayed. Default none.
    pub(super) relay: Option<RelayYaml>,
    /// Services of a Kubernetes cluster, beside those of the files. Default none.
    pub(super) kubernetes: Option<KubernetesYaml>,
    /// Services of Consul, beside those of the files. Default none.
    pub(super) consul: Option<ConsulYaml>,
    /// Services from SRV records. Default none.
    pub(super) dns: Option<DnsYaml>,
    /// What replicas of the control plane share, so that any number of them can serve at a time.
    /// Default none: a single process.
    pub(super) store: Option<StoreYaml>,
    /// Files and directories with more services and listeners, relative to this file. Of a
    /// directory, every `.yaml` and `.yml` file that is not hidden.
    pub(super) include: Vec<String>,
    /// Upstream clusters, with their endpoints and how demand steers them.
    pub(super) services: Vec<ServiceYaml>,
    /// Listeners for Envoys, with their routes.
    pub(super) listeners: Vec<ListenerYaml>,
}

/// Load reporting of proxies.
#[derive(Clone, Debug, Default, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub(super) struct LoadReportingYaml {
    /// Interval at which proxies report load, 0.1s to 3600s. Default `10s`.
    pub(super) interval: Option<ProtoDuration>,
    /// Request load per endpoint too: larger reports, same decisions. Default false.
    pub(super) report_endpoint_granularity: bool,
}

/// How demand is computed from load reports.
#[derive(Clone, Debug, Default, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub(super) struct DemandYaml {
    /// Time constant of the smoothing of demand per zone, above 0, to 3600s. Default `20s`.
    pub(super) smoothing_time_constant: Option<ProtoDuration>,
    /// Intervals that a proxy may miss before its demand is dropped, 1 to 1000. Default 3.
    pub(super) missed_intervals: Option<Uint<u32>>,
    /// A zone's fraction of demand that changes by this many basis points is delivered at once, 1
    /// to 10000. Default 50.
    pub(super) material_change_bp: Option<BasisPointShare>,
    /// Longest interval between updates with demand, also if it moved little, 0.1s to 200s; at most
    /// a third of the shortest `staleness_threshold` of the services. Where that is shorter than
    /// the default, demand is confirmed in between. Default `20s`.
    pub(super) heartbeat: Option<ProtoDuration>,
    /// A proxy counts with at most this many times the median rate of its fleet, from three proxies
    /// with demand on, 2 to 1000000. Default 20.
    pub(super) max_times_median: Option<Uint<u32>>,
    /// How long a proxy whose load reports were all zero counts as idle without another one, while
    /// its stream is open, 1s to 86400s. Default `3600s`.
    pub(super) idle_timeout: Option<ProtoDuration>,
}

/// Settings that apply to every fleet.
#[derive(Clone, Debug, Default, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub(super) struct FleetsYaml {
    /// Names under which a proxy may request the assignment of its own fleet, in addition to the
    /// name of the fleet. Default `[local_cluster, local]`.
    pub(super) local_cluster_names: Option<Vec<String>>,
    /// Time after which a proxy without an open stream leaves its fleet. Default `30s`.
    pub(super) leave_after: Option<ProtoDuration>,
    /// Time without updates after which stock Envoys discard their fleet. Default never.
    pub(super) endpoint_stale_after: Option<ProtoDuration>,
    /// Zones of proxies whose demand counts, beside those with endpoints of a service. Default
    /// none; with a relay, every zone counts unless this is set.
    pub(super) zones: Vec<FleetZoneYaml>,
}

/// How edits of the files take effect.
#[derive(Clone, Debug, Default, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub(super) struct ReloadYaml {
    /// An edit that removes more than this percentage of the services, the listeners, the
    /// endpoints, the rules of `identities` or their restrictions is refused, 0 to 100; below 100
    /// also one that removes `identities`, `tls`, `tls.client_ca`, `admin_tls`, `kubernetes`,
    /// `consul`, `dns`, `relay` or `store`. The value in the edited file counts. Default 50.
    max_removed_percent: Option<Uint<u32>>,
}

impl ReloadYaml {
    pub(super) const fn is_written(&self) -> bool {
        self.max_removed_percent.is_some()
    }

    pub(super) fn max_removed_percent(&self) -> Result<u32, FieldError> {
        let percent = self
            .max_removed_percent
            .map_or(DEFAULT_MAX_REMOVED_PERCENT, |percent| percent.0);
        if percent > 100 {
            let reason = format!("{percent} is outside 0 to 100");
            return Err(FieldError::new("reload.max_removed_percent", reason));
        }
        Ok(percent)
    }
}

/// A zone of proxies.
#[derive(Clone, Debug, Default, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub(super) struct FleetZoneYaml {
    /// Region, as in `node.locality`. Default empty.
    region: String,
    /// Zone, as in `node.locality`. Default empty.
    zone: String,
    /// Part of the zone, as in `node.locality`. Default empty.
    sub_zone: String,
}

/// Another management server whose resources are relayed.
#[derive(Clone, Debug, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(super) struct RelayYaml {
    /// Address of the server as `host:port`.
    address: String,
    /// Certificates for connections to the server. Default none: plain text.
    tls: Option<RelayTlsYaml>,
    /// Connections to the server, one for each discovery stream; further streams are refused. At
    /// least 1. Default 10000.
    max_connections: Option<Uint<u32>>,
    /// Protocol variant: `GRPC` (state of the world) or `DELTA_GRPC` (incremental). Default `GRPC`.
    #[serde(default)]
    api_type: Named<ApiType>,
}

/// Protocol variants of ADS.
#[derive(Clone, Copy, Debug, Default)]
pub(super) enum ApiType {
    #[default]
    Grpc,
    DeltaGrpc,
}

/// An upstream cluster and how it is steered.
#[derive(Clone, Debug, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(super) struct ServiceYaml {
    /// The cluster, as in Envoy; its type is always `EDS`.
    #[cfg_attr(feature = "schema", schemars(schema_with = "super::schema::cluster"))]
    pub(super) cluster: ClusterYaml,
    /// Endpoints by locality and priority.
    #[serde(default)]
    pub(super) endpoints: Vec<LocalityLbEndpointsYaml>,
    /// Overprovisioning factor in percent, above 0: how much load of unhealthy hosts the healthy
    /// ones take over. Default 140.
    pub(super) overprovisioning_factor: Option<Uint<u32>>,
    /// `ENFORCE` demand, only measure and show it (`SHADOW`), or `OFF`. Default `ENFORCE`.
    pub(super) mode: Option<Named<Mode>>,
    /// Percentage of requests sent by measured demand, 0 to 100, with or without percent sign; the
    /// others go as with `OFF`. Default 100.
    pub(super) ramp: Option<WholePercent>,
    /// How demand is delivered to data planes. Default `AUTO`, the best that each supports.
    #[serde(default)]
    pub(super) delivery: Named<Delivery>,
    /// What the service wants of its zones: `LEVEL`, all equally full, or that requests stay in
    /// their zone until it is full (`waterfall`), which needs `capacity`. Default `LEVEL`.
    pub(super) objective: Option<ObjectiveYaml>,
    /// What a host can serve. Default none.
    pub(super) capacity: Option<CapacityYaml>,
    /// Fleets that get the service, and whose demand for it counts; `*` is every fleet. Default
    /// all.
    pub(super) visible_to: Option<Vec<String>>,
    /// Prices of traffic between zones; what is absent is as in `cost` of the file. Where prices
    /// differ from pair to pair, requests that leave their zone take the cheapest way. Default
    /// none.
    pub(super) cost: Option<CostYaml>,
}

impl FileYaml {
    pub(super) fn cost(&self) -> Result<Cost, FieldError> {
        let cost = self.cost.validate();
        cost.map_err(|error| error.under("cost"))
    }

    pub(super) fn evacuation(&self) -> Result<Evacuation, FieldError> {
        let validated = self.evacuation.validate();
        validated.map_err(|error| error.under("evacuation"))
    }

    pub(super) fn otlp(&self) -> Result<Option<Otlp>, FieldError> {
        let otlp = self.otlp.as_ref().map(OtlpYaml::validate).transpose();
        otlp.map_err(|error| error.under("otlp"))
    }

    /// Validates the sections of sources beside the files.
    pub(super) fn sources(&self) -> Result<Sources, FieldError> {
        let (kubernetes, consul) = (self.kubernetes.as_ref(), self.consul.as_ref());
        Ok(Sources {
            kubernetes: self.source("kubernetes", kubernetes, KubernetesYaml::validate)?,
            consul: self.source("consul", consul, ConsulYaml::validate)?,
            dns: self.source("dns", self.dns.as_ref(), DnsYaml::validate)?,
        })
    }

    /// Validates the section of a source, whose endpoints a relay would not deliver.
    fn source<Y, S>(
        &self,
        section: &str,
        written: Option<&Y>,
        validate: fn(&Y, &CostYaml) -> Result<S, FieldError>,
    ) -> Result<Option<S>, FieldError> {
        if written.is_some() && self.relay.is_some() {
            let reason = "cannot be combined with relay: endpoints come from the relayed server";
            return Err(FieldError::new(section, reason));
        }
        let validated = written.map(|written| validate(written, &self.cost));
        validated.transpose().map_err(|error| error.under(section))
    }

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

impl FleetsYaml {
    /// Returns the zones, each with at least one part.
    pub(super) fn zones(&self) -> Result<BTreeSet<Locality>, FieldError> {
        let mut zones = BTreeSet::new();
        for (index, zone) in self.zones.iter().enumerate() {
            let path = || format!("fleets.zones[{index}]");
            let locality = Locality::new(&zone.region, &zone.zone, &zone.sub_zone);
            if locality.is_unset() {
                return Err(FieldError::new(
                    path(),
                    "has neither region, zone nor sub_zone",
                ));
            }
            if !zones.insert(locality) {
                return Err(FieldError::new(path(), "is already listed"));
            }
        }
        Ok(zones)
    }
}

impl RelayYaml {
    /// Validates the relay. The address must have a port, because there is no default.
    pub(super) fn validate(&self) -> Result<Relay, FieldError> {
        let tls = self.tls.as_ref().map(RelayTlsYaml::validate).transpose();
        let tls = tls.map_err(|error| error.under("relay.tls"))?;
        let max_connections = self.max_connections.map_or(10_000, |max| max.0);
        if max_connections == 0 {
            return Err(FieldError::new(
                "relay.max_connections",
                "must be at least 1",
            ));
        }
        let port = self
            .address
            .rsplit_once(':')
            .map(|(host, port)| (host, port.parse::<u16>()));
        match port {
            Some((host, Ok(port))) if !host.is_empty() && port > 0 => Ok(Relay {
                address: self.address.clone(),
                delta: matches!(self.api_type.0, ApiType::DeltaGrpc),
                tls: tls.map(Arc::new),
                max_connections: u64::from(max_connections),
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
