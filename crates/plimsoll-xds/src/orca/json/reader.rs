//! Syntax of JSON (RFC 8259), as far as a report has it: an object of scalars and of objects.
//!
//! The caller says what it expects next, so that nothing is parsed that a report cannot have, and
//! the depth of a document does not matter.

use std::borrow::Cow;
use std::fmt;

/// Reason why a document is rejected.
#[derive(Debug)]
pub(super) struct JsonError(Cow<'static, str>);

impl JsonError {
    pub(super) fn new(reason: impl Into<Cow<'static, str>>) -> Self {
        Self(reason.into())
    }
}

impl fmt::Display for JsonError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A number as written, or the content of a string.
pub(super) enum Scalar<'a> {
    Number(&'a str),
    Text(String),
}

/// Reads a document from front to back.
pub(super) struct Reader<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Reader<'a> {
    pub(super) fn try_new(document: &'a [u8]) -> Result<Self, JsonError> {
        match std::str::from_utf8(document) {
            Ok(text) => Ok(Self { text, at: 0 }),
            Err(_) => Err(JsonError::new("not UTF-8")),
        }
    }

    /// Reads an object; `each` gets the key of an entry and must read its value.
    pub(super) fn object(
        &mut self,
        mut each: impl FnMut(&mut Self, &str) -> Result<(), JsonError>,
    ) -> Result<(), JsonError> {
        self.expect(b'{', "an object")?;
        if self.take(b'}') {
            return Ok(());
        }
        loop {
            self.expect(b'"', "a key")?;
            let key = self.string()?;
            self.expect(b':', "a colon")?;
            each(self, &key)?;
            if !self.take(b',') {
                return self.expect(b'}', "a comma or the end of the object");
            }
        }
    }

    /// Reads `null` if it is next.
    pub(super) fn null(&mut self) -> bool {
        let null = self.peek() == Some(b'n') && self.rest().starts_with("null");
        if null {
            self.at += 4;
        }
        null
    }

    /// Reads a number or string.
    pub(super) fn scalar(&mut self) -> Result<Scalar<'a>, JsonError> {
        if self.take(b'"') {
            return self.string().map(Scalar::Text);
        }
        let rest = self.rest();
        let length = number_length(rest.as_bytes()).ok_or_else(|| self.expected("a number"))?;
        self.at += length;
        Ok(Scalar::Number(&rest[..length]))
    }

    /// Checks that nothing follows.
    pub(super) fn end(&mut self) -> Result<(), JsonError> {
        match self.peek() {
            None => Ok(()),
            Some(_) => Err(self.expected("the end")),
        }
    }

    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    /// Skips whitespace and returns the next byte.
    fn peek(&mut self) -> Option<u8> {
        let rest = self.rest();
        self.at += rest.len() - rest.trim_start_matches([' ', '\t', '\n', '\r']).len();
        self.rest().bytes().next()
    }

    fn take(&mut self, byte: u8) -> bool {
        let next = self.peek() == Some(byte);
        if next {
            self.at += 1;
        }
        next
    }

    fn expect(&mut self, byte: u8, what: &str) -> Result<(), JsonError> {
        if self.take(byte) {
            return Ok(());
        }
        Err(self.expected(what))
    }

    fn expected(&self, what: &str) -> JsonError {
        JsonError::new(format!("expected {what} at byte {}", self.at))
    }

    /// Reads a string after its opening quote.
    fn string(&mut self) -> Result<String, JsonError> {
        let mut text = String::new();
        loop {
            let rest = self.rest();
            let plain = rest.find(|letter| matches!(letter, '"' | '\\' | '\0'..='\x1f'));
            let end = plain.ok_or_else(|| self.expected("the end of the string"))?;
            text.push_str(&rest[..end]);
            self.at += end + 1;
            match rest.as_bytes()[end] {
                b'"' => return Ok(text),
                b'\\' => text.push(self.escape()?),
                _ => return Err(JsonError::new("a string has a control character")),
            }
        }
    }

    /// Reads an escape sequence after its backslash.
    fn escape(&mut self) -> Result<char, JsonError> {
        let letter = self.rest().bytes().next();
        self.at += usize::from(letter.is_some_and(|letter| letter.is_ascii()));
        Ok(match letter {
            Some(letter @ (b'"' | b'\\' | b'/')) => letter.into(),
            Some(b'b') => '\u{8}',
            Some(b'f') => '\u{c}',
            Some(b'n') => '\n',
            Some(b'r') => '\r',
            Some(b't') => '\t',
            Some(b'u') => return self.unicode(),
            _ => return Err(self.expected("an escape sequence")),
        })
    }

    /// Reads the digits of `\u`, and of the second one if it is a surrogate pair.
    fn unicode(&mut self) -> Result<char, JsonError> {
        let mut units = vec![self.unit()?];
        if (0xd800..0xdc00).contains(&units[0]) && self.rest().starts_with("\\u") {
            self.at += 2;
            units.push(self.unit()?);
        }
        let mut letters = char::decode_utf16(units);
        match (letters.next(), letters.next()) {
            (Some(Ok(letter)), None) => Ok(letter),
            _ => Err(JsonError::new("a string has half of a surrogate pair")),
        }
    }

    fn unit(&mut self) -> Result<u16, JsonError> {
        let digits = self.rest().get(..4);
        // `from_str_radix` would accept a sign.
        let hex = digits.filter(|digits| digits.bytes().all(|byte| byte.is_ascii_hexdigit()));
        let unit = hex.and_then(|hex| u16::from_str_radix(hex, 16).ok());
        let unit = unit.ok_or_else(|| self.expected("four hex digits"))?;
        self.at += 4;
        Ok(unit)
    }
}

