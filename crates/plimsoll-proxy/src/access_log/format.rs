//! [`LogFormat`]: what a line looks like, with Envoy's command operators.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use http::{HeaderMap, HeaderName, HeaderValue};

use super::time::Rfc3339;
use super::{Outcome, Pending};
use crate::router::RequestView;

/// Envoy's default, without the upstream's service time, which we do not add.
const DEFAULT: &str = "[%START_TIME%] \"%REQ(:METHOD)% %REQ(X-ENVOY-ORIGINAL-PATH?:PATH)% \
     %PROTOCOL%\" %RESPONSE_CODE% %RESPONSE_FLAGS% %BYTES_RECEIVED% %BYTES_SENT% %DURATION% \
     %RESP(X-ENVOY-UPSTREAM-SERVICE-TIME)% \"%REQ(X-FORWARDED-FOR)%\" \"%REQ(USER-AGENT)%\" \
     \"%REQ(X-REQUEST-ID)%\" \"%REQ(:AUTHORITY)%\" \"%UPSTREAM_HOST%\"\n";

/// Keys of a JSON line and the format of their values.
pub type JsonTemplate = BTreeMap<String, String>;

/// What a line looks like.
#[derive(Clone, Debug, PartialEq)]
pub struct LogFormat {
    shape: Shape,
    /// What is remembered of a request: a field, and another in its place.
    request: Vec<(Field, Option<Field>)>,
    response: Vec<HeaderName>,
}

#[derive(Clone, Debug, PartialEq)]
enum Shape {
    Text(Vec<Part>),
    Json(Vec<(String, Vec<Part>)>),
}

#[derive(Clone, Debug, PartialEq)]
enum Part {
    Literal(String),
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
    Request(usize),
    Response(usize),
}

/// A header field or what HTTP/2 writes as one.
#[derive(Clone, Debug, PartialEq)]
enum Field {
    Method,
    Path,
    Authority,
    Scheme,
    Header(HeaderName),
}

impl Default for LogFormat {
    fn default() -> Self {
        Self::text(DEFAULT).unwrap_or_else(|_| Self::empty(Shape::Text(Vec::new())))
    }
}

impl LogFormat {
    fn empty(shape: Shape) -> Self {
        Self {
            shape,
            request: Vec::new(),
            response: Vec::new(),
        }
    }

    /// A line of text; the error says which operator is not known.
    pub fn text(format: &str) -> Result<Self, String> {
        let mut built = Self::empty(Shape::Text(Vec::new()));
        let parts = built.parts(format)?;
        built.shape = Shape::Text(parts);
        Ok(built)
    }

    /// A line of JSON.
    pub fn json(template: &JsonTemplate) -> Result<Self, String> {
        let mut built = Self::empty(Shape::Json(Vec::new()));
        let mut fields = Vec::new();
        for (key, format) in template {
            fields.push((key.clone(), built.parts(format)?));
        }
        built.shape = Shape::Json(fields);
        Ok(built)
    }

    fn parts(&mut self, format: &str) -> Result<Vec<Part>, String> {
        let mut parts = Vec::new();
        let mut rest = format;
        while let Some((literal, after)) = rest.split_once('%') {
            push_literal(&mut parts, literal);
            if let Some(after) = after.strip_prefix('%') {
                push_literal(&mut parts, "%");
                rest = after;
                continue;
            }
            let Some((operator, after)) = after.split_once('%') else {
                return Err(format!("%{after} has no end"));
            };
            parts.push(self.operator(operator)?);
            rest = after;
        }
        push_literal(&mut parts, rest);
        Ok(parts)
    }

    fn operator(&mut self, operator: &str) -> Result<Part, String> {
        let argument = |name: &str| {
            let rest = operator.strip_prefix(name)?;
            rest.strip_prefix('(')?.strip_suffix(')')
        };
        if let Some(fields) = argument("REQ") {
            let (first, second) = match fields.split_once('?') {
                Some((first, second)) => (first, Some(Field::parse(second)?)),
                None => (fields, None),
            };
            self.request.push((Field::parse(first)?, second));
            return Ok(Part::Request(self.request.len() - 1));
        }
        if let Some(field) = argument("RESP") {
            let name = HeaderName::from_bytes(field.as_bytes());
            self.response
                .push(name.map_err(|_| format!("{field:?} is not a field"))?);
            return Ok(Part::Response(self.response.len() - 1));
        }
        Ok(match operator {
            "START_TIME" => Part::StartTime,
            "PROTOCOL" => Part::Protocol,
            "RESPONSE_CODE" => Part::ResponseCode,
            "RESPONSE_FLAGS" => Part::ResponseFlags,
            "BYTES_RECEIVED" => Part::BytesReceived,
            "BYTES_SENT" => Part::BytesSent,
            "DURATION" => Part::Duration,
            "UPSTREAM_HOST" => Part::UpstreamHost,
            "UPSTREAM_CLUSTER" => Part::UpstreamCluster,
            "ROUTE_NAME" => Part::RouteName,
            "DOWNSTREAM_REMOTE_ADDRESS" => Part::RemoteAddress,
            "DOWNSTREAM_REMOTE_ADDRESS_WITHOUT_PORT" => Part::RemoteAddressWithoutPort,
            _ => return Err(format!("%{operator}% is not supported")),
        })
    }

