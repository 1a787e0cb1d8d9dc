//! [`Exchange`]: one request, from its headers to the end of its response.
//!
//! Dropping the exchange finishes the request: counters are updated, the access log is written and
//! the span ended, however the request ended. The response body owns it, or the tunnel after an
//! upgrade.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use http::{HeaderMap, HeaderName, Request, Response, Version};
use http_body::Body as _;
use hyper::body::Incoming;
use plimsoll_client::Error;

use crate::access_log::{Outcome, PendingEntry};
use crate::body::BodyMeter;
use crate::config::HttpOptions;
use crate::connection::Connection;
use crate::stream_timeouts::{Expiry, StreamTimeouts};
use crate::trace::{PendingSpan, TraceContext, Tracer};
use crate::worker::{ClusterCall, UpstreamResponse};

const GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");

#[derive(Debug)]
pub(crate) struct Exchange {
    connection: Arc<Connection>,
    /// Limits of an HTTP/2 stream; those of HTTP/1.1 are in the connection.
    stream: Option<Arc<StreamTimeouts>>,
    started: Instant,
    status: u16,
    /// `None` without `tracing` in the configuration.
    pub(crate) trace: Option<TraceContext>,
    /// `None` if the request is neither written to an access log nor has a span.
    log: Option<Box<Log>>,
}

#[derive(Debug)]
struct Log {
    pending: Vec<PendingEntry>,
    span: Option<PendingSpan>,
    outcome: Outcome,
    meter: Option<Arc<BodyMeter>>,
}

impl Exchange {
    /// Counts the request and starts measuring its duration. `stream` has the limits of an HTTP/2
    /// stream.
    pub(crate) fn begin(
        connection: Arc<Connection>,
        stream: Option<Arc<StreamTimeouts>>,
        version: Version,
        options: &HttpOptions,
    ) -> Self {
        connection.request_started(version);
        let timeouts = stream.as_deref().unwrap_or(&connection.stream);
        timeouts.start(options, connection.worker.now());
        Self {
            stream,
            connection,
            started: Instant::now(),
            status: 0,
            trace: None,
            log: None,
        }
    }

    pub(crate) const fn connection(&self) -> &Arc<Connection> {
        &self.connection
    }

    /// Starts the time limits that begin with the end of the request, if it has no body.
    pub(crate) fn note_request_end(&self, request: &Request<Incoming>) {
        if request.body().is_end_stream() {
            self.timeouts().request_ended(self.connection.worker.now());
        }
    }

