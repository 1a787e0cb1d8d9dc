//! Fuzzes discovery from the other end: a byte string is a server that does as it likes, and the
//! subscriber that talks to it, in either variant.
#![no_main]

#[path = "../../crates/plimsoll-xds/tests/support/ads_client_ops.rs"]
mod ads_client_ops;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    ads_client_ops::run(bytes);
});
