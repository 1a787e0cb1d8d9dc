//! Conformance test runner: runs language-neutral test vectors (`vectors/*.json`) against
//! plimsoll-core and plimsoll-xds.
//!
//! This module reads files and builds the report. One module per suite translates the inputs of a
//! case to core types, calls the functions that production calls, and returns the outcome as a JSON
//! object, which `compare` compares with `expected`. If Plimsoll deviates from a case on purpose,
//! the case has a key `plimsoll` with Plimsoll's values, the reason and the decision. This crate
//! contains no load-balancing logic. Cases that need a cluster run through an [`Engine`]. The
//! command line is in `command`.

mod capacity;
mod case;
pub mod command;
mod compare;
mod cswrr;
mod demand_under_failure;
mod engine;
mod load_aware_locality;
mod locality_wrr;
mod lrs;
mod orca;
mod outlier_detection;
mod pickers;
mod policies;
mod priority;
mod report;
mod silent_reports;
mod subset;
mod translate;
mod transport;
mod zone_aware;

use std::fs;
use std::panic::{self, AssertUnwindSafe};
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use serde::{Deserialize as _, Serialize};
use serde_json::Value;

use self::Runner::{Clusters, Functions};
use self::case::{Case, CaseError, CaseResult};
pub use self::engine::{Cluster, Core, Engine, Unsupported};

/// Results of all vector files.
#[derive(Debug, Serialize)]
#[expect(missing_docs, reason = "fields of the printed JSON")]
pub struct Report {
    pub files: Vec<FileReport>,
    pub passed: usize,
    pub failed: usize,
    pub skipped: usize,
}

/// Results of one vector file, counted in cases. A file that is not a suite counts as one failure.
#[derive(Debug, Default, Serialize)]
#[expect(missing_docs, reason = "fields of the printed JSON")]
pub struct FileReport {
    pub file: String,
    pub passed: usize,
    pub failed: usize,
    pub skipped: usize,
    pub failures: Vec<Failure>,
}

/// One difference between actual and expected values. A failed case has at least one.
#[derive(Debug, Default, PartialEq, Serialize)]
#[expect(missing_docs, reason = "fields of the printed JSON")]
pub struct Failure {
    pub id: String,
    pub kind: String,
    pub source_test: String,
    pub field: String,
    pub expected: Value,
    pub actual: Value,
}

/// Runs every `*.json` file in `dir`, sorted by name, through an engine.
pub fn run_dir(dir: &Path, engine: &dyn Engine) -> anyhow::Result<Report> {
    let files = json_files(dir).with_context(|| format!("cannot read {}", dir.display()))?;
    anyhow::ensure!(
        !files.is_empty(),
        "no *.json in {}: nothing to run",
        dir.display()
    );
    Ok(Report::from_files(
        files.iter().map(|path| run_file(path, engine)).collect(),
    ))
}

impl Report {
    fn from_files(files: Vec<FileReport>) -> Self {
        Self {
            passed: files.iter().map(|file| file.passed).sum(),
            failed: files.iter().map(|file| file.failed).sum(),
            skipped: files.iter().map(|file| file.skipped).sum(),
            files,
        }
    }
}

#[derive(Clone, Copy)]
enum Runner {
    /// Calls functions; needs no cluster.
    Functions(fn(&Case) -> CaseResult),
    /// Has cases that need a cluster.
    Clusters(fn(&Case, &dyn Engine) -> CaseResult),
}

impl Runner {
    fn run(self, case: &Case, engine: &dyn Engine) -> CaseResult {
        match self {
            Functions(run) => CaseError::unless_functions(engine).and_then(|()| run(case)),
            Clusters(run) => run(case, engine),
        }
    }
}

/// File stem of a suite, prefix of its `schema.about`, and its runner.
type Suite = (&'static str, &'static str, Runner);

#[rustfmt::skip]
const SUITES: [Suite; 14] = [
    ("zone_aware", "Zone aware routing", Clusters(zone_aware::run)),
    ("priority", "Priority load", Functions(priority::run)),
    ("locality_wrr", "Locality weighted round robin", Functions(locality_wrr::run)),
    ("pickers", "Endpoint pickers", Functions(pickers::run)),
    ("load_aware_locality", "load_aware_locality", Clusters(load_aware_locality::run)),
    ("orca", "In-band ORCA", Functions(orca::run)),
    ("cswrr", "Client side weighted round robin", Functions(cswrr::run)),
    ("outlier_detection", "Outlier detection", Functions(outlier_detection::run)),
    ("lrs", "Load report stream client", Functions(lrs::run)),
    ("subset", "Subset load balancer", Functions(subset::run)),
    ("demand_under_failure", "Demand under failure", Functions(demand_under_failure::run)),
    ("silent_reports", "Load reports that stop", Clusters(silent_reports::run)),
    ("transport", "Transportation problem", Functions(transport::run)),
    ("capacity", "Learned capacity", Functions(capacity::run)),
];

