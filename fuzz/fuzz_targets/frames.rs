//! Fuzzes the filter of HTTP/2 frames between a client and the control plane: pieces change
//! nothing, in bounded memory.
#![no_main]

#[path = "../memory.rs"]
mod memory;

use plimsoll_control::fuzzing::frames::{MEMORY_BASE, MEMORY_PER_BYTE, run};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    memory::bounded(bytes, MEMORY_BASE, MEMORY_PER_BYTE, || {
        run(bytes);
    });
});
