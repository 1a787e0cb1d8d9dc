//! Fuzzes the ADS client, both variants, with a server that may violate the protocol.
#![no_main]

#[path = "../../crates/plimsoll-xds/tests/support/ads_client_ops.rs"]
mod ads_client_ops;
#[path = "../memory.rs"]
mod memory;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    memory::bounded_operations(bytes, || {
        ads_client_ops::run(bytes);
    });
});
