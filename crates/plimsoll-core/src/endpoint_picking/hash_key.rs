//! Inputs of consistent hashing: host keys, normalized weights, and the two hash functions
//! (envoy-semantics §8.3).
//!
//! `ring_hash` and `maglev` build their tables from these inputs; `bounded_load` uses the weights
//! too. The code that builds the tables chooses hosts and keys (metadata, hostname, address).

use xxhash_rust::xxh64::xxh64;

use crate::model::endpoint_policy::HashFunction;

/// A host as hash tables see it; its index in the list of hosts identifies it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct HashedHost<'a> {
    /// String that is hashed. Hosts with the same key compete for the same slots.
    pub key: &'a str,
    /// Share of the whole list, from [`normalize`] or [`normalize_by_locality`]; 0 = in no table.
    pub weight: f64,
}

impl HashedHost<'_> {
    /// Whether the host gets into tables; written so that NaN does not.
    pub(super) fn has_weight(&self) -> bool {
        self.weight > 0.0
    }
}

/// Returns the shares of the hosts of one list; they sum to 1, or are all 0 if no host has weight.
pub fn normalize(host_weights: &[u32]) -> Vec<f64> {
    let mut shares = Vec::with_capacity(host_weights.len());
    extend_with_shares(&mut shares, host_weights, 1.0);
    shares
}

/// Returns the shares of the hosts of all localities, in the given order: share of the locality ×
/// share of the host in it. Each locality is its weight and the weights of its hosts.
///
/// Hosts of a locality of weight 0 get 0. The share of a locality without hosts is not given to the
/// others (Envoy ignores availability here), so the sum is then below 1.
pub fn normalize_by_locality(localities: &[(u32, &[u32])]) -> Vec<f64> {
    let total: u64 = localities
        .iter()
        .map(|&(weight, _)| u64::from(weight))
        .sum();
    let mut shares = Vec::with_capacity(localities.iter().map(|(_, hosts)| hosts.len()).sum());
    for &(weight, hosts) in localities {
        extend_with_shares(&mut shares, hosts, ratio(f64::from(weight), total));
    }
    shares
}

/// Returns the hash that places `bytes` on a ring.
#[inline]
pub fn hash(function: HashFunction, bytes: &[u8]) -> u64 {
    match function {
        HashFunction::MurmurHash2 => murmur_hash2(bytes, STD_HASH_SEED),
        HashFunction::XxHash => xxh64(bytes, 0),
    }
}

/// Seed of `std::hash` in libstdc++, whose rings MURMUR_HASH_2 is compatible with.
pub const STD_HASH_SEED: u64 = 0xc70f_6907;

/// MurmurHash2, the 64-bit variant (64A) on little-endian words, as in libstdc++.
pub fn murmur_hash2(bytes: &[u8], seed: u64) -> u64 {
    const MULTIPLIER: u64 = 0xc6a4_a793_5bd1_e995;
    let fold = |value: u64| value ^ (value >> 47);
    let absorb = |hash: u64, value: u64| (hash ^ value).wrapping_mul(MULTIPLIER);

    let mut hash = seed ^ (bytes.len() as u64).wrapping_mul(MULTIPLIER);
    let (words, tail) = bytes.as_chunks::<8>();
    for &word in words {
        let word = u64::from_le_bytes(word).wrapping_mul(MULTIPLIER);
        hash = absorb(hash, fold(word).wrapping_mul(MULTIPLIER));
    }
    if !tail.is_empty() {
        let mut word = [0; 8];
        word[..tail.len()].copy_from_slice(tail);
        hash = absorb(hash, u64::from_le_bytes(word));
    }
    fold(fold(hash).wrapping_mul(MULTIPLIER))
}

/// Appends the part of `share` that each host gets. Multiplies before dividing, as Envoy does: the
/// last bit decides where a ring puts its odd entry.
fn extend_with_shares(shares: &mut Vec<f64>, host_weights: &[u32], share: f64) {
    let total = host_weights.iter().map(|&weight| u64::from(weight)).sum();
    shares.extend(
        host_weights
            .iter()
            .map(|&weight| ratio(f64::from(weight) * share, total)),
    );
}

