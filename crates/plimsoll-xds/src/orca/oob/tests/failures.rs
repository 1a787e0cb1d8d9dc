//! Every way in which a stream ends, and which are retried.

use super::*;

/// Asserts how an event ends the stream of a host that sent response headers.
#[track_caller]
fn ends(event: OobEvent<'_>, expected: CloseReason) {
    let (mut bench, connection) = Bench::answered(&[]);
    bench.event(connection, event);
    bench.closed(connection, expected);
    let stats = bench.manager.stats();
    let terminal = expected == CloseReason::Unimplemented;
    let found = (
        stats.stream_terminated,
        stats.stream_failures,
        stats.active_sessions,
    );
    assert_eq!(found, if terminal { (1, 0, 0) } else { (0, 1, 1) });
    assert_eq!(
        bench.manager.poll_timeout().is_none(),
        terminal,
        "tried again?"
    );
    assert_eq!(bench.reports(), []);
}

fn data(bytes: &[u8]) -> OobEvent<'_> {
    let end_stream = false;
    OobEvent::Data { bytes, end_stream }
}

const fn trailers(grpc_status: Option<u32>) -> OobEvent<'static> {
    OobEvent::Trailers { grpc_status }
}

#[test]
fn transport_failures_end_the_stream() {
    ends(OobEvent::Closed, CloseReason::ConnectionClosed);
    ends(OobEvent::ConnectFailed, CloseReason::ConnectFailed);
    ends(OobEvent::Reset, CloseReason::StreamReset);
    ends(OobEvent::GoAway { no_error: false }, CloseReason::GoAway);
}

#[test]
fn any_status_ends_the_stream() {
    for grpc_status in [0, 2, 13, 14, 99] {
        ends(
            trailers(Some(grpc_status)),
            CloseReason::Status { grpc_status },
        );
    }
    ends(trailers(None), CloseReason::Status { grpc_status: 2 });
    ends(trailers(Some(12)), CloseReason::Unimplemented);
    let end_stream = true;
    ends(
        OobEvent::Data {
            bytes: &[],
            end_stream,
        },
        CloseReason::NoTrailers,
    );
}

#[test]
fn the_last_data_may_contain_a_report() {
    let (mut bench, connection) = Bench::answered(&[]);
    let (bytes, end_stream) = (&*frame(&report()), true);
    bench.event(connection, OobEvent::Data { bytes, end_stream });
    bench.closed(connection, CloseReason::NoTrailers);
    assert_eq!(bench.reports().len(), 1);
}

#[test]
fn malformed_frames_end_the_stream() {
    ends(data(&[1, 0, 0, 0, 0]), CloseReason::BadFrame { flags: 1 });
    ends(data(&[2, 0, 0, 0, 0]), CloseReason::BadFrame { flags: 2 });
    ends(
        data(&[0, 0, 1, 0, 1]),
        CloseReason::TooLarge { length: 65_537 },
    );
    ends(data(&[0, 0, 0, 0, 1, 0x80]), CloseReason::InvalidReport);
}

#[test]
fn reports_before_a_malformed_frame_count() {
    let (mut bench, connection) = Bench::answered(&[]);
    let bytes = [
        frame(&report()),
        vec![0, 0, 0, 0, 1, 0x80],
        frame(&report()),
    ]
    .concat();
    bench.data(connection, &bytes);
    bench.closed(connection, CloseReason::InvalidReport);
    assert_eq!(bench.reports().len(), 1, "and nothing after it");
    let stats = bench.manager.stats();
    assert_eq!((stats.reports_received, stats.stream_failures), (1, 1));
    assert_eq!(
        bench.manager.poll_timeout(),
        Some(at(0)),
        "the pause, not the watchdog"
    );
}

