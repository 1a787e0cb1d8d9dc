//! Messages that replicas of the control plane share through a store. They are Plimsoll's own: a
//! new field gets a new number, so that replicas of two versions can run at the same time.

use bytes::Bytes;
use prost::Message;

/// What one replica knows about a node: the value of the node's key.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct NodeRecordMessage {
    /// Replica that wrote the record.
    #[prost(string, tag = "1")]
    pub replica: String,
    /// Process of the replica: a replica that restarts has another one.
    #[prost(fixed64, tag = "2")]
    pub instance: u64,
    /// `envoy.service.load_stats.v3.LoadStatsRequest`: the node and its latest load report.
    #[prost(bytes = "bytes", tag = "3")]
    pub report: Bytes,
}

/// A replica that runs: the value of the replica's key.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct ReplicaRecordMessage {
    #[prost(string, tag = "1")]
    pub replica: String,
    #[prost(fixed64, tag = "2")]
    pub instance: u64,
    /// Address of ADS and LRS.
    #[prost(string, tag = "3")]
    pub listen: String,
    #[prost(string, tag = "4")]
    pub version: String,
    /// Hash of the configuration: replicas should have the same.
    #[prost(fixed64, tag = "5")]
    pub configuration: u64,
    #[prost(uint64, tag = "6")]
    pub started_unix_ms: u64,
    /// Nodes with a stream to this replica.
    #[prost(uint64, tag = "7")]
    pub nodes: u64,
}
