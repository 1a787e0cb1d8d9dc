//! Tests of request bodies, and of how requests are counted when their responses end.

use http::HeaderValue;
use http_body_util::{Empty, Full, StreamBody};
use plimsoll_core::host::Host;

use super::*;
use crate::{Client, Cluster};

/// Returns a host of a cluster, and the client that keeps it.
async fn host() -> (Client, Arc<Host>) {
    let cluster = Cluster::new("orders").endpoints(["127.0.0.1:1"]);
    let client = Client::builder().cluster(cluster).build().unwrap();
    client.ready().await.unwrap();
    let snapshot = client.snapshot("orders").unwrap();
    let host = Arc::clone(snapshot.hosts().next().unwrap());
    (client, host)
}

fn tracker(host: &Arc<Host>, limits: &Arc<ConnectionLimits>) -> Box<RequestTracker> {
    let now = Clock::system().now();
    let tracker = RequestTracker::without_connection(host.begin_request(), now, Arc::clone(limits));
    Box::new(tracker)
}

fn headers(fields: &[(&'static str, &'static str)]) -> HeaderMap {
    let fields = fields.iter().map(|(name, value)| {
        let value = HeaderValue::from_static(value);
        (HeaderName::from_static(name), value)
    });
    fields.collect()
}

const GRPC: (&str, &str) = ("content-type", "application/grpc");

#[test]
fn request_bodies_keep_their_length_and_end() {
    let empty = RequestBody::new(Empty::new());
    assert!(empty.is_end_stream());
    assert_eq!(empty.size_hint().exact(), Some(0));
    let full = RequestBody::new(Full::new(Bytes::from_static(b"hello")));
    assert!(!full.is_end_stream());
    assert_eq!(full.size_hint().exact(), Some(5));
}

#[tokio::test]
async fn responses_are_counted_by_their_status() {
    let (_client, host) = host().await;
    let limits = Arc::default();
    // (status, headers, trailers, success)
    type Fields = &'static [(&'static str, &'static str)];
    let cases: [(u16, Fields, Fields, bool); 11] = [
        (200, &[], &[], true),
        (404, &[], &[], true),
        (499, &[], &[], true),
        (500, &[], &[], false),
        (503, &[], &[], false),
        // The status of gRPC counts only in its own responses.
        (200, &[("grpc-status", "14")], &[], true),
        (200, &[GRPC, ("grpc-status", "14")], &[], false),
        (200, &[GRPC, ("grpc-status", "0")], &[], true),
        (200, &[GRPC], &[("grpc-status", "0")], true),
        (200, &[GRPC], &[("grpc-status", "x")], false),
        (200, &[GRPC], &[], false),
    ];
    for (status, fields, trailers, success) in cases {
        let before = host.totals();
        let mut tracker = tracker(&host, &limits);
        let status = StatusCode::from_u16(status).unwrap();
        tracker.observe_headers(status, &headers(fields));
        tracker.observe_trailers(&headers(trailers));
        assert_eq!(tracker.statuses().0, status);
        assert_eq!(host.active_requests(), 1);
        tracker.close();
        let (issued, succeeded, failed) = host.totals();
        let counted = (issued - before.0, succeeded - before.1, failed - before.2);
        let expected = (1, u64::from(success), u64::from(!success));
        assert_eq!(counted, expected, "{status} {fields:?} {trailers:?}");
        assert_eq!(host.active_requests(), 0);
    }
    let before = host.totals();
    tracker(&host, &limits).fail(true);
    assert_eq!(host.totals(), (before.0 + 1, before.1, before.2 + 1));
}

#[tokio::test]
async fn headers_alone_tell_an_error_from_a_response_in_progress() {
    let (_client, host) = host().await;
    let limits = Arc::default();
    type Fields = &'static [(&'static str, &'static str)];
    let cases: [(u16, Fields, bool); 7] = [
        (200, &[], false),
        (499, &[], false),
        (500, &[], true),
        (200, &[("grpc-status", "14")], false),
        (200, &[GRPC], false),
        (200, &[GRPC, ("grpc-status", "0")], false),
        (200, &[GRPC, ("grpc-status", "14")], true),
    ];
    for (status, fields, error) in cases {
        let mut tracker = tracker(&host, &limits);
        let status = StatusCode::from_u16(status).unwrap();
        tracker.observe_headers(status, &headers(fields));
        let found = tracker.headers_are_an_error();
        assert_eq!(found, error, "{status} {fields:?}");
        tracker.close();
    }
}

