//! String matchers and sources of data from bytes, for certificates and routes.

use plimsoll_core::units::FieldError;

use super::pb::tls::{DataSourceMessage, RegexMessage, StringMatcherMessage};
use crate::string_match::{SafeRegex, StringMatcher, StringPattern};
use crate::upstream::DataSource;

/// A matcher; the path of an error starts inside the message.
pub(super) fn string_matcher(message: StringMatcherMessage) -> Result<StringMatcher, FieldError> {
    let regex = message.safe_regex.as_ref().map(safe_regex);
    let regex = regex
        .transpose()
        .map_err(|error| error.under("safe_regex"))?;
    let patterns = [
        message.exact.map(StringPattern::Exact),
        message.prefix.map(StringPattern::Prefix),
        message.suffix.map(StringPattern::Suffix),
        message.contains.map(StringPattern::Contains),
        regex.map(StringPattern::Regex),
    ];
    match patterns.into_iter().flatten().next() {
        Some(pattern) => Ok(StringMatcher {
            pattern,
            ignore_case: message.ignore_case,
        }),
        None => Err(FieldError::new("", "has no pattern, or one we do not know")),
    }
}

/// An expression; the path of an error starts inside the message.
pub(super) fn safe_regex(message: &RegexMessage) -> Result<SafeRegex, FieldError> {
    SafeRegex::try_new(&message.regex).map_err(|error| error.under("regex"))
}

/// Where bytes are; the path of an error starts inside the message.
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
    let source = sources.into_iter().flatten().next();
    source.ok_or_else(|| FieldError::new("", "must have a source"))
}
