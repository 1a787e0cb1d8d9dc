//! Sentences that say what a chart shows, made from the numbers behind it.

use crate::metrics::{Metrics, ZoneMetrics};
use crate::report::table::percent;
use crate::report::{PolicyReport, Report};

/// Even enough to say so.
const EVEN: f64 = 1.06;
/// Not even, but not far from it.
const NEARLY_EVEN: f64 = 1.12;

/// How well a row does in one respect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Grade {
    Good,
    Warn,
    Bad,
}

impl Grade {
    pub(super) const fn class(self) -> &'static str {
        match self {
            Self::Good => "good",
            Self::Warn => "warn",
            Self::Bad => "bad",
        }
    }

    /// By two limits.
    pub(super) fn of(value: f64, good: f64, warn: f64) -> Self {
        if value <= good {
            Self::Good
        } else if value <= warn {
            Self::Warn
        } else {
            Self::Bad
        }
    }
}

/// Evenness of the zones.
pub(super) fn balance(metrics: &Metrics) -> Grade {
    Grade::of(metrics.max_over_mean_5s_avg, EVEN, NEARLY_EVEN)
}

/// What the utilization chart of a policy shows.
pub(super) fn utilization(policy: &PolicyReport) -> String {
    let m = &policy.metrics;
    let ratio = m.max_over_mean_5s_avg;
    let Some(zone) = hottest(m) else {
        return String::new();
    };
    let name = super::escape(&zone.zone);
    let mut text = match balance(m) {
        Grade::Good => format!("Zones are <b>even</b>: the highest is {ratio:.2} × the mean."),
        Grade::Warn => format!("Nearly even: the highest is {ratio:.2} × the mean."),
        Grade::Bad => {
            format!("The highest zone is <b>{ratio:.2} × the mean</b>, mostly zone {name}.")
        }
    };
    if let Some(period) = m.oscillation_period_s {
        let (low, high) = widest(m);
        text += &format!(" It <b>swings</b> every {period:.1} s ({low:.2} to {high:.2}).");
    }
    if m.lock_out_s > 0.0 {
        let seconds = m.lock_out_s;
        text += &format!(" A proxy sent <b>nothing to its own zone</b> for {seconds:.0} s.");
    }
    if m.above_capacity_share >= 0.001 {
        let share = percent(m.above_capacity_share);
        text += &format!(" {share} of requests come to a zone above its capacity.");
    }
    text
}

/// What the cross-zone chart of a policy shows.
pub(super) fn cross_zone(policy: &PolicyReport) -> String {
    let m = &policy.metrics;
    let (share, needed) = (percent(m.cross_zone_share), percent(m.cross_zone_needed));
    let surplus = m.cross_zone_share - m.cross_zone_needed;
    let verdict = if surplus > 0.05 {
        "more than needed"
    } else if surplus < -0.05 {
        "too little: some zone carries more than its share"
    } else {
        "about what is needed"
    };
    format!("<b>{share}</b> leave their zone, {needed} needed: {verdict}.")
}

/// What the latency chart of a policy shows.
pub(super) fn latency(policy: &PolicyReport) -> String {
    match (policy.metrics.latency_p50_ms, policy.metrics.latency_p99_ms) {
        (Some(p50), Some(p99)) => {
            format!("Median {p50:.0} ms, 99th percentile <b>{p99:.0} ms</b>.")
        }
        _ => "No request was answered.".into(),
    }
}

/// What the failure chart of a policy shows.
pub(super) fn failures(policy: &PolicyReport) -> String {
    let m = &policy.metrics;
    if m.failures == 0 {
        return "No request failed.".into();
    }
    let share = percent(m.failure_share);
    format!(
        "<b>{share}</b> failed: {} of {} requests.",
        m.failures, m.requests
    )
}

