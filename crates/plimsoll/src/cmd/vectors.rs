//! `plimsoll vectors DIR`: prints what the runner found.
//!
//! Reading and running cases lives in `vectors`; here is only the page and the exit code. All cases
//! run before the first line is written, so a reader that leaves early does not change the verdict.

use std::io::{self, Write};
use std::path::PathBuf;

use anyhow::Context as _;

use super::{Exit, unless_closed};
use crate::vectors::{self, Failure, Report};

/// Run recorded cases against the core and compare the outcomes
///
/// Every *.json file in DIR is run, in order of name. A file says which suite it is in
/// `schema.about` (or by its name) and holds `cases`, each with `id`, `kind`, `inputs` and
/// `expected`.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Args {
    /// Directory of vector files
    dir: PathBuf,
    /// Print one JSON object instead of text
    #[arg(long)]
    json: bool,
}

const AFTER_HELP: &str = "\
Suites: zone_aware, priority, locality_wrr, pickers, load_aware_locality, orca, cswrr,
outlier_detection, lrs. Cases of the kinds peek and child_lifecycle are skipped.

Every key of `expected` is compared: integers exactly, other numbers within 1e-9 or the case's own
`tolerance`. A key the runner does not know is a failure, never ignored.

The last line is `N passed, M failed, K skipped`, counted in cases; a file that cannot be read as a
suite counts as one failure.

Exit codes: 0 all passed, 1 something failed, 2 wrong usage or no vector files.";

/// Runs the cases, prints the report, and says how it went.
pub(super) fn run(args: &Args, out: &mut impl Write) -> anyhow::Result<Exit> {
    let report = vectors::run_dir(&args.dir)?;
    let written = if args.json {
        write_json(&report, out)
    } else {
        write_text(&report, out)
    };
    unless_closed(written.and_then(|()| out.flush())).context("cannot write the report")?;
    Ok(if report.failed == 0 {
        Exit::Ok
    } else {
        Exit::Failure
    })
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
    use crate::vectors::FileReport;

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
    fn the_page_names_everything_and_ends_with_the_sums() {
        let mut page = Vec::new();
        write_text(&report(), &mut page).unwrap();
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
        assert_eq!(String::from_utf8(page).unwrap(), expected);
    }

    #[test]
    fn a_failure_of_a_whole_file_has_no_empty_parts() {
        let failure = Failure {
            field: "file".into(),
            expected: json!("a vector file"),
            actual: json!("EOF"),
            ..Failure::default()
        };
        let mut page = Vec::new();
        write_failure("x.json", &failure, &mut page).unwrap();
        let page = String::from_utf8(page).unwrap();
        assert!(
            page.starts_with("FAIL x.json\n  field        file\n"),
            "{page}"
        );
    }

    #[test]
    fn the_json_form_has_stable_names() {
        let mut page = Vec::new();
        write_json(&report(), &mut page).unwrap();
        let page: Value = serde_json::from_slice(&page).unwrap();
        assert_eq!(page["passed"], 2);
        assert_eq!(page["failed"], 1);
        assert_eq!(page["skipped"], 7);
        assert_eq!(page["files"][0]["skipped"], 7);
        let failing = &page["files"][1];
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