    /// Returns the time since the request headers.
    pub(crate) fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }

    pub(crate) fn timeouts(&self) -> &StreamTimeouts {
        self.stream.as_deref().unwrap_or(&self.connection.stream)
    }

    pub(crate) const fn stream(&self) -> Option<&Arc<StreamTimeouts>> {
        self.stream.as_ref()
    }

    /// Waits for the response, or until a limit of the request expires.
    pub(crate) async fn await_response(
        &self,
        mut call: ClusterCall,
    ) -> Result<Result<UpstreamResponse, Error>, Expiry> {
        let timeouts = self.timeouts();
        poll_fn(|cx| {
            if let Poll::Ready(response) = Pin::new(&mut call).poll(cx) {
                return Poll::Ready(Ok(response));
            }
            timeouts.waker().register(cx.waker());
            match timeouts.expired() {
                Some(expiry) => Poll::Ready(Err(expiry)),
                None => Poll::Pending,
            }
        })
        .await
    }

    /// Counts a limit that the request exceeded.
    pub(crate) fn count_expiry(&self, expiry: Expiry) {
        let stats = &self.connection.stats;
        match expiry {
            Expiry::Idle => stats.downstream_rq_idle_timeout.increment(),
            Expiry::Request => stats.downstream_rq_timeout.increment(),
            Expiry::MaxDuration => stats.downstream_rq_max_duration_reached.increment(),
            Expiry::Timeout => {}
        }
    }

    /// Continues or starts the trace of the request, if the listener has `tracing`.
    pub(crate) fn begin_trace(
        &mut self,
        tracer: Option<&Tracer>,
        headers: &mut HeaderMap,
        options: &HttpOptions,
    ) {
        let worker = &self.connection.worker;
        self.trace = tracer.map(|tracer| tracer.begin(headers, options, || worker.draw()));
    }

    /// Starts recording what the request's log entries and its span need.
    pub(crate) fn start_log(
        &mut self,
        pending: Vec<PendingEntry>,
        span: Option<PendingSpan>,
        version: Version,
    ) {
        self.log = Some(Box::new(Log {
            pending,
            span,
            outcome: Outcome {
                protocol: protocol(version),
                peer: Some(self.connection.peer),
                ..Default::default()
            },
            meter: None,
        }));
    }

    pub(crate) const fn is_logged(&self) -> bool {
        self.log.is_some()
    }

    /// Updates the access log entry, if the request is logged.
    pub(crate) fn update_log(&mut self, change: impl FnOnce(&mut Outcome)) {
        if let Some(log) = &mut self.log {
            change(&mut log.outcome);
        }
    }

    pub(crate) fn set_request_meter(&mut self, meter: Arc<BodyMeter>) {
        if let Some(log) = &mut self.log {
            log.meter = Some(meter);
        }
    }

    pub(crate) fn record_response<B>(&mut self, response: &Response<B>) {
        self.status = response.status().as_u16();
        self.timeouts()
            .response_started(self.connection.worker.now());
        self.record_grpc_status(response.headers());
        if let Some(log) = &mut self.log {
            for pending in &mut log.pending {
                pending.response(response.headers());
            }
        }
    }

    /// Records the gRPC status of trailers, or of the headers of a trailers-only response.
    pub(crate) fn record_grpc_status(&mut self, headers: &HeaderMap) {
        self.update_log(|outcome| {
            if let Some(status) = headers.get(&GRPC_STATUS) {
                outcome.grpc_status = Some(status.clone());
            }
        });
    }

    /// Counts bytes of the response body that were passed to the client.
    pub(crate) fn record_sent(&mut self, bytes: usize) {
        if let Some(stream) = &self.stream {
            stream.record_progress(self.connection.worker.now());
        }
        self.update_log(|outcome| outcome.bytes_sent += u64::try_from(bytes).unwrap_or(u64::MAX));
    }
}

pub(crate) fn protocol(version: Version) -> &'static str {
    match version {
        Version::HTTP_2 => "HTTP/2",
        Version::HTTP_10 => "HTTP/1.0",
        _ => "HTTP/1.1",
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        self.connection.request_finished(self.status);
        if let Some(stream) = &self.stream {
            stream.release_task();
        }
        let expiry = self.timeouts().expired();
        if let Some(expiry) = expiry {
            self.count_expiry(expiry);
            self.update_log(|outcome| outcome.flags = expiry.flags());
        }
        let Some(mut log) = self.log.take() else {
            return;
        };
        let outcome = &mut log.outcome;
        outcome.status = self.status;
        outcome.duration = self.started.elapsed();
        outcome.bytes_received = log.meter.map_or(0, |meter| meter.bytes());
        // The status is 0 only if the client disconnected before there was a response. A missing
        // end of the body would not show that: hyper does not poll empty bodies to their end.
        if self.status == 0 && outcome.flags.is_empty() {
            outcome.flags = "DC";
        }
        for pending in log.pending {
            pending.finish(outcome);
        }
        if let Some(span) = log.span {
            span.finish(log.outcome);
        }
    }
}

#[cfg(test)]
mod tests {
    use http::Method;

    use super::*;
    use crate::access_log::{LogFormat, Sinks};
    use crate::config::AccessLogConfig;
    use crate::router::RequestView;

    fn begin(stream: Option<Arc<StreamTimeouts>>) -> Exchange {
        let connection = crate::connection::tests::connection();
        Exchange::begin(
            connection,
            stream,
            Version::HTTP_11,
            &HttpOptions::default(),
        )
    }

    fn counter(connection: &Connection, name: &str) -> u64 {
        let mut counters = connection.stats.iter();
        counters.find(|(known, _)| *known == name).unwrap().1
    }

