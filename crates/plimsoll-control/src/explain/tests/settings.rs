//! Settings that receivers are sent differently than configured, for policies and classes that
//! lack a setting.

use super::*;
use crate::config::ControlConfig;

/// A policy by message and fields, as in the file.
pub(super) fn typed(message: &str, fields: &str) -> String {
    format!(
        "load_balancing_policy: {{policies: [{{typed_extension_config: {{name: x, typed_config: \
         {{'@type': type.googleapis.com/envoy.extensions.load_balancing_policies.\
         {message}{fields}}}}}}}]}}"
    )
}

fn zone_aware(fields: &str) -> String {
    let rules = format!("zone_aware_lb_config: {{min_cluster_size: 1{fields}}}");
    typed(
        "round_robin.v3.RoundRobin",
        &format!(", locality_lb_config: {{{rules}}}"),
    )
}

/// A policy of localities whose child selects endpoints by round robin.
fn parent(message: &str, fields: &str) -> String {
    let policy = typed("round_robin.v3.RoundRobin", "");
    let child = policy.trim_start_matches("load_balancing_policy: ");
    typed(
        message,
        &format!("{fields}, endpoint_picking_policy: {child}"),
    )
}

pub(super) fn load_aware(fields: &str) -> String {
    parent("load_aware_locality.v3.LoadAwareLocality", fields)
}

#[test]
fn the_source_of_fractions_is_listed_if_demand_is_used() {
    let metadata = ", lrs_rate_config: {fraction_source: LOCALITY_METADATA}";
    let basis = one("locality_basis", None, "LRS_REPORTED_RATE");
    let source = one("fraction_source", None, "LOCALITY_METADATA");
    for (fields, service, expected) in [
        (
            "",
            "delivery: LOCALITY_METADATA",
            vec![basis.clone(), source],
        ),
        (metadata, "", vec![basis]),
        (metadata, "mode: SHADOW", vec![]),
    ] {
        let changes = changed(&zone_aware(fields), service, NodeClass::Plimsoll);
        assert_eq!(changes, expected, "{fields} {service}");
    }
    let envoy = ["locality_basis", "upstream_locality_basis"]
        .map(|setting| one(setting, None, "HEALTHY_HOSTS_WEIGHT"));
    let changes = changed(&zone_aware(metadata), "", NodeClass::Envoy);
    assert_eq!(changes, envoy, "fractions are not sent");
}

#[test]
fn one_basis_of_demand_and_capacity_is_listed() {
    let by_weight = zone_aware(", upstream_locality_basis: HEALTHY_HOSTS_WEIGHT");
    let changes = changed(&by_weight, "mode: SHADOW", NodeClass::Envoy);
    let capacity = one(
        "upstream_locality_basis",
        Some("HEALTHY_HOSTS_WEIGHT"),
        "HEALTHY_HOSTS_NUM",
    );
    assert_eq!(changes, [capacity]);
    // An explicit `locality_basis` implies that of capacity.
    let both = zone_aware(", locality_basis: HEALTHY_HOSTS_WEIGHT");
    assert_eq!(changed(&both, "", NodeClass::Envoy), []);
}

#[test]
fn settings_of_load_aware_locality_are_listed() {
    let convergent = load_aware(", spill_controller: CONVERGENT");
    let controller = one("spill_controller", Some("CONVERGENT"), "HEADROOM");
    let feed_forward = one("demand_feed_forward", None, "false");
    for (class, service, expected) in [
        (NodeClass::Plimsoll, "", vec![]),
        (
            NodeClass::Plimsoll,
            "mode: SHADOW",
            vec![feed_forward.clone()],
        ),
        (NodeClass::EnvoyModule, "mode: SHADOW", vec![feed_forward]),
        (NodeClass::Envoy, "mode: SHADOW", vec![controller]),
    ] {
        let changes = changed(&convergent, service, class);
        assert_eq!(changes, expected, "{class:?} {service}");
    }
}

#[test]
fn the_precedence_of_utilization_is_listed() {
    let orca = typed(
        "client_side_weighted_round_robin.v3.ClientSideWeightedRoundRobin",
        ", utilization_precedence: NAMED_METRICS_FIRST",
    );
    assert_eq!(changed(&orca, "mode: OFF", NodeClass::Plimsoll), []);
    let precedence = one(
        "utilization_precedence",
        Some("NAMED_METRICS_FIRST"),
        "APPLICATION_FIRST",
    );
    assert_eq!(changed(&orca, "mode: OFF", NodeClass::Envoy), [precedence]);
}

#[test]
fn two_names_of_locality_weights_are_no_change() {
    let weighted = typed(
        "round_robin.v3.RoundRobin",
        ", locality_lb_config: {locality_weighted_lb_config: {}}",
    );
    let wrr = parent("wrr_locality.v3.WrrLocality", "");
    for class in CLASSES {
        for policy in [&weighted, &wrr] {
            assert_eq!(changed(policy, "", class), [], "{class:?} {policy}");
        }
    }
    let policy = one(
        "locality policy",
        Some("load_aware_locality"),
        "locality_weighted",
    );
    let grpc = changed(&load_aware(""), "mode: OFF", NodeClass::Grpc);
    assert_eq!(grpc, [policy]);
}

