//! Tests of log formats and of the writer thread.

use std::time::UNIX_EPOCH;

use http::Method;

use super::*;

fn pending(format: LogFormat) -> PendingEntry {
    let mut headers = HeaderMap::new();
    headers.insert("x-request-id", HeaderValue::from_static("id-1"));
    let view = RequestView {
        host: "example.com",
        path: "/a",
        path_and_query: "/a?b",
        method: &Method::GET,
        scheme: "http",
        headers: &headers,
    };
    let sink = Sink::start(None).unwrap();
    let log = AccessLog {
        format: Arc::new(format),
        sink: Arc::new(sink),
    };
    let mut pending = log.begin(&view);
    pending.start = UNIX_EPOCH;
    pending
}

fn outcome() -> Outcome {
    Outcome {
        protocol: "HTTP/1.1",
        status: 503,
        flags: "UH",
        bytes_received: 1,
        bytes_sent: 19,
        duration: Duration::from_millis(7),
        peer: Some("1.2.3.4:5".parse().unwrap()),
        ..Default::default()
    }
}

fn line(format: LogFormat) -> String {
    let pending = pending(format);
    let line = pending.log.format.line(&pending, &outcome());
    String::from_utf8(line).unwrap()
}

#[test]
fn the_default_format_matches_envoy() {
    assert_eq!(
        line(LogFormat::default()),
        "[1970-01-01T00:00:00.000Z] \"GET /a?b HTTP/1.1\" 503 UH 1 19 7 - \"-\" \"-\" \"id-1\" \
         \"example.com\" \"-\"\n"
    );
}

#[test]
fn header_values_cannot_end_a_quoted_text() {
    let format = LogFormat::text("\"%REQ(X-REQUEST-ID)%\" %RESPONSE_CODE%\n").unwrap();
    let mut pending = pending(format.clone());
    let forged = HeaderValue::from_static("a\" 200 \\ \"b");
    pending.request = vec![Some(forged)];
    let line = String::from_utf8(format.line(&pending, &outcome())).unwrap();
    assert_eq!(line, "\"a\\\" 200 \\\\ \\\"b\" 503\n");
}

#[test]
fn json_lines_have_numbers_and_nulls() {
    let template = [
        ("code", "%RESPONSE_CODE%"),
        ("host", "%UPSTREAM_HOST%"),
        ("peer", "%DOWNSTREAM_REMOTE_ADDRESS_WITHOUT_PORT%"),
        ("what", "%REQ(:METHOD)% %REQ(:PATH)% 100%%"),
    ]
    .map(|(key, format)| (key.to_owned(), format.to_owned()));
    let format = LogFormat::json(&template.into()).unwrap();
    assert_eq!(
        line(format),
        "{\"code\":503,\"host\":null,\"peer\":\"1.2.3.4\",\"what\":\"GET /a?b 100%\"}\n"
    );
}

#[test]
fn invalid_formats_are_errors() {
    for (format, expected) in [
        ("%NO_SUCH%", "operator %NO_SUCH% is not supported"),
        (
            "%START",
            "operator %START is not terminated; write %% for a percent sign",
        ),
        ("%REQ(a b)%", "\"a b\" is not a valid header name"),
    ] {
        assert_eq!(LogFormat::text(format).unwrap_err().to_string(), expected);
    }
}

#[test]
fn listeners_share_a_log_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("access.log");
    let sinks = Sinks::default();
    let config = AccessLogConfig {
        path: Some(path.clone()),
        format: Arc::new(LogFormat::text("%RESPONSE_CODE%\n").unwrap()),
    };
    let logs = [sinks.open(&config).unwrap(), sinks.open(&config).unwrap()];
    assert!(Arc::ptr_eq(&logs[0].sink, &logs[1].sink));
    let headers = HeaderMap::new();
    let view = RequestView {
        host: "",
        path: "/",
        path_and_query: "/",
        method: &Method::GET,
        scheme: "http",
        headers: &headers,
    };
    for log in &logs {
        log.begin(&view).finish(&outcome());
    }
    drop(logs);
    while sinks.counts().completed < 2 {
        thread::yield_now();
    }
    assert_eq!(std::fs::read_to_string(path).unwrap(), "503\n503\n");
}

#[test]
fn lines_are_dropped_and_counted_when_the_queue_is_full() {
    let (lines, queue) = sync_channel(1);
    let sink = Sink {
        lines,
        shared: Arc::default(),
    };
    sink.send(b"a".to_vec());
    sink.send(b"b".to_vec());
    assert_eq!(sink.shared.dropped.load(Ordering::Relaxed), 1);
    assert_eq!(queue.recv().unwrap(), b"a");
}

