//! Envoy's substitution format strings: text with `%OPERATOR%`s, parsed once.
//!
//! Access logs render a format when a response has ended (`access_log::format`), header rules while
//! a request or response is forwarded ([`HeaderFormat`], `header_rules`).

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::SystemTime;

use http::{HeaderMap, HeaderName, HeaderValue, Method};

use crate::access_log::time::Rfc3339;
use crate::router::RequestView;

/// A literal text or an operator of a format string.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Piece {
    Literal(String),
    Operator(Operator),
}

/// An operator of a format string, written between two percent signs.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Operator {
    StartTime,
    Protocol,
    ResponseCode,
    ResponseFlags,
    BytesReceived,
    BytesSent,
    Duration,
    UpstreamHost,
    UpstreamCluster,
    RouteName,
    RemoteAddress,
    RemoteAddressWithoutPort,
    /// A request header, and the header to use if it is absent.
    Request(Field, Option<Field>),
    Response(HeaderName),
}

/// A request header or HTTP/2 pseudo-header.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Field {
    Method,
    Path,
    Authority,
    Scheme,
    Header(HeaderName),
}

const OPERATORS: [(&str, Operator); 12] = [
    ("START_TIME", Operator::StartTime),
    ("PROTOCOL", Operator::Protocol),
    ("RESPONSE_CODE", Operator::ResponseCode),
    ("RESPONSE_FLAGS", Operator::ResponseFlags),
    ("BYTES_RECEIVED", Operator::BytesReceived),
    ("BYTES_SENT", Operator::BytesSent),
    ("DURATION", Operator::Duration),
    ("UPSTREAM_HOST", Operator::UpstreamHost),
    ("UPSTREAM_CLUSTER", Operator::UpstreamCluster),
    ("ROUTE_NAME", Operator::RouteName),
    ("DOWNSTREAM_REMOTE_ADDRESS", Operator::RemoteAddress),
    (
        "DOWNSTREAM_REMOTE_ADDRESS_WITHOUT_PORT",
        Operator::RemoteAddressWithoutPort,
    ),
];

/// Reasons why a format string is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FormatError {
    #[error("operator %{0} is not terminated; write %% for a percent sign")]
    Unterminated(String),
    #[error("operator %{0}% is not supported")]
    Unsupported(String),
    #[error("{0:?} is not a valid header name")]
    HeaderName(String),
    #[error("operator %{0}% is only available in access logs: the response has not ended yet")]
    AccessLogOnly(&'static str),
}

pub(crate) fn parse(format: &str) -> Result<Vec<Piece>, FormatError> {
    let mut pieces = Vec::new();
    let mut rest = format;
    while let Some((literal, after)) = rest.split_once('%') {
        push_literal(&mut pieces, literal);
        if let Some(after) = after.strip_prefix('%') {
            push_literal(&mut pieces, "%");
            rest = after;
            continue;
        }
        let Some((operator, after)) = after.split_once('%') else {
            return Err(FormatError::Unterminated(after.to_owned()));
        };
        pieces.push(Piece::Operator(Operator::parse(operator)?));
        rest = after;
    }
    push_literal(&mut pieces, rest);
    Ok(pieces)
}

fn push_literal(pieces: &mut Vec<Piece>, text: &str) {
    match pieces.last_mut() {
        _ if text.is_empty() => {}
        Some(Piece::Literal(literal)) => literal.push_str(text),
        _ => pieces.push(Piece::Literal(text.to_owned())),
    }
}

impl Operator {
    fn parse(operator: &str) -> Result<Self, FormatError> {
        let argument = |name: &str| {
            let rest = operator.strip_prefix(name)?;
            rest.strip_prefix('(')?.strip_suffix(')')
        };
        if let Some(fields) = argument("REQ") {
            let (first, second) = match fields.split_once('?') {
                Some((first, second)) => (first, Some(Field::parse(second)?)),
                None => (fields, None),
            };
            return Ok(Self::Request(Field::parse(first)?, second));
        }
        if let Some(field) = argument("RESP") {
            return Ok(Self::Response(header_name(field)?));
        }
        let known = OPERATORS.iter().find(|(name, _)| *name == operator);
        known
            .map(|(_, operator)| operator.clone())
            .ok_or_else(|| FormatError::Unsupported(operator.to_owned()))
    }
}

