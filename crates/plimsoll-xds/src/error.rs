//! [`DecodeError`]: what was wrong with a message, and where.
//!
//! Its `Display` is the text of a NACK. Files have their own error (`yaml::ConfigError`), which
//! knows lines as well.

use std::fmt;

use plimsoll_core::units::FieldError;

/// What was wrong with a message: the path to the field, as the specification spells it, and the
/// reason. The path is empty when the bytes are no protobuf at all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DecodeError(FieldError);

impl DecodeError {
    /// An error at `path`, for `reason`.
    pub fn new(path: impl Into<String>, reason: impl Into<String>) -> Self {
        Self(FieldError::new(path, reason))
    }

    /// Path to the field.
    pub fn path(&self) -> &str {
        self.0.path()
    }

    /// What is wrong with it.
    pub fn reason(&self) -> &str {
        self.0.reason()
    }

    /// The same error, seen from one level further out.
    #[must_use]
    pub fn under(self, prefix: &str) -> Self {
        Self(self.0.under(prefix))
    }
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl std::error::Error for DecodeError {}

impl From<FieldError> for DecodeError {
    fn from(error: FieldError) -> Self {
        Self(error)
    }
}

impl From<prost::DecodeError> for DecodeError {
    fn from(error: prost::DecodeError) -> Self {
        Self::new("", error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn display_is_path_and_reason() {
        let error = DecodeError::new("[1].weight", "must be at least 1").under("endpoints");
        assert_eq!(error.to_string(), "endpoints[1].weight: must be at least 1");
        assert_eq!(
            (error.path(), error.reason()),
            ("endpoints[1].weight", "must be at least 1")
        );
    }

    #[test]
    fn bytes_that_are_no_protobuf_have_no_path() {
        let error: prost::DecodeError =
            <String as prost::Message>::decode(&[0x0a][..]).unwrap_err();
        let error = DecodeError::from(error);
        assert_eq!(error.path(), "");
        assert!(!error.to_string().is_empty());
    }
}
