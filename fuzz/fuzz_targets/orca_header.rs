//! Fuzzes the parsers of ORCA reports in headers and messages; accepted reports must survive a
//! round trip in every format.
#![no_main]

#[path = "../memory.rs"]
mod memory;
#[path = "../../crates/plimsoll-xds/tests/support/orca.rs"]
mod orca;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    memory::bounded(bytes, 256 << 10, 4 << 10, || {
        orca::run(bytes);
    });
});