const OPERATORS: &str = "%START_TIME% %PROTOCOL% %RESPONSE_CODE% %RESPONSE_FLAGS% \
     %BYTES_RECEIVED% %BYTES_SENT% %DURATION% %UPSTREAM_HOST% %UPSTREAM_CLUSTER% %ROUTE_NAME% \
     %DOWNSTREAM_REMOTE_ADDRESS% %DOWNSTREAM_REMOTE_ADDRESS_WITHOUT_PORT% %REQ(X-A?X-REQUEST-ID)% \
     %RESP(SERVER)%";

#[test]
fn every_operator_prints_its_value_or_a_dash() {
    let format = LogFormat::text(OPERATORS).unwrap();
    let mut pending = pending(format.clone());
    let mut headers = HeaderMap::new();
    headers.insert("server", HeaderValue::from_static("upstream"));
    pending.response(&headers);
    let full = Outcome {
        upstream_host: Some("10.0.0.1:80".parse().unwrap()),
        cluster: Some("orders".into()),
        route: "checkout".into(),
        ..outcome()
    };
    let text = |outcome: &Outcome, pending: &PendingEntry| {
        String::from_utf8(format.line(pending, outcome)).unwrap()
    };
    assert_eq!(
        text(&full, &pending),
        "1970-01-01T00:00:00.000Z HTTP/1.1 503 UH 1 19 7 10.0.0.1:80 orders checkout 1.2.3.4:5 \
         1.2.3.4 id-1 upstream"
    );
    pending.response(&HeaderMap::new());
    pending.request = vec![None];
    let none = Outcome {
        protocol: "HTTP/2",
        ..Default::default()
    };
    assert_eq!(
        text(&none, &pending),
        "1970-01-01T00:00:00.000Z HTTP/2 0 - 0 0 0 - - - - - - -"
    );
}

#[test]
fn json_values_are_numbers_only_without_other_text() {
    let template = [
        ("received", "%BYTES_RECEIVED%"),
        ("sent", "%BYTES_SENT%"),
        ("time", "%DURATION%"),
        ("text", "%DURATION% ms"),
        ("dash", "-"),
        ("request", "%REQ(X-REQUEST-ID)%"),
        ("missing", "%REQ(X-MISSING)%"),
    ]
    .map(|(key, format)| (key.to_owned(), format.to_owned()));
    let format = LogFormat::json(&template.into()).unwrap();
    let value: serde_json::Value = serde_json::from_str(&line(format)).unwrap();
    let expected = serde_json::json!({
        "received": 1, "sent": 19, "time": 7, "text": "7 ms", "dash": "-", "request": "id-1",
        "missing": null,
    });
    assert_eq!(value, expected);
}

#[test]
fn counts_are_sums_over_all_files_and_each_is_opened_again() {
    let folder = tempfile::tempdir().unwrap();
    let sinks = Sinks::default();
    for (name, counts) in [("a", [1, 2, 3, 4]), ("b", [10, 20, 30, 40])] {
        let config = AccessLogConfig {
            path: Some(folder.path().join(name)),
            format: Arc::default(),
        };
        let log = sinks.open(&config).unwrap();
        let shared = &log.sink.shared;
        shared.completed.store(counts[0], Ordering::Relaxed);
        shared.dropped.store(counts[1], Ordering::Relaxed);
        shared.failed.store(counts[2], Ordering::Relaxed);
        shared.reopen_failed.store(counts[3], Ordering::Relaxed);
    }
    let WriteCounts {
        completed,
        dropped,
        failed,
        reopen_failed,
    } = sinks.counts();
    assert_eq!(
        [completed, dropped, failed, reopen_failed],
        [11, 22, 33, 44]
    );
    // A file that was moved is opened again on request, before the next line is written.
    let config = AccessLogConfig {
        path: Some(folder.path().join("a")),
        format: Arc::new(LogFormat::text("%RESPONSE_CODE%\n").unwrap()),
    };
    let log = sinks.open(&config).unwrap();
    std::fs::rename(folder.path().join("a"), folder.path().join("a.1")).unwrap();
    sinks.reopen();
    log.sink.send(b"line\n".to_vec());
    while sinks.counts().completed == 11 {
        thread::yield_now();
    }
    let read = |name: &str| std::fs::read_to_string(folder.path().join(name)).unwrap();
    assert_eq!((&*read("a.1"), &*read("a")), ("", "line\n"));
}
