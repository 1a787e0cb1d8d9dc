//! One line about a scene: for people, and as JSON.

use std::fmt::Write as _;

use plimsoll_admin::what_if::rounded;
use serde_json::{Value, json};

use super::counters::Outcome;
use super::setting::{Action, ZONES};
use super::stage::Scene;

/// Above this share of its line a zone is marked.
const ABOVE: f64 = 1.06;

/// For people, in at most so many columns: what matters least gives way, then the end is cut.
pub(crate) fn text(scene: &Scene, columns: usize) -> String {
    let mut tail = tail(scene);
    let long = line(scene, "zone-", &tail);
    if width(&long) <= columns {
        return long;
    }
    loop {
        let line = line(scene, "", &tail);
        if width(&line) <= columns {
            return line;
        }
        let least = tail.iter().enumerate().min_by_key(|(_, part)| part.rank);
        let Some((place, _)) = least else {
            return line.chars().take(columns).collect();
        };
        tail.remove(place);
    }
}

/// A part of the line; one of a lower rank gives way first.
struct Part {
    rank: u8,
    text: String,
}

/// Load of every zone, and what follows it. The names of zones begin with `prefix`.
fn line(scene: &Scene, prefix: &str, tail: &[Part]) -> String {
    let mut line = format!("{:<17}", scene.setting.policy.name());
    for (zone, name) in ZONES.iter().enumerate() {
        let load = match scene.load(zone) {
            Some(load) => format!("{:>4.0} %", load * 100.0),
            None if scene.healthy(zone) == 0 => "  dead".to_owned(),
            // Nothing was served yet.
            None => "     –".to_owned(),
        };
        let mark = if scene.load(zone).is_some_and(|load| load > ABOVE) {
            "!"
        } else {
            " "
        };
        let name = name.trim_start_matches("zone-");
        // Loads are right-aligned and hardly ever four digits long: that is gap enough.
        let gap = if prefix.is_empty() { "" } else { " " };
        let _ = write!(line, "  {prefix}{name}{gap}{load}{mark}");
    }
    let tail: Vec<&str> = tail.iter().map(|part| part.text.as_str()).collect();
    format!("{line} {}", tail.join(", ")).trim_end().to_owned()
}

fn tail(scene: &Scene) -> Vec<Part> {
    let mut tail = Vec::new();
    let mut add = |rank, text| tail.push(Part { rank, text });
    let crossing = scene.rates.crossing().unwrap_or(0.0) * 100.0;
    add(2, format!("{:.0} rq/s", scene.rates.total()));
    add(3, format!("{crossing:.0} % cross"));
    if let Some(p99) = scene.rates.p99 {
        add(1, format!("p99 {} ms", p99.as_millis()));
    }
    let away = scene.rates.turned_away;
    if away > 0.5 {
        add(4, format!("{away:.0}/s turned away"));
    }
    add(5, format!("{} failed", scene.totals.total(Outcome::Failed)));
    if !scene.setting.control {
        add(6, "no control plane".to_owned());
    }
    tail
}

fn width(text: &str) -> usize {
    text.chars().count()
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::counters::{Counters, Rates};
    use super::super::setting::Setting;
    use super::*;

    fn scene(busy: bool, control: bool) -> Scene {
        let rates = Rates {
            taken: [[70.0, 1.0, 0.0], [30.0, 41.0, 0.0], [28.0, 0.0, 43.0]],
            turned_away: if busy { 123.0 } else { 0.0 },
            p99: Some(Duration::from_millis(1234)),
            ..Rates::default()
        };
        Scene {
            setting: Setting::OPENING.after(Action::Control(control)),
            last: Action::Control(control),
            rates,
            totals: Counters::default().sample(),
            utilization: [None; 3],
            elapsed: Duration::ZERO,
        }
    }

    #[test]
    fn a_line_has_room_for_all_where_there_is_some() {
        let line = text(&scene(true, false), usize::MAX);
        let all = "HEALTHY_HOSTS_NUM  zone-a  100 %   zone-b  100 %   zone-c  100 %  213 rq/s, \
                   28 % cross, p99 1234 ms, 123/s turned away, 0 failed, no control plane";
        assert_eq!(line, all);
    }

    #[test]
    fn a_zone_is_dead_when_its_backends_are_and_not_before_the_first_request() {
        let mut idle = scene(false, true);
        idle.rates = Rates::default();
        let line = text(&idle, 80);
        assert!(
            line.contains(" c     –") && !line.contains("dead"),
            "{line}"
        );
        let mut lost = scene(false, true);
        lost.setting = Setting::OPENING.after(Action::Lose(true));
        let line = text(&lost, 80);
        assert!(
            line.contains(" c  dead") && line.contains(" a  67 %"),
            "{line}"
        );
    }

    #[test]
    fn a_line_stays_in_its_columns_and_says_what_is_wrong() {
        for (busy, control) in [(false, true), (true, true), (false, false), (true, false)] {
            let scene = scene(busy, control);
            for columns in [20, 60, 80, 100, 120] {
                let line = text(&scene, columns);
                assert!(width(&line) <= columns, "{columns}: {line}");
            }
            let line = text(&scene, 80);
            assert_eq!(line.contains("no control plane"), !control, "{line}");
            assert!(line.contains(" c 100 %"), "{line}");
            assert!(line.contains("0 failed") || busy && !control, "{line}");
        }
        let calm = text(&scene(false, true), 80);
        assert!(calm.ends_with("213 rq/s, 28 % cross, 0 failed"), "{calm}");
    }
}
