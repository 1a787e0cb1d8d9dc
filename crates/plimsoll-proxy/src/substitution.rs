//! Envoy's substitution format: text with `%OPERATOR%`s in it, read once.
//!
//! Access logs fill it in when a response has ended (`access_log::format`), header rules while a
//! request or its response passes ([`HeaderFormat`], `header_rules`).

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::SystemTime;

use http::{HeaderMap, HeaderName, HeaderValue, Method};

use crate::access_log::time::Rfc3339;
use crate::router::RequestView;

/// A part of a format.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Piece {
    /// As it stands.
    Literal(String),
    /// What it stands for.
    Operator(Operator),
}

/// What stands between two percent signs.
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
    /// A field of the request, and another in its place.
    Request(Field, Option<Field>),
    /// A field of the response.
    Response(HeaderName),
}

/// A header field or what HTTP/2 writes as one.
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

/// Reads a format; the error says which operator is not known.
pub(crate) fn parse(format: &str) -> Result<Vec<Piece>, String> {
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
            return Err(format!("%{after} has no end; write %% for a percent sign"));
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
    fn parse(operator: &str) -> Result<Self, String> {
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
            let name = HeaderName::from_bytes(field.as_bytes());
            let name = name.map_err(|_| format!("{field:?} is not a field"))?;
            return Ok(Self::Response(name));
        }
        let known = OPERATORS.iter().find(|(name, _)| *name == operator);
        known
            .map(|(_, operator)| operator.clone())
            .ok_or_else(|| format!("%{operator}% is not supported"))
    }
}

impl Field {
    fn parse(name: &str) -> Result<Self, String> {
        Ok(match name.to_ascii_lowercase().as_str() {
            ":method" => Self::Method,
            ":path" => Self::Path,
            ":authority" => Self::Authority,
            ":scheme" => Self::Scheme,
            other => Self::Header(
                HeaderName::from_bytes(other.as_bytes())
                    .map_err(|_| format!("{name:?} is not a field"))?,
            ),
        })
    }

    /// Its value in a request.
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

/// The value of a header field that is made for each message.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct HeaderFormat(Vec<Piece>);

/// What is known of a request while it and its response pass, for those that such values are made
/// for.
#[derive(Clone, Debug)]
pub(crate) struct Facts {
    /// When the request came.
    pub(crate) start: SystemTime,
    pub(crate) protocol: &'static str,
    pub(crate) peer: SocketAddr,
    pub(crate) method: Method,
    pub(crate) path: String,
    pub(crate) authority: String,
    pub(crate) scheme: &'static str,
    /// Fields of the request as it goes upstream.
    pub(crate) headers: HeaderMap,
    pub(crate) route: Arc<str>,
    pub(crate) cluster: Option<Arc<str>>,
    /// With the response.
    pub(crate) upstream_host: Option<SocketAddr>,
    pub(crate) status: Option<u16>,
}

impl HeaderFormat {
    /// A format without operators that only the end of a response answers.
    pub(crate) fn new(pieces: Vec<Piece>) -> Result<Self, String> {
        for piece in &pieces {
            let late = match piece {
                Piece::Operator(Operator::ResponseFlags) => "RESPONSE_FLAGS",
                Piece::Operator(Operator::BytesReceived) => "BYTES_RECEIVED",
                Piece::Operator(Operator::BytesSent) => "BYTES_SENT",
                Piece::Operator(Operator::Duration) => "DURATION",
                _ => continue,
            };
            return Err(format!(
                "%{late}% is known only when the response has ended"
            ));
        }
        Ok(Self(pieces))
    }

    /// The value; what is not known is empty. `response` has the fields of the response, if there
    /// is one.
    pub(crate) fn value(&self, facts: &Facts, response: Option<&HeaderMap>) -> Vec<u8> {
        let mut value = Vec::new();
        for piece in &self.0 {
            match piece {
                Piece::Literal(text) => value.extend_from_slice(text.as_bytes()),
                Piece::Operator(Operator::Response(name)) => {
                    let field = response.and_then(|headers| headers.get(name));
                    value.extend_from_slice(field.map_or(b"", HeaderValue::as_bytes));
                }
                Piece::Operator(Operator::Request(first, second)) => {
                    let view = facts.view();
                    let found = first.value(&view);
                    let found = found.or_else(|| second.as_ref()?.value(&view));
                    value.extend_from_slice(found.as_ref().map_or(b"", HeaderValue::as_bytes));
                }
                Piece::Operator(operator) => {
                    value.extend_from_slice(facts.text(operator).as_bytes());
                }
            }
        }
        value
    }
}

impl Facts {
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
        // Writing to a string does not fail.
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
            // Refused, or made of fields.
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

    fn facts() -> Facts {
        let mut headers = HeaderMap::new();
        headers.insert("x-user", HeaderValue::from_static("u1"));
        Facts {
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

    fn value(format: &str) -> Result<String, String> {
        let mut response = HeaderMap::new();
        response.insert("age", HeaderValue::from_static("7"));
        let format = HeaderFormat::new(parse(format)?)?;
        Ok(String::from_utf8(format.value(&facts(), Some(&response))).unwrap())
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
            assert_eq!(value(format).as_deref(), Ok(expected), "{format}");
        }
    }

    #[test]
    fn what_is_not_known_is_an_error() {
        for (format, expected) in [
            ("%NO%", "%NO% is not supported"),
            ("50% off", "has no end"),
            ("%REQ(a b)%", "\"a b\" is not a field"),
            ("%DURATION%", "%DURATION% is known only when"),
        ] {
            let error = value(format).unwrap_err();
            assert!(error.contains(expected), "{format}: {error}");
        }
    }
}
