//! Responses that the proxy generates itself: errors, redirects, direct responses.
//!
//! Status codes, bodies and response flags are those of Envoy, so that its dashboards and runbooks
//! apply unchanged. gRPC clients get a gRPC status instead of an HTTP error.

use bytes::Bytes;
use http::header::{CONNECTION, CONTENT_TYPE, LOCATION};
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use plimsoll_client::{Error, ErrorKind};

use crate::body::ProxyBody;
use crate::exchange::Exchange;
use crate::router::{PathMatcher, PathRedirect, Redirect, RequestView};
use crate::stream_timeouts::Expiry;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LocalReply {
    pub(crate) status: StatusCode,
    /// Envoy's response flags for the access log.
    pub(crate) flags: &'static str,
    pub(crate) body: &'static str,
}

impl LocalReply {
    const fn new(status: StatusCode, flags: &'static str, body: &'static str) -> Self {
        Self {
            status,
            flags,
            body,
        }
    }

    pub(crate) const NO_ROUTE: Self = Self::new(StatusCode::NOT_FOUND, "NR", "");
    pub(crate) const NO_CLUSTER: Self = Self::new(StatusCode::SERVICE_UNAVAILABLE, "NC", "");
    pub(crate) const BAD_REQUEST: Self = Self::new(StatusCode::BAD_REQUEST, "DPE", "Bad Request");
    /// A transfer coding besides `chunked` (RFC 9112, 6.1).
    pub(crate) const NOT_IMPLEMENTED: Self = Self::new(StatusCode::NOT_IMPLEMENTED, "DPE", "");
    pub(crate) const UPSTREAM_PROTOCOL_ERROR: Self = Self::new(
        StatusCode::BAD_GATEWAY,
        "UPE",
        "upstream connect error or disconnect/reset before headers. reset reason: protocol error",
    );
    pub(crate) const UPGRADE_REFUSED: Self = Self::new(StatusCode::FORBIDDEN, "", "");
    pub(crate) const TOO_LARGE: Self =
        Self::new(StatusCode::PAYLOAD_TOO_LARGE, "", "Payload Too Large");

