//! Tests of rings against Envoy's published ones, against a separate implementation, and as a
//! policy.

use xxhash_rust::xxh64::xxh64;

use super::super::hash_key::{normalize, normalize_by_locality};
use super::*;
use crate::model::endpoint_policy::{ConsistentHashing, HashFunction};

fn config(minimum: u64, maximum: Option<u64>) -> RingHash {
    let none = ConsistentHashing::default();
    RingHash::try_new(HashFunction::XxHash, Some(minimum), maximum, none).unwrap()
}

fn build(keys: &[String], shares: &[f64], config: &RingHash) -> Ring {
    assert_eq!(keys.len(), shares.len());
    let hosts: Vec<_> = keys
        .iter()
        .zip(shares)
        .map(|(key, &weight)| HashedHost { key, weight })
        .collect();
    Ring::build(&hosts, config)
}

/// 127.0.0.1 with ports from `first`, as in Envoy's tests.
fn ports(first: usize, hosts: usize) -> Vec<String> {
    (first..first + hosts)
        .map(|port| format!("127.0.0.1:{port}"))
        .collect()
}

/// Addresses from 10.0.0.0:8080 on, as in the separate implementation.
fn addresses(hosts: usize) -> Vec<String> {
    (0..hosts)
        .map(|host| format!("10.0.0.{host}:8080"))
        .collect()
}

/// Number of entries of each host.
fn counts(ring: &Ring, hosts: usize) -> Vec<usize> {
    let mut counts = vec![0; hosts];
    for (_, host) in ring.entries() {
        counts[host as usize] += 1;
    }
    counts
}

/// Hits per host of `requests` hashes evenly around the ring.
fn hits(ring: &Ring, hosts: usize, requests: u64) -> Vec<usize> {
    let mut hits = vec![0; hosts];
    for request in 0..requests {
        let host = ring.lookup(request * (u64::MAX / requests), 0).unwrap();
        hits[host as usize] += 1;
    }
    hits
}

/// Hash over all entries: hash and host, little endian.
fn digest(ring: &Ring) -> u64 {
    let bytes: Vec<u8> = ring
        .entries()
        .flat_map(|(hash, host)| hash.to_le_bytes().into_iter().chain(host.to_le_bytes()))
        .collect();
    xxh64(&bytes, 0)
}

/// The ring of Envoy's test RingHashLoadBalancerTest.Basic.
const BASIC: [(u64, u32); 12] = [
    (833_437_586_790_550_860, 4),
    (928_266_305_478_181_108, 2),
    (1_033_482_794_131_418_490, 0),
    (3_551_244_743_356_806_947, 5),
    (3_851_675_632_748_031_481, 3),
    (5_583_722_120_771_150_861, 1),
    (6_311_230_543_546_372_928, 1),
    (7_700_377_290_971_790_572, 3),
    (13_144_177_310_400_110_813, 5),
    (13_444_792_449_719_432_967, 2),
    (15_516_499_411_664_133_160, 4),
    (16_117_243_373_044_804_889, 0),
];

#[test]
fn the_ring_matches_envoys() {
    let ring = build(&ports(90, 6), &normalize(&[1; 6]), &config(12, None));
    assert!(ring.entries().eq(BASIC));
    assert_eq!((ring.len(), ring.is_empty()), (12, false));
}

#[test]
fn lookup_takes_the_first_entry_at_or_after_the_hash_and_goes_round() {
    let ring = build(&ports(90, 6), &normalize(&[1; 6]), &config(12, None));
    for (position, (hash, host)) in BASIC.into_iter().enumerate() {
        assert_eq!(ring.lookup(hash, 0), Some(host));
        let next = BASIC[(position + 1) % BASIC.len()].1;
        assert_eq!(ring.lookup(hash + 1, 0), Some(next));
    }
    assert_eq!(ring.lookup(0, 0), Some(4));
    assert_eq!(ring.lookup(u64::MAX, 0), Some(4));
}

