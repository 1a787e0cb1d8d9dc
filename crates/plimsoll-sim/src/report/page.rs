//! The report with its time series, as drawn by the page of charts.

use serde::Serialize;

use super::Report;
use super::series::Series;

/// Maximum number of points per line; a chart cannot show more.
const MAX_POINTS: usize = 600;

#[derive(Debug, Serialize)]
struct Page<'a> {
    facts: &'a super::RunInfo,
    /// Size, duration and seed.
    in_words: String,
    policies: Vec<PolicyPage<'a>>,
    checks: &'a [crate::checker::Check],
}

#[derive(Debug, Serialize)]
struct PolicyPage<'a> {
    #[serde(flatten)]
    report: &'a super::PolicyReport,
    series: Lines,
}

/// Lines of a chart: one value per point in time, null where there is none.
#[derive(Debug, Serialize)]
struct Lines {
    times: Vec<f64>,
    utilization: Vec<Vec<f64>>,
    lowest: Vec<f64>,
    highest: Vec<f64>,
    mean: Vec<f64>,
    cross_zone: Vec<f64>,
    needed: Vec<f64>,
    p50: Vec<f64>,
    p99: Vec<f64>,
    failures: Vec<f64>,
    failures_by_zone: Vec<Vec<f64>>,
}

impl Report {
    /// Returns the data of the page of charts: the JSON report with time series.
    pub fn page(&self) -> impl Serialize + std::fmt::Debug {
        let policies = self.policies.iter().map(|report| PolicyPage {
            report,
            series: Lines::new(&report.series),
        });
        Page {
            facts: &self.facts,
            in_words: self.facts.summary(),
            policies: policies.collect(),
            checks: &self.checks,
        }
    }
}

impl Lines {
    fn new(series: &Series) -> Self {
        let step = series.times.len().div_ceil(MAX_POINTS).max(1);
        // A chart shows at most four digits; NaN becomes null in JSON.
        let line = |values: &Vec<f64>| -> Vec<f64> {
            values
                .iter()
                .step_by(step)
                .map(|value| (value * 1e4).round() / 1e4)
                .collect()
        };
        Self {
            times: line(&series.times),
            utilization: series.utilization.iter().map(line).collect(),
            lowest: line(&series.lowest),
            highest: line(&series.highest),
            mean: line(&series.mean),
            cross_zone: line(&series.cross_zone),
            needed: line(&series.needed),
            p50: line(&series.p50),
            p99: line(&series.p99),
            failures: line(&series.failures),
            failures_by_zone: series.failures_by_zone.iter().map(line).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_is_the_report_with_time_series() {
        let report = crate::report::tests::report();
        let page = serde_json::to_value(report.page()).unwrap();
        let mut without = page.clone();
        without.as_object_mut().unwrap().remove("in_words");
        for policy in without["policies"].as_array_mut().unwrap() {
            let lines = policy.as_object_mut().unwrap().remove("series").unwrap();
            let points = lines["times"].as_array().unwrap().len();
            assert!((1..=MAX_POINTS).contains(&points), "{points}");
            for line in ["mean", "needed", "p99", "failures"] {
                assert_eq!(lines[line].as_array().unwrap().len(), points, "{line}");
            }
            assert_eq!(lines["utilization"].as_array().unwrap().len(), 3);
        }
        assert_eq!(without, serde_json::to_value(&report).unwrap());
    }

    #[test]
    fn many_points_are_thinned_and_rounded() {
        let values: Vec<f64> = (0..1500).map(|point| f64::from(point) / 3.0).collect();
        let series = Series {
            times: values.clone(),
            mean: vec![f64::NAN; 1500],
            ..Series::default()
        };
        let lines = Lines::new(&series);
        assert_eq!((lines.times.len(), lines.mean.len()), (500, 500));
        assert_eq!(lines.times[1], 1.0);
        let json = serde_json::to_value(&lines).unwrap();
        assert!(json["mean"][0].is_null());
    }
}
