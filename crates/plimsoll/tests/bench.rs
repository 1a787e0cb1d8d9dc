//! The scale bench in small: that it runs, and prints every figure. Times are not judged here.
#![expect(clippy::unwrap_used, reason = "tests")]

use std::process::Command;

const SMALL: [&str; 8] = [
    "bench",
    "control",
    "--nodes",
    "30",
    "--interval",
    "500ms",
    "--duration",
    "1s",
];

/// Prints whatever a busy machine makes of the bars: 0 or 1, but not 2.
fn bench(more: &[&str]) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_plimsoll"));
    let output = command.args(SMALL).args(more).output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(matches!(output.status.code(), Some(0 | 1)), "{errors}");
    assert!(!errors.contains("error:"), "{errors}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn a_small_fleet_is_measured_and_every_row_printed() {
    let page = bench(&[]);
    assert!(
        page.starts_with("30 proxies (state of the world)"),
        "{page}"
    );
    for row in [
        "all proxies connected and served after",
        "CPU, steady",
        "memory, steady (resident)",
        "memory, most ever (resident)",
        "reports taken, steady",
        "CPU while demand moves",
        "updates sent while demand moves",
        "different updates",
        "first update after the step",
        "median update, first proxy to last",
        "slowest update, first proxy to last",
        "proxies lost on the way                                            0",
    ] {
        assert!(page.contains(row), "{row:?} is missing:\n{page}");
    }
}

#[test]
fn the_json_form_says_the_same_and_delta_works() {
    let page: serde_json::Value = serde_json::from_str(&bench(&["--delta", "--json"])).unwrap();
    assert_eq!(
        (&page["nodes"], &page["variant"]),
        (&30.into(), &"incremental".into())
    );
    assert!(page["machine"]["cores"].as_u64().unwrap() >= 1);
    let value = |name: &str| {
        let mut rows = page["rows"].as_array().unwrap().iter();
        let row = rows.find(|row| row["name"] == name).unwrap();
        row["value"].as_f64().unwrap()
    };
    assert!(value("reports taken, steady") > 0.0);
    assert!(value("memory, most ever (resident)") > 1.0);
    assert!(value("different updates") >= 1.0, "demand moved: {page}");
    assert_eq!(value("proxies lost on the way"), 0.0);
}