#[test]
fn attempts_walk_the_ring() {
    let ring = build(&ports(90, 6), &normalize(&[1; 6]), &config(12, None));
    for (hash, from) in [(0, 0), (3_551_244_743_356_806_948, 4), (u64::MAX, 0)] {
        for attempt in 0..40 {
            let expected = BASIC[(from + attempt as usize) % 12].1;
            assert_eq!(
                ring.lookup(hash, attempt),
                Some(expected),
                "{hash} {attempt}"
            );
        }
    }
    // The ring has 12 entries, and 4294967295 = 357913941 × 12 + 3.
    assert_eq!(ring.lookup(0, u32::MAX), Some(BASIC[3].1));
}

#[test]
fn the_ring_of_murmur_hash2_matches_envoys() {
    // The ring of Envoy's test RingHashLoadBalancerTest.BasicWithMurmur2.
    let none = ConsistentHashing::default();
    let config = RingHash::try_new(HashFunction::MurmurHash2, Some(12), None, none).unwrap();
    let ring = build(&ports(80, 6), &normalize(&[1; 6]), &config);
    let expected = [
        (1_358_027_074_129_602_068, 5),
        (4_361_834_613_929_391_114, 3),
        (7_224_494_972_555_149_682, 4),
        (7_701_421_856_454_313_576, 1),
        (8_649_315_368_077_433_379, 2),
        (8_739_448_859_063_030_639, 4),
        (9_887_544_217_113_020_895, 1),
        (10_150_910_876_324_007_731, 2),
        (15_168_472_011_420_622_455, 3),
        (15_427_156_902_705_414_897, 0),
        (16_375_050_414_328_759_093, 5),
        (17_613_279_263_364_193_813, 0),
    ];
    assert!(ring.entries().eq(expected));
}

#[test]
fn weighted_rings_match_envoys() {
    // Envoy's tests HostWeightedTinyRing and HostWeightedLargeRing.
    let (keys, shares) = (ports(90, 3), normalize(&[1, 2, 3]));
    let ring = build(&keys, &shares, &config(6, Some(6)));
    let expected = [
        (928_266_305_478_181_108, 2),
        (4_443_673_547_860_492_590, 2),
        (5_583_722_120_771_150_861, 1),
        (6_311_230_543_546_372_928, 1),
        (13_444_792_449_719_432_967, 2),
        (16_117_243_373_044_804_889, 0),
    ];
    assert!(ring.entries().eq(expected));
    let ring = build(&keys, &shares, &config(6144, None));
    assert_eq!(counts(&ring, 3), [1024, 2048, 3072]);
    assert_eq!(hits(&ring, 3, 6000), [987, 1932, 3081]);
}

#[test]
fn rings_of_weighted_localities_match_envoys() {
    // Envoy's LocalityWeightedLargeRing: a locality of weight 0 is left out and sets no scale.
    let shares = normalize_by_locality(&[(1, &[1]), (2, &[1]), (3, &[1]), (0, &[1])]);
    let ring = build(&ports(90, 4), &shares, &config(6144, None));
    assert_eq!(counts(&ring, 4), [1024, 2048, 3072, 0]);
    assert_eq!(hits(&ring, 4, 6000), [987, 1932, 3081, 0]);
    // Envoy's test HostAndLocalityWeightedLargeRing.
    let shares = normalize_by_locality(&[(1, &[1, 2]), (2, &[1, 2])]);
    let ring = build(&ports(90, 4), &shares, &config(9216, None));
    assert_eq!(counts(&ring, 4), [1024, 2048, 2048, 4096]);
    assert_eq!(hits(&ring, 4, 9000), [924, 2009, 2053, 4014]);
}

