//! [`Escaping`]: writes control characters of log lines as escapes. Lines quote what clients send,
//! and a client that could break a line could write whole lines of its own.

use std::borrow::Cow;
use std::io::{self, Write};

/// Writer of whole lines.
pub(super) struct Escaping<W> {
    writer: W,
    /// Whether the formatter writes colors. It escapes those of values by itself.
    ansi: bool,
}

impl<W> Escaping<W> {
    pub(super) const fn new(writer: W, ansi: bool) -> Self {
        Self { writer, ansi }
    }
}

impl<W: Write> Write for Escaping<W> {
    /// Writes a whole line; the subscriber passes each as one buffer.
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(line);
        self.writer.write_all(escape(&text, self.ansi).as_bytes())?;
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.writer.flush()
    }
}

/// Escapes control characters and line separators, except for the line's end and tabs.
fn escape(line: &str, ansi: bool) -> Cow<'_, str> {
    let is_escaped = |char: char| match char {
        '\t' => false,
        '\x1b' => !ansi,
        '\u{2028}' | '\u{2029}' => true,
        char => char.is_control(),
    };
    let (text, end) = match line.strip_suffix('\n') {
        Some(text) => (text, "\n"),
        None => (line, ""),
    };
    if !text.contains(is_escaped) {
        return Cow::Borrowed(line);
    }
    let mut escaped = String::with_capacity(line.len() + 16);
    for char in text.chars() {
        if is_escaped(char) {
            escaped.extend(char.escape_default());
        } else {
            escaped.push(char);
        }
    }
    escaped.push_str(end);
    Cow::Owned(escaped)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_cannot_write_lines_of_its_own() {
        for (line, expected) in [
            ("as it is\tä\n", "as it is\tä\n"),
            ("no end", "no end"),
            ("a\n2026 ERROR forged\n", "a\\n2026 ERROR forged\n"),
            ("a\r\nb\n\n", "a\\r\\nb\\n\n"),
            (
                "\u{1b}[2Kx\u{7f}\0\u{9b}\n",
                "\\u{1b}[2Kx\\u{7f}\\u{0}\\u{9b}\n",
            ),
            ("a\u{2028}b\n", "a\\u{2028}b\n"),
        ] {
            let mut written = Vec::new();
            let mut writer = Escaping::new(&mut written, false);
            writer.write_all(line.as_bytes()).unwrap();
            assert_eq!(String::from_utf8(written).unwrap(), expected);
        }
    }

    #[test]
    fn colors_of_the_formatter_are_kept_on_terminals() {
        assert_eq!(
            escape("\u{1b}[31mERROR\u{1b}[0m\n", true),
            "\u{1b}[31mERROR\u{1b}[0m\n"
        );
    }
}
