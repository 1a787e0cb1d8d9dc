//! [`Service`]: an upstream cluster, its endpoints, and how measured demand may steer its traffic.
//! plimsoll-xds parses the cluster; `delivery` decides how it is steered at a given node.

use std::sync::Arc;
use std::time::Duration;

use plimsoll_core::model::assignment::ClusterLoadAssignment;
use plimsoll_core::model::cluster::{ClusterConfig, HealthChecking};
use plimsoll_core::units::FieldError;
use plimsoll_xds::pb;
use plimsoll_xds::pb::cluster::ClusterMessage;
use plimsoll_xds::pb::endpoint::{AssignmentMessage, AssignmentPolicyMessage};
use plimsoll_xds::pb::upstream::Http2Message;
use plimsoll_xds::schema::file::FileMessage;
use plimsoll_xds::wire::decode_assignment;
use plimsoll_xds::yaml::ClusterYaml;
use plimsoll_xds::yaml::proto_json::ProtoEnum;

use super::yaml::ServiceYaml;
use crate::delivery;

/// Envoy's default of `connect_timeout`.
const DEFAULT_CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Protobuf value of `Cluster.DiscoveryType.EDS`.
const EDS: i32 = 3;

pub(super) const LOAD_BALANCING: [&str; 10] = [
    "common_lb_config",
    "lb_policy",
    "lb_subset_config",
    "least_request_lb_config",
    "load_balancing_policy",
    "maglev_lb_config",
    "name",
    "plimsoll",
    "ring_hash_lb_config",
    "round_robin_lb_config",
];

/// Fields of a cluster, apart from its load-balancing policy, that are delivered to proxies.
pub(super) const DELIVERED: [&str; 4] = [
    "connect_timeout",
    "http2_protocol_options",
    "lrs_report_endpoint_metrics",
    "type",
];

/// Whether measured demand steers the traffic to a service.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Mode {
    #[default]
    Enforce,
    /// Measured demand is computed and shown, but proxies route by host counts.
    Shadow,
    /// The cluster is delivered to proxies as configured, without measured demand.
    Off,
}

/// How measured demand is delivered to a data plane (decision 0028).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Delivery {
    /// The best delivery of demand that the receiving node supports.
    #[default]
    Auto,
    /// `observed_traffic_fraction` on the fleet's assignment; only for Plimsoll data planes.
    EdsField,
    /// The fractions of `EdsField` as metadata of localities; only for Plimsoll data planes.
    LocalityMetadata,
    /// `LoadStatsResponse.observed_traffic`; only for Plimsoll data planes.
    LrsResponse,
    /// Endpoint weights on the fleet's assignment.
    FleetWeights,
    /// Locality weights on the service's assignment, different for each receiving zone.
    LocalityWeights,
}

/// An upstream cluster and how measured demand steers it.
#[derive(Clone, Debug, PartialEq)]
pub struct Service {
    pub config: Arc<ClusterConfig>,
    pub assignment: Arc<ClusterLoadAssignment>,
    pub mode: Mode,
    /// How far traffic moves from host counts (0 %) to measured demand (100 %).
    pub ramp: u32,
    pub delivery: Delivery,
    pub connect_timeout: Duration,
    /// HTTP/2 options if endpoints are contacted with HTTP/2 prior knowledge; otherwise HTTP/1.1.
    pub http2: Option<Http2Message>,
    /// Backend metrics that data planes report per endpoint (`lrs_report_endpoint_metrics`).
    pub report_metrics: Vec<String>,
    /// Whether the file has a load-balancing policy; if not, a relay keeps the relayed server's.
    pub has_explicit_policy: bool,
    /// The field that explicitly requests measured demand: `delivery`, `ramp` or `mode: ENFORCE`.
    /// Without such a field, demand steers unless the cluster has an explicit `locality_basis`.
    pub demand_field: Option<&'static str>,
}

impl Service {
    /// Returns the name of the cluster and of its assignment.
    pub fn name(&self) -> &Arc<str> {
        self.config.name()
    }

    /// Whether another service differs in its endpoints at most.
    pub(crate) fn has_same_settings(&self, other: &Self) -> bool {
        let Self {
            config,
            assignment: _,
            mode,
            ramp,
            delivery,
            connect_timeout,
            http2,
            report_metrics,
            has_explicit_policy,
            demand_field,
        } = self;
        (Arc::ptr_eq(config, &other.config) || *config == other.config)
            && *mode == other.mode
            && *ramp == other.ramp
            && *delivery == other.delivery
            && *connect_timeout == other.connect_timeout
            && *http2 == other.http2
            && *report_metrics == other.report_metrics
            && *has_explicit_policy == other.has_explicit_policy
            && *demand_field == other.demand_field
    }

