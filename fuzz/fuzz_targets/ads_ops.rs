//! Fuzzes discovery: a byte string is a conversation of a client that does as it likes with one
//! stream of the server, in either variant.
#![no_main]

#[path = "../../crates/plimsoll-xds/tests/support/ads_ops.rs"]
mod ads_ops;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    ads_ops::run(bytes);
});
