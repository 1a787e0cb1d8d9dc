//! Conditions of a route: `RouteMatch`, `HeaderMatcher` and `StringMatcher`.

use plimsoll_core::units::FieldError;
use plimsoll_xds::route::{
    HeaderMatcher, HeaderPattern, PathMatcher, QueryParameterMatcher, RouteMatch, RuntimeFraction,
};
use plimsoll_xds::string_match::{SafeRegex, StringMatcher, StringPattern};
use plimsoll_xds::yaml::proto_json::{Empty, FractionalPercent, Ignored};
use serde::Deserialize;

/// `RouteMatch`.
#[derive(Debug, Default, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub(super) struct RouteMatchYaml {
    /// The path begins so. One of the four must be set.
    prefix: Option<String>,
    /// The path is this.
    path: Option<String>,
    /// The path is this, or goes on with a slash.
    path_separated_prefix: Option<String>,
    /// All of the path matches.
    safe_regex: Option<RegexYaml>,
    /// Whether upper and lower case differ. Default true.
    case_sensitive: Option<bool>,
    /// All of these must hold.
    headers: Vec<HeaderMatcherYaml>,
    /// All of these must hold.
    query_parameters: Vec<QueryParameterYaml>,
    /// Only gRPC requests.
    grpc: Option<Empty>,
    /// Only a share of the requests.
    runtime_fraction: Option<RuntimeFractionYaml>,
}

/// `QueryParameterMatcher`.
#[derive(Debug, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
struct QueryParameterYaml {
    /// The parameter.
    name: String,
    /// What its value must be.
    string_match: Option<StringMatchYaml>,
    /// Only true: it must be there.
    present_match: Option<bool>,
}

/// `RuntimeFractionalPercent`, without keys: there is no runtime.
#[derive(Debug, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
struct RuntimeFractionYaml {
    /// The share.
    default_value: FractionalPercent,
}

/// `RegexMatcher`.
#[derive(Debug, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(super) struct RegexYaml {
    /// The expression, in the syntax of RE2.
    regex: String,
    // There is one engine.
    /// Without effect: there is one engine.
    #[serde(default, rename = "google_re2")]
    _google_re2: Option<Ignored>,
}

/// `HeaderMatcher`, with the older spellings of `string_match`.
#[derive(Debug, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
struct HeaderMatcherYaml {
    /// The field, or `:method`, `:path`, `:authority`, `:scheme`.
    name: String,
    /// What its value must be.
    string_match: Option<StringMatchYaml>,
    /// Older spelling: it is this.
    exact_match: Option<String>,
    /// Older spelling: it begins so.
    prefix_match: Option<String>,
    /// Older spelling: it ends so.
    suffix_match: Option<String>,
    /// Older spelling: it has this in it.
    contains_match: Option<String>,
    /// Older spelling: all of it matches.
    safe_regex_match: Option<RegexYaml>,
    /// Whether it must be there or must not.
    present_match: Option<bool>,
    /// It is a whole number of this range.
    range_match: Option<RangeYaml>,
    /// The opposite.
    #[serde(default)]
    invert_match: bool,
    /// A missing field is an empty one.
    #[serde(default)]
    treat_missing_header_as_empty: bool,
}

#[derive(Debug, Default, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
struct StringMatchYaml {
    /// It is this.
    exact: Option<String>,
    /// It begins so.
    prefix: Option<String>,
    /// It ends so.
    suffix: Option<String>,
    /// It has this in it.
    contains: Option<String>,
    /// All of it matches.
    safe_regex: Option<RegexYaml>,
    /// Upper and lower case are the same.
    ignore_case: bool,
}

#[derive(Debug, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
struct RangeYaml {
    /// First number.
    start: i64,
    /// First number behind the range.
    end: i64,
}

impl RegexYaml {
    fn checked(&self) -> Result<SafeRegex, FieldError> {
        SafeRegex::try_new(&self.regex).map_err(|error| error.under("regex"))
    }
}

