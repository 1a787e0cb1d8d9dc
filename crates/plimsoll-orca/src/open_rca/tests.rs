//! Requests to the service, in paused time and without sockets.

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use plimsoll_xds::orca::{OrcaLimits, oob, parse_message};
use tokio::time::Instant;

use super::*;
use crate::{OrcaHandle, OrcaLayer};

type Stream = ReportStream<Full<Bytes>>;

fn handle() -> OrcaHandle {
    let second = Duration::from_secs(10);
    let quiet = OrcaLayer::builder().cpu(false).memory(false);
    let handle = quiet.tick(second).window(second).build().unwrap().handle();
    set(&handle, 0.25);
    handle
}

fn set(handle: &OrcaHandle, cpu: f64) {
    handle.set_cpu_utilization(cpu).unwrap();
    handle.refresh();
}

fn framed(message: &[u8]) -> Bytes {
    let length = u32::try_from(message.len()).unwrap();
    [&[0][..], &length.to_be_bytes(), message].concat().into()
}

fn ask(service: &OpenRcaService, interval: Duration) -> Stream {
    let body = framed(&oob::encode_request(interval));
    open(service, PATH, body).into_body()
}

fn open(service: &OpenRcaService, path: &str, body: impl Into<Bytes>) -> Response<Stream> {
    let request = Request::post(path)
        .header("content-type", "application/grpc")
        .body(Full::new(body.into()))
        .unwrap();
    let Ok(response) = service.clone().call(request).into_inner();
    response
}

/// CPU utilization of the next report, and when it arrived.
async fn next(stream: &mut Stream, since: Instant) -> (f64, u128) {
    let frame = stream.frame().await.unwrap().unwrap();
    let data = frame.into_data().unwrap();
    let report = parse_message(&data[5..], &OrcaLimits::default()).unwrap();
    (report.cpu_utilization, since.elapsed().as_millis())
}

/// Status and message that end a stream.
async fn end(stream: &mut Stream) -> (String, String) {
    let frame = stream.frame().await.unwrap().unwrap();
    let trailers = frame.into_trailers().unwrap();
    assert!(stream.is_end_stream());
    assert!(stream.frame().await.is_none());
    let text = |name: &str| trailers[name].to_str().unwrap().to_owned();
    (text("grpc-status"), text("grpc-message"))
}

#[tokio::test(start_paused = true)]
async fn the_first_report_is_immediate_and_others_follow_the_interval() {
    let handle = handle();
    let start = Instant::now();
    let mut stream = ask(&handle.open_rca_service(), Duration::from_secs(3));
    assert_eq!(next(&mut stream, start).await, (0.25, 0));
    set(&handle, 0.5);
    assert_eq!(next(&mut stream, start).await, (0.5, 3_000));
    assert_eq!(next(&mut stream, start).await, (0.5, 6_000));
}

#[tokio::test(start_paused = true)]
async fn intervals_have_a_minimum_and_a_default() {
    let handle = handle();
    let service = handle.open_rca_service();
    let fast = service.clone().min_interval(Duration::from_millis(50));
    let millis = Duration::from_millis;
    let cases = [
        (&service, millis(1), 1_000),
        (&service, millis(1_000), 1_000),
        (&service, millis(0), 10_000),
        (&fast, millis(10), 50),
        (&fast, millis(60), 60),
    ];
    for (service, asked, granted) in cases {
        let start = Instant::now();
        let mut stream = ask(service, asked);
        next(&mut stream, start).await;
        let (_, at) = next(&mut stream, start).await;
        assert_eq!(at, granted, "{asked:?}");
    }
    let none = service.clone().min_interval(Duration::ZERO);
    assert_eq!(none.interval(Some(Duration::from_nanos(1))), millis(1));
    let slow = service.min_interval(Duration::from_secs(30));
    assert_eq!(slow.interval(None), Duration::from_secs(30));
}

