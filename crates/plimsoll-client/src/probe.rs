//! [`Probe`]: asks one host whether it is well, over HTTP, gRPC or a bare socket.
//!
//! On connections of its own, with TLS like those of requests; they count neither for the breakers
//! nor for load reports. What an answer means is `health_check`'s business.

use std::sync::Arc;

use bytes::{BufMut as _, Bytes, BytesMut};
use http::{HeaderMap, HeaderValue, Request, Response};
use http_body_util::{BodyExt as _, Empty, Full, Limited};
use hyper::body::Incoming;
use plimsoll_xds::driver::Clock;
use plimsoll_xds::upstream::{
    CircuitBreakers, HealthCheck, HealthCheckKind, HttpHealthCheck, HttpVersion, UpstreamOptions,
};
use plimsoll_xds::wire;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::body::RequestBody;
use crate::connect::{Callee, Dialer};
use crate::connection::{Connection, Limits};
use crate::error::BoxError;
use crate::health_check::Answer;
use crate::pool::Channel;

/// Longest answer that is read.
const MAX_ANSWER: usize = 64 << 10;
/// Header by which a host says that it is degraded.
const DEGRADED: &str = "x-envoy-degraded";

/// Asks one host.
#[derive(Debug)]
pub(crate) struct Probe {
    callee: Callee,
    dialer: Arc<Dialer>,
    check: Arc<HealthCheck>,
    /// Those of the cluster, with the protocol of the check.
    options: UpstreamOptions,
    cluster: Arc<str>,
    limits: Arc<Limits>,
    channel: Option<Channel>,
}

impl Probe {
    pub(crate) fn new(
        mut callee: Callee,
        dialer: Arc<Dialer>,
        check: Arc<HealthCheck>,
        (cluster, options): (Arc<str>, &UpstreamOptions),
    ) -> Self {
        if let Some(port) = check.alt_port {
            let moved = callee.addresses.iter().map(|address| {
                let mut address = *address;
                address.set_port(port);
                address
            });
            callee.addresses = moved.collect();
        }
        let http_version = match &check.kind {
            HealthCheckKind::Http(http) if !http.http2 => HttpVersion::Http1,
            HealthCheckKind::Tcp { .. } => HttpVersion::Http1,
            _ => HttpVersion::Http2,
        };
        let options = UpstreamOptions {
            http_version,
            ..options.clone()
        };
        Self {
            callee,
            dialer,
            check,
            options,
            cluster,
            limits: Arc::default(),
            channel: None,
        }
    }

