//! [`Probe`]: sends health checks to one host, over HTTP, gRPC or plain TCP.
//!
//! Probes use their own connections, with the cluster's TLS settings; probe connections count
//! neither toward circuit breakers nor in load reports. `check` interprets the results.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, HeaderValue, Request, Response};
use http_body_util::{BodyExt as _, Empty, Full, Limited};
use hyper::body::Incoming;
use plimsoll_core::log_line;
use plimsoll_xds::clock::Clock;
use plimsoll_xds::grpc_frame;
use plimsoll_xds::grpc_health::{
    HEALTH_CHECK, decode_health_check_response, encode_health_check_request,
};
use plimsoll_xds::upstream::{
    CircuitBreakers, HealthCheck, HealthCheckKind, HttpHealthCheck, HttpVersion, UpstreamOptions,
};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::error::BoxError;
use crate::health::check::ProbeResult;
use crate::log_lines;
use crate::request::body::RequestBody;
use crate::upstream::connect::{DialTarget, Dialer};
use crate::upstream::connection::{ConnectionLimits, ConnectionState};
use crate::upstream::pool::HttpConnection;

const MAX_RESPONSE_BYTES: usize = 64 << 10;
const DEGRADED: &str = "x-envoy-degraded";

#[derive(Debug)]
pub(crate) struct Probe {
    target: DialTarget,
    dialer: Arc<Dialer>,
    check: Arc<HealthCheck>,
    /// Options of the cluster, with the HTTP version of the check.
    options: UpstreamOptions,
    cluster: Arc<str>,
    limits: Arc<ConnectionLimits>,
    connection: Option<HttpConnection>,
}

impl Probe {
    pub(crate) fn new(
        mut target: DialTarget,
        dialer: Arc<Dialer>,
        check: Arc<HealthCheck>,
        cluster: Arc<str>,
        options: &UpstreamOptions,
    ) -> Self {
        if let Some(port) = check.alt_port {
            let moved = target.addresses.iter().map(|address| {
                let mut address = *address;
                address.set_port(port);
                address
            });
            target.addresses = moved.collect();
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
            target,
            dialer,
            check,
            options,
            cluster,
            limits: Arc::default(),
            connection: None,
        }
    }

    pub(crate) async fn run(&mut self) -> ProbeResult {
        let check = Arc::clone(&self.check);
        let checked = async {
            match &check.kind {
                HealthCheckKind::Http(http) => self.check_http(http).await,
                HealthCheckKind::Grpc {
                    service_name,
                    authority,
                    initial_metadata,
                } => {
                    let body = encode_health_check_request(service_name);
                    self.check_grpc(&body, authority, initial_metadata).await
                }
                HealthCheckKind::Tcp { send, receive } => {
                    self.check_tcp(send.as_ref(), receive).await
                }
            }
        };
        match tokio::time::timeout(check.timeout, checked).await {
            Ok(Ok(result)) => result,
            Ok(Err(error)) => {
                let host = self.target.addresses.first();
                log_line!(log_lines::HEALTH_CHECK_FAILED, cluster = %self.cluster, ?host, %error);
                self.connection = None;
                ProbeResult::Inconclusive
            }
            Err(_) => {
                self.connection = None;
                ProbeResult::Inconclusive
            }
        }
    }

