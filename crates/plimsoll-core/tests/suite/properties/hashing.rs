//! Consistent hashing: a key always finds the same host, and changes of membership move few keys.

use std::net::SocketAddr;

use plimsoll_core::model::cluster::LocalityPolicy;
use plimsoll_core::model::endpoint_policy::{
    ConsistentHashing, EndpointPolicy, HashFunction, Maglev, RingHash,
};
use plimsoll_core::picker::{PickArgs, Picker};
use plimsoll_core::rng::{Rng, Xoshiro256};
use proptest::prelude::*;
use proptest::sample::select;

use super::cases;
use crate::support::{Driver, at, config, parts};

/// Number of keys per measurement.
const KEYS: usize = 2_000;

fn policy() -> impl Strategy<Value = EndpointPolicy> {
    let none = ConsistentHashing::default();
    let ring = |function, size| {
        let ring = RingHash::try_new(function, Some(size), None, none).expect("valid");
        EndpointPolicy::RingHash(ring)
    };
    let maglev = |size| EndpointPolicy::Maglev(Maglev::try_new(Some(size), none).expect("valid"));
    select(vec![
        ring(HashFunction::XxHash, 4096),
        ring(HashFunction::MurmurHash2, 8192),
        maglev(5_003),
        maglev(10_007),
    ])
}

fn driver(policy: &EndpointPolicy, hosts: usize) -> Driver {
    let config = config(|parts| {
        parts.locality_policy = LocalityPolicy::Flat;
        parts.endpoint_policy = policy.clone();
    });
    let mut driver = Driver::new(config, "a");
    driver.assignment(parts(&[("a", hosts)]), at(0));
    driver
}

fn host_of(picker: &mut Picker, hash: u64) -> Option<SocketAddr> {
    let args = PickArgs {
        hash: Some(hash),
        ..Default::default()
    };
    picker.pick(args).host().map(|host| host.address())
}

fn keys(seed: u64) -> Vec<u64> {
    let mut rng = Xoshiro256::from_seed(seed);
    (0..KEYS).map(|_| rng.next_u64()).collect()
}

fn hosts_of(driver: &Driver, keys: &[u64], worker: u64) -> Vec<Option<SocketAddr>> {
    let mut picker = driver.picker(worker);
    keys.iter().map(|&key| host_of(&mut picker, key)).collect()
}

proptest! {
    #![proptest_config(cases(24))]

    #[test]
    fn the_same_hash_finds_the_same_host(
        policy in policy(),
        hosts in 1_usize..20,
        seed in any::<u64>(),
    ) {
        let keys = keys(seed);
        let mut driver = driver(&policy, hosts);
        let mine = hosts_of(&driver, &keys, 1);
        prop_assert!(mine.iter().all(Option::is_some));
        prop_assert_eq!(&mine, &hosts_of(&driver, &keys, 2), "another worker");
        // Another proxy that got its hosts one by one, and had some removed.
        let mut other = self::driver(&policy, 1);
        for (second, hosts) in (1..).zip([hosts.min(3), hosts + 2, hosts]) {
            other.assignment(parts(&[("a", hosts)]), at(second));
        }
        prop_assert_eq!(&mine, &hosts_of(&other, &keys, 3), "another proxy");
        // Add a host and remove it again.
        driver.assignment(parts(&[("a", hosts + 1)]), at(1));
        driver.assignment(parts(&[("a", hosts)]), at(2));
        prop_assert_eq!(&mine, &hosts_of(&driver, &keys, 4), "after adding and removing a host");
    }

    /// When one of n hosts is removed, its keys must move (1/n of all). Others may: a ring of a
    /// given size then has more entries per host (at most another 1/n), and a Maglev table
    /// reshuffles a few entries (a few percent). Twice the unavoidable share plus 5 % is far from
    /// "everything moves".
    #[test]
    fn losing_a_host_moves_few_keys(
        policy in policy(),
        hosts in 3_usize..20,
        seed in any::<u64>(),
    ) {
        let keys = keys(seed);
        let mut driver = driver(&policy, hosts);
        let before = hosts_of(&driver, &keys, 1);
        driver.assignment(parts(&[("a", hosts - 1)]), at(1));
        let after = hosts_of(&driver, &keys, 1);
        let gone = crate::support::address(0, hosts - 1);
        let mut moved = 0_u64;
        for (before, after) in before.iter().zip(&after) {
            prop_assert!(after.is_some() && *after != Some(gone));
            moved += u64::from(before != after);
        }
        let share = crate::support::ratio(moved, KEYS as u64);
        let unavoidable = crate::support::ratio(1, hosts as u64);
        prop_assert!(share <= 2.0 * unavoidable + 0.05, "{share} moved of {unavoidable}");
    }

    /// A retry never repeats a host while there is another one.
    #[test]
    fn retries_visit_every_host_before_repeating_one(
        policy in policy(),
        hosts in 1_usize..10,
        hash in any::<u64>(),
    ) {
        let driver = driver(&policy, hosts);
        let mut picker = driver.picker(1);
        let mut tried = Vec::new();
        for attempt in 0..hosts {
            let args = PickArgs { hash: Some(hash), avoid: &tried, ..Default::default() };
            let host = picker.pick(args).host().cloned();
            let host = host.ok_or_else(|| TestCaseError::fail("no host"))?;
            let again = tried.iter().any(|other| std::sync::Arc::ptr_eq(other, &host));
            prop_assert!(!again, "attempt {attempt} of {hosts} hosts");
            tried.push(host);
        }
        let args = PickArgs { hash: Some(hash), avoid: &tried, ..Default::default() };
        prop_assert!(picker.pick(args).host().is_some(), "falls back to a tried host");
    }
}
