//! `load_aware_locality` in files: its fields, its children, and errors with their paths.

use std::time::Duration;

use plimsoll_core::model::client_side_weighted_round_robin::OobReportingConfig;
use plimsoll_core::model::cluster::{ClusterConfig, LocalityPolicy, LocalitySampling};
use plimsoll_core::model::endpoint_policy::EndpointPolicy;
use plimsoll_core::model::load_aware_locality::{
    ColdStart, LoadAwareLocality, LoadAwareLocalityParts, RemoteMean, SpillController,
};
use plimsoll_core::model::orca::UtilizationPrecedence;

use super::{
    CSWRR, PICK_FIRST, TYPED_CONFIG, URL, accepted, assert_rejected, policy, typed, wrr_locality,
};

const MESSAGE: &str = "load_aware_locality.v3.LoadAwareLocality";
const ROUND_ROBIN: (&str, &str) = ("round_robin.v3.RoundRobin", "");

/// Cluster with these fields and children.
pub(super) fn load_aware(fields: &str, children: &[(&str, &str)]) -> String {
    let children: Vec<_> = children.iter().map(policy).collect();
    let children = children.join(", ");
    typed(
        MESSAGE,
        &format!("{fields} endpoint_picking_policy: {{policies: [{children}]}}"),
    )
}

fn settings(config: &ClusterConfig) -> &LoadAwareLocality {
    match config.locality_policy() {
        LocalityPolicy::LoadAwareLocality(settings) => settings,
        other => panic!("{other:?}"),
    }
}

/// Asserts an error at the child list, or at a path inside it.
fn assert_child_rejected(text: &str, path: &str, reason: &str) {
    let path = format!("{TYPED_CONFIG}.endpoint_picking_policy{path}");
    assert_rejected(text, &path, reason);
}

/// Example of Envoy's documentation, verbatim, in a cluster.
#[test]
fn the_minimal_example_of_envoy_is_read() {
    let text = r#"
name: orders
load_balancing_policy:
  policies:
  - typed_extension_config:
      name: envoy.load_balancing_policies.load_aware_locality
      typed_config:
        "@type": URL.load_aware_locality.v3.LoadAwareLocality
        endpoint_picking_policy:
          policies:
          - typed_extension_config:
              name: envoy.load_balancing_policies.round_robin
              typed_config:
                "@type": URL.round_robin.v3.RoundRobin
"#;
    let config = accepted(&text.replace("URL", URL));
    assert_eq!(config.endpoint_policy(), &EndpointPolicy::default());
    let defaults = LoadAwareLocality::try_new(LoadAwareLocalityParts::default()).unwrap();
    assert_eq!(settings(&config), &defaults);
    assert_eq!(
        config.zone_aware(),
        None,
        "the child does not choose by zone"
    );
}

#[test]
fn every_field_is_read() {
    let config = accepted(&load_aware(
        "weight_update_period: 0.5s, \
         metric_names_for_computing_utilization: [named_metrics.foo, cpu_utilization], \
         utilization_variance_threshold: 0.25, smoothing_time_constant: 2s, \
         remote_probe_fraction: 0.05, weight_expiration_period: 60s, \
         enable_oob_load_report: true, oob_reporting_period: 3s, \
         oob_reporting_config: {port_value: 9001, authority: orca.example}, \
         utilization_precedence: NAMED_METRICS_FIRST, cold_start: HOST_COUNT, \
         remote_mean: REPORTING_ONLY, spill_controller: CONVERGENT, local_probe_fraction: 0.1, \
         demand_feed_forward: true, demand_feed_forward_percent: 7,",
        &[ROUND_ROBIN],
    ));
    let expected = LoadAwareLocality::try_new(LoadAwareLocalityParts {
        weight_update_period: Some(Duration::from_millis(500)),
        metric_names_for_computing_utilization: vec![
            "named_metrics.foo".into(),
            "cpu_utilization".into(),
        ],
        utilization_variance_threshold: Some(0.25),
        smoothing_time_constant: Some(Duration::from_secs(2)),
        remote_probe_fraction: Some(0.05),
        weight_expiration_period: Some(Duration::from_secs(60)),
        enable_oob_load_report: true,
        oob_reporting_period: Some(Duration::from_secs(3)),
        oob_reporting_config: OobReportingConfig {
            port_value: 9001,
            authority: "orca.example".into(),
        },
        utilization_precedence: UtilizationPrecedence::NamedMetricsFirst,
        cold_start: ColdStart::HostCount,
        remote_mean: RemoteMean::ReportingOnly,
        spill_controller: SpillController::Convergent,
        local_probe_fraction: Some(0.1),
        demand_feed_forward: Some(true),
        demand_feed_forward_percent: Some(7),
        ..Default::default()
    });
    assert_eq!(settings(&config), &expected.unwrap());
}

