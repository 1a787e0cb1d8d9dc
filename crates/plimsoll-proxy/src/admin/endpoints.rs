//! Endpoints for `/config_dump?include_eds`, as Envoy's `ClusterLoadAssignment`s.
//!
//! As in Envoy, `health_status` is the class that results from all health checks, not the status in
//! the assignment, and the weight is the one in use. Locality weights are not kept.

use plimsoll_client::{ClusterStatus, HostStatus};
use plimsoll_core::model::health::HealthClass;
use plimsoll_xds::schema;
use serde_json::{Value, json};

use super::clusters::{address_json, locality_json, object};

/// Builds the assignment of a cluster, whose hosts must be sorted by priority and locality.
pub(super) fn endpoint_config(cluster: &ClusterStatus) -> Value {
    let same = |one: &HostStatus, other: &HostStatus| {
        one.priority == other.priority && one.host.locality() == other.host.locality()
    };
    let slots = cluster
        .hosts
        .chunk_by(same)
        .filter_map(|hosts| Some((hosts.first()?, hosts)));
    let endpoints = slots.map(|(first, hosts)| {
        let lb_endpoints: Vec<Value> = hosts.iter().map(lb_endpoint).collect();
        object([
            ("locality", locality_json(&first.host)),
            ("lb_endpoints", json!(lb_endpoints)),
            ("priority", json!(first.priority)),
        ])
    });
    json!({ "endpoint_config": {
        "@type": "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment",
        "cluster_name": cluster.name,
        "endpoints": endpoints.collect::<Vec<_>>(),
    }})
}

fn lb_endpoint(status: &HostStatus) -> Value {
    let host = &status.host;
    let health = match status.health.class() {
        HealthClass::Healthy => "HEALTHY",
        HealthClass::Degraded => "DEGRADED",
        HealthClass::Unhealthy => "UNHEALTHY",
    };
    let endpoint = object([
        ("address", address_json(host)),
        ("hostname", json!(host.hostname())),
    ]);
    let metadata = Some(&status.metadata).filter(|fields| !fields.is_empty());
    let mut lb_endpoint = json!({
        "endpoint": endpoint,
        "health_status": health,
        "load_balancing_weight": host.weight(),
    });
    if let Some(fields) = metadata {
        lb_endpoint["metadata"] = schema::json::metadata(fields);
    }
    lb_endpoint
}
