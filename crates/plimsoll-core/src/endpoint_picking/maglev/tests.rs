//! Tests of tables against Envoy's published ones, against separate implementations, and as a
//! policy.

use proptest::prelude::*;

use super::super::hash_key::{normalize, normalize_by_locality};
use super::*;

fn build(keys: &[String], shares: &[f64], table_size: u64) -> MaglevTable {
    assert_eq!(keys.len(), shares.len());
    let hosts: Vec<_> = keys
        .iter()
        .zip(shares)
        .map(|(key, &weight)| HashedHost { key, weight })
        .collect();
    MaglevTable::build(&hosts, table_size)
}

/// Addresses from 127.0.0.1:90 on, as in Envoy's tests.
fn ports(hosts: usize) -> Vec<String> {
    (90..90 + hosts)
        .map(|port| format!("127.0.0.1:{port}"))
        .collect()
}

/// Addresses from 10.0.0.0:8080 on, as in the separate implementation.
fn addresses(hosts: usize) -> Vec<String> {
    (0..hosts)
        .map(|host| format!("10.0.0.{host}:8080"))
        .collect()
}

/// Number of slots of each host.
fn counts(table: &MaglevTable, hosts: usize) -> Vec<u32> {
    let mut counts = vec![0; hosts];
    for &host in table.slots() {
        counts[host as usize] += 1;
    }
    counts
}

/// Hash over all slots: hosts, little endian.
fn digest(table: &MaglevTable) -> u64 {
    let bytes: Vec<u8> = table
        .slots()
        .iter()
        .flat_map(|host| host.to_le_bytes())
        .collect();
    xxh64(&bytes, 0)
}

#[test]
fn the_table_matches_envoys() {
    // Tables of Envoy's tests MaglevLoadBalancerTest.Basic and BasicWithHostName.
    let shares = normalize(&[1; 6]);
    assert_eq!(build(&ports(6), &shares, 7).slots(), [2, 4, 0, 1, 5, 0, 3]);
    let names: Vec<String> = (90..96).map(|name| name.to_string()).collect();
    assert_eq!(build(&names, &shares, 7).slots(), [2, 5, 0, 3, 4, 1, 0]);
}

#[test]
fn weighted_tables_match_envoys() {
    // Weighted, LocalityWeightedSameLocalityWeights and LocalityWeightedDifferentLocalityWeights.
    let table = build(&ports(2), &normalize(&[1, 2]), 17);
    assert_eq!(
        table.slots(),
        [1, 0, 0, 1, 0, 1, 1, 0, 1, 1, 1, 1, 1, 0, 1, 0, 1]
    );
    let shares = normalize_by_locality(&[(1, &[1]), (1, &[2])]);
    let table = build(&ports(2), &shares, 17);
    assert_eq!(
        table.slots(),
        [1, 0, 0, 1, 0, 1, 1, 0, 0, 1, 0, 1, 0, 0, 1, 0, 1]
    );
    // Hosts are listed in the order of ports 90, 92, 91; the locality of 92 has no weight.
    let shares = normalize_by_locality(&[(8, &[1]), (0, &[3]), (2, &[2])]);
    let keys = [90, 92, 91].map(|port| format!("127.0.0.1:{port}"));
    let table = build(&keys, &shares, 17);
    assert_eq!(
        table.slots(),
        [2, 0, 0, 0, 0, 0, 2, 0, 0, 2, 0, 2, 0, 0, 0, 0, 0]
    );
}

#[test]
fn lookups_and_retries_match_envoys() {
    // Envoy's BasicWithRetryHostPredicate: hash 10 is slot 3, then slot 5, then slot 4.
    let table = build(&ports(6), &normalize(&[1; 6]), 7);
    let attempts: Vec<_> = (0..3)
        .filter_map(|attempt| table.lookup(10, attempt))
        .collect();
    assert_eq!(attempts, [1, 0, 5]);
    for hash in 0..21_u32 {
        let slot = table.slots()[hash as usize % 7];
        assert_eq!(table.lookup(hash.into(), 0), Some(slot));
    }
}

#[test]
fn an_attempt_flips_the_hash_by_its_complement() {
    let table = build(&addresses(100), &normalize(&[1; 100]), 65_537);
    for hash in [0_u64, 10, 1 << 63, u64::MAX] {
        for attempt in [1_u32, 2, 7, u32::MAX] {
            let power = (1_u128 << 64) - u128::from(attempt);
            let slot = (u128::from(hash) ^ power) % 65_537;
            let expected = table.slots()[usize::try_from(slot).unwrap()];
            assert_eq!(
                table.lookup(hash, attempt),
                Some(expected),
                "{hash} {attempt}"
            );
        }
    }
}

