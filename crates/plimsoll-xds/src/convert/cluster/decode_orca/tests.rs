//! Every field in both spellings, and the path of every error.

use std::time::Duration;

use plimsoll_core::model::orca::UtilizationPrecedence;
use prost::Message as _;

use super::*;
use crate::yaml::Document;
use plimsoll_schema::file::FileMessage;

fn parse(text: &str) -> Result<ClientSideWeightedRoundRobin, String> {
    let document = Document::parse(text).map_err(|error| error.to_string())?;
    let written: FileMessage<ClientSideWeightedRoundRobinMessage> =
        document.read().map_err(|error| error.to_string())?;
    let message = ClientSideWeightedRoundRobinMessage::decode(written.bytes().clone()).unwrap();
    match client_side_weighted_round_robin(message) {
        Ok((EndpointPolicy::ClientSideWeightedRoundRobin(policy), _)) => Ok(policy),
        Ok((other, _)) => panic!("{other:?}"),
        Err(error) => Err(document.locate(error).to_string()),
    }
}

#[track_caller]
fn assert_rejected(text: &str, expected: &str) {
    let error = parse(text).unwrap_err();
    assert!(error.starts_with(expected), "{text}: {error}");
}

const EVERYTHING: &str = "\
enable_oob_load_report: true
oob_reporting_period: 5s
blackout_period: 1s
weight_expiration_period: 0.5s
weight_update_period: 0.02s
error_utilization_penalty: 1.5
metric_names_for_computing_utilization: [named_metrics.foo, cpu_utilization]
slow_start_config: {slow_start_window: 60s, aggression: {default_value: 2}}
oob_reporting_config: {port_value: 9001, authority: orca.example.com}
utilization_precedence: NAMED_METRICS_FIRST
";

#[test]
fn an_empty_message_is_all_defaults() {
    assert_eq!(
        parse("{}").unwrap(),
        ClientSideWeightedRoundRobin::default()
    );
}

#[test]
fn every_field_is_decoded() {
    let settings = parse(EVERYTHING).unwrap();
    let oob = settings.oob_reporting().unwrap();
    assert_eq!(oob.period(), Duration::from_secs(5));
    assert_eq!(oob.port(), Some(9001));
    assert_eq!(
        oob.authority().map(|name| &**name),
        Some("orca.example.com")
    );
    assert_eq!(settings.blackout_period(), Duration::from_secs(1));
    assert_eq!(
        settings.weight_expiration_period(),
        Duration::from_millis(500)
    );
    assert_eq!(
        settings.weight_update_period(),
        Duration::from_millis(20),
        "no floor"
    );
    assert_eq!(settings.error_utilization_penalty(), 1.5);
    let names: Vec<_> = settings
        .metric_names()
        .iter()
        .map(ToString::to_string)
        .collect();
    assert_eq!(names, ["named_metrics.foo", "cpu_utilization"]);
    let slow_start = settings.slow_start().unwrap();
    assert_eq!(slow_start.window(), Duration::from_secs(60));
    assert_eq!(slow_start.aggression(), 2.0);
    let precedence = settings.utilization_precedence();
    assert_eq!(precedence, UtilizationPrecedence::NamedMetricsFirst);
}

#[test]
fn camel_case_is_equivalent() {
    let camel: String = EVERYTHING
        .lines()
        .map(|line| {
            let (key, rest) = line.split_once(':').unwrap();
            let mut words = key.split('_');
            let mut camel = words.next().unwrap().to_owned();
            for word in words {
                camel.push_str(&word[..1].to_uppercase());
                camel.push_str(&word[1..]);
            }
            format!("{camel}:{rest}\n")
        })
        .collect();
    assert!(camel.contains("enableOobLoadReport: true"), "{camel}");
    assert_eq!(parse(&camel), parse(EVERYTHING));
}

#[test]
fn numbers_may_be_quoted_and_enums_numeric() {
    let text = "error_utilization_penalty: '1.5'\nutilization_precedence: 1\n\
                oob_reporting_config: {port_value: '80'}\nenable_oob_load_report: true\n";
    let settings = parse(text).unwrap();
    assert_eq!(settings.error_utilization_penalty(), 1.5);
    let precedence = settings.utilization_precedence();
    assert_eq!(precedence, UtilizationPrecedence::NamedMetricsFirst);
    assert_eq!(settings.oob_reporting().unwrap().port(), Some(80));
    let zero = parse("utilization_precedence: 0").unwrap();
    assert_eq!(
        zero.utilization_precedence(),
        UtilizationPrecedence::ApplicationFirst
    );
}

#[test]
fn a_penalty_is_rounded_to_a_float_as_on_the_wire() {
    let settings = parse("error_utilization_penalty: 0.1").unwrap();
    assert_eq!(settings.error_utilization_penalty(), f64::from(0.1_f32));
    assert_rejected(
        "error_utilization_penalty: 1e39",
        "error_utilization_penalty: inf is not a finite number of at least 0 (at 1:28)",
    );
}

#[test]
fn a_reporting_period_of_zero_is_the_default() {
    let settings = parse("oob_reporting_period: 0s\nenable_oob_load_report: true").unwrap();
    let oob = settings.oob_reporting().unwrap();
    assert_eq!(oob.period(), Duration::from_secs(10));
}

#[test]
fn errors_have_path_and_location() {
    assert_rejected(
        "error_utilization_penalty: -1",
        "error_utilization_penalty: -1 is not a finite number of at least 0 (at 1:28)",
    );
    assert_rejected(
        "errorUtilizationPenalty: .nan",
        "errorUtilizationPenalty: NaN is not",
    );
    assert_rejected(
        "weight_update_period: 0s",
        "weight_update_period: less than 1 ms",
    );
    assert_rejected(
        "blackout_period: -1s",
        "blackout_period: \"-1s\" is not a duration",
    );
    assert_rejected("blackout_period: 10", "blackout_period: 10 has no unit");
    assert_rejected(
        "oob_reporting_config: {port_value: 70000}",
        "oob_reporting_config.port_value: 70000 is above 65535 (at 1:36)",
    );
    assert_rejected(
        "oob_reporting_config: {port_value: -1}",
        "oob_reporting_config.port_value: -1 is not a whole number",
    );
    assert_rejected(
        "oob_reporting_config: {authority: a b}",
        "oob_reporting_config.authority: \"a b\" has characters",
    );
    assert_rejected(
        "slow_start_config: {slow_start_window: 1s, aggression: {default_value: 0}}",
        "slow_start_config.aggression.default_value: 0 is not",
    );
    assert_rejected(
        "utilization_precedence: CPU_FIRST",
        "utilization_precedence: unknown value CPU_FIRST, expected one of APPLICATION_FIRST",
    );
}

#[test]
fn unknown_fields_and_wrong_types_are_rejected() {
    assert_rejected("blackout_periods: 1s", "blackout_periods: unknown field");
    assert_rejected(
        "oob_reporting_config: {port: 1}",
        "oob_reporting_config.port: unknown field",
    );
    assert_rejected(
        "metric_names_for_computing_utilization: cpu",
        "metric_names_for_computing",
    );
    assert_rejected(
        "metric_names_for_computing_utilization: [1]",
        "metric_names_for_computing",
    );
    assert_rejected(
        "enable_oob_load_report: 'yes'",
        "enable_oob_load_report: invalid type",
    );
    assert_rejected("slow_start_config:", "slow_start_config: has no value");
}
