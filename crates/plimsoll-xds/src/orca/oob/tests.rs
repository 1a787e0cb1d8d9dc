//! Exchanges with a scripted backend and scripted draws, without sockets and clock.

use std::time::Duration;

use plimsoll_core::model::client_side_weighted_round_robin::OobReportingConfig;
use plimsoll_core::rng::{ScriptedRng, Xoshiro256};

use super::*;
use crate::orca::encode_message;

mod failures;
mod membership;
mod sequences;

fn address(last: u8) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, last], 80))
}

fn host(last: u8) -> OobHost {
    OobHost {
        address: address(last),
        hostname: "".into(),
    }
}

const fn at(millis: u64) -> Instant {
    Instant::from_millis(millis)
}

fn reporting(period_millis: u64, port_value: u32, authority: &str) -> OobReporting {
    let config = OobReportingConfig {
        port_value,
        authority: authority.into(),
    };
    OobReporting::try_new(Some(Duration::from_millis(period_millis)), config).unwrap()
}

fn report() -> OrcaLoadReport {
    OrcaLoadReport {
        application_utilization: 0.5,
        rps_fractional: 1000.0,
        ..OrcaLoadReport::default()
    }
}

/// Report as a gRPC frame.
fn frame(report: &OrcaLoadReport) -> Vec<u8> {
    crate::grpc_frame::frame(&encode_message(report)).to_vec()
}

/// Manager under test, the time, and its actions.
struct Bench {
    manager: OobManager<ScriptedRng>,
    now: u64,
}

impl Bench {
    /// One host, period 10 s; `draws` are for first attempts and backoff, then 0.
    fn new(draws: &[u64]) -> Self {
        let manager = OobManager::new(OobReporting::default(), ScriptedRng::new(draws));
        let mut bench = Self { manager, now: 0 };
        bench.hosts(&[1]);
        bench
    }

    /// One host with an open stream.
    fn open(draws: &[u64]) -> (Self, ConnectionId) {
        let mut bench = Self::new(draws);
        let stream = bench.next_open();
        (bench, stream.connection)
    }

    /// One host that sent response headers.
    fn answered(draws: &[u64]) -> (Self, ConnectionId) {
        let (mut bench, connection) = Self::open(draws);
        bench.event(connection, OobEvent::Headers(OK));
        (bench, connection)
    }

    fn hosts(&mut self, hosts: &[u8]) {
        let hosts = hosts.iter().map(|&last| host(last));
        self.manager.handle_hosts(hosts, at(self.now));
    }

    fn event(&mut self, connection: ConnectionId, event: OobEvent<'_>) {
        self.manager.handle_event(connection, event, at(self.now));
    }

    fn data(&mut self, connection: ConnectionId, bytes: &[u8]) {
        let end_stream = false;
        self.event(connection, OobEvent::Data { bytes, end_stream });
    }

    /// Advances to the next deadline and returns it.
    fn wake(&mut self) -> u64 {
        let deadline = self.manager.poll_timeout().expect("a deadline");
        self.now = deadline.as_nanos() / 1_000_000;
        self.manager.handle_timeout(deadline);
        self.now
    }

    /// Advances until a stream is to be opened.
    #[track_caller]
    fn next_open(&mut self) -> OobStream {
        self.wake();
        match self.actions().as_slice() {
            [OobAction::Open(stream)] => stream.clone(),
            other => panic!("one stream to open: {other:?}"),
        }
    }

    fn actions(&mut self) -> Vec<OobAction> {
        std::iter::from_fn(|| self.manager.poll_action()).collect()
    }

    fn reports(&mut self) -> Vec<(SocketAddr, OrcaLoadReport)> {
        std::iter::from_fn(|| self.manager.poll_report()).collect()
    }

    /// Asserts that one connection is closed for `reason` and nothing else happens.
    #[track_caller]
    fn closed(&mut self, connection: ConnectionId, reason: CloseReason) {
        let host = address(1);
        let close = OobAction::Close {
            connection,
            host,
            reason,
        };
        assert_eq!(self.actions(), [close]);
    }
}

const OK: ResponseHeaders<'_> = ResponseHeaders {
    status: 200,
    content_type: Some("application/grpc"),
    grpc_status: None,
    end_stream: false,
};

