//! `RouteMatch` and the matchers in it from bytes. The rest of a route is read in `route_in`.

use plimsoll_core::units::FieldError;

use super::assignment::DENOMINATORS;
use super::matcher::{safe_regex, string_matcher};
use super::pb::route::{
    HeaderMatcherMessage, QueryParameterMessage, RouteMatchMessage, RuntimeFractionMessage,
};
use super::pb::{refuse, under};
use crate::route::{
    HeaderMatcher, HeaderPattern, PathMatcher, QueryParameterMatcher, RouteMatch, RuntimeFraction,
};
use crate::string_match::{StringMatcher, StringPattern};

/// Which requests a route is for. What narrows it down and is not known is refused: ignored, it
/// would catch requests that are meant for another route.
pub(super) fn route_match(message: RouteMatchMessage) -> Result<RouteMatch, FieldError> {
    refuse(&[
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
    let Some(path) = paths.into_iter().flatten().next() else {
        let reason = "must have prefix, path, path_separated_prefix or safe_regex";
        return Err(FieldError::new("", reason));
    };
    let headers = message
        .headers
        .into_iter()
        .enumerate()
        .map(|(index, header)| {
            let path = format!("headers[{index}]");
            header_matcher(header).map_err(|error| error.under(&path))
        });
    let parameters = message.query_parameters.into_iter().enumerate();
    let parameters = parameters.map(|(index, parameter)| {
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
    let regex = message.safe_regex_match.as_ref().map(safe_regex);
    let regex = under(regex, "safe_regex_match")?;
    let string = under(message.string_match.map(string_matcher), "string_match")?;
    let plain = [
        message.exact_match.map(StringPattern::Exact),
        message.prefix_match.map(StringPattern::Prefix),
        message.suffix_match.map(StringPattern::Suffix),
        message.contains_match.map(StringPattern::Contains),
        regex.map(StringPattern::Regex),
    ];
    let plain = plain.into_iter().flatten().next();
    let string = string.or(plain.map(StringMatcher::new));
    let range = message.range_match;
    if range.is_some_and(|range| range.start > range.end) {
        return Err(FieldError::new("range_match", "ends before it starts"));
    }
    let pattern = string
        .map(HeaderPattern::String)
        .or(range.map(|range| HeaderPattern::Range(range.start, range.end)))
        .or(message.present_match.map(HeaderPattern::Present));
    Ok(HeaderMatcher {
        name: message.name.to_ascii_lowercase(),
        // As in Envoy: without a pattern the header must be there.
        pattern: pattern.unwrap_or(HeaderPattern::Present(true)),
        invert: message.invert_match,
        treat_missing_as_empty: message.treat_missing_header_as_empty,
    })
}

fn query_parameter(message: QueryParameterMessage) -> Result<QueryParameterMatcher, FieldError> {
    if message.present_match == Some(false) {
        return Err(FieldError::new("present_match", "false is not supported"));
    }
    Ok(QueryParameterMatcher {
        name: message.name,
        value: under(message.string_match.map(string_matcher), "string_match")?,
    })
}

fn fraction(message: RuntimeFractionMessage) -> Result<RuntimeFraction, FieldError> {
    let value = message.default_value.unwrap_or_default();
    let kind = usize::try_from(value.denominator).ok();
    match kind.and_then(|kind| DENOMINATORS.get(kind)) {
        Some(&denominator) => Ok(RuntimeFraction {
            numerator: value.numerator,
            denominator,
        }),
        None => {
            let reason = format!("{} is not a denominator", value.denominator);
            Err(FieldError::new("default_value.denominator", reason))
        }
    }
}
