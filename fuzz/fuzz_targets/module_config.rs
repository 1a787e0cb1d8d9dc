//! Fuzzes the configuration of the module inside Envoy, in bounded memory.
#![no_main]

#[path = "../memory.rs"]
mod memory;

use plimsoll_envoy::fuzzing::{MEMORY_BASE, MEMORY_PER_BYTE, run};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    memory::bounded(bytes, MEMORY_BASE, MEMORY_PER_BYTE, || {
        run(bytes);
    });
});
