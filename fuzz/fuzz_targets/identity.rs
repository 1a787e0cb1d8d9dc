//! Fuzzes the patterns of `identities`: names of certificates and nodes match as they should, in
//! bounded memory.
#![no_main]

#[path = "../../crates/plimsoll-control/tests/support/identity.rs"]
mod identity;
#[path = "../memory.rs"]
mod memory;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    memory::bounded(
        bytes,
        identity::MEMORY_BASE,
        identity::MEMORY_PER_BYTE,
        || {
            identity::run(bytes);
        },
    );
});
