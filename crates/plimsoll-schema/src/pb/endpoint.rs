//! `envoy.config.endpoint.v3`: endpoint assignments of clusters (EDS).

use plimsoll_core::model::health::HealthStatus;
use plimsoll_schema_derive::Described;
use prost::Message;

use super::enums::Denominator;

use super::metadata::MetadataMessage;
use super::{AddressMessage, DurationMessage, LocalityMessage};

/// `ClusterLoadAssignment`: endpoints of a cluster by locality and priority.
#[derive(Clone, PartialEq, Message, Described)]
#[schema(name = "envoy.config.endpoint.v3.ClusterLoadAssignment")]
#[schema(unused = "5 named_endpoints")]
pub struct AssignmentMessage {
    /// Name of the assignment; not used for routing.
    #[prost(string, tag = "1")]
    pub cluster_name: String,
    /// Endpoints, grouped by locality and priority.
    #[prost(message, repeated, tag = "2")]
    pub endpoints: Vec<LocalityLbEndpointsMessage>,
    /// Settings that apply to the whole assignment.
    #[prost(message, optional, tag = "4")]
    pub policy: Option<AssignmentPolicyMessage>,
}

/// `ClusterLoadAssignment.Policy`: settings of a whole assignment.
#[derive(Clone, PartialEq, Message, Described)]
#[schema(name = "envoy.config.endpoint.v3.ClusterLoadAssignment.Policy")]
pub struct AssignmentPolicyMessage {
    /// Fractions of requests to drop before load balancing.
    #[prost(message, repeated, tag = "2")]
    pub drop_overloads: Vec<DropOverloadMessage>,
    /// Overprovisioning factor in percent, above 0: at 140, a priority or locality keeps its full
    /// load while at least 72 % of its hosts are healthy. Default 140.
    #[prost(message, optional, tag = "3")]
    pub overprovisioning_factor: Option<u32>,
    /// Age at which endpoints are discarded unless updated; ignored in files, which are not updated
    /// by a server.
    #[prost(message, optional, tag = "4")]
    pub endpoint_stale_after: Option<DurationMessage>,
    /// Compute the health of a priority from host weights instead of host counts.
    #[prost(bool, tag = "6")]
    pub weighted_priority_health: bool,
}

/// `ClusterLoadAssignment.Policy.DropOverload`: a fraction of requests to drop.
#[derive(Clone, PartialEq, Eq, Message, Described)]
#[schema(name = "envoy.config.endpoint.v3.ClusterLoadAssignment.Policy.DropOverload")]
pub struct DropOverloadMessage {
    /// Category under which dropped requests are counted in load reports.
    #[prost(string, tag = "1")]
    pub category: String,
    /// Fraction of requests to drop.
    #[prost(message, optional, tag = "2")]
    pub drop_percentage: Option<FractionalPercentMessage>,
}

/// `envoy.type.v3.FractionalPercent`: numerator and denominator of a fraction.
#[derive(Clone, Copy, PartialEq, Eq, Message, Described)]
#[schema(name = "envoy.type.v3.FractionalPercent")]
pub struct FractionalPercentMessage {
    /// Numerator of the fraction.
    #[prost(uint32, tag = "1")]
    pub numerator: u32,
    /// Denominator of the fraction. Default `HUNDRED`.
    #[prost(int32, tag = "2")]
    #[schema(values = Denominator)]
    pub denominator: i32,
}

/// `LocalityLbEndpoints`: endpoints of one locality at one priority. The last field is not in
/// Envoy's definition (decision 0028).
#[derive(Clone, PartialEq, Message, Described)]
#[schema(name = "envoy.config.endpoint.v3.LocalityLbEndpoints")]
#[schema(unused = "6 proximity")]
#[schema(changes_host = "7 load_balancer_endpoints, 8 leds_cluster_locality_config")]
pub struct LocalityLbEndpointsMessage {
    /// Locality of the endpoints.
    #[prost(message, optional, tag = "1")]
    pub locality: Option<LocalityMessage>,
    /// Endpoints of this locality.
    #[prost(message, repeated, tag = "2")]
    pub lb_endpoints: Vec<LbEndpointMessage>,
    /// Weight of the locality, used by locality-weighted policies.
    #[prost(message, optional, tag = "3")]
    pub load_balancing_weight: Option<u32>,
    /// Priority of the endpoints; 0 is the highest and used first. Default 0.
    #[prost(uint32, tag = "5")]
    pub priority: u32,
    /// Metadata of the locality.
    #[prost(message, optional, tag = "9")]
    pub metadata: Option<MetadataMessage>,
    /// Measured share of the fleet's demand in basis points; used in the assignment of the proxies'
    /// own fleet.
    #[prost(message, optional, tag = "10")]
    pub observed_traffic_fraction: Option<u32>,
}