#[expect(
    clippy::cast_precision_loss,
    reason = "sums of u32 weights stay below 2^53"
)]
fn ratio(part: f64, total: u64) -> f64 {
    if total == 0 { 0.0 } else { part / total as f64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn assert_close(actual: &[f64], expected: &[f64]) {
        assert_eq!(actual.len(), expected.len());
        for (a, e) in actual.iter().zip(expected) {
            assert!((a - e).abs() < 1e-15, "{actual:?} is not {expected:?}");
        }
    }

    fn bits(shares: &[f64]) -> Vec<u64> {
        shares.iter().map(|share| share.to_bits()).collect()
    }

    #[test]
    fn hosts_share_by_weight() {
        assert_close(&normalize(&[1, 2, 1]), &[0.25, 0.5, 0.25]);
        assert_close(&normalize(&[7]), &[1.0]);
        assert_close(&normalize(&[3, 0, 1]), &[0.75, 0.0, 0.25]);
        assert!(normalize(&[]).is_empty());
    }

    #[test]
    fn no_weight_gives_no_share_and_never_nan() {
        assert_close(&normalize(&[0, 0]), &[0.0, 0.0]);
        assert_close(&normalize_by_locality(&[(0, &[1, 2])]), &[0.0, 0.0]);
        assert_close(
            &normalize_by_locality(&[(1, &[0, 0]), (1, &[5])]),
            &[0.0, 0.0, 0.5],
        );
        let without = |weight| HashedHost { key: "a", weight }.has_weight();
        assert!(without(1e-9) && !without(0.0) && !without(f64::NAN) && !without(-1.0));
    }

    #[test]
    fn the_largest_weights_do_not_overflow() {
        assert_close(&normalize(&[u32::MAX; 4]), &[0.25; 4]);
        let hosts: &[u32] = &[u32::MAX; 2];
        assert_close(
            &normalize_by_locality(&[(u32::MAX, hosts), (u32::MAX, hosts)]),
            &[0.25; 4],
        );
    }

    #[test]
    fn localities_share_first_and_their_hosts_after() {
        // Envoy's HostAndLocalityWeightedTinyRing: weights 1:2 within and between localities.
        let shares = normalize_by_locality(&[(1, &[1, 2]), (2, &[1, 2])]);
        assert_close(&shares, &[1.0 / 9.0, 2.0 / 9.0, 2.0 / 9.0, 4.0 / 9.0]);
        // Hosts of a locality of weight 0 keep their positions, with share 0.
        let shares = normalize_by_locality(&[(8, &[1]), (0, &[3, 3]), (2, &[2])]);
        assert_close(&shares, &[0.8, 0.0, 0.0, 0.2]);
    }

    #[test]
    fn the_share_of_an_empty_locality_is_not_redistributed() {
        assert_close(
            &normalize_by_locality(&[(1, &[]), (3, &[1, 1])]),
            &[0.375, 0.375],
        );
        assert!(normalize_by_locality(&[]).is_empty());
    }

    #[test]
    fn one_locality_is_the_same_as_none_to_the_bit() {
        let weights: Vec<u32> = (1..200).map(|n| n * n).collect();
        assert_eq!(
            bits(&normalize(&weights)),
            bits(&normalize_by_locality(&[(9, &weights)]))
        );
    }

    #[test]
    fn shares_are_multiplied_before_they_are_divided() {
        // 3 × 0.7 ÷ 7 and 3 ÷ 7 × 0.7 differ in the last bit.
        let shares = normalize_by_locality(&[(7, &[3, 4]), (3, &[1])]);
        assert_eq!(shares[0].to_bits(), (3.0_f64 * 0.7 / 7.0).to_bits());
        assert_ne!(shares[0].to_bits(), (3.0_f64 / 7.0 * 0.7).to_bits());
    }

    #[test]
    fn murmur_hash2_matches_libstdcpp() {
        // Figures from std::_Hash_bytes of g++ on x86-64.
        let expected = [
            ("", 0x553e_9390_1e46_2a6e),
            ("a", 0x454d_dee4_88c1_ed6b),
            ("ab", 0x4c4d_a6cd_289c_737b),
            ("abcdefg", 0xdeee_6830_a3af_82af),
            ("abcdefgh", 0x783d_b3e3_8db8_98bb),
            ("abcdefghi", 0xb4ec_9257_851c_8aaf),
            ("127.0.0.1:90_0", 0x4e7f_a1fb_fddf_33c0),
            ("0123456789abcdef", 0x934b_0d76_0642_ed86),
            ("0123456789abcdefg", 0x1e95_9b99_1607_e7f0),
            ("10.0.0.1:8080_1023", 0x1d17_5516_9540_982f),
        ];
        for (key, expected) in expected {
            assert_eq!(
                hash(HashFunction::MurmurHash2, key.as_bytes()),
                expected,
                "{key}"
            );
        }
        assert_eq!(murmur_hash2(b"abcdefghi", 0), 0xc9b9_d843_5614_6ac2);
    }

    #[test]
    fn murmur_hash2_agrees_at_every_length_and_for_every_byte() {
        // The first 0, 1, 2… 256 of the bytes 0 to 255, all hashes folded into one number.
        let bytes: Vec<u8> = (0..=255).collect();
        let chain = (0..=bytes.len()).fold(0_u64, |chain, length| {
            let hash = murmur_hash2(&bytes[..length], STD_HASH_SEED);
            chain.wrapping_mul(31).wrapping_add(hash)
        });
        assert_eq!(chain, 0x1e42_1cb4_e264_a8d9);
    }

    #[test]
    fn xx_hash_has_seed_0() {
        // Figures from the Python package xxhash.
        let xx_hash = |key: &str| hash(HashFunction::XxHash, key.as_bytes());
        assert_eq!(xx_hash(""), 0xef46_db37_51d8_e999);
        assert_eq!(xx_hash("a"), 0xd24e_c4f1_a98c_6e5b);
        assert_eq!(xx_hash("10.0.0.0:8080_0"), 0x974d_b2f1_9145_39af);
    }
}
