//! Fuzzes the readers of load reports: a byte string is what a backend sends, in a header or in a
//! message, and whatever is accepted must read back the same in every format.
#![no_main]

#[path = "../../crates/plimsoll-xds/tests/support/orca.rs"]
mod orca;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    orca::run(bytes);
});
