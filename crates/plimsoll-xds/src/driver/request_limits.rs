//! [`RequestLimits`]: what a request of a client may hold, checked on its bytes before decoding.
//!
//! Two bytes on the wire are an empty string or message, which takes dozens of bytes in memory once
//! decoded, so a limit on the size of a message does not limit memory. Limits of a whole stream
//! (types and names of a subscription) are in `ads::server`.

use std::fmt;

use crate::ads::Variant;
use crate::ads::server::StreamLimit;
use crate::protobuf::{Value, WireError, fields};

/// Limits of one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RequestLimits {
    /// Bytes of each string of a node, and of each part of a locality; default 256.
    pub node_string_bytes: usize,
    /// Entries of `node.client_features`; default 64. An Envoy has about ten.
    pub client_features: usize,
    /// Bytes of a resource name, cluster name, type URL, version or nonce; default 1024.
    pub name_bytes: usize,
    /// Resource names of a discovery request; default 32768.
    pub names: usize,
    /// Clusters of a load report; default 4096.
    pub clusters_per_report: usize,
    /// Upstream localities of one cluster of a load report, counted per priority; default 1000.
    pub localities_per_cluster: usize,
    /// Upstream localities of a load report, summed over its clusters; default 16384.
    pub localities_per_report: usize,
    /// Bytes of the text of a NACK that are kept; default 1024. A longer text is cut, not refused.
    pub text_bytes: usize,
}

impl Default for RequestLimits {
    fn default() -> Self {
        Self {
            node_string_bytes: 256,
            client_features: 64,
            name_bytes: 1024,
            names: 32_768,
            clusters_per_report: 4096,
            localities_per_cluster: 1000,
            localities_per_report: 16_384,
            text_bytes: 1024,
        }
    }
}

/// Which limit a request exceeds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RequestLimit {
    NodeStringBytes,
    ClientFeatures,
    NameBytes,
    Names,
    ClustersPerReport,
    LocalitiesPerCluster,
    LocalitiesPerReport,
    Streams,
    StreamsPerPeer,
    UnfinishedBytes,
    MessageTimeout,
    Types,
    SubscriptionBytes,
    /// A message is longer than `max_message_size`.
    MaxMessageSize,
    /// A new stream sends nothing.
    FirstMessageTimeout,
}

impl RequestLimit {
    /// All of them, for counters that exist before the first refusal.
    pub const ALL: [Self; 15] = [
        Self::NodeStringBytes,
        Self::ClientFeatures,
        Self::NameBytes,
        Self::Names,
        Self::ClustersPerReport,
        Self::LocalitiesPerCluster,
        Self::LocalitiesPerReport,
        Self::Streams,
        Self::UnfinishedBytes,
        Self::MessageTimeout,
        Self::Types,
        Self::SubscriptionBytes,
        Self::MaxMessageSize,
        Self::FirstMessageTimeout,
        Self::StreamsPerPeer,
    ];

    /// Returns the name of the field of [`RequestLimits`], [`ServerOptions`](super::ServerOptions)
    /// or [`Limits`](crate::ads::server::Limits).
    pub const fn name(self) -> &'static str {
        match self {
            Self::NodeStringBytes => "node_string_bytes",
            Self::ClientFeatures => "client_features",
            Self::NameBytes => "name_bytes",
            Self::Names => "names",
            Self::ClustersPerReport => "clusters_per_report",
            Self::LocalitiesPerCluster => "localities_per_cluster",
            Self::LocalitiesPerReport => "localities_per_report",
            Self::Streams => "streams",
            Self::StreamsPerPeer => "streams_per_peer",
            Self::UnfinishedBytes => "unfinished_bytes",
            Self::MessageTimeout => "message_timeout",
            Self::Types => "types",
            Self::SubscriptionBytes => "subscription_bytes",
            Self::MaxMessageSize => "max_message_size",
            Self::FirstMessageTimeout => "first_message_timeout",
        }
    }
}

impl From<StreamLimit> for RequestLimit {
    fn from(limit: StreamLimit) -> Self {
        match limit {
            StreamLimit::Types => Self::Types,
            StreamLimit::NamesPerType => Self::Names,
            StreamLimit::NameLength => Self::NameBytes,
            StreamLimit::SubscriptionBytes => Self::SubscriptionBytes,
        }
    }
}

/// A request that exceeds a limit, or that cannot be decoded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Refused {
    Limit { limit: RequestLimit, text: String },
    Malformed(WireError),
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Limit { text, .. } => f.write_str(text),
            Self::Malformed(error) => write!(f, "malformed message: {error}"),
        }
    }
}

impl From<WireError> for Refused {
    fn from(error: WireError) -> Self {
        Self::Malformed(error)
    }
}

impl RequestLimits {
    pub(super) fn check_discovery(&self, variant: Variant, request: &[u8]) -> Result<(), Refused> {
        let numbers = DiscoveryFields::of(variant);
        let mut names = 0;
        for field in fields(request) {
            let (number, value) = field?;
            let Value::Bytes(bytes) = value else {
                continue;
            };
            if number == numbers.node {
                self.check_node(bytes)?;
            } else if let Some((_, name)) = numbers.strings.iter().find(|(it, _)| *it == number) {
                self.check_name(bytes, name)?;
            } else if let Some((_, name)) = numbers.lists.iter().find(|(it, _)| *it == number) {
                names += 1;
                self.check_count(names, self.names, RequestLimit::Names, name)?;
                self.check_name(bytes, name)?;
            } else if numbers.versions == Some(number) {
                let name = "initial_resource_versions";
                names += 1;
                self.check_count(names, self.names, RequestLimit::Names, name)?;
                for part in fields(bytes) {
                    if let (_, Value::Bytes(text)) = part? {
                        self.check_name(text, name)?;
                    }
                }
            }
        }
        Ok(())
    }

