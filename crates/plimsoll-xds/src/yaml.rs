//! Envoy's YAML shape of a cluster's load-balancing fields.
//!
//! Text becomes a [`Document`] (a tree that remembers lines and columns), the document becomes raw
//! structs with unknown fields denied ([`ClusterYaml`], [`RuntimeYaml`]), and those become the
//! checked types of the core, where ranges and defaults live. Every error is a [`ConfigError`]: the
//! path to the field, the reason, and the place in the text. Nothing that is written is passed over
//! in silence, except the fields of a cluster that have nothing to do with load balancing; those
//! are listed in `cluster`.
//!
//! Spelling follows the JSON mapping of protobuf, as in Envoy: fields in snake_case or
//! lowerCamelCase, enums by name or number, durations as `"0.5s"`, numbers also in quotes. One
//! thing is stricter: a field without a value (YAML null) is refused, because Envoy reads it as
//! "not set" where the writer usually meant an empty message.
//!
//! Scenario files of the binary are read through the same [`Document`].

mod client_side_weighted_round_robin;
mod cluster;
mod de;
mod document;
mod endpoint;
mod error;
mod json;
mod legacy;
mod load_aware_locality;
mod locality;
mod metadata;
mod policy;
pub mod proto_json;
mod runtime;
#[cfg(feature = "schema")]
mod schema;
mod subset;
mod upstream;

#[cfg(test)]
pub(crate) mod tests;

use plimsoll_core::model::cluster::ClusterConfig;

use crate::upstream::UpstreamCluster;

pub use client_side_weighted_round_robin::ClientSideWeightedRoundRobinYaml;
pub use cluster::{ClusterYaml, UpstreamClusterYaml};
pub use document::Document;
pub use error::{ConfigError, Location};
pub use metadata::{MetadataYaml, StructYaml};
pub use runtime::RuntimeYaml;

/// Reads one cluster: the text holds what stands under one entry of Envoy's `clusters` list.
///
/// ```
/// use plimsoll_xds::yaml::parse_cluster;
///
/// let cluster = parse_cluster("name: orders\nlb_policy: LEAST_REQUEST\n").unwrap();
/// assert_eq!(cluster.endpoint_policy().name(), "least_request");
///
/// let error = parse_cluster("name: orders\ncommon_lb_config: {panic: 1}\n").unwrap_err();
/// assert_eq!(error.path(), "common_lb_config.panic");
/// assert!(error.to_string().ends_with("(at 2:20)"));
/// ```
pub fn parse_cluster(text: &str) -> Result<ClusterConfig, ConfigError> {
    let document = Document::parse(text)?;
    let cluster: ClusterYaml = document.read()?;
    ClusterConfig::try_from(cluster).map_err(|error| document.locate(error))
}

/// Reads one cluster in full: policies, connections, checks and endpoints.
///
/// ```
/// use plimsoll_xds::yaml::parse_upstream_cluster;
///
/// let text = "
/// name: orders
/// type: STRICT_DNS
/// connect_timeout: 1s
/// load_assignment:
///   cluster_name: orders
///   endpoints:
///   - lb_endpoints:
///     - endpoint: {address: {socket_address: {address: orders.svc, port_value: 80}}}
/// ";
/// let cluster = parse_upstream_cluster(text).unwrap();
/// assert_eq!(cluster.options.connect_timeout.as_secs(), 1);
/// assert_eq!(cluster.load_assignment.unwrap().names()[0].1, "orders.svc");
///
/// let error = parse_upstream_cluster("name: orders\nfilters: []\n").unwrap_err();
/// assert_eq!(error.path(), "filters");
/// ```
pub fn parse_upstream_cluster(text: &str) -> Result<UpstreamCluster, ConfigError> {
    let document = Document::parse(text)?;
    let cluster: UpstreamClusterYaml = document.read()?;
    UpstreamCluster::try_from(cluster).map_err(|error| document.locate(error))
}
