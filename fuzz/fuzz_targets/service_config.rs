//! Fuzzes the parser of gRPC service configs; accepted settings must be in range.
#![no_main]

#[path = "../memory.rs"]
mod memory;
#[path = "../../crates/plimsoll-xds/tests/support/service_config.rs"]
mod service_config;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    memory::bounded(bytes, 256 << 10, 4 << 10, || {
        service_config::run(bytes);
    });
});
