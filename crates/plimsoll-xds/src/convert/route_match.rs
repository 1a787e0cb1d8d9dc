//! Decoding of `RouteMatch` and its matchers. The rest of a route is decoded in `route`.

use plimsoll_core::units::FieldError;

use super::assignment::denominator;
use super::exactly_one;
use super::matcher::{safe_regex, string_matcher};
use crate::route::{
    HeaderMatcher, HeaderPattern, PathMatcher, QueryParameterMatcher, RouteMatch, RuntimeFraction,
};
use crate::string_match::{StringMatcher, StringPattern};
use plimsoll_schema::pb::route::{
    HeaderMatcherMessage, QueryParameterMessage, RouteMatchMessage, RuntimeFractionMessage,
};
use plimsoll_schema::pb::{refuse_set, under};

/// Rejects unsupported conditions: ignoring one would match requests meant for another route.
pub(super) fn route_match(message: RouteMatchMessage) -> Result<RouteMatch, FieldError> {
    refuse_set(&[
        ("tls_context", message.tls_context.is_some()),
        ("dynamic_metadata", !message.dynamic_metadata.is_empty()),
        ("filter_state", !message.filter_state.is_empty()),
    ])?;
    let regex = under(message.safe_regex.as_ref().map(safe_regex), "safe_regex")?;
    let paths = [
        message.prefix.map(PathMatcher::Prefix),
        message.path.map(PathMatcher::Path),
        message
            .path_separated_prefix
            .map(PathMatcher::PathSeparatedPrefix),
        regex.map(PathMatcher::Regex),
    ];
    let reason = "must have exactly one of prefix, path, path_separated_prefix and safe_regex";
    let path = exactly_one(paths, reason)?;
    let headers = message
        .headers
        .into_iter()
        .enumerate()
        .map(|(index, header)| {
            let path = format!("headers[{index}]");
            header_matcher(header).map_err(|error| error.under(&path))
        });
    let parameters = message
        .query_parameters
        .into_iter()
        .enumerate()
        .map(|(index, parameter)| {
            let path = format!("query_parameters[{index}]");
            query_parameter(parameter).map_err(|error| error.under(&path))
        });
    Ok(RouteMatch {
        path,
        case_sensitive: message.case_sensitive.unwrap_or(true),
        headers: headers.collect::<Result<_, _>>()?,
        query_parameters: parameters.collect::<Result<_, _>>()?,
        grpc: message.grpc.is_some(),
        runtime_fraction: under(message.runtime_fraction.map(fraction), "runtime_fraction")?,
    })
}

fn header_matcher(message: HeaderMatcherMessage) -> Result<HeaderMatcher, FieldError> {
    if message.name.is_empty() {
        return Err(FieldError::new("name", "must not be empty"));
    }
    let regex = under(
        message.safe_regex_match.as_ref().map(safe_regex),
        "safe_regex_match",
    )?;
    let string = under(message.string_match.map(string_matcher), "string_match")?;
    let plain = |pattern| HeaderPattern::String(StringMatcher::new(pattern));
    let range = message.range_match;
    if range.is_some_and(|range| range.start > range.end) {
        return Err(FieldError::new("range_match", "ends before it starts"));
    }
    let candidates = [
        string.map(HeaderPattern::String),
        message.exact_match.map(StringPattern::Exact).map(plain),
        message.prefix_match.map(StringPattern::Prefix).map(plain),
        message.suffix_match.map(StringPattern::Suffix).map(plain),
        message
            .contains_match
            .map(StringPattern::Contains)
            .map(plain),
        regex.map(StringPattern::Regex).map(plain),
        range.map(|range| HeaderPattern::Range(range.start, range.end)),
        message.present_match.map(HeaderPattern::Present),
    ];
    let pattern = match candidates.iter().flatten().count() {
        // As in Envoy: without a pattern the header must be present.
        0 => HeaderPattern::Present(true),
        _ => exactly_one(candidates, "has more than one condition")?,
    };
    Ok(HeaderMatcher {
        name: message.name.to_ascii_lowercase(),
        pattern,
        invert: message.invert_match,
        treat_missing_as_empty: message.treat_missing_header_as_empty,
    })
}

fn query_parameter(message: QueryParameterMessage) -> Result<QueryParameterMatcher, FieldError> {
    if message.name.is_empty() {
        return Err(FieldError::new("name", "must not be empty"));
    }
    if message.present_match == Some(false) {
        return Err(FieldError::new("present_match", "false is not supported"));
    }
    Ok(QueryParameterMatcher {
        name: message.name,
        value: under(message.string_match.map(string_matcher), "string_match")?,
    })
}

pub(super) fn fraction(message: RuntimeFractionMessage) -> Result<RuntimeFraction, FieldError> {
    let Some(value) = message.default_value else {
        return Err(FieldError::new("default_value", "must be set"));
    };
    let denominator = denominator(value.denominator);
    Ok(RuntimeFraction {
        numerator: value.numerator,
        denominator: denominator.map_err(|error| error.under("default_value"))?,
    })
}