/// Reason why response headers end the stream, if they do.
fn head(
    status: u16,
    content_type: Option<&str>,
    grpc_status: Option<u32>,
    end_stream: bool,
) -> Option<CloseReason> {
    let headers = ResponseHeaders {
        status,
        content_type,
        grpc_status,
        end_stream,
    };
    let (mut bench, connection) = Bench::open(&[9, 9]);
    bench.event(connection, OobEvent::Headers(headers));
    let actions = bench.actions();
    match actions.as_slice() {
        [] => None,
        [OobAction::Close { reason, .. }] => Some(*reason),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_continuing_response_must_be_grpc() {
    let grpc = Some("application/grpc");
    assert_eq!(head(200, grpc, None, false), None);
    assert_eq!(head(200, Some("application/grpc+proto"), None, false), None);
    assert_eq!(
        head(200, Some("application/grpc; charset=utf-8"), None, false),
        None
    );
    assert_eq!(
        head(200, grpc, Some(12), false),
        None,
        "a status counts at the end only"
    );
    let not = |http_status| Some(CloseReason::NotGrpc { http_status });
    for kind in [
        None,
        Some("text/plain"),
        Some("application/grpc-web"),
        Some("application/gr"),
    ] {
        assert_eq!(head(200, kind, None, false), not(200), "{kind:?}");
    }
    assert_eq!(head(503, grpc, None, false), not(503));
    assert_eq!(head(503, Some("text/plain"), None, false), not(503));
    assert_eq!(
        head(404, Some("text/html"), None, false),
        Some(CloseReason::Unimplemented)
    );
}

#[test]
fn a_headers_only_response_is_judged_by_its_status() {
    let grpc = Some("application/grpc");
    let status = |grpc_status| Some(CloseReason::Status { grpc_status });
    assert_eq!(
        head(200, grpc, Some(12), true),
        Some(CloseReason::Unimplemented)
    );
    assert_eq!(head(200, grpc, Some(0), true), status(0));
    assert_eq!(head(200, None, Some(14), true), status(14));
    assert_eq!(
        head(404, Some("text/html"), Some(14), true),
        status(14),
        "gRPC's word counts"
    );
    let not = |http_status| Some(CloseReason::NotGrpc { http_status });
    assert_eq!(head(200, grpc, None, true), not(200));
    assert_eq!(head(500, Some("text/plain"), None, true), not(500));
    assert_eq!(
        head(404, Some("text/plain"), None, true),
        Some(CloseReason::Unimplemented)
    );
}

#[test]
fn events_after_the_end_are_ignored() {
    let (mut bench, connection) = Bench::answered(&[0, 700]);
    bench.event(connection, OobEvent::GoAway { no_error: false });
    bench.actions();
    let before = (bench.manager.stats(), bench.manager.poll_timeout());
    let bytes = frame(&report());
    for event in [
        trailers(Some(12)),
        data(&bytes),
        OobEvent::Closed,
        OobEvent::Reset,
        OobEvent::Headers(OK),
    ] {
        bench.event(connection, event);
        assert_eq!(
            (bench.manager.stats(), bench.manager.poll_timeout()),
            before
        );
        assert_eq!((bench.actions(), bench.reports()), (vec![], vec![]));
    }
    let next = bench.next_open().connection;
    assert_ne!(next, connection);
    bench.event(connection, trailers(Some(12)));
    assert_eq!(
        bench.actions(),
        [],
        "the old one does not speak for the new one"
    );
}

#[test]
fn a_host_without_the_service_is_not_retried() {
    let (mut bench, connection) = Bench::answered(&[]);
    bench.event(connection, trailers(Some(12)));
    bench.actions();
    assert_eq!(bench.manager.poll_timeout(), None);
    bench.manager.handle_timeout(at(10_000_000));
    bench.hosts(&[1]);
    assert_eq!(bench.actions(), [], "still the same host");
    assert_eq!(bench.manager.poll_timeout(), None);
    bench.hosts(&[]);
    assert_eq!(bench.manager.stats().active_sessions, 0, "counted out once");
    bench.hosts(&[1]);
    assert_eq!(
        bench.manager.stats().active_sessions,
        1,
        "a new host at the old address"
    );
    bench.next_open();
}

#[test]
fn close_reasons_are_readable() {
    for (reason, words) in [
        (CloseReason::BadFrame { flags: 1 }, "frame with flags 0x01"),
        (
            CloseReason::NotGrpc { http_status: 503 },
            "response is not gRPC, HTTP status 503",
        ),
        (
            CloseReason::Status { grpc_status: 14 },
            "call ended, gRPC status 14",
        ),
        (
            CloseReason::TooLarge { length: 70_000 },
            "frame of 70000 bytes exceeds 64 KiB",
        ),
        (CloseReason::NoReport, "no report for three periods"),
        (
            CloseReason::Unimplemented,
            "host does not implement out-of-band reports",
        ),
    ] {
        assert_eq!(reason.to_string(), words);
    }
    let plain = [
        CloseReason::ConnectFailed,
        CloseReason::ConnectionClosed,
        CloseReason::GoAway,
        CloseReason::HostRemoved,
        CloseReason::InvalidReport,
        CloseReason::NoTrailers,
        CloseReason::SettingsChanged,
        CloseReason::StreamReset,
    ];
    let words: BTreeSet<_> = plain.iter().map(ToString::to_string).collect();
    assert_eq!(words.len(), plain.len(), "no two read the same: {words:?}");
}
