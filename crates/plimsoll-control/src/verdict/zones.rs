//! Findings about zones: requests that fail, load above the line, demand that does not steer.

use super::{LookAt, Severity, Verdict, percent};
use crate::config::Mode;
use crate::demand::Withheld;
use crate::load_line::{LoadLine, LoadLines, Traffic, ZoneLine};

/// Load above which a zone is above its line: less is the noise of reports. The dashboard and
/// `plimsoll top` color loads by the same two numbers.
const ABOVE: f64 = 1.06;
/// Load above which an operator must act.
const FAR_ABOVE: f64 = 1.25;
/// Deviations below this are not told apart, so that the sentence does not flicker.
const LEVEL: f64 = 0.03;

/// What is wrong with one service of one fleet; the worst zone first.
pub(super) fn findings(line: &LoadLine) -> impl Iterator<Item = Verdict> + use<> {
    // Two places where requests fail are two problems; loads above the line are one.
    let failing = line.zones.iter().filter(|zone| zone.fails);
    let mut found: Vec<Verdict> = failing.map(|zone| fails(line, zone)).collect();
    found.extend(above(line));
    found.extend(above_target(line));
    found.extend(unseen(line));
    found.extend(withheld(line));
    found.into_iter()
}

/// Returns the verdict without any problem.
pub(super) fn fine(lines: &LoadLines) -> Verdict {
    let level = lines
        .iter()
        .filter(|line| line.target_utilization.is_none());
    let loads: Vec<f64> = level.filter_map(shown).flat_map(loads).collect();
    let above = loads
        .iter()
        .copied()
        .fold(0.0, |most, load| f64::max(most, load - 1.0));
    let below = loads
        .iter()
        .copied()
        .fold(0.0, |most, load| f64::max(most, 1.0 - load));
    let has_target = lines.iter().any(|line| line.target_utilization.is_some());
    let what = if loads.is_empty() && has_target {
        "no zone is above its target utilization".to_owned()
    } else if loads.is_empty() {
        "no problem is known".to_owned()
    } else if below <= ABOVE - 1.0 {
        let most = percent(above.max(below).max(LEVEL));
        format!("all zones within {most} of their load line")
    } else {
        let most = percent(above.max(LEVEL));
        format!("no zone is more than {most} above its load line")
    };
    Verdict::finding(Severity::Fine, "fine", what)
}

/// As proxies reported; as they are planned to route if reports do not say which zones served.
fn shown(line: &LoadLine) -> Option<&Traffic> {
    let is_placed = |seen: &&Traffic| {
        let zones = seen.zones.iter().filter(|zone| zone.load.is_some());
        2.0 * zones.map(|zone| zone.served).sum::<f64>() > seen.requests
    };
    let seen = line.seen.as_ref().filter(is_placed);
    seen.or(line.now.as_ref().ok())
}

fn loads(traffic: &Traffic) -> impl Iterator<Item = f64> + use<'_> {
    traffic.zones.iter().filter_map(|zone| zone.load)
}

fn fails(line: &LoadLine, zone: &ZoneLine) -> Verdict {
    let (fleet, cluster, to) = (&line.fleet, &line.cluster, &zone.locality);
    let from: Vec<String> = zone
        .fails_only_from
        .iter()
        .map(ToString::to_string)
        .collect();
    let what = if from.is_empty() {
        format!("requests of {fleet} to {cluster} fail in {to}")
    } else {
        let from = from.join(", ");
        format!("requests of {fleet} to {cluster} fail from {from} to {to}")
    };
    let hosts = if from.is_empty() {
        format!("check the hosts of {to}, or take them out of its endpoints")
    } else {
        "check the network between the zones".to_owned()
    };
    let meanwhile = if line.withheld.failing.contains(to) {
        "; host counts decide until it recovers"
    } else {
        ""
    };
    let verdict = Verdict::finding(Severity::Error, "zone_fails", what);
    let verdict = match zone.failed_share {
        Some(share) if share > 0.0 => {
            let share = percent(share);
            verdict.because(format!(
                "{share} of the requests to {to} failed in the latest load reports"
            ))
        }
        _ => verdict,
    };
    verdict
        .so(format!("{hosts}{meanwhile}"))
        .look(LookAt::zone(line, to))
}

/// The zone that is farthest above its line, if that is not planned so.
fn above(line: &LoadLine) -> Option<Verdict> {
    // Of a service with an objective, zones near the demand are meant to be above their line.
    if line.warming_up || line.target_utilization.is_some() {
        return None;
    }
    let traffic = shown(line)?;
    let (index, load) = worst(traffic).filter(|(_, load)| *load > ABOVE)?;
    let zone = line.zones.get(index)?;
    let planned = line.now.as_ref().ok();
    let planned_load = planned.and_then(|now| now.zones.get(index)?.load);
    let (fleet, cluster, name) = (&line.fleet, &line.cluster, &zone.locality);
    let share = percent(load);
    let what = format!("{name} serves {share} of its load line of {cluster} for {fleet}");
    if planned_load.is_some_and(|planned| planned <= ABOVE) {
        return Some(not_settled(line, zone, what, planned_load));
    }
    let severity = if load > FAR_ABOVE {
        Severity::Error
    } else {
        Severity::Warning
    };
    let why = match &zone.above_line {
        Some(why) if line.mode == Mode::Enforce && line.ramp == 100 => why.to_string(),
        _ => not_planned(line.mode, line.ramp),
    };
    let verdict = Verdict::finding(severity, "zone_above_line", what).because(why);
    Some(
        verdict
            .so(remedy(line, zone))
            .look(LookAt::zone(line, &zone.locality)),
    )
}

