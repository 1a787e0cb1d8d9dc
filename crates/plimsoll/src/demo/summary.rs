//! One line about a scene: for people, and as JSON.

use std::fmt::Write as _;

use plimsoll_admin::what_if::rounded;
use serde_json::{Value, json};

use super::counters::Outcome;
use super::setting::{Action, ZONES};
use super::stage::Scene;

/// Above this share of its line a zone is marked.
const ABOVE: f64 = 1.06;

/// For people.
pub(crate) fn text(scene: &Scene) -> String {
    let mut line = format!("{:<17}", scene.setting.policy.name());
    for (zone, name) in ZONES.iter().enumerate() {
        let load = match scene.load(zone) {
            Some(load) => format!("{:>4.0} %", load * 100.0),
            None => "  dead".to_owned(),
        };
        let mark = if scene.load(zone).is_some_and(|load| load > ABOVE) {
            "!"
        } else {
            " "
        };
        let _ = write!(line, "  {name} {load}{mark}");
    }
    let crossing = scene.rates.crossing().unwrap_or(0.0) * 100.0;
    let _ = write!(
        line,
        "  {:.0} rq/s, {crossing:.0} % cross",
        scene.rates.total()
    );
    if let Some(p99) = scene.rates.p99 {
        let _ = write!(line, ", p99 {} ms", p99.as_millis());
    }
    let away = scene.rates.turned_away;
    if away > 0.5 {
        let _ = write!(line, ", {away:.0}/s turned away");
    }
    let _ = write!(line, ", {} failed", scene.totals.total(Outcome::Failed));
    if !scene.setting.control {
        line.push_str(", no control plane");
    }
    line
}

/// For programs.
pub(crate) fn json(scene: &Scene) -> Value {
    let zone = |(zone, name): (usize, &&str)| {
        json!({
            "zone": name,
            "healthy_backends": scene.healthy(zone),
            "demand_requests_per_second": rounded(scene.rates.issued(zone)),
            "served_requests_per_second": rounded(scene.rates.served(zone)),
            "line_requests_per_second": rounded(scene.line(zone)),
            "load": scene.load(zone).map(rounded),
            "utilization": scene.utilization[zone].map(rounded),
            "kept_local": scene.rates.kept_local(zone).map(rounded),
        })
    };
    json!({
        "type": "summary",
        "seconds": rounded(scene.elapsed.as_secs_f64()),
        "policy": scene.setting.policy.name(),
        "control_plane": scene.setting.control,
        "last_action": scene.last.name(),
        "zones": ZONES.iter().enumerate().map(zone).collect::<Vec<_>>(),
        "cross_zone_share": scene.rates.crossing().map(rounded),
        "p99_ms": scene.rates.p99.map(|p99| rounded(p99.as_secs_f64() * 1000.0)),
        "served": scene.totals.total(Outcome::Served),
        "turned_away": scene.totals.total(Outcome::TurnedAway),
        "failed": scene.totals.total(Outcome::Failed),
    })
}

/// An action that was left out, for programs.
pub(crate) fn skipped(action: Action, why: &str) -> Value {
    json!({ "type": "skipped", "action": action.name(), "reason": why })
}

/// An action, for programs.
pub(crate) fn event(action: Action) -> Value {
    json!({
        "type": "event",
        "action": action.name(),
        "text": action.done(),
        "look": action.look(),
    })
}
