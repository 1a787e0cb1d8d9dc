//! Fuzzes one server-side load reporting stream.
#![no_main]

#[path = "../../crates/plimsoll-xds/tests/support/lrs_ops.rs"]
mod lrs_ops;
#[path = "../memory.rs"]
mod memory;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    memory::bounded_operations(bytes, || {
        lrs_ops::run(bytes);
    });
});
