//! Tests that defaults in field descriptions match the defaults of the validated types.

use std::time::Duration;

use plimsoll_control::config::{ConfigFile, ControlConfig};
use plimsoll_core::model::client_side_weighted_round_robin::ClientSideWeightedRoundRobin;
use plimsoll_core::model::endpoint_policy::{
    ConsistentHashing, HashFunction, LeastRequest, LeastRequestParts, Maglev, RingHash,
};
use plimsoll_core::model::load_aware_locality::{LoadAwareLocality, LoadAwareLocalityParts};
use plimsoll_core::model::zone_aware::ZoneAware;
use plimsoll_proxy::config::{Http2Config, HttpOptions};
use plimsoll_xds::upstream::{CircuitBreakers, UpstreamOptions};

use super::*;

/// Returns the default in a field's description, without Markdown.
fn documented_default(schema: &Value, message: &str, field: &str) -> String {
    let message = match message {
        "" => schema,
        name => &schema["$defs"][name],
    };
    let about = message["properties"][field]["description"]
        .as_str()
        .unwrap_or_else(|| panic!("{field} has no description: {message}"))
        .replace('\n', " ");
    let (_, default) = about
        .split_once("Default ")
        .unwrap_or_else(|| panic!("{about}"));
    default.trim_end_matches('.').replace('`', "")
}

fn check(subject: Subject, message: &str, fields: &[(&str, String)]) {
    let schema = subject.schema();
    for (field, value) in fields {
        assert_eq!(
            documented_default(&schema, message, field),
            *value,
            "{message}.{field}"
        );
    }
}

fn seconds(time: Duration) -> String {
    format!("{}s", time.as_secs_f64())
}

#[test]
fn defaults_of_the_control_plane_match() {
    let (name, text) = ("x".to_owned(), "{}".to_owned());
    let config = ControlConfig::parse(&ConfigFile { name, text }, &[]).unwrap();
    let planner = &config.reporting.planner;
    check(
        Subject::Control,
        "",
        &[
            ("listen", config.addresses.listen.to_string()),
            ("admin", config.addresses.admin.unwrap().to_string()),
        ],
    );
    check(
        Subject::Control,
        "LoadReporting",
        &[(
            "interval",
            seconds(config.reporting.load_reporting_interval),
        )],
    );
    check(
        Subject::Control,
        "Demand",
        &[
            ("smoothing_time_constant", seconds(planner.tau())),
            ("missed_intervals", planner.missed_intervals().to_string()),
            (
                "material_change_bp",
                planner.material_change_bp().to_string(),
            ),
            ("heartbeat", seconds(planner.heartbeat())),
        ],
    );
    check(
        Subject::Control,
        "Fleets",
        &[
            (
                "local_cluster_names",
                format!("[{}]", config.fleets.local_cluster_names.join(", ")),
            ),
            ("leave_after", seconds(config.fleets.leave_after)),
        ],
    );
}

#[test]
fn defaults_of_the_proxy_match() {
    let http = HttpOptions::default();
    let some = |time: Option<Duration>| seconds(time.unwrap());
    check(
        Subject::Proxy,
        "HttpConnectionManager",
        &[
            (
                "max_request_headers_kb",
                (http.max_request_header_bytes >> 10).to_string(),
            ),
            (
                "request_headers_timeout",
                some(http.request_headers_timeout),
            ),
            ("stream_idle_timeout", some(http.stream_idle_timeout)),
            ("use_remote_address", http.use_remote_address.to_string()),
            ("generate_request_id", http.generate_request_id.to_string()),
        ],
    );
    check(
        Subject::Proxy,
        "DownstreamHttpProtocolOptions",
        &[
            ("idle_timeout", some(http.idle_timeout)),
            ("max_headers_count", http.max_headers.to_string()),
        ],
    );
    let http2 = Http2Config::default();
    let documented = documented_default(
        &Subject::Proxy.schema(),
        "HttpConnectionManager",
        "http2_protocol_options",
    );
    for value in [
        format!("{} streams", http2.max_concurrent_streams),
        http2.initial_stream_window_size.to_string(),
        http2.initial_connection_window_size.to_string(),
        seconds(http2.keepalive_timeout),
    ] {
        assert!(documented.contains(&value), "{value} in {documented}");
    }
}

