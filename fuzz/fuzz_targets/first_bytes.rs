//! Fuzzes the detection of HTTP/2 by the first bytes of a connection; it must not depend on how
//! they are split.
#![no_main]

#[path = "../memory.rs"]
mod memory;

use plimsoll_proxy::fuzzing::first_bytes::{MEMORY, run};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    memory::bounded(bytes, MEMORY.base, MEMORY.per_byte, || run(bytes));
});