    /// A cluster of a relayed server that passes through as it is.
    pub(crate) const fn observed(
        config: Arc<ClusterConfig>,
        assignment: Arc<ClusterLoadAssignment>,
    ) -> Self {
        Self {
            config,
            assignment,
            mode: Mode::Off,
            ramp: 100,
            delivery: Delivery::Auto,
            connect_timeout: DEFAULT_CONNECT_TIMEOUT,
            http2: None,
            report_metrics: Vec::new(),
            has_explicit_policy: false,
            demand_field: None,
        }
    }
}

impl ProtoEnum for Mode {
    const VALUES: &'static [(&'static str, i64, Self)] = &[
        ("ENFORCE", 0, Self::Enforce),
        ("SHADOW", 1, Self::Shadow),
        ("OFF", 2, Self::Off),
    ];
}

impl ProtoEnum for Delivery {
    const VALUES: &'static [(&'static str, i64, Self)] = &[
        ("AUTO", 0, Self::Auto),
        ("EDS_FIELD", 1, Self::EdsField),
        ("LOCALITY_METADATA", 2, Self::LocalityMetadata),
        ("LRS_RESPONSE", 3, Self::LrsResponse),
        ("FLEET_WEIGHTS", 4, Self::FleetWeights),
        ("LOCALITY_WEIGHTS", 5, Self::LocalityWeights),
    ];
}

impl ServiceYaml {
    /// Validates the service definition; error paths are relative to it.
    pub(super) fn validate(self) -> Result<Service, FieldError> {
        let demand_field = self.demand_field();
        let mut written = self.cluster.field_names();
        let has_explicit_policy =
            written.any(|field| field != "name" && LOAD_BALANCING.contains(&field));
        let (config, message) = cluster(&self.cluster).map_err(|error| error.under("cluster"))?;
        let ramp = self.ramp.map_or(100, |ramp| ramp.0);
        if ramp > 100 {
            let reason = format!("{ramp} is not a percentage between 0 and 100");
            return Err(FieldError::new("ramp", reason));
        }
        let assignment = self.assignment(&config)?;
        let timeout = pb::duration(message.connect_timeout, "cluster.connect_timeout")?;
        let service = Service {
            config: Arc::new(config),
            assignment: Arc::new(assignment),
            mode: self.mode.map_or_else(Mode::default, |mode| mode.0),
            ramp,
            delivery: self.delivery.0,
            connect_timeout: timeout.unwrap_or(DEFAULT_CONNECT_TIMEOUT),
            http2: message.http2_protocol_options,
            has_explicit_policy,
            demand_field,
            report_metrics: message.lrs_report_endpoint_metrics,
        };
        delivery::check(&service)?;
        Ok(service)
    }

    fn assignment(&self, config: &ClusterConfig) -> Result<ClusterLoadAssignment, FieldError> {
        let entries = self.endpoints.iter().enumerate().map(|(index, entry)| {
            let path = format!("endpoints[{index}]");
            entry.message().map_err(|error| error.under(&path))
        });
        let message = AssignmentMessage {
            cluster_name: config.name().to_string(),
            endpoints: entries.collect::<Result<_, _>>()?,
            policy: Some(AssignmentPolicyMessage {
                overprovisioning_factor: self.overprovisioning_factor.map(|factor| factor.0),
                ..Default::default()
            }),
        };
        Ok(decode_assignment(FileMessage::from(&message).bytes())?)
    }
}

impl ServiceYaml {
    fn demand_field(&self) -> Option<&'static str> {
        let is_enforced = self.mode.is_some_and(|mode| mode.0 == Mode::Enforce);
        let fields = [
            ("delivery", self.delivery.0 != Delivery::Auto),
            ("ramp", self.ramp.is_some()),
            ("mode", is_enforced),
        ];
        let mut written = fields.into_iter().filter(|(_, written)| *written);
        written.next().map(|(field, _)| field)
    }
}

/// Validates the cluster and rejects fields that are not delivered to proxies.
fn cluster(written: &ClusterYaml) -> Result<(ClusterConfig, ClusterMessage), FieldError> {
    let is_delivered = |field: &&str| LOAD_BALANCING.contains(field) || DELIVERED.contains(field);
    if let Some(field) = written.field_names().find(|field| !is_delivered(field)) {
        let reason = "is not delivered by this control plane; a relay passes it through";
        return Err(FieldError::new(field, reason));
    }
    let message = written.message()?;
    if !matches!(message.discovery_type, None | Some(EDS)) {
        let reason = "must be EDS: endpoints are configured in services[].endpoints";
        return Err(FieldError::new("type", reason));
    }
    let mut parts = plimsoll_xds::yaml::cluster_config_parts(written)?;
    // Data planes run health checks; the control plane uses the health in the assignment only.
    parts.health_checking = HealthChecking::default();
    Ok((ClusterConfig::try_new(parts)?, message))
}
