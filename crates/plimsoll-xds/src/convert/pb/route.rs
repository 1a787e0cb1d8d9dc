//! `envoy.config.route.v3`.

use prost::Message;

use super::DurationMessage;

/// `RouteConfiguration`.
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct RouteConfigurationMessage {
    #[prost(string, tag = "1")]
    pub(crate) name: String,
    #[prost(message, repeated, tag = "2")]
    pub(crate) virtual_hosts: Vec<VirtualHostMessage>,
}

/// `VirtualHost`.
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct VirtualHostMessage {
    #[prost(string, tag = "1")]
    pub(crate) name: String,
    #[prost(string, repeated, tag = "2")]
    pub(crate) domains: Vec<String>,
    #[prost(message, repeated, tag = "3")]
    pub(crate) routes: Vec<RouteMessage>,
}

/// `Route`.
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct RouteMessage {
    /// `match`
    #[prost(message, optional, tag = "1")]
    pub(crate) route_match: Option<RouteMatchMessage>,
    #[prost(message, optional, tag = "2")]
    pub(crate) route: Option<RouteActionMessage>,
}

/// `RouteMatch`.
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct RouteMatchMessage {
    #[prost(string, optional, tag = "1")]
    pub(crate) prefix: Option<String>,
    #[prost(string, optional, tag = "2")]
    pub(crate) path: Option<String>,
    #[prost(string, optional, tag = "14")]
    pub(crate) path_separated_prefix: Option<String>,
}

/// `RouteAction`.
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct RouteActionMessage {
    #[prost(string, optional, tag = "1")]
    pub(crate) cluster: Option<String>,
    #[prost(message, optional, tag = "3")]
    pub(crate) weighted_clusters: Option<WeightedClusterMessage>,
    #[prost(message, optional, tag = "8")]
    pub(crate) timeout: Option<DurationMessage>,
    #[prost(message, optional, tag = "9")]
    pub(crate) retry_policy: Option<RetryPolicyMessage>,
}

/// `WeightedCluster`.
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct WeightedClusterMessage {
    #[prost(message, repeated, tag = "1")]
    pub(crate) clusters: Vec<ClusterWeightMessage>,
}

/// `WeightedCluster.ClusterWeight`.
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct ClusterWeightMessage {
    #[prost(string, tag = "1")]
    pub(crate) name: String,
    #[prost(message, optional, tag = "2")]
    pub(crate) weight: Option<u32>,
}

/// `RetryPolicy`.
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct RetryPolicyMessage {
    #[prost(string, tag = "1")]
    pub(crate) retry_on: String,
    #[prost(message, optional, tag = "2")]
    pub(crate) num_retries: Option<u32>,
}
