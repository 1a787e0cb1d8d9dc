//! [`ConfigError`]: what was wrong in a file, and where.
//!
//! It is also the error type of the deserializer in `de`, which adds the path segment by segment on
//! the way out. Files themselves have no name here; whoever opened them puts it in front.

use std::fmt;

use plimsoll_core::units::FieldError;

/// A place in a text, counted from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Location {
    /// The line.
    pub line: u64,
    /// The character within it.
    pub column: u64,
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.line, self.column)
    }
}

/// What was wrong in a file, and where.
///
/// `Display` is `path: reason (at line:column)`, without the parts that are not known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    field: FieldError,
    location: Option<Location>,
}

impl ConfigError {
    /// An error at `path`, for `reason`.
    pub fn new(path: impl Into<String>, reason: impl Into<String>) -> Self {
        FieldError::new(path, reason).into()
    }

    /// Path to the field, as the file spells it; empty when the text is not even YAML.
    pub fn path(&self) -> &str {
        self.field.path()
    }

    /// What is wrong with it.
    pub fn reason(&self) -> &str {
        self.field.reason()
    }

    /// Where it stands, if known.
    pub const fn location(&self) -> Option<Location> {
        self.location
    }

    /// The same error, seen from one level further out.
    #[must_use]
    pub(super) fn under(mut self, prefix: &str) -> Self {
        self.field = self.field.under(prefix);
        self
    }

    /// The same error at `location`, unless a more exact place is known already.
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

    // The deserializer puts the name of the unknown field into the path.
    fn unknown_field(_field: &str, expected: &'static [&'static str]) -> Self {
        let reason = match expected {
            [] => "unknown field, none is expected here".to_owned(),
            names => format!("unknown field, expected one of {}", names.join(", ")),
        };
        Self::new("", reason)
    }

    fn missing_field(field: &'static str) -> Self {
        Self::new(field, "must be set")
    }

    // Equal keys are refused when the text is read; what is left are two spellings of one field.
    fn duplicate_field(field: &'static str) -> Self {
        Self::new(field, "set twice, in two spellings")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn display_shows_what_is_known() {
        let bare = ConfigError::new("", "unclosed bracket");
        assert_eq!(bare.to_string(), "unclosed bracket");
        let here = Location { line: 3, column: 7 };
        let located = ConfigError::new("[1].zone", "no").under("own").or_at(here);
        assert_eq!(located.to_string(), "own[1].zone: no (at 3:7)");
    }

    #[test]
    fn the_first_location_is_the_most_exact_one() {
        let inner = Location { line: 9, column: 2 };
        let outer = Location { line: 1, column: 1 };
        let error = ConfigError::new("a", "no").or_at(inner).or_at(outer);
        assert_eq!(error.location(), Some(inner));
    }
}
