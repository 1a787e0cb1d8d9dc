//! `/clusters` as Envoy has it: lines of text, or JSON with `?format=json`.
//!
//! What Envoy says and this proxy does not know is left out rather than made up: limits of the high
//! priority, time-outs and waiting requests per host, success rates. As in Envoy's JSON,
//! large numbers are strings and what is zero, false or empty is not there. Why a cluster routes as
//! it does is `/explain`'s business.

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

/// In which form.
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

/// Every cluster and its hosts.
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
        // Writing into a string does not fail.
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

/// What is counted, by name.
type Counts<const N: usize> = [(&'static str, u64); N];

/// Counters, then gauges, in Envoy's order of either kind.
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

fn write_host(page: &mut String, place: &str, status: &HostStatus) -> std::fmt::Result {
    let (counters, gauges) = counts(status);
    let mut counts = [&counters[..], &gauges[..]].concat();
    counts.sort_unstable();
    for (name, value) in counts {
        writeln!(page, "{place}::{name}::{value}")?;
    }
    let host = &status.host;
    let locality = host.locality();
    writeln!(page, "{place}::hostname::{}", host.hostname())?;
    writeln!(page, "{place}::health_flags::{}", flags(status.health))?;
    writeln!(page, "{place}::weight::{}", host.weight())?;
    writeln!(page, "{place}::region::{}", locality.region())?;
    writeln!(page, "{place}::zone::{}", locality.zone())?;
    writeln!(page, "{place}::sub_zone::{}", locality.sub_zone())?;
    let canary = status.metadata.get("canary") == Some(&true.into());
    writeln!(page, "{place}::canary::{canary}")?;
    writeln!(page, "{place}::priority::{}", status.priority)
}

/// `healthy`, or each flag behind a slash.
fn flags(health: HealthFlags) -> String {
    let flags: String = health.names().map(|name| format!("/{name}")).collect();
    match flags.is_empty() {
        true => "healthy".to_owned(),
        false => flags,
    }
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
        let value = Some(value).filter(|value| *value > 0);
        let value = value.map_or_else(String::new, |value| value.to_string());
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

/// Where a host listens, as Envoy's `Address`.
pub(super) fn address_json(host: &Host) -> Value {
    let address = host.address();
    json!({ "socket_address": {
        "address": address.ip(),
        "port_value": address.port(),
    }})
}

/// Where it is, as Envoy's `Locality`.
pub(super) fn locality_json(host: &Host) -> Value {
    let locality = host.locality();
    object([
        ("region", json!(locality.region())),
        ("zone", json!(locality.zone())),
        ("sub_zone", json!(locality.sub_zone())),
    ])
}

/// The flags, by the names that Envoy's JSON has for them.
fn health_json(health: HealthFlags) -> Value {
    let fields = health.names().filter_map(|name| {
        let field = match name {
            "failed_active_hc" => "failed_active_health_check",
            "degraded_active_hc" => "failed_active_degraded_check",
            "failed_outlier_check" | "pending_active_hc" | "excluded_via_immediate_hc_fail" => name,
            // Those of the assignment are one field, below.
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

/// An object without what is zero, false or an empty text.
pub(super) fn object<const N: usize>(fields: [(&str, Value); N]) -> Value {
    let says = |value: &Value| match value {
        Value::Bool(value) => *value,
        Value::Number(value) => value.as_u64() != Some(0),
        Value::String(value) => !value.is_empty(),
        _ => true,
    };
    let fields = fields.into_iter().filter(|(_, value)| says(value));
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
    fn flags_are_joined_by_slashes() {
        let fine = HealthFlags::from_eds(HealthStatus::Unknown);
        assert_eq!(flags(fine), "healthy");
        let bad = HealthFlags::from_eds(HealthStatus::Unhealthy)
            .after(HealthSignal::OutlierEjected)
            .after(HealthSignal::ActiveCheckFailed);
        assert_eq!(
            flags(bad),
            "/failed_active_hc/failed_outlier_check/failed_eds_health"
        );
    }

    #[test]
    fn health_in_json_has_names_of_its_own() {
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
                    .after(HealthSignal::ActiveCheckDegraded),
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
    fn what_is_nothing_is_left_out() {
        let made = object([
            ("zero", json!(0)),
            ("no", json!(false)),
            ("empty", json!("")),
            ("list", json!([])),
            ("some", json!("1")),
        ]);
        assert_eq!(made, json!({ "list": [], "some": "1" }));
    }
}