fn worst(traffic: &Traffic) -> Option<(usize, f64)> {
    let loads = traffic.zones.iter().enumerate();
    loads
        .filter_map(|(index, zone)| Some((index, zone.load?)))
        .reduce(|worst, next| if next.1 > worst.1 { next } else { worst })
}

/// Reports and plan disagree: usually for a few reports after a change.
fn not_settled(line: &LoadLine, zone: &ZoneLine, what: String, planned: Option<f64>) -> Verdict {
    let planned = planned.map(percent).unwrap_or_default();
    Verdict::finding(Severity::Info, "not_settled", what)
        .because(format!(
            "{planned} is planned, so traffic has not settled, or proxies do not follow"
        ))
        .so("wait for the next load reports, then explain the zone")
        .look(LookAt::zone(line, &zone.locality))
}

/// What would bring a zone to its line.
fn remedy(line: &LoadLine, zone: &ZoneLine) -> String {
    let name = &zone.locality;
    let capacity = format!("add hosts in {name}, or hosts that others can spill to");
    let enforced = line.enforce.as_ref().ok().and_then(Traffic::highest_load);
    let now = line.now.as_ref().ok().and_then(Traffic::highest_load);
    let is_steered = line.mode == Mode::Enforce && line.ramp == 100;
    if is_steered || !line.withheld.is_empty() {
        return capacity;
    }
    let how = match line.mode {
        Mode::Enforce => "ramp 100",
        Mode::Shadow | Mode::Off => "mode ENFORCE",
    };
    match enforced {
        Some(highest) if now.is_none_or(|now| highest < now - LEVEL) => {
            let highest = percent(highest);
            format!("{how} would bring the highest load to {highest} (planned)")
        }
        Some(highest) => {
            let highest = percent(highest);
            format!("{how} would not help, {highest} (planned): {capacity}")
        }
        None => capacity,
    }
}

/// Returns why a zone is above its line although the plan does not say so.
pub fn not_planned(mode: Mode, ramp: u32) -> String {
    match (mode, ramp) {
        (Mode::Off, _) => "mode OFF: measured demand has no effect".to_owned(),
        (Mode::Shadow, _) => "mode SHADOW: proxies route by host counts".to_owned(),
        (Mode::Enforce, ramp @ 0..100) => {
            format!("ramp {ramp} %: the other requests go where mode OFF sends them")
        }
        (Mode::Enforce, _) => {
            "not by plan: traffic has not settled, or proxies do not follow".to_owned()
        }
    }
}

/// The zone that is planned farthest above the target of the service's objective.
fn above_target(line: &LoadLine) -> Option<Verdict> {
    let target = line.target_utilization.filter(|_| !line.warming_up)?;
    let utilization = |zone: &ZoneLine| zone.planned.as_ref()?.utilization;
    let above = line
        .zones
        .iter()
        .filter_map(|zone| Some((zone, utilization(zone)?)));
    let (zone, utilization) = above
        .filter(|(_, utilization)| *utilization > target * ABOVE)
        .reduce(|worst, next| if next.1 > worst.1 { next } else { worst })?;
    let planned = zone.planned.as_ref()?;
    let severity = if utilization > 1.0 {
        Severity::Error
    } else {
        Severity::Warning
    };
    let (name, cluster) = (&zone.locality, &line.cluster);
    let (share, target) = (percent(utilization), percent(target));
    let what = format!(
        "{name} is planned at {share} of its capacity for {cluster}, the target is {target}"
    );
    let verdict = Verdict::finding(severity, "zone_above_target", what);
    let mut verdict = verdict.because(planned.text.trim_end_matches('.'));
    if let Some(wanted) = planned.wanted_hosts {
        verdict = verdict.so(format!("its own demand needs {wanted} hosts of weight 1"));
    }
    Some(verdict.look(LookAt::zone(line, &zone.locality)))
}

/// Zones that no proxy reports requests to keep demand from steering.
fn unseen(line: &LoadLine) -> Option<Verdict> {
    let zone = line.withheld.unseen.first()?;
    let (fleet, cluster) = (&line.fleet, &line.cluster);
    let what = format!("{fleet} reports no requests to {cluster} in {zone} any more");
    Some(
        Verdict::finding(Severity::Warning, "zone_unseen", what)
            .because("the zone is idle, or what is sent there vanishes")
            .so("check its hosts; host counts decide meanwhile, and it is tried now and then")
            .look(LookAt::zone(line, zone)),
    )
}

/// Demand should steer the service and does not, for a reason that no zone is.
fn withheld(line: &LoadLine) -> Option<Verdict> {
    if !line.on_fallback || !line.withheld.is_empty() {
        return None;
    }
    // Both end by themselves within seconds.
    let is_short = |reason| matches!(reason, Withheld::Starting { .. } | Withheld::Agreeing);
    let severity = if line.undelivered.is_some_and(is_short) {
        Severity::Info
    } else {
        Severity::Warning
    };
    let (fleet, cluster) = (&line.fleet, &line.cluster);
    let what = format!("host counts decide for {fleet} and {cluster}");
    let why = line.undelivered.map(|reason| reason.to_string());
    let verdict = Verdict::finding(severity, "demand_withheld", what);
    let no_reports = || "no load report says where the demand is".to_owned();
    Some(
        verdict
            .because(why.unwrap_or_else(no_reports))
            .so("look for proxies without load reports")
            .look(LookAt::Nodes),
    )
}
