//! Fuzzes the planner with sequences of reports, endpoints and times; the interpreter of the core's
//! tests checks the invariants after each.
#![no_main]

#[path = "../memory.rs"]
mod memory;
#[path = "../../crates/plimsoll-core/tests/support/planner_ops.rs"]
mod planner_ops;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    memory::bounded_operations(bytes, || {
        planner_ops::run(bytes);
    });
});
