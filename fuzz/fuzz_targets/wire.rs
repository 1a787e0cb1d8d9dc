//! Fuzzes the decoders of discovery messages, load reports, assignments and clusters. Accepted
//! messages must survive a round trip, and rewriting must not change anything else.
#![no_main]

#[path = "../memory.rs"]
mod memory;
#[path = "../../crates/plimsoll-xds/tests/support/wire.rs"]
mod wire;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    memory::bounded(bytes, wire::MEMORY_BASE, wire::MEMORY_PER_BYTE, || {
        wire::run(bytes);
    });
});
