//! Decoding of string matchers and data sources.

use plimsoll_core::units::FieldError;

use super::exactly_one;
use crate::string_match::{SafeRegex, StringMatcher, StringPattern};
use crate::upstream::DataSource;
use plimsoll_schema::pb::tls::{DataSourceMessage, RegexMessage, StringMatcherMessage};

/// Decodes a string matcher; error paths start inside the message.
pub(super) fn string_matcher(message: StringMatcherMessage) -> Result<StringMatcher, FieldError> {
    let regex = message
        .safe_regex
        .as_ref()
        .map(safe_regex)
        .transpose()
        .map_err(|error| error.under("safe_regex"))?;
    let patterns = [
        message.exact.map(StringPattern::Exact),
        message.prefix.map(StringPattern::Prefix),
        message.suffix.map(StringPattern::Suffix),
        message.contains.map(StringPattern::Contains),
        regex.map(StringPattern::Regex),
    ];
    Ok(StringMatcher {
        pattern: exactly_one(patterns, "must have exactly one pattern")?,
        ignore_case: message.ignore_case,
    })
}

/// Compiles a regular expression; error paths start inside the message.
pub(super) fn safe_regex(message: &RegexMessage) -> Result<SafeRegex, FieldError> {
    SafeRegex::try_new(&message.regex).map_err(|error| error.under("regex"))
}

/// Decodes a data source; error paths start inside the message.
pub(super) fn data_source(message: DataSourceMessage) -> Result<DataSource, FieldError> {
    let sources = [
        message.filename.map(DataSource::Filename),
        message.inline_bytes.map(DataSource::Inline),
        message
            .inline_string
            .map(|text| DataSource::Inline(text.into())),
        message
            .environment_variable
            .map(DataSource::EnvironmentVariable),
    ];
    exactly_one(sources, "must have exactly one source")
}
