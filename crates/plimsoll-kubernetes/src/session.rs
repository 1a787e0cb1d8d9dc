//! [`Session`]: one HTTP/1.1 connection to the API server, which is dialed when it is needed.
//!
//! Each reflector has its own, so that a watch never waits for anything else. The server's address,
//! certificates and token are read again for each connection, the token for each request.
//! [`WatchStream`] ends a watch that is silent for too long.

use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HOST, RETRY_AFTER, USER_AGENT};
use http::{HeaderValue, Method, Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper::body::{Body as _, Incoming};
use plimsoll_serve::error_chain;
use plimsoll_serve::http_client::{HttpClient, read_body};
use tokio::time::timeout_at;

use crate::access::{ApiAccess, ApiServer};
use crate::objects::{ListJson, Status, WatchEventJson};
use crate::reflector::Failure;

/// Time until the response begins. The API server answers a watch at once.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(30);
/// Largest page: 500 slices with 100 endpoints each are 15 MB.
const MAX_PAGE_BYTES: usize = 64 << 20;
/// Largest event. etcd limits objects to 1.5 MB.
const MAX_EVENT_BYTES: usize = 8 << 20;
const MAX_STATUS_BYTES: usize = 64 << 10;
/// A connection to the API server.
#[derive(Debug)]
pub(crate) struct Session {
    access: ApiAccess,
    client: HttpClient,
    /// The server that the connection was opened to.
    server: Option<ApiServer>,
}

impl Session {
    pub(crate) fn new(access: ApiAccess) -> Self {
        Self {
            access,
            client: HttpClient::default(),
            server: None,
        }
    }

    /// Closes the connection; the next request dials again.
    pub(crate) fn close(&mut self) {
        self.client.close();
    }

    /// Requests one page of a list.
    pub(crate) async fn list(&mut self, target: &str) -> Result<ListJson, Failure> {
        let body = self.send_and_read(Method::GET, target, None).await?;
        serde_json::from_slice(&body)
            .map_err(|error| Failure::Transport(format!("invalid list: {error}")))
    }

    /// Begins a watch. It has to end at `deadline`: a connection that is open and silent beyond the
    /// `timeoutSeconds` of the request is half open.
    pub(crate) async fn watch(
        &mut self,
        target: &str,
        deadline: tokio::time::Instant,
    ) -> Result<WatchStream, Failure> {
        let response = self.send(Method::GET, target, None).await?;
        Ok(WatchStream {
            body: response.into_body(),
            deadline,
            buffer: Vec::new(),
            searched: 0,
        })
    }

    pub(crate) async fn send_and_read(
        &mut self,
        method: Method,
        target: &str,
        body: Option<(&'static str, Vec<u8>)>,
    ) -> Result<Bytes, Failure> {
        let response = self.send(method, target, body).await?;
        let body = read_body(response, MAX_PAGE_BYTES).await;
        body.map_err(Failure::Transport)
    }

    /// Sends a request; answers that are no success are failures.
    async fn send(
        &mut self,
        method: Method,
        target: &str,
        body: Option<(&'static str, Vec<u8>)>,
    ) -> Result<Response<Incoming>, Failure> {
        let is_ready = self.client.is_ready().await;
        let server = match self.server.take().filter(|_| is_ready) {
            Some(server) => server,
            None => self.connect().await?,
        };
        let request = request(&server, method, target, body);
        self.server = Some(server);
        let sent = self.client.send(request?, RESPONSE_TIMEOUT).await;
        let response = sent.map_err(Failure::Transport)?;
        if response.status().is_success() {
            return Ok(response);
        }
        let failure = failure(response).await;
        if matches!(&failure, Failure::Status { status, .. } if status.code == 401) {
            // Some proxies bind identities to connections: the next request dials again.
            self.close();
        }
        Err(failure)
    }

    async fn connect(&mut self) -> Result<ApiServer, Failure> {
        let server = self.access.resolve();
        let server = server.map_err(|error| Failure::Transport(error.to_string()))?;
        let connected = self.client.connect(&server.server).await;
        connected.map_err(Failure::Transport)?;
        Ok(server)
    }
}

/// The lines of a watch.
#[derive(Debug)]
pub(crate) struct WatchStream {
    body: Incoming,
    deadline: tokio::time::Instant,
    buffer: Vec<u8>,
    /// Bytes of the buffer that have no end of line.
    searched: usize,
}

impl WatchStream {
    /// Returns the next event; `None` when the server ended the watch.
    pub(crate) async fn next(&mut self) -> Result<Option<WatchEventJson>, Failure> {
        loop {
            if let Some(line) = self.line() {
                return serde_json::from_slice(&line)
                    .map(Some)
                    .map_err(|error| Failure::Transport(format!("invalid event: {error}")));
            }
            if self.buffer.len() > MAX_EVENT_BYTES {
                let reason = format!("event has more than {MAX_EVENT_BYTES} bytes");
                return Err(Failure::Transport(reason));
            }
            let frame = timeout_at(self.deadline, self.body.frame()).await;
            match frame {
                Err(_) => {
                    let reason = "watch is silent beyond its timeout: connection is half open";
                    return Err(Failure::Transport(reason.to_owned()));
                }
                Ok(None) => return Ok(None),
                Ok(Some(Err(error))) => return Err(transport(&error)),
                Ok(Some(Ok(frame))) => {
                    if let Some(data) = frame.data_ref() {
                        self.buffer.extend_from_slice(data);
                    }
                }
            }
        }
    }

    /// Whether the server has sent the whole body, so that the connection can be used again.
    pub(crate) fn is_finished(&self) -> bool {
        self.body.is_end_stream()
    }

    /// Takes a complete line that is not empty.
    fn line(&mut self) -> Option<Vec<u8>> {
        loop {
            let rest = &self.buffer[self.searched..];
            let Some(end) = rest.iter().position(|byte| *byte == b'\n') else {
                self.searched = self.buffer.len();
                return None;
            };
            let after = self.buffer.split_off(self.searched + end + 1);
            let line = std::mem::replace(&mut self.buffer, after);
            self.searched = 0;
            if !line.trim_ascii().is_empty() {
                return Some(line);
            }
        }
    }
}

fn request(
    server: &ApiServer,
    method: Method,
    target: &str,
    body: Option<(&'static str, Vec<u8>)>,
) -> Result<Request<Full<Bytes>>, Failure> {
    let token = server.token.read();
    let token = token.map_err(|error| Failure::Transport(error.to_string()))?;
    let target = format!("{}{target}", server.server.path_prefix);
    let mut builder = Request::builder()
        .method(method)
        .uri(target)
        .header(HOST, server.server.authority())
        .header(ACCEPT, "application/json")
        .header(USER_AGENT, concat!("plimsoll/", env!("CARGO_PKG_VERSION")));
    if let Some(token) = token {
        let mut value = HeaderValue::try_from(format!("Bearer {token}"))
            .map_err(|_| Failure::Transport("token is not a header value".to_owned()))?;
        value.set_sensitive(true);
        builder = builder.header(AUTHORIZATION, value);
    }
    let bytes = match body {
        None => Bytes::new(),
        Some((content_type, bytes)) => {
            builder = builder.header(CONTENT_TYPE, content_type);
            bytes.into()
        }
    };
    builder
        .body(Full::new(bytes))
        .map_err(|error| Failure::Transport(error.to_string()))
}

/// Reads an answer that is no success.
async fn failure(response: Response<Incoming>) -> Failure {
    let code = response.status().as_u16();
    let header = response.headers().get(RETRY_AFTER);
    let seconds = header.and_then(|value| value.to_str().ok()?.parse().ok());
    let retry_after = seconds.map(Duration::from_secs);
    let fallback = response.status().canonical_reason().unwrap_or_default();
    let body = read_body(response, MAX_STATUS_BYTES).await;
    let mut status: Status = body
        .ok()
        .and_then(|body| serde_json::from_slice(&body).ok())
        .unwrap_or_default();
    status.code = code;
    if status.reason.is_empty() {
        fallback.clone_into(&mut status.reason);
    }
    Failure::Status {
        status,
        retry_after,
    }
}

fn transport(error: &hyper::Error) -> Failure {
    Failure::Transport(error_chain(error))
}
