//! [`LogFormat`]: what a line looks like. Operators are those of `substitution`.

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};

use http::{HeaderMap, HeaderName, HeaderValue};

use super::time::Rfc3339;
use super::{Outcome, Pending};
use crate::router::RequestView;
use crate::substitution::{self, Field, Operator, Piece};

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
    Operator(Operator),
    /// What was remembered of the request, by number.
    Request(usize),
    /// The same of the response.
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

/// A number stays one, and what is not there is null.
fn json_value(parts: &[Part], pending: &Pending, outcome: &Outcome) -> serde_json::Value {
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

impl Part {
    fn write(&self, pending: &Pending, outcome: &Outcome, line: &mut String) {
        let dash = |line: &mut String, value: Option<&HeaderValue>| match value {
            // What is not text, or would break a line, is escaped.
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
            // Writing to a string does not fail.
            Self::Operator(operator) => {
                let _ = outcome.write(operator, pending, line);
            }
        }
    }
}

impl Outcome {
    fn write(&self, operator: &Operator, pending: &Pending, line: &mut String) -> fmt::Result {
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
            // Remembered under a number.
            Operator::Request(..) | Operator::Response(_) => Ok(()),
        }
    }
}