/// The outcome in two or three sentences.
pub(super) fn verdict(report: &Report) -> String {
    let simulated = || {
        report
            .policies
            .iter()
            .filter(|policy| !policy.policy.is_computed())
    };
    let names = |keep: &dyn Fn(&Metrics) -> bool| {
        let kept: Vec<&str> = simulated()
            .filter(|p| keep(&p.metrics))
            .map(|p| p.policy.name())
            .collect();
        list(&kept)
    };
    let frugal = |m: &Metrics| m.cross_zone_share <= m.cross_zone_needed + 0.05;
    let even = |m: &Metrics| balance(m) == Grade::Good;
    let mut sentences = Vec::new();
    match names(&|m| even(m) && frugal(m)) {
        Some(best) => sentences.push(format!(
            "Even zones at little more traffic between them than needed: <b>{best}</b>."
        )),
        None => sentences.push("No policy keeps the zones even at the traffic needed.".to_owned()),
    }
    if let Some(wasteful) = names(&|m| even(m) && !frugal(m)) {
        sentences.push(format!(
            "Even, but with far more traffic between zones: {wasteful}."
        ));
    }
    if let Some(swinging) = names(&|m| m.oscillates) {
        sentences.push(format!("Swings without end: {swinging}."));
    }
    if let Some(failing) = names(&|m| m.failure_share >= 0.01) {
        sentences.push(format!("More than 1 % of requests fail: {failing}."));
    }
    if let Some(locked) = names(&|m| m.lock_out_s > 0.0) {
        sentences.push(format!("Proxies locked out of their own zone: {locked}."));
    }
    sentences.join(" ")
}

fn hottest(metrics: &Metrics) -> Option<&ZoneMetrics> {
    metrics
        .zones
        .iter()
        .find(|zone| zone.zone == metrics.hottest_zone)
}

/// 1 s range of the zone that moves most.
fn widest(metrics: &Metrics) -> (f64, f64) {
    let range = |zone: &ZoneMetrics| zone.utilization_1s_max - zone.utilization_1s_min;
    let widest = metrics
        .zones
        .iter()
        .max_by(|a, b| range(a).total_cmp(&range(b)));
    widest.map_or((0.0, 0.0), |zone| {
        (zone.utilization_1s_min, zone.utilization_1s_max)
    })
}

/// Names in a row; `None` for none.
fn list(names: &[&str]) -> Option<String> {
    match names {
        [] => None,
        [one] => Some((*one).to_owned()),
        [first @ .., last] => Some(format!("{} and {last}", first.join(", "))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_listed_as_people_do() {
        assert_eq!(list(&[]), None);
        assert_eq!(list(&["a"]).unwrap(), "a");
        assert_eq!(list(&["a", "b", "c"]).unwrap(), "a, b and c");
    }

    #[test]
    fn sentences_follow_the_numbers() {
        let mut report = crate::report::tests::report();
        let policy = &mut report.policies[0];
        assert!(utilization(policy).contains("<b>1.79 × the mean</b>, mostly zone a."));
        assert!(cross_zone(policy).contains("too little"));
        assert!(latency(policy).contains("99th percentile"));
        policy.metrics.oscillates = true;
        policy.metrics.oscillation_period_s = Some(2.5);
        policy.metrics.lock_out_s = 33.0;
        policy.metrics.failures = 0;
        assert!(utilization(policy).contains("every 2.5 s"));
        assert!(utilization(policy).contains("for 33 s"));
        assert_eq!(failures(policy), "No request failed.");
    }

    #[test]
    fn the_verdict_names_who_is_good_and_who_is_not() {
        let mut report = crate::report::tests::report();
        assert!(
            verdict(&report).starts_with("No policy keeps"),
            "{}",
            verdict(&report)
        );
        let metrics = &mut report.policies[0].metrics;
        metrics.max_over_mean_5s_avg = 1.02;
        metrics.cross_zone_share = 0.27;
        metrics.oscillates = true;
        let text = verdict(&report);
        assert!(text.contains("needed: <b>zone_aware_hosts</b>."), "{text}");
        assert!(
            text.contains("Swings without end: zone_aware_hosts."),
            "{text}"
        );
    }
}
