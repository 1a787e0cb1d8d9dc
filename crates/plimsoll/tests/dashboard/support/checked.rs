//! [`Checked`]: a page whose numbers are compared with those of somebody else, and which kinds of
//! them have been.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::page::Page;

/// A page whose numbers are checked, and which kinds of them have been.
pub(crate) struct Checked {
    pub(crate) page: Page,
    pub(crate) kinds: BTreeSet<String>,
}

/// What an element is: the table and the column, the row of tiles and the tile, or the picture and
/// the class. `kind(element)` in the page.
const KIND: &str = "((e) => {
  const tile = e.closest('[data-tile]');
  if (tile) { return `${tile.parentElement.id} ${tile.dataset.tile}`; }
  const table = e.closest('table');
  const cell = e.closest('td, th');
  if (table) { return `${table.id} ${cell.dataset.field ?? cell.cellIndex}`; }
  return `${e.closest('[id]').id} ${e.classList[0] ?? e.tagName}`;
})";

/// Everything that shows something from the document: what has a number, and every cell of a table.
const SHOWN: &str = "[data-value], tbody:not(.filler) > tr:not(.filler) > *";

impl Checked {
    pub(crate) fn new(page: Page) -> Self {
        Self {
            page,
            kinds: BTreeSet::new(),
        }
    }

    /// Text and number of the element; its kind counts as checked.
    pub(crate) fn shown(&mut self, selector: &str) -> (Value, String) {
        let selector = json!(selector);
        let found = self.page.eval(&format!(
            "(() => {{ const e = document.querySelector({selector});
               return e && [e.dataset.value ?? '', e.textContent, {KIND}(e)]; }})()"
        ));
        let text = |index: usize| {
            found[index]
                .as_str()
                .unwrap_or_else(|| panic!("no {selector}"))
        };
        self.kinds.insert(text(2).to_owned());
        let value = text(0)
            .parse::<f64>()
            .map_or(Value::Null, |value| json!(value));
        (value, text(1).to_owned())
    }

    /// An element has these words.
    pub(crate) fn says(&mut self, selector: &str, wanted: &str) {
        let (_, text) = self.shown(selector);
        assert_eq!(text.trim(), wanted, "{selector}");
    }

    /// An element shows `wanted`: the number is it, and its text, times `factor`, rounds to it.
    pub(crate) fn shows(&mut self, selector: &str, wanted: &Value, factor: f64) {
        let (value, text) = self.shown(selector);
        let Some(wanted) = wanted.as_f64() else {
            assert_eq!(value, Value::Null, "{selector} shows {text}");
            assert_eq!(text, "–", "{selector}");
            return;
        };
        // Sums may be made in another order.
        let same = |found: f64| (found - wanted).abs() <= 1e-9 * wanted.abs().max(1.0);
        assert!(
            value.as_f64().is_some_and(same),
            "{selector}: {value} is not {wanted}"
        );
        reads_as(selector, &text, wanted * factor);
    }

    /// An attribute of an element; its kind counts as checked.
    pub(crate) fn attribute(&mut self, selector: &str, name: &str) -> String {
        self.shown(selector);
        let selector = json!(selector);
        self.page.text(&format!(
            "document.querySelector({selector}).getAttribute('{name}')"
        ))
    }

    /// Kinds on the page that nobody has checked.
    pub(crate) fn unchecked(&mut self) -> Vec<String> {
        let all = self.page.eval(&format!(
            "[...new Set([...document.querySelectorAll('{SHOWN}')].map({KIND}))].sort()"
        ));
        let all = all.as_array().unwrap().iter();
        let all = all.map(|kind| kind.as_str().unwrap().to_owned());
        all.filter(|kind| !self.kinds.contains(kind)).collect()
    }
}

/// A text with a unit that rounds to `exact`.
pub(crate) fn reads_as(selector: &str, text: &str, exact: f64) {
    let digits: String = text
        .chars()
        .filter(|c| c.is_ascii_digit() || *c == '.')
        .collect();
    let read: f64 = digits
        .parse()
        .unwrap_or_else(|_| panic!("{selector} shows {text}"));
    // Half of the last digit that is shown.
    let decimals = digits.split_once('.').map_or(0, |(_, rest)| rest.len());
    let half = 0.5 * 0.1_f64.powi(i32::try_from(decimals).unwrap()) + 1e-9;
    assert!(
        (read - exact).abs() <= half,
        "{selector}: {text} is not {exact}"
    );
    let unit = text.trim_start_matches(|c: char| c.is_ascii_digit() || "., $".contains(c));
    assert!(
        !unit.is_empty() || text.starts_with('$') || exact.fract() == 0.0,
        "{text} has no unit"
    );
}
