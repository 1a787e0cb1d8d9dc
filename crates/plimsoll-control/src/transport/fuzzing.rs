//! Interpreter of byte strings as what a client sends on a connection of ADS and LRS, in pieces
//! whose lengths the first byte decides: the frame filter passes the same bytes on whatever the
//! pieces are, and holds little. Compiled for the tests of this crate and with `--cfg fuzzing`, for
//! the fuzz target `frames`.

use super::frames::FrameFilter;

/// Memory that an input may use at a time, in bytes: a held header block, and its copy.
pub const MEMORY_BASE: u64 = 256 << 10;
/// The output, twice, each in a vector that grew by doubling, and the places of fragments.
pub const MEMORY_PER_BYTE: u64 = 64;

/// Returns how many bytes were passed on.
pub fn run(bytes: &[u8]) -> usize {
    let Some((seed, bytes)) = bytes.split_first() else {
        return 0;
    };
    let whole = filtered(bytes, None);
    let in_pieces = filtered(bytes, Some(*seed));
    assert_eq!(whole, in_pieces, "pieces change nothing");
    // Long DATA frames are split into frames of four kilobytes, each with a header.
    let most = bytes.len() + 9 * (bytes.len() / 4096 + 1);
    assert!(whole.len() >= bytes.len() && whole.len() <= most);
    whole.len()
}

/// Passes bytes through a filter as a socket does.
fn filtered(mut bytes: &[u8], mut seed: Option<u8>) -> Vec<u8> {
    let mut filter = FrameFilter::default();
    let mut output = Vec::new();
    while !bytes.is_empty() {
        let length = seed.as_mut().map_or(bytes.len(), |seed| {
            *seed = seed.wrapping_mul(61).wrapping_add(7);
            (usize::from(*seed >> 2) + 1).min(bytes.len())
        });
        let (piece, rest) = bytes.split_at(length);
        let passed = filter.pass(piece);
        output.extend_from_slice(&piece[..passed]);
        filter.push(&piece[passed..], &mut output);
        bytes = rest;
    }
    filter.finish(&mut output);
    output
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Seeds of the fuzz target, one in a line.
    const SEEDS: &str = include_str!("../../../../fuzz/seeds/frames.hex");

    #[test]
    fn seeds_and_damaged_ones_pass_in_any_pieces() {
        // A linear congruential generator: the same damage in every run.
        let mut random = 3_u64;
        let mut below = |limit: usize| {
            random = random.wrapping_mul(6_364_136_223_846_793_005);
            random = random.wrapping_add(1_442_695_040_888_963_407);
            usize::try_from(random >> 33).unwrap() % limit
        };
        let pair = |pair: &[u8]| {
            let text = std::str::from_utf8(pair).unwrap();
            u8::from_str_radix(text, 16).unwrap()
        };
        for line in SEEDS.lines() {
            let seed: Vec<u8> = line.as_bytes().chunks(2).map(pair).collect();
            assert!(run(&seed) > 0);
            for _ in 0..1000 {
                let mut bytes = seed.clone();
                for _ in 0..1 + below(4) {
                    let place = below(bytes.len());
                    bytes[place] = u8::try_from(below(256)).unwrap();
                }
                bytes.truncate(1 + below(bytes.len()));
                run(&bytes);
            }
        }
    }
}