#[test]
fn the_first_attempt_is_spread_over_the_period() {
    let mut bench = Bench::new(&[23_456]);
    assert_eq!(bench.actions(), []);
    assert_eq!(
        bench.manager.poll_timeout(),
        Some(at(3456)),
        "23,456 modulo 10,000"
    );
    bench.manager.handle_timeout(at(3455));
    assert_eq!(bench.actions(), [], "too early is harmless");
    let stream = bench.next_open();
    assert_eq!(bench.now, 3456);
    assert_eq!((stream.host, stream.dial), (address(1), address(1)));
    assert_eq!(&*stream.authority, "10.0.0.1:80");
    assert_eq!(
        *stream.request,
        [0, 0, 0, 0, 4, 0x0a, 2, 0x08, 10],
        "every 10 s"
    );
    assert_eq!(bench.manager.stats().active_sessions, 1);
}

#[test]
fn reports_are_handed_out_with_their_host() {
    let (mut bench, connection) = Bench::answered(&[]);
    let other = OrcaLoadReport {
        cpu_utilization: 0.25,
        ..OrcaLoadReport::default()
    };
    let bytes = [frame(&report()), frame(&other)].concat();
    for byte in &bytes {
        bench.data(connection, std::slice::from_ref(byte));
    }
    let expected = [(address(1), report()), (address(1), other)];
    assert_eq!(bench.reports(), expected);
    assert_eq!(bench.actions(), []);
    let stats = bench.manager.stats();
    assert_eq!((stats.reports_received, stats.report_errors), (2, 0));
    bench.manager.handle_undelivered();
    assert_eq!(bench.manager.stats().report_errors, 1);
}

#[test]
fn dial_address_and_authority_can_be_set() {
    let named = OobHost {
        address: "[2001:db8::1]:80".parse().unwrap(),
        hostname: "backend.example".into(),
    };
    let nameless = OobHost {
        hostname: "".into(),
        ..named.clone()
    };
    for (port, authority, host, expected) in [
        (0, "", &named, ("[2001:db8::1]:80", "backend.example")),
        (0, "", &nameless, ("[2001:db8::1]:80", "[2001:db8::1]:80")),
        (9001, "", &named, ("[2001:db8::1]:9001", "backend.example")),
        (
            9001,
            "",
            &nameless,
            ("[2001:db8::1]:9001", "[2001:db8::1]:9001"),
        ),
        (9001, "orca", &named, ("[2001:db8::1]:9001", "orca")),
    ] {
        let settings = reporting(10_000, port, authority);
        let mut manager = OobManager::new(settings, ScriptedRng::default());
        manager.handle_hosts([host.clone()], at(0));
        manager.handle_timeout(at(0));
        let Some(OobAction::Open(stream)) = manager.poll_action() else {
            panic!("a stream to open")
        };
        assert_eq!((&*stream.dial.to_string(), &*stream.authority), expected);
        assert_eq!(
            stream.host, host.address,
            "reports belong to the host itself"
        );
    }
}

#[test]
fn the_watchdog_closes_after_three_periods_without_a_report() {
    let (mut bench, connection) = Bench::answered(&[0, 500]);
    assert_eq!(bench.manager.poll_timeout(), Some(at(30_000)));
    bench.now = 29_999;
    bench.manager.handle_timeout(at(bench.now));
    assert_eq!(bench.actions(), []);
    bench.data(connection, &frame(&report()));
    assert_eq!(
        bench.manager.poll_timeout(),
        Some(at(59_999)),
        "armed again"
    );
    bench.now = 40_000;
    bench.data(connection, &frame(&OrcaLoadReport::default()));
    assert_eq!(
        bench.manager.poll_timeout(),
        Some(at(59_999)),
        "an empty frame says nothing"
    );
    assert_eq!(bench.manager.stats().reports_received, 1);
    bench.wake();
    bench.closed(connection, CloseReason::NoReport);
    assert_eq!(bench.manager.stats().stream_failures, 1);
    assert_eq!(bench.manager.poll_timeout(), Some(at(60_499)));
}

