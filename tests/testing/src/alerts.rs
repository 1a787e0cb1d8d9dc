//! Drills of alerts: what a control plane served at `/metrics` becomes series of Prometheus, and
//! promtool evaluates the rules of `deploy/prometheus` on them.
//!
//! The pages are real, the time between them is not: what was seen before lasts for twenty minutes,
//! what was seen during the failure for an hour, and a counter that grew between two pages goes on
//! to grow by as much every minute.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::{repository, scratch, target};

/// Ages that grow until something happens, which takes longer than a test.
const GROWING: [&str; 1] = ["plimsoll_control_fleet_fraction_age_seconds"];
/// Unix times: the clock of the evaluation starts at zero.
const TIMES: [&str; 1] = ["plimsoll_control_certificate_expiry_timestamp_seconds"];

/// Pages of `/metrics` before and during a failure.
#[derive(Clone, Debug, Default)]
pub struct Drill {
    /// `None` if there was no process yet.
    pub before: Option<String>,
    /// Empty if the process is gone.
    pub during: Vec<String>,
}

impl Drill {
    /// Checks that an alert is silent before and fires during the failure.
    pub fn fires(&self, alert: &str) {
        let result = self.evaluate(alert);
        assert!(result.is_ok(), "{alert}: {}", result.unwrap_err());
    }

    /// Checks that a rule with the severity `page` or `ticket` of several for an alert fires.
    fn evaluate(&self, alert: &str) -> Result<(), String> {
        let firing = format!("ALERTS{{alertname=\"{alert}\",alertstate=\"firing\"}}");
        let rules = repository().join("deploy/prometheus/plimsoll.rules.yaml");
        let mut text = format!(
            "rule_files: ['{}']\nevaluation_interval: 1m\ntests:\n- interval: 1m\n  \
             input_series:\n",
            rules.display()
        );
        for (series, values) in self.series() {
            let series = series.replace('\'', "''");
            let _ = writeln!(text, "  - {{series: '{series}', values: '{values}'}}");
        }
        let _ = write!(
            text,
            "  promql_expr_test:\n  - expr: 'count({firing}) or vector(0)'\n    eval_time: 20m\n\
             \x20   exp_samples: [{{labels: '{{}}', value: 0}}]\n  - expr: \
             '(max_over_time(count({firing})[60m:1m]) > bool 0) or vector(0)'\n    \
             eval_time: 80m\n    exp_samples: [{{labels: '{{}}', value: 1}}]\n"
        );
        let file = scratch("drills", alert).join("test.yaml");
        std::fs::write(&file, &text).unwrap();
        let mut command = Command::new(promtool());
        let output = command.args(["test", "rules"]).arg(&file).output().unwrap();
        if output.status.success() {
            return Ok(());
        }
        let said = String::from_utf8_lossy(&output.stderr);
        let shown = String::from_utf8_lossy(&output.stdout);
        Err(format!("{said}{shown}\n{text}"))
    }

    /// Series with their values, in the notation of promtool.
    fn series(&self) -> BTreeMap<String, String> {
        let before = self.before.as_deref().map(samples);
        let during: Vec<_> = self.during.iter().map(|page| samples(page)).collect();
        let mut all = BTreeMap::new();
        let pages = before.iter().chain(&during);
        let names: std::collections::BTreeSet<&String> = pages.flat_map(BTreeMap::keys).collect();
        for name in names {
            let past = before.as_ref().and_then(|page| page.get(name));
            // A value is repeated, so that there are 21, but a gap has as many as it says.
            let mut values = past.map_or_else(|| "_x21".to_owned(), |past| format!("{past}x20"));
            let seen: Vec<f64> = during
                .iter()
                .filter_map(|page| page.get(name).copied())
                .collect();
            match (seen.first(), seen.last()) {
                (Some(first), Some(last)) if grows(name) && last > first => {
                    let step = last - first;
                    let _ = write!(values, " {first}+{step}x60");
                }
                (_, Some(last)) => {
                    let _ = write!(values, " {last}x60");
                }
                _ => values += " stale",
            }
            all.insert(name.clone(), values);
        }
        all
    }
}

fn grows(series: &str) -> bool {
    let name = series.split('{').next().unwrap_or_default();
    name.ends_with("_total") || GROWING.contains(&name)
}

/// Reads the samples of a page.
fn samples(page: &str) -> BTreeMap<String, f64> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let lines = page.lines().filter(|line| !line.starts_with('#'));
    let samples = lines.filter_map(|line| {
        let (series, value) = line.rsplit_once(' ')?;
        let mut value: f64 = value.parse().ok().filter(|value: &f64| value.is_finite())?;
        if TIMES.iter().any(|name| series.starts_with(name)) {
            value -= now.as_secs_f64();
        }
        Some((series.to_owned(), value))
    });
    samples.collect()
}

/// Returns the program that `make test` installs, or that of the machine.
fn promtool() -> PathBuf {
    let installed = target().join("checks/usr/bin/promtool");
    if installed.exists() {
        installed
    } else {
        PathBuf::from("promtool")
    }
}
