//! [`HeaderMatcher`]: conditions on header fields and on what HTTP/2 writes as such.

use http::HeaderName;
use plimsoll_xds::string_match::StringMatcher;

use super::RequestView;

/// One condition.
#[derive(Clone, Debug)]
pub struct HeaderMatcher {
    /// What is looked at.
    pub source: HeaderSource,
    /// What it must be like.
    pub check: HeaderCheck,
    /// The opposite is meant. A field that is not there still fails, unless presence is asked.
    pub invert: bool,
    /// A field that is not there counts as empty.
    pub missing_is_empty: bool,
}

/// What is looked at.
#[derive(Clone, Debug)]
pub enum HeaderSource {
    /// A header field.
    Field(HeaderName),
    /// `:method`.
    Method,
    /// `:path`, with the query.
    Path,
    /// `:authority`.
    Authority,
    /// `:scheme`.
    Scheme,
}

/// What a field must be like.
#[derive(Clone, Debug)]
pub enum HeaderCheck {
    /// It is there, or it is not.
    Present(bool),
    /// Its value matches.
    Matches(StringMatcher),
    /// Its value is a whole number from the first to before the second.
    Range(i64, i64),
}

impl HeaderMatcher {
    /// Whether the request matches.
    pub fn matches(&self, request: &RequestView<'_>) -> bool {
        let mut joined = Vec::new();
        let value = self.value(request, &mut joined);
        let value = match (&self.check, value) {
            (HeaderCheck::Present(wanted), value) => {
                let there = value.is_some() || self.missing_is_empty;
                return (there == *wanted) != self.invert;
            }
            (_, Some(value)) => value,
            (_, None) if self.missing_is_empty => b"",
            (_, None) => return false,
        };
        let matched = match &self.check {
            HeaderCheck::Present(_) => true,
            HeaderCheck::Matches(matcher) => matcher.matches(value),
            HeaderCheck::Range(start, end) => {
                let number = std::str::from_utf8(value).ok();
                let number: Option<i64> = number.and_then(|text| text.parse().ok());
                number.is_some_and(|number| (*start..*end).contains(&number))
            }
        };
        matched != self.invert
    }

    /// The value; fields that come several times are joined with commas in `joined`.
    fn value<'a>(&self, request: &RequestView<'a>, joined: &'a mut Vec<u8>) -> Option<&'a [u8]> {
        match &self.source {
            HeaderSource::Method => Some(request.method.as_str().as_bytes()),
            HeaderSource::Path => Some(request.path_and_query.as_bytes()),
            HeaderSource::Authority => Some(request.host.as_bytes()),
            HeaderSource::Scheme => Some(request.scheme.as_bytes()),
            HeaderSource::Field(name) => {
                let mut values = request.headers.get_all(name).iter();
                let first = values.next()?;
                let mut more = values.peekable();
                if more.peek().is_none() {
                    return Some(first.as_bytes());
                }
                joined.extend_from_slice(first.as_bytes());
                for value in more {
                    joined.push(b',');
                    joined.extend_from_slice(value.as_bytes());
                }
                Some(joined)
            }
        }
    }
}