/// A service with locality weights `weights` (0 if not written) and a host in zones a and b.
fn weighted(weights: [u32; 2]) -> Arc<ControlConfig> {
    let zone = |((zone, host), weight): ((&str, u8), u32)| {
        let written = match weight {
            0 => String::new(),
            weight => format!("load_balancing_weight: {weight}, "),
        };
        format!("{{locality: {{zone: {zone}}}, {written}lb_endpoints: ['10.0.0.{host}:80']}}")
    };
    let zones = [("a", 1), ("b", 2)].into_iter().zip(weights).map(zone);
    let endpoints = zones.collect::<Vec<_>>().join(", ");
    parse(&format!(
        "{HEAD}services: [{{cluster: {{name: orders}}, endpoints: [{endpoints}]}}]"
    ))
}

#[test]
fn weights_of_the_file_are_listed_if_others_are_sent() {
    for (weights, listed) in [([0, 0], false), ([30, 10], true)] {
        let mut driver = Driver::with_config(weighted(weights));
        let [a, b, _] = fleet(NodeClass::Grpc);
        let keys = [&a, &b].map(|node| driver.open(node));
        let changes = explained(&driver, &keys[0]).changes.into_iter();
        let of_weights = changes.filter(|change| change.setting == "load_balancing_weight");
        let found: Vec<_> = of_weights.map(|one| (one.written, one.sent)).collect();
        // Both zones have half of the proxies and of the hosts: traffic stays.
        let expected = (Some("30/10".to_owned()), "10000/0".to_owned());
        let expected: Vec<_> = listed.then_some(expected).into_iter().collect();
        assert_eq!(found, expected);
    }
}

const CHECKS: &str = "health_checks: [{timeout: 1s, interval: 2s, unhealthy_threshold: 2, \
                      healthy_threshold: 1, tcp_health_check: {}}]";

#[test]
fn explanations_use_the_health_of_assignments_with_health_checks_too() {
    for class in CLASSES {
        let explanation = |cluster: &str| {
            let mut driver = Driver::with_config(config_of(cluster, ""));
            let [a, b, _] = fleet(class);
            let keys = [&a, &b].map(|node| driver.open(node));
            let mut explanation = explained(&driver, &keys[0]);
            explanation.changes.clear();
            explanation
        };
        assert_eq!(
            explanation(CHECKS),
            explanation("connect_timeout: 5s"),
            "{class:?}"
        );
    }
}

#[test]
fn settings_beside_load_balancing_that_a_class_lacks_are_listed() {
    let cluster = format!(
        "{CHECKS}, connect_timeout: 1s, outlier_detection: {{consecutive_5xx: 3, interval: 1s, \
         max_ejection_time_jitter: 2s}}, metadata: {{filter_metadata: {{a: {{b: c}}}}}}, \
         http2_protocol_options: {{}}"
    );
    let changed = |class| changed(&cluster, "mode: OFF", class);
    assert_eq!(changed(NodeClass::Envoy), []);
    assert_eq!(changed(NodeClass::EnvoyModule), []);
    let metadata = r#"{"filter_metadata":{"a":{"b":"c"}}}"#;
    let plimsoll = [
        one("metadata", Some(metadata), "nothing"),
        one(
            "outlier_detection.max_ejection_time_jitter",
            Some("2s"),
            "nothing",
        ),
    ];
    assert_eq!(changed(NodeClass::Plimsoll), plimsoll);
    let grpc = changed(NodeClass::Grpc);
    for name in [
        "connect_timeout",
        "health_checks",
        "outlier_detection.consecutive_5xx",
        "outlier_detection.max_ejection_time_jitter",
    ] {
        let change = grpc.iter().find(|(setting, ..)| setting == name);
        assert_eq!(
            change.map(|(.., sent)| &**sent),
            Some("nothing"),
            "{grpc:?}"
        );
    }
    let lost = [
        "metadata",
        "outlier_detection.interval",
        "typed_extension_protocol_options",
    ];
    let is_listed = |name: &&str| grpc.iter().any(|(setting, ..)| setting.starts_with(name));
    assert_eq!(
        lost.iter().copied().find(|name| is_listed(name)),
        None,
        "{grpc:?}"
    );
}

#[test]
fn tls_that_a_plimsoll_data_plane_refuses_is_listed() {
    let tls = "transport_socket: {name: envoy.transport_sockets.tls, typed_config: {'@type': \
               type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext, \
               common_tls_context: {validation_context_sds_secret_config: {name: ca}}}}";
    assert_eq!(changed(tls, "mode: OFF", NodeClass::Envoy), []);
    let refused = changed(tls, "mode: OFF", NodeClass::Plimsoll);
    let path = "transport_socket.typed_config.common_tls_context.\
                validation_context_sds_secret_config";
    let sent = "written, and refused by the receiver";
    assert_eq!(refused, [one(path, Some("as in the file"), sent)]);
    let grpc = changed(tls, "mode: OFF", NodeClass::Grpc);
    let socket = grpc
        .iter()
        .find(|(setting, ..)| setting == "transport_socket");
    assert_eq!(
        socket.map(|(.., sent)| &**sent),
        Some("nothing"),
        "{grpc:?}"
    );
}
