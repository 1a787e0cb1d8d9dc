//! The sections of a page that are sentences. One that has nothing to say is empty.

use plimsoll_core::explain::{Explanation, FractionStatus, StateName};
use plimsoll_core::locality_picking::fractions::FractionOrigin;

use super::Heading;
use super::style::{Style, Tone};
use super::words::{basis_points, json_name, painted, state_name, title};
use super::wrap::wrap;

pub(super) fn heading(heading: Heading<'_>, explanation: &Explanation, style: Style) -> String {
    let own = explanation.own_locality.as_ref();
    let own = own.map_or_else(|| "nowhere".to_owned(), ToString::to_string);
    let cluster = &explanation.cluster;
    let mut text = String::new();
    if !heading.title.is_empty() {
        text += &painted(&wrap("", heading.title), Tone::Strong, style);
    }
    if !heading.description.trim().is_empty() {
        text += &painted(&wrap("", heading.description), Tone::Dim, style);
    }
    if !text.is_empty() {
        text.push('\n');
    }
    let mut policy = format!(
        "{} over {}",
        explanation.locality_policy, explanation.endpoint_policy
    );
    if let Some(basis) = explanation.locality_basis {
        policy += &format!(", basis {}", json_name(&basis));
    }
    text + &wrap("", &format!("Cluster {cluster}, seen from {own}: {policy}"))
}

/// The state, and what overrules it (panic, sampling, locality weights), if anything does.
pub(super) fn verdict(explanation: &Explanation, style: Style) -> String {
    let name = state_name(explanation.state);
    let overruled = overruled(explanation);
    let (tone, line) = match (explanation.state, &overruled) {
        (_, Some(instead)) => (Tone::Warning, format!("{name}, overruled: {instead}")),
        (StateName::NoLocalityRouting, None) => {
            (Tone::Warning, format!("{name}: localities play no part"))
        }
        (StateName::LocalityDirect, None) => {
            (Tone::Good, format!("{name}: everything stays local"))
        }
        (StateName::LocalityResidual, None) => {
            let kept = basis_points(explanation.local_percent_to_route_bp.unwrap_or(0));
            (
                Tone::Good,
                format!("{name}: {kept} % stays local, the rest spills"),
            )
        }
    };
    let mut text = painted(&wrap("", &line), tone, style);
    for note in &explanation.notes {
        text += &painted(&wrap("  ! ", note), Tone::Warning, style);
    }
    let otherwise = if overruled.is_some() {
        "otherwise: "
    } else {
        ""
    };
    text + &wrap("  ", &format!("{otherwise}{}", explanation.reason))
}

/// What happens instead, where the state says one thing and the shares another.
fn overruled(explanation: &Explanation) -> Option<String> {
    let served: f64 = explanation
        .localities
        .iter()
        .map(|row| row.expected_share)
        .sum();
    if served <= 0.0 && !explanation.localities.is_empty() {
        return Some("requests fail".to_owned());
    }
    let decided = explanation
        .local_percent_to_route_bp
        .filter(|&bp| bp <= 10_000)?;
    let own = explanation
        .localities
        .iter()
        .find(|row| row.own)?
        .expected_share;
    let decided = f64::from(u16::try_from(decided).ok()?) / 10_000.0;
    ((own - decided).abs() > 0.001).then(|| format!("{:.1} % stays local", own * 100.0))
}

pub(super) fn preconditions(explanation: &Explanation, style: Style) -> String {
    if explanation.preconditions.is_empty() {
        return String::new();
    }
    let mut text = title("Preconditions", style);
    for test in &explanation.preconditions {
        let (mark, tone) = if test.passed {
            ("✓", Tone::Good)
        } else {
            ("✗", Tone::Bad)
        };
        let line = wrap(&format!("  {mark} "), &test.text);
        text += &line.replacen(mark, &style.paint(tone, mark), 1);
    }
    text
}

pub(super) fn fractions(explanation: &Explanation, style: Style) -> String {
    let fractions = &explanation.fractions;
    let (tone, status) = match fractions.status {
        FractionStatus::Unused if fractions.age_ms.is_none() => return String::new(),
        FractionStatus::Unused => (Tone::Dim, "known, but the basis does not use them"),
        FractionStatus::Absent => (Tone::Warning, "none so far: host counts are used"),
        FractionStatus::Fresh => (Tone::Good, "in force for every zone"),
        FractionStatus::Partial => (
            Tone::Good,
            "in force; zones without one share the rest by host count",
        ),
        FractionStatus::AllZero => (
            Tone::Warning,
            "all 0, that is no data: host counts are used",
        ),
        FractionStatus::Stale => (Tone::Warning, "too old: host counts are used"),
    };
    let mut line = status.to_owned();
    if let Some(age) = fractions.age_ms {
        line += &format!("; {} old", seconds(age));
    }
    if let Some(threshold) = fractions.staleness_threshold_ms {
        line += &format!(", stale after {}", seconds(threshold));
    }
    line += match fractions.origin {
        Some(FractionOrigin::FleetAssignment) => ", from the fleet's assignment",
        Some(FractionOrigin::LrsResponse) => ", from load reporting",
        None => "",
    };
    title("Measured fractions of demand", style) + &painted(&wrap("  ", &line), tone, style)
}

fn seconds(millis: u64) -> String {
    let exact = format!("{}.{:03}", millis / 1000, millis % 1000);
    format!("{} s", exact.trim_end_matches('0').trim_end_matches('.'))
}
