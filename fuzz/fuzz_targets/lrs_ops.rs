//! Fuzzes one server-side load reporting stream.
#![no_main]

#[path = "../../crates/plimsoll-xds/tests/support/lrs_ops.rs"]
mod lrs_ops;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    lrs_ops::run(bytes);
});
