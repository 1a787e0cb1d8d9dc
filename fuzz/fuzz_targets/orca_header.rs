//! Fuzzes the parsers of ORCA reports in headers and messages; accepted reports must survive a
//! round trip in every format.
#![no_main]

#[path = "../../crates/plimsoll-xds/tests/support/orca.rs"]
mod orca;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    orca::run(bytes);
});
