//! Backends that serve HTTP/1.1 and HTTP/2 on one port.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

pub(crate) type AnyBody = UnsyncBoxBody<Bytes, Infallible>;

/// A backend that runs until it is dropped.
pub(crate) struct Backend {
    pub(crate) address: SocketAddr,
    pub(crate) requests: Arc<AtomicUsize>,
    task: tokio::task::JoinHandle<()>,
}

impl Backend {
    /// Starts a backend that calls `handler` for every request.
    pub(crate) async fn start<F, R>(handler: F) -> Self
    where
        F: Fn(Request<Incoming>) -> R + Send + Sync + 'static,
        R: Future<Output = Response<AnyBody>> + Send,
    {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let requests = Arc::new(AtomicUsize::new(0));
        let handler = Arc::new(handler);
        let count = Arc::clone(&requests);
        let task = tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let (handler, count) = (Arc::clone(&handler), Arc::clone(&count));
                tokio::spawn(async move {
                    let service = service_fn(move |request| {
                        count.fetch_add(1, Ordering::SeqCst);
                        let handler = Arc::clone(&handler);
                        async move { Ok::<_, Infallible>(handler(request).await) }
                    });
                    let builder = auto::Builder::new(TokioExecutor::new());
                    let io = TokioIo::new(stream);
                    let _ = builder.serve_connection_with_upgrades(io, service).await;
                });
            }
        });
        Self {
            address,
            requests,
            task,
        }
    }

    /// Starts a backend that responds with its name and the request as text: method, path, headers,
    /// body.
    pub(crate) async fn echo(name: &'static str) -> Self {
        Self::start(move |request| echo(name, request)).await
    }

    pub(crate) fn count(&self) -> usize {
        self.requests.load(Ordering::SeqCst)
    }
}

/// Starts a backend that answers the first request of each connection with these bytes, and keeps
/// the connection open until the client closes it.
pub(crate) async fn raw(response: &'static str) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            tokio::spawn(async move {
                let mut read = vec![0; 4096];
                let _ = stream.read(&mut read).await;
                let _ = stream.write_all(response.as_bytes()).await;
                let _ = stream.read_to_end(&mut read).await;
            });
        }
    });
    address
}

impl Drop for Backend {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn echo(name: &'static str, request: Request<Incoming>) -> Response<AnyBody> {
    let (head, body) = request.into_parts();
    let mut text = format!(
        "backend: {name}\n{} {} {:?}\n",
        head.method, head.uri, head.version
    );
    for (name, value) in &head.headers {
        text.push_str(&format!("{name}: {}\n", value.to_str().unwrap()));
    }
    let collected = body.collect().await;
    let Ok(collected) = collected else {
        return reply(400, "cut off");
    };
    for (name, value) in collected.trailers().into_iter().flatten() {
        text.push_str(&format!("trailer {name}: {}\n", value.to_str().unwrap()));
    }
    text.push('\n');
    text.push_str(&String::from_utf8_lossy(&collected.to_bytes()));
    reply(200, text)
}

pub(crate) fn reply(status: u16, body: impl Into<Bytes>) -> Response<AnyBody> {
    let body = Full::new(body.into()).boxed_unsync();
    Response::builder().status(status).body(body).unwrap()
}
