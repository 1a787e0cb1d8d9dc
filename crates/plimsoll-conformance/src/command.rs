//! Command line of the conformance runner: arguments and output. `plimsoll-conformance DIR` uses
//! it, and so does `plimsoll vectors DIR` if the binary has the feature `vectors`. All cases run
//! before the first line is written, so a closed pipe does not change the exit code.

use std::io::{self, Write};
use std::path::PathBuf;

use anyhow::Context as _;

use crate::{Core, Failure, Report, run_dir};

/// Run recorded cases against the core and compare the outcomes
///
/// Every *.json file in DIR is run, in order of name. A file says which suite it is in
/// `schema.about` (or by its name) and holds `cases`, each with `id`, `kind`, `inputs` and
/// `expected`.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub struct Args {
    /// Directory of vector files
    dir: PathBuf,
    /// Print one JSON object instead of text
    #[arg(long)]
    json: bool,
}

const AFTER_HELP: &str = "\
Suites: zone_aware, priority, locality_wrr, pickers, load_aware_locality, orca, cswrr,
outlier_detection, lrs, subset, silent_reports. Cases of the kinds peek and child_lifecycle are
skipped.

Every key of `expected` is compared: integers exactly, other numbers within 1e-9 or the case's own
`tolerance`. What an object under such a key leaves out must be null, 0 or empty. A key the runner
does not know is a failure, never ignored.

The last line is `N passed, M failed, K skipped`, counted in cases; a file that cannot be read as a
suite counts as one failure.

Exit codes: 0 all passed, 1 something failed, 2 wrong usage or no vector files.";

/// Runs the cases and prints the report; returns whether all passed. Errors are usage errors.
pub fn run(args: &Args, out: &mut impl Write) -> anyhow::Result<bool> {
    let report = run_dir(&args.dir, &Core)?;
    let written = if args.json {
        write_json(&report, out)
    } else {
        write_text(&report, out)
    };
    match written.and_then(|()| out.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {}
        written => written.context("cannot write the report")?,
    }
    Ok(report.failed == 0)
}

fn write_text(report: &Report, out: &mut impl Write) -> io::Result<()> {
    for file in &report.files {
        for failure in &file.failures {
            write_failure(&file.file, failure, out)?;
        }
        writeln!(
            out,
            "{}: {} passed, {} failed, {} skipped",
            file.file, file.passed, file.failed, file.skipped
        )?;
    }
    writeln!(
        out,
        "{} passed, {} failed, {} skipped",
        report.passed, report.failed, report.skipped
    )
}

fn write_failure(file: &str, failure: &Failure, out: &mut impl Write) -> io::Result<()> {
    let Failure {
        id,
        kind,
        source_test,
        field,
        expected,
        actual,
    } = failure;
    write!(out, "FAIL {file}")?;
    for part in [id, kind].into_iter().filter(|part| !part.is_empty()) {
        write!(out, " {part}")?;
    }
    writeln!(out)?;
    if !source_test.is_empty() {
        writeln!(out, "  source_test  {source_test}")?;
    }
    writeln!(out, "  field        {field}")?;
    writeln!(out, "  expected     {expected}")?;
    writeln!(out, "  actual       {actual}")
}

fn write_json(report: &Report, out: &mut impl Write) -> io::Result<()> {
    serde_json::to_writer_pretty(&mut *out, report)?;
    writeln!(out)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::FileReport;

    fn report() -> Report {
        let failure = Failure {
            id: "za-001".into(),
            kind: "state".into(),
            source_test: "Some.Test".into(),
            field: "state".into(),
            expected: json!("LocalityDirect"),
            actual: json!(null),
        };
        let failing = FileReport {
            file: "zone_aware.json".into(),
            passed: 2,
            failed: 1,
            failures: vec![failure],
            ..FileReport::default()
        };
        let skipping = FileReport {
            file: "lrs.json".into(),
            skipped: 7,
            ..FileReport::default()
        };
        Report::from_files(vec![skipping, failing])
    }

    #[test]
    fn the_text_report_lists_failures_and_ends_with_totals() {
        let mut text = Vec::new();
        write_text(&report(), &mut text).unwrap();
        let expected = "\
lrs.json: 0 passed, 0 failed, 7 skipped
FAIL zone_aware.json za-001 state
  source_test  Some.Test
  field        state
  expected     \"LocalityDirect\"
  actual       null
zone_aware.json: 2 passed, 1 failed, 0 skipped
2 passed, 1 failed, 7 skipped
";
        assert_eq!(String::from_utf8(text).unwrap(), expected);
    }

    #[test]
    fn a_failure_of_a_whole_file_omits_empty_fields() {
        let failure = Failure {
            field: "file".into(),
            expected: json!("a vector file"),
            actual: json!("EOF"),
            ..Failure::default()
        };
        let mut text = Vec::new();
        write_failure("x.json", &failure, &mut text).unwrap();
        let text = String::from_utf8(text).unwrap();
        assert!(
            text.starts_with("FAIL x.json\n  field        file\n"),
            "{text}"
        );
    }

    #[test]
    fn the_json_report_has_stable_names() {
        let mut text = Vec::new();
        write_json(&report(), &mut text).unwrap();
        let json: Value = serde_json::from_slice(&text).unwrap();
        assert_eq!(json["passed"], 2);
        assert_eq!(json["failed"], 1);
        assert_eq!(json["skipped"], 7);
        assert_eq!(json["files"][0]["skipped"], 7);
        let failing = &json["files"][1];
        assert_eq!(failing["file"], "zone_aware.json");
        assert_eq!(
            failing["failures"],
            json!([{
                "id": "za-001", "kind": "state", "source_test": "Some.Test", "field": "state",
                "expected": "LocalityDirect", "actual": null,
            }])
        );
    }
}
