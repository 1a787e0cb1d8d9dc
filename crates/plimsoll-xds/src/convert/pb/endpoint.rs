//! `envoy.config.endpoint.v3`: assignments.

use prost::Message;

use super::metadata::MetadataMessage;
use super::{AddressMessage, DurationMessage, LocalityMessage};

/// `ClusterLoadAssignment`.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct AssignmentMessage {
    #[prost(string, tag = "1")]
    pub(crate) cluster_name: String,
    #[prost(message, repeated, tag = "2")]
    pub(crate) endpoints: Vec<LocalityLbEndpointsMessage>,
    #[prost(message, optional, tag = "4")]
    pub(crate) policy: Option<AssignmentPolicyMessage>,
}

/// `ClusterLoadAssignment.Policy`.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct AssignmentPolicyMessage {
    #[prost(message, repeated, tag = "2")]
    pub(crate) drop_overloads: Vec<DropOverloadMessage>,
    #[prost(message, optional, tag = "3")]
    pub(crate) overprovisioning_factor: Option<u32>,
    #[prost(message, optional, tag = "4")]
    pub(crate) endpoint_stale_after: Option<DurationMessage>,
    #[prost(bool, tag = "6")]
    pub(crate) weighted_priority_health: bool,
}

/// `ClusterLoadAssignment.Policy.DropOverload`.
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct DropOverloadMessage {
    #[prost(string, tag = "1")]
    pub(crate) category: String,
    #[prost(message, optional, tag = "2")]
    pub(crate) drop_percentage: Option<FractionalPercentMessage>,
}

/// `envoy.type.v3.FractionalPercent`.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub(crate) struct FractionalPercentMessage {
    #[prost(uint32, tag = "1")]
    pub(crate) numerator: u32,
    #[prost(int32, tag = "2")]
    pub(crate) denominator: i32,
}

/// `LocalityLbEndpoints`; the last field is not upstream's (decisions D9).
#[derive(Clone, PartialEq, Message)]
pub(crate) struct LocalityLbEndpointsMessage {
    #[prost(message, optional, tag = "1")]
    pub(crate) locality: Option<LocalityMessage>,
    #[prost(message, repeated, tag = "2")]
    pub(crate) lb_endpoints: Vec<LbEndpointMessage>,
    #[prost(message, optional, tag = "3")]
    pub(crate) load_balancing_weight: Option<u32>,
    #[prost(uint32, tag = "5")]
    pub(crate) priority: u32,
    #[prost(message, optional, tag = "9")]
    pub(crate) metadata: Option<MetadataMessage>,
    #[prost(message, optional, tag = "10")]
    pub(crate) observed_traffic_fraction: Option<u32>,
}

/// Of `LocalityLbEndpoints` what names it.
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct LocalityKeyMessage {
    #[prost(message, optional, tag = "1")]
    pub(crate) locality: Option<LocalityMessage>,
    #[prost(uint32, tag = "5")]
    pub(crate) priority: u32,
}

/// `LbEndpoint`.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct LbEndpointMessage {
    #[prost(message, optional, tag = "1")]
    pub(crate) endpoint: Option<EndpointMessage>,
    #[prost(int32, tag = "2")]
    pub(crate) health_status: i32,
    #[prost(message, optional, tag = "3")]
    pub(crate) metadata: Option<MetadataMessage>,
    #[prost(message, optional, tag = "4")]
    pub(crate) load_balancing_weight: Option<u32>,
}

/// `Endpoint`.
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct EndpointMessage {
    #[prost(message, optional, tag = "1")]
    pub(crate) address: Option<AddressMessage>,
    #[prost(string, tag = "3")]
    pub(crate) hostname: String,
}

/// A second view of `ClusterLoadAssignment`: what connections and checks need of its endpoints.
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct ExtrasMessage {
    #[prost(message, repeated, tag = "2")]
    pub(crate) endpoints: Vec<LocalityExtrasMessage>,
}

/// Of `LocalityLbEndpoints`.
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct LocalityExtrasMessage {
    #[prost(message, repeated, tag = "2")]
    pub(crate) lb_endpoints: Vec<LbEndpointExtrasMessage>,
}

/// Of `LbEndpoint`.
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct LbEndpointExtrasMessage {
    #[prost(message, optional, tag = "1")]
    pub(crate) endpoint: Option<EndpointExtrasMessage>,
}

/// Of `Endpoint`.
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct EndpointExtrasMessage {
    #[prost(message, optional, tag = "1")]
    pub(crate) address: Option<AddressMessage>,
    #[prost(message, optional, tag = "2")]
    pub(crate) health_check_config: Option<HealthCheckConfigMessage>,
    #[prost(message, repeated, tag = "4")]
    pub(crate) additional_addresses: Vec<AdditionalAddressMessage>,
}

/// `Endpoint.HealthCheckConfig`.
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct HealthCheckConfigMessage {
    #[prost(uint32, tag = "1")]
    pub(crate) port_value: u32,
    #[prost(string, tag = "2")]
    pub(crate) hostname: String,
    #[prost(bool, tag = "4")]
    pub(crate) disable_active_health_check: bool,
}

/// `Endpoint.AdditionalAddress`.
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct AdditionalAddressMessage {
    #[prost(message, optional, tag = "1")]
    pub(crate) address: Option<AddressMessage>,
}