#[tokio::test]
async fn statuses_are_those_of_the_response() {
    let (_client, host) = host().await;
    let mut tracker = tracker(&host, &Arc::default());
    tracker.observe_headers(StatusCode::ACCEPTED, &headers(&[]));
    assert_eq!(tracker.statuses(), (StatusCode::ACCEPTED, None));
    tracker.observe_trailers(&headers(&[("grpc-status", "5")]));
    assert_eq!(tracker.statuses(), (StatusCode::ACCEPTED, Some(5)));
}

#[tokio::test]
async fn malformed_load_reports_are_counted_and_missing_ones_are_not() {
    let (_client, host) = host().await;
    let limits = Arc::<ConnectionLimits>::default();
    let mut tracker = tracker(&host, &limits);
    tracker.observe_trailers(&headers(&[]));
    assert_eq!(limits.stats.orca_report_errors.get(), 0);
    tracker.observe_trailers(&headers(&[(ENDPOINT_LOAD_METRICS, "JSON {")]));
    assert_eq!(limits.stats.orca_report_errors.get(), 1);
}

#[tokio::test]
async fn a_request_ends_with_its_response_body() {
    let (_client, host) = host().await;
    let limits = Arc::default();
    let frames = |count: usize| {
        let frames = std::iter::repeat_n(Bytes::from_static(b"a"), count);
        StreamBody::new(futures_util::stream::iter(
            frames.map(|data| Ok::<_, BoxError>(Frame::data(data))),
        ))
    };
    // Known to be empty: ended at once.
    let body = ResponseBody::tracked(Full::new(Bytes::new()), tracker(&host, &limits));
    assert_eq!(host.totals(), (1, 1, 0));
    assert!(body.is_end_stream());
    assert_eq!(body.host(), host.address());
    // Known length: ended with its last frame.
    let full = Full::new(Bytes::from_static(b"hello"));
    let mut body = ResponseBody::tracked(full, tracker(&host, &limits));
    assert_eq!(body.size_hint().exact(), Some(5));
    assert!(!body.is_end_stream());
    assert_eq!(host.active_requests(), 1);
    body.frame().await.unwrap().unwrap();
    assert_eq!(host.totals(), (2, 2, 0));
    // Unknown length: ended after its last frame, or when it is dropped.
    let mut body = ResponseBody::tracked(frames(1), tracker(&host, &limits));
    body.frame().await.unwrap().unwrap();
    assert_eq!(host.active_requests(), 1);
    assert!(body.frame().await.is_none());
    assert_eq!(host.totals(), (3, 3, 0));
    drop(body);
    drop(ResponseBody::tracked(frames(2), tracker(&host, &limits)));
    assert_eq!(host.totals(), (4, 4, 0));
    // A body that fails is an error of the host.
    let broken = StreamBody::new(futures_util::stream::iter([Err::<Frame<Bytes>, BoxError>(
        "broken".into(),
    )]));
    let mut body = ResponseBody::tracked(broken, tracker(&host, &limits));
    assert!(body.frame().await.unwrap().is_err());
    assert_eq!(host.totals(), (5, 4, 1));
}

#[tokio::test]
async fn trailers_of_a_body_decide_the_outcome() {
    let (_client, host) = host().await;
    for (status, expected) in [("0", (1, 1, 0)), ("13", (2, 1, 1))] {
        let frames = [Ok::<_, BoxError>(Frame::trailers(headers(&[(
            "grpc-status",
            status,
        )])))];
        let mut tracker = tracker(&host, &Arc::default());
        tracker.observe_headers(StatusCode::OK, &headers(&[GRPC]));
        let stream = StreamBody::new(futures_util::stream::iter(frames));
        let mut body = ResponseBody::tracked(stream, tracker);
        body.frame().await.unwrap().unwrap();
        assert!(body.frame().await.is_none());
        assert_eq!(host.totals(), expected, "{status}");
    }
}
