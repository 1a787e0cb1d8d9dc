//! [`Service`]: one upstream cluster, its endpoints, and how far demand may steer it.
//!
//! The cluster is read by plimsoll-xds; here lives what a control plane adds. Whether and how a
//! given node is steered is decided in `delivery`.

use std::sync::Arc;
use std::time::Duration;

use plimsoll_core::model::assignment::{AssignmentParts, ClusterLoadAssignment};
use plimsoll_core::model::cluster::{ClusterConfig, ClusterConfigParts, HealthChecking};
use plimsoll_core::units::FieldError;
use plimsoll_xds::yaml::proto_json::ProtoEnum;

use super::yaml::{ClusterExtrasYaml, ServiceExtrasYaml, ServiceYaml};
use crate::delivery;

/// Envoy's own default of `connect_timeout`.
const DEFAULT_CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Fields of a cluster that plimsoll-xds reads.
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

/// How far demand may steer a service.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Mode {
    /// Measured demand is delivered.
    #[default]
    Enforce,
    /// Measured demand is computed and shown; proxies go by host counts.
    Shadow,
    /// The cluster is delivered as it is written.
    Off,
}

/// How measured demand reaches a data plane (decisions D9).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Delivery {
    /// The best one that the receiver can take.
    #[default]
    Auto,
    /// `observed_traffic_fraction` on the fleet's assignment; plimsoll data planes only.
    EdsField,
    /// The same in the metadata of localities; plimsoll data planes only.
    LocalityMetadata,
    /// `LoadStatsResponse.observed_traffic`; plimsoll data planes only.
    LrsResponse,
    /// Endpoint weights on the fleet's assignment.
    FleetWeights,
    /// Locality weights on the service's assignment, one per receiving zone.
    LocalityWeights,
}

/// How endpoints are spoken to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// HTTP/1.1.
    Http1,
    /// HTTP/2, without negotiation.
    Http2,
}

/// One upstream cluster.
#[derive(Clone, Debug, PartialEq)]
pub struct Service {
    /// Everything about load balancing.
    pub config: Arc<ClusterConfig>,
    /// The endpoints.
    pub assignment: Arc<ClusterLoadAssignment>,
    /// How far demand may steer it.
    pub mode: Mode,
    /// Percent of the way from host counts to measured demand.
    pub ramp: u32,
    /// How demand is to be delivered.
    pub delivery: Delivery,
    /// `connect_timeout`.
    pub connect_timeout: Duration,
    /// How endpoints are spoken to.
    pub protocol: Protocol,
    /// `lrs_report_endpoint_metrics`.
    pub report_metrics: Vec<String>,
    /// The file says more of the cluster than its name. Behind a relay it is otherwise the other
    /// server that says which policy there is to improve.
    pub is_policy_written: bool,
    /// The field that asks for measured demand, where one is written: `delivery`, `ramp` or
    /// `mode: ENFORCE`. What is steered by default can be steered otherwise by its cluster.
    pub asks_for_demand: Option<&'static str>,
}

impl Service {
    /// Name of the cluster and of its assignment.
    pub fn name(&self) -> &Arc<str> {
        self.config.name()
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
    /// Checks everything; the error is relative to the service.
    pub(super) fn checked(self, extras: ServiceExtrasYaml) -> Result<Service, FieldError> {
        let under = |error: FieldError| error.under("cluster");
        extras.cluster.check().map_err(under)?;
        let asks_for_demand = self.asks_for_demand();
        let mut parts = ClusterConfigParts::try_from(self.cluster).map_err(under)?;
        // The data planes probe; here only the assignment says what is healthy.
        parts.health_checking = HealthChecking::default();
        let config = ClusterConfig::try_new(parts).map_err(under)?;
        if config.name().is_empty() {
            return Err(FieldError::new("cluster.name", "must not be empty"));
        }
        let ramp = self.ramp.map_or(100, |ramp| ramp.0);
        if ramp > 100 {
            let reason = format!("{ramp} is not a percentage between 0 and 100");
            return Err(FieldError::new("ramp", reason));
        }
        let entries = self
            .endpoints
            .into_iter()
            .enumerate()
            .map(|(index, entry)| {
                let path = format!("endpoints[{index}]");
                entry.parts().map_err(|error| error.under(&path))
            });
        let assignment = ClusterLoadAssignment::try_new(AssignmentParts {
            cluster_name: config.name().to_string(),
            endpoints: entries.collect::<Result<_, _>>()?,
            overprovisioning_factor: self.overprovisioning_factor.map(|factor| factor.0),
            ..Default::default()
        })?;
        let timeout = extras.cluster.connect_timeout;
        let service = Service {
            config: Arc::new(config),
            assignment: Arc::new(assignment),
            mode: self.mode.map_or_else(Mode::default, |mode| mode.0),
            ramp,
            delivery: self.delivery.0,
            connect_timeout: timeout.map_or(DEFAULT_CONNECT_TIMEOUT, |timeout| timeout.0),
            protocol: if extras.cluster.http2_protocol_options.is_some() {
                Protocol::Http2
            } else {
                Protocol::Http1
            },
            is_policy_written: extras.cluster.others.keys().any(|key| key != "name"),
            asks_for_demand,
            report_metrics: extras.cluster.lrs_report_endpoint_metrics,
        };
        delivery::check(&service)?;
        Ok(service)
    }
}

impl ServiceYaml {
    fn asks_for_demand(&self) -> Option<&'static str> {
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

impl ClusterExtrasYaml {
    /// Nothing that is written may be passed over: what is not delivered is refused.
    fn check(&self) -> Result<(), FieldError> {
        if let Some(kind) = &self.kind
            && kind != "EDS"
        {
            let reason = format!("{kind} is not EDS: endpoints stand beside the cluster");
            return Err(FieldError::new("type", reason));
        }
        let refused = self
            .others
            .keys()
            .find(|key| !LOAD_BALANCING.contains(&key.as_str()));
        match refused {
            Some(field) => Err(FieldError::new(
                field,
                "is not delivered by this control plane; a relay passes it through",
            )),
            None => Ok(()),
        }
    }
}
