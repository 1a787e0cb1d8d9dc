//! HTTP without TLS, for commands that use an admin address.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

use crate::AdminToken;

const MAX_BODY_BYTES: usize = 64 << 20;
const TIMEOUT: Duration = Duration::from_secs(5);

/// Host and port of an admin listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdminAddress {
    host_and_port: String,
}

impl AdminAddress {
    /// Parses `HOST:PORT`, optionally with `http://` before it and `/` after it.
    pub fn parse(text: &str) -> Result<Self, String> {
        let rest = text.strip_prefix("http://").unwrap_or(text);
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        let error = |reason: &str| Err(format!("{reason}; write HOST:PORT"));
        if rest.contains("://") {
            return error("only http:// is supported");
        }
        let Some((host, port)) = rest.rsplit_once(':') else {
            return error("the port is missing");
        };
        if host.is_empty() || host.contains(['/', ' ']) || port.parse::<u16>().is_err() {
            return error("not a valid host and port");
        }
        Ok(Self {
            host_and_port: rest.to_owned(),
        })
    }
}

impl From<SocketAddr> for AdminAddress {
    fn from(address: SocketAddr) -> Self {
        Self {
            host_and_port: address.to_string(),
        }
    }
}

impl std::fmt::Display for AdminAddress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.host_and_port)
    }
}

/// The server accepted the connection and did not respond in time.
#[derive(Clone, Copy, Debug)]
pub struct NoAnswer;

impl std::fmt::Display for NoAnswer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "no response within {TIMEOUT:?}")
    }
}

impl std::error::Error for NoAnswer {}

/// The server refused the request, for this reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused(String);

impl std::fmt::Display for Refused {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Refused {}

/// Explains an answer that is not HTTP/1.1.
fn not_http(error: hyper::Error) -> anyhow::Error {
    // What arrives before the request is sent cancels it.
    if !error.is_parse() && !error.is_canceled() {
        return error.into();
    }
    anyhow!(
        "the answer is not HTTP/1.1; this may be the xDS address (`listen`), not the admin address \
         (`admin`, by default 127.0.0.1:18001), or one with TLS"
    )
}

/// Fetches `path` and returns the body of a successful response.
pub async fn get(address: &AdminAddress, path: &str) -> anyhow::Result<Bytes> {
    let request = http::Request::get(path).body(Full::default())?;
    send(address, path, request).await
}

/// Posts JSON to `path`, with the admin token if there is one, and returns the body of a successful
/// response. If the server refuses the request, the error is its reason.
pub async fn post(
    address: &AdminAddress,
    path: &str,
    json: Bytes,
    token: Option<&AdminToken>,
) -> anyhow::Result<Bytes> {
    let mut request = http::Request::post(path)
        .header(http::header::CONTENT_TYPE, "application/json")
        .body(Full::new(json))?;
    if let Some(token) = token {
        let value = http::HeaderValue::try_from(format!("Bearer {}", token.reveal()))?;
        request
            .headers_mut()
            .insert(http::header::AUTHORIZATION, value);
    }
    send(address, path, request).await
}

async fn send(
    address: &AdminAddress,
    path: &str,
    request: http::Request<Full<Bytes>>,
) -> anyhow::Result<Bytes> {
    tokio::time::timeout(TIMEOUT, send_without_timeout(address, request))
        .await
        .unwrap_or_else(|_| Err(NoAnswer.into()))
        .with_context(|| format!("http://{address}{path}"))
}

/// Returns the reason in the body of a refusal.
fn reason(body: &[u8]) -> Option<String> {
    let json: serde_json::Value = serde_json::from_slice(body).ok()?;
    let error = json.get("error")?.as_str()?;
    Some(
        match json.get("field").and_then(serde_json::Value::as_str) {
            Some(field) => format!("{field}: {error}"),
            None => error.to_owned(),
        },
    )
}

async fn send_without_timeout(
    address: &AdminAddress,
    mut request: http::Request<Full<Bytes>>,
) -> anyhow::Result<Bytes> {
    let stream = TcpStream::connect(&address.host_and_port).await?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    let host = http::HeaderValue::try_from(&address.host_and_port)?;
    request.headers_mut().insert(http::header::HOST, host);
    let accept = http::HeaderValue::from_static("application/json");
    request.headers_mut().insert(http::header::ACCEPT, accept);
    let answer = async {
        let response = sender.send_request(request).await.map_err(not_http)?;
        let status = response.status();
        let body = Limited::new(response.into_body(), MAX_BODY_BYTES)
            .collect()
            .await
            .map_err(|error| anyhow!("{error}"))?
            .to_bytes();
        if !status.is_success() {
            return Err(match reason(&body) {
                Some(reason) if status.is_client_error() => Refused(reason).into(),
                _ => anyhow!("unexpected status {status}"),
            });
        }
        Ok(body)
    };
    // The connection must be polled while we wait for the response. Ignore its end: the response
    // may still be buffered, and without a response `send_request` fails.
    let driven = async {
        let _ = connection.await;
        std::future::pending::<Infallible>().await
    };
    tokio::select! {
        answer = answer => answer,
        never = driven => match never {},
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_may_be_pasted_as_urls() {
        for text in [
            "localhost:18001",
            "http://localhost:18001",
            "http://localhost:18001/",
        ] {
            assert_eq!(
                AdminAddress::parse(text).unwrap().to_string(),
                "localhost:18001"
            );
        }
        assert_eq!(
            AdminAddress::parse("[::1]:80").unwrap().to_string(),
            "[::1]:80"
        );
        for text in [
            "localhost",
            ":80",
            "a:b",
            "https://a:1",
            "a/b:1",
            "a:99999",
            "",
        ] {
            assert!(AdminAddress::parse(text).is_err(), "{text}");
        }
    }
}
