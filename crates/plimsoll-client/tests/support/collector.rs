//! [`Collector`]: an OTLP collector that decodes what it gets, by gRPC and by HTTP, on a thread and
//! runtime of its own, so that a test may block its own runtime.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Request, Response};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::{KeyValue, any_value};
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message as _;
use tokio::net::TcpListener;
use tokio::sync::oneshot;

/// How a collector answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Answer {
    #[default]
    Accept,
    /// Status 503, or UNAVAILABLE.
    Unavailable,
    Hang,
}

#[derive(Debug, Default)]
struct State {
    answer: Answer,
    exports: u64,
    paths: Vec<String>,
    headers: Vec<HeaderMap>,
    resources: Vec<Vec<KeyValue>>,
    spans: Vec<Span>,
}

#[derive(Debug)]
pub(crate) struct Collector {
    pub(crate) address: SocketAddr,
    state: Arc<Mutex<State>>,
    /// Dropped to end the thread.
    _running: oneshot::Sender<()>,
}

impl Collector {
    pub(crate) fn start() -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        let state = Arc::new(Mutex::new(State::default()));
        let (running, ended) = oneshot::channel::<()>();
        let served = Arc::clone(&state);
        std::thread::spawn(move || {
            runtime.block_on(async {
                let listener = TcpListener::from_std(listener).unwrap();
                tokio::select! {
                    () = serve(listener, served) => {}
                    _ = ended => {}
                }
            });
        });
        Self {
            address,
            state,
            _running: running,
        }
    }

    pub(crate) fn answer(&self, answer: Answer) {
        self.state.lock().unwrap().answer = answer;
    }

    /// Exports that have arrived, whatever the answer.
    pub(crate) fn exports(&self) -> u64 {
        self.state.lock().unwrap().exports
    }

    /// Spans of accepted exports.
    pub(crate) fn spans(&self) -> Vec<Span> {
        self.state.lock().unwrap().spans.clone()
    }

    /// Path, headers and resource attributes of the last export.
    pub(crate) fn last(&self) -> (String, HeaderMap, Vec<KeyValue>) {
        let state = self.state.lock().unwrap();
        (
            state.paths.last().unwrap().clone(),
            state.headers.last().unwrap().clone(),
            state.resources.last().unwrap().clone(),
        )
    }
}

async fn serve(listener: TcpListener, state: Arc<Mutex<State>>) {
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        let state = Arc::clone(&state);
        tokio::spawn(async move {
            let service = service_fn(move |request| {
                let state = Arc::clone(&state);
                async move { Ok::<_, Infallible>(export(request, &state).await) }
            });
            let builder = auto::Builder::new(TokioExecutor::new());
            drop(
                builder
                    .serve_connection(TokioIo::new(stream), service)
                    .await,
            );
        });
    }
}

type Body = UnsyncBoxBody<Bytes, Infallible>;

async fn export(request: Request<Incoming>, state: &Mutex<State>) -> Response<Body> {
    let (head, body) = request.into_parts();
    let bytes = body.collect().await.unwrap().to_bytes();
    let grpc = head.headers.get("content-type").unwrap() == "application/grpc";
    let message = if grpc { bytes.slice(5..) } else { bytes };
    let message = ExportTraceServiceRequest::decode(message).unwrap();
    let answer = {
        let mut state = state.lock().unwrap();
        state.exports += 1;
        if state.answer == Answer::Accept {
            state.paths.push(head.uri.path().to_owned());
            state.headers.push(head.headers);
            for resource in message.resource_spans {
                state.resources.push(resource.resource.unwrap().attributes);
                for scope in resource.scope_spans {
                    state.spans.extend(scope.spans);
                }
            }
        }
        state.answer
    };
    match (answer, grpc) {
        (Answer::Hang, _) => std::future::pending().await,
        (Answer::Accept, true) => grpc_response("0"),
        (Answer::Unavailable, true) => grpc_response("14"),
        (Answer::Accept, false) => Response::new(Full::default().boxed_unsync()),
        (Answer::Unavailable, false) => {
            let mut response = Response::new(Full::default().boxed_unsync());
            *response.status_mut() = http::StatusCode::SERVICE_UNAVAILABLE;
            response
        }
    }
}

/// An empty message with a status in the trailers.
fn grpc_response(status: &'static str) -> Response<Body> {
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-status", HeaderValue::from_static(status));
    let message = Full::new(Bytes::from_static(&[0; 5]));
    let body = message.with_trailers(std::future::ready(Some(Ok(trailers))));
    Response::builder()
        .header("content-type", "application/grpc")
        .body(body.boxed_unsync())
        .unwrap()
}

/// Text or number of an attribute; empty if it is missing.
pub(crate) fn attribute(attributes: &[KeyValue], key: &str) -> String {
    let found = attributes.iter().find(|attribute| attribute.key == key);
    let value = found.and_then(|attribute| attribute.value.as_ref()?.value.clone());
    match value {
        Some(any_value::Value::StringValue(text)) => text,
        Some(any_value::Value::IntValue(number)) => number.to_string(),
        _ => String::new(),
    }
}