#[test]
fn enums_are_read_by_name_and_number() {
    let parsed = |field: &str, value: &str| {
        let config = accepted(&load_aware(&format!("{field}: {value},"), &[ROUND_ROBIN]));
        settings(&config).clone()
    };
    for (field, names) in [
        (
            "utilization_precedence",
            ["APPLICATION_FIRST", "NAMED_METRICS_FIRST"],
        ),
        ("cold_start", ["LOCAL", "HOST_COUNT"]),
        ("remote_mean", ["ALL", "REPORTING_ONLY"]),
        ("spill_controller", ["HEADROOM", "CONVERGENT"]),
    ] {
        for (number, name) in names.into_iter().enumerate() {
            assert_eq!(parsed(field, name), parsed(field, &number.to_string()));
        }
        assert_ne!(parsed(field, names[0]), parsed(field, names[1]), "{field}");
        let text = load_aware(&format!("{field}: SOMETHING,"), &[ROUND_ROBIN]);
        assert_rejected(&text, &format!("{TYPED_CONFIG}.{field}"), names[1]);
    }
    let camel = typed(
        MESSAGE,
        &format!(
            "coldStart: HOST_COUNT, endpointPickingPolicy: {{policies: [{}]}}",
            policy(&ROUND_ROBIN)
        ),
    );
    assert_eq!(
        settings(&accepted(&camel)),
        &parsed("cold_start", "HOST_COUNT")
    );
}

#[test]
fn any_endpoint_policy_may_be_the_child() {
    for (message, name) in [
        ("round_robin.v3.RoundRobin", "round_robin"),
        ("least_request.v3.LeastRequest", "least_request"),
        ("random.v3.Random", "random"),
        ("ring_hash.v3.RingHash", "ring_hash"),
        ("maglev.v3.Maglev", "maglev"),
        (CSWRR, "client_side_weighted_round_robin"),
    ] {
        let config = accepted(&load_aware("", &[(message, "")]));
        assert_eq!(config.endpoint_policy().name(), name);
        assert!(config.load_aware_locality().is_some(), "{name}");
    }
    let config = accepted(&load_aware("", &[(CSWRR, ", blackout_period: 0s")]));
    let EndpointPolicy::ClientSideWeightedRoundRobin(child) = config.endpoint_policy() else {
        panic!("{config:?}");
    };
    assert_eq!(child.blackout_period(), Duration::ZERO);
}

#[test]
fn the_first_supported_child_wins() {
    let name = |children: &[(&str, &str)]| {
        let config = accepted(&load_aware("", children));
        config.endpoint_policy().name()
    };
    let random = ("random.v3.Random", "");
    assert_eq!(name(&[random, ROUND_ROBIN]), "random");
    let unknown = ("does_not_exist.v3.DoesNotExist", ", x: [1, {y: 2}]");
    assert_eq!(name(&[unknown, (PICK_FIRST, ", x: 1"), random]), "random");
    let broken = ("round_robin.v3.RoundRobin", ", locality_lb_config: {}");
    assert_eq!(name(&[random, broken, (MESSAGE, "")]), "random");
}

#[test]
fn a_supported_child_is_required() {
    let reason = "No supported endpoint picking policy.";
    let unknown = ("does_not_exist.v3.DoesNotExist", "");
    for children in [&[][..], &[unknown][..], &[unknown, (PICK_FIRST, "")][..]] {
        assert_child_rejected(&load_aware("", children), "", reason);
    }
    // An unset child policy is an empty list, as in Envoy.
    assert_child_rejected(&typed(MESSAGE, ""), "", reason);
    assert_child_rejected(&typed(MESSAGE, "endpoint_picking_policy: {}"), "", reason);
}

#[test]
fn a_child_must_not_choose_a_locality() {
    let child = format!(
        ", endpoint_picking_policy: {{policies: [{}]}}",
        policy(&ROUND_ROBIN)
    );
    let reason = "cannot be its own endpoint_picking_policy";
    for itself in [(MESSAGE, ""), (MESSAGE, child.as_str())] {
        let place = |index| format!(".policies[{index}].typed_extension_config.typed_config");
        assert_child_rejected(&load_aware("", &[itself]), &place(0), reason);
        let second = load_aware("", &[(PICK_FIRST, ""), itself, ROUND_ROBIN]);
        assert_child_rejected(&second, &place(1), reason);
    }
    let reason = "the child chooses a locality, but load_aware_locality has done that already";
    let place = ".policies[0].typed_extension_config.typed_config";
    let weighted = ", locality_lb_config: {locality_weighted_lb_config: {}}";
    for child in [
        ("round_robin.v3.RoundRobin", weighted),
        ("wrr_locality.v3.WrrLocality", child.as_str()),
    ] {
        assert_child_rejected(&load_aware("", &[child]), place, reason);
    }
    let text = wrr_locality(&[(MESSAGE, &child)]);
    assert_child_rejected(&text, place, "wrr_locality has done that already");
}

