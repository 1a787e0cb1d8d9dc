//! Fuzzes one ADS server stream, both variants, with a client that may violate the protocol.
#![no_main]

#[path = "../../crates/plimsoll-xds/tests/support/ads_ops.rs"]
mod ads_ops;
#[path = "../memory.rs"]
mod memory;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    memory::bounded_operations(bytes, || {
        ads_ops::run(bytes);
    });
});
