//! Fuzzes one ADS server stream, both variants, with a client that may violate the protocol.
#![no_main]

#[path = "../../crates/plimsoll-xds/tests/support/ads_ops.rs"]
mod ads_ops;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    ads_ops::run(bytes);
});
