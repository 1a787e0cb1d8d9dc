//! Fuzzes the parsers of configuration files: of the proxy, or of the control plane if the first
//! byte is even. Errors must have a reason of bounded length.
#![no_main]

#[path = "../../crates/plimsoll-control/tests/support/config_text.rs"]
mod control;
#[path = "../memory.rs"]
mod memory;

use plimsoll_proxy::fuzzing::config_text::{MEMORY, run};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Some((selector, rest)) = bytes.split_first() else {
        return;
    };
    memory::bounded(bytes, MEMORY.base, MEMORY.per_byte, || {
        if selector % 2 == 0 {
            control::run(rest);
        } else {
            run(rest);
        }
    });
});