/// Kinds of cases about preconnecting and child balancers, which Plimsoll does not have.
const SKIPPED_KINDS: [&str; 2] = ["peek", "child_lifecycle"];

fn json_files(dir: &Path) -> std::io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        if path
            .extension()
            .is_some_and(|extension| extension == "json")
            && path.is_file()
        {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

fn run_file(path: &Path, engine: &dyn Engine) -> FileReport {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let mut report = FileReport {
        file: name.into_owned(),
        ..FileReport::default()
    };
    if let Err(error) = run_suite(path, engine, &mut report) {
        report.failed += 1;
        report.failures.push(Failure {
            field: "file".into(),
            expected: "a vector file of a known suite".into(),
            actual: format!("{error:#}").into(),
            ..Failure::default()
        });
    }
    report
}

fn run_suite(path: &Path, engine: &dyn Engine, report: &mut FileReport) -> anyhow::Result<()> {
    let text = fs::read(path).context("cannot be read")?;
    let file: Value = serde_json::from_slice(&text).context("not JSON")?;
    let (_, _, runner) = find_suite(path, &file)?;
    let cases = file
        .get("cases")
        .and_then(Value::as_array)
        .context("has no list `cases`")?;
    anyhow::ensure!(
        !cases.is_empty(),
        "`cases` is empty: nothing would be checked"
    );
    for (index, case) in cases.iter().enumerate() {
        run_case(index, case, &|case| runner.run(case, engine), report);
    }
    Ok(())
}

/// Finds the suite of a vector file by `schema.about`, else by the file name.
fn find_suite(path: &Path, file: &Value) -> anyhow::Result<&'static Suite> {
    let about = file
        .pointer("/schema/about")
        .and_then(Value::as_str)
        .unwrap_or_default();
    let stem = path.file_stem().unwrap_or_default();
    SUITES
        .iter()
        .find(|(_, prefix, _)| about.starts_with(prefix))
        .or_else(|| SUITES.iter().find(|(name, ..)| stem == *name))
        .with_context(|| format!("unknown suite: schema.about is {about:?}"))
}

/// A suite with its engine.
type Run<'a> = dyn Fn(&Case) -> CaseResult + 'a;

/// Path, expected value and actual value.
type Difference = (String, Value, Value);

fn run_case(index: usize, json: &Value, run: &Run<'_>, report: &mut FileReport) {
    let text = |key| json.get(key).and_then(Value::as_str).map(str::to_owned);
    let id = text("id").unwrap_or_else(|| format!("cases[{index}]"));
    let kind = text("kind").unwrap_or_default();
    if SKIPPED_KINDS.contains(&kind.as_str()) {
        report.skipped += 1;
        return;
    }
    let source_test = text("source_test").unwrap_or_default();
    let Ok(failures) = differences(json, run) else {
        report.skipped += 1;
        return;
    };
    if failures.is_empty() {
        report.passed += 1;
        return;
    }
    report.failed += 1;
    report.failures.extend(
        failures
            .into_iter()
            .map(|(field, expected, actual)| Failure {
                id: id.clone(),
                kind: kind.clone(),
                source_test: source_test.clone(),
                field,
                expected,
                actual,
            }),
    );
}

/// Runs a case; returns every difference, or why the engine cannot run it.
fn differences(json: &Value, run: &Run<'_>) -> Result<Vec<Difference>, Unsupported> {
    let read = || Case::deserialize(json);
    let (ours, deviates) = match read() {
        Ok(case) => case.with_deviation(),
        Err(error) => {
            let expected = "id, kind, inputs and expected as the schema describes them".into();
            return Ok(vec![("case".into(), expected, error.to_string().into())]);
        }
    };
    let found = differences_of(&ours, run)?;
    // A deviation without a difference would hide the next difference: report it.
    if deviates
        && found.is_empty()
        && read().is_ok_and(|case| differences_of(&case, run) == Ok(Vec::new()))
    {
        let actual = "none: `plimsoll` is out of date".into();
        return Ok(vec![(
            "plimsoll".into(),
            "a difference from `expected`".into(),
            actual,
        )]);
    }
    Ok(found)
}

fn differences_of(case: &Case, run: &Run<'_>) -> Result<Vec<Difference>, Unsupported> {
    // Unusual inputs may make the core panic: that fails one case, not the whole run.
    let outcome = panic::catch_unwind(AssertUnwindSafe(|| {
        run(case).and_then(|outcome| case.unknown_inputs().map_or(Ok(outcome), Err))
    }));
    Ok(match outcome {
        Ok(Ok(outcome)) => outcome.differences(&case.expected),
        Ok(Err(CaseError::Unsupported(reason))) => return Err(reason),
        Ok(Err(CaseError::Wrong {
            field,
            expected,
            actual,
        })) => vec![(field.into(), expected.into(), actual.into())],
        Err(_) => vec![(
            "case".into(),
            "an outcome".into(),
            "the core panicked".into(),
        )],
    })
}

#[cfg(test)]
mod tests;
