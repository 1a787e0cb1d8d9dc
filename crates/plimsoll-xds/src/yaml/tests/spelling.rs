//! Equivalent spellings: enums by name and number, snake_case and lowerCamelCase, YAML and JSON,
//! anchors; and cluster fields without effect here.

use plimsoll_core::model::cluster::{ClusterConfig, LocalityPolicy, LocalitySampling};
use plimsoll_core::model::endpoint_policy::{EndpointPolicy, HashFunction, SelectionMethod};
use plimsoll_core::model::zone_aware::{CapacityBasis, FractionSource, LocalityBasis, ZoneAware};

use super::{accepted, assert_rejected, typed, zone_aware_yaml};

fn zone_aware(fields: &str) -> ZoneAware {
    let config = accepted(&zone_aware_yaml(fields));
    config.zone_aware().cloned().unwrap()
}

#[test]
fn zone_aware_enums_are_read_by_name_and_number() {
    for (name, number, basis) in [
        ("HEALTHY_HOSTS_NUM", 0, LocalityBasis::HealthyHostsNum),
        ("HEALTHY_HOSTS_WEIGHT", 1, LocalityBasis::HealthyHostsWeight),
        ("LRS_REPORTED_RATE", 2, LocalityBasis::LrsReportedRate),
        ("OBSERVED_LOAD", 50_001, LocalityBasis::ObservedLoad),
    ] {
        let by_name = zone_aware(&format!("locality_basis: {name}"));
        assert_eq!(by_name.locality_basis(), basis);
        assert_eq!(by_name, zone_aware(&format!("locality_basis: {number}")));
    }
    for (name, number, basis) in [
        ("HEALTHY_HOSTS_NUM", 0, CapacityBasis::HealthyHostsNum),
        ("HEALTHY_HOSTS_WEIGHT", 1, CapacityBasis::HealthyHostsWeight),
    ] {
        let by_name = zone_aware(&format!("upstream_locality_basis: {name}"));
        assert_eq!(by_name.upstream_locality_basis(), basis);
        let by_number = zone_aware(&format!("upstream_locality_basis: {number}"));
        assert_eq!(by_name, by_number);
    }
    for (name, number, source) in [
        ("EDS_FIELD", 0, FractionSource::EdsField),
        ("LOCALITY_METADATA", 1, FractionSource::LocalityMetadata),
    ] {
        let field = |value: &str| format!("lrs_rate_config: {{fraction_source: {value}}}");
        let by_name = zone_aware(&field(name));
        assert_eq!(by_name.fraction_source(), source);
        assert_eq!(by_name, zone_aware(&field(&number.to_string())));
    }
}

#[test]
fn lb_policies_are_read_by_name_and_number() {
    for (name, number, policy) in [
        ("ROUND_ROBIN", 0, "round_robin"),
        ("LEAST_REQUEST", 1, "least_request"),
        ("RING_HASH", 2, "ring_hash"),
        ("RANDOM", 3, "random"),
        ("MAGLEV", 5, "maglev"),
    ] {
        let by_name = accepted(&format!("name: a\nlb_policy: {name}\n"));
        assert_eq!(by_name.endpoint_policy().name(), policy);
        assert_eq!(
            by_name,
            accepted(&format!("name: a\nlb_policy: {number}\n"))
        );
        let hash = by_name.endpoint_policy().is_hash();
        let flat = by_name.locality_policy() == &LocalityPolicy::Flat;
        assert_eq!(hash, flat, "{name}: only hashing is flat by default");
    }
    // 4 was removed from Envoy's enum, 6 means that the cluster provides its own balancer.
    for number in [4, 6, 8] {
        let text = format!("name: a\nlb_policy: {number}\n");
        assert_rejected(&text, "lb_policy", "unknown value");
    }
}

#[test]
fn other_enums_are_read_by_name_and_number() {
    for (name, number, function) in [
        ("XX_HASH", 0, HashFunction::XxHash),
        ("MURMUR_HASH_2", 1, HashFunction::MurmurHash2),
    ] {
        let text = |value: &str| {
            format!("{{name: a, lb_policy: 2, ring_hash_lb_config: {{hash_function: {value}}}}}")
        };
        let by_name = accepted(&text(name));
        let EndpointPolicy::RingHash(ring) = by_name.endpoint_policy() else {
            panic!("{by_name:?}");
        };
        assert_eq!(ring.hash_function(), function);
        assert_eq!(by_name, accepted(&text(&number.to_string())));
    }
    for (name, number, method) in [
        ("N_CHOICES", 0, SelectionMethod::NChoices),
        ("FULL_SCAN", 1, SelectionMethod::FullScan),
    ] {
        let text = |value: &str| {
            typed(
                "least_request.v3.LeastRequest",
                &format!("selection_method: {value}"),
            )
        };
        let by_name = accepted(&text(name));
        let EndpointPolicy::LeastRequest(policy) = by_name.endpoint_policy() else {
            panic!("{by_name:?}");
        };
        assert_eq!(policy.selection_method(), method);
        assert_eq!(by_name, accepted(&text(&number.to_string())));
    }
    for (name, number, sampling) in [
        ("RANDOM", 0, LocalitySampling::Random),
        ("LOW_DISCREPANCY", 1, LocalitySampling::LowDiscrepancy),
    ] {
        let text = |value: &str| format!("{{name: a, plimsoll: {{locality_sampling: {value}}}}}");
        assert_eq!(accepted(&text(name)).locality_sampling(), sampling);
        let by_number = accepted(&text(&number.to_string()));
        assert_eq!(by_number.locality_sampling(), sampling);
    }
}

/// Fields that do not affect load balancing, with content of every shape.
#[test]
fn fields_that_are_not_about_load_balancing_are_accepted() {
    let plain: ClusterConfig = accepted("name: a\n");
    for field in [
        "type: STRICT_DNS",
        "connect_timeout: 5s",
        "eds_cluster_config: {service_name: x, eds_config: {ads: {}}}",
        "edsClusterConfig: {serviceName: x}",
        "transport_socket: {name: tls, typed_config: {\"@type\": anything, x: [1, {y: 2}]}}",
        "typed_extension_protocol_options: {envoy.http: {\"@type\": anything}}",
        "circuit_breakers: {thresholds: [{max_connections: 5}]}",
        "metadata: {filter_metadata: {envoy.lb: {a: null}}}",
        "lrs_server: {self: {}}",
        "dns_lookup_family: V4_ONLY",
        "wait_for_warm_on_init: false",
    ] {
        let text = format!("name: a\n{field}\n");
        assert_eq!(accepted(&text), plain, "{field}");
    }
}

#[test]
fn load_report_metrics_are_read() {
    for field in ["lrs_report_endpoint_metrics", "lrsReportEndpointMetrics"] {
        let text = format!("name: a\n{field}: [named_metrics.foo, eps]\n");
        let config: ClusterConfig = accepted(&text);
        let names: Vec<_> = config
            .lrs_report_endpoint_metrics()
            .iter()
            .map(ToString::to_string)
            .collect();
        assert_eq!(names, ["named_metrics.foo", "eps"]);
    }
}

#[test]
fn unsupported_load_balancing_fields_are_rejected() {
    for field in [
        "load_assignment",
        "outlier_detection",
        "original_dst_lb_config",
    ] {
        let text = format!("name: a\n{field}: {{}}\n");
        assert_rejected(&text, field, "is not supported");
    }
    let text = "name: a\ncommon_lb_config: {locality_config_specifier: {}}\n";
    let path = "common_lb_config.locality_config_specifier";
    assert_rejected(text, path, "unknown field");
}
