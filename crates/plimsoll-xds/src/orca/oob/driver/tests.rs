//! Tests of how a stream ends, against a server that sends single HTTP/2 frames.

use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::*;

#[test]
fn the_grpc_status_is_a_number() {
    let status = |value: &'static str| {
        let mut headers = HeaderMap::new();
        headers.insert("grpc-status", http::HeaderValue::from_static(value));
        grpc_status(&headers)
    };
    assert_eq!(status("0"), Some(0));
    assert_eq!(status("12"), Some(12));
    assert_eq!(status("x"), None);
    assert_eq!(grpc_status(&HeaderMap::new()), None);
}

fn frame(kind: u8, stream: u8, payload: &[u8]) -> Vec<u8> {
    let length = u8::try_from(payload.len()).unwrap();
    let head = [0, 0, length, kind, 0, 0, 0, 0, stream];
    [&head[..], payload].concat()
}

/// Returns the event of a stream whose server sends `end` after the request.
async fn event_of(end: Vec<u8>) -> Event {
    const SETTINGS: u8 = 4;
    const HEADERS: u8 = 1;
    const PREFACE: usize = 24;
    let (client, mut server) = tokio::io::duplex(1 << 16);
    let served = tokio::spawn(async move {
        server.write_all(&frame(SETTINGS, 0, &[])).await.unwrap();
        server.read_exact(&mut [0; PREFACE]).await.unwrap();
        let mut head = [0; 9];
        while head[3] != HEADERS {
            server.read_exact(&mut head).await.unwrap();
            let length = usize::from(head[1]) << 8 | usize::from(head[2]);
            server.read_exact(&mut vec![0; length]).await.unwrap();
        }
        server.write_all(&end).await.unwrap();
        server
    });
    let handshake = http2::handshake(TokioExecutor::new(), TokioIo::new(client));
    let (mut requests, connection): (RequestSender, _) = handshake.await.unwrap();
    tokio::spawn(connection);
    let request = Request::post("http://host/").body(Full::default()).unwrap();
    let sent = requests.send_request(request);
    let server = served.await.unwrap();
    // Closes the connection if nothing else has ended the stream.
    drop(server);
    end_event(&sent.await.unwrap_err())
}

#[tokio::test]
async fn the_end_of_a_stream_says_how_the_host_ended_it() {
    let (reset, go_away) = (3, 7);
    let code = |reason: h2::Reason| u32::from(reason).to_be_bytes();
    let cancel = frame(reset, 1, &code(h2::Reason::CANCEL));
    assert!(matches!(event_of(cancel).await, Event::Reset));
    for (reason, no_error) in [
        (h2::Reason::NO_ERROR, true),
        (h2::Reason::ENHANCE_YOUR_CALM, false),
    ] {
        let last_stream = [0; 4];
        let frame = frame(go_away, 0, &[last_stream, code(reason)].concat());
        let Event::GoAway(graceful) = event_of(frame).await else {
            panic!("no GOAWAY: {reason:?}");
        };
        assert_eq!(graceful, no_error, "{reason:?}");
    }
    assert!(matches!(event_of(Vec::new()).await, Event::Closed));
}

#[tokio::test(start_paused = true)]
async fn a_task_that_panics_is_started_again() {
    let runs = std::cell::Cell::new(0);
    let before = tokio::time::Instant::now();
    let run = || async {
        runs.set(runs.get() + 1);
        tokio::task::yield_now().await;
        assert!(runs.get() > 2, "run {}", runs.get());
    };
    run_restarting(run).await;
    assert_eq!((runs.get(), before.elapsed()), (3, 2 * RESTART_DELAY));
}
