//! [`ConfigError`]: an invalid field of a file, with path, line and column.
//!
//! It is also the error type of the deserializer in `de`, which prepends path segments while the
//! error propagates. The file name is not part of it; the caller that opened the file adds it.

use std::{fmt, io};

use plimsoll_core::units::FieldError;

/// A position in a text, counted from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Location {
    pub line: u64,
    /// Column, counted in characters.
    pub column: u64,
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.line, self.column)
    }
}

/// An invalid field of a file, with its path and location.
///
/// `Display` is `path: reason (at line:column)`; unknown parts are omitted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    field: FieldError,
    location: Option<Location>,
}

impl ConfigError {
    /// Creates an error at `path` with the given reason.
    pub fn new(path: impl Into<String>, reason: impl Into<String>) -> Self {
        FieldError::new(path, reason).into()
    }

    /// Returns the path to the field in the file's spelling; empty if the text is not valid YAML.
    pub fn path(&self) -> &str {
        self.field.path()
    }

    /// Returns why the field is invalid.
    pub fn reason(&self) -> &str {
        self.field.reason()
    }

    /// Returns the location of the field, if known.
    pub const fn location(&self) -> Option<Location> {
        self.location
    }

    /// Prepends `prefix`, the enclosing field, to the path.
    #[must_use]
    pub(super) fn under(mut self, prefix: &str) -> Self {
        self.field = self.field.under(prefix);
        self
    }

    /// Returns the error with a location.
    #[must_use]
    pub const fn at(mut self, location: Location) -> Self {
        self.location = Some(location);
        self
    }

    #[must_use]
    pub(super) fn with_path(mut self, path: String) -> Self {
        self.field = FieldError::new(path, self.field.reason());
        self
    }

    /// Sets the location unless a more precise one is set already.
    #[must_use]
    pub(super) fn or_at(mut self, location: Location) -> Self {
        self.location.get_or_insert(location);
        self
    }
}

impl From<FieldError> for ConfigError {
    fn from(field: FieldError) -> Self {
        Self {
            field,
            location: None,
        }
    }
}

/// I/O errors of a file have an empty path.
impl From<io::Error> for ConfigError {
    fn from(error: io::Error) -> Self {
        Self::new("", format!("cannot be read: {error}"))
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.field.fmt(f)?;
        match self.location {
            Some(location) => write!(f, " (at {location})"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for ConfigError {}

impl serde::de::Error for ConfigError {
    fn custom<T: fmt::Display>(message: T) -> Self {
        Self::new("", message.to_string())
    }

    // The path already ends with the unknown field.
    fn unknown_field(field: &str, expected: &'static [&'static str]) -> Self {
        Self::new("", super::unknown_field(field, expected))
    }

    fn missing_field(field: &'static str) -> Self {
        Self::new(field, "must be set")
    }

    // The parser refuses equal keys, so the field occurs in snake_case and in lowerCamelCase.
    fn duplicate_field(field: &'static str) -> Self {
        Self::new(field, "set twice, in two spellings")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn display_omits_unknown_parts() {
        let bare = ConfigError::new("", "unclosed bracket");
        assert_eq!(bare.to_string(), "unclosed bracket");
        let here = Location { line: 3, column: 7 };
        let located = ConfigError::new("[1].zone", "no").under("own").or_at(here);
        assert_eq!(located.to_string(), "own[1].zone: no (at 3:7)");
    }

    #[test]
    fn the_innermost_location_is_kept() {
        let inner = Location { line: 9, column: 2 };
        let outer = Location { line: 1, column: 1 };
        let error = ConfigError::new("a", "no").or_at(inner).or_at(outer);
        assert_eq!(error.location(), Some(inner));
    }
}
