//! [`LogFormat`]: format of access log lines. The operators are in `substitution`.

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};

use http::{HeaderMap, HeaderName, HeaderValue};

use super::time::Rfc3339;
use super::{Outcome, PendingEntry};
use crate::router::RequestView;
use crate::substitution::{self, Field, FormatError, Operator, Piece};

/// Format of lines whose log sets none, as in Envoy.
const DEFAULT: &str = "[%START_TIME%] \"%REQ(:METHOD)% %REQ(X-ENVOY-ORIGINAL-PATH?:PATH)% \
     %PROTOCOL%\" %RESPONSE_CODE% %RESPONSE_FLAGS% %BYTES_RECEIVED% %BYTES_SENT% %DURATION% \
     %RESP(X-ENVOY-UPSTREAM-SERVICE-TIME)% \"%REQ(X-FORWARDED-FOR)%\" \"%REQ(USER-AGENT)%\" \
     \"%REQ(X-REQUEST-ID)%\" \"%REQ(:AUTHORITY)%\" \"%UPSTREAM_HOST%\"\n";

/// Keys of a JSON line with the format of each value.
pub type JsonTemplate = BTreeMap<String, String>;

/// Format of access log lines, text or JSON.
#[derive(Clone, Debug, PartialEq)]
pub struct LogFormat {
    shape: Shape,
    /// Request headers to capture, each with the header to use if it is absent.
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
    Operator(Operator),
    Request(usize),
    Response(usize),
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

    /// Parses a text format, which should end with a line break.
    pub fn text(format: &str) -> Result<Self, FormatError> {
        let mut built = Self::empty(Shape::Text(Vec::new()));
        let parts = built.parts(format)?;
        built.shape = Shape::Text(parts);
        Ok(built)
    }

    /// Parses a JSON format: each line is an object with these keys.
    pub fn json(template: &JsonTemplate) -> Result<Self, FormatError> {
        let mut built = Self::empty(Shape::Json(Vec::new()));
        let mut fields = Vec::new();
        for (key, format) in template {
            fields.push((key.clone(), built.parts(format)?));
        }
        built.shape = Shape::Json(fields);
        Ok(built)
    }

    fn parts(&mut self, format: &str) -> Result<Vec<Part>, FormatError> {
        let pieces = substitution::parse(format)?.into_iter();
        let parts = pieces.map(|piece| match piece {
            Piece::Literal(text) => Part::Literal(text),
            Piece::Operator(Operator::Request(first, second)) => {
                self.request.push((first, second));
                Part::Request(self.request.len() - 1)
            }
            Piece::Operator(Operator::Response(name)) => {
                self.response.push(name);
                Part::Response(self.response.len() - 1)
            }
            Piece::Operator(operator) => Part::Operator(operator),
        });
        Ok(parts.collect())
    }

    pub(super) fn capture_request(&self, request: &RequestView<'_>) -> Vec<Option<HeaderValue>> {
        let fields = self.request.iter();
        let capture = |(first, second): &(Field, Option<Field>)| {
            let found = first.value(request);
            found.or_else(|| second.as_ref()?.value(request))
        };
        fields.map(capture).collect()
    }

    pub(super) fn capture_response(&self, headers: &HeaderMap) -> Vec<Option<HeaderValue>> {
        let names = self.response.iter();
        names.map(|name| headers.get(name).cloned()).collect()
    }

    pub(super) fn line(&self, pending: &PendingEntry, outcome: &Outcome) -> Vec<u8> {
        match &self.shape {
            Shape::Text(parts) => {
                let mut line = String::with_capacity(256);
                for part in parts {
                    match part.header(pending) {
                        Some(value) => write_escaped(value, &mut line),
                        None => part.write(pending, outcome, &mut line),
                    }
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

/// Renders a JSON value: a single numeric operator is a number, a missing value is null.
fn json_value(parts: &[Part], pending: &PendingEntry, outcome: &Outcome) -> serde_json::Value {
    let millis = || u64::try_from(outcome.duration.as_millis()).unwrap_or(u64::MAX);
    match parts {
        [Part::Operator(Operator::ResponseCode)] => outcome.status.into(),
        [Part::Operator(Operator::BytesReceived)] => outcome.bytes_received.into(),
        [Part::Operator(Operator::BytesSent)] => outcome.bytes_sent.into(),
        [Part::Operator(Operator::Duration)] => millis().into(),
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

/// Writes a header value to a text line. Quotes and backslashes are escaped, so that a client
/// cannot forge the fields after a quoted value.
fn write_escaped(value: &HeaderValue, line: &mut String) {
    for c in String::from_utf8_lossy(value.as_bytes()).chars() {
        if matches!(c, '"' | '\\') {
            line.push('\\');
        }
        line.push(c);
    }
}

impl Part {
    /// Returns the header value that this part prints, if the message has that header.
    fn header<'a>(&self, pending: &'a PendingEntry) -> Option<&'a HeaderValue> {
        match self {
            Self::Request(index) => pending.request.get(*index)?.as_ref(),
            Self::Response(index) => pending.response.get(*index)?.as_ref(),
            Self::Literal(_) | Self::Operator(_) => None,
        }
    }

    fn write(&self, pending: &PendingEntry, outcome: &Outcome, line: &mut String) {
        let dash = |line: &mut String, value: Option<&HeaderValue>| match value {
            // Invalid UTF-8 is replaced. Header values cannot contain line breaks.
            Some(value) => line.push_str(&String::from_utf8_lossy(value.as_bytes())),
            None => line.push('-'),
        };
        match self {
            Self::Literal(text) => line.push_str(text),
            Self::Request(index) => {
                dash(line, pending.request.get(*index).and_then(Option::as_ref));
            }
            Self::Response(index) => {
                dash(line, pending.response.get(*index).and_then(Option::as_ref));
            }
            // Writing to a string cannot fail.
            Self::Operator(operator) => {
                let _ = outcome.write(operator, pending, line);
            }
        }
    }
}

impl Outcome {
    fn write(&self, operator: &Operator, pending: &PendingEntry, line: &mut String) -> fmt::Result {
        match operator {
            Operator::StartTime => write!(line, "{}", Rfc3339(pending.start)),
            Operator::Protocol => line.write_str(self.protocol),
            Operator::ResponseCode => write!(line, "{}", self.status),
            Operator::ResponseFlags if self.flags.is_empty() => line.write_str("-"),
            Operator::ResponseFlags => line.write_str(self.flags),
            Operator::BytesReceived => write!(line, "{}", self.bytes_received),
            Operator::BytesSent => write!(line, "{}", self.bytes_sent),
            Operator::Duration => write!(line, "{}", self.duration.as_millis()),
            Operator::UpstreamHost => match self.upstream_host {
                Some(host) => write!(line, "{host}"),
                None => line.write_str("-"),
            },
            Operator::UpstreamCluster => line.write_str(self.cluster.as_deref().unwrap_or("-")),
            Operator::RouteName if self.route.is_empty() => line.write_str("-"),
            Operator::RouteName => line.write_str(&self.route),
            Operator::RemoteAddress => match self.peer {
                Some(peer) => write!(line, "{peer}"),
                None => line.write_str("-"),
            },
            Operator::RemoteAddressWithoutPort => match self.peer {
                Some(peer) => write!(line, "{}", peer.ip()),
                None => line.write_str("-"),
            },
            // Request and response headers are separate variants of `Part`.
            Operator::Request(..) | Operator::Response(_) => Ok(()),
        }
    }
}
