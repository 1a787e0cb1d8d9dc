//! Defaults and validation of health checks.

use super::*;

fn parts(change: impl FnOnce(&mut HealthCheckParts)) -> HealthCheckParts {
    let mut parts = HealthCheckParts {
        timeout: Some(Duration::from_secs(1)),
        interval: Some(Duration::from_secs(5)),
        initial_jitter: None,
        interval_jitter: None,
        interval_jitter_percent: 0,
        unhealthy_threshold: Some(2),
        healthy_threshold: Some(3),
        alt_port: None,
        reuse_connection: None,
        no_traffic_interval: None,
        no_traffic_healthy_interval: None,
        unhealthy_interval: None,
        unhealthy_edge_interval: None,
        healthy_edge_interval: None,
        kind: HealthCheckKind::Tcp {
            send: None,
            receive: Vec::new(),
        },
    };
    change(&mut parts);
    parts
}

#[test]
fn intervals_default_to_each_other() {
    let seconds = Duration::from_secs;
    let check = HealthCheck::try_new(parts(|_| {})).unwrap();
    assert!(check.reuse_connection);
    assert_eq!(check.no_traffic_interval, seconds(60));
    assert_eq!(check.no_traffic_healthy_interval, seconds(60));
    assert_eq!(check.unhealthy_edge_interval, seconds(5));
    assert_eq!(check.healthy_edge_interval, seconds(5));
    let check = HealthCheck::try_new(parts(|parts| {
        parts.unhealthy_interval = Some(seconds(7));
        parts.no_traffic_interval = Some(seconds(8));
        parts.alt_port = Some(81);
    }))
    .unwrap();
    assert_eq!(check.unhealthy_edge_interval, seconds(7));
    assert_eq!(check.no_traffic_healthy_interval, seconds(8));
    assert_eq!(check.healthy_edge_interval, seconds(5));
    assert_eq!(check.alt_port, Some(81));
}

#[test]
fn errors_name_the_field() {
    let zero = Some(Duration::ZERO);
    let http = || HealthCheckKind::Http(HttpHealthCheck::default());
    let cases = [
        ("timeout", parts(|p| p.timeout = None)),
        ("interval", parts(|p| p.interval = zero)),
        (
            "unhealthy_threshold",
            parts(|p| p.unhealthy_threshold = None),
        ),
        (
            "healthy_threshold",
            parts(|p| p.healthy_threshold = Some(0)),
        ),
        (
            "no_traffic_interval",
            parts(|p| p.no_traffic_interval = zero),
        ),
        ("alt_port", parts(|p| p.alt_port = Some(65_536))),
        ("http_health_check.path", parts(|p| p.kind = http())),
    ];
    for (path, parts) in cases {
        assert_eq!(HealthCheck::try_new(parts).unwrap_err().path(), path);
    }
}

#[test]
fn status_ranges_are_half_open() {
    let http = HttpHealthCheck {
        expected_statuses: vec![StatusRange::try_new(200, 300).unwrap()],
        retriable_statuses: vec![StatusRange::try_new(503, 504).unwrap()],
        ..Default::default()
    };
    assert!(http.is_expected(299) && !http.is_expected(300));
    assert!(http.is_retriable(503) && !http.is_retriable(504));
    let plain = HttpHealthCheck::default();
    assert!(plain.is_expected(200) && !plain.is_expected(204));
    for (start, end) in [(99, 200), (200, 200), (300, 200), (200, 601), (-1, 200)] {
        assert!(StatusRange::try_new(start, end).is_err(), "{start}..{end}");
    }
    assert!(StatusRange::try_new(100, 600).is_ok());
}

#[test]
fn payload_text_is_hex() {
    assert_eq!(payload_text("50494e470A").unwrap(), "PING\n");
    for bad in ["", "5", "5g", "\u{e4}a"] {
        assert!(payload_text(bad).is_err(), "{bad}");
    }
}
