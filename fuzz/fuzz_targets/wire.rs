//! Fuzzes the readers of messages from the network: discovery, load reports, assignments and
//! clusters. Whatever is accepted must read back the same, and rewriting must not touch what it
//! should not.
#![no_main]

#[path = "../../crates/plimsoll-xds/tests/support/wire.rs"]
mod wire;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    wire::run(bytes);
});