    /// Asks once.
    pub(crate) async fn ask(&mut self) -> Answer {
        let check = Arc::clone(&self.check);
        let asked = async {
            match &check.kind {
                HealthCheckKind::Http(http) => self.ask_http(http).await,
                HealthCheckKind::Grpc {
                    service_name,
                    authority,
                    initial_metadata,
                } => {
                    let body = wire::encode_health_check_request(service_name);
                    let head = (authority.as_str(), initial_metadata.as_slice());
                    self.ask_grpc(&body, head).await
                }
                HealthCheckKind::Tcp { send, receive } => {
                    self.ask_tcp(send.as_ref(), receive).await
                }
            }
        };
        match tokio::time::timeout(check.timeout, asked).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(error)) => {
                let host = self.callee.addresses.first();
                tracing::debug!(cluster = %self.cluster, ?host, %error, "health check");
                self.channel = None;
                Answer::Unanswered
            }
            Err(_) => {
                self.channel = None;
                Answer::Unanswered
            }
        }
    }

    async fn ask_http(&mut self, http: &HttpHealthCheck) -> Result<Answer, BoxError> {
        let request = Request::builder()
            .method(http.method.as_str())
            .uri(self.uri(&http.host, &http.path))
            .header("user-agent", "Envoy/HC")
            .body(RequestBody::new(Empty::new()))?;
        let response = self.send(request, &http.request_headers_to_add).await?;
        let status = response.status().as_u16();
        let degraded = response.headers().contains_key(DEGRADED);
        self.read(response).await?;
        Ok(
            match (http.is_expected(status), http.is_retriable(status)) {
                (true, _) if degraded => Answer::Degraded,
                (true, _) => Answer::Passed,
                (false, true) => Answer::Unanswered,
                (false, false) => Answer::Failed,
            },
        )
    }

    async fn ask_grpc(
        &mut self,
        message: &[u8],
        (authority, metadata): (&str, &[(String, String)]),
    ) -> Result<Answer, BoxError> {
        let mut frame = BytesMut::with_capacity(5 + message.len());
        frame.put_u8(0);
        frame.put_u32(u32::try_from(message.len())?);
        frame.put_slice(message);
        let request = Request::post(self.uri(authority, wire::HEALTH_CHECK))
            .header("content-type", "application/grpc")
            .header("te", "trailers")
            .body(RequestBody::new(Full::new(frame.freeze())))?;
        let response = self.send(request, metadata).await?;
        let is_ok = |headers: &HeaderMap| {
            let status = headers.get("grpc-status");
            status.is_some_and(|status| status.as_bytes() == b"0")
        };
        let headers_ok = is_ok(response.headers());
        let (body, trailers) = self.read(response).await?;
        let ok = headers_ok || trailers.as_ref().is_some_and(is_ok);
        let serving = body
            .get(5..)
            .is_some_and(wire::decode_health_check_response);
        Ok(match ok && serving {
            true => Answer::Passed,
            false => Answer::Failed,
        })
    }

    /// Blocks must come in their order; what is between them does not matter.
    async fn ask_tcp(&self, send: Option<&Bytes>, receive: &[Bytes]) -> Result<Answer, BoxError> {
        let dialled = self.dialer.dial(&self.callee, HttpVersion::Http1).await;
        let mut socket = dialled.map_err(|error| error.source)?;
        if let Some(bytes) = send {
            socket.write_all(bytes).await?;
        }
        let mut read = BytesMut::new();
        while !has_blocks(&read, receive) {
            if socket.read_buf(&mut read).await? == 0 || read.len() > MAX_ANSWER {
                return Ok(Answer::Unanswered);
            }
        }
        Ok(Answer::Passed)
    }

    async fn send(
        &mut self,
        mut request: Request<RequestBody>,
        headers: &[(String, String)],
    ) -> Result<Response<Incoming>, BoxError> {
        for (name, value) in headers {
            let name: http::HeaderName = name.parse()?;
            request
                .headers_mut()
                .append(name, HeaderValue::from_str(value)?);
        }
        if self.options.http_version == HttpVersion::Http1 {
            let host = request.uri().authority().map(|host| host.as_str().parse());
            if let Some(host) = host.transpose()? {
                request.headers_mut().insert(http::header::HOST, host);
            }
            let path = request.uri().path_and_query().cloned();
            *request.uri_mut() = path.map(http::Uri::from).unwrap_or_default();
        }
        let mut channel = match self.channel.take().filter(Channel::is_ready) {
            Some(channel) => channel,
            None => self.open().await?,
        };
        let sent = channel.try_send(request).await;
        self.channel = Some(channel);
        Ok(sent.map_err(hyper::client::conn::TrySendError::into_error)?)
    }

    async fn open(&self) -> Result<Channel, BoxError> {
        let dialled = self
            .dialer
            .dial(&self.callee, self.options.http_version)
            .await;
        let socket = dialled.map_err(|error| error.source)?;
        let slot = self
            .limits
            .connect(&Arc::default(), &CircuitBreakers::default());
        let slot = slot.ok_or("no connection allowed")?;
        let connection = Arc::new(Connection::new(None, slot, Clock::system().now()));
        Channel::open(socket, connection, &self.options, &Arc::default()).await
    }

    async fn read(
        &mut self,
        response: Response<Incoming>,
    ) -> Result<(Bytes, Option<HeaderMap>), BoxError> {
        let body = Limited::new(response.into_body(), MAX_ANSWER)
            .collect()
            .await?;
        let trailers = body.trailers().cloned();
        if !self.check.reuse_connection {
            self.channel = None;
        }
        Ok((body.to_bytes(), trailers))
    }

    fn uri(&self, authority: &str, path: &str) -> String {
        let hostname = &*self.callee.hostname;
        let authority = match (authority.is_empty(), hostname.is_empty()) {
            (false, _) => authority,
            (true, false) => hostname,
            (true, true) => &*self.cluster,
        };
        let scheme = match self.options.tls {
            Some(_) => "https",
            None => "http",
        };
        format!("{scheme}://{authority}{path}")
    }
}

fn has_blocks(read: &[u8], blocks: &[Bytes]) -> bool {
    let mut rest = read;
    blocks.iter().all(|block| {
        let place = rest
            .windows(block.len())
            .position(|part| part == &block[..]);
        match place {
            Some(place) => {
                rest = &rest[place + block.len()..];
                true
            }
            None => false,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_come_in_order_with_anything_between() {
        let blocks = |texts: &[&'static str]| -> Vec<Bytes> {
            texts
                .iter()
                .map(|text| Bytes::from_static(text.as_bytes()))
                .collect()
        };
        assert!(has_blocks(b"", &blocks(&[])));
        assert!(has_blocks(b"xx+PONGyyOK", &blocks(&["PONG", "OK"])));
        assert!(!has_blocks(b"OK PONG", &blocks(&["PONG", "OK"])));
        assert!(!has_blocks(b"PON", &blocks(&["PONG"])));
    }
}
