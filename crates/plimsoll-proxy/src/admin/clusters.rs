//! `/clusters` in Envoy's formats: lines of text, or JSON with `?format=json`. Values that the
//! proxy does not track are omitted: circuit breaker limits of priority `HIGH`; per host, timeouts,
//! pending requests and success rates. As in Envoy's JSON, large numbers are strings, and values
//! that are zero, false or empty are omitted. `/explain` shows why a cluster routes as it does.

use std::fmt::Write as _;

use axum::Json;
use axum::extract::{Query, State as Extracted};
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use plimsoll_client::{CircuitBreakers, ClusterStatus, HostStatus};
use plimsoll_core::host::Host;
use plimsoll_core::model::health::{HealthFlags, HealthStatus};
use serde_json::{Map, Value, json};

use super::Admin;

#[derive(Debug, Default, serde::Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct ClustersQuery {
    format: Option<Format>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
enum Format {
    Text,
    Json,
}

pub(super) async fn clusters(
    Extracted(admin): Extracted<Admin>,
    Query(query): Query<ClustersQuery>,
) -> Response {
    let statuses = match admin.state.client.cluster_statuses().await {
        Ok(statuses) => statuses,
        Err(error) => {
            return (StatusCode::SERVICE_UNAVAILABLE, format!("{error}\n")).into_response();
        }
    };
    if query.format == Some(Format::Json) {
        let clusters: Vec<Value> = statuses.iter().map(cluster_json).collect();
        return Json(json!({ "cluster_statuses": clusters })).into_response();
    }
    let mut page = String::new();
    for cluster in &statuses {
        // Writing to a string cannot fail.
        let _ = write_cluster(&mut page, cluster);
    }
    page.into_response()
}

