//! Fuzzes the selection of routes; it must follow the order of domains and routes.
#![no_main]

#[path = "../memory.rs"]
mod memory;

use plimsoll_proxy::fuzzing::router::{MEMORY, run};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    memory::bounded(bytes, MEMORY.base, MEMORY.per_byte, || run(bytes));
});
