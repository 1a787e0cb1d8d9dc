//! Fuzzes the form in which requests are forwarded: policy, headers and path in the proxy, URI and
//! `host` in the client. The first byte selects one of them.
#![no_main]

#[path = "../memory.rs"]
mod memory;

use plimsoll_proxy::fuzzing::request_form::{MEMORY, run};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Some((selector, rest)) = bytes.split_first() else {
        return;
    };
    memory::bounded(bytes, MEMORY.base, MEMORY.per_byte, || {
        if selector % 4 == 0 {
            plimsoll_client::fuzzing::run(rest);
        } else {
            run(rest);
        }
    });
});
