//! Types of the responses that only the control plane has; `plimsoll_admin` has those that the
//! dashboard shares, and plimsoll-core the explanations. `openapi` describes all of them.
//!
//! Field names are stable; docs/admin-api.md describes each.

use std::net::SocketAddr;
use std::sync::Arc;

use plimsoll_admin::api::{Cost, PlannedCost, TotalLoad, Verdict, ZoneLoad};
use plimsoll_core::explain::Explanation;
use plimsoll_core::locality_picking::zone_aware::Reason;
use plimsoll_core::model::locality::Locality;

use crate::audit::AuditRecord;
use crate::relay::RelayStatus;

/// Declares structs that are serialized to JSON and, with the feature `schema`, have a JSON Schema.
macro_rules! responses {
    ($(
        $(#[$attribute:meta])*
        $name:ident { $($(#[$of_field:meta])* $field:ident: $kind:ty,)* }
    )*) => {$(
        $(#[$attribute])*
        #[derive(Clone, Debug, serde::Serialize)]
        #[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
        pub(super) struct $name {
            $($(#[$of_field])* pub(super) $field: $kind,)*
        }
    )*};
}

responses! {
    Error {
        error: String,
        field: Option<String>,
    }
    Index {
        paths: Vec<String>,
    }

    /// Response to requests for `/api/v1/reload`.
    Reloaded {
        restart_needed: Vec<&'static str>,
    }

    /// Response to requests for `/api/v1/status`.
    Status {
        version: &'static str,
        relay: Option<Relay>,
        listen: SocketAddr,
        insecure: bool,
        admin: Option<SocketAddr>,
        read_only: Option<SocketAddr>,
        verdict: Verdict,
        fleets: usize,
        nodes: usize,
        clusters: usize,
        discovery_streams: usize,
        load_reporting_interval_ms: u64,
        configuration: Configuration,
    }
    Relay {
        address: String,
        api_type: &'static str,
        upstream: RelayStatus,
    }
    Configuration {
        reloads_succeeded: u64,
        reloads_failed: u64,
        in_force: bool,
        error: Option<String>,
        read_unix_seconds: u64,
        restart_needed: Vec<&'static str>,
    }

    /// Response to requests for `/api/v1/fleets`.
    Fleets {
        fleets: Vec<Fleet>,
    }
    Fleet {
        fleet: Arc<str>,
        nodes: usize,
        zones: Vec<FleetZone>,
        basis: &'static str,
        warming_up: bool,
        /// Why the newest demand is not delivered, as a clause; `null` if it is.
        withheld: Option<String>,
        delivered: Vec<Fraction>,
        delivered_age_ms: Option<u64>,
        demand: Vec<Demand>,
    }
    FleetZone {
        locality: Locality,
        nodes: u64,
    }
    Demand {
        cluster: Option<Arc<str>>,
        warming_up: bool,
        zones: Vec<ZoneDemand>,
        measured: Option<Vec<Fraction>>,
        measured_age_ms: Option<u64>,
        generation: Option<u64>,
        cause: Option<&'static str>,
    }
    ZoneDemand {
        locality: Locality,
        reporters: u64,
        requests_per_second: f64,
        smoothed_requests_per_second: f64,
    }
    Fraction {
        locality: Locality,
        fraction_bp: u64,
        requests_per_second: f64,
        reporters: u64,
        estimated: bool,
    }

    /// Response to requests for `/api/v1/nodes`.
    Nodes {
        total: usize,
        offset: usize,
        nodes: Vec<Node>,
    }
    Node {
        id: Arc<str>,
        fleet: Arc<str>,
        locality: Locality,
        class: &'static str,
        user_agent_name: String,
        user_agent_version: String,
        known_for_ms: u64,
        discovery_streams: u32,
        load_reporting_streams: u32,
        module_streams: u32,
        without_stream_for_ms: Option<u64>,
        replica: Option<Arc<str>>,
        last_report_age_ms: Option<u64>,
        report_interval_ms: Option<u64>,
        requests_per_second: Option<f64>,
        unreported: Vec<Arc<str>>,
        delivery: Vec<ServiceDelivery>,
        discovery: Vec<Stream>,
    }
    ServiceDelivery {
        cluster: Arc<str>,
        delivery: &'static str,
        reason: Option<&'static str>,
    }
    Stream {
        variant: &'static str,
        peer: Option<SocketAddr>,
        open_for_ms: u64,
        types: Vec<TypeStatus>,
    }
    TypeStatus {
        type_url: Arc<str>,
        wildcard: bool,
        subscribed_names: usize,
        sent_version: Option<Arc<str>>,
        acked_version: Option<Arc<str>>,
        nacked: Option<Nack>,
        awaiting_answer: bool,
        last_answer_age_ms: Option<u64>,
        responses: u64,
        acks: u64,
        nacks: u64,
        stale_answers: u64,
    }
    Nack {
        version: Arc<str>,
        resources: Vec<Arc<str>>,
        message: String,
    }

    /// Response to requests for `/api/v1/replicas`.
    Replicas {
        store: Option<Store>,
        replicas: Vec<Replica>,
    }
    Store {
        endpoints: Vec<String>,
        prefix: String,
        connected: bool,
        synced: bool,
        nodes: usize,
        own_nodes: usize,
        pending_writes: usize,
        records_written: u64,
        write_failures: u64,
        last_write_ms: f64,
        compactions: u64,
    }
    Replica {
        replica: String,
        this: bool,
        listen: String,
        version: String,
        nodes: u64,
        same_configuration: bool,
        started_unix_ms: u64,
        last_heard_ms: u64,
    }

    /// Response to requests for `/api/v1/clusters`.
    Clusters {
        total: usize,
        offset: usize,
        clusters: Vec<Cluster>,
    }
    Cluster {
        cluster: Arc<str>,
        mode: &'static str,
        ramp_percent: u32,
        asked_delivery: &'static str,
        locality_policy: &'static str,
        endpoint_policy: &'static str,
        localities: Vec<Endpoints>,
        delivery: [ClassDelivery; 4],
        fleets: Vec<ClusterFleet>,
    }
    Endpoints {
        locality: Locality,
        priority: u32,
        endpoints: usize,
    }
    ClassDelivery {
        class: &'static str,
        delivery: &'static str,
        reason: Option<&'static str>,
        #[serde(skip_serializing_if = "Option::is_none")]
        subsets: Option<&'static str>,
    }
    ClusterFleet {
        fleet: Arc<str>,
        delivery: Vec<ClassDelivery>,
        basis: &'static str,
        warming_up: bool,
        delivered: Vec<Fraction>,
        delivered_age_ms: Option<u64>,
        traffic: Vec<Traffic>,
        locality_weights: Vec<Weights>,
    }
    Traffic {
        from: Locality,
        to: Locality,
        requests_per_second: f64,
    }
    Weights {
        receiver: Locality,
        weights: Vec<Weight>,
        off: Option<Reason>,
    }
    Weight {
        locality: Locality,
        weight: Option<u32>,
    }

    /// Response to requests for `/api/v1/audit`.
    Audit {
        total: usize,
        offset: usize,
        entries: Vec<AuditRecord>,
    }

    /// Response to requests for `/api/v1/load`.
    Load {
        total: usize,
        offset: usize,
        cost: Prices,
        load_lines: Vec<LoadLine>,
    }
    /// Prices of traffic between zones.
    Prices {
        #[serde(flatten)]
        general: Cost,
        /// US dollars per gigabyte between regions.
        usd_per_gigabyte_between_regions: f64,
        /// Pairs of zones or regions with a price of their own.
        between: Vec<PairPrice>,
    }
    PairPrice {
        from: Locality,
        to: Locality,
        usd_per_gigabyte: f64,
    }
    LoadLine {
        fleet: Arc<str>,
        cluster: Arc<str>,
        mode: &'static str,
        ramp_percent: u32,
        basis: &'static str,
        warming_up: bool,
        /// Target utilization of the service's objective, 0 to 1; `null` if it is `LEVEL`.
        target_utilization: Option<f64>,
        /// Prices of the service; what it does not say is as in the file.
        cost: Prices,
        /// `null` without an objective other than `LEVEL` and without prices that differ.
        planned: Option<PlannedCost>,
        /// Why host counts decide although demand should steer, as a clause; `null` if it steers.
        withheld: Option<String>,
        demand_requests_per_second: f64,
        seen: Option<TotalLoad>,
        now: Option<TotalLoad>,
        now_unknown: Option<&'static str>,
        enforce: Option<TotalLoad>,
        enforce_unknown: Option<&'static str>,
        zones: Vec<ZoneLine>,
    }
    ZoneLine {
        locality: Locality,
        demand_requests_per_second: f64,
        capacity_share: f64,
        line_requests_per_second: f64,
        above_line: Option<Arc<str>>,
        /// Share of the requests to the zone that failed, in the latest load reports, 0 to 1;
        /// `null` without requests.
        failed_share: Option<f64>,
        /// Whether many more requests fail here than in another zone: demand does not steer then.
        fails: bool,
        /// Zones of the proxies whose requests here fail, if those of others do not.
        fails_only_from: Vec<Locality>,
        /// What is planned for the demand of all fleets; `null` with `LEVEL` and one price.
        planned: Option<PlannedZone>,
        seen: Option<ZoneLoad>,
        now: Option<ZoneLoad>,
        enforce: Option<ZoneLoad>,
    }
    PlannedZone {
        /// Requests per second that the healthy hosts of the zone serve at utilization 1; `null`
        /// without `capacity`.
        capacity_requests_per_second: Option<f64>,
        /// Planned utilization; `null` without healthy hosts or `capacity`.
        utilization: Option<f64>,
        /// Hosts of weight 1 that the zone's own demand needs at the target; `null` with `LEVEL`.
        wanted_hosts: Option<u64>,
        /// How the requests of the zone are planned.
        text: Arc<str>,
    }
    /// Response to requests for `/api/v1/explain`.
    Explained {
        #[serde(flatten)]
        explanation: Explanation,
        /// Load line of the cluster and fleet; `null` if there is none.
        load_line: Option<LoadLine>,
    }
}
