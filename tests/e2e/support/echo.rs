//! HTTP server that echoes requests, for clients behind a proxy.

use std::convert::Infallible;
use std::net::SocketAddr;

use bytes::Bytes;
use http::{Method, Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde_json::json;
use tokio::net::TcpListener;

/// HTTP/1.1 server on loopback; it runs until the test process exits.
pub(crate) struct Echo {
    pub(crate) address: SocketAddr,
}

impl Echo {
    pub(crate) fn start() -> Self {
        let (sender, addresses) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build();
            runtime.unwrap().block_on(async {
                let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
                sender.send(listener.local_addr().unwrap()).unwrap();
                serve(listener).await;
            });
        });
        Self {
            address: addresses.recv().unwrap(),
        }
    }
}

async fn serve(listener: TcpListener) {
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        let connection = http1::Builder::new()
            .serve_connection(TokioIo::new(stream), service_fn(respond))
            .with_upgrades();
        // The connection ends when the peer closes it.
        tokio::spawn(async move { drop(connection.await) });
    }
}

/// Returns the request as JSON; `/bytes/N` and `/chunked/N` return N bytes instead.
async fn respond(request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    let (head, body) = request.into_parts();
    let body = body
        .collect()
        .await
        .map(http_body_util::Collected::to_bytes);
    let Ok(body) = body else {
        return Ok(Response::new(Full::new(Bytes::from_static(b"cut off"))));
    };
    if let Some(plain) = bytes(head.uri.path()) {
        return Ok(plain);
    }
    let header = |name: &str| head.headers.get(name).and_then(|value| value.to_str().ok());
    let echo = json!({
        "method": head.method.as_str(),
        "path": head.uri.to_string(),
        "host": header("host"),
        "length": body.len(),
        "sum": body.iter().map(|byte| u64::from(*byte)).sum::<u64>(),
        "content_length": header("content-length"),
        "transfer_encoding": header("transfer-encoding"),
        "expect": header("expect"),
        "forwarded_proto": header("x-forwarded-proto"),
        "x_test": header("x-test"),
    });
    let mut response = Response::new(Full::new(Bytes::from(echo.to_string())));
    if head.method == Method::HEAD {
        // The length of the response to a GET.
        *response.body_mut() = Full::default();
        let length = http::HeaderValue::from_static("4711");
        response.headers_mut().insert("content-length", length);
    }
    Ok(response)
}

fn bytes(path: &str) -> Option<Response<Full<Bytes>>> {
    let (kind, length) = path.strip_prefix('/')?.split_once('/')?;
    let body = Bytes::from(vec![b'x'; length.parse().ok()?]);
    let mut response = Response::new(Full::new(body));
    if kind == "chunked" {
        let chunked = http::HeaderValue::from_static("chunked");
        response.headers_mut().insert("transfer-encoding", chunked);
    }
    Some(response)
}
