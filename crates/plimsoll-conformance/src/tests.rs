//! Tests of case parsing and suite detection. `tests/vectors.rs` checks with the vectors that the
//! suites compare everything that cases contain.

use std::sync::Arc;

use plimsoll_core::model::cluster::ClusterConfig;
use plimsoll_core::model::locality::Locality;
use plimsoll_core::time::Instant;
use serde_json::json;

use super::*;

#[expect(clippy::unnecessary_wraps, reason = "the signature of a suite")]
fn one(_: &Case) -> CaseResult {
    Ok(json!({"one": 1}).into())
}

fn panicking(_: &Case) -> CaseResult {
    panic!("on purpose")
}

fn report_of(cases: &[Value], run: fn(&Case) -> CaseResult) -> FileReport {
    let mut report = FileReport::default();
    for (index, case) in cases.iter().enumerate() {
        run_case(index, case, &run, &mut report);
    }
    report
}

#[test]
fn cases_are_counted_and_differences_are_listed() {
    let case = |id: &str, expected: Value| {
        let inputs = json!({});
        json!({
            "id": id, "kind": "k", "source_test": "T", "inputs": inputs, "expected": expected,
        })
    };
    let cases = [
        case("a", json!({"one": 1})),
        case("b", json!({"one": 2, "two": 2})),
        json!({"id": "c", "kind": "peek"}),
    ];
    let report = report_of(&cases, one);
    assert_eq!((report.passed, report.failed, report.skipped), (1, 1, 1));
    let fields: Vec<_> = report
        .failures
        .iter()
        .map(|f| (f.id.as_str(), f.field.as_str()))
        .collect();
    assert_eq!(
        fields,
        [("b", "one"), ("b", "two")],
        "one failed case, two differences"
    );
    assert_eq!(report.failures[0].source_test, "T");
    assert_eq!(report.failures[0].kind, "k");
}

#[test]
fn a_case_without_id_is_named_by_its_index() {
    let cases = [
        json!({"kind": "k", "inputs": {}, "expected": {"one": 1}}),
        json!("text"),
    ];
    let report = report_of(&cases, one);
    assert_eq!(report.failed, 2);
    let ids: Vec<_> = report
        .failures
        .iter()
        .map(|failure| failure.id.as_str())
        .collect();
    assert_eq!(ids, ["cases[0]", "cases[1]"]);
}

#[test]
fn remarks_may_have_any_type() {
    let case = json!({
        "id": "a", "kind": "k", "origin": null, "note": ["x"], "inputs": {}, "expected": {"one": 1},
    });
    assert_eq!(differences(&case, &one), Ok(vec![]));
}

#[test]
fn a_deviation_replaces_expected_values_and_must_differ() {
    let case = |expected: Value, ours: Value| {
        json!({
            "id": "a", "kind": "k", "inputs": {}, "expected": expected,
            "plimsoll": {"expected": ours, "reason": "why", "decision": "0000-page"},
        })
    };
    assert_eq!(
        differences(&case(json!({"one": 2}), json!({"one": 1})), &one),
        Ok(vec![])
    );
    let fields = |case: &Value| -> Vec<String> {
        let found = differences(case, &one).unwrap().into_iter();
        found.map(|(field, ..)| field).collect()
    };
    assert_eq!(fields(&case(json!({"one": 2}), json!({"one": 3}))), ["one"]);
    assert_eq!(
        fields(&case(json!({"one": 1}), json!({"one": 1}))),
        ["plimsoll"]
    );
    let mut without_reason = case(json!({"one": 2}), json!({"one": 1}));
    without_reason["plimsoll"]
        .as_object_mut()
        .unwrap()
        .remove("reason");
    assert_eq!(fields(&without_reason), ["case"], "the reason is required");
}

#[test]
fn every_deviation_has_a_decision_page() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut pages = 0;
    for path in json_files(&root.join("vectors")).unwrap() {
        let file: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
        for case in file["cases"].as_array().unwrap() {
            let Some(deviation) = case.get("plimsoll") else {
                continue;
            };
            let page = deviation["decision"].as_str().unwrap();
            let page = root.join(format!("docs/decisions/{page}.md"));
            assert!(page.is_file(), "{}: {}", case["id"], page.display());
            assert!(deviation["reason"].as_str().unwrap().len() > 20, "{case}");
            pages += 1;
        }
    }
    assert!(pages > 0, "no deviation was checked");
}

#[test]
fn a_panic_fails_one_case() {
    let case = json!({"id": "a", "kind": "k", "inputs": {}, "expected": {"one": 1}});
    let report = report_of(&[case.clone(), case], panicking);
    assert_eq!(report.failed, 2);
    assert_eq!(report.failures[0].actual, json!("the core panicked"));
}

#[test]
fn suites_are_found_by_about_before_file_name() {
    let about = |about: &str| json!({"schema": {"about": about}});
    let name = |path: &str, file: &Value| find_suite(Path::new(path), file).map(|suite| suite.0);
    assert_eq!(
        name("x.json", &about("Endpoint pickers.  Extra file.")).unwrap(),
        "pickers"
    );
    assert_eq!(
        name("priority.json", &about("Endpoint pickers.")).unwrap(),
        "pickers"
    );
    assert_eq!(
        name("priority.json", &about("Something new")).unwrap(),
        "priority"
    );
    assert_eq!(name("dir/orca.json", &json!({})).unwrap(), "orca");
    let error = name("x.json", &about("Something new")).unwrap_err();
    assert!(error.to_string().contains("Something new"));
}

#[test]
fn every_suite_refuses_unknown_kinds() {
    for (_, _, runner) in SUITES {
        let case = json!({"id": "a", "kind": "nonsense", "inputs": {}, "expected": {"x": 1}});
        let found = differences(&case, &|case| runner.run(case, &Core)).unwrap();
        assert_eq!(found.len(), 1);
        assert_eq!(
            (found[0].0.as_str(), &found[0].2),
            ("kind", &json!("nonsense"))
        );
    }
}

/// An engine that supports nothing.
struct Nothing;

impl Engine for Nothing {
    fn start(
        &self,
        _: &Arc<ClusterConfig>,
        _: &Locality,
        _: Instant,
    ) -> Result<Box<dyn Cluster>, Unsupported> {
        Err(Unsupported("nothing"))
    }
}

#[test]
fn cases_that_an_engine_does_not_support_are_skipped() {
    let vectors = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../vectors");
    let all = run_dir(&vectors, &Core).unwrap();
    let none = run_dir(&vectors, &Nothing).unwrap();
    assert_eq!((none.passed, none.failed), (0, 0));
    assert_eq!(none.skipped, all.passed + all.skipped, "{:?}", all.files);
}
