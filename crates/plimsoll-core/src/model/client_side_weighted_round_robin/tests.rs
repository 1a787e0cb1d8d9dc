//! Tests of defaults, ranges and field names in errors.

use super::*;

type Parts = ClientSideWeightedRoundRobinParts;

fn checked(parts: Parts) -> ClientSideWeightedRoundRobin {
    ClientSideWeightedRoundRobin::try_new(parts).unwrap()
}

fn refused(parts: Parts) -> String {
    let error = ClientSideWeightedRoundRobin::try_new(parts).unwrap_err();
    error.to_string()
}

const fn millis(millis: u64) -> Option<Duration> {
    Some(Duration::from_millis(millis))
}

#[test]
fn defaults_are_those_of_envoy() {
    let settings = checked(Parts::default());
    assert_eq!(settings, ClientSideWeightedRoundRobin::default());
    assert!(!settings.enable_oob_load_report());
    assert_eq!(settings.oob_reporting(), None);
    let periods = [
        settings.oob_reporting_period(),
        settings.blackout_period(),
        settings.weight_expiration_period(),
        settings.weight_update_period(),
    ];
    assert_eq!(periods, [10, 10, 180, 1].map(Duration::from_secs));
    assert_eq!(settings.error_utilization_penalty(), 0.0);
    assert!(settings.metric_names().is_empty());
    assert_eq!(
        settings.utilization_precedence(),
        UtilizationPrecedence::ApplicationFirst
    );
    assert_eq!(settings.slow_start(), None);
}

#[test]
fn everything_that_is_set_is_kept() {
    let slow_start = SlowStart::try_new(Duration::from_secs(60), None, None).unwrap();
    let settings = checked(Parts {
        enable_oob_load_report: true,
        oob_reporting_period: millis(5000),
        oob_reporting_config: OobReportingConfig {
            port_value: 9001,
            authority: "orca.example.com".into(),
        },
        blackout_period: millis(1),
        weight_expiration_period: millis(2),
        weight_update_period: millis(20),
        error_utilization_penalty: Some(1.5),
        metric_names_for_computing_utilization: vec!["named_metrics.foo".into()],
        utilization_precedence: UtilizationPrecedence::NamedMetricsFirst,
        slow_start: slow_start.clone(),
        ..Default::default()
    });
    let oob = settings.oob_reporting().unwrap();
    assert_eq!(
        (oob.period(), oob.port()),
        (Duration::from_secs(5), Some(9001))
    );
    assert_eq!(
        oob.authority().map(|name| &**name),
        Some("orca.example.com")
    );
    let periods = [
        settings.blackout_period(),
        settings.weight_expiration_period(),
        settings.weight_update_period(),
    ];
    assert_eq!(periods, [1, 2, 20].map(Duration::from_millis));
    assert_eq!(settings.error_utilization_penalty(), 1.5);
    assert_eq!(settings.metric_names().len(), 1);
    assert_eq!(
        settings.utilization_precedence(),
        UtilizationPrecedence::NamedMetricsFirst
    );
    assert_eq!(settings.slow_start(), slow_start.as_ref());
}

#[test]
fn zero_disables_blackout_and_expires_weights_at_once() {
    let settings = checked(Parts {
        blackout_period: Some(Duration::ZERO),
        weight_expiration_period: Some(Duration::ZERO),
        ..Parts::default()
    });
    assert_eq!(settings.blackout_period(), Duration::ZERO);
    assert_eq!(settings.weight_expiration_period(), Duration::ZERO);
}

#[test]
fn a_weight_update_period_below_1_ms_is_rejected() {
    let update = |period: Duration| Parts {
        weight_update_period: Some(period),
        ..Parts::default()
    };
    let shortest = checked(update(Duration::from_millis(1)));
    assert_eq!(shortest.weight_update_period(), Duration::from_millis(1));
    for period in [Duration::ZERO, Duration::from_micros(999)] {
        let error = refused(update(period));
        assert!(
            error.starts_with("weight_update_period: less than 1 ms"),
            "{error}"
        );
    }
}

