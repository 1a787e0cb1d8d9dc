//! The table at the top of the page: one row per policy, coloured where a goal is met or missed.

use std::fmt::Write as _;

use super::prose::{self, Grade};
use crate::metrics::Metrics;
use crate::report::table::percent;
use crate::report::{PolicyReport, Report};

const HEAD: &str = "<thead><tr><th>policy</th><th>max/mean 5 s<br><small>avg / peak</small></th>\
    <th>max/mean 1 s<br><small>avg / peak</small></th>\
    <th>between zones<br><small>needed</small></th><th>above<br>capacity</th>\
    <th>settled<br>after</th><th>swings<br>every</th>\
    <th>latency ms<br><small>p50 / p99</small></th><th>failed</th><th>locked out<br>for</th></tr>\
    </thead>\n";

pub(super) fn section(report: &Report, page: &mut String) {
    let _ = writeln!(
        page,
        "<section>\n<h2>Side by side</h2>\n<p>{}</p>\n<div class=\"scroll\"><table \
         class=\"summary\">\n{HEAD}<tbody>",
        prose::verdict(report)
    );
    for policy in &report.policies {
        row(policy, page);
    }
    page.push_str("</tbody></table></div>\n<dl class=\"policies\">\n");
    for policy in &report.policies {
        let (name, description) = (policy.policy.name(), policy.description);
        let _ = writeln!(page, "<div><dt>{name}</dt><dd>{description}</dd></div>");
    }
    page.push_str("</dl>\n</section>\n");
}

fn row(policy: &PolicyReport, page: &mut String) {
    let m = &policy.metrics;
    let (name, description) = (policy.policy.name(), policy.description);
    let _ = write!(page, "<tr><td title=\"{description}\">{name}</td>");
    let five = format!(
        "{:.2} / {:.2}",
        m.max_over_mean_5s_avg, m.max_over_mean_5s_peak
    );
    tagged(prose::balance(m), &five, page);
    let one = format!(
        "{:.2} / {:.2}",
        m.max_over_mean_1s_avg, m.max_over_mean_1s_peak
    );
    plain(&one, page);
    let needed = percent(m.cross_zone_needed);
    let surplus = (m.cross_zone_share - m.cross_zone_needed).abs();
    let share = format!("{} <small>{needed}</small>", percent(m.cross_zone_share));
    tagged(Grade::of(surplus, 0.05, 0.1), &share, page);
    graded(
        m.above_capacity_share,
        (0.0, 0.01),
        &percent(m.above_capacity_share),
        page,
    );
    settled(m, page);
    match m.oscillation_period_s {
        Some(period) => tagged(Grade::Bad, &format!("{period:.1} s"), page),
        None => plain("–", page),
    }
    match (m.latency_p50_ms, m.latency_p99_ms) {
        (Some(p50), Some(p99)) => plain(&format!("{p50:.0} / {p99:.0}"), page),
        _ => plain("–", page),
    }
    graded(
        m.failure_share,
        (0.0, 0.01),
        &percent(m.failure_share),
        page,
    );
    if m.lock_out_s > 0.0 {
        tagged(Grade::Bad, &format!("{:.0} s", m.lock_out_s), page);
    } else {
        plain("–", page);
    }
    page.push_str("</tr>\n");
}

fn settled(metrics: &Metrics, page: &mut String) {
    match metrics.settled_s {
        Some(seconds) => {
            tagged(
                Grade::of(seconds, 30.0, 60.0),
                &format!("{seconds:.1} s"),
                page,
            );
        }
        None => tagged(Grade::Bad, "never", page),
    }
}

/// A cell whose colour says how good the value is; what is perfect needs none.
fn graded(value: f64, (good, warn): (f64, f64), text: &str, page: &mut String) {
    match Grade::of(value, good, warn) {
        Grade::Good => plain(text, page),
        grade => tagged(grade, text, page),
    }
}

fn tagged(grade: Grade, text: &str, page: &mut String) {
    let class = grade.class();
    let _ = write!(page, "<td><span class=\"tag {class}\">{text}</span></td>");
}

fn plain(text: &str, page: &mut String) {
    let _ = write!(page, "<td>{text}</td>");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn goals_are_coloured() {
        let report = crate::report::tests::report();
        let mut page = String::new();
        section(&report, &mut page);
        assert!(
            page.contains("<span class=\"tag bad\">1.79 / 1.80</span>"),
            "{page}"
        );
        assert!(
            page.contains("<span class=\"tag good\">1.00 / 1.00</span>"),
            "{page}"
        );
        assert!(
            page.contains("<span class=\"tag bad\">never</span>"),
            "{page}"
        );
        assert_eq!(page.matches("<tr>").count(), 3);
    }
}