fn limits(breakers: &CircuitBreakers) -> [(&'static str, u32); 4] {
    [
        ("max_connections", breakers.max_connections),
        ("max_pending_requests", breakers.max_pending_requests),
        ("max_requests", breakers.max_requests),
        ("max_retries", breakers.max_retries),
    ]
}

type Counts<const N: usize> = [(&'static str, u64); N];

/// Returns counters and gauges of a host, each in Envoy's order.
fn counts(host: &HostStatus) -> (Counts<5>, Counts<2>) {
    let requests = host.host.request_counts();
    let connections = host.connections;
    (
        [
            ("cx_connect_fail", connections.connect_fail),
            ("cx_total", connections.total),
            ("rq_error", requests.failed),
            ("rq_success", requests.succeeded),
            ("rq_total", requests.issued),
        ],
        [
            ("cx_active", connections.active),
            ("rq_active", host.host.active_requests()),
        ],
    )
}

fn write_cluster(page: &mut String, cluster: &ClusterStatus) -> std::fmt::Result {
    let name = &cluster.name;
    writeln!(page, "{name}::observability_name::{name}")?;
    for (limit, value) in limits(&cluster.circuit_breakers) {
        writeln!(page, "{name}::default_priority::{limit}::{value}")?;
    }
    writeln!(page, "{name}::added_via_api::{}", cluster.added_via_api)?;
    for host in &cluster.hosts {
        write_host(page, &format!("{name}::{}", host.host.address()), host)?;
    }
    Ok(())
}

fn write_host(page: &mut String, prefix: &str, status: &HostStatus) -> std::fmt::Result {
    let (counters, gauges) = counts(status);
    let mut counts = [&counters[..], &gauges[..]].concat();
    counts.sort_unstable();
    for (name, value) in counts {
        writeln!(page, "{prefix}::{name}::{value}")?;
    }
    let host = &status.host;
    let locality = host.locality();
    writeln!(page, "{prefix}::hostname::{}", host.hostname())?;
    writeln!(page, "{prefix}::health_flags::{}", flags(status.health))?;
    writeln!(page, "{prefix}::weight::{}", host.weight())?;
    writeln!(page, "{prefix}::region::{}", locality.region())?;
    writeln!(page, "{prefix}::zone::{}", locality.zone())?;
    writeln!(page, "{prefix}::sub_zone::{}", locality.sub_zone())?;
    let canary = status.metadata.get("canary") == Some(&true.into());
    writeln!(page, "{prefix}::canary::{canary}")?;
    writeln!(page, "{prefix}::priority::{}", status.priority)
}

/// Formats the health flags of a host, each after a slash; `healthy` if none is set.
fn flags(health: HealthFlags) -> String {
    let flags: String = health
        .envoy_flags()
        .map(|name| format!("/{name}"))
        .collect();
    if flags.is_empty() {
        return "healthy".to_owned();
    }
    flags
}

fn cluster_json(cluster: &ClusterStatus) -> Value {
    let hosts: Vec<Value> = cluster.hosts.iter().map(host_json).collect();
    let limits = limits(&cluster.circuit_breakers).map(|(name, value)| (name, json!(value)));
    object([
        ("name", json!(cluster.name)),
        ("added_via_api", json!(cluster.added_via_api)),
        ("host_statuses", json!(hosts)),
        (
            "circuit_breakers",
            json!({ "thresholds": [Map::from_iter(limits.map(owned))] }),
        ),
        ("observability_name", json!(cluster.name)),
    ])
}

fn host_json(status: &HostStatus) -> Value {
    let host = &status.host;
    let (counters, gauges) = counts(status);
    let stat = |kind: &str, (name, value): (&str, u64)| {
        let value = if value > 0 {
            value.to_string()
        } else {
            String::new()
        };
        object([
            ("type", json!(kind)),
            ("value", json!(value)),
            ("name", json!(name)),
        ])
    };
    let counters = counters.map(|counter| stat("", counter));
    let gauges = gauges.map(|gauge| stat("GAUGE", gauge));
    object([
        ("address", address_json(host)),
        ("stats", json!([&counters[..], &gauges[..]].concat())),
        ("health_status", health_json(status.health)),
        ("weight", json!(host.weight())),
        ("hostname", json!(host.hostname())),
        ("priority", json!(status.priority)),
        ("locality", locality_json(host)),
    ])
}

pub(super) fn address_json(host: &Host) -> Value {
    let address = host.address();
    json!({ "socket_address": {
        "address": address.ip(),
        "port_value": address.port(),
    }})
}

pub(super) fn locality_json(host: &Host) -> Value {
    let locality = host.locality();
    object([
        ("region", json!(locality.region())),
        ("zone", json!(locality.zone())),
        ("sub_zone", json!(locality.sub_zone())),
    ])
}

/// Converts health flags to the field names of Envoy's JSON.
fn health_json(health: HealthFlags) -> Value {
    let fields = health.envoy_flags().filter_map(|name| {
        let field = match name {
            "failed_active_hc" => "failed_active_health_check",
            "degraded_active_hc" => "failed_active_degraded_check",
            "failed_outlier_check" | "pending_active_hc" | "excluded_via_immediate_hc_fail" => name,
            // `eds_health_status` has the health according to EDS.
            _ => return None,
        };
        Some((field, json!(true)))
    });
    let eds = match health.eds() {
        HealthStatus::Unknown | HealthStatus::Healthy => "HEALTHY",
        HealthStatus::Unhealthy | HealthStatus::Timeout => "UNHEALTHY",
        HealthStatus::Draining => "DRAINING",
        HealthStatus::Degraded => "DEGRADED",
    };
    let eds = ("eds_health_status", json!(eds));
    Value::Object(fields.chain([eds]).map(owned).collect())
}

/// Creates a JSON object without fields that are zero, false or empty strings.
pub(super) fn object<const N: usize>(fields: [(&str, Value); N]) -> Value {
    let is_set = |value: &Value| match value {
        Value::Bool(value) => *value,
        Value::Number(value) => value.as_u64() != Some(0),
        Value::String(value) => !value.is_empty(),
        _ => true,
    };
    let fields = fields.into_iter().filter(|(_, value)| is_set(value));
    Value::Object(fields.map(owned).collect())
}

fn owned((name, value): (&str, Value)) -> (String, Value) {
    (name.to_owned(), value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use plimsoll_core::model::health::HealthSignal;

    #[test]
    fn health_flags_are_separated_by_slashes() {
        let healthy = HealthFlags::from_eds(HealthStatus::Unknown);
        assert_eq!(flags(healthy), "healthy");
        let failing = HealthFlags::from_eds(HealthStatus::Unhealthy)
            .with_signal(HealthSignal::OutlierEjected)
            .with_signal(HealthSignal::ActiveCheckFailed);
        assert_eq!(
            flags(failing),
            "/failed_active_hc/failed_outlier_check/failed_eds_health"
        );
    }

    #[test]
    fn health_flags_have_other_names_in_json() {
        let pending = HealthFlags::awaiting_first_check(HealthStatus::Timeout, true);
        let cases = [
            (
                pending,
                json!({
                    "failed_active_health_check": true,
                    "pending_active_hc": true,
                    "eds_health_status": "UNHEALTHY",
                }),
            ),
            (
                HealthFlags::from_eds(HealthStatus::Draining)
                    .with_signal(HealthSignal::ActiveCheckDegraded),
                json!({
                    "failed_active_degraded_check": true,
                    "eds_health_status": "DRAINING",
                }),
            ),
            (
                HealthFlags::from_eds(HealthStatus::Unknown),
                json!({ "eds_health_status": "HEALTHY" }),
            ),
        ];
        for (health, expected) in cases {
            assert_eq!(health_json(health), expected);
        }
    }

    #[test]
    fn default_values_are_omitted() {
        let built = object([
            ("zero", json!(0)),
            ("no", json!(false)),
            ("empty", json!("")),
            ("list", json!([])),
            ("some", json!("1")),
        ]);
        assert_eq!(built, json!({ "list": [], "some": "1" }));
    }
}
