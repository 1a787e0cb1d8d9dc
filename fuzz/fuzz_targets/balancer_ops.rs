//! Fuzzes the balancer and its pickers with sequences of operations; the interpreter of the core's
//! tests checks the invariants after each.
#![no_main]

#[path = "../memory.rs"]
mod memory;
#[path = "../../crates/plimsoll-core/tests/support/ops.rs"]
mod ops;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    memory::bounded_operations(bytes, || {
        ops::run(bytes);
    });
});