    #[tokio::test]
    async fn a_request_is_counted_when_it_begins_and_when_it_ends() {
        let mut exchange = begin(None);
        let connection = Arc::clone(exchange.connection());
        assert_eq!(counter(&connection, "downstream_rq_active"), 1);
        exchange.record_response(&Response::new(()));
        drop(exchange);
        assert_eq!(counter(&connection, "downstream_rq_active"), 0);
        assert_eq!(counter(&connection, "downstream_rq_2xx"), 1);
        assert_eq!(counter(&connection, "downstream_rq_rx_reset"), 0);
        let options = HttpOptions::default();
        drop(Exchange::begin(
            Arc::clone(&connection),
            None,
            Version::HTTP_2,
            &options,
        ));
        assert_eq!(counter(&connection, "downstream_rq_rx_reset"), 1);
    }

    #[tokio::test]
    async fn each_limit_has_its_counter() {
        let exchange = begin(None);
        let connection = exchange.connection();
        for (expiry, name) in [
            (Expiry::Idle, "downstream_rq_idle_timeout"),
            (Expiry::Request, "downstream_rq_timeout"),
            (Expiry::MaxDuration, "downstream_rq_max_duration_reached"),
        ] {
            exchange.count_expiry(expiry);
            assert_eq!(counter(connection, name), 1, "{name}");
        }
    }

    #[tokio::test]
    async fn http2_streams_have_limits_of_their_own() {
        let stream = Arc::new(StreamTimeouts::default());
        let exchange = begin(Some(Arc::clone(&stream)));
        assert!(std::ptr::eq(exchange.timeouts(), &*stream));
        assert!(exchange.stream().is_some());
        let exchange = begin(None);
        let connection = exchange.connection();
        assert!(std::ptr::eq(exchange.timeouts(), &connection.stream));
        assert!(exchange.stream().is_none());
    }

    #[tokio::test]
    async fn a_log_entry_is_written_when_the_request_ends() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let format = "%PROTOCOL% %RESPONSE_CODE% %RESPONSE_FLAGS% %BYTES_RECEIVED% %BYTES_SENT% \
                      %DOWNSTREAM_REMOTE_ADDRESS% %RESP(A)%\n";
        let config = AccessLogConfig {
            path: Some(path.clone()),
            format: Arc::new(LogFormat::text(format).unwrap()),
        };
        let sinks = Sinks::default();
        let log = sinks.open(&config).unwrap();
        let headers = HeaderMap::new();
        let view = RequestView {
            host: "h",
            path: "/",
            path_and_query: "/",
            method: &Method::GET,
            scheme: "http",
            headers: &headers,
        };
        let logged = |version| {
            let mut exchange = begin(None);
            assert!(!exchange.is_logged());
            exchange.start_log(vec![log.begin(&view)], None, version);
            assert!(exchange.is_logged());
            exchange
        };
        let mut exchange = logged(Version::HTTP_10);
        let response = Response::builder().status(201).header("a", "b").body(());
        exchange.record_response(&response.unwrap());
        exchange.set_request_meter(Arc::new(BodyMeter::new(&exchange, &HttpOptions::default())));
        exchange.record_sent(3);
        exchange.record_sent(4);
        drop(exchange);
        // Without a response the client has disconnected, unless something else is known.
        drop(logged(Version::HTTP_11));
        let mut exchange = logged(Version::HTTP_2);
        exchange.update_log(|outcome| outcome.flags = "UC");
        drop(exchange);
        while sinks.counts().completed < 3 {
            tokio::task::yield_now().await;
        }
        let peer = "[::ffff:10.0.0.7]:4242";
        let expected = format!(
            "HTTP/1.0 201 - 0 7 {peer} b\nHTTP/1.1 0 DC 0 0 {peer} -\nHTTP/2 0 UC 0 0 {peer} -\n"
        );
        assert_eq!(std::fs::read_to_string(path).unwrap(), expected);
    }

    #[test]
    fn protocols_have_the_names_of_the_access_log() {
        let names = [Version::HTTP_10, Version::HTTP_11, Version::HTTP_2].map(protocol);
        assert_eq!(names, ["HTTP/1.0", "HTTP/1.1", "HTTP/2"]);
    }
}