    /// What is remembered of a request.
    pub(super) fn capture_request(&self, request: &RequestView<'_>) -> Vec<Option<HeaderValue>> {
        let fields = self.request.iter();
        let capture = |(first, second): &(Field, Option<Field>)| {
            let found = first.value(request);
            found.or_else(|| second.as_ref()?.value(request))
        };
        fields.map(capture).collect()
    }

    /// What is remembered of a response.
    pub(super) fn capture_response(&self, headers: &HeaderMap) -> Vec<Option<HeaderValue>> {
        let names = self.response.iter();
        names.map(|name| headers.get(name).cloned()).collect()
    }

    /// The line.
    pub(super) fn line(&self, pending: &Pending, outcome: &Outcome) -> Vec<u8> {
        match &self.shape {
            Shape::Text(parts) => {
                let mut line = String::with_capacity(256);
                for part in parts {
                    part.write(pending, outcome, &mut line);
                }
                line.into_bytes()
            }
            Shape::Json(fields) => {
                let mut object = serde_json::Map::new();
                for (key, parts) in fields {
                    object.insert(key.clone(), json_value(parts, pending, outcome));
                }
                let mut line = serde_json::to_vec(&object).unwrap_or_default();
                line.push(b'\n');
                line
            }
        }
    }
}

fn push_literal(parts: &mut Vec<Part>, text: &str) {
    match parts.last_mut() {
        _ if text.is_empty() => {}
        Some(Part::Literal(literal)) => literal.push_str(text),
        _ => parts.push(Part::Literal(text.to_owned())),
    }
}

/// A number stays one, and what is not there is null.
fn json_value(parts: &[Part], pending: &Pending, outcome: &Outcome) -> serde_json::Value {
    let millis = || u64::try_from(outcome.duration.as_millis()).unwrap_or(u64::MAX);
    match parts {
        [Part::ResponseCode] => outcome.status.into(),
        [Part::BytesReceived] => outcome.bytes_received.into(),
        [Part::BytesSent] => outcome.bytes_sent.into(),
        [Part::Duration] => millis().into(),
        _ => {
            let mut text = String::new();
            for part in parts {
                part.write(pending, outcome, &mut text);
            }
            match (parts, text.as_str()) {
                ([one], "-") if !matches!(one, Part::Literal(_)) => serde_json::Value::Null,
                _ => text.into(),
            }
        }
    }
}

impl Part {
    fn write(&self, pending: &Pending, outcome: &Outcome, line: &mut String) {
        let dash = |line: &mut String, value: Option<&HeaderValue>| match value {
            // What is not text, or would break a line, is escaped.
            Some(value) => line.push_str(&String::from_utf8_lossy(value.as_bytes())),
            None => line.push('-'),
        };
        // Writing to a string does not fail.
        let _ = match self {
            Self::Literal(text) => line.write_str(text),
            Self::StartTime => write!(line, "{}", Rfc3339(pending.start)),
            Self::Protocol => line.write_str(outcome.protocol),
            Self::ResponseCode => write!(line, "{}", outcome.status),
            Self::ResponseFlags if outcome.flags.is_empty() => line.write_str("-"),
            Self::ResponseFlags => line.write_str(outcome.flags),
            Self::BytesReceived => write!(line, "{}", outcome.bytes_received),
            Self::BytesSent => write!(line, "{}", outcome.bytes_sent),
            Self::Duration => write!(line, "{}", outcome.duration.as_millis()),
            Self::UpstreamHost => match outcome.upstream_host {
                Some(host) => write!(line, "{host}"),
                None => line.write_str("-"),
            },
            Self::UpstreamCluster => line.write_str(outcome.cluster.as_deref().unwrap_or("-")),
            Self::RouteName if outcome.route.is_empty() => line.write_str("-"),
            Self::RouteName => line.write_str(&outcome.route),
            Self::RemoteAddress => match outcome.peer {
                Some(peer) => write!(line, "{peer}"),
                None => line.write_str("-"),
            },
            Self::RemoteAddressWithoutPort => match outcome.peer {
                Some(peer) => write!(line, "{}", peer.ip()),
                None => line.write_str("-"),
            },
            Self::Request(index) => {
                dash(line, pending.request.get(*index).and_then(Option::as_ref));
                Ok(())
            }
            Self::Response(index) => {
                dash(line, pending.response.get(*index).and_then(Option::as_ref));
                Ok(())
            }
        };
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

    fn value(&self, request: &RequestView<'_>) -> Option<HeaderValue> {
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
