//! Route matching: whether a route applies to a request, given a random draw.

use std::borrow::Cow;
use std::fmt;

use crate::content_type::is_grpc;
use crate::string_match::{SafeRegex, StringMatcher};

/// Request line and headers, as far as routes match them.
#[derive(Clone, Copy)]
pub struct RequestHead<'a> {
    pub method: &'a str,
    /// `:authority`, or the host header.
    pub authority: &'a str,
    /// `:path`, including the query.
    pub path: &'a str,
    pub scheme: &'a str,
    /// Returns the value of a header by its lower-case name; several values are joined with commas.
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

/// Match conditions of a route, all of which must hold (`RouteMatch`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RouteMatch {
    /// Matched against the path without the query.
    pub path: PathMatcher,
    pub case_sensitive: bool,
    pub headers: Vec<HeaderMatcher>,
    pub query_parameters: Vec<QueryParameterMatcher>,
    pub grpc: bool,
    pub runtime_fraction: Option<RuntimeFraction>,
}

/// Path condition of a route (`path_specifier`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PathMatcher {
    /// Paths with this prefix; empty matches all.
    Prefix(String),
    Path(String),
    /// This path, and all below it.
    PathSeparatedPrefix(String),
    /// Must match the whole path.
    Regex(SafeRegex),
}

/// Header condition of a route (`HeaderMatcher`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeaderMatcher {
    /// Name in lower case.
    pub name: String,
    pub pattern: HeaderPattern,
    /// Inverts the result. A missing header never matches, except for [`HeaderPattern::Present`].
    pub invert: bool,
    pub treat_missing_as_empty: bool,
}

/// Pattern of a header condition (`header_match_specifier`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HeaderPattern {
    String(StringMatcher),
    /// A decimal number in the half-open range.
    Range(i64, i64),
    /// Whether the header must be present or absent.
    Present(bool),
}

/// Query parameter condition of a route (`QueryParameterMatcher`).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct QueryParameterMatcher {
    pub name: String,
    /// `None` matches any value.
    pub value: Option<StringMatcher>,
}

/// Fraction of requests (`RuntimeFractionalPercent`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RuntimeFraction {
    pub numerator: u32,
    /// A denominator of 0 counts as 1.
    pub denominator: u32,
}

impl RouteMatch {
    /// Returns conditions that match every request.
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

    /// Returns whether the route applies. `draw` is any random number.
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
                .all(|parameter| parameter.matches(query))
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
        let same = |part: &[u8], expected: &str| {
            if case_sensitive {
                part == expected.as_bytes()
            } else {
                part.eq_ignore_ascii_case(expected.as_bytes())
            }
        };
        let path = path.as_bytes();
        let starts = |prefix: &str| {
            let start = path.get(..prefix.len());
            start.is_some_and(|start| same(start, prefix))
        };
        match self {
            Self::Prefix(prefix) => starts(prefix),
            Self::Path(expected) => same(path, expected),
            Self::PathSeparatedPrefix(prefix) => {
                starts(prefix) && matches!(path[prefix.len()..], [] | [b'/', ..])
            }
            Self::Regex(regex) => regex.matches(path),
        }
    }
}

impl PathMatcher {
    /// Replaces the matched part of `path`; exact and regex matches replace all of it.
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
                let text = std::str::from_utf8(value).ok();
                let number = text.and_then(|text| text.parse::<i64>().ok());
                number.is_some_and(|number| (*start..*end).contains(&number))
            }
        };
        found != self.invert
    }
}

impl QueryParameterMatcher {
    /// Compares the first query parameter of the matcher's name.
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
    /// Returns whether a request with this random number is in the fraction.
    pub fn includes(self, draw: u64) -> bool {
        draw % u64::from(self.denominator.max(1)) < u64::from(self.numerator)
    }
}
