//! Messages that replicas of the control plane share through a store. They are Plimsoll's own: a
//! new field gets a new number, so that replicas of two versions can run at the same time.

use bytes::Bytes;
use prost::{Enumeration, Message};

use super::LocalityMessage;

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

/// Demand that replicas deliver to a fleet: the value of a plan's key.
#[derive(Clone, PartialEq, Message)]
pub struct PlanRecordMessage {
    /// Process of the replica that made the plan.
    #[prost(fixed64, tag = "1")]
    pub instance: u64,
    #[prost(enumeration = "PlanCauseMessage", tag = "2")]
    pub cause: i32,
    #[prost(bool, tag = "3")]
    pub warming_up: bool,
    #[prost(message, repeated, tag = "4")]
    pub zones: Vec<PlanZoneMessage>,
    /// Unset if the service has no objective.
    #[prost(message, optional, tag = "5")]
    pub history: Option<PlanHistoryMessage>,
}

/// What the plan of a service follows beside demand, as it was before this report.
#[derive(Clone, PartialEq, Message)]
pub struct PlanHistoryMessage {
    #[prost(message, repeated, tag = "1")]
    pub spilling: Vec<SpillingZoneMessage>,
}

/// A zone that sends requests away.
#[derive(Clone, PartialEq, Message)]
pub struct SpillingZoneMessage {
    #[prost(message, optional, tag = "1")]
    pub locality: Option<LocalityMessage>,
    /// Averages of its demand.
    #[prost(double, tag = "2")]
    pub fast: f64,
    #[prost(double, tag = "3")]
    pub slow: f64,
    /// Time since the report before, in microseconds.
    #[prost(uint64, tag = "4")]
    pub age_us: u64,
    /// Reports in a row of too little demand, and the time since the first.
    #[prost(uint32, tag = "5")]
    pub reports_below: u32,
    #[prost(uint64, tag = "6")]
    pub below_us: u64,
}

/// Demand of one zone in a plan.
#[derive(Clone, PartialEq, Message)]
pub struct PlanZoneMessage {
    #[prost(message, optional, tag = "1")]
    pub locality: Option<LocalityMessage>,
    #[prost(double, tag = "2")]
    pub rate_per_second: f64,
    #[prost(uint64, tag = "3")]
    pub reporters: u64,
    /// No node of the zone reports.
    #[prost(bool, tag = "4")]
    pub estimated: bool,
}

/// Why a plan was made. A cause of a later version is read as the first one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Enumeration)]
#[repr(i32)]
pub enum PlanCauseMessage {
    FractionsMoved = 0,
    FirstData = 1,
    Heartbeat = 2,
    NoData = 3,
    WarmedUp = 4,
    ZonesChanged = 5,
    Confirmation = 6,
}
