//! Colours, on terminals only.

/// What a piece of text says by its colour. Without colours the page says the same in words.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Tone {
    Bad,
    Dim,
    Good,
    #[default]
    Plain,
    Strong,
    Warning,
}

/// Whether the page has colours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Style {
    colour: bool,
}

impl Style {
    /// Colours if the reader is a terminal that did not ask for none (`NO_COLOR`, no-color.org).
    pub(crate) fn new(terminal: bool, no_color: Option<&std::ffi::OsStr>) -> Self {
        let refused = no_color.is_some_and(|value| !value.is_empty());
        Self {
            colour: terminal && !refused,
        }
    }

    /// `text` in `tone`. Pad before painting: escape codes have no width.
    pub(super) fn paint(self, tone: Tone, text: &str) -> String {
        let code = match tone {
            _ if !self.colour || text.is_empty() => return text.to_owned(),
            Tone::Plain => return text.to_owned(),
            Tone::Bad => "31",
            Tone::Dim => "2",
            Tone::Good => "32",
            Tone::Strong => "1",
            Tone::Warning => "33",
        };
        format!("\u{1b}[{code}m{text}\u{1b}[0m")
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;

    use super::*;

    #[test]
    fn colours_only_on_a_terminal_that_wants_them() {
        let painted = |terminal, no_color: Option<&str>| {
            Style::new(terminal, no_color.map(OsStr::new)).paint(Tone::Bad, "x") != "x"
        };
        assert!(painted(true, None));
        assert!(painted(true, Some("")), "an empty NO_COLOR does not count");
        assert!(!painted(true, Some("1")));
        assert!(!painted(false, None));
    }

    #[test]
    fn plain_text_and_nothing_have_no_codes() {
        let style = Style::new(true, None);
        assert_eq!(style.paint(Tone::Plain, "x"), "x");
        assert_eq!(style.paint(Tone::Good, ""), "");
        assert_eq!(style.paint(Tone::Strong, "x"), "\u{1b}[1mx\u{1b}[0m");
    }
}
