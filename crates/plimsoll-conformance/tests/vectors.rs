//! Runs the vectors of the repository, and proves that the runner can fail: every expected value is
//! changed once, and every object of the inputs gets an unknown key.
#![expect(clippy::unwrap_used, reason = "tests")]

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output};

use serde_json::{Map, Value, json};

const VECTORS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../vectors");
/// Names of all suites.
const SUITES: [&str; 14] = [
    "capacity",
    "cswrr",
    "demand_under_failure",
    "load_aware_locality",
    "locality_wrr",
    "lrs",
    "orca",
    "outlier_detection",
    "pickers",
    "priority",
    "silent_reports",
    "subset",
    "transport",
    "zone_aware",
];
/// Kinds whose cases are skipped.
const SKIPPED_KINDS: [&str; 2] = ["peek", "child_lifecycle"];
/// Keys of `expected` that are not compared.
const REMARKS: [&str; 2] = ["note", "upstream_asserted"];
/// Key of `expected` with the tolerance of its numbers.
const TOLERANCE: &str = "tolerance";

/// A temporary directory of vector files, removed when dropped.
struct TempDir(PathBuf);

impl TempDir {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("plimsoll-{}-{name}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn write(&self, file: &str, text: impl AsRef<[u8]>) {
        fs::write(self.0.join(file), text).unwrap();
    }

