//! Configuration files in Envoy's shape, with the line and column of every error.
//!
//! Text becomes a [`Document`] (a tree with lines and columns), the document becomes the bytes of a
//! message ([`plimsoll_schema::file`]), and those are read by the same converters as the messages
//! of a management server, but strictly: ignoring a field is an error. Every error is a
//! [`ConfigError`]: the field path, the reason, and the position in the text.
//!
//! Spelling follows protobuf's JSON mapping, as in Envoy: fields in snake_case or lowerCamelCase,
//! enums by name or number, durations as `"0.5s"`, numbers also quoted. One thing is stricter: a
//! field without a value (YAML null) is rejected, because Envoy reads it as "not set" where the
//! author usually meant an empty message.

#[cfg(test)]
pub(crate) mod tests;

use plimsoll_core::model::cluster::{ClusterConfig, ClusterConfigParts};
use plimsoll_core::units::FieldError;

use crate::convert::Strictness;
use crate::convert::cluster::{read_config_parts, read_upstream_cluster};
use crate::upstream::UpstreamCluster;
use plimsoll_schema::file::FileMessage;
use plimsoll_schema::pb::cluster::ClusterMessage;

pub use plimsoll_schema::yaml::{
    ConfigError, Document, FaultFinder, Found, Location, RuntimeYaml, StructYaml, all_faults,
    expand, proto_json,
};

/// Replaces `${NAME}` in the values of a text by variables of this process: see [`expand`].
pub fn expand_environment(text: &str) -> Result<std::borrow::Cow<'_, str>, ConfigError> {
    expand(text, &|name| std::env::var(name).ok())
}

/// Cluster in the shape of Envoy's `clusters` list.
pub type ClusterYaml = FileMessage<ClusterMessage>;

/// Reads name, policies and health settings of a cluster. Other fields are accepted unless they
/// affect load balancing.
pub fn cluster_config_parts(cluster: &ClusterYaml) -> Result<ClusterConfigParts, FieldError> {
    Ok(read_config_parts(cluster.bytes())?)
}

/// Reads all settings of a cluster, strictly.
impl TryFrom<ClusterYaml> for UpstreamCluster {
    type Error = FieldError;

    fn try_from(yaml: ClusterYaml) -> Result<Self, FieldError> {
        Ok(read_upstream_cluster(yaml.bytes(), Strictness::Strict)?)
    }
}

/// Parses one cluster: the text is one entry of Envoy's `clusters` list.
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
    read_cluster(&Document::parse(text)?)
}

/// Like [`parse_cluster`], with a text that has been parsed.
pub fn read_cluster(document: &Document) -> Result<ClusterConfig, ConfigError> {
    let cluster: ClusterYaml = document.read()?;
    let config = cluster_config_parts(&cluster).and_then(ClusterConfig::try_new);
    config.map_err(|error| document.locate(error))
}

/// Parses one cluster with its connection settings, health checks and endpoints.
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
    read_complete_cluster(&Document::parse(text)?)
}

/// Like [`parse_upstream_cluster`], with a text that has been parsed.
pub fn read_complete_cluster(document: &Document) -> Result<UpstreamCluster, ConfigError> {
    let cluster: ClusterYaml = document.read()?;
    UpstreamCluster::try_from(cluster).map_err(|error| document.locate(error))
}
