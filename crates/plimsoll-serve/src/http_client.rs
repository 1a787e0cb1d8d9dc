//! [`HttpClient`]: one HTTP/1.1 connection to an API, which is dialed when it is needed.
//!
//! For clients of service discovery: requests wait long for answers, and answers are large.
//! Certificates are read again for each connection, so that they can be rotated. TCP keepalive
//! finds peers that are gone.

use std::io;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, Uri};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use crate::{ClientTlsSettings, PemSource, client_tls, error_chain};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Time for a body that is read as a whole.
const BODY_TIMEOUT: Duration = Duration::from_secs(60);
/// TCP keepalive: a peer that does not answer for half a minute is gone.
const KEEPALIVE: (Duration, Duration, u32) = (Duration::from_secs(15), Duration::from_secs(5), 3);

/// Where an API is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpServer {
    pub host: String,
    pub port: u16,
    /// `None` for plain text.
    pub tls: Option<ClientTlsSettings>,
    /// Name in the server's certificate, if it is not the host.
    pub server_name: Option<String>,
    /// Path that all requests begin with, without a slash at the end.
    pub path_prefix: String,
}

impl HttpServer {
    /// Parses `https://host:port/path` or `http://…`. TLS needs the certificate authorities in
    /// `ca`.
    pub fn parse(
        address: &str,
        ca: Option<PemSource>,
        certificate: Option<(PemSource, PemSource)>,
    ) -> Result<Self, String> {
        let uri: Uri = address
            .parse()
            .map_err(|error| format!("{address:?} is no URL: {error}"))?;
        let is_tls = match uri.scheme_str() {
            Some("https") => true,
            Some("http") => false,
            _ => {
                return Err(format!(
                    "{address:?} begins with neither https:// nor http://"
                ));
            }
        };
        let Some(host) = uri.host() else {
            return Err(format!("{address:?} has no host"));
        };
        let tls = match (is_tls, ca) {
            (false, _) => None,
            (true, None) => {
                return Err("https needs the certificate authority of the server".to_owned());
            }
            (true, Some(ca)) => Some(ClientTlsSettings {
                ca,
                certificate,
                alpn: vec!["http/1.1".to_owned()],
            }),
        };
        let default_port = if is_tls { 443 } else { 80 };
        Ok(Self {
            host: host.trim_matches(['[', ']']).to_owned(),
            port: uri.port_u16().unwrap_or(default_port),
            tls,
            server_name: None,
            path_prefix: uri.path().trim_end_matches('/').to_owned(),
        })
    }

    /// Returns the host and port, for the `host` header and log lines.
    pub fn authority(&self) -> String {
        if self.host.contains(':') {
            format!("[{}]:{}", self.host, self.port)
        } else {
            format!("{}:{}", self.host, self.port)
        }
    }

    async fn connect(&self) -> Result<SendRequest<Full<Bytes>>, String> {
        let authority = self.authority();
        match timeout(CONNECT_TIMEOUT, self.dial()).await {
            Ok(Ok(sender)) => Ok(sender),
            Ok(Err(error)) => Err(format!(
                "cannot connect to {authority}: {}",
                error_chain(&error)
            )),
            Err(_) => Err(format!(
                "cannot connect to {authority} within {CONNECT_TIMEOUT:?}"
            )),
        }
    }

    async fn dial(&self) -> io::Result<SendRequest<Full<Bytes>>> {
        let stream = TcpStream::connect((&*self.host, self.port)).await?;
        stream.set_nodelay(true)?;
        let (time, interval, retries) = KEEPALIVE;
        let keepalive = socket2::TcpKeepalive::new()
            .with_time(time)
            .with_interval(interval)
            .with_retries(retries);
        socket2::SockRef::from(&stream).set_tcp_keepalive(&keepalive)?;
        let Some(settings) = &self.tls else {
            return handshake(TokioIo::new(stream)).await;
        };
        let config = client_tls(settings).map_err(io::Error::other)?;
        let name = self.server_name.as_ref().unwrap_or(&self.host);
        let name = ServerName::try_from(name.clone()).map_err(io::Error::other)?;
        let connector = TlsConnector::from(config);
        handshake(TokioIo::new(connector.connect(name, stream).await?)).await
    }
}

/// A connection to an API.
#[derive(Debug, Default)]
pub struct HttpClient {
    sender: Option<SendRequest<Full<Bytes>>>,
}

