//! Fuzzes the planner: a byte string is a sequence of reports, endpoints and moments, and after
//! each the interpreter of the core's tests checks what must hold.
#![no_main]

#[path = "../../crates/plimsoll-core/tests/support/planner_ops.rs"]
mod planner_ops;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    planner_ops::run(bytes);
});