#[test]
fn defaults_of_a_cluster_match() {
    let options = UpstreamOptions::default();
    let breakers = CircuitBreakers::default();
    check(
        Subject::Cluster,
        "",
        &[("connect_timeout", seconds(options.connect_timeout))],
    );
    check(
        Subject::Cluster,
        "CommonHttpProtocolOptions",
        &[("idle_timeout", seconds(options.idle_timeout.unwrap()))],
    );
    check(
        Subject::Cluster,
        "CircuitBreakers.Thresholds",
        &[
            ("max_connections", breakers.max_connections.to_string()),
            (
                "max_pending_requests",
                breakers.max_pending_requests.to_string(),
            ),
            ("max_requests", breakers.max_requests.to_string()),
            ("max_retries", breakers.max_retries.to_string()),
        ],
    );
    let zone_aware = ZoneAware::default();
    check(
        Subject::Cluster,
        "LocalityLbConfig.ZoneAwareLbConfig",
        &[
            (
                "min_cluster_size",
                zone_aware.min_cluster_size().to_string(),
            ),
            ("routing_enabled", zone_aware.routing_enabled().to_string()),
        ],
    );
    check(
        Subject::Cluster,
        "LocalityLbConfig.ZoneAwareLbConfig.LrsRateConfig",
        &[(
            "staleness_threshold",
            seconds(zone_aware.staleness_threshold()),
        )],
    );
}

#[test]
fn defaults_of_policies_match() {
    let load_aware = LoadAwareLocality::try_new(LoadAwareLocalityParts::default()).unwrap();
    check(
        Subject::Cluster,
        "LoadAwareLocality",
        &[
            (
                "weight_update_period",
                seconds(load_aware.weight_update_period()),
            ),
            (
                "smoothing_time_constant",
                seconds(load_aware.smoothing_time_constant()),
            ),
            (
                "remote_probe_fraction",
                load_aware.remote_probe_fraction().to_string(),
            ),
            (
                "local_probe_fraction",
                load_aware.local_probe_fraction().to_string(),
            ),
            (
                "weight_expiration_period",
                seconds(load_aware.weight_expiration_period().unwrap()),
            ),
            (
                "utilization_variance_threshold",
                load_aware.utilization_variance_threshold().to_string(),
            ),
        ],
    );
    let weighted = ClientSideWeightedRoundRobin::default();
    check(
        Subject::Cluster,
        "ClientSideWeightedRoundRobin",
        &[
            ("blackout_period", seconds(weighted.blackout_period())),
            (
                "oob_reporting_period",
                seconds(weighted.oob_reporting_period()),
            ),
            (
                "weight_expiration_period",
                seconds(weighted.weight_expiration_period()),
            ),
            (
                "weight_update_period",
                seconds(weighted.weight_update_period()),
            ),
            (
                "error_utilization_penalty",
                weighted.error_utilization_penalty().to_string(),
            ),
        ],
    );
    let least_request = LeastRequest::try_new(LeastRequestParts::default()).unwrap();
    check(
        Subject::Cluster,
        "LeastRequest",
        &[
            ("choice_count", least_request.choice_count().to_string()),
            (
                "active_request_bias",
                least_request.active_request_bias().to_string(),
            ),
        ],
    );
    let hashing = ConsistentHashing::default();
    let ring = RingHash::try_new(HashFunction::default(), None, None, hashing).unwrap();
    check(
        Subject::Cluster,
        "RingHash",
        &[
            ("minimum_ring_size", ring.minimum_ring_size().to_string()),
            ("maximum_ring_size", ring.maximum_ring_size().to_string()),
        ],
    );
    let maglev = Maglev::try_new(None, hashing).unwrap();
    check(
        Subject::Cluster,
        "Maglev",
        &[("table_size", maglev.table_size().to_string())],
    );
}