fn header_name(name: &str) -> Result<HeaderName, FormatError> {
    HeaderName::from_bytes(name.as_bytes()).map_err(|_| FormatError::HeaderName(name.to_owned()))
}

impl Field {
    fn parse(name: &str) -> Result<Self, FormatError> {
        Ok(match name.to_ascii_lowercase().as_str() {
            ":method" => Self::Method,
            ":path" => Self::Path,
            ":authority" => Self::Authority,
            ":scheme" => Self::Scheme,
            _ => Self::Header(header_name(name)?),
        })
    }

    pub(crate) fn value(&self, request: &RequestView<'_>) -> Option<HeaderValue> {
        let text = match self {
            Self::Header(name) => return request.headers.get(name).cloned(),
            Self::Method => request.method.as_str(),
            Self::Path => request.path_and_query,
            Self::Authority => request.host,
            Self::Scheme => request.scheme,
        };
        HeaderValue::from_str(text).ok()
    }
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct HeaderFormat(Vec<Piece>);

/// Values of a request and its response that header formats can refer to.
#[derive(Clone, Debug)]
pub(crate) struct RequestInfo {
    /// Time at which the request arrived.
    pub(crate) start: SystemTime,
    pub(crate) protocol: &'static str,
    pub(crate) peer: SocketAddr,
    pub(crate) method: Method,
    pub(crate) path: String,
    pub(crate) authority: String,
    pub(crate) scheme: &'static str,
    /// Request headers as sent upstream.
    pub(crate) headers: HeaderMap,
    pub(crate) route: Arc<str>,
    pub(crate) cluster: Option<Arc<str>>,
    /// `None` until there is a response of the upstream.
    pub(crate) upstream_host: Option<SocketAddr>,
    pub(crate) status: Option<u16>,
}

impl HeaderFormat {
    /// Rejects operators that only access logs support: their value is known at the end.
    pub(crate) fn new(pieces: Vec<Piece>) -> Result<Self, FormatError> {
        for piece in &pieces {
            let late = match piece {
                Piece::Operator(Operator::ResponseFlags) => "RESPONSE_FLAGS",
                Piece::Operator(Operator::BytesReceived) => "BYTES_RECEIVED",
                Piece::Operator(Operator::BytesSent) => "BYTES_SENT",
                Piece::Operator(Operator::Duration) => "DURATION",
                _ => continue,
            };
            return Err(FormatError::AccessLogOnly(late));
        }
        Ok(Self(pieces))
    }

    /// Renders the header value; values that are not known yet are empty.
    pub(crate) fn value(&self, info: &RequestInfo, response: Option<&HeaderMap>) -> Vec<u8> {
        let mut value = Vec::new();
        for piece in &self.0 {
            match piece {
                Piece::Literal(text) => value.extend_from_slice(text.as_bytes()),
                Piece::Operator(Operator::Response(name)) => {
                    let field = response.and_then(|headers| headers.get(name));
                    value.extend_from_slice(field.map_or(b"", HeaderValue::as_bytes));
                }
                Piece::Operator(Operator::Request(first, second)) => {
                    let view = info.view();
                    let found = first.value(&view).or_else(|| second.as_ref()?.value(&view));
                    value.extend_from_slice(found.as_ref().map_or(b"", HeaderValue::as_bytes));
                }
                Piece::Operator(operator) => {
                    value.extend_from_slice(info.text(operator).as_bytes());
                }
            }
        }
        value
    }
}

impl RequestInfo {
    fn view(&self) -> RequestView<'_> {
        RequestView {
            host: &self.authority,
            path: "",
            path_and_query: &self.path,
            method: &self.method,
            scheme: self.scheme,
            headers: &self.headers,
        }
    }