    pub(crate) const RATE_LIMITED: Self =
        Self::new(StatusCode::TOO_MANY_REQUESTS, "RL", "local_rate_limited");
    pub(crate) const OVERLOADED: Self =
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "OM", "envoy overloaded");
    pub(crate) const HEALTHY: Self = Self::new(StatusCode::OK, "", "");
    pub(crate) const DRAINING: Self = Self::new(StatusCode::SERVICE_UNAVAILABLE, "LH", "");
    pub(crate) const TOO_MANY_HEADERS: Self =
        Self::new(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, "DPE", "");

    /// The reply to a request whose limit expired before a response. As in Envoy, a client that is
    /// still sending gets 408.
    pub(crate) const fn from_expiry(expiry: Expiry, request_ended: bool) -> Self {
        let (status, body) = match (expiry, request_ended) {
            (Expiry::Timeout, _) => (StatusCode::GATEWAY_TIMEOUT, "upstream request timeout"),
            (Expiry::Idle, true) => (StatusCode::GATEWAY_TIMEOUT, "stream timeout"),
            (Expiry::Idle, false) => (StatusCode::REQUEST_TIMEOUT, "stream timeout"),
            (Expiry::Request, _) => (StatusCode::REQUEST_TIMEOUT, "request timeout"),
            (Expiry::MaxDuration, _) => {
                (StatusCode::REQUEST_TIMEOUT, "downstream duration timeout")
            }
        };
        Self::new(status, expiry.flags(), body)
    }

    pub(crate) fn from_client_error(error: &Error) -> Self {
        const UNAVAILABLE: StatusCode = StatusCode::SERVICE_UNAVAILABLE;
        match error.kind() {
            ErrorKind::UnknownCluster => Self::NO_CLUSTER,
            ErrorKind::NoHost | ErrorKind::Discovery => {
                Self::new(UNAVAILABLE, "UH", "no healthy upstream")
            }
            ErrorKind::Dropped => Self::new(UNAVAILABLE, "DO", "drop overload"),
            ErrorKind::Overflow => Self::new(
                UNAVAILABLE,
                "UO",
                "upstream connect error or disconnect/reset before headers. reset reason: overflow",
            ),
            ErrorKind::Connect => Self::new(
                UNAVAILABLE,
                "UF",
                "upstream connect error or disconnect/reset before headers. \
                 reset reason: remote connection failure",
            ),
            ErrorKind::Timeout => Self::new(
                StatusCode::GATEWAY_TIMEOUT,
                "UT",
                "upstream request timeout",
            ),
            _ if is_invalid_response(error) => Self::UPSTREAM_PROTOCOL_ERROR,
            _ => Self::new(
                UNAVAILABLE,
                "UC",
                "upstream connect error or disconnect/reset before headers. \
                 reset reason: connection termination",
            ),
        }
    }

    /// Builds the response; for gRPC requests it is trailers-only.
    pub(crate) fn response(self, grpc: bool, mut exchange: Exchange) -> Response<ProxyBody> {
        exchange.update_log(|outcome| outcome.flags = self.flags);
        let mut response = Response::new(());
        let mut body = Bytes::from_static(self.body.as_bytes());
        if grpc {
            let headers = response.headers_mut();
            headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
            headers.insert("grpc-status", HeaderValue::from_static(self.grpc_status()));
            if !self.body.is_empty() {
                headers.insert("grpc-message", HeaderValue::from_static(self.body));
            }
            body = Bytes::new();
        } else {
            *response.status_mut() = self.status;
            if !body.is_empty() {
                let kind = HeaderValue::from_static("text/plain");
                response.headers_mut().insert(CONTENT_TYPE, kind);
            }
        }
        if self.closes_connection() && !exchange.connection().is_http2() {
            let close = HeaderValue::from_static("close");
            response.headers_mut().insert(CONNECTION, close);
        }
        exchange.record_response(&response);
        response.map(|()| ProxyBody::local(body, exchange))
    }

    /// Whether an HTTP/1.1 connection is closed after this reply: the end of a malformed request is
    /// not known, and a client may send bytes of its new protocol before the upgrade is accepted.
    fn closes_connection(self) -> bool {
        [
            Self::BAD_REQUEST,
            Self::NOT_IMPLEMENTED,
            Self::UPGRADE_REFUSED,
        ]
        .contains(&self)
    }

    /// Maps the HTTP status to a gRPC status code, as gRPC specifies.
    const fn grpc_status(self) -> &'static str {
        match self.status.as_u16() {
            400 => "13",
            401 => "16",
            403 => "7",
            404 => "12",
            429 | 502 | 503 | 504 => "14",
            _ => "2",
        }
    }
}

/// Whether a request failed because its response cannot be parsed.
fn is_invalid_response(error: &Error) -> bool {
    let mut causes =
        std::iter::successors(std::error::Error::source(error), |cause| cause.source());
    causes.any(|cause| {
        let cause = cause.downcast_ref::<hyper::Error>();
        cause.is_some_and(hyper::Error::is_parse)
    })
}

/// Returns the `location` of a redirect; `None` if the result is not a valid header value.
pub(crate) fn location(
    redirect: &Redirect,
    matched: &PathMatcher,
    request: &RequestView<'_>,
) -> Option<HeaderValue> {
    let scheme = redirect.scheme.as_deref().unwrap_or(request.scheme);
    let (own_host, own_port) = split_port(request.host);
    let host = redirect.host.as_deref().unwrap_or(own_host);
    let kept = redirect.host.is_none() && redirect.scheme.is_none();
    let port = match redirect.port {
        Some(port) => format!(":{port}"),
        None if kept => own_port.map(|port| format!(":{port}")).unwrap_or_default(),
        None => String::new(),
    };
    let path = match &redirect.path {
        PathRedirect::Keep => request.path.to_owned(),
        PathRedirect::Replace(path) => path.clone(),
        PathRedirect::Prefix(prefix) => matched.rewrite(request.path, prefix),
    };
    let query = match request.path_and_query.split_once('?') {
        Some((_, query)) if !redirect.strip_query && !path.contains('?') => format!("?{query}"),
        _ => String::new(),
    };
    HeaderValue::try_from(format!("{scheme}://{host}{port}{path}{query}")).ok()
}

