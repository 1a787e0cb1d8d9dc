//! Time series as CSV: one row per policy, second and zone, and one per policy and second for the
//! whole fleet (zone `*`).

use std::fmt::Write as _;

use super::{PolicyReport, Report};

const HEAD: &str = "policy,time_s,zone,utilization_1s,utilization_5s,max_over_mean_5s,\
                    cross_zone_share,cross_zone_needed,demand_rps,latency_p50_ms,latency_p99_ms,\
                    failures_per_s\n";

impl Report {
    /// Formats the time series as CSV, one point per second.
    pub fn csv(&self) -> String {
        let mut text = HEAD.to_owned();
        for policy in &self.policies {
            write_policy(policy, &self.facts.zones, &mut text);
        }
        text
    }
}

fn write_policy(policy: &PolicyReport, zones: &[String], text: &mut String) {
    let series = &policy.series;
    let name = policy.policy.name();
    let whole = series
        .times
        .iter()
        .enumerate()
        .filter(|(_, time)| time.fract() == 0.0);
    for (point, time) in whole {
        let fleet = [
            series.mean[point],
            f64::NAN,
            series.max_over_mean[point],
            series.cross_zone[point],
            series.needed[point],
            series.demand[point],
            series.p50[point],
            series.p99[point],
            series.failures[point],
        ];
        let _ = write!(text, "{name},{time},*");
        write_values(&fleet, text);
        for (zone, name_of_zone) in zones.iter().enumerate() {
            let _ = write!(text, "{name},{time},{}", quoted(name_of_zone));
            let here = [
                series.utilization[zone][point],
                series.utilization_5s[zone][point],
            ];
            let nothing = [f64::NAN; 6];
            let failures = [series.failures_by_zone[zone][point]];
            write_values(&[&here[..], &nothing[..], &failures[..]].concat(), text);
        }
    }
}

/// Writes values after commas; missing values are empty.
fn write_values(values: &[f64], text: &mut String) {
    for value in values {
        text.push(',');
        if value.is_finite() {
            // Five digits are precise enough, and shorter than a full double.
            let _ = write!(text, "{}", (value * 1e5).round() / 1e5);
        }
    }
    text.push('\n');
}

fn quoted(name: &str) -> String {
    if name.contains([',', '"', '\n', '\r']) {
        return format!("\"{}\"", name.replace('"', "\"\""));
    }
    name.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_short_and_missing_values_are_empty() {
        let mut text = String::new();
        write_values(&[1.0, f64::NAN, 0.123_456_78, 0.1 + 0.2], &mut text);
        assert_eq!(text, ",1,,0.12346,0.3\n");
    }

    #[test]
    fn names_are_quoted_when_necessary() {
        assert_eq!(quoted("a"), "a");
        assert_eq!(quoted("a,\"b\""), "\"a,\"\"b\"\"\"");
    }

    #[test]
    fn every_row_has_the_columns_of_the_header() {
        let report = crate::report::tests::report();
        let csv = report.csv();
        let columns = HEAD.matches(',').count();
        assert!(csv.lines().all(|line| line.matches(',').count() == columns));
        // 40 s, two policies, three zones and the fleet.
        assert_eq!(csv.lines().count(), 1 + 40 * 2 * 4);
    }
}
