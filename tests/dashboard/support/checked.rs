//! Page that records which kinds of numbers a test has checked.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::page::Page;

/// Page and the kinds of elements checked so far.
pub(crate) struct Checked {
    pub(crate) page: Page,
    pub(crate) kinds: BTreeSet<String>,
}

/// JavaScript function that returns the kind of an element: table and column, group and tile, or
/// picture and class.
const KIND: &str = "((e) => {
  const tile = e.closest('[data-tile]');
  if (tile) { return `${tile.parentElement.id} ${tile.dataset.tile}`; }
  const table = e.closest('table');
  const cell = e.closest('td, th');
  if (table) { return `${table.id} ${cell.dataset.field ?? cell.cellIndex}`; }
  return `${e.closest('[id]').id} ${e.classList[0] ?? e.tagName}`;
})";

/// Selector of everything that shows data of the document: numbers and table cells.
const SHOWN: &str = "[data-value], tbody:not(.filler) > tr:not(.filler) > *";

impl Checked {
    pub(crate) fn new(page: Page) -> Self {
        Self {
            page,
            kinds: BTreeSet::new(),
        }
    }

    /// Returns number and text of an element and marks its kind as checked.
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

    /// Asserts the text of an element.
    pub(crate) fn says(&mut self, selector: &str, expected: &str) {
        let (_, text) = self.shown(selector);
        assert_eq!(text.trim(), expected, "{selector}");
    }

    /// Asserts that an element has the number `expected`, and that its text is the number times
    /// `factor`, rounded.
    pub(crate) fn shows(&mut self, selector: &str, expected: &Value, factor: f64) {
        let (value, text) = self.shown(selector);
        let Some(expected) = expected.as_f64() else {
            assert_eq!(value, Value::Null, "{selector} shows {text}");
            assert_eq!(text, "–", "{selector}");
            return;
        };
        // Sums may be computed in another order.
        let same = |found: f64| (found - expected).abs() <= 1e-9 * expected.abs().max(1.0);
        assert!(
            value.as_f64().is_some_and(same),
            "{selector}: {value} is not {expected}"
        );
        reads_as(selector, &text, expected * factor);
    }

    /// Returns an attribute of an element and marks its kind as checked.
    pub(crate) fn attribute(&mut self, selector: &str, name: &str) -> String {
        self.shown(selector);
        let selector = json!(selector);
        self.page.text(&format!(
            "document.querySelector({selector}).getAttribute('{name}')"
        ))
    }

    /// Returns the kinds on the page that were not checked.
    pub(crate) fn unchecked(&mut self) -> Vec<String> {
        let all = self.page.eval(&format!(
            "[...new Set([...document.querySelectorAll('{SHOWN}')].map({KIND}))].sort()"
        ));
        let kinds = all.as_array().unwrap().iter();
        kinds
            .map(|kind| kind.as_str().unwrap().to_owned())
            .filter(|kind| !self.kinds.contains(kind))
            .collect()
    }
}

/// Asserts that a text with a unit is `exact`, rounded.
pub(crate) fn reads_as(selector: &str, text: &str, exact: f64) {
    let digits: String = text
        .chars()
        .filter(|c| c.is_ascii_digit() || *c == '.')
        .collect();
    let read: f64 = digits
        .parse()
        .unwrap_or_else(|_| panic!("{selector} shows {text}"));
    // Tolerance: half a unit of the last digit.
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

/// Returns a clause of an explanation as the page writes it.
pub(crate) fn as_sentence(clause: &str) -> String {
    let mut letters = clause.chars();
    let first = letters.next().map(|first| first.to_ascii_uppercase());
    first.into_iter().chain(letters).chain(['.']).collect()
}