#[test]
fn a_ring_too_small_for_its_hosts_keeps_the_proportions() {
    // Envoy's LopsidedWeightSmallScale: every 128th of the light hosts gets an entry.
    let light = [1; 1023];
    let shares = normalize_by_locality(&[(127, &[1]), (1, &light)]);
    let ring = build(&ports(0, 1024), &shares, &config(1024, Some(1024)));
    let entries = counts(&ring, 1024);
    assert_eq!(entries[0], 1016);
    for host in [1, 128, 256, 384, 512, 640, 768, 896] {
        assert_eq!(entries[host], 1, "host {host}");
    }
    assert_eq!(ring.lookup(3_829_253_010_855_396_576, 0), Some(512));
    // Envoy's tests SmallFractionalScale and LargeFractionalScale.
    let ring = build(&ports(90, 4), &normalize(&[1; 4]), &config(2, Some(2)));
    assert_eq!(counts(&ring, 4), [1, 0, 1, 0]);
    let ring = build(
        &ports(90, 2),
        &normalize(&[1; 2]),
        &config(1023, Some(1023)),
    );
    assert_eq!(counts(&ring, 2), [512, 511]);
    assert_eq!(hits(&ring, 2, 1023), [526, 497]);
}

#[test]
fn sizes_are_exact() {
    // Equal weights: the least multiple of the number of hosts that is not below the minimum.
    for hosts in [1, 2, 3, 4, 7, 8, 10, 100, 1000, 1024, 1025, 3000] {
        let ring = build(
            &addresses(hosts),
            &normalize(&vec![1; hosts]),
            &config(1024, None),
        );
        let each = 1024_usize.div_ceil(hosts);
        assert_eq!(ring.len(), each * hosts, "{hosts} hosts");
        assert_eq!(counts(&ring, hosts), vec![each; hosts], "{hosts} hosts");
    }
    // The lighter host, one of 1001 parts, gets two entries.
    let ring = build(&addresses(2), &normalize(&[1, 1000]), &config(1024, None));
    assert_eq!(counts(&ring, 2), [2, 2000]);
    let ring = build(
        &addresses(2),
        &normalize(&[1, 1000]),
        &config(10, Some(100)),
    );
    assert_eq!(counts(&ring, 2), [1, 99]);
}

#[test]
fn whole_rings_agree_with_a_separate_implementation() {
    // Figures from a straightforward version in Python. The third case has one entry more than 75 ×
    // 14, the fourth one more than the maximum: sums of shares are rounded, in Envoy as here.
    type Case = (&'static [u32], u64, Option<u64>, usize, u64);
    let cases: [Case; 8] = [
        (&[1; 3], 1024, None, 1026, 0x77d6_5e43_a649_ef79),
        (&[1; 10], 1024, None, 1030, 0x9d27_7447_5d8b_71c5),
        (&[1; 75], 1024, None, 1051, 0xee74_8cd0_4061_7f83),
        (&[1; 7], 1000, Some(1000), 1001, 0x52c5_bf44_0dba_2146),
        (&[1, 2, 3, 5, 7], 1024, None, 1026, 0xd920_50d0_a415_49ff),
        (&[1; 4], 6, Some(6), 6, 0x649e_b79a_f3ea_b20c),
        (&[1, 1000], 1024, None, 2002, 0xcd9a_56aa_609b_4118),
        (&[1, 1000], 10, Some(100), 100, 0x3a79_8c4e_23dd_6707),
    ];
    for (weights, minimum, maximum, size, expected) in cases {
        let keys = addresses(weights.len());
        let ring = build(&keys, &normalize(weights), &config(minimum, maximum));
        assert_eq!(
            (ring.len(), digest(&ring)),
            (size, expected),
            "{weights:?} {minimum}"
        );
    }
}

#[test]
fn no_host_and_a_single_host() {
    let default = config(1024, None);
    for ring in [
        build(&[], &[], &default),
        build(&ports(90, 2), &[0.0, 0.0], &default),
        Ring::default(),
    ] {
        assert!(ring.is_empty());
        assert_eq!(
            (ring.lookup(0, 0), ring.lookup(u64::MAX, u32::MAX)),
            (None, None)
        );
    }
    let ring = build(&ports(90, 1), &normalize(&[7]), &default);
    assert_eq!(ring.len(), 1024);
    for hash in [0, 1 << 40, u64::MAX] {
        assert_eq!(
            (ring.lookup(hash, 0), ring.lookup(hash, 5)),
            (Some(0), Some(0))
        );
    }
}

#[test]
fn hosts_without_weight_change_nothing_but_indices() {
    let keys = ports(90, 4);
    let some = build(&keys, &[0.0, 0.75, 0.0, 0.25], &config(100, None));
    let alone = build(
        &[keys[1].clone(), keys[3].clone()],
        &[0.75, 0.25],
        &config(100, None),
    );
    assert_eq!(some.len(), 100);
    assert!(
        some.entries()
            .eq(alone.entries().map(|(hash, host)| (hash, 2 * host + 1)))
    );
}

#[test]
fn equal_keys_are_ordered_by_host() {
    let keys = ["same", "other", "same"].map(String::from);
    let ring = build(&keys, &normalize(&[1; 3]), &config(30, None));
    assert_eq!(counts(&ring, 3), [10; 3]);
    let mut ties = 0;
    for (position, (hash, host)) in ring.entries().enumerate() {
        if host == 0 {
            assert_eq!(ring.entries().nth(position + 1), Some((hash, 2)));
            assert_eq!(
                (ring.lookup(hash, 0), ring.lookup(hash, 1)),
                (Some(0), Some(2))
            );
            ties += 1;
        }
    }
    assert_eq!(ties, 10);
}

#[test]
fn shares_of_requests_follow_the_weights() {
    let weights = [1, 2, 3, 5, 7, 11, 13];
    let shares = normalize(&weights);
    let ring = build(&addresses(7), &shares, &config(100_000, None));
    for (host, (hits, share)) in hits(&ring, 7, 50_000).into_iter().zip(shares).enumerate() {
        let actual = f64::from(u32::try_from(hits).unwrap()) / 50_000.0;
        assert!(
            (actual / share - 1.0).abs() < 0.05,
            "host {host}: {actual} of {share}"
        );
    }
}

/// The host of `hash` by its key, so that rings over different lists can be compared.
fn key_of<'a>(ring: &Ring, keys: &'a [String], hash: u64) -> &'a str {
    &keys[ring.lookup(hash, 0).unwrap() as usize]
}

