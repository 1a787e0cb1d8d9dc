//! JSON in, checked settings out; and the place of everything that is refused.

use plimsoll_core::model::orca::UtilizationPrecedence;

use super::*;

const ON: GrpcFeatures = GrpcFeatures {
    wrr_custom_metrics: true,
};
const OFF: GrpcFeatures = GrpcFeatures {
    wrr_custom_metrics: false,
};

fn refusal(text: &str) -> String {
    let error = parse_service_config(text, ON).unwrap_err();
    error.to_string()
}

/// The settings of one `weighted_round_robin` entry.
#[track_caller]
fn weighted(config: &str, features: GrpcFeatures) -> ClientSideWeightedRoundRobin {
    let text = format!(r#"{{"loadBalancingConfig": [{{"weighted_round_robin": {config}}}]}}"#);
    match parse_service_config(&text, features) {
        Ok(ServicePolicy::WeightedRoundRobin(settings)) => settings,
        other => panic!("{text}: {other:?}"),
    }
}

#[track_caller]
fn refused(config: &str, expected: &str) {
    let text = format!(r#"{{"loadBalancingConfig": [{{"weighted_round_robin": {config}}}]}}"#);
    let error = refusal(&text);
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
fn every_field_arrives() {
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
fn custom_metrics_wait_for_their_switch() {
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
fn a_config_without_a_policy_we_have_is_refused() {
    assert_eq!(
        refusal(r#"{"loadBalancingConfig": [{"grpclb": {}}, {"pick_first": {}}]}"#),
        "loadBalancingConfig: none of grpclb, pick_first is supported; supported are \
         weighted_round_robin, round_robin (at 1:25)"
    );
    let empty = refusal(r#"{"loadBalancingConfig": []}"#);
    assert!(
        empty.starts_with("loadBalancingConfig: must have at least one"),
        "{empty}"
    );
    let missing = refusal(r#"{"loadBalancingPolicy": "round_robin"}"#);
    assert!(
        missing.starts_with("load_balancing_config: must be set"),
        "{missing}"
    );
}

#[test]
fn an_entry_names_exactly_one_policy() {
    for entry in ["{}", r#"{"round_robin": {}, "weighted_round_robin": {}}"#] {
        let error = refusal(&format!(r#"{{"loadBalancingConfig": [{entry}]}}"#));
        assert!(error.contains("must name exactly one policy"), "{error}");
        assert!(error.starts_with("loadBalancingConfig[0]"), "{error}");
    }
    let error = refusal(r#"{"loadBalancingConfig": ["round_robin"]}"#);
    assert!(error.contains("a map of one policy's name"), "{error}");
    let error = refusal(r#"{"loadBalancingConfig": [{"round_robin": {"x": 1}}]}"#);
    assert!(
        error.starts_with("loadBalancingConfig[0].round_robin.x: unknown"),
        "{error}"
    );
}

#[test]
fn the_rest_of_a_service_config_is_let_through() {
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
    let error = refusal(r#"{"loadBalancingConfig": [], "methodConfigs": []}"#);
    assert!(error.starts_with("methodConfigs: unknown field"), "{error}");
}

#[test]
fn faults_are_named_and_located() {
    refused(
        r#"{"errorUtilizationPenalty": -1}"#,
        "errorUtilizationPenalty: -1 is not a finite number of at least 0 (at 1:79)",
    );
    refused(
        r#"{"errorUtilizationPenalty": "NaN"}"#,
        "errorUtilizationPenalty: NaN is not",
    );
    refused(
        r#"{"blackoutPeriod": "10"}"#,
        "blackoutPeriod: \"10\" is not a duration",
    );
    refused(
        r#"{"blackoutPeriod": "-1s"}"#,
        "blackoutPeriod: \"-1s\" is not a duration",
    );
    refused(r#"{"blackoutPeriod": 10}"#, "blackoutPeriod: invalid type");
    refused(
        r#"{"enableOobLoadReport": "true"}"#,
        "enableOobLoadReport: invalid type",
    );
    refused(
        r#"{"blackoutPeriods": "1s"}"#,
        "blackoutPeriods: unknown field",
    );
    refused(
        r#"{"metricNamesForComputingUtilization": "cpu_utilization"}"#,
        "metricNamesForComputingUtilization: invalid type",
    );
    refused(
        r#"{"slowStartConfig": {}}"#,
        "slowStartConfig: unknown field",
    );
}

#[test]
fn what_is_not_json_is_refused_with_its_place() {
    assert!(refusal("{\"loadBalancingConfig\": [").contains("(at "));
    assert!(refusal("[]").contains("expected a map of fields"));
    assert!(refusal("").starts_with("has no value"));
    let twice = r#"{"loadBalancingConfig": [], "loadBalancingConfig": []}"#;
    assert!(refusal(twice).starts_with("loadBalancingConfig: duplicate key"));
}

#[test]
fn tabs_and_line_ends_of_any_kind_are_white_space() {
    let text =
        "\r\n{\r\n\t\"loadBalancingConfig\":\t[\r\n\t\t{\"round_robin\":\t{}}\r\n\t]\r\n}\r\n";
    assert_eq!(
        parse_service_config(text, OFF),
        Ok(ServicePolicy::RoundRobin)
    );
}
