//! The report as a text table: one row per policy, then checks and notes.

use std::fmt::Write as _;

use super::{PolicyReport, Report};
use crate::metrics::Metrics;

/// Spaces between two columns.
const GAP: usize = 2;

impl Report {
    /// Formats the report as a text table, with the parameters above and the checks below.
    pub fn table(&self) -> String {
        let mut text = String::new();
        let _ = writeln!(text, "{}", self.facts.title);
        let _ = writeln!(text, "{}\n", self.facts.summary());
        for (head, row) in [
            (
                BALANCE.as_slice(),
                balance as fn(&PolicyReport) -> Vec<String>,
            ),
            (DYNAMICS.as_slice(), dynamics),
        ] {
            let mut rows = vec![head.iter().map(|&name| name.to_owned()).collect()];
            rows.extend(self.policies.iter().map(row));
            text.push_str(&aligned(&rows));
            text.push('\n');
        }
        if let Some(rows) = self.failures() {
            text.push_str(&aligned(&rows));
            text.push('\n');
        }
        for policy in &self.policies {
            write_ignored(policy, &mut text);
        }
        let _ = writeln!(
            text,
            "max/mean: highest zone utilization ÷ that of all hosts, average / peak.\n\
             Measured from {} s.",
            self.facts.measured_from_s
        );
        for note in &self.facts.notes {
            let _ = writeln!(text, "Note: {note}");
        }
        for check in &self.checks {
            let verdict = if check.passed { "ok  " } else { "FAIL" };
            let found = check
                .found
                .map_or("none".to_owned(), |found| format!("{found:.4}"));
            let (policy, text_of) = (check.policy.name(), &check.text);
            let _ = writeln!(text, "{verdict} {policy}: {text_of} (found {found})");
        }
        text
    }

    /// Returns the table of failed requests by zone where they arrived, if any failed.
    fn failures(&self) -> Option<Vec<Vec<String>>> {
        let failed = |policy: &PolicyReport| policy.metrics.measured_failure_share > 0.0;
        if !self.policies.iter().any(failed) {
            return None;
        }
        let zones = &self.facts.zones;
        let few = zones.len() <= MAX_FAILURE_COLUMNS;
        let from = format!("failed from {} s", self.facts.measured_from_s);
        let mut head = vec!["policy".to_owned(), from];
        if few {
            head.extend(zones.iter().map(|zone| format!("in {}", short(zone))));
        } else {
            head.push("worst zone".to_owned());
        }
        let rows = self.policies.iter().map(|policy| {
            let m = &policy.metrics;
            let total = percent(m.measured_failure_share);
            let mut row = vec![policy.policy.name().to_owned(), total];
            if few {
                row.extend(m.zones.iter().map(|zone| percent(zone.failure_share)));
            } else {
                row.push(worst_zone(m));
            }
            row
        });
        Some([head].into_iter().chain(rows).collect())
    }
}

/// Most zones that have a column of their own in the table of failures.
const MAX_FAILURE_COLUMNS: usize = 5;

/// Most times of ignored zones that are listed for a policy.
const MAX_IGNORED: usize = 3;

/// Returns the name and failed share of the zone with the highest share.
fn worst_zone(metrics: &Metrics) -> String {
    let zones = metrics.zones.iter();
    let worst = zones.max_by(|a, b| a.failure_share.total_cmp(&b.failure_share));
    worst.map_or("–".into(), |zone| {
        format!("{} {}", short(&zone.zone), percent(zone.failure_share))
    })
}

/// Writes when the policy did not choose by zone, and why: then its numbers are not its own.
fn write_ignored(policy: &PolicyReport, text: &mut String) {
    let all = policy.zones_ignored.len();
    for ignored in policy.zones_ignored.iter().take(MAX_IGNORED) {
        let proxies = match &ignored.at[..] {
            several if several.len() > 2 => format!("{} zones", several.len()),
            few => few
                .iter()
                .map(|name| short(name))
                .collect::<Vec<_>>()
                .join(", "),
        };
        let (name, when, reason) = (policy.policy.name(), ignored.when(), &ignored.reason);
        let _ = writeln!(text, "{name} ignored zones {when} (proxies of {proxies}):");
        let _ = writeln!(text, "  {reason}");
    }
    if all > MAX_IGNORED {
        let _ = writeln!(text, "  … and {} more times", all - MAX_IGNORED);
    }
    if all > 0 {
        text.push('\n');
    }
}

/// Columns of the first table: how even zones are, and what it costs. Two tables, because one would
/// be wider than a terminal.
const BALANCE: [&str; 5] = [
    "policy",
    "max/mean 1s",
    "5s",
    "cross (needed)",
    "highest zone 1s",
];

