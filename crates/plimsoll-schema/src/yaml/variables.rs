//! [`expand`]: replaces `${NAME}` in the values of a YAML text by environment variables.
//!
//! Only scalar values are searched: comments and keys stay as they are. The text is parsed to find
//! them, but the replacement is done in the text, so that later errors still have their lines, and
//! a plain `port: ${PORT}` becomes a number.

use std::borrow::Cow;

use super::document::{Document, Node, Value};
use super::error::{ConfigError, Location};

/// Characters that end or change an unquoted YAML scalar; a value with them needs quotes.
const NOT_PLAIN: [char; 8] = [',', '[', ']', '{', '}', '#', ':', '\\'];

/// Replaces `${NAME}` and `${NAME:-default}` in the values of a text; `$${` is written as `${`.
/// `lookup` returns the value of a variable. The default is used if a variable is not set or empty.
///
/// A variable without value and default is an error with path and location of the field. A text
/// that is not YAML is returned unchanged: parsing it reports the error.
pub fn expand<'a>(
    text: &'a str,
    lookup: &dyn Fn(&str) -> Option<String>,
) -> Result<Cow<'a, str>, ConfigError> {
    if !text.contains("${") {
        return Ok(Cow::Borrowed(text));
    }
    let Ok(document) = Document::parse(text) else {
        return Ok(Cow::Borrowed(text));
    };
    let mut scalars = Vec::new();
    collect(&document.root, "", &mut scalars);
    scalars.sort_by_key(|scalar| (scalar.location.line, scalar.location.column));
    let mut expanded = String::with_capacity(text.len());
    let mut copied = 0;
    for scalar in &scalars {
        let start = offset(text, scalar.location);
        // An alias repeats the value of its anchor, which is expanded where it is written.
        if start < copied || text[start..].starts_with('*') {
            continue;
        }
        expanded.push_str(&text[copied..start]);
        let style = Style::of(&text[..start], &text[start..]);
        copied = start + scalar.replace(&text[start..], style, lookup, &mut expanded)?;
    }
    expanded.push_str(&text[copied..]);
    Ok(Cow::Owned(expanded))
}

/// A scalar with references to variables.
struct Scalar {
    path: String,
    location: Location,
    references: usize,
}

/// How a scalar is written, which decides how a value is escaped in it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Style {
    Plain,
    SingleQuoted,
    DoubleQuoted,
    Block,
}

/// A reference: `NAME` or `NAME:-default`, without the braces.
struct Reference<'a> {
    name: &'a str,
    default: Option<&'a str>,
}

fn collect(node: &Node, path: &str, scalars: &mut Vec<Scalar>) {
    match &node.value {
        Value::String(value) if value.contains("${") => scalars.push(Scalar {
            path: path.to_owned(),
            location: node.location,
            references: value.matches("${").count(),
        }),
        Value::List(items) => {
            for (index, item) in items.iter().enumerate() {
                collect(item, &format!("{path}[{index}]"), scalars);
            }
        }
        Value::Map(entries) => {
            for entry in entries {
                let dot = if path.is_empty() { "" } else { "." };
                let inner = format!("{path}{dot}{}", entry.key);
                collect(&entry.value, &inner, scalars);
            }
        }
        _ => {}
    }
}

/// Returns the byte offset of a location.
fn offset(text: &str, location: Location) -> usize {
    let line = usize::try_from(location.line).map_or(0, |line| line.saturating_sub(1));
    let column = usize::try_from(location.column).map_or(0, |column| column.saturating_sub(1));
    let mut lines = text.split_inclusive('\n');
    let before: usize = lines.by_ref().take(line).map(str::len).sum();
    let in_line = lines.next().unwrap_or_default();
    let characters = in_line.char_indices().nth(column);
    before + characters.map_or(in_line.len(), |(at, _)| at)
}

impl Scalar {
    /// Copies the text up to the end of the last reference with its values; returns the number of
    /// bytes that were read.
    fn replace(
        &self,
        text: &str,
        style: Style,
        lookup: &dyn Fn(&str) -> Option<String>,
        expanded: &mut String,
    ) -> Result<usize, ConfigError> {
        let mut read = 0;
        for _ in 0..self.references {
            let Some(found) = text[read..].find("${") else {
                // Written with escapes in a quoted scalar: not a reference.
                break;
            };
            let before = &text[read..read + found];
            let start = read + found + 2;
            if let Some(literal) = before.strip_suffix('$') {
                expanded.push_str(literal);
                expanded.push_str("${");
                read = start;
                continue;
            }
            expanded.push_str(before);
            let end = text[start..].find('}').map(|at| start + at);
            let inside = end.map(|end| &text[start..end]).unwrap_or_default();
            let Some(reference) = Reference::parse(inside) else {
                let reason = format!(
                    "${{{inside}}} is not a reference to a variable; write ${{NAME}}, \
                     ${{NAME:-default}}, or $${{ for the characters ${{"
                );
                return Err(self.error(reason));
            };
            let value = self.value(&reference, style, lookup)?;
            expanded.push_str(&value);
            read = start + inside.len() + 1;
        }
        Ok(read)
    }

    fn value(
        &self,
        reference: &Reference<'_>,
        style: Style,
        lookup: &dyn Fn(&str) -> Option<String>,
    ) -> Result<String, ConfigError> {
        let name = reference.name;
        let set = lookup(name);
        let value = match (set.filter(|value| !value.is_empty()), reference.default) {
            (Some(value), _) => value,
            (None, Some(default)) => return Ok(default.to_owned()),
            (None, None) if lookup(name).is_some() => String::new(),
            (None, None) => {
                let reason = format!("the environment variable {name} is not set");
                return Err(self.error(reason));
            }
        };
        if value.chars().any(char::is_control) {
            let reason = format!("the value of {name} has control characters");
            return Err(self.error(reason));
        }
        match style {
            Style::SingleQuoted => Ok(value.replace('\'', "''")),
            Style::DoubleQuoted => Ok(value.replace('\\', "\\\\").replace('"', "\\\"")),
            Style::Block => Ok(value),
            Style::Plain if value.contains(NOT_PLAIN) || value.trim() != value => {
                let reason = format!("the value {value:?} of {name} needs quotes around the field");
                Err(self.error(reason))
            }
            Style::Plain => Ok(value),
        }
    }

