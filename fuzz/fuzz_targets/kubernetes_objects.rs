//! Fuzzes what tenants of a Kubernetes cluster write: Services with annotations, EndpointSlices and
//! policies, in bounded memory.
#![no_main]

#[path = "../memory.rs"]
mod memory;
#[path = "../../crates/plimsoll-kubernetes/tests/support/objects.rs"]
mod objects;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    memory::bounded(
        bytes,
        objects::MEMORY_BASE,
        objects::MEMORY_PER_BYTE,
        || {
            objects::run(bytes);
        },
    );
});