impl HttpClient {
    /// Closes the connection; the next request dials again.
    pub fn close(&mut self) {
        self.sender = None;
    }

    /// Whether a connection is open that can send another request.
    pub async fn is_ready(&mut self) -> bool {
        let Some(sender) = &mut self.sender else {
            return false;
        };
        let is_ready = matches!(timeout(CONNECT_TIMEOUT, sender.ready()).await, Ok(Ok(())));
        if !is_ready {
            self.sender = None;
        }
        is_ready
    }

    /// Opens a connection, in place of one that is open.
    pub async fn connect(&mut self, server: &HttpServer) -> Result<(), String> {
        self.sender = None;
        self.sender = Some(server.connect().await?);
        Ok(())
    }

    /// Sends a request on the open connection, and returns its answer, which has to begin within
    /// `limit`. The connection is closed if it cannot be used any more; a caller that stops waiting
    /// has to close it.
    pub async fn send(
        &mut self,
        request: Request<Full<Bytes>>,
        limit: Duration,
    ) -> Result<Response<Incoming>, String> {
        let Some(sender) = &mut self.sender else {
            return Err("not connected".to_owned());
        };
        let failure = match timeout(limit, sender.send_request(request)).await {
            Ok(Ok(response)) => return Ok(response),
            Ok(Err(error)) => error_chain(&error),
            Err(_) => format!("no answer within {limit:?}"),
        };
        self.sender = None;
        Err(failure)
    }
}

/// Reads the body of an answer, of at most `limit` bytes.
pub async fn read_body(response: Response<Incoming>, limit: usize) -> Result<Bytes, String> {
    let body = Limited::new(response.into_body(), limit).collect();
    match timeout(BODY_TIMEOUT, body).await {
        Ok(Ok(body)) => Ok(body.to_bytes()),
        Ok(Err(error)) => Err(error_chain(&*error)),
        Err(_) => Err(format!("answer is not complete within {BODY_TIMEOUT:?}")),
    }
}

/// Appends a query to a path, percent-encoded.
pub fn with_query(path: &str, query: &[(&str, &str)]) -> String {
    let mut target = path.to_owned();
    let mut separator = '?';
    for (name, value) in query {
        target.push(separator);
        target += name;
        target.push('=');
        target += &percent_encoded(value);
        separator = '&';
    }
    target
}

/// Encodes a segment of a path, or a value of a query.
pub fn percent_encoded(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                encoded.push(char::from(byte));
            }
            _ => encoded += &format!("%{byte:02X}"),
        }
    }
    encoded
}

async fn handshake<S>(stream: S) -> io::Result<SendRequest<Full<Bytes>>>
where
    S: hyper::rt::Read + hyper::rt::Write + Unpin + Send + 'static,
{
    let (sender, connection) = http1::handshake(stream).await.map_err(io::Error::other)?;
    // The task ends when the sender is dropped or the socket closes; the next request reports it.
    tokio::spawn(async move {
        let _ = connection.await;
    });
    Ok(sender)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_servers() {
        let ca = || Some(PemSource::Inline(String::new()));
        let parse = |address: &str| HttpServer::parse(address, ca(), None);
        let server = parse("https://api.example.com/k8s/clusters/c-1/").unwrap();
        assert_eq!(server.authority(), "api.example.com:443");
        assert_eq!(server.path_prefix, "/k8s/clusters/c-1");
        assert_eq!(
            parse("https://[fd00::1]:1").unwrap().authority(),
            "[fd00::1]:1"
        );
        let plain = parse("http://127.0.0.1:8001").unwrap();
        assert_eq!((plain.port, plain.tls.is_none()), (8001, true));
        assert!(parse("api.example.com").is_err());
        assert!(parse("ftp://api").is_err());
        let without_ca = HttpServer::parse("https://a", None, None);
        assert!(without_ca.unwrap_err().contains("certificate authority"));
    }

    #[test]
    fn queries_are_percent_encoded() {
        assert_eq!(with_query("/v1", &[]), "/v1");
        let query = [("selector", "app in (a, b),team=x/y"), ("limit", "500")];
        assert_eq!(
            with_query("/v1", &query),
            "/v1?selector=app%20in%20%28a%2C%20b%29%2Cteam%3Dx%2Fy&limit=500"
        );
        assert_eq!(percent_encoded("a/b é"), "a%2Fb%20%C3%A9");
    }
}