    fn error(&self, reason: String) -> ConfigError {
        ConfigError::new(self.path.as_str(), reason).at(self.location)
    }
}

impl Style {
    /// Returns the style of the scalar at the start of a text, after its anchor and tag. The text
    /// of a block scalar begins in the line after its indicator.
    fn of(before: &str, text: &str) -> Self {
        let header = before.trim_end();
        let indicator = header.split_whitespace().next_back().unwrap_or_default();
        if before[header.len()..].contains('\n') && indicator.starts_with(['|', '>']) {
            return Self::Block;
        }
        let mut rest = text;
        while rest.starts_with(['&', '!']) {
            let (_, after) = rest.split_once([' ', '\n']).unwrap_or(("", ""));
            rest = after.trim_start();
        }
        match rest.chars().next() {
            Some('\'') => Self::SingleQuoted,
            Some('"') => Self::DoubleQuoted,
            _ => Self::Plain,
        }
    }
}

impl<'a> Reference<'a> {
    fn parse(inside: &'a str) -> Option<Self> {
        let (name, default) = match inside.split_once(":-") {
            Some((name, default)) => (name, Some(default)),
            None => (inside, None),
        };
        let is_name = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
        let starts = name.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_');
        (starts && name.chars().all(is_name)).then_some(Self { name, default })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lookup(name: &str) -> Option<String> {
        let value = match name {
            "POD" => "gateway-7",
            "PORT" => "8080",
            "EMPTY" => "",
            "ODD" => "it's \"a\\b\", #1",
            "LINES" => "a\nb: c",
            _ => return None,
        };
        Some(value.to_owned())
    }

    fn expanded(text: &str) -> String {
        expand(text, &lookup).unwrap().into_owned()
    }

    fn refused(text: &str) -> String {
        expand(text, &lookup).unwrap_err().to_string()
    }

    #[test]
    fn values_are_replaced_and_the_rest_stays() {
        let text = "# ${UNSET} in a comment\n\
                    node: {id: '${POD}', zone: \"a-${POD}-${PORT}\"} # ${X}\n\
                    port: ${PORT}\nlist:\n- ${POD}.svc\n- plain\n${KEY}: 1\n";
        let expected = "# ${UNSET} in a comment\n\
                        node: {id: 'gateway-7', zone: \"a-gateway-7-8080\"} # ${X}\n\
                        port: 8080\nlist:\n- gateway-7.svc\n- plain\n${KEY}: 1\n";
        assert_eq!(expanded(text), expected);
        let number = Document::parse(&expanded("port: ${PORT}")).unwrap().json();
        assert_eq!(number["port"], 8080, "a number, not a string");
    }

    #[test]
    fn a_text_without_references_is_not_copied() {
        assert!(matches!(
            expand("a: $1", &lookup),
            Ok(Cow::Borrowed("a: $1"))
        ));
        assert_eq!(expanded("a: [${POD}"), "a: [${POD}", "not YAML");
    }

    #[test]
    fn defaults_replace_what_is_unset_or_empty() {
        assert_eq!(expanded("a: '${UNSET:-x y}'"), "a: 'x y'");
        assert_eq!(expanded("a: '${EMPTY:-x}'"), "a: 'x'");
        assert_eq!(expanded("a: '${POD:-x}'"), "a: 'gateway-7'");
        assert_eq!(expanded("a: '${UNSET:-}'"), "a: ''");
        assert_eq!(
            expanded("a: '${EMPTY}'"),
            "a: ''",
            "set to nothing on purpose"
        );
    }

    #[test]
    fn doubled_dollars_are_literal() {
        assert_eq!(expanded("a: 'x$${POD}-${POD}'"), "a: 'x${POD}-gateway-7'");
    }

    #[test]
    fn values_are_escaped_for_their_quotes() {
        for text in ["a: '${ODD}'", "a: \"${ODD}\"", "a: |\n  ${ODD}"] {
            let json = Document::parse(&expanded(text)).unwrap().json();
            let value = json["a"].as_str().unwrap().trim_end();
            assert_eq!(value, "it's \"a\\b\", #1", "{text}");
        }
        let error = refused("a: ${ODD}");
        assert!(
            error.contains("needs quotes around the field (at 1:4)"),
            "{error}"
        );
        let error = refused("a: '${LINES}'");
        assert!(error.contains("LINES has control characters"), "{error}");
    }

    #[test]
    fn errors_name_field_line_and_variable() {
        assert_eq!(
            refused("a: 1\nb:\n- {c: '${UNSET}'}\n"),
            "b[0].c: the environment variable UNSET is not set (at 3:7)"
        );
        for wrong in ["${}", "${a b}", "${A.B}", "${1A}", "${A"] {
            let error = refused(&format!("a: '{wrong}'"));
            assert!(
                error.contains("is not a reference to a variable"),
                "{error}"
            );
        }
    }

    #[test]
    fn aliases_repeat_the_expanded_value() {
        let text = "a: &x '${POD}'\nb: *x\nc: ü${PORT}\n";
        assert_eq!(expanded(text), "a: &x 'gateway-7'\nb: *x\nc: ü8080\n");
    }
}