/// Returns the length of the number that `text` starts with.
fn number_length(text: &[u8]) -> Option<usize> {
    let digits = |from: usize| {
        let digits = text[from..].iter().take_while(|byte| byte.is_ascii_digit());
        digits.count()
    };
    let mut at = usize::from(text.first() == Some(&b'-'));
    at += match (text.get(at)?, digits(at)) {
        (b'0', _) => 1,
        (_, 0) => return None,
        (_, length) => length,
    };
    if text.get(at) == Some(&b'.') {
        let length = digits(at + 1);
        if length == 0 {
            return None;
        }
        at += 1 + length;
    }
    if matches!(text.get(at), Some(b'e' | b'E')) {
        let sign = usize::from(matches!(text.get(at + 1), Some(b'+' | b'-')));
        let length = digits(at + 1 + sign);
        if length == 0 {
            return None;
        }
        at += 1 + sign + length;
    }
    Some(at)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(document: &str) -> Result<String, JsonError> {
        let mut reader = Reader::try_new(document.as_bytes())?;
        let scalar = reader.scalar()?;
        reader.end()?;
        match scalar {
            Scalar::Text(text) => Ok(text),
            Scalar::Number(number) => Ok(number.to_owned()),
        }
    }

    #[test]
    fn escapes_are_replaced() {
        for (document, expected) in [
            (r#""a\"\\\/b""#, "a\"\\/b"),
            (r#""\b\f\n\r\t""#, "\u{8}\u{c}\n\r\t"),
            (r#""\u00e9\u00E9é""#, "ééé"),
            (r#""\ud83d\ude00""#, "\u{1f600}"),
        ] {
            assert_eq!(text(document).unwrap(), expected);
        }
    }

    #[test]
    fn malformed_strings_are_rejected() {
        for document in [
            r#"""#,
            r#""\"#,
            r#""\x""#,
            r#""\é""#,
            r#""\u12""#,
            r#""\u+123""#,
            r#""\u12é4""#,
            r#""\ud83d""#,
            r#""\ude00\ud83d""#,
            r#""\ud83d\u0041""#,
            "\"\n\"",
            "\"\0\"",
        ] {
            assert!(text(document).is_err(), "{document}");
        }
    }

    #[test]
    fn numbers_have_the_syntax_of_json() {
        for number in ["0", "-0", "10", "0.5", "-1.25", "1e3", "1E+3", "2.5e-300"] {
            assert_eq!(text(number).unwrap(), number);
        }
        for wrong in [
            "", "-", "01", "1.", ".5", "+1", "1e", "1e+", "0x1", "1 2", "--1",
        ] {
            assert!(text(wrong).is_err(), "{wrong}");
        }
    }
}
