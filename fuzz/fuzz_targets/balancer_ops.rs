//! Fuzzes the balancer and its pickers with sequences of operations; the interpreter of the core's
//! tests checks the invariants after each.
#![no_main]

#[path = "../../crates/plimsoll-core/tests/support/ops.rs"]
mod ops;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    ops::run(bytes);
});
