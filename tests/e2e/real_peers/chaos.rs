//! Replicas and a real etcd in network namespaces, with one fault after the other: the short form
//! of `make chaos` (docs/replicas.md#invariants).

use std::process::Command;

use plimsoll_testing::{peers, plimsoll};

/// Exit code of the script if it may not create network namespaces.
const SKIPPED: i32 = 77;

/// Each kind of fault is drawn once before any comes again. The script waits for what it promises
/// for at least 44 s after each fault; replicas need less than 20 s by their timers.
#[test]
fn replicas_hold_their_invariants_under_faults() {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/chaos.py");
    let ran = Command::new(peers().join("venv/bin/python"))
        .arg(script)
        .arg(plimsoll())
        .args(["faults", "25", "1"])
        .output()
        .unwrap();
    let log = [&ran.stdout[..], &ran.stderr].concat();
    let log = String::from_utf8_lossy(&log);
    if ran.status.code() == Some(SKIPPED) {
        eprintln!("   {log}");
        return;
    }
    println!("{log}");
    assert!(ran.status.success(), "{log}");
    assert!(log.contains("the invariants hold"), "{log}");
}