#[test]
fn removing_a_host_moves_only_its_keys() {
    // 51 and 50 hosts have 20 entries each when 1000 are requested.
    let (all, gone) = (addresses(51), 17);
    let ring = build(&all, &normalize(&[1; 51]), &config(1000, None));
    let mut rest = all.clone();
    let removed = rest.remove(gone);
    let smaller = build(&rest, &normalize(&[1; 50]), &config(1000, None));
    assert_eq!((ring.len(), smaller.len()), (1020, 1000));
    let mut moved = 0;
    for request in 0..20_000_u64 {
        let hash = xxh64(&request.to_le_bytes(), 0);
        let (before, after) = (key_of(&ring, &all, hash), key_of(&smaller, &rest, hash));
        if before == removed {
            assert_ne!(after, removed);
            moved += 1;
        } else {
            assert_eq!(before, after);
        }
    }
    assert!((100..1000).contains(&moved), "about 1/51 of them: {moved}");
}

#[test]
fn removing_a_host_moves_few_other_keys_even_if_the_scale_changes() {
    // Each host has 103 entries; after one of ten hosts is removed, each has 114.
    let (all, rest) = (addresses(10), addresses(9));
    let ring = build(&all, &normalize(&[1; 10]), &config(1024, None));
    let smaller = build(&rest, &normalize(&[1; 9]), &config(1024, None));
    let requests = (0..20_000_u64).map(|request| xxh64(&request.to_le_bytes(), 0));
    let moved = requests
        .filter(|&hash| ring.lookup(hash, 0) != Some(9))
        .filter(|&hash| key_of(&ring, &all, hash) != key_of(&smaller, &rest, hash))
        .count();
    assert!(moved > 0 && moved < 3000, "{moved}");
}

#[test]
fn retries_leave_a_refused_host_within_a_few_attempts() {
    let ring = build(&addresses(5), &normalize(&[1; 5]), &config(1024, None));
    for request in 0..1000_u64 {
        let hash = xxh64(&request.to_le_bytes(), 0);
        let first = ring.lookup(hash, 0);
        assert!(
            (1..20).any(|attempt| ring.lookup(hash, attempt) != first),
            "{request}"
        );
    }
}