/// Columns of the second table: changes over time, waiting and failures.
const DYNAMICS: [&str; 7] = [
    "policy",
    "settled",
    "swings",
    "above cap.",
    "p50/p99 ms",
    "failed",
    "locked",
];

fn balance(policy: &PolicyReport) -> Vec<String> {
    let m = &policy.metrics;
    vec![
        policy.policy.name().to_owned(),
        format!(
            "{:.2} / {:.2}",
            m.max_over_mean_1s_avg, m.max_over_mean_1s_peak
        ),
        format!(
            "{:.2} / {:.2}",
            m.max_over_mean_5s_avg, m.max_over_mean_5s_peak
        ),
        format!(
            "{} ({})",
            percent(m.cross_zone_share),
            percent(m.cross_zone_needed)
        ),
        hottest(m),
    ]
}

fn dynamics(policy: &PolicyReport) -> Vec<String> {
    let m = &policy.metrics;
    vec![
        policy.policy.name().to_owned(),
        m.settled_s
            .map_or("no".into(), |seconds| format!("{seconds:.1} s")),
        m.oscillation_period_s
            .map_or("no".into(), |period| format!("{period:.1} s")),
        percent(m.above_capacity_share),
        match (m.latency_p50_ms, m.latency_p99_ms) {
            (Some(p50), Some(p99)) => format!("{p50:.0} / {p99:.0}"),
            _ => "–".into(),
        },
        percent(m.failure_share),
        match m.lock_out_s {
            0.0 => "no".into(),
            seconds => format!("{seconds:.0} s ×{}", m.locked_out_balancers),
        },
    ]
}

/// Longest name of a zone in the table; longer ones are cut in the middle.
const MAX_NAME: usize = 7;

fn short(name: &str) -> String {
    let letters: Vec<char> = name.chars().collect();
    if letters.len() <= MAX_NAME {
        return name.to_owned();
    }
    let (start, end) = (&letters[..2], &letters[letters.len() - (MAX_NAME - 3)..]);
    start.iter().chain(&['…']).chain(end).collect()
}

/// Returns the name and 1 s range of the zone with the highest average.
fn hottest(metrics: &Metrics) -> String {
    let zone = metrics
        .zones
        .iter()
        .find(|zone| zone.zone == metrics.hottest_zone);
    zone.map_or("–".into(), |zone| {
        let (low, high) = (zone.utilization_1s_min, zone.utilization_1s_max);
        format!("{} {low:.2}–{high:.2}", short(&zone.zone))
    })
}

/// Formats a share in percent; a small nonzero share is not shown as 0.
pub(crate) fn percent(share: f64) -> String {
    match share {
        0.0 => "0 %".into(),
        share if share < 0.000_5 => "<0.1 %".into(),
        share => format!("{:.1} %", share * 100.0),
    }
}

/// Aligns the columns: the first to the left, the others to the right.
fn aligned(rows: &[Vec<String>]) -> String {
    let columns = rows.first().map_or(0, Vec::len);
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut text = String::new();
    for row in rows {
        let mut line = String::new();
        for (column, (cell, width)) in row.iter().zip(&widths).enumerate() {
            let room = " ".repeat(width - cell.chars().count());
            if column == 0 {
                let _ = write!(line, "{cell}{room}");
            } else {
                let _ = write!(line, "{}{room}{cell}", " ".repeat(GAP));
            }
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned() {
        let rows = [["a", "bb"], ["ccc", "d"]].map(|row| row.map(str::to_owned).to_vec());
        assert_eq!(aligned(&rows), "a    bb\nccc   d\n");
    }

    #[test]
    fn long_names_of_zones_keep_both_ends() {
        assert_eq!(short("eu-central-1a"), "eu…l-1a");
        assert_eq!(short("zone-a"), "zone-a");
    }

    #[test]
    fn small_shares_are_not_zero() {
        let shown = [0.0, 0.000_1, 0.012_34].map(percent);
        assert_eq!(shown, ["0 %", "<0.1 %", "1.2 %"]);
    }

    #[test]
    fn the_table_has_a_row_per_policy_and_lists_failed_checks() {
        let table = crate::report::tests::report().table();
        for part in [
            "60/20/20",
            "zone_aware_hosts",
            "optimum",
            "a 1.07–1.08",
            "26.4 %",
        ] {
            assert!(table.contains(part), "{part} is missing:\n{table}");
        }
        assert!(table.contains("FAIL zone_aware_hosts: settled_s at most 30 (found none)"));
        assert!(table.contains("ok   zone_aware_hosts: lost requests at most 0"));
        let wide = table.lines().find(|line| line.chars().count() > 80);
        assert_eq!(wide, None, "fits a terminal:\n{table}");
    }
}
