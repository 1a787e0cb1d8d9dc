//! Sections of a page that consist of sentences; a section without content is an empty string.

use plimsoll_core::explain::{Explanation, FractionStatus, StateName};
use plimsoll_core::locality_picking::fractions::FractionOrigin;

use super::Heading;
use super::style::{Style, Tone};
use super::text::{basis_points, json_name, painted, title};
use super::wrap::wrap;

pub(super) fn heading(heading: Heading<'_>, explanation: &Explanation, style: Style) -> String {
    let unknown = || "an unknown locality".to_owned();
    let own = explanation.own_locality.as_ref();
    let from = own.map_or_else(unknown, ToString::to_string);
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
    text + &wrap(
        "",
        &format!("Cluster {cluster}, seen from {from}: {policy}"),
    )
}

/// Renders state and reason; if something overrides zone-aware routing, also the zone-aware state.
pub(super) fn verdict(explanation: &Explanation, style: Style) -> String {
    let name = explanation.state.as_str();
    let rows = &explanation.localities;
    let served: f64 = rows.iter().map(|row| row.expected_share).sum();
    let kept = basis_points(explanation.local_percent_to_route_bp.unwrap_or(0));
    let (tone, line) = match explanation.state {
        _ if served <= 0.0 && !rows.is_empty() => (Tone::Bad, format!("{name}: requests fail")),
        StateName::LoadAwareLocality | StateName::LocalityWeighted => {
            let own = rows.iter().find(|row| row.own);
            let kept = own.map_or(0.0, |row| row.expected_share) * 100.0;
            (Tone::Good, format!("{name}: {kept:.2} % stays local"))
        }
        StateName::NoLocalityRouting if explanation.locality_policy == "zone_aware" => {
            (Tone::Warning, format!("{name}: localities are ignored"))
        }
        StateName::NoLocalityRouting => (Tone::Plain, format!("{name}: zones are ignored")),
        StateName::LocalityDirect => (Tone::Good, format!("{name}: all requests stay local")),
        StateName::LocalityResidual => (
            Tone::Good,
            format!("{name}: {kept} % stays local, the rest spills"),
        ),
        _ => (Tone::Plain, name.to_owned()),
    };
    let mut text = painted(&wrap("", &line), tone, style) + &wrap("  ", &explanation.reason);
    for note in &explanation.notes {
        text += &painted(&wrap("  ! ", note), Tone::Warning, style);
    }
    let zone_aware = explanation.zone_state != StateName::NoLocalityRouting;
    if zone_aware && explanation.zone_state != explanation.state {
        let overridden = format!("overrides: {}", explanation.zone_state.as_str());
        text += &painted(&wrap("  ", &overridden), Tone::Dim, style);
    }
    text
}

/// Lists settings that the control plane sends with another value than configured.
pub(super) fn changes(explanation: &Explanation, style: Style) -> String {
    if explanation.changes.is_empty() {
        return String::new();
    }
    let mut text = title("Changed by the control plane", style);
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
    // load_aware_locality has no `locality_basis`; fractions are its optional feed-forward.
    let feed_forward = explanation.locality_basis.is_none();
    let fallback = if feed_forward {
        "only load reports of hosts are used"
    } else {
        "host counts are used"
    };
    let (tone, mut line) = match fractions.status {
        FractionStatus::Unused if fractions.age_ms.is_none() => return String::new(),
        FractionStatus::Absent if feed_forward => return String::new(),
        FractionStatus::Unused => {
            let line = "known, but not used by the locality basis";
            (Tone::Dim, line.to_owned())
        }
        FractionStatus::Absent => (Tone::Warning, format!("none received: {fallback}")),
        FractionStatus::Fresh => (Tone::Good, "in force for every zone".to_owned()),
        FractionStatus::FeedForward => {
            let line = "in force as feed-forward; load reports of hosts correct them";
            (Tone::Good, line.to_owned())
        }
        FractionStatus::Partial => {
            let line = "in force; zones without one share the rest by host counts";
            (Tone::Good, line.to_owned())
        }
        FractionStatus::AllZero => {
            let line = format!("all 0, treated as no data: {fallback}");
            (Tone::Warning, line)
        }
        FractionStatus::Stale => (Tone::Warning, format!("stale: {fallback}")),
        status => (Tone::Plain, format!("{status:?}")),
    };
    if let Some(age) = fractions.age_ms {
        line += &format!("; {} old", seconds(age));
    }
    if let Some(threshold) = fractions.staleness_threshold_ms {
        line += &format!(", stale after {}", seconds(threshold));
    }
    line += match fractions.origin {
        Some(FractionOrigin::EdsField) => ", from the fleet's EDS assignment",
        Some(FractionOrigin::LocalityMetadata) => ", from metadata of the fleet's EDS assignment",
        Some(FractionOrigin::LrsResponse) => ", from the LRS response",
        Some(FractionOrigin::Stated) => ", as stated by the program; they never expire",
        Some(_) | None => "",
    };
    title("Measured fractions of demand", style) + &painted(&wrap("  ", &line), tone, style)
}

fn seconds(millis: u64) -> String {
    let exact = format!("{}.{:03}", millis / 1000, millis % 1000);
    format!("{} s", exact.trim_end_matches('0').trim_end_matches('.'))
}
