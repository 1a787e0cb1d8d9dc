//! [`ScenarioError`]: a fault of a scenario file, with line and column.

use std::fmt;

use plimsoll_core::units::FieldError;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// A fault of a scenario file.
///
/// `Display` is `path: reason (at line:column)`; unknown parts are left out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScenarioError {
    pub field: FieldError,
    /// Line and column of the field, counted from 1.
    pub position: Option<(u64, u64)>,
}

impl ScenarioError {
    /// Locates a field that was read from the text.
    pub(super) fn of_field(field: FieldError, text: &str) -> Self {
        let position = offset(text, field.path()).map(|offset| position(text, offset));
        Self { field, position }
    }

    /// Converts an error of the TOML parser.
    pub(super) fn of_toml(path: String, error: &toml::de::Error, text: &str) -> Self {
        Self {
            field: FieldError::new(path, error.message()),
            position: error.span().map(|span| position(text, span.start)),
        }
    }
}

impl From<FieldError> for ScenarioError {
    fn from(field: FieldError) -> Self {
        let position = None;
        Self { field, position }
    }
}

impl fmt::Display for ScenarioError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.field.fmt(f)?;
        match self.position {
            Some((line, column)) => write!(f, " (at {line}:{column})"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for ScenarioError {}

/// Whether `inner` is `path` or lies within it.
pub(super) fn is_within(inner: &str, path: &str) -> bool {
    let rest = inner.strip_prefix(path);
    rest.is_some_and(|rest| path.is_empty() || rest.is_empty() || rest.starts_with(['.', '[']))
}

fn position(text: &str, offset: usize) -> (u64, u64) {
    let before = text.get(..offset).unwrap_or(text);
    let line = before.matches('\n').count() + 1;
    let start = before.rfind('\n').map_or(0, |newline| newline + 1);
    let column = before[start..].chars().count() + 1;
    (line as u64, column as u64)
}

/// Returns where the innermost field on `path` that exists begins.
fn offset(text: &str, path: &str) -> Option<usize> {
    let root = DeTable::parse(text).ok()?;
    let mut table = root.get_ref();
    let mut found = None;
    let mut rest = path;
    while !rest.is_empty() {
        let end = rest.find(['.', '[']).unwrap_or(rest.len());
        let Some((key, value)) = table.iter().find(|(key, _)| key.get_ref() == &rest[..end]) else {
            return found;
        };
        found = Some(key.span().start);
        rest = &rest[end..];
        let mut value: &Spanned<DeValue<'_>> = value;
        while let Some((index, after)) = rest.strip_prefix('[').and_then(|r| r.split_once(']')) {
            let items = value.get_ref().as_array();
            let item = items.zip(index.parse::<usize>().ok());
            let Some(item) = item.and_then(|(items, index)| items.get(index)) else {
                return found;
            };
            value = item;
            found = Some(item.span().start);
            rest = after;
        }
        rest = rest.strip_prefix('.').unwrap_or(rest);
        match value.get_ref() {
            DeValue::Table(inner) => table = inner,
            _ => return found,
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_located_in_tables_and_lists() {
        let text = "title = \"x\"\n[traffic]\nmean = 1\n[[event]]\nat = 1\n[[event]]\n  at = 2\n";
        let found = |path: &str| {
            let error = ScenarioError::of_field(FieldError::new(path, "no"), text);
            error.position
        };
        assert_eq!(found("title"), Some((1, 1)));
        assert_eq!(found("traffic.mean"), Some((3, 1)));
        assert_eq!(found("event[1].at"), Some((7, 3)));
        assert_eq!(found("traffic.other"), Some((2, 2)), "what encloses it");
        assert_eq!(found("missing"), None);
    }
}
