//! Small words that several sections use.

use plimsoll_core::explain::StateName;

use super::style::{Style, Tone};

pub(super) fn title(text: &str, style: Style) -> String {
    painted(&format!("{text}\n"), Tone::Strong, style)
}

/// Paints line by line: a colour must not run over a line's end.
pub(super) fn painted(lines: &str, tone: Tone, style: Style) -> String {
    lines
        .lines()
        .map(|line| style.paint(tone, line) + "\n")
        .collect()
}

pub(super) const fn state_name(state: StateName) -> &'static str {
    match state {
        StateName::NoLocalityRouting => "NoLocalityRouting",
        StateName::LocalityDirect => "LocalityDirect",
        StateName::LocalityResidual => "LocalityResidual",
    }
}

/// The name that the JSON form uses.
pub(super) fn json_name(value: &impl serde::Serialize) -> String {
    match serde_json::to_value(value) {
        Ok(serde_json::Value::String(name)) => name,
        _ => String::new(),
    }
}

pub(super) fn basis_points(bp: u64) -> String {
    format!("{}.{:02}", bp / 100, bp % 100)
}
