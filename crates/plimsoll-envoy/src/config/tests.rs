//! Tests of the configuration, in the JSON that Envoy makes of a Struct.

use plimsoll_core::model::zone_aware::LocalityBasis;
use serde_json::{Value, json};

use super::*;

fn policy(name: &str, message: &str, mut settings: Value) -> Value {
    let package = format!("envoy.extensions.load_balancing_policies.{name}.v3.{message}");
    settings["@type"] = json!(format!("type.googleapis.com/{package}"));
    json!({ "policies": [{ "typed_extension_config": {
        "name": format!("envoy.load_balancing_policies.{name}"),
        "typed_config": settings,
    } }] })
}

fn parse(config: &Value) -> Result<ModuleConfig, ConfigError> {
    ModuleConfig::parse(&config.to_string())
}

#[test]
fn names_are_those_of_the_bootstrap() {
    let rules = json!({ "locality_basis": "LRS_REPORTED_RATE", "min_cluster_size": 1 });
    let settings = json!({ "locality_lb_config": { "zone_aware_lb_config": rules } });
    let written = json!({
        "node": { "locality": { "region": "r1", "zone": "zone-a" } },
        "cluster_manager": { "local_cluster_name": "local_cluster" },
        "cluster": {
            "load_balancing_policy": policy("least_request", "LeastRequest", settings),
            "common_lb_config": { "healthy_panic_threshold": { "value": 0 } },
        },
    });
    let config = parse(&written).unwrap();
    let identity = config.identity.clone().unwrap();
    assert_eq!(identity.locality, Locality::new("r1", "zone-a", ""));
    let local_cluster_name = identity.local_cluster_name.as_deref();
    assert_eq!(local_cluster_name, Some("local_cluster"));
    let cluster = config.cluster("orders").unwrap();
    assert_eq!(&**cluster.name(), "orders");
    assert_eq!(cluster.endpoint_policy().name(), "least_request");
    assert_eq!(cluster.panic_threshold(), 0);
    let rules = cluster.zone_aware().unwrap();
    assert_eq!(rules.locality_basis(), LocalityBasis::LrsReportedRate);
    assert_eq!(rules.min_cluster_size(), 1);
}

#[test]
fn an_empty_configuration_is_round_robin_with_zone_aware_routing() {
    for text in ["", "{}"] {
        let config = ModuleConfig::parse(text).unwrap();
        assert!(config.identity.is_none());
        let cluster = config.cluster("orders").unwrap();
        assert_eq!(cluster.endpoint_policy().name(), "round_robin");
        assert!(cluster.zone_aware().is_some());
    }
}

#[test]
fn errors_name_the_path_of_the_field() {
    let ring = |hashing: Value| {
        let settings = json!({ "consistent_hashing_lb_config": hashing });
        json!({ "cluster": { "load_balancing_policy": policy("ring_hash", "RingHash", settings) } })
    };
    let observed = json!({ "locality_basis": "OBSERVED_LOAD" });
    let observed = json!({ "locality_lb_config": { "zone_aware_lb_config": observed } });
    let observed = policy("round_robin", "RoundRobin", observed);
    let cases = [
        (json!({ "nod": {} }), "nod"),
        (
            json!({ "node": { "locality": { "zon": "a" } } }),
            "node.locality.zon",
        ),
        (
            json!({ "cluster": { "lb_policy": "FASTEST" } }),
            "cluster.lb_policy",
        ),
        (
            json!({ "cluster": { "common_lb_config": {
                "healthy_panic_threshold": { "value": 101 },
            } } }),
            "cluster.common_lb_config.healthy_panic_threshold.value",
        ),
        (
            json!({ "cluster": { "outlier_detection": { "interval": "1s" } } }),
            "cluster.outlier_detection",
        ),
        (
            json!({ "cluster": { "lb_subset_config": {
                "fallback_policy": "ANY_ENDPOINT",
                "subset_selectors": [{ "keys": ["version"] }],
            } } }),
            "cluster.lb_subset_config",
        ),
    ];
    for (config, path) in cases {
        let error = parse(&config).unwrap_err();
        assert_eq!(error.path(), path, "{error}");
    }
    assert!(parse(&ring(json!({ "hash_balance_factor": 120 }))).is_ok());
    let observed = json!({ "cluster": { "load_balancing_policy": observed } });
    assert!(parse(&observed).is_ok());
    assert!(ModuleConfig::parse("{").is_err());
}

#[test]
fn the_control_plane_needs_an_identity_and_an_endpoint() {
    let server = |endpoints: Value| {
        let assignment = json!({ "cluster_name": "control", "endpoints": endpoints });
        json!({ "name": "control", "type": "STATIC", "load_assignment": assignment })
    };
    let address = json!({ "socket_address": { "address": "127.0.0.1", "port_value": 18000 } });
    let endpoints = json!([{ "lb_endpoints": [{ "endpoint": { "address": address } }] }]);
    let node = json!({ "id": "gateway-1", "cluster": "gateway", "locality": { "zone": "a" } });
    let good = json!({ "node": node, "management_server": server(endpoints.clone()) });
    let identity = parse(&good).unwrap().identity.unwrap();
    let management_server = identity.management_server.unwrap();
    assert_eq!(&*management_server.node.id, "gateway-1");
    assert_eq!(management_server.node.locality, Locality::zone_only("a"));
    let nameless = json!({ "management_server": server(endpoints) });
    assert_eq!(parse(&nameless).unwrap_err().path(), "node.id");
    let empty = json!({ "node": node, "management_server": server(json!([])) });
    let error = parse(&empty).unwrap_err();
    assert!(error.path().starts_with("management_server"), "{error}");
}

#[test]
fn explanations_are_served_on_loopback_only() {
    let admin = |ip: &str| {
        let address = json!({ "socket_address": { "address": ip, "port_value": 9902 } });
        parse(&json!({ "admin": { "address": address } }))
    };
    let address = admin("127.0.0.1").unwrap().admin_address;
    assert_eq!(address, Some("127.0.0.1:9902".parse().unwrap()));
    let error = admin("0.0.0.0").unwrap_err();
    assert_eq!(error.path(), "admin.address.socket_address");
}

#[test]
fn formats_of_load_reports_are_those_of_the_header() {
    let format = |text: &str| parse(&json!({ "endpoint_load_metrics_format": text }));
    assert_eq!(
        format("JSON").unwrap().endpoint_load_metrics_format,
        Some("JSON")
    );
    assert_eq!(
        parse(&json!({})).unwrap().endpoint_load_metrics_format,
        None
    );
    let error = format("XML").unwrap_err();
    assert_eq!(error.path(), "endpoint_load_metrics_format");
    // A control plane sends the format as part of the cluster.
    let cluster = json!({ "plimsoll": { "endpoint_load_metrics_format": "BIN" } });
    let sent = parse(&json!({ "cluster": cluster })).unwrap();
    assert_eq!(sent.endpoint_load_metrics_format, Some("BIN"));
    let both =
        |own: &str| parse(&json!({ "cluster": cluster, "endpoint_load_metrics_format": own }));
    assert_eq!(
        both("BIN").unwrap().endpoint_load_metrics_format,
        Some("BIN")
    );
    let error = both("TEXT").unwrap_err();
    assert_eq!(error.path(), "endpoint_load_metrics_format");
    assert!(error.to_string().contains("cluster.plimsoll"), "{error}");
}
