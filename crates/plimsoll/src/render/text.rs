//! Formatting helpers shared by several sections.

use super::style::{Style, Tone};

pub(super) fn title(text: &str, style: Style) -> String {
    painted(&format!("{text}\n"), Tone::Strong, style)
}

/// Colors each line separately: a color must not span a line break.
pub(super) fn painted(lines: &str, tone: Tone, style: Style) -> String {
    lines
        .lines()
        .map(|line| style.paint(tone, line) + "\n")
        .collect()
}

/// Returns the name of a value in the JSON output.
pub(super) fn json_name(value: &impl serde::Serialize) -> String {
    match serde_json::to_value(value) {
        Ok(serde_json::Value::String(name)) => name,
        _ => String::new(),
    }
}

pub(super) fn basis_points(bp: u64) -> String {
    format!("{}.{:02}", bp / 100, bp % 100)
}

/// Returns the words of the glossary for a routing state, as Envoy spells it.
pub(super) fn routing(state: &str) -> &str {
    match state {
        "LocalityDirect" => "all local",
        "LocalityResidual" => "spills",
        "NoLocalityRouting" => "zones ignored",
        "LoadAwareLocality" => "by utilization",
        "LocalityWeighted" => "by weights",
        other => other,
    }
}
