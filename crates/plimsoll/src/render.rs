//! Text output for people: tables and bars, at most 100 columns wide.
//!
//! This module orders the sections of an [`Explanation`]; `top` draws the page of `plimsoll top`.
//! No value is computed that is not in the input. Called by `cmd::explain` and `cmd::top`.

mod bar;
mod compare;
mod names;
mod report;
mod sections;
mod style;
mod table;
mod tables;
mod text;
mod top;
mod wrap;

use plimsoll_core::explain::Explanation;

pub(crate) use report::{ReportFormat, report};
pub(crate) use style::Style;
pub(crate) use top::{PageSize, banner, page as top};

#[derive(Clone, Copy, Debug)]
pub(crate) struct Heading<'a> {
    /// One line; may be empty.
    pub(crate) title: &'a str,
    /// A few lines; may be empty.
    pub(crate) description: &'a str,
}

/// Renders the page of an explanation; ends with a newline.
pub(crate) fn page(heading: Heading<'_>, explanation: &Explanation, style: Style) -> String {
    let names = names::Names::new(explanation);
    let sections = [
        sections::heading(heading, explanation, style),
        sections::verdict(explanation, style),
        sections::changes(explanation, style),
        sections::preconditions(explanation, style),
        tables::localities(explanation, &names, style),
        tables::zones(explanation, &names, style),
        sections::fractions(explanation, style),
        tables::priorities(explanation, style),
    ];
    let mut page = String::new();
    for section in sections.iter().filter(|section| !section.is_empty()) {
        if !page.is_empty() {
            page.push('\n');
        }
        page.push_str(section);
    }
    page
}

#[cfg(test)]
mod tests;