    pub(super) fn check_load_stats(&self, request: &[u8]) -> Result<(), Refused> {
        let (mut clusters, mut localities) = (0, 0);
        for field in fields(request) {
            match field? {
                (1, Value::Bytes(node)) => self.check_node(node)?,
                (2, Value::Bytes(stats)) => {
                    clusters += 1;
                    let (limit, most) = (RequestLimit::ClustersPerReport, self.clusters_per_report);
                    self.check_count(clusters, most, limit, "cluster_stats")?;
                    self.check_cluster_stats(stats, &mut localities)?;
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn check_cluster_stats(&self, stats: &[u8], all: &mut usize) -> Result<(), Refused> {
        let mut localities = 0;
        for field in fields(stats) {
            match field? {
                (1, Value::Bytes(name)) => self.check_name(name, "cluster_stats.cluster_name")?,
                (2, Value::Bytes(locality)) => {
                    let path = "cluster_stats.upstream_locality_stats";
                    localities += 1;
                    *all += 1;
                    let (limit, most) = (
                        RequestLimit::LocalitiesPerCluster,
                        self.localities_per_cluster,
                    );
                    self.check_count(localities, most, limit, path)?;
                    let (limit, most) = (
                        RequestLimit::LocalitiesPerReport,
                        self.localities_per_report,
                    );
                    self.check_count(*all, most, limit, path)?;
                    for part in fields(locality) {
                        if let (1, Value::Bytes(locality)) = part? {
                            self.check_locality(locality, path)?;
                        }
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Checks the strings of a node. Metadata and extensions are not decoded, so not checked.
    fn check_node(&self, node: &[u8]) -> Result<(), Refused> {
        let mut features = 0;
        for field in fields(node) {
            match field? {
                (1, Value::Bytes(text)) => self.check_node_string(text, "node.id")?,
                (2, Value::Bytes(text)) => self.check_node_string(text, "node.cluster")?,
                (4, Value::Bytes(locality)) => self.check_locality(locality, "node")?,
                (6, Value::Bytes(text)) => self.check_node_string(text, "node.user_agent_name")?,
                (7, Value::Bytes(text)) => {
                    self.check_node_string(text, "node.user_agent_version")?;
                }
                (10, Value::Bytes(text)) => {
                    features += 1;
                    let (limit, most) = (RequestLimit::ClientFeatures, self.client_features);
                    self.check_count(features, most, limit, "node.client_features")?;
                    self.check_node_string(text, "node.client_features")?;
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn check_locality(&self, locality: &[u8], parent: &str) -> Result<(), Refused> {
        for field in fields(locality) {
            let (number, value) = field?;
            let (Value::Bytes(text), Some(part)) = (
                value,
                ["region", "zone", "sub_zone"].get(number as usize - 1),
            ) else {
                continue;
            };
            self.check_node_string(text, &format!("{parent}.locality.{part}"))?;
        }
        Ok(())
    }

    fn check_node_string(&self, text: &[u8], path: &str) -> Result<(), Refused> {
        let (limit, most) = (RequestLimit::NodeStringBytes, self.node_string_bytes);
        check_length(text, most, limit, path)
    }

    fn check_name(&self, text: &[u8], path: &str) -> Result<(), Refused> {
        check_length(text, self.name_bytes, RequestLimit::NameBytes, path)
    }

    fn check_count(
        &self,
        count: usize,
        most: usize,
        limit: RequestLimit,
        path: &str,
    ) -> Result<(), Refused> {
        if count <= most {
            return Ok(());
        }
        let text = format!("{path}: more than {most} entries");
        Err(Refused::Limit { limit, text })
    }
}

fn check_length(text: &[u8], most: usize, limit: RequestLimit, path: &str) -> Result<(), Refused> {
    if text.len() <= most {
        return Ok(());
    }
    let text = format!("{path}: {} bytes, at most {most} are accepted", text.len());
    Err(Refused::Limit { limit, text })
}

/// Field numbers of a discovery request.
struct DiscoveryFields {
    node: u32,
    strings: [(u32, &'static str); 3],
    lists: &'static [(u32, &'static str)],
    /// A map whose entries are counted like names; incremental requests only.
    versions: Option<u32>,
}

impl DiscoveryFields {
    const fn of(variant: Variant) -> Self {
        match variant {
            Variant::Sotw => Self {
                node: 2,
                strings: [(1, "version_info"), (4, "type_url"), (5, "response_nonce")],
                lists: &[(3, "resource_names")],
                versions: None,
            },
            Variant::Delta => Self {
                node: 1,
                strings: [(2, "type_url"), (6, "response_nonce"), (2, "type_url")],
                lists: &[
                    (3, "resource_names_subscribe"),
                    (4, "resource_names_unsubscribe"),
                ],
                versions: Some(5),
            },
        }
    }
}

#[cfg(test)]
mod tests;