fn split_port(host: &str) -> (&str, Option<&str>) {
    match host.rsplit_once(':') {
        Some((name, port)) if !port.is_empty() && !port.ends_with(']') => (name, Some(port)),
        _ => (host, None),
    }
}

/// Answers a preflight request of CORS.
pub(crate) fn preflight(headers: HeaderMap, mut exchange: Exchange) -> Response<ProxyBody> {
    let mut response = Response::new(());
    *response.headers_mut() = headers;
    exchange.record_response(&response);
    response.map(|()| ProxyBody::local(Bytes::new(), exchange))
}

pub(crate) fn redirect(
    status: StatusCode,
    location: Option<HeaderValue>,
    mut exchange: Exchange,
) -> Response<ProxyBody> {
    let Some(location) = location else {
        return LocalReply::BAD_REQUEST.response(false, exchange);
    };
    let mut response = Response::new(());
    *response.status_mut() = status;
    response.headers_mut().insert(LOCATION, location);
    exchange.record_response(&response);
    response.map(|()| ProxyBody::local(Bytes::new(), exchange))
}

#[cfg(test)]
mod tests {
    use http::{HeaderMap, Method};

    use super::*;

    #[test]
    fn redirects_change_what_they_name() {
        let headers = HeaderMap::new();
        let request = RequestView {
            host: "a.example:8080",
            path: "/old/x",
            path_and_query: "/old/x?q=1",
            method: &Method::GET,
            scheme: "http",
            headers: &headers,
        };
        let matched = PathMatcher::Prefix("/old".into());
        let to = |redirect: Redirect| {
            let location = location(&redirect, &matched, &request).unwrap();
            location.to_str().unwrap().to_owned()
        };
        let none = Redirect::default;
        assert_eq!(to(none()), "http://a.example:8080/old/x?q=1");
        let scheme = Some("https".to_owned());
        assert_eq!(
            to(Redirect { scheme, ..none() }),
            "https://a.example/old/x?q=1"
        );
        let host = Some("b".to_owned());
        assert_eq!(to(Redirect { host, ..none() }), "http://b/old/x?q=1");
        let port = Some(1);
        assert_eq!(
            to(Redirect { port, ..none() }),
            "http://a.example:1/old/x?q=1"
        );
        let path = PathRedirect::Prefix("/new".into());
        let strip_query = true;
        let changed = Redirect {
            path,
            strip_query,
            ..none()
        };
        assert_eq!(to(changed), "http://a.example:8080/new/x");
    }

    #[test]
    fn ports_are_found_behind_names_and_addresses() {
        assert_eq!(split_port("a:1"), ("a", Some("1")));
        assert_eq!(split_port("[::1]:1"), ("[::1]", Some("1")));
        assert_eq!(split_port("[::1]"), ("[::1]", None));
        assert_eq!(split_port("a"), ("a", None));
    }

    #[test]
    fn only_redirects_of_the_path_keep_the_port_and_only_one_query_is_sent() {
        let headers = HeaderMap::new();
        let request = RequestView {
            host: "a:8080",
            path: "/old",
            path_and_query: "/old?q=1",
            method: &Method::GET,
            scheme: "http",
            headers: &headers,
        };
        let matched = PathMatcher::Prefix("/old".into());
        let to = |redirect: Redirect| {
            let location = location(&redirect, &matched, &request).unwrap();
            location.to_str().unwrap().to_owned()
        };
        let path = |path: &str| Redirect {
            path: PathRedirect::Replace(path.to_owned()),
            ..Redirect::default()
        };
        assert_eq!(to(path("/new")), "http://a:8080/new?q=1");
        assert_eq!(to(path("/new?own=2")), "http://a:8080/new?own=2");
        let host_and_port = Redirect {
            host: Some("b".to_owned()),
            port: Some(81),
            strip_query: true,
            ..Redirect::default()
        };
        assert_eq!(to(host_and_port), "http://b:81/old");
        assert_eq!(location(&path("/\n"), &matched, &request), None);
        assert_eq!(split_port("a:"), ("a:", None));
    }