#[test]
fn retries_leave_a_refused_host_within_a_few_attempts() {
    let table = build(&addresses(5), &normalize(&[1; 5]), 65_537);
    for request in 0..1000_u64 {
        let hash = xxh64(&request.to_le_bytes(), 0);
        let first = table.lookup(hash, 0);
        assert!(
            (1..20).any(|attempt| table.lookup(hash, attempt) != first),
            "{request}"
        );
    }
}

#[test]
fn small_tables_agree_with_a_separate_implementation() {
    // Figures from a straightforward version in Python.
    let table = build(&addresses(3), &normalize(&[1; 3]), 13);
    assert_eq!(table.slots(), [1, 0, 2, 2, 1, 2, 0, 0, 1, 1, 0, 0, 2]);
    let table = build(&addresses(3), &normalize(&[1, 2, 4]), 17);
    assert_eq!(
        table.slots(),
        [1, 1, 0, 0, 2, 2, 0, 2, 2, 1, 1, 2, 2, 1, 2, 2, 2]
    );
}

#[test]
fn whole_tables_agree_with_a_separate_implementation() {
    let mixed: Vec<u32> = (0..200).map(|host| 1 + host * 37 % 11).collect();
    let one_heavy = [1, 1, 1, 1, 1, 1, 1, 1, 1, 1000];
    let cases: [(&[u32], u64, u64); 5] = [
        (&[1; 10], 65_537, 0x60c6_f2a0_7f62_490d),
        (&[1, 2, 3, 5, 7], 65_537, 0xd66c_bd3d_558b_7e04),
        (&one_heavy, 65_537, 0x7717_61c5_33f4_3da8),
        (&mixed, 65_537, 0x8e0c_49fa_eea8_794e),
        (&[1; 50], 11, 0x13fc_5bcb_393e_229e),
    ];
    for (weights, table_size, expected) in cases {
        let table = build(&addresses(weights.len()), &normalize(weights), table_size);
        assert_eq!(digest(&table), expected, "{weights:?}");
    }
}

#[test]
fn slots_follow_the_weights() {
    let table = build(&addresses(10), &normalize(&[1; 10]), 65_537);
    assert_eq!(
        counts(&table, 10),
        [6554, 6554, 6554, 6554, 6554, 6554, 6554, 6553, 6553, 6553]
    );
    let table = build(&addresses(5), &normalize(&[1, 2, 3, 5, 7]), 65_537);
    assert_eq!(counts(&table, 5), [3641, 7282, 10_923, 18_205, 25_486]);
}

#[test]
fn ten_thousand_hosts_all_have_slots() {
    let table = build(&addresses(10_000), &normalize(&[1; 10_000]), 65_537);
    let slots = counts(&table, 10_000);
    assert!(slots.iter().all(|count| (6..=7).contains(count)));
    // Very different weights: walking all hosts in each of 65000 rounds would be slow.
    let mut weights = vec![1; 10_000];
    weights[77] = 4_000_000_000;
    let table = build(&addresses(10_000), &normalize(&weights), 65_537);
    let slots = counts(&table, 10_000);
    assert_eq!(slots[77], 65_537 - 9_999);
    assert!(slots.iter().all(|&count| count >= 1));
}

#[test]
fn the_largest_table_can_be_filled() {
    let table = build(&addresses(3), &normalize(&[1, 1, 2]), 5_000_011);
    assert_eq!(counts(&table, 3), [1_250_003, 1_250_003, 2_500_005]);
}

#[test]
fn no_host_and_a_single_host() {
    let empty = build(&[], &[], 7);
    assert!(empty.is_empty());
    assert_eq!(empty, MaglevTable::default());
    assert!(build(&ports(2), &[0.0, 0.0], 7).is_empty());
    assert_eq!(
        (empty.lookup(0, 0), empty.lookup(u64::MAX, 3)),
        (None, None)
    );
    // A single host, also among hosts without weight, needs no table.
    for (shares, only) in [(&[1.0, 0.0, 0.0], 0), (&[0.0, 0.0, 0.3], 2)] {
        let table = build(&ports(3), shares, 65_537);
        assert_eq!(table.slots(), [only]);
        for hash in [0, 1, 65_536, u64::MAX] {
            assert_eq!(
                (table.lookup(hash, 0), table.lookup(hash, 9)),
                (Some(only), Some(only))
            );
        }
    }
}

#[test]
fn a_table_smaller_than_its_hosts_serves_the_first_by_key() {
    let table = build(&ports(6), &normalize(&[1; 6]), 2);
    let mut served = table.slots().to_vec();
    served.sort_unstable();
    assert_eq!(served, [0, 1]);
}