    async fn check_http(&mut self, http: &HttpHealthCheck) -> Result<ProbeResult, BoxError> {
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
                (true, _) if degraded => ProbeResult::Degraded,
                (true, _) => ProbeResult::Passed,
                (false, true) => ProbeResult::Inconclusive,
                (false, false) => ProbeResult::Failed,
            },
        )
    }

    async fn check_grpc(
        &mut self,
        message: &[u8],
        authority: &str,
        metadata: &[(String, String)],
    ) -> Result<ProbeResult, BoxError> {
        let request = Request::post(self.uri(authority, HEALTH_CHECK))
            .header("content-type", "application/grpc")
            .header("te", "trailers")
            .body(RequestBody::new(Full::new(grpc_frame::frame(message))))?;
        let response = self.send(request, metadata).await?;
        let is_ok = |headers: &HeaderMap| {
            let status = headers.get("grpc-status");
            status.is_some_and(|status| status.as_bytes() == b"0")
        };
        let headers_ok = is_ok(response.headers());
        let (body, trailers) = self.read(response).await?;
        let ok = headers_ok || trailers.as_ref().is_some_and(is_ok);
        let first = grpc_frame::split(&body, MAX_RESPONSE_BYTES).ok().flatten();
        let serving = first.is_some_and(|(first, _)| decode_health_check_response(first));
        Ok(if ok && serving {
            ProbeResult::Passed
        } else {
            ProbeResult::Failed
        })
    }

    /// Expects the blocks of `receive` in order, with any bytes between them.
    async fn check_tcp(
        &self,
        send: Option<&Bytes>,
        receive: &[Bytes],
    ) -> Result<ProbeResult, BoxError> {
        let dialed = self.dialer.dial(&self.target, HttpVersion::Http1).await;
        let mut socket = dialed.map_err(|error| error.source)?;
        if let Some(bytes) = send {
            socket.write_all(bytes).await?;
        }
        let mut read = BytesMut::new();
        while !has_blocks(&read, receive) {
            if socket.read_buf(&mut read).await? == 0 || read.len() > MAX_RESPONSE_BYTES {
                return Ok(ProbeResult::Inconclusive);
            }
        }
        Ok(ProbeResult::Passed)
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
        let mut connection = match self.connection.take().filter(HttpConnection::is_ready) {
            Some(connection) => connection,
            None => self.open().await?,
        };
        let sent = connection.try_send(request).await;
        self.connection = Some(connection);
        Ok(sent.map_err(hyper::client::conn::TrySendError::into_error)?)
    }

    async fn open(&self) -> Result<HttpConnection, BoxError> {
        let dialed = self
            .dialer
            .dial(&self.target, self.options.http_version)
            .await;
        let socket = dialed.map_err(|error| error.source)?;
        let permit = self
            .limits
            .try_acquire_connection(&Arc::default(), &CircuitBreakers::default())
            .ok_or("connection limit reached")?;
        let state = Arc::new(ConnectionState::new(None, permit, Clock::system().now()));
        HttpConnection::open(socket, state, &self.options, &Arc::default()).await
    }

    async fn read(
        &mut self,
        response: Response<Incoming>,
    ) -> Result<(Bytes, Option<HeaderMap>), BoxError> {
        let body = Limited::new(response.into_body(), MAX_RESPONSE_BYTES)
            .collect()
            .await?;
        let trailers = body.trailers().cloned();
        if !self.check.reuse_connection {
            self.connection = None;
        }
        Ok((body.to_bytes(), trailers))
    }

    fn uri(&self, authority: &str, path: &str) -> String {
        let hostname = &*self.target.hostname;
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
    use std::net::SocketAddr;
    use std::time::Duration;

    use tokio::net::TcpListener;

    use super::*;

    #[test]
    fn blocks_match_in_order_with_any_bytes_between() {
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

    fn probe(address: SocketAddr, hostname: &str, kind: HealthCheckKind) -> Probe {
        let checked = crate::Cluster::new("orders")
            .endpoints(["127.0.0.1:1"])
            .health_check(crate::ActiveHealthCheck::tcp().timeout(Duration::from_secs(5)));
        let mut checks = checked.build().unwrap().options.health_checks;
        let mut check = checks.remove(0);
        check.kind = kind;
        let options = UpstreamOptions::default();
        let target = DialTarget {
            addresses: [address].into(),
            hostname: hostname.into(),
            server_name: None,
        };
        let dialer = Arc::new(Dialer::new(&options));
        Probe::new(target, dialer, Arc::new(check), "orders".into(), &options)
    }

    async fn tcp_result(answer: Vec<u8>) -> ProbeResult {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let kind = HealthCheckKind::Tcp {
            send: Some(Bytes::from_static(b"PING")),
            receive: vec![Bytes::from_static(b"PONG")],
        };
        let mut probe = probe(listener.local_addr().unwrap(), "", kind);
        let served = tokio::spawn(async move {
            let (mut socket, _) = listener.accept().await.unwrap();
            let mut ping = [0; 4];
            socket.read_exact(&mut ping).await.unwrap();
            assert_eq!(&ping, b"PING");
            // The check may end before it has read everything.
            let _ = socket.write_all(&answer).await;
        });
        let result = probe.run().await;
        served.await.unwrap();
        result
    }

    #[tokio::test]
    async fn a_tcp_check_reads_up_to_a_limit() {
        let padded = |length: usize| [vec![b'x'; length], b"PONG".to_vec()].concat();
        for (answer, expected) in [
            (b"PONG".to_vec(), ProbeResult::Passed),
            (padded(100), ProbeResult::Passed),
            (b"NOPE".to_vec(), ProbeResult::Inconclusive),
            (Vec::new(), ProbeResult::Inconclusive),
            (padded(4 * MAX_RESPONSE_BYTES), ProbeResult::Inconclusive),
        ] {
            let length = answer.len();
            assert_eq!(tcp_result(answer).await, expected, "{length} bytes");
        }
        assert_eq!(MAX_RESPONSE_BYTES, 64 * 1024);
    }

    #[test]
    fn the_authority_of_a_check_is_configured_or_that_of_the_host() {
        let address = ([127, 0, 0, 1], 1).into();
        let tcp = || HealthCheckKind::Tcp {
            send: None,
            receive: Vec::new(),
        };
        let named = probe(address, "host.example", tcp());
        assert_eq!(named.uri("own.example", "/a"), "http://own.example/a");
        assert_eq!(named.uri("", "/a"), "http://host.example/a");
        let unnamed = probe(address, "", tcp());
        assert_eq!(unnamed.uri("", "/a"), "http://orders/a");
    }
}