impl RouteMatchYaml {
    /// The checked form; paths start at this message.
    pub(super) fn checked(self) -> Result<RouteMatch, FieldError> {
        let regex = self.safe_regex.map(|regex| regex.checked());
        let regex = regex
            .transpose()
            .map_err(|error| error.under("safe_regex"))?;
        let candidates = [
            self.prefix.map(PathMatcher::Prefix),
            self.path.map(PathMatcher::Path),
            self.path_separated_prefix
                .map(PathMatcher::PathSeparatedPrefix),
            regex.map(PathMatcher::Regex),
        ];
        let mut given = candidates.into_iter().flatten();
        let (Some(path), None) = (given.next(), given.next()) else {
            let reason = "must have one of prefix, path, path_separated_prefix and safe_regex";
            return Err(FieldError::new("", reason));
        };
        let headers = self.headers.into_iter().enumerate();
        let headers = headers.map(|(index, header)| {
            let place = format!("headers[{index}]");
            header.checked().map_err(|error| error.under(&place))
        });
        let parameters = self.query_parameters.into_iter().enumerate();
        let parameters = parameters.map(|(index, parameter)| {
            let place = format!("query_parameters[{index}]");
            parameter.checked().map_err(|error| error.under(&place))
        });
        let fraction = self.runtime_fraction.map(|fraction| RuntimeFraction {
            numerator: fraction.default_value.numerator(),
            denominator: fraction.default_value.denominator(),
        });
        Ok(RouteMatch {
            path,
            case_sensitive: self.case_sensitive.unwrap_or(true),
            headers: headers.collect::<Result<_, _>>()?,
            query_parameters: parameters.collect::<Result<_, _>>()?,
            grpc: self.grpc.is_some(),
            runtime_fraction: fraction,
        })
    }
}

impl QueryParameterYaml {
    fn checked(self) -> Result<QueryParameterMatcher, FieldError> {
        if self.present_match == Some(false) {
            return Err(FieldError::new("present_match", "false is not supported"));
        }
        let value = self.string_match.map(StringMatchYaml::checked);
        let value = value.transpose();
        Ok(QueryParameterMatcher {
            name: self.name,
            value: value.map_err(|error| error.under("string_match"))?,
        })
    }
}

impl HeaderMatcherYaml {
    fn checked(self) -> Result<HeaderMatcher, FieldError> {
        let string = self.string_match.map(StringMatchYaml::checked);
        let string = string
            .transpose()
            .map_err(|error| error.under("string_match"))?;
        let regex = self.safe_regex_match.map(|regex| regex.checked());
        let regex = regex
            .transpose()
            .map_err(|error| error.under("safe_regex_match"))?;
        let plain = |pattern| HeaderPattern::String(StringMatcher::new(pattern));
        let candidates = [
            string.map(HeaderPattern::String),
            self.exact_match
                .map(|text| plain(StringPattern::Exact(text))),
            self.prefix_match
                .map(|text| plain(StringPattern::Prefix(text))),
            self.suffix_match
                .map(|text| plain(StringPattern::Suffix(text))),
            self.contains_match
                .map(|text| plain(StringPattern::Contains(text))),
            regex.map(|regex| plain(StringPattern::Regex(regex))),
            self.present_match.map(HeaderPattern::Present),
            self.range_match
                .map(|range| HeaderPattern::Range(range.start, range.end)),
        ];
        let mut given = candidates.into_iter().flatten();
        let pattern = match (given.next(), given.next()) {
            (None, _) => HeaderPattern::Present(true),
            (Some(pattern), None) => pattern,
            (Some(_), Some(_)) => {
                return Err(FieldError::new("", "has more than one condition"));
            }
        };
        Ok(HeaderMatcher {
            name: self.name.to_ascii_lowercase(),
            pattern,
            invert: self.invert_match,
            treat_missing_as_empty: self.treat_missing_header_as_empty,
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
