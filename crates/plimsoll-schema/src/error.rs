//! [`DecodeError`]: an invalid field of a message, with its path.
//!
//! Its `Display` output is sent as the `error_detail` of a NACK. Files have their own error type
//! (`yaml::ConfigError`), which also carries line and column.

use std::fmt;

use plimsoll_core::units::FieldError;

/// An invalid field of a message: the path to the field, as the specification spells it, and the
/// reason. The path is empty when the bytes are not valid protobuf.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DecodeError(FieldError);

impl DecodeError {
    /// Creates an error at `path` with the given reason.
    pub fn new(path: impl Into<String>, reason: impl Into<String>) -> Self {
        Self(FieldError::new(path, reason))
    }

    /// Returns the path to the field.
    pub fn path(&self) -> &str {
        self.0.path()
    }

    /// Returns why the field is invalid.
    pub fn reason(&self) -> &str {
        self.0.reason()
    }

    /// Prepends `prefix`, the enclosing field, to the path.
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

impl From<DecodeError> for FieldError {
    fn from(error: DecodeError) -> Self {
        error.0
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
    fn errors_of_invalid_protobuf_have_an_empty_path() {
        let error: prost::DecodeError =
            <String as prost::Message>::decode(&[0x0a][..]).unwrap_err();
        let error = DecodeError::from(error);
        assert_eq!(error.path(), "");
        assert!(!error.to_string().is_empty());
    }
}