#[test]
fn durations_are_truncated_to_milliseconds() {
    let long = Some(Duration::from_micros(1_999));
    let settings = checked(Parts {
        enable_oob_load_report: true,
        oob_reporting_period: long,
        blackout_period: long,
        weight_expiration_period: long,
        weight_update_period: long,
        ..Parts::default()
    });
    let periods = [
        settings.oob_reporting_period(),
        settings.blackout_period(),
        settings.weight_expiration_period(),
        settings.weight_update_period(),
    ];
    assert_eq!(periods, [Duration::from_millis(1); 4]);
    let endless = checked(Parts {
        weight_expiration_period: Some(Duration::MAX),
        ..Parts::default()
    });
    assert_eq!(
        endless.weight_expiration_period(),
        Duration::from_millis(u64::MAX)
    );
}

#[test]
fn a_penalty_is_finite_and_not_negative() {
    let penalty = |value: f64| Parts {
        error_utilization_penalty: Some(value),
        ..Parts::default()
    };
    for (bad, shown) in [(f64::NAN, "NaN"), (f64::INFINITY, "inf"), (-0.5, "-0.5")] {
        let expected =
            format!("error_utilization_penalty: {shown} is not a finite number of at least 0");
        assert_eq!(refused(penalty(bad)), expected);
    }
    assert_eq!(checked(penalty(-0.0)).error_utilization_penalty(), 0.0);
    assert_eq!(checked(penalty(0.1)).error_utilization_penalty(), 0.1);
}

#[test]
fn metric_names_are_resolved_and_unknown_ones_kept() {
    let names = ["named_metrics.foo", "rps", "cpu_utilization", ""];
    let settings = checked(Parts {
        metric_names_for_computing_utilization: names.map(str::to_owned).to_vec(),
        ..Parts::default()
    });
    let resolved = settings.metric_names();
    assert_eq!(resolved, names.map(MetricName::new));
    let known: Vec<_> = resolved.iter().map(MetricName::is_known).collect();
    assert_eq!(known, [true, false, true, false]);
}

#[test]
fn a_non_positive_period_is_the_default() {
    for period in [None, Some(Duration::ZERO), Some(Duration::from_nanos(1))] {
        let reporting = OobReporting::try_new(period, OobReportingConfig::default()).unwrap();
        assert_eq!(reporting, OobReporting::default(), "{period:?}");
        assert_eq!(reporting.period(), Duration::from_secs(10));
    }
}

#[test]
fn port_and_authority_are_checked_even_if_unused() {
    let config = |port_value: u32, authority: &str| Parts {
        oob_reporting_config: OobReportingConfig {
            port_value,
            authority: authority.into(),
        },
        ..Parts::default()
    };
    assert_eq!(
        refused(config(65_536, "")),
        "oob_reporting_config.port_value: 65536 is above 65535"
    );
    for authority in ["two words", "line\nbreak", "z\u{fc}rich"] {
        let error = refused(config(0, authority));
        assert!(
            error.starts_with("oob_reporting_config.authority: "),
            "{error}"
        );
    }
    let unused = checked(config(65_535, "orca"));
    assert_eq!(unused.oob_reporting(), None, "not enabled");
}

#[test]
fn merge_takes_the_shorter_period() {
    let reporting = |period, port_value, authority: &str| {
        let authority = authority.into();
        let config = OobReportingConfig {
            port_value,
            authority,
        };
        OobReporting::try_new(millis(period), config).unwrap()
    };
    let (parent, child) = (reporting(5000, 0, "parent"), reporting(1000, 9001, "child"));
    assert_eq!(parent.merge(&child), reporting(1000, 9001, "parent"));
    assert_eq!(child.merge(&parent), reporting(1000, 9001, "child"));
    assert_eq!(parent.merge(&parent), parent);
}
