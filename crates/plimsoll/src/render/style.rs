//! Colors of the text output.

/// Meaning of a color. The text itself says the same, for output without colors.
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

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Style {
    color: bool,
}

impl Style {
    /// Uses colors on a terminal, unless `NO_COLOR` is set (no-color.org).
    pub(crate) fn new(terminal: bool, no_color: Option<&std::ffi::OsStr>) -> Self {
        let disabled = no_color.is_some_and(|value| !value.is_empty());
        Self {
            color: terminal && !disabled,
        }
    }

    /// Colors `text`. Pad the text before: escape codes count as characters but have no width.
    pub(super) fn paint(self, tone: Tone, text: &str) -> String {
        let code = match tone {
            _ if !self.color || text.is_empty() => return text.to_owned(),
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
    fn colors_appear_only_on_terminals_and_without_no_color() {
        let painted = |terminal, no_color: Option<&str>| {
            Style::new(terminal, no_color.map(OsStr::new)).paint(Tone::Bad, "x") != "x"
        };
        assert!(painted(true, None));
        assert!(painted(true, Some("")), "an empty NO_COLOR does not count");
        assert!(!painted(true, Some("1")));
        assert!(!painted(false, None));
    }

    #[test]
    fn plain_and_empty_text_has_no_escape_codes() {
        let style = Style::new(true, None);
        assert_eq!(style.paint(Tone::Plain, "x"), "x");
        assert_eq!(style.paint(Tone::Good, ""), "");
        assert_eq!(style.paint(Tone::Strong, "x"), "\u{1b}[1mx\u{1b}[0m");
    }
}
