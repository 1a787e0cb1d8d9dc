//! Conditions of a route: `RouteMatch`, `HeaderMatcher` and `StringMatcher`.

use http::HeaderName;
use plimsoll_core::units::FieldError;
use plimsoll_xds::string_match::{SafeRegex, StringMatcher, StringPattern};
use plimsoll_xds::yaml::proto_json::Empty;
use serde::Deserialize;
use serde::de::IgnoredAny;

use crate::router::{Case, HeaderCheck, HeaderMatcher, HeaderSource, PathMatcher};

/// `RouteMatch`.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct RouteMatchYaml {
    prefix: Option<String>,
    path: Option<String>,
    path_separated_prefix: Option<String>,
    safe_regex: Option<RegexYaml>,
    case_sensitive: Option<bool>,
    headers: Vec<HeaderMatcherYaml>,
    grpc: Option<Empty>,
}

/// `RegexMatcher`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RegexYaml {
    regex: String,
    // There is one engine.
    #[serde(default, rename = "google_re2")]
    _google_re2: Option<IgnoredAny>,
}

/// `HeaderMatcher`, with the older spellings of `string_match`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct HeaderMatcherYaml {
    name: String,
    string_match: Option<StringMatchYaml>,
    exact_match: Option<String>,
    prefix_match: Option<String>,
    suffix_match: Option<String>,
    contains_match: Option<String>,
    safe_regex_match: Option<RegexYaml>,
    present_match: Option<bool>,
    range_match: Option<RangeYaml>,
    #[serde(default)]
    invert_match: bool,
    #[serde(default)]
    treat_missing_header_as_empty: bool,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct StringMatchYaml {
    exact: Option<String>,
    prefix: Option<String>,
    suffix: Option<String>,
    contains: Option<String>,
    safe_regex: Option<RegexYaml>,
    ignore_case: bool,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RangeYaml {
    start: i64,
    end: i64,
}

impl RegexYaml {
    fn checked(&self) -> Result<SafeRegex, FieldError> {
        SafeRegex::try_new(&self.regex).map_err(|error| error.under("regex"))
    }
}

impl RouteMatchYaml {
    /// Path, header fields, and whether only gRPC is meant.
    pub(super) fn checked(self) -> Result<(PathMatcher, Vec<HeaderMatcher>, bool), FieldError> {
        let case = match self.case_sensitive {
            Some(false) => Case::Ignored,
            _ => Case::Sensitive,
        };
        let regex = self.safe_regex.map(|regex| regex.checked());
        let regex = regex
            .transpose()
            .map_err(|error| error.under("safe_regex"))?;
        let candidates = [
            self.prefix.map(|prefix| PathMatcher::Prefix(prefix, case)),
            self.path.map(|path| PathMatcher::Exact(path, case)),
            self.path_separated_prefix
                .map(|prefix| PathMatcher::Separated(prefix, case)),
            regex.map(PathMatcher::Regex),
        ];
        let mut given = candidates.into_iter().flatten();
        let (Some(path), None) = (given.next(), given.next()) else {
            let reason = "must have one of prefix, path, path_separated_prefix and safe_regex";
            return Err(FieldError::new("", reason));
        };
        let mut headers = Vec::new();
        for (index, header) in self.headers.into_iter().enumerate() {
            let place = format!("headers[{index}]");
            headers.push(header.checked().map_err(|error| error.under(&place))?);
        }
        Ok((path, headers, self.grpc.is_some()))
    }
}

impl HeaderMatcherYaml {
    fn checked(self) -> Result<HeaderMatcher, FieldError> {
        let source = match self.name.as_str() {
            ":method" => HeaderSource::Method,
            ":path" => HeaderSource::Path,
            ":authority" => HeaderSource::Authority,
            ":scheme" => HeaderSource::Scheme,
            name => HeaderSource::Field(HeaderName::from_bytes(name.as_bytes()).map_err(|_| {
                let reason = format!("{name:?} is not the name of a header field");
                FieldError::new("name", reason)
            })?),
        };
        let string = self.string_match.map(StringMatchYaml::checked);
        let string = string
            .transpose()
            .map_err(|error| error.under("string_match"))?;
        let regex = self.safe_regex_match.map(|regex| regex.checked());
        let regex = regex
            .transpose()
            .map_err(|error| error.under("safe_regex_match"))?;
        let plain = |pattern| HeaderCheck::Matches(StringMatcher::new(pattern));
        let candidates = [
            string.map(HeaderCheck::Matches),
            self.exact_match
                .map(|text| plain(StringPattern::Exact(text))),
            self.prefix_match
                .map(|text| plain(StringPattern::Prefix(text))),
            self.suffix_match
                .map(|text| plain(StringPattern::Suffix(text))),
            self.contains_match
                .map(|text| plain(StringPattern::Contains(text))),
            regex.map(|regex| plain(StringPattern::Regex(regex))),
            self.present_match.map(HeaderCheck::Present),
            self.range_match
                .map(|range| HeaderCheck::Range(range.start, range.end)),
        ];
        let mut given = candidates.into_iter().flatten();
        let check = match (given.next(), given.next()) {
            (None, _) => HeaderCheck::Present(true),
            (Some(check), None) => check,
            (Some(_), Some(_)) => {
                return Err(FieldError::new("", "has more than one condition"));
            }
        };
        Ok(HeaderMatcher {
            source,
            check,
            invert: self.invert_match,
            missing_is_empty: self.treat_missing_header_as_empty,
        })
    }
}

impl StringMatchYaml {
    fn checked(self) -> Result<StringMatcher, FieldError> {
        let regex = self.safe_regex.map(|regex| regex.checked());
        let regex = regex
            .transpose()
            .map_err(|error| error.under("safe_regex"))?;
        let candidates = [
            self.exact.map(StringPattern::Exact),
            self.prefix.map(StringPattern::Prefix),
            self.suffix.map(StringPattern::Suffix),
            self.contains.map(StringPattern::Contains),
            regex.map(StringPattern::Regex),
        ];
        let mut given = candidates.into_iter().flatten();
        let (Some(pattern), None) = (given.next(), given.next()) else {
            let reason = "must have one of exact, prefix, suffix, contains and safe_regex";
            return Err(FieldError::new("", reason));
        };
        Ok(StringMatcher {
            pattern,
            ignore_case: self.ignore_case,
        })
    }
}