#[test]
fn the_watchdog_runs_while_dialing_too() {
    let (mut bench, connection) = Bench::open(&[]);
    assert_eq!(bench.wake(), 30_000);
    // The backoff was 0 ms: the next attempt follows at once.
    let actions = bench.actions();
    let close = OobAction::Close {
        connection,
        host: address(1),
        reason: CloseReason::NoReport,
    };
    assert_eq!(actions[0], close);
    assert!(matches!(&actions[1..], [OobAction::Open(stream)] if stream.connection != connection));
}

#[test]
fn backoff_doubles_up_to_30_s_and_resets_with_a_report() {
    // The largest draw yields the bound minus one millisecond.
    let draws = [0, 999, 1999, 3999, 7999, 15_999, 29_999, 29_999];
    let mut bench = Bench::new(&draws);
    for pause in [999, 1999, 3999, 7999, 15_999, 29_999, 29_999] {
        let stream = bench.next_open();
        bench.event(stream.connection, OobEvent::ConnectFailed);
        bench.closed(stream.connection, CloseReason::ConnectFailed);
        let next = at(bench.now + pause);
        assert_eq!(bench.manager.poll_timeout(), Some(next), "{pause}");
    }
    let connection = bench.next_open().connection;
    bench.event(connection, OobEvent::Headers(OK));
    bench.data(connection, &frame(&report()));
    bench.event(connection, OobEvent::Closed);
    bench.actions();
    let stats = bench.manager.stats();
    assert_eq!((stats.stream_failures, stats.active_sessions), (8, 1));
    assert_eq!(
        bench.manager.poll_timeout(),
        Some(at(bench.now)),
        "draw 0 of at most 1 s"
    );
    let connection = bench.next_open().connection;
    bench.event(connection, OobEvent::Closed);
    let session = bench.manager.sessions.get_mut(&address(1)).unwrap();
    let bound = session.backoff.next_bound();
    assert_eq!(bound, Duration::from_secs(4), "1 s and 2 s are used up");
}

#[test]
fn a_draw_beyond_the_bound_wraps_around() {
    let mut bench = Bench::new(&[0, 1000]);
    let connection = bench.next_open().connection;
    bench.event(connection, OobEvent::Reset);
    assert_eq!(
        bench.manager.poll_timeout(),
        Some(at(0)),
        "1000 modulo 1000"
    );
}

#[test]
fn a_graceful_goaway_waits_for_the_next_data() {
    let (mut bench, connection) = Bench::answered(&[]);
    bench.event(connection, OobEvent::GoAway { no_error: true });
    assert_eq!(bench.actions(), []);
    assert_eq!(bench.manager.stats().stream_failures, 0);
    bench.data(connection, &frame(&report()));
    bench.closed(connection, CloseReason::GoAway);
    assert_eq!(bench.reports().len(), 1, "the report counts");
    assert_eq!(bench.manager.stats().stream_failures, 1);
}

#[test]
fn a_goaway_does_not_outlive_its_connection() {
    let (mut bench, first) = Bench::answered(&[]);
    bench.event(first, OobEvent::GoAway { no_error: true });
    bench.event(first, OobEvent::Closed);
    bench.actions();
    let second = bench.next_open().connection;
    bench.event(second, OobEvent::Headers(OK));
    bench.data(second, &frame(&report()));
    assert_eq!(bench.actions(), []);
}

#[test]
fn half_a_frame_does_not_outlive_its_connection() {
    let (mut bench, first) = Bench::answered(&[]);
    bench.data(first, &frame(&report())[..7]);
    bench.event(first, OobEvent::Reset);
    bench.actions();
    let second = bench.next_open().connection;
    bench.event(second, OobEvent::Headers(OK));
    bench.data(second, &frame(&report()));
    assert_eq!(bench.reports(), [(address(1), report())]);
}

#[test]
fn counters_have_the_names_of_envoy() {
    let stats = OobStats {
        reports_received: 1,
        report_errors: 2,
        stream_failures: 3,
        stream_terminated: 4,
        active_sessions: 5,
    };
    let expected = [
        ("reports_received", 1),
        ("report_errors", 2),
        ("stream_failures", 3),
        ("stream_terminated", 4),
        ("active_sessions", 5),
    ];
    assert_eq!(stats.iter().collect::<Vec<_>>(), expected);
}
