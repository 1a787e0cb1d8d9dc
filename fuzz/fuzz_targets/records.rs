//! Fuzzes the decoders of the records that replicas share in a store: what is accepted survives a
//! round trip, in bounded memory.
#![no_main]

#[path = "../memory.rs"]
mod memory;
#[path = "../../crates/plimsoll-xds/tests/support/records.rs"]
mod records;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    memory::bounded(
        bytes,
        records::MEMORY_BASE,
        records::MEMORY_PER_BYTE,
        || {
            records::run(bytes);
        },
    );
});
