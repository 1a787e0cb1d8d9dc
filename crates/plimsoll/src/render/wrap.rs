//! Word wrap with a hanging indent.

use super::table::{visible, width_of};

pub(super) const WIDTH: usize = 100;

/// Wraps `text` to [`WIDTH`] columns: the first line starts with `first`, the others are indented
/// by its width. Words are not broken unless they are longer than a line.
pub(super) fn wrap(first: &str, text: &str) -> String {
    wrap_to(WIDTH, first, text)
}

/// Wraps like [`wrap`], to `columns`.
pub(super) fn wrap_to(columns: usize, first: &str, text: &str) -> String {
    let indent = " ".repeat(width_of(first));
    let mut lines = String::from(first);
    let mut column = width_of(first);
    let mut begun = false;
    for word in text
        .split_whitespace()
        .flat_map(|word| pieces(word, columns.saturating_sub(indent.len())))
    {
        let width = width_of(&word);
        if begun && column + 1 + width > columns {
            lines.push('\n');
            lines.push_str(&indent);
            column = indent.len();
        } else if begun {
            lines.push(' ');
            column += 1;
        }
        lines.push_str(&word);
        column += width;
        begun = true;
    }
    lines.push('\n');
    lines
}

fn pieces(word: &str, room: usize) -> Vec<String> {
    let letters: Vec<char> = visible(word.to_owned()).chars().collect();
    letters
        .chunks(room.max(1))
        .map(|piece| piece.iter().collect())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_wraps_between_words_with_a_hanging_indent() {
        let text = "word ".repeat(30);
        let wrapped = wrap("  ! ", &text);
        let lines: Vec<_> = wrapped.lines().collect();
        assert_eq!(lines.len(), 2);
        assert!(lines[0].starts_with("  ! word") && lines[1].starts_with("    word"));
        assert!(lines.iter().all(|line| width_of(line) <= WIDTH));
        let narrow = wrap_to(20, "  ! ", &text);
        assert_eq!(narrow.lines().count(), 10);
        assert!(narrow.lines().all(|line| width_of(line) <= 20), "{narrow}");
    }

    #[test]
    fn a_word_longer_than_a_line_is_broken() {
        let wrapped = wrap("  ", &"x".repeat(250));
        assert!(wrapped.lines().all(|line| width_of(line) <= WIDTH));
        assert_eq!(wrapped.matches('x').count(), 250);
        assert_eq!(wrap("", ""), "\n");
    }
}
