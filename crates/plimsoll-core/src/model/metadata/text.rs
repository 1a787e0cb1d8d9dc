//! Text form of metadata for logs and explanations: `key=value`, values as JSON.

use std::fmt::{self, Write};

use super::{Metadata, MetadataValue};

pub(super) fn describe<'a>(
    f: &mut fmt::Formatter<'_>,
    mut pairs: impl Iterator<Item = (&'a str, &'a MetadataValue)>,
) -> fmt::Result {
    let Some((key, value)) = pairs.next() else {
        return f.write_str("<no metadata>");
    };
    write!(f, "{key}={value}")?;
    pairs.try_for_each(|(key, value)| write!(f, ", {key}={value}"))
}

impl fmt::Display for MetadataValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Null => f.write_str("null"),
            Self::Bool(value) => write!(f, "{value}"),
            Self::Number(number) => write!(f, "{}", Number(number.get())),
            Self::String(text) => quote(f, text),
            Self::List(values) => {
                f.write_char('[')?;
                for (index, value) in values.iter().enumerate() {
                    f.write_str(if index > 0 { "," } else { "" })?;
                    write!(f, "{value}")?;
                }
                f.write_char(']')
            }
            Self::Struct(fields) => object(f, fields),
        }
    }
}

fn object(f: &mut fmt::Formatter<'_>, fields: &Metadata) -> fmt::Result {
    f.write_char('{')?;
    for (index, (key, value)) in fields.iter().enumerate() {
        f.write_str(if index > 0 { "," } else { "" })?;
        quote(f, key)?;
        write!(f, ":{value}")?;
    }
    f.write_char('}')
}

/// A double as protobuf's JSON prints it: shortest digits, exponent for extreme magnitudes.
struct Number(f64);

impl fmt::Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let magnitude = self.0.abs();
        if magnitude == 0.0 || (1e-4..1e15).contains(&magnitude) {
            return write!(f, "{}", self.0);
        }
        let text = format!("{:e}", self.0);
        let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
        let exponent: i32 = exponent.parse().map_err(|_| fmt::Error)?;
        let sign = if exponent < 0 { '-' } else { '+' };
        write!(f, "{digits}e{sign}{:02}", exponent.abs())
    }
}

/// Writes a JSON string; angle brackets are escaped as protobuf does.
fn quote(f: &mut fmt::Formatter<'_>, text: &str) -> fmt::Result {
    f.write_char('"')?;
    for character in text.chars() {
        match character {
            '"' => f.write_str("\\\"")?,
            '\\' => f.write_str("\\\\")?,
            '\n' => f.write_str("\\n")?,
            '\r' => f.write_str("\\r")?,
            '\t' => f.write_str("\\t")?,
            '\u{8}' => f.write_str("\\b")?,
            '\u{c}' => f.write_str("\\f")?,
            '<' | '>' | '\0'..='\u{1f}' | '\u{7f}' => {
                write!(f, "\\u{:04x}", u32::from(character))?;
            }
            other => f.write_char(other)?,
        }
    }
    f.write_char('"')
}
