//! Status line of the demo, as text and as JSON.

use std::fmt::Write as _;

use plimsoll_admin::api::rounded;
use serde_json::{Value, json};

use crate::counters::Outcome;
use crate::environment::Status;
use crate::setting::{Action, ZONES};

/// Load factor above which a zone is marked with `!`.
const OVERLOADED: f64 = 1.06;

/// Returns the status line in at most `columns`: the least important parts are dropped first, then
/// the end of the line is cut.
pub(crate) fn text(status: &Status, columns: usize) -> String {
    let mut tail = tail(status);
    let long = line(status, "zone-", &tail);
    if width(&long) <= columns {
        return long;
    }
    loop {
        let line = line(status, "", &tail);
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

/// Optional part of the status line; parts with the lowest rank are dropped first.
struct Part {
    rank: u8,
    text: String,
}

/// Formats the load of every zone, then `tail`. Names of zones begin with `prefix`.
fn line(status: &Status, prefix: &str, tail: &[Part]) -> String {
    let mut line = format!("{:<17}", status.setting.policy.name());
    for (zone, name) in ZONES.iter().enumerate() {
        let load = match status.load(zone) {
            Some(load) => format!("{:>4.0} %", load * 100.0),
            None if status.healthy(zone) == 0 => "  down".to_owned(),
            // There is no traffic yet, so the load is unknown.
            None => "     –".to_owned(),
        };
        let mark = if status.load(zone).is_some_and(|load| load > OVERLOADED) {
            "!"
        } else {
            " "
        };
        let name = name.trim_start_matches("zone-");
        // Loads are right-aligned and rarely have four digits, so padding separates them.
        let gap = if prefix.is_empty() { "" } else { " " };
        let _ = write!(line, "  {prefix}{name}{gap}{load}{mark}");
    }
    let tail: Vec<&str> = tail.iter().map(|part| part.text.as_str()).collect();
    format!("{line} {}", tail.join(", ")).trim_end().to_owned()
}

fn tail(status: &Status) -> Vec<Part> {
    let mut tail = Vec::new();
    let mut add = |rank, text| tail.push(Part { rank, text });
    let crossing = status.rates.crossing().unwrap_or(0.0) * 100.0;
    add(2, format!("{:.0} rq/s", status.rates.total()));
    add(3, format!("{crossing:.0} % cross"));
    if let Some(p99) = status.rates.p99 {
        add(1, format!("p99 {} ms", p99.as_millis()));
    }
    let rejected = status.rates.rejected;
    if rejected > 0.5 {
        add(4, format!("{rejected:.0}/s rejected"));
    }
    add(
        5,
        format!("{} failed", status.totals.total(Outcome::Failed)),
    );
    if !status.setting.control {
        add(6, "no control plane".to_owned());
    }
    tail
}

fn width(text: &str) -> usize {
    text.chars().count()
}

pub(crate) fn json(status: &Status) -> Value {
    let zone = |(zone, name): (usize, &&str)| {
        json!({
            "zone": name,
            "healthy_backends": status.healthy(zone),
            "demand_requests_per_second": rounded(status.rates.issued(zone)),
            "served_requests_per_second": rounded(status.rates.served(zone)),
            "line_requests_per_second": rounded(status.line(zone)),
            "load": status.load(zone).map(rounded),
            "utilization": status.utilization[zone].map(rounded),
            "kept_local": status.rates.kept_local(zone).map(rounded),
        })
    };
    json!({
        "type": "summary",
        "seconds": rounded(status.elapsed.as_secs_f64()),
        "policy": status.setting.policy.name(),
        "control_plane": status.setting.control,
        "last_action": status.last.name(),
        "zones": ZONES.iter().enumerate().map(zone).collect::<Vec<_>>(),
        "cross_zone_share": status.rates.crossing().map(rounded),
        "p99_ms": status.rates.p99.map(|p99| rounded(p99.as_secs_f64() * 1000.0)),
        "served": status.totals.total(Outcome::Served),
        "turned_away": status.totals.total(Outcome::Rejected),
        "failed": status.totals.total(Outcome::Failed),
    })
}

/// Returns the JSON line of an action that is skipped.
pub(crate) fn skipped(action: Action, why: &str) -> Value {
    json!({ "type": "skipped", "action": action.name(), "reason": why })
}

pub(crate) fn event(action: Action) -> Value {
    json!({
        "type": "event",
        "action": action.name(),
        "text": action.event(),
        "look": action.hint(),
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::counters::{Counters, Rates};
    use crate::setting::Setting;

    fn status(busy: bool, control: bool) -> Status {
        let rates = Rates {
            received: [[70.0, 1.0, 0.0], [30.0, 41.0, 0.0], [28.0, 0.0, 43.0]],
            rejected: if busy { 123.0 } else { 0.0 },
            p99: Some(Duration::from_millis(1234)),
            ..Rates::default()
        };
        Status {
            setting: Setting::OPENING.after(Action::Control(control)),
            last: Action::Control(control),
            rates,
            totals: Counters::default().sample(),
            utilization: [None; 3],
            elapsed: Duration::ZERO,
        }
    }

    #[test]
    fn a_wide_line_has_every_part() {
        let line = text(&status(true, false), usize::MAX);
        let all = "HEALTHY_HOSTS_NUM  zone-a  100 %   zone-b  100 %   zone-c  100 %  213 rq/s, \
                   28 % cross, p99 1234 ms, 123/s rejected, 0 failed, no control plane";
        assert_eq!(line, all);
    }

    #[test]
    fn a_zone_is_down_if_its_backends_are_but_not_before_the_first_request() {
        let mut idle = status(false, true);
        idle.rates = Rates::default();
        let line = text(&idle, 80);
        assert!(
            line.contains(" c     –") && !line.contains("down"),
            "{line}"
        );
        let mut lost = status(false, true);
        lost.setting = Setting::OPENING.after(Action::Lose(true));
        let line = text(&lost, 80);
        assert!(
            line.contains(" c  down") && line.contains(" a  67 %"),
            "{line}"
        );
    }

    #[test]
    fn a_narrow_line_fits_and_keeps_the_problems() {
        for (busy, control) in [(false, true), (true, true), (false, false), (true, false)] {
            let status = status(busy, control);
            for columns in [20, 60, 80, 100, 120] {
                let line = text(&status, columns);
                assert!(width(&line) <= columns, "{columns}: {line}");
            }
            let line = text(&status, 80);
            assert_eq!(line.contains("no control plane"), !control, "{line}");
            assert!(line.contains(" c 100 %"), "{line}");
            assert!(line.contains("0 failed") || busy && !control, "{line}");
        }
        let calm = text(&status(false, true), 80);
        assert!(calm.ends_with("213 rq/s, 28 % cross, 0 failed"), "{calm}");
    }
}
