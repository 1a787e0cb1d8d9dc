//! Fuzzes the scan of request heads before the parser; its verdict must equal that of a simple
//! parser.
#![no_main]

#[path = "../memory.rs"]
mod memory;

use plimsoll_proxy::fuzzing::head_scan::{MEMORY, run};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    memory::bounded(bytes, MEMORY.base, MEMORY.per_byte, || run(bytes));
});