#[tokio::test(start_paused = true)]
async fn clients_have_their_own_intervals_and_the_same_report() {
    let handle = handle();
    let service = handle.open_rca_service();
    let start = Instant::now();
    let mut streams: Vec<(u64, Stream)> = Vec::new();
    for client in 0..500 {
        let seconds = 1 + client % 7;
        streams.push((seconds, ask(&service, Duration::from_secs(seconds))));
    }
    for (_, stream) in &mut streams {
        assert_eq!(next(stream, start).await.1, 0);
    }
    set(&handle, 0.75);
    streams.sort_by_key(|(seconds, _)| *seconds);
    for (seconds, stream) in &mut streams {
        let expected = (0.75, u128::from(*seconds) * 1_000);
        assert_eq!(next(stream, start).await, expected);
    }
}

#[tokio::test(start_paused = true)]
async fn shutdown_ends_current_and_new_streams_at_once() {
    let handle = handle();
    let service = handle.open_rca_service();
    let start = Instant::now();
    let mut stream = ask(&service, Duration::from_secs(60));
    next(&mut stream, start).await;
    handle.shutdown();
    let unavailable = ("14".to_owned(), "the server is shutting down".to_owned());
    assert_eq!(end(&mut stream).await, unavailable);
    assert_eq!(start.elapsed(), Duration::ZERO, "without waiting");
    let mut late = ask(&service, Duration::from_secs(60));
    assert_eq!(end(&mut late).await, unavailable);
}

#[tokio::test(start_paused = true)]
async fn invalid_requests_are_rejected() {
    let handle = handle();
    let service = handle.open_rca_service();
    let cases: [(&[u8], &str, &str); 6] = [
        (b"", "3", "the stream ended without a complete request"),
        (
            &[0, 0, 0],
            "3",
            "the stream ended without a complete request",
        ),
        (
            &[0, 0, 0, 0, 9, 1],
            "3",
            "the stream ended without a complete request",
        ),
        (
            &[1, 0, 0, 0, 0],
            "12",
            "compressed requests are not supported",
        ),
        (&[0, 0, 1, 0, 0], "3", "the request is too long"),
        (
            &[0, 0, 0, 0, 2, 0x0a, 9],
            "3",
            "cannot decode OrcaLoadReportRequest",
        ),
    ];
    for (body, status, message) in cases {
        let mut stream = open(&service, PATH, body.to_vec()).into_body();
        let expected = (status.to_owned(), message.to_owned());
        assert_eq!(end(&mut stream).await, expected, "{body:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_empty_request_gets_the_default_interval() {
    let handle = handle();
    let start = Instant::now();
    let mut stream = open(&handle.open_rca_service(), PATH, framed(&[])).into_body();
    next(&mut stream, start).await;
    assert_eq!(next(&mut stream, start).await, (0.25, 10_000));
}

#[tokio::test]
async fn other_paths_and_protocols_are_rejected_in_the_headers() {
    let handle = handle();
    let service = handle.open_rca_service();
    let other = open(
        &service,
        "/xds.service.orca.v3.OpenRcaService/Other",
        framed(&[]),
    );
    assert_eq!(other.headers()["grpc-status"], "12");
    assert!(other.body().is_end_stream());
    let request = Request::post(PATH).body(Full::<Bytes>::default()).unwrap();
    let Ok(plain) = service.clone().call(request).into_inner();
    assert_eq!(plain.status(), StatusCode::UNSUPPORTED_MEDIA_TYPE);
    assert!(plain.body().is_end_stream());
}

#[tokio::test(start_paused = true)]
async fn a_request_may_arrive_in_pieces() {
    let handle = handle();
    let bytes = framed(&oob::encode_request(Duration::from_secs(2)));
    let pieces: Vec<_> = bytes.chunks(1).map(Bytes::copy_from_slice).collect();
    let frames = pieces
        .into_iter()
        .map(|piece| Ok::<_, Infallible>(http_body::Frame::data(piece)));
    let body = http_body_util::StreamBody::new(tokio_stream::iter(frames));
    let request = Request::post(PATH)
        .header("content-type", "application/grpc")
        .body(body)
        .unwrap();
    let Ok(response) = handle.open_rca_service().call(request).into_inner();
    let start = Instant::now();
    let mut stream = response.into_body();
    assert!(stream.frame().await.unwrap().unwrap().is_data());
    assert!(stream.frame().await.unwrap().unwrap().is_data());
    assert_eq!(start.elapsed(), Duration::from_secs(2));
}
