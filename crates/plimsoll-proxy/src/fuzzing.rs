//! Interpreters of byte strings for the fuzz targets in `fuzz/`: they exercise private modules and
//! panic if an invariant is violated. Compiled with `--cfg fuzzing`, and for the tests of this
//! crate, which run them on seeded strings.

pub mod config_text;
pub mod first_bytes;
pub mod head_scan;
pub mod request_form;
pub mod router;

/// Memory that an interpreter may use at a time, in bytes; it must not depend on what an input
/// says, only on its length.
#[derive(Clone, Copy, Debug)]
pub struct MemoryLimit {
    pub base: u64,
    pub per_byte: u64,
}

/// Splits `bytes` into pieces whose lengths `seed` decides.
fn pieces(mut bytes: &[u8], mut seed: u8) -> Vec<&[u8]> {
    let mut pieces = Vec::new();
    while !bytes.is_empty() {
        seed = seed.wrapping_mul(61).wrapping_add(7);
        let length = (usize::from(seed >> 3) % 24 + 1).min(bytes.len());
        let (piece, rest) = bytes.split_at(length);
        pieces.push(piece);
        bytes = rest;
    }
    pieces
}

#[cfg(test)]
pub(crate) mod tests {
    use super::MemoryLimit;

    /// Runs an interpreter on `count` strings of `tokens` and random bytes, and checks its memory.
    pub(crate) fn run_seeded(tokens: &[&str], count: u64, limit: MemoryLimit, run: impl Fn(&[u8])) {
        for seed in 0..count {
            let bytes = string(tokens, seed);
            let used = allocation_counter::measure(|| run(&bytes)).bytes_max;
            let length = u64::try_from(bytes.len()).unwrap();
            let limit = limit.base + limit.per_byte * length;
            assert!(used <= limit, "seed {seed}: {used} of {limit} bytes");
        }
    }

    fn string(tokens: &[&str], seed: u64) -> Vec<u8> {
        let mut state = seed;
        // SplitMix64.
        let mut draw = |below: usize| {
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut mixed = state;
            mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            usize::try_from((mixed ^ (mixed >> 31)) % u64::try_from(below).unwrap()).unwrap()
        };
        let mut bytes = vec![u8::try_from(draw(256)).unwrap()];
        for _ in 0..draw(40) {
            match draw(8) {
                0 => bytes.push(u8::try_from(draw(256)).unwrap()),
                _ => bytes.extend_from_slice(tokens[draw(tokens.len())].as_bytes()),
            }
        }
        bytes
    }
}