    fn text(&self, operator: &Operator) -> String {
        let mut text = String::new();
        // Writing to a string cannot fail.
        let _ = match operator {
            Operator::StartTime => write!(text, "{}", Rfc3339(self.start)),
            Operator::Protocol => text.write_str(self.protocol),
            Operator::RouteName => text.write_str(&self.route),
            Operator::RemoteAddress => write!(text, "{}", self.peer),
            Operator::RemoteAddressWithoutPort => write!(text, "{}", self.peer.ip()),
            Operator::UpstreamCluster => text.write_str(self.cluster.as_deref().unwrap_or("")),
            Operator::UpstreamHost => self
                .upstream_host
                .map_or(Ok(()), |host| write!(text, "{host}")),
            Operator::ResponseCode => self
                .status
                .map_or(Ok(()), |status| write!(text, "{status}")),
            // `new` rejects these, or `HeaderFormat::value` renders them.
            Operator::ResponseFlags
            | Operator::BytesReceived
            | Operator::BytesSent
            | Operator::Duration
            | Operator::Request(..)
            | Operator::Response(_) => Ok(()),
        };
        text
    }
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use super::*;

    fn info() -> RequestInfo {
        let mut headers = HeaderMap::new();
        headers.insert("x-user", HeaderValue::from_static("u1"));
        RequestInfo {
            start: UNIX_EPOCH,
            protocol: "HTTP/2",
            peer: "1.2.3.4:5".parse().unwrap(),
            method: Method::GET,
            path: "/a?b".into(),
            authority: "h".into(),
            scheme: "https",
            headers,
            route: "r".into(),
            cluster: Some("c".into()),
            upstream_host: Some("5.6.7.8:9".parse().unwrap()),
            status: Some(204),
        }
    }

    fn value(format: &str) -> Result<String, FormatError> {
        let mut response = HeaderMap::new();
        response.insert("age", HeaderValue::from_static("7"));
        let format = HeaderFormat::new(parse(format)?)?;
        Ok(String::from_utf8(format.value(&info(), Some(&response))).unwrap())
    }

    #[test]
    fn operators_are_replaced() {
        for (format, expected) in [
            ("plain", "plain"),
            ("100%%", "100%"),
            ("%DOWNSTREAM_REMOTE_ADDRESS%", "1.2.3.4:5"),
            ("%DOWNSTREAM_REMOTE_ADDRESS_WITHOUT_PORT%", "1.2.3.4"),
            ("%PROTOCOL% %REQ(:METHOD)% %REQ(:path)%", "HTTP/2 GET /a?b"),
            ("%REQ(x-none?X-User)%", "u1"),
            ("%REQ(x-none)%", ""),
            ("<%REQ(:authority)%|%REQ(:scheme)%>", "<h|https>"),
            ("%UPSTREAM_HOST% of %UPSTREAM_CLUSTER%", "5.6.7.8:9 of c"),
            ("%RESPONSE_CODE%/%RESP(age)%", "204/7"),
            (
                "%ROUTE_NAME% at %START_TIME%",
                "r at 1970-01-01T00:00:00.000Z",
            ),
        ] {
            assert_eq!(value(format).unwrap(), expected, "{format}");
        }
    }

    #[test]
    fn invalid_formats_are_errors() {
        for (format, expected) in [
            ("%NO%", "%NO% is not supported"),
            ("50% off", "is not terminated"),
            ("%REQ(a b)%", "\"a b\" is not a valid header name"),
            ("%DURATION%", "%DURATION% is only available in"),
        ] {
            let error = value(format).unwrap_err().to_string();
            assert!(error.contains(expected), "{format}: {error}");
        }
    }
}
