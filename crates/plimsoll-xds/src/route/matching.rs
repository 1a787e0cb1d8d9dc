//! [`RouteMatch`]: whether a route is meant for a request. Pure: a request and a draw in, yes or no
//! out.

use std::borrow::Cow;
use std::fmt;

use crate::content_type::is_grpc;
use crate::string_match::{SafeRegex, StringMatcher};

/// What a route looks at of a request.
#[derive(Clone, Copy)]
pub struct RequestHead<'a> {
    /// `:method`.
    pub method: &'a str,
    /// `:authority`, or the host header.
    pub authority: &'a str,
    /// `:path`, with the query.
    pub path: &'a str,
    /// `:scheme`.
    pub scheme: &'a str,
    /// The value of a header by its name in lower case; several are joined with commas.
    pub header: &'a dyn Fn(&str) -> Option<Cow<'a, [u8]>>,
}

impl fmt::Debug for RequestHead<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {}", self.method, self.authority, self.path)
    }
}

impl<'a> RequestHead<'a> {
    fn value(&self, name: &str) -> Option<Cow<'a, [u8]>> {
        match name {
            ":method" => Some(Cow::Borrowed(self.method.as_bytes())),
            ":authority" | "host" => Some(Cow::Borrowed(self.authority.as_bytes())),
            ":path" => Some(Cow::Borrowed(self.path.as_bytes())),
            ":scheme" => Some(Cow::Borrowed(self.scheme.as_bytes())),
            name => (self.header)(name),
        }
    }
}

/// `RouteMatch`: all of it must match.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RouteMatch {
    /// The path, without the query.
    pub path: PathMatcher,
    /// Whether upper and lower case of the path differ. Without effect on expressions.
    pub case_sensitive: bool,
    /// Headers.
    pub headers: Vec<HeaderMatcher>,
    /// Parameters of the query.
    pub query_parameters: Vec<QueryParameterMatcher>,
    /// `grpc`: only requests of gRPC.
    pub grpc: bool,
    /// Only so many of the requests.
    pub runtime_fraction: Option<RuntimeFraction>,
}

/// `RouteMatch.path_specifier`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PathMatcher {
    /// Paths that start so; empty is all.
    Prefix(String),
    /// This path.
    Path(String),
    /// This path, and all below it.
    PathSeparatedPrefix(String),
    /// Whole paths that match.
    Regex(SafeRegex),
}

/// `HeaderMatcher`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeaderMatcher {
    /// Name in lower case.
    pub name: String,
    /// What is looked for.
    pub pattern: HeaderPattern,
    /// The answer is turned around. A header that is missing matches neither way, except for
    /// [`HeaderPattern::Present`].
    pub invert: bool,
    /// A header that is missing counts as an empty one.
    pub treat_missing_as_empty: bool,
}

/// `HeaderMatcher.header_match_specifier`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HeaderPattern {
    /// A string.
    String(StringMatcher),
    /// A decimal number from the first up to, and without, the second.
    Range(i64, i64),
    /// That it is there, or that it is not.
    Present(bool),
}

/// `QueryParameterMatcher`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueryParameterMatcher {
    /// Name of the parameter.
    pub name: String,
    /// Its value; `None` is any.
    pub value: Option<StringMatcher>,
}

/// `RuntimeFractionalPercent`: so many of so many requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RuntimeFraction {
    /// So many.
    pub numerator: u32,
    /// Of so many; 0 counts as 1.
    pub denominator: u32,
}

impl RouteMatch {
    /// Matches every request.
    pub fn any() -> Self {
        Self {
            path: PathMatcher::Prefix(String::new()),
            case_sensitive: true,
            headers: Vec::new(),
            query_parameters: Vec::new(),
            grpc: false,
            runtime_fraction: None,
        }
    }

    /// Whether the route is meant. `draw` is any random number.
    pub fn matches(&self, request: &RequestHead<'_>, draw: u64) -> bool {
        let (path, query) = match request.path.split_once('?') {
            Some((path, query)) => (path, query.split('#').next().unwrap_or_default()),
            None => (request.path.split('#').next().unwrap_or_default(), ""),
        };
        self.path.matches(path, self.case_sensitive)
            && self.headers.iter().all(|header| header.matches(request))
            && self
                .query_parameters
                .iter()
                .all(|wanted| wanted.matches(query))
            && (!self.grpc || has_grpc_content_type(request))
            && self
                .runtime_fraction
                .is_none_or(|fraction| fraction.includes(draw))
    }
}

fn has_grpc_content_type(request: &RequestHead<'_>) -> bool {
    let content_type = request.value("content-type");
    content_type.as_deref().is_some_and(is_grpc)
}

impl PathMatcher {
    fn matches(&self, path: &str, case_sensitive: bool) -> bool {
        let same = |part: &[u8], wanted: &str| {
            if case_sensitive {
                part == wanted.as_bytes()
            } else {
                part.eq_ignore_ascii_case(wanted.as_bytes())
            }
        };
        let path = path.as_bytes();
        let starts = |prefix: &str| {
            let start = path.get(..prefix.len());
            start.is_some_and(|start| same(start, prefix))
        };
        match self {
            Self::Prefix(prefix) => starts(prefix),
            Self::Path(wanted) => same(path, wanted),
            Self::PathSeparatedPrefix(prefix) => {
                starts(prefix) && matches!(path[prefix.len()..], [] | [b'/', ..])
            }
            Self::Regex(regex) => regex.matches(path),
        }
    }
}

impl PathMatcher {
    /// `path` with the part that was matched replaced; whole paths are replaced as a whole.
    pub fn rewrite(&self, path: &str, replacement: &str) -> String {
        let matched = match self {
            Self::Prefix(prefix) | Self::PathSeparatedPrefix(prefix) => prefix.len(),
            Self::Path(_) | Self::Regex(_) => path.len(),
        };
        format!("{replacement}{}", path.get(matched..).unwrap_or_default())
    }
}

impl HeaderMatcher {
    fn matches(&self, request: &RequestHead<'_>) -> bool {
        let value = request.value(&self.name);
        let value = match value {
            None if self.treat_missing_as_empty => Some(Cow::Borrowed(&b""[..])),
            value => value,
        };
        let found = match (&self.pattern, &value) {
            (HeaderPattern::Present(present), value) => value.is_some() == *present,
            (_, None) => return false,
            (HeaderPattern::String(matcher), Some(value)) => matcher.matches(value),
            (HeaderPattern::Range(start, end), Some(value)) => {
                let number = std::str::from_utf8(value).ok();
                let number = number.and_then(|text| text.parse::<i64>().ok());
                number.is_some_and(|number| (*start..*end).contains(&number))
            }
        };
        found != self.invert
    }
}

impl QueryParameterMatcher {
    /// The first parameter of that name counts.
    fn matches(&self, query: &str) -> bool {
        let mut pairs = query
            .split('&')
            .map(|pair| pair.split_once('=').unwrap_or((pair, "")));
        let found = pairs.find(|&(name, _)| name == self.name);
        match (found, &self.value) {
            (None, _) => false,
            (Some(_), None) => true,
            (Some((_, value)), Some(matcher)) => matcher.matches(value.as_bytes()),
        }
    }
}

impl RuntimeFraction {
    fn includes(self, draw: u64) -> bool {
        draw % u64::from(self.denominator.max(1)) < u64::from(self.numerator)
    }
}
