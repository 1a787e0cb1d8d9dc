//! Fuzzes the balancer and its pickers: a byte string is a sequence of operations, and after each
//! the interpreter of the core's tests checks what must hold.
#![no_main]

#[path = "../../crates/plimsoll-core/tests/support/ops.rs"]
mod ops;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    ops::run(bytes);
});