#[test]
#[should_panic(expected = "table_size 8 is a prime")]
fn an_invalid_table_size_panics() {
    build(&ports(2), &normalize(&[1; 2]), 8);
}

#[test]
fn hosts_with_the_same_key_are_ordered_by_weight() {
    let keys = ["same", "other", "same"].map(String::from);
    let forward = build(&keys, &normalize(&[1, 2, 3]), 1009);
    let backward = build(&keys, &normalize(&[3, 2, 1]), 1009);
    assert!(
        forward
            .slots()
            .iter()
            .zip(backward.slots())
            .all(|(a, b)| *a == 2 - b)
    );
    assert_eq!(counts(&forward, 3), [169, 337, 503]);
}

#[test]
fn removing_a_host_moves_few_other_keys() {
    let (hosts, gone) = (50, 17);
    let keys = addresses(hosts);
    let table = build(&keys, &normalize(&[1; 50]), 65_537);
    let mut rest = keys.clone();
    let removed = rest.remove(gone);
    let smaller = build(&rest, &normalize(&[1; 49]), 65_537);
    let (mut orphans, mut others) = (0, 0);
    for (&before, &after) in table.slots().iter().zip(smaller.slots()) {
        let (before, after) = (&keys[before as usize], &rest[after as usize]);
        orphans += u32::from(*before == removed);
        others += u32::from(*before != removed && before != after);
    }
    assert_eq!(orphans, 65_537_u32.div_ceil(50));
    // Choosing a host by hash modulo the number of hosts would move 98 % of the keys.
    assert!(
        others > 0 && others < 65_537 / 20,
        "{others} moved without need"
    );
}

/// Fills a table as the rule is specified: walks every host in every round.
fn by_rounds(keys: &[String], shares: &[f64], table_size: u64) -> Vec<u32> {
    let mut hosts: Vec<_> = (0..).zip(keys.iter().zip(shares)).collect();
    hosts.sort_by(|(_, a), (_, b)| a.partial_cmp(b).unwrap());
    let heaviest = shares.iter().copied().fold(0.0, f64::max);
    let mut state = vec![(0_u64, 0.0_f64); hosts.len()];
    let mut table = vec![None; usize::try_from(table_size).unwrap()];
    let mut free = table_size;
    let mut round = 0.0;
    while free > 0 {
        round += 1.0;
        for ((index, (key, share)), (next, target)) in hosts.iter().zip(&mut state) {
            if free == 0 || round * **share < *target {
                continue;
            }
            *target += heaviest;
            let offset = xxh64(key.as_bytes(), 0) % table_size;
            let skip = xxh64(key.as_bytes(), 1) % (table_size - 1) + 1;
            loop {
                let slot = usize::try_from((offset + skip * *next) % table_size).unwrap();
                *next += 1;
                if table[slot].is_none() {
                    table[slot] = Some(*index);
                    break;
                }
            }
            free -= 1;
        }
    }
    table.into_iter().flatten().collect()
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 200,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    /// Both ways fill the same slots, even where products of rounds and weights are rounded.
    #[test]
    fn the_queue_fills_the_table_as_the_rounds_do(
        weights in prop::collection::vec(prop_oneof![1..20_u32, 1..5000_u32, 1..=u32::MAX], 2..40),
        table_size in prop::sample::select(vec![2_u64, 3, 7, 101, 1009, 4099]),
    ) {
        let (keys, shares) = (addresses(weights.len()), normalize(&weights));
        let table = build(&keys, &shares, table_size);
        prop_assert_eq!(table.slots(), by_rounds(&keys, &shares, table_size));
    }

    /// Shuffled hosts get the same slots under their new indices.
    #[test]
    fn the_order_of_the_hosts_does_not_matter(
        (weights, order) in prop::collection::vec(1..50_u32, 2..30).prop_flat_map(|weights| {
            let order: Vec<usize> = (0..weights.len()).collect();
            (Just(weights), Just(order).prop_shuffle())
        }),
    ) {
        let (keys, shares) = (addresses(weights.len()), normalize(&weights));
        let table = build(&keys, &shares, 1009);
        let moved_keys: Vec<_> = order.iter().map(|&host| keys[host].clone()).collect();
        let moved_shares: Vec<_> = order.iter().map(|&host| shares[host]).collect();
        let moved = build(&moved_keys, &moved_shares, 1009);
        let back: Vec<_> = moved.slots().iter().map(|&host| order[host as usize]).collect();
        let slots: Vec<_> = table.slots().iter().map(|&host| host as usize).collect();
        prop_assert_eq!(slots, back);
    }
}
