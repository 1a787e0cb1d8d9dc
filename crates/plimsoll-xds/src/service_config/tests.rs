//! Parsing of service configs, and the location of errors.

use plimsoll_core::model::orca::UtilizationPrecedence;

use super::*;

const ON: GrpcFeatures = GrpcFeatures {
    wrr_custom_metrics: true,
    _non_exhaustive: (),
};
const OFF: GrpcFeatures = GrpcFeatures {
    wrr_custom_metrics: false,
    _non_exhaustive: (),
};

fn error_of(text: &str) -> String {
    let error = parse_service_config(text, ON).unwrap_err();
    error.to_string()
}

/// Settings of one `weighted_round_robin` entry.
#[track_caller]
fn weighted(config: &str, features: GrpcFeatures) -> ClientSideWeightedRoundRobin {
    let text = format!(r#"{{"loadBalancingConfig": [{{"weighted_round_robin": {config}}}]}}"#);
    match parse_service_config(&text, features) {
        Ok(ServicePolicy::WeightedRoundRobin(settings)) => settings,
        other => panic!("{text}: {other:?}"),
    }
}

#[track_caller]
fn assert_rejected(config: &str, expected: &str) {
    let text = format!(r#"{{"loadBalancingConfig": [{{"weighted_round_robin": {config}}}]}}"#);
    let error = error_of(&text);
    let expected = format!("loadBalancingConfig[0].weighted_round_robin.{expected}");
    assert!(
        error.starts_with(&expected),
        "{error}\ninstead of {expected}"
    );
}

#[test]
fn defaults_are_those_of_a58() {
    let settings = weighted("{}", OFF);
    assert!(!settings.enable_oob_load_report());
    let periods = [
        settings.oob_reporting_period(),
        settings.blackout_period(),
        settings.weight_expiration_period(),
        settings.weight_update_period(),
    ];
    assert_eq!(periods, [10, 10, 180, 1].map(Duration::from_secs));
    assert_eq!(settings.error_utilization_penalty(), 1.0, "not Envoy's 0.0");
    assert!(settings.metric_names().is_empty());
    let precedence = settings.utilization_precedence();
    assert_eq!(precedence, UtilizationPrecedence::ApplicationFirst);
}

#[test]
fn every_field_is_parsed() {
    let config = r#"{
        "enableOobLoadReport": true,
        "oobReportingPeriod": "5s",
        "blackoutPeriod": "0s",
        "weightExpirationPeriod": "60.5s",
        "weightUpdatePeriod": "0.25s",
        "errorUtilizationPenalty": 0.5,
        "metricNamesForComputingUtilization": ["named_metrics.queue", "mem_utilization"]
    }"#;
    let settings = weighted(config, ON);
    let oob = settings.oob_reporting().unwrap();
    assert_eq!((oob.period(), oob.port()), (Duration::from_secs(5), None));
    assert_eq!(settings.blackout_period(), Duration::ZERO);
    assert_eq!(
        settings.weight_expiration_period(),
        Duration::from_millis(60_500)
    );
    assert_eq!(settings.weight_update_period(), Duration::from_millis(250));
    assert_eq!(settings.error_utilization_penalty(), 0.5);
    let names: Vec<_> = settings
        .metric_names()
        .iter()
        .map(ToString::to_string)
        .collect();
    assert_eq!(names, ["named_metrics.queue", "mem_utilization"]);
}

#[test]
fn custom_metrics_need_their_feature() {
    let config = r#"{"metricNamesForComputingUtilization": ["named_metrics.queue"]}"#;
    assert_eq!(weighted(config, ON).metric_names().len(), 1);
    assert_eq!(weighted(config, OFF), weighted("{}", OFF));
    assert_eq!(GrpcFeatures::default(), OFF);
}

#[test]
fn a_short_update_period_is_raised_to_100_ms() {
    for (written, millis) in [
        ("0s", 100),
        ("0.02s", 100),
        ("0.1s", 100),
        ("0.101s", 101),
        ("3s", 3000),
    ] {
        let settings = weighted(&format!(r#"{{"weightUpdatePeriod": "{written}"}}"#), OFF);
        let expected = Duration::from_millis(millis);
        assert_eq!(settings.weight_update_period(), expected, "{written}");
    }
}

#[test]
fn a_penalty_that_is_set_to_zero_stays_zero() {
    let settings = weighted(r#"{"errorUtilizationPenalty": 0}"#, OFF);
    assert_eq!(settings.error_utilization_penalty(), 0.0);
    let settings = weighted(r#"{"errorUtilizationPenalty": 0.1}"#, OFF);
    assert_eq!(settings.error_utilization_penalty(), f64::from(0.1_f32));
}

#[test]
fn both_spellings_of_the_policy_are_read() {
    let text = r#"{"loadBalancingConfig": [{"weightedRoundRobin": {"blackoutPeriod": "1s"}}]}"#;
    let policy = parse_service_config(text, OFF).unwrap();
    let expected = weighted(r#"{"blackoutPeriod": "1s"}"#, OFF);
    assert_eq!(policy, ServicePolicy::WeightedRoundRobin(expected));
}

#[test]
fn the_first_supported_policy_wins() {
    let list = |entries: &str| {
        parse_service_config(&format!(r#"{{"loadBalancingConfig": [{entries}]}}"#), OFF)
    };
    let weighted = ServicePolicy::WeightedRoundRobin(weighted("{}", OFF));
    for (entries, expected) in [
        (r#"{"round_robin": {}}"#, ServicePolicy::RoundRobin),
        (
            r#"{"weighted_round_robin": {}}, {"round_robin": {}}"#,
            weighted.clone(),
        ),
        (
            r#"{"round_robin": {}}, {"weighted_round_robin": {}}"#,
            ServicePolicy::RoundRobin,
        ),
        (
            r#"{"future_experimental": {"childPolicy": [1]}}, {"weighted_round_robin": {}}"#,
            weighted,
        ),
    ] {
        assert_eq!(list(entries), Ok(expected), "{entries}");
    }
    let behind = r#"{"round_robin": {}}, {"weighted_round_robin": {"blackoutPeriod": 1}}"#;
    assert!(list(behind).is_err(), "checked although it lost");
}

#[test]
fn a_config_without_supported_policy_is_rejected() {
    assert_eq!(
        error_of(r#"{"loadBalancingConfig": [{"grpclb": {}}, {"pick_first": {}}]}"#),
        "loadBalancingConfig: none of grpclb, pick_first is supported; supported are \
         weighted_round_robin, round_robin (at 1:25)"
    );
    let empty = error_of(r#"{"loadBalancingConfig": []}"#);
    assert!(
        empty.starts_with("loadBalancingConfig: must have at least one"),
        "{empty}"
    );
    let missing = error_of(r#"{"loadBalancingPolicy": "round_robin"}"#);
    assert!(
        missing.starts_with("load_balancing_config: must be set"),
        "{missing}"
    );
}

#[test]
fn an_entry_names_exactly_one_policy() {
    for entry in ["{}", r#"{"round_robin": {}, "weighted_round_robin": {}}"#] {
        let error = error_of(&format!(r#"{{"loadBalancingConfig": [{entry}]}}"#));
        assert!(error.contains("must name exactly one policy"), "{error}");
        assert!(error.starts_with("loadBalancingConfig[0]"), "{error}");
    }
    let error = error_of(r#"{"loadBalancingConfig": ["round_robin"]}"#);
    assert!(error.contains("a map of one policy's name"), "{error}");
    let error = error_of(r#"{"loadBalancingConfig": [{"round_robin": {"x": 1}}]}"#);
    assert!(
        error.starts_with("loadBalancingConfig[0].round_robin.x: unknown"),
        "{error}"
    );
}

#[test]
fn other_fields_of_a_service_config_are_accepted() {
    let text = r#"{
        "loadBalancingPolicy": "round_robin",
        "loadBalancingConfig": [{"round_robin": {}}],
        "methodConfig": [{"name": [{}], "timeout": "1s", "retryPolicy": {"maxAttempts": 3}}],
        "retryThrottling": {"maxTokens": 10, "tokenRatio": 0.1},
        "healthCheckConfig": {"serviceName": "a"},
        "connectionScaling": {"maxConnectionsPerSubchannel": 2}
    }"#;
    assert_eq!(
        parse_service_config(text, OFF),
        Ok(ServicePolicy::RoundRobin)
    );
    let error = error_of(r#"{"loadBalancingConfig": [], "methodConfigs": []}"#);
    assert!(error.starts_with("methodConfigs: unknown field"), "{error}");
}

#[test]
fn errors_have_path_and_location() {
    assert_rejected(
        r#"{"errorUtilizationPenalty": -1}"#,
        "errorUtilizationPenalty: -1 is not a finite number of at least 0 (at 1:79)",
    );
    assert_rejected(
        r#"{"errorUtilizationPenalty": "NaN"}"#,
        "errorUtilizationPenalty: NaN is not",
    );
    assert_rejected(
        r#"{"blackoutPeriod": "10"}"#,
        "blackoutPeriod: \"10\" has no unit",
    );
    assert_rejected(
        r#"{"blackoutPeriod": "-1s"}"#,
        "blackoutPeriod: \"-1s\" is not a duration",
    );
    assert_rejected(
        r#"{"blackoutPeriod": 10}"#,
        "blackoutPeriod: 10 has no unit",
    );
    assert_rejected(
        r#"{"enableOobLoadReport": "true"}"#,
        "enableOobLoadReport: invalid type",
    );
    assert_rejected(
        r#"{"blackoutPeriods": "1s"}"#,
        "blackoutPeriods: unknown field",
    );
    assert_rejected(
        r#"{"metricNamesForComputingUtilization": "cpu_utilization"}"#,
        "metricNamesForComputingUtilization: invalid type",
    );
    assert_rejected(
        r#"{"slowStartConfig": {}}"#,
        "slowStartConfig: unknown field",
    );
}

#[test]
fn invalid_json_is_rejected_with_its_location() {
    assert!(error_of("{\"loadBalancingConfig\": [").contains("(at "));
    assert!(error_of("[]").contains("expected a map of fields"));
    assert!(error_of("").starts_with("the file is empty"));
    let twice = r#"{"loadBalancingConfig": [], "loadBalancingConfig": []}"#;
    assert!(error_of(twice).starts_with("loadBalancingConfig: duplicate key"));
}

#[test]
fn tabs_and_any_line_ends_are_whitespace() {
    let text =
        "\r\n{\r\n\t\"loadBalancingConfig\":\t[\r\n\t\t{\"round_robin\":\t{}}\r\n\t]\r\n}\r\n";
    assert_eq!(
        parse_service_config(text, OFF),
        Ok(ServicePolicy::RoundRobin)
    );
}
