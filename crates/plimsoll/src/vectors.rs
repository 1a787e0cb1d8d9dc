//! Runs language-neutral cases (`vectors/*.json`) against plimsoll-core and plimsoll-xds.
//!
//! Here lives what all suites share: files, the envelope of a case, and the report. One file per
//! suite translates inputs to core types and calls the functions that production calls; comparing
//! lives in `compare`. A case whose expectation we miss on purpose says so under `plimsoll`, with
//! our values, the reason and the decision. No rule of load balancing lives anywhere in this
//! folder. Called by the `vectors` subcommand, which prints the [`Report`].

mod case;
mod compare;
mod cswrr;
mod load_aware_locality;
mod locality_wrr;
mod lrs;
mod orca;
mod outlier_detection;
mod pickers;
mod priority;
mod report;
mod subset;
mod translate;
mod zone_aware;

use std::fs;
use std::panic::{self, AssertUnwindSafe};
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use serde::{Deserialize as _, Serialize};
use serde_json::Value;

use self::case::{Case, CaseError};
use self::compare::Outcome;

/// What came of all files.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    pub(crate) files: Vec<FileReport>,
    pub(crate) passed: usize,
    pub(crate) failed: usize,
    pub(crate) skipped: usize,
}

/// What came of one file; numbers are cases. A file that is not a suite is one failure.
#[derive(Debug, Default, Serialize)]
pub(crate) struct FileReport {
    pub(crate) file: String,
    pub(crate) passed: usize,
    pub(crate) failed: usize,
    pub(crate) skipped: usize,
    pub(crate) failures: Vec<Failure>,
}

/// One difference. A failed case has at least one.
#[derive(Debug, Default, PartialEq, Serialize)]
pub(crate) struct Failure {
    pub(crate) id: String,
    pub(crate) kind: String,
    pub(crate) source_test: String,
    pub(crate) field: String,
    pub(crate) expected: Value,
    pub(crate) actual: Value,
}

/// Runs every `*.json` of `dir`, sorted by name.
pub(crate) fn run_dir(dir: &Path) -> anyhow::Result<Report> {
    let files = json_files(dir).with_context(|| format!("cannot read {}", dir.display()))?;
    anyhow::ensure!(
        !files.is_empty(),
        "no *.json in {}: nothing to run",
        dir.display()
    );
    Ok(Report::from_files(
        files.iter().map(|path| run_file(path)).collect(),
    ))
}

impl Report {
    /// Adds up.
    pub(crate) fn from_files(files: Vec<FileReport>) -> Self {
        Self {
            passed: files.iter().map(|file| file.passed).sum(),
            failed: files.iter().map(|file| file.failed).sum(),
            skipped: files.iter().map(|file| file.skipped).sum(),
            files,
        }
    }
}

/// Runs one case.
type Runner = fn(&Case) -> Result<Outcome, CaseError>;

struct Suite {
    /// Stem of the file's name.
    name: &'static str,
    /// How `schema.about` begins.
    about: &'static str,
    runner: Runner,
}

const SUITES: [Suite; 10] = [
    suite("zone_aware", "Zone aware routing", zone_aware::run),
    suite("priority", "Priority load", priority::run),
    suite(
        "locality_wrr",
        "Locality weighted round robin",
        locality_wrr::run,
    ),
    suite("pickers", "Endpoint pickers", pickers::run),
    suite(
        "load_aware_locality",
        "load_aware_locality",
        load_aware_locality::run,
    ),
    suite("orca", "In-band ORCA", orca::run),
    suite("cswrr", "Client side weighted round robin", cswrr::run),
    suite(
        "outlier_detection",
        "Outlier detection",
        outlier_detection::run,
    ),
    suite("lrs", "Load report stream client", lrs::run),
    suite("subset", "Subset load balancer", subset::run),
];

/// Kinds about preconnecting and child balancers, neither of which exists here.
const SKIPPED_KINDS: [&str; 2] = ["peek", "child_lifecycle"];

const fn suite(name: &'static str, about: &'static str, runner: Runner) -> Suite {
    Suite {
        name,
        about,
        runner,
    }
}

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

fn run_file(path: &Path) -> FileReport {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let mut report = FileReport {
        file: name.into_owned(),
        ..FileReport::default()
    };
    if let Err(error) = run_suite(path, &mut report) {
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

fn run_suite(path: &Path, report: &mut FileReport) -> anyhow::Result<()> {
    let text = fs::read(path).context("cannot be read")?;
    let file: Value = serde_json::from_slice(&text).context("not JSON")?;
    let suite = recognise(path, &file)?;
    let cases = file
        .get("cases")
        .and_then(Value::as_array)
        .context("has no list `cases`")?;
    anyhow::ensure!(
        !cases.is_empty(),
        "`cases` is empty: nothing would be checked"
    );
    for (index, case) in cases.iter().enumerate() {
        run_case(index, case, suite.runner, report);
    }
    Ok(())
}

/// By what the file says about itself, else by its name.
fn recognise(path: &Path, file: &Value) -> anyhow::Result<&'static Suite> {
    let about = file
        .pointer("/schema/about")
        .and_then(Value::as_str)
        .unwrap_or_default();
    let stem = path.file_stem().unwrap_or_default();
    SUITES
        .iter()
        .find(|suite| about.starts_with(suite.about))
        .or_else(|| SUITES.iter().find(|suite| stem == suite.name))
        .with_context(|| format!("unknown suite: schema.about is {about:?}"))
}

fn run_case(index: usize, json: &Value, run: Runner, report: &mut FileReport) {
    let text = |key| json.get(key).and_then(Value::as_str).map(str::to_owned);
    let id = text("id").unwrap_or_else(|| format!("cases[{index}]"));
    let kind = text("kind").unwrap_or_default();
    if SKIPPED_KINDS.contains(&kind.as_str()) {
        report.skipped += 1;
        return;
    }
    let source_test = text("source_test").unwrap_or_default();
    let failures = differences(json, run);
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

/// Field, expected, actual of everything that differs.
fn differences(json: &Value, run: Runner) -> Vec<(String, Value, Value)> {
    let read = || Case::deserialize(json);
    let (ours, deviates) = match read() {
        Ok(case) => case.with_deviation(),
        Err(error) => {
            let expected = "id, kind, inputs and expected as the schema describes them".into();
            return vec![("case".into(), expected, error.to_string().into())];
        }
    };
    let found = differences_of(&ours, run);
    // A deviation that is none any more would hide the next one.
    if deviates
        && found.is_empty()
        && read().is_ok_and(|case| differences_of(&case, run).is_empty())
    {
        let actual = "none: `plimsoll` is out of date".into();
        return vec![(
            "plimsoll".into(),
            "a difference from `expected`".into(),
            actual,
        )];
    }
    found
}

fn differences_of(case: &Case, run: Runner) -> Vec<(String, Value, Value)> {
    // Inputs from strangers may break an assertion of the core: one failed case, not the end.
    match panic::catch_unwind(AssertUnwindSafe(|| run(case))) {
        Ok(Ok(outcome)) => outcome.differences(&case.expected),
        Ok(Err(error)) => vec![(
            error.field.into(),
            error.expected.into(),
            error.actual.into(),
        )],
        Err(_) => vec![(
            "case".into(),
            "an outcome".into(),
            "the core panicked".into(),
        )],
    }
}

#[cfg(test)]
mod tests;
