//! The sections of a page that are sentences. One that has nothing to say is empty.

use plimsoll_core::explain::{Explanation, FractionStatus, StateName};
use plimsoll_core::locality_picking::fractions::FractionOrigin;
use plimsoll_core::locality_picking::zone_aware::Reason;

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

/// What happens and why; then what zone-aware routing alone would do, if something overrules it.
pub(super) fn verdict(explanation: &Explanation, style: Style) -> String {
    let name = state_name(explanation.state);
    let rows = &explanation.localities;
    let served: f64 = rows.iter().map(|row| row.expected_share).sum();
    let kept = basis_points(explanation.local_percent_to_route_bp.unwrap_or(0));
    let (tone, line) = match explanation.state {
        _ if served <= 0.0 && !rows.is_empty() => (Tone::Bad, format!("{name}: requests fail")),
        _ if explanation.reason_code == Some(Reason::LoadAwareLocality) => {
            let own = rows.iter().find(|row| row.own);
            let kept = own.map_or(0.0, |row| row.expected_share) * 100.0;
            let policy = explanation.locality_policy;
            (Tone::Good, format!("{policy}: {kept:.2} % stays local"))
        }
        StateName::NoLocalityRouting if explanation.locality_policy == "zone_aware" => {
            (Tone::Warning, format!("{name}: localities play no part"))
        }
        StateName::NoLocalityRouting => (Tone::Plain, format!("{name}: zones play no part")),
        StateName::LocalityDirect => (Tone::Good, format!("{name}: everything stays local")),
        StateName::LocalityResidual => (
            Tone::Good,
            format!("{name}: {kept} % stays local, the rest spills"),
        ),
    };
    let mut text = painted(&wrap("", &line), tone, style) + &wrap("  ", &explanation.reason);
    for note in &explanation.notes {
        text += &painted(&wrap("  ! ", note), Tone::Warning, style);
    }
    if explanation.zone_state != explanation.state {
        let otherwise = format!("otherwise: {}", state_name(explanation.zone_state));
        text += &painted(&wrap("  ", &otherwise), Tone::Dim, style);
    }
    text
}

/// What a control plane sends otherwise than it is written.
pub(super) fn changes(explanation: &Explanation, style: Style) -> String {
    if explanation.changes.is_empty() {
        return String::new();
    }
    let mut text = title("Sent otherwise than written", style);
    for change in &explanation.changes {
        text += &wrap("  ", &change.sentence());
    }
    text
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
    // Under load_aware_locality, which has no basis, they are help that may be missing.
    let leads = explanation.locality_basis.is_none();
    let instead = match leads {
        true => "reports of hosts alone decide",
        false => "host counts are used",
    };
    let (tone, mut line) = match fractions.status {
        FractionStatus::Unused if fractions.age_ms.is_none() => return String::new(),
        FractionStatus::Absent if leads => return String::new(),
        FractionStatus::Unused => {
            let line = "known, but the basis does not use them";
            (Tone::Dim, line.to_owned())
        }
        FractionStatus::Absent => (Tone::Warning, format!("none so far: {instead}")),
        FractionStatus::Fresh => (Tone::Good, "in force for every zone".to_owned()),
        FractionStatus::FeedForward => {
            let line = "in force: they lead, and reports of hosts trim";
            (Tone::Good, line.to_owned())
        }
        FractionStatus::Partial => {
            let line = "in force; zones without one share the rest by host count";
            (Tone::Good, line.to_owned())
        }
        FractionStatus::AllZero => {
            let line = format!("all 0, that is no data: {instead}");
            (Tone::Warning, line)
        }
        FractionStatus::Stale => (Tone::Warning, format!("too old: {instead}")),
    };
    if let Some(age) = fractions.age_ms {
        line += &format!("; {} old", seconds(age));
    }
    if let Some(threshold) = fractions.staleness_threshold_ms {
        line += &format!(", stale after {}", seconds(threshold));
    }
    line += match fractions.origin {
        Some(FractionOrigin::EdsField) => ", from the fleet's assignment",
        Some(FractionOrigin::LocalityMetadata) => ", from the metadata of the fleet's assignment",
        Some(FractionOrigin::LrsResponse) => ", from load reporting",
        None => "",
    };
    title("Measured fractions of demand", style) + &painted(&wrap("  ", &line), tone, style)
}

fn seconds(millis: u64) -> String {
    let exact = format!("{}.{:03}", millis / 1000, millis % 1000);
    format!("{} s", exact.trim_end_matches('0').trim_end_matches('.'))
}