/// `LocalityLbEndpoints` reduced to the fields that identify it.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct LocalityKeyMessage {
    #[prost(message, optional, tag = "1")]
    pub locality: Option<LocalityMessage>,
    #[prost(uint32, tag = "5")]
    pub priority: u32,
}

/// `LbEndpoint`: an endpoint with its load-balancing settings.
#[derive(Clone, PartialEq, Message, Described)]
#[schema(name = "envoy.config.endpoint.v3.LbEndpoint")]
#[schema(changes_host = "5 endpoint_name")]
pub struct LbEndpointMessage {
    /// Address of the endpoint and how to check its health. Must be set.
    #[prost(message, optional, tag = "1")]
    pub endpoint: Option<EndpointMessage>,
    /// Health according to service discovery. Default `UNKNOWN`, which counts as healthy.
    #[prost(int32, tag = "2")]
    #[schema(values = HealthStatus)]
    pub health_status: i32,
    /// Metadata of the endpoint: keys under `envoy.lb` select subsets, and `hash_key` is hashed
    /// instead of the address.
    #[prost(message, optional, tag = "3")]
    pub metadata: Option<MetadataMessage>,
    /// Weight of the endpoint within its locality, at least 1. Default 1.
    #[prost(message, optional, tag = "4")]
    pub load_balancing_weight: Option<u32>,
}

/// `Endpoint`: address and health check settings of an endpoint.
#[derive(Clone, PartialEq, Eq, Message, Described)]
#[schema(name = "envoy.config.endpoint.v3.Endpoint")]
#[schema(unused = "5 observability_name")]
pub struct EndpointMessage {
    /// Address of the endpoint. Must be set.
    #[prost(message, optional, tag = "1")]
    pub address: Option<AddressMessage>,
    /// Settings that differ from the cluster's health checks for this endpoint.
    #[prost(message, optional, tag = "2")]
    pub health_check_config: Option<HealthCheckConfigMessage>,
    /// Host name of the endpoint, for health checks and `auto_host_sni`.
    #[prost(string, tag = "3")]
    pub hostname: String,
    /// Additional addresses of the same endpoint.
    #[prost(message, repeated, tag = "4")]
    pub additional_addresses: Vec<AdditionalAddressMessage>,
}

/// `Endpoint.HealthCheckConfig`: health check settings of one endpoint.
#[derive(Clone, PartialEq, Eq, Message, Described)]
#[schema(name = "envoy.config.endpoint.v3.Endpoint.HealthCheckConfig")]
#[schema(changes_request = "3 address")]
pub struct HealthCheckConfigMessage {
    /// Port for health checks instead of the endpoint's port.
    #[prost(uint32, tag = "1")]
    pub port_value: u32,
    /// `Host` header of health checks, instead of the endpoint's host name.
    #[prost(string, tag = "2")]
    pub hostname: String,
    /// Disable active health checks of this endpoint.
    #[prost(bool, tag = "4")]
    pub disable_active_health_check: bool,
}

/// `Endpoint.AdditionalAddress`: an additional address of an endpoint.
#[derive(Clone, PartialEq, Eq, Message, Described)]
#[schema(name = "envoy.config.endpoint.v3.Endpoint.AdditionalAddress")]
pub struct AdditionalAddressMessage {
    /// The additional address. Must be set.
    #[prost(message, optional, tag = "1")]
    pub address: Option<AddressMessage>,
}
