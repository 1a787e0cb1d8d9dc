//! Tables with aligned columns: cells are padded by their visible width, then colored.

use super::style::{Style, Tone};
use super::wrap::WIDTH;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Cell {
    text: String,
    tone: Tone,
}

impl Cell {
    pub(super) fn new(tone: Tone, text: impl Into<String>) -> Self {
        Self {
            text: visible(text.into()),
            tone,
        }
    }

    pub(super) fn plain(text: impl Into<String>) -> Self {
        Self::new(Tone::Plain, text)
    }

    pub(super) fn none() -> Self {
        Self::new(Tone::Dim, "–")
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Align {
    Left,
    Right,
}

/// Rows below a header. Names in the first column are shortened if a line is too long.
#[derive(Clone, Debug)]
pub(super) struct Table {
    columns: Vec<Align>,
    rows: Vec<Row>,
}

#[derive(Clone, Debug)]
struct Row {
    marked: bool,
    cells: Vec<Cell>,
}

/// Spaces between two columns.
const GAP: usize = 2;

impl Table {
    pub(super) fn new(columns: &[(Align, &str)]) -> Self {
        let head = columns
            .iter()
            .map(|(_, name)| Cell::new(Tone::Dim, *name))
            .collect();
        let mut table = Self {
            columns: columns.iter().map(|(align, _)| *align).collect(),
            rows: Vec::new(),
        };
        table.row(false, head);
        table
    }

    /// Adds a row; a marked row starts with `▸`.
    pub(super) fn row(&mut self, marked: bool, cells: Vec<Cell>) {
        self.rows.push(Row { marked, cells });
    }

    /// Removes columns by name, in the given order, until lines are at most `columns` wide.
    pub(super) fn drop_columns(&mut self, columns: usize, droppable: &[&str]) {
        for name in droppable {
            if self.line_width() <= columns {
                return;
            }
            let head = self.rows.first().map(|row| row.cells.as_slice());
            let mut cells = head.unwrap_or_default().iter();
            if let Some(place) = cells.position(|cell| cell.text == *name) {
                self.columns.remove(place);
                self.rows.iter_mut().for_each(|row| {
                    row.cells.remove(place);
                });
            }
        }
    }

    /// Renders lines of at most [`WIDTH`] columns, without trailing spaces.
    pub(super) fn render(self, style: Style) -> String {
        self.render_to(WIDTH, style)
    }

    /// Renders lines of at most `columns`, without trailing spaces.
    pub(super) fn render_to(mut self, columns: usize, style: Style) -> String {
        self.shorten_names(columns);
        let widths = self.widths();
        let mut text = String::new();
        for row in &self.rows {
            text.push_str(if row.marked { "▸ " } else { "  " });
            let mut pending = 0;
            for ((cell, align), width) in row.cells.iter().zip(&self.columns).zip(&widths) {
                let padding = width - width_of(&cell.text);
                let (before, after) = match align {
                    Align::Left => (0, padding),
                    Align::Right => (padding, 0),
                };
                pending += before;
                if !cell.text.is_empty() {
                    text.push_str(&" ".repeat(pending));
                    text.push_str(&style.paint(cell.tone, &cell.text));
                    pending = 0;
                }
                pending += after + GAP;
            }
            text.push('\n');
        }
        text
    }

    fn widths(&self) -> Vec<usize> {
        let mut widths = vec![0; self.columns.len()];
        for row in &self.rows {
            for (width, cell) in widths.iter_mut().zip(&row.cells) {
                *width = width_of(&cell.text).max(*width);
            }
        }
        widths
    }

    fn line_width(&self) -> usize {
        self.widths().iter().map(|width| GAP + width).sum()
    }

    fn shorten_names(&mut self, columns: usize) {
        let widths = self.widths();
        let surplus = self.line_width().saturating_sub(columns);
        let Some(first) = widths.first() else { return };
        let room = first.saturating_sub(surplus).max(1);
        for row in &mut self.rows {
            if let Some(name) = row.cells.first_mut() {
                name.text = end_of(&name.text, room);
            }
        }
    }
}

/// Cuts the start of a text that is too long: names of zones differ at the end.
pub(super) fn end_of(text: &str, room: usize) -> String {
    match width_of(text).saturating_sub(room) {
        0 => text.to_owned(),
        surplus => format!("…{}", text.chars().skip(surplus + 1).collect::<String>()),
    }
}

/// Replaces control characters: a name from a file must not move the cursor.
pub(super) fn visible(text: String) -> String {
    if text.contains(char::is_control) {
        return text.replace(char::is_control, "\u{fffd}");
    }
    text
}

/// Returns the width of a text, one column per character; too small for East Asian scripts.
pub(super) fn width_of(text: &str) -> usize {
    text.chars().count()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Table {
        let columns = [
            (Align::Left, "zone"),
            (Align::Right, "%"),
            (Align::Left, ""),
        ];
        let mut table = Table::new(&columns);
        let full = Cell::new(Tone::Good, "██");
        table.row(true, vec![Cell::plain("a"), Cell::plain("5"), full]);
        table.row(
            false,
            vec![
                Cell::plain("long name"),
                Cell::plain("100"),
                Cell::default(),
            ],
        );
        table
    }

    #[test]
    fn columns_are_aligned_without_trailing_spaces() {
        let expected = "  zone         %\n▸ a            5  ██\n  long name  100\n";
        assert_eq!(table().render(Style::new(false, None)), expected);
    }

    #[test]
    fn names_are_shortened_if_a_line_is_too_long() {
        let mut table = Table::new(&[(Align::Left, "zone"), (Align::Left, "bar")]);
        let name = format!("{}-the-end", "x".repeat(60));
        table.row(false, vec![Cell::plain(name), Cell::plain("#".repeat(60))]);
        let page = table.render(Style::new(false, None));
        assert!(page.lines().all(|line| width_of(line) <= WIDTH), "{page}");
        assert!(
            page.contains("-the-end  ##") && page.contains("  …xxx"),
            "{page}"
        );
    }

    #[test]
    fn colors_do_not_change_alignment() {
        let painted = table().render(Style::new(true, None));
        let mut plain = String::new();
        let mut codes = false;
        for c in painted.chars() {
            match c {
                '\u{1b}' => codes = true,
                'm' if codes => codes = false,
                _ if !codes => plain.push(c),
                _ => {}
            }
        }
        assert_ne!(painted, plain);
        assert_eq!(plain, table().render(Style::new(false, None)));
    }
}