    fn run(&self, args: &[&str]) -> Output {
        vectors(self.0.to_str().unwrap(), args)
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn vectors(dir: &str, args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_plimsoll-conformance"));
    command.arg(dir).args(args).output().unwrap()
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn last_line(output: &Output) -> String {
    stdout(output).lines().last().unwrap_or_default().to_owned()
}

/// Reads a vector file unchanged.
fn whole_suite(name: &str) -> Value {
    let text = fs::read(format!("{VECTORS}/{name}.json")).unwrap();
    serde_json::from_slice(&text).unwrap()
}

/// Reads the cases that are run, without remarks and with Plimsoll's values.
fn suite(name: &str) -> Value {
    let mut file = whole_suite(name);
    let all = file["cases"].as_array_mut().unwrap();
    all.retain(|case| !SKIPPED_KINDS.iter().any(|&kind| case["kind"] == kind));
    for case in all {
        // For intended deviations, Plimsoll's values are compared.
        let ours = case.as_object_mut().unwrap().remove("plimsoll");
        let expected = case["expected"].as_object_mut().unwrap();
        if let Some(ours) = ours {
            expected.extend(ours["expected"].as_object().unwrap().clone());
        }
        expected.retain(|key, _| !REMARKS.contains(&key.as_str()));
    }
    file
}

fn cases(file: &Value) -> &Vec<Value> {
    file["cases"].as_array().unwrap()
}

/// Runs `file`, which must fail, and returns its `--json` report.
fn failing_report(name: &str, file: &Value) -> Value {
    let dir = TempDir::new(name);
    dir.write("changed.json", file.to_string());
    let output = dir.run(&["--json"]);
    assert_eq!(output.status.code(), Some(1), "{name}: {}", stdout(&output));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    report["files"][0].clone()
}

#[test]
fn the_cases_of_the_repository_pass() {
    let output = vectors(VECTORS, &[]);
    let page = stdout(&output);
    assert_eq!(output.status.code(), Some(0), "{page}");
    assert_eq!(output.stderr, b"");
    let run = |name: &str| cases(&suite(name)).len();
    let all = |name: &str| cases(&whole_suite(name)).len();
    for name in SUITES {
        assert_eq!(whole_suite(name)["count"], all(name), "count of {name}");
    }
    let passed: usize = SUITES.iter().map(|name| run(name)).sum();
    let skipped: usize = SUITES.iter().map(|name| all(name) - run(name)).sum();
    assert_eq!(
        last_line(&output),
        format!("{passed} passed, 0 failed, {skipped} skipped")
    );
    assert!(page.ends_with(" skipped\n"), "the last line has the totals");
    for name in SUITES {
        let (run, skipped) = (run(name), all(name) - run(name));
        let line = format!("{name}.json: {run} passed, 0 failed, {skipped} skipped\n");
        assert!(page.contains(&line), "{line:?} is missing:\n{page}");
    }
}

#[test]
fn the_json_report_matches_the_text_report() {
    let output = vectors(VECTORS, &["--json"]);
    assert_eq!(output.status.code(), Some(0));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let sums = [&report["passed"], &report["failed"], &report["skipped"]];
    let sums = format!(
        "{} passed, {} failed, {} skipped",
        sums[0], sums[1], sums[2]
    );
    assert_eq!(last_line(&vectors(VECTORS, &[])), sums);
    let files = report["files"].as_array().unwrap();
    let names: Vec<_> = files
        .iter()
        .map(|file| file["file"].as_str().unwrap())
        .collect();
    assert!(
        names.is_sorted() && names.len() == SUITES.len(),
        "{names:?}"
    );
    assert!(files.iter().all(|file| file["failures"] == json!([])));
}

/// Returns a different value of the same type.
fn changed(value: &Value) -> Value {
    match value {
        Value::Null => json!("something"),
        Value::Bool(flag) => json!(!flag),
        // A large difference: one more pick of a locality could still be correct, and numbers of
        // some cases have a tolerance.
        Value::Number(number) => match number.as_u64() {
            Some(integer) => json!(integer + 1000),
            None => json!(number.as_f64().unwrap() + 0.5),
        },
        Value::String(text) => json!(format!("{text}?")),
        Value::Array(items) if items.is_empty() => json!([7]),
        Value::Array(items) => {
            let mut items = items.clone();
            items[0] = changed(&items[0]);
            Value::Array(items)
        }
        Value::Object(fields) if fields.is_empty() => json!({"lb_healthy_panic": 9}),
        Value::Object(fields) => {
            let mut fields = fields.clone();
            let first = fields.values_mut().next().unwrap();
            *first = changed(first);
            Value::Object(fields)
        }
    }
}

#[test]
fn every_expected_value_is_checked() {
    for name in SUITES {
        let original = suite(name);
        let fields = |case: &Value| {
            let expected = case["expected"].as_object().unwrap().keys();
            expected.filter(|key| *key != TOLERANCE).count()
        };
        let most = cases(&original).iter().map(fields).max().unwrap();
        for position in 0..most {
            let mut file = original.clone();
            let all = file["cases"].as_array_mut().unwrap();
            all.retain(|case| fields(case) > position);
            let mut expected = Vec::new();
            for case in all.iter_mut() {
                let id = case["id"].clone();
                let fields = case["expected"].as_object_mut().unwrap();
                let compared = fields.iter_mut().filter(|(key, _)| *key != TOLERANCE);
                let (key, value) = { compared }.nth(position).unwrap();
                *value = changed(value);
                expected.push((id, key.clone()));
            }
            let report = failing_report(&format!("expected-{name}-{position}"), &file);
            assert_eq!(report["passed"], 0, "{name}: {report:#}");
            for (id, key) in expected {
                let named = |failure: &&Value| {
                    let field = failure["field"].as_str().unwrap();
                    failure["id"] == id && (field == key || field.starts_with(&format!("{key}.")))
                };
                let failures = report["failures"].as_array().unwrap();
                assert!(failures.iter().any(|f| named(&f)), "{name} {id} {key}");
            }
        }
    }
}

/// Maps with arbitrary keys: names of metrics, hosts or metadata.
const FREE_MAPS: [&str; 18] = [
    "errors",
    "answers",
    "fractions",
    "parts",
    "metrics",
    "named_metrics",
    "request_cost",
    "sweeps",
    "utilization",
    "default_subset",
    "health",
    "labels",
    "merge",
    "metadata",
    "metadata_match",
    "pairs",
    "route",
    "sent",
];

/// Adds an unknown key to the object at `position` (depth first); returns whether there is one.
/// Objects under the keys `free` are skipped.
fn misspell(value: &mut Value, position: &mut usize, free: &[&str]) -> bool {
    match value {
        Value::Object(fields) => {
            if *position == 0 {
                fields.insert("misspelled".into(), json!(1));
                return true;
            }
            *position -= 1;
            let mut closed = fields
                .iter_mut()
                .filter(|(key, _)| !free.contains(&key.as_str()));
            closed.any(|(_, field)| misspell(field, position, free))
        }
        Value::Array(items) => items.iter_mut().any(|item| misspell(item, position, free)),
        _ => false,
    }
}

/// Adds an unknown key to every object under `part` of every case, one at a time.
fn unknown_keys_fail(part: &str, free: &[&str]) {
    for name in SUITES {
        for position in 0.. {
            let mut file = suite(name);
            let all = file["cases"].as_array_mut().unwrap();
            all.retain_mut(|case| {
                let mut objects_before = position;
                misspell(&mut case[part], &mut objects_before, free)
            });
            if all.is_empty() {
                assert!(position > 0, "{name} has no {part}");
                break;
            }
            let report = failing_report(&format!("{part}-{name}-{position}"), &file);
            assert_eq!(report["passed"], 0, "{name} {position}: {report:#}");
            assert_eq!(report["failed"], cases(&file).len());
            for failure in report["failures"].as_array().unwrap() {
                let reason = failure["actual"].to_string();
                assert!(reason.contains("misspelled"), "{name}: {failure:#}");
            }
        }
    }
}

#[test]
fn no_key_of_the_inputs_is_ignored() {
    unknown_keys_fail("inputs", &FREE_MAPS);
}

#[test]
fn no_key_of_the_expectations_is_ignored() {
    unknown_keys_fail("expected", &[]);
}

#[test]
fn malformed_cases_are_reported_with_the_reason() {
    type Break = fn(&mut Map<String, Value>) -> Option<Value>;
    let breaks: [(&str, &str, Break); 7] = [
        ("kind", "surprise", |case| {
            case.insert("kind".into(), json!("surprise"))
        }),
        ("case", "misspelled", |case| {
            case.insert("misspelled".into(), json!(1))
        }),
        ("case", "`inputs`", |case| case.remove("inputs")),
        ("case", "`expected`", |case| case.remove("expected")),
        ("case", "`kind`", |case| case.remove("kind")),
        ("expected", "checks nothing", |case| {
            case.insert("expected".into(), json!({}))
        }),
        ("inputs", "invalid type", |case| {
            case.insert("inputs".into(), json!("text"))
        }),
    ];
    for name in SUITES {
        for (index, (field, reason, break_it)) in breaks.iter().enumerate() {
            let mut file = suite(name);
            let case = file["cases"][1].as_object_mut().unwrap();
            let id = case["id"].as_str().unwrap().to_owned();
            let source_test = case
                .get("source_test")
                .cloned()
                .unwrap_or_else(|| json!(""));
            break_it(case);
            let report = failing_report(&format!("break-{name}-{index}"), &file);
            assert_eq!(report["failed"], 1, "{name}: {report:#}");
            let failure = &report["failures"][0];
            assert_eq!(failure["id"], id, "{name}");
            assert_eq!(failure["source_test"], source_test);
            assert_eq!(failure["field"], *field, "{failure:#}");
            assert!(
                failure["actual"].to_string().contains(reason),
                "{failure:#}"
            );
        }
    }
}

#[test]
fn the_text_report_shows_case_field_and_both_values() {
    let dir = TempDir::new("page");
    let mut file = suite("pickers");
    let case = &mut file["cases"][0];
    let (id, source_test) = (case["id"].clone(), case["source_test"].clone());
    assert_eq!(case["expected"], json!({"sequence": [1, 2, 0, 1]}));
    case["expected"] = json!({"sequence": [1, 2, 0, 2]});
    dir.write("pickers.json", file.to_string());
    let output = dir.run(&[]);
    assert_eq!(output.status.code(), Some(1));
    let (id, source_test) = (id.as_str().unwrap(), source_test.as_str().unwrap());
    let expected = format!(
        "FAIL pickers.json {id} unweighted_rr\n  source_test  {source_test}\n  \
         field        sequence\n  expected     [1,2,0,2]\n  actual       [1,2,0,1]\n"
    );
    assert!(
        stdout(&output).starts_with(&expected),
        "{}",
        stdout(&output)
    );
    let passed = cases(&file).len() - 1;
    assert_eq!(
        last_line(&output),
        format!("{passed} passed, 1 failed, 0 skipped")
    );
}

#[test]
fn an_invalid_file_is_one_failure_and_does_not_stop_the_others() {
    for (index, (file, text, reason)) in [
        ("broken.json", "{\"cases\": [".to_owned(), "not JSON"),
        ("bytes.json", "\u{0}".to_owned(), "not JSON"),
        (
            "unknown.json",
            json!({"cases": []}).to_string(),
            "unknown suite",
        ),
        ("unknown.json", json!([]).to_string(), "unknown suite"),
        ("pickers.json", json!({}).to_string(), "no list `cases`"),
        (
            "pickers.json",
            json!({"cases": []}).to_string(),
            "`cases` is empty",
        ),
    ]
    .into_iter()
    .enumerate()
    {
        let dir = TempDir::new(&format!("file-{index}"));
        dir.write(file, text);
        dir.write("priority.json", suite("priority").to_string());
        let output = dir.run(&[]);
        let page = stdout(&output);
        assert_eq!(output.status.code(), Some(1), "{page}");
        assert!(page.contains(&format!("FAIL {file}\n")), "{page}");
        assert!(page.contains(reason), "{reason:?} is missing: {page}");
        let passed = cases(&suite("priority")).len();
        assert_eq!(
            last_line(&output),
            format!("{passed} passed, 1 failed, 0 skipped")
        );
    }
}

#[test]
fn a_suite_is_found_by_about_else_by_file_name() {
    let dir = TempDir::new("names");
    let pickers = suite("pickers");
    // `schema.about` wins over a misleading name; files with other extensions are ignored.
    dir.write("lrs.json", pickers.to_string());
    dir.write("notes.txt", "not a vector file");
    dir.write(
        "pickers.json",
        json!({"cases": pickers["cases"]}).to_string(),
    );
    fs::create_dir_all(dir.0.join("folder.json")).unwrap();
    let output = dir.run(&[]);
    assert_eq!(output.status.code(), Some(0), "{}", stdout(&output));
    let passed = 2 * cases(&pickers).len();
    assert_eq!(
        last_line(&output),
        format!("{passed} passed, 0 failed, 0 skipped")
    );
}

#[test]
fn unsupported_kinds_are_skipped() {
    let dir = TempDir::new("kinds");
    let mut file = suite("pickers");
    let all = file["cases"].as_array_mut().unwrap();
    for kind in ["peek", "child_lifecycle"] {
        all.push(json!({"id": "x", "kind": kind, "inputs": {}, "expected": {"anything": 1}}));
    }
    let passed = all.len() - 2;
    dir.write("pickers.json", file.to_string());
    let output = dir.run(&[]);
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(
        last_line(&output),
        format!("{passed} passed, 0 failed, 2 skipped")
    );
}

#[test]
fn wrong_usage_exits_with_2_and_an_error() {
    let missing = concat!(env!("CARGO_MANIFEST_DIR"), "/no-such-directory");
    let a_file = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");
    let nothing_to_run = concat!(env!("CARGO_MANIFEST_DIR"), "/src");
    for (dir, args, reason) in [
        (missing, &[][..], "cannot read"),
        (a_file, &[], "cannot read"),
        (nothing_to_run, &[], "no *.json"),
        (VECTORS, &["extra"], "extra"),
        (VECTORS, &["--jsno"], "--jsno"),
    ] {
        let output = vectors(dir, args);
        assert_eq!(output.status.code(), Some(2), "{dir}");
        assert!(output.stdout.is_empty(), "{dir}");
        let message = String::from_utf8(output.stderr).unwrap();
        assert!(message.contains(reason), "{message}");
    }
}

#[test]
fn a_closed_pipe_is_not_an_error() {
    // The reader is closed before the process starts, so every write fails with a broken pipe.
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut command = Command::new(env!("CARGO_BIN_EXE_plimsoll-conformance"));
    let status = command.arg(VECTORS).stdout(writer).status().unwrap();
    assert_eq!(status.code(), Some(0));
}
