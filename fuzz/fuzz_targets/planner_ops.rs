//! Fuzzes the planner with sequences of reports, endpoints and times; the interpreter of the core's
//! tests checks the invariants after each.
#![no_main]

#[path = "../../crates/plimsoll-core/tests/support/planner_ops.rs"]
mod planner_ops;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    planner_ops::run(bytes);
});