    #[test]
    fn expired_requests_get_408_while_they_are_sent_and_504_afterwards() {
        let reply = |expiry, ended| {
            let reply = LocalReply::from_expiry(expiry, ended);
            (reply.status.as_u16(), reply.flags, reply.body)
        };
        for ended in [false, true] {
            let timeout = (504, "UT", "upstream request timeout");
            assert_eq!(reply(Expiry::Timeout, ended), timeout);
            let idle = if ended { 504 } else { 408 };
            assert_eq!(reply(Expiry::Idle, ended), (idle, "SI", "stream timeout"));
            assert_eq!(reply(Expiry::Request, ended), (408, "", "request timeout"));
            let duration = (408, "DT", "downstream duration timeout");
            assert_eq!(reply(Expiry::MaxDuration, ended), duration);
        }
    }

    #[test]
    fn http_statuses_are_mapped_to_grpc() {
        let status = |code| {
            let status = StatusCode::from_u16(code).unwrap();
            LocalReply::new(status, "", "").grpc_status()
        };
        let codes = [400, 401, 403, 404, 429, 502, 503, 504, 500, 413];
        let expected = ["13", "16", "7", "12", "14", "14", "14", "14", "2", "2"];
        assert_eq!(codes.map(status), expected);
    }

    fn exchange(http2: bool) -> Exchange {
        let connection = crate::connection::tests::connection();
        connection.set_protocol(http2);
        Exchange::begin(
            connection,
            None,
            http::Version::HTTP_11,
            &Default::default(),
        )
    }

    async fn body(response: Response<ProxyBody>) -> Bytes {
        use http_body_util::BodyExt as _;
        response.into_body().collect().await.unwrap().to_bytes()
    }

    #[tokio::test]
    async fn replies_have_a_text_or_a_grpc_status() {
        let response = LocalReply::RATE_LIMITED.response(false, exchange(false));
        assert_eq!(response.status(), 429);
        assert_eq!(response.headers()[CONTENT_TYPE], "text/plain");
        assert!(!response.headers().contains_key(CONNECTION));
        assert_eq!(body(response).await, "local_rate_limited");
        let empty = LocalReply::NO_ROUTE.response(false, exchange(false));
        assert_eq!((empty.status().as_u16(), empty.headers().len()), (404, 0));

        let grpc = LocalReply::RATE_LIMITED.response(true, exchange(true));
        assert_eq!(grpc.status(), 200);
        assert_eq!(grpc.headers()[CONTENT_TYPE], "application/grpc");
        assert_eq!(grpc.headers()["grpc-status"], "14");
        assert_eq!(grpc.headers()["grpc-message"], "local_rate_limited");
        assert_eq!(body(grpc).await, "");
        let silent = LocalReply::NO_ROUTE.response(true, exchange(true));
        assert_eq!(silent.headers()["grpc-status"], "12");
        assert!(!silent.headers().contains_key("grpc-message"));
    }

    #[tokio::test]
    async fn malformed_requests_close_http1_connections() {
        let response = LocalReply::BAD_REQUEST.response(false, exchange(false));
        assert_eq!(response.headers()[CONNECTION], "close");
        let response = LocalReply::BAD_REQUEST.response(false, exchange(true));
        assert!(!response.headers().contains_key(CONNECTION));
        let response = redirect(StatusCode::FOUND, None, exchange(false));
        assert_eq!(response.status(), 400);
        let there = HeaderValue::from_static("/there");
        let response = redirect(StatusCode::FOUND, Some(there), exchange(false));
        assert_eq!(response.status(), 302);
        assert_eq!(response.headers()[LOCATION], "/there");
    }

    #[tokio::test]
    async fn replies_are_counted_when_they_end() {
        let exchange = exchange(false);
        let connection = std::sync::Arc::clone(exchange.connection());
        let counter = |name: &str| {
            let mut counters = connection.stats.iter();
            counters.find(|(known, _)| *known == name).unwrap().1
        };
        let response = LocalReply::NO_CLUSTER.response(false, exchange);
        assert_eq!(counter("downstream_rq_active"), 1);
        drop(response);
        assert_eq!(counter("downstream_rq_active"), 0);
        assert_eq!(counter("downstream_rq_5xx"), 1);
    }
}