#[test]
fn errors_of_the_child_have_the_full_path() {
    let inside = ".policies[1].typed_extension_config";
    for (child, path, reason) in [
        (
            ("round_robin.v3.RoundRobin", ", wheight: 1"),
            "typed_config.wheight",
            "unknown field",
        ),
        (
            ("maglev.v3.Maglev", ", table_size: 4"),
            "typed_config.table_size",
            "not a prime",
        ),
        (
            (CSWRR, ", weight_update_period: 0s"),
            "typed_config.weight_update_period",
            "less than 1 ms",
        ),
    ] {
        let text = load_aware("", &[(PICK_FIRST, ""), child, ROUND_ROBIN]);
        assert_child_rejected(&text, &format!("{inside}.{path}"), reason);
    }
    let nameless = load_aware("", &[(PICK_FIRST, ""), ROUND_ROBIN]).replace(
        &policy(&ROUND_ROBIN),
        &policy(&ROUND_ROBIN).replace("name: x", "name: ''"),
    );
    assert_child_rejected(&nameless, &format!("{inside}.name"), "must be set");
    let text = typed(MESSAGE, "endpoint_picking_policy: {policies: round_robin}");
    assert_child_rejected(&text, ".policies", "a sequence");
}

/// Each row: fields, the invalid field, a word of the reason.
#[test]
fn invalid_values_are_rejected_at_their_field() {
    for (fields, path, reason) in [
        (
            "weight_update_period: 0.099s",
            "weight_update_period",
            "at least 100ms",
        ),
        (
            "weight_update_period: 1",
            "weight_update_period",
            "has no unit",
        ),
        (
            "smoothing_time_constant: 0s",
            "smoothing_time_constant",
            "greater than 0",
        ),
        (
            "smoothing_time_constant: 0.0009s",
            "smoothing_time_constant",
            "greater than 0",
        ),
        (
            "utilization_variance_threshold: 1.5",
            "utilization_variance_threshold",
            "1.5 is outside [0, 1]",
        ),
        (
            "utilization_variance_threshold: .nan",
            "utilization_variance_threshold",
            "NaN",
        ),
        (
            "remote_probe_fraction: 1",
            "remote_probe_fraction",
            "outside [0, 1)",
        ),
        (
            "remote_probe_fraction: -0.1",
            "remote_probe_fraction",
            "outside",
        ),
        (
            "weight_expiration_period: -1s",
            "weight_expiration_period",
            "not a duration",
        ),
        (
            "local_probe_fraction: 1.0",
            "local_probe_fraction",
            "outside",
        ),
        (
            "remote_probe_fraction: 0.6, local_probe_fraction: 0.6",
            "local_probe_fraction",
            "exceed the whole",
        ),
        (
            "demand_feed_forward: true",
            "demand_feed_forward",
            "needs spill_controller: CONVERGENT",
        ),
        (
            "enable_oob_load_report: 1",
            "enable_oob_load_report",
            "boolean",
        ),
        (
            "oob_reporting_period: -1s",
            "oob_reporting_period",
            "not a duration",
        ),
        (
            "metric_names_for_computing_utilization: foo",
            "metric_names_for_computing_utilization",
            "invalid type",
        ),
        ("probe: 0.1", "probe", "unknown field"),
    ] {
        let text = load_aware(&format!("{fields},"), &[ROUND_ROBIN]);
        assert_rejected(&text, &format!("{TYPED_CONFIG}.{path}"), reason);
    }
    // Fields of `load_aware_locality` are checked before its child policy.
    let text = load_aware("remote_probe_fraction: 2,", &[]);
    let path = format!("{TYPED_CONFIG}.remote_probe_fraction");
    assert_rejected(&text, &path, "outside");
}

#[test]
fn convergent_samples_evenly_by_default() {
    let sampling = |controller: &str, more: &str| {
        let fields = format!("spill_controller: {controller},");
        let text = load_aware(&fields, &[ROUND_ROBIN]);
        accepted(&format!("{text}\n{more}")).locality_sampling()
    };
    let random = "plimsoll: {locality_sampling: RANDOM}\n";
    assert_eq!(sampling("CONVERGENT", ""), LocalitySampling::LowDiscrepancy);
    assert_eq!(sampling("CONVERGENT", random), LocalitySampling::Random);
    assert_eq!(sampling("HEADROOM", ""), LocalitySampling::Random);
}
