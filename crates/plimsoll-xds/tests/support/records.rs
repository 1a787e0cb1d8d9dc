//! Interpreter of byte strings as records of the store that replicas share: a node, a replica or a
//! plan, chosen by the first byte. Who can write to the store chooses the bytes. Used by the tests
//! of this crate and by the fuzz target `records`.

use plimsoll_xds::wire::{
    decode_node_record, decode_plan_record, decode_replica_record, encode_node_record,
    encode_plan_record, encode_replica_record,
};

/// Memory that an input may use at a time, in bytes, and more for each of its bytes: an empty
/// cluster of a load report has two bytes and a structure of some hundred.
pub(crate) const MEMORY_BASE: u64 = 64 << 10;
pub(crate) const MEMORY_PER_BYTE: u64 = 1 << 10;
pub(crate) const KINDS: u8 = 3;

/// Whether the record was accepted, so that tests can check coverage; `None` without a byte.
pub(crate) fn run(bytes: &[u8]) -> Option<bool> {
    let (kind, bytes) = bytes.split_first()?;
    // Compared as bytes: of a rate that is no number, none equals another.
    let written = match kind % KINDS {
        0 => decode_node_record(bytes).map(|record| encode_node_record(&record)),
        1 => decode_replica_record(bytes).map(|record| encode_replica_record(&record)),
        _ => decode_plan_record(bytes).map(|record| {
            for zone in &record.zones {
                assert!(zone.rate_per_second.is_finite() && zone.rate_per_second >= 0.0);
            }
            encode_plan_record(&record)
        }),
    };
    let Ok(written) = written else {
        return Some(false);
    };
    let again = match kind % KINDS {
        0 => decode_node_record(&written).map(|record| encode_node_record(&record)),
        1 => decode_replica_record(&written).map(|record| encode_replica_record(&record)),
        _ => decode_plan_record(&written).map(|record| encode_plan_record(&record)),
    };
    assert_eq!(again.as_ref(), Ok(&written), "what is accepted is written");
    Some(true)
}
