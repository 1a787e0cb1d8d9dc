//! Records of the store with damaged bytes, with the interpreter of the fuzz target and its seeds.

use proptest::collection::vec;
use proptest::prelude::*;

use crate::support::records::{KINDS, MEMORY_BASE, MEMORY_PER_BYTE, run};

/// Seeds of the fuzz target, one in a line.
const SEEDS: &str = include_str!("../../../../fuzz/seeds/records.hex");

fn seeds() -> Vec<Vec<u8>> {
    let pair = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    let line = |line: &str| line.as_bytes().chunks(2).map(pair).collect();
    SEEDS.lines().map(line).collect()
}

/// Runs the interpreter and checks its memory.
fn run_bounded(bytes: &[u8]) -> Option<bool> {
    let mut accepted = None;
    let used = allocation_counter::measure(|| accepted = run(bytes)).bytes_max;
    let limit = MEMORY_BASE + MEMORY_PER_BYTE * u64::try_from(bytes.len()).unwrap();
    assert!(used <= limit, "{used} bytes of memory, {limit} are allowed");
    accepted
}

#[test]
fn seeds_are_records_of_each_kind() {
    let mut accepted = [0; KINDS as usize];
    for seed in seeds() {
        if run_bounded(&seed) == Some(true) {
            accepted[usize::from(seed[0] % KINDS)] += 1;
        }
    }
    assert!(accepted.iter().all(|count| *count > 0), "{accepted:?}");
}

proptest! {
    #[test]
    fn random_bytes_never_panic(bytes in vec(any::<u8>(), 0..200)) {
        run_bounded(&bytes);
    }

    #[test]
    fn damaged_records_never_panic(
        index in any::<prop::sample::Index>(),
        changes in vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
    ) {
        let mut seeds = seeds();
        let seed = index.get_mut(&mut seeds);
        for (place, byte) in changes {
            *place.get_mut(seed) = byte;
        }
        run_bounded(seed);
    }
}
