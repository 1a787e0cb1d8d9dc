//! Consistent hashing with bounded loads (`hash_balance_factor`, envoy-semantics §8.5): replaces a
//! hashed host that has more than its fair share of the active requests.
//!
//! The hashed host comes from `ring_hash` or `maglev`; the picker passes in the active requests.
//! Hosts are indices into the list of hosts **with weight** (Envoy's list has no others, and the
//! probe order depends on its length).

use rand_mt::Mt;

/// Returns the active requests that a host of `weight` (its share of all) may have when the whole
/// cluster has `cluster_active` and the next one is on its way; `factor` is in percent of the fair
/// share.
pub fn slots(cluster_active: u64, factor: u32, weight: f64) -> u64 {
    let wanted = cluster_active
        .saturating_add(1)
        .saturating_mul(u64::from(factor));
    let total = wanted.div_ceil(100);
    #[expect(
        clippy::cast_precision_loss,
        reason = "as in Envoy; exact below 2^53 requests"
    )]
    let share = (total as f64 * weight).ceil();
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "saturates at the ends; NaN is 0"
    )]
    let share = share as u64;
    share.max(1)
}

/// Returns how full a host is: its active requests ÷ its slots. Up to 1 is acceptable.
#[expect(
    clippy::cast_precision_loss,
    reason = "as in Envoy; exact below 2^53 requests"
)]
pub fn overload_factor(active: u64, slots: u64) -> f64 {
    active as f64 / slots as f64
}

/// Whether a host with this overload factor may take one more request.
#[inline]
pub fn is_acceptable(overload_factor: f64) -> bool {
    overload_factor <= 1.0
}

/// Returns the host that serves `hash`: `picked` while it is acceptable, else the first acceptable
/// one in the probe order of `hash`, else the least overloaded of all (the earliest such, and
/// `picked` before any other).
///
/// `load_of` returns the [`overload_factor`] of a host. `scratch` grows with `hosts`; nothing else
/// is allocated.
#[inline]
pub fn choose(
    hash: u64,
    picked: u32,
    hosts: usize,
    scratch: &mut Vec<u32>,
    load_of: impl Fn(u32) -> f64,
) -> u32 {
    debug_assert!((picked as usize) < hosts, "host {picked} of {hosts}");
    let load = load_of(picked);
    if is_acceptable(load) {
        return picked;
    }
    let mut least = (load, picked);
    for host in ProbeOrder::new(hash, hosts, scratch).filter(|&host| host != picked) {
        let load = load_of(host);
        if is_acceptable(load) {
            return host;
        }
        if load < least.0 {
            least = (load, host);
        }
    }
    least.1
}

/// Returns all hosts in the order in which `hash` tries them, for inspection.
pub fn probe_order(hash: u64, hosts: usize) -> Vec<u32> {
    ProbeOrder::new(hash, hosts, &mut Vec::new()).collect()
}

/// Iterator over hosts in the order in which a hash tries them: a Fisher–Yates shuffle that is
/// evaluated lazily.
#[derive(Debug)]
pub struct ProbeOrder<'a> {
    /// Remaining hosts, partly shuffled.
    rest: &'a mut [u32],
    random: Mt,
}

impl<'a> ProbeOrder<'a> {
    /// Creates the order of `hash` over `hosts` hosts. `scratch` is overwritten.
    pub fn new(hash: u64, hosts: usize, scratch: &'a mut Vec<u32>) -> Self {
        let hosts = u32::try_from(hosts).unwrap_or(u32::MAX);
        scratch.clear();
        scratch.extend(0..hosts);
        #[expect(clippy::cast_possible_truncation, reason = "the low 32 bits are meant")]
        let random = Mt::new(hash as u32);
        Self {
            rest: scratch,
            random,
        }
    }

    /// Uniform below `bound` (at least 1): equal parts of the range; the remainder is redrawn.
    fn below(&mut self, bound: usize) -> usize {
        let width = (1_u64 << 32) / bound as u64;
        loop {
            let number = u64::from(self.random.next_u32()) / width;
            if number < bound as u64 {
                #[expect(clippy::cast_possible_truncation, reason = "less than bound")]
                return number as usize;
            }
        }
    }
}

impl Iterator for ProbeOrder<'_> {
    type Item = u32;

    fn next(&mut self) -> Option<u32> {
        if self.rest.is_empty() {
            return None;
        }
        let chosen = self.below(self.rest.len());
        self.rest.swap(0, chosen);
        let (&mut host, rest) = std::mem::take(&mut self.rest).split_first_mut()?;
        self.rest = rest;
        Some(host)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.rest.len(), Some(self.rest.len()))
    }
}

impl ExactSizeIterator for ProbeOrder<'_> {}

#[cfg(test)]
mod tests {
    use super::super::hash_key::{STD_HASH_SEED, murmur_hash2, normalize};
    use super::*;

    #[test]
    fn slots_are_the_fair_share_and_a_bit() {
        // (99 + 1) × 125 % = 125 slots in all.
        assert_eq!(slots(99, 125, 0.2), 25);
        assert_eq!(slots(99, 125, 0.201), 26, "fractions of a slot round up");
        assert_eq!(slots(9, 101, 1.0), 11, "10.1 in all is 11 as well");
        assert_eq!(slots(9, 101, 0.5), 6);
        assert_eq!(slots(0, 100, 1.0), 1);
    }

    #[test]
    fn every_host_has_a_slot_and_nothing_overflows() {
        assert_eq!(slots(0, 100, 1e-9), 1);
        assert_eq!(slots(100, 150, 0.0), 1);
        assert_eq!(slots(100, 150, f64::NAN), 1);
        assert!(
            slots(u64::MAX, u32::MAX, 1.0) >= 1 << 57,
            "saturated, not wrapped"
        );
        // At this value Envoy's 32-bit arithmetic wraps around.
        assert_eq!(slots(u64::from(u32::MAX), 100, 0.5), 1 << 31);
    }

    #[test]
    fn a_host_is_acceptable_up_to_and_including_its_slots() {
        assert!(is_acceptable(overload_factor(0, 1)));
        assert!(is_acceptable(overload_factor(4, 4)));
        assert!(!is_acceptable(overload_factor(5, 4)));
        assert!(!is_acceptable(f64::NAN));
        assert!((overload_factor(5, 4) - 1.25).abs() < f64::EPSILON);
    }

    #[test]
    fn the_order_matches_envoys() {
        // The two cases of the vectors (pk-051, pk-052).
        assert_eq!(probe_order(2, 5), [2, 1, 0, 4, 3]);
        assert_eq!(probe_order(6, 5), [4, 0, 2, 3, 1]);
    }

    #[test]
    fn the_order_matches_the_standard_mersenne_twister() {
        // Figures from a separate program on std::mt19937 of libstdc++.
        assert_eq!(probe_order(0, 1), [0]);
        assert_eq!(probe_order(0, 2), [1, 0]);
        assert_eq!(probe_order(1, 2), [0, 1]);
        assert_eq!(probe_order(u64::MAX, 10), [0, 2, 9, 6, 8, 7, 1, 3, 4, 5]);
        assert_eq!(
            probe_order(12_345_678_901_234_567_890, 7),
            [3, 0, 5, 2, 1, 4, 6]
        );
        assert_eq!(
            probe_order(2, 1000)[..8],
            [435, 185, 27, 931, 551, 947, 438, 488]
        );
    }

    #[test]
    fn only_the_low_half_of_the_hash_counts() {
        let (hash, low) = (12_345_678_901_234_567_890, 3_944_680_146);
        assert_eq!(probe_order(hash, 50), probe_order(low, 50));
        assert_ne!(probe_order(hash, 50), probe_order(low + 1, 50));
    }

    #[test]
    fn biased_draws_are_repeated() {
        // Enough hosts that draws are repeated: never with seed 1, once with 0, twice with 4.
        for (seed, expected) in [
            (1, 0xf9fa_bf28_e0ac_3d88),
            (0, 0x6973_7608_1bad_dc40),
            (4, 0x5424_4d5c_2d12_51a6),
        ] {
            let order = probe_order(seed, 100_000);
            let bytes: Vec<u8> = order.iter().flat_map(|host| host.to_le_bytes()).collect();
            assert_eq!(murmur_hash2(&bytes, STD_HASH_SEED), expected, "seed {seed}");
        }
    }

    #[test]
    fn every_host_comes_once() {
        for hosts in [0, 1, 2, 3, 17, 256] {
            for hash in 0..20 {
                let mut order = probe_order(hash, hosts);
                order.sort_unstable();
                assert!(
                    order.into_iter().eq(0..u32::try_from(hosts).unwrap()),
                    "{hash}, {hosts}"
                );
            }
        }
    }

    #[test]
    fn an_order_knows_its_remaining_length() {
        let mut scratch = Vec::new();
        let mut order = ProbeOrder::new(2, 5, &mut scratch);
        assert_eq!(order.next(), Some(2));
        assert_eq!(order.len(), 4);
        assert_eq!(order.by_ref().count(), 4);
        assert_eq!((order.len(), order.next()), (0, None));
    }

    #[test]
    fn used_scratch_changes_nothing_and_grows_only_with_the_hosts() {
        let mut scratch = Vec::new();
        let _ = ProbeOrder::new(7, 1000, &mut scratch).count();
        let before = (scratch.as_ptr(), scratch.capacity());
        for (hash, hosts) in [(2, 5), (6, 5), (1, 1000), (9, 1)] {
            let order: Vec<u32> = ProbeOrder::new(hash, hosts, &mut scratch).collect();
            assert_eq!(order, probe_order(hash, hosts));
        }
        assert_eq!((scratch.as_ptr(), scratch.capacity()), before);
    }

    /// Chooses among hosts with these loads; also returns which hosts were asked.
    fn choose_by(loads: &[f64], hash: u64, picked: u32) -> (u32, Vec<u32>) {
        let asked = std::cell::RefCell::new(Vec::new());
        let chosen = choose(hash, picked, loads.len(), &mut Vec::new(), |host| {
            asked.borrow_mut().push(host);
            loads[host as usize]
        });
        (chosen, asked.into_inner())
    }

    #[test]
    fn the_picked_host_serves_if_acceptable() {
        for picked in 0..5 {
            assert_eq!(
                choose_by(&[1.0, 0.2, 0.5, 0.0, 1.0], 2, picked),
                (picked, vec![picked])
            );
        }
    }

    #[test]
    fn the_next_acceptable_host_in_order_serves() {
        // Hash 2 tries hosts in the order 2, 1, 0, 4, 3.
        assert_eq!(choose_by(&[1.5, 0.0, 0.0, 0.0, 0.0], 2, 0), (2, vec![0, 2]));
        assert_eq!(
            choose_by(&[0.0, 0.0, 1.5, 0.0, 0.0], 2, 2).0,
            1,
            "the picked one is skipped"
        );
        assert_eq!(
            choose_by(&[0.5, 1.2, 1.5, 0.0, 0.0], 2, 2),
            (0, vec![2, 1, 0])
        );
        assert_eq!(
            choose_by(&[2.0, 2.0, 2.0, 1.0, 2.0], 2, 0).0,
            3,
            "the last of the order"
        );
        // Hash 6 tries hosts in another order: 4, 0, 2, 3, 1.
        assert_eq!(choose_by(&[0.0, 0.0, 1.5, 0.0, 0.0], 6, 2).0, 4);
    }

    #[test]
    fn if_all_are_overloaded_the_least_overloaded_serves() {
        assert_eq!(choose_by(&[1.5, 1.4, 1.3, 1.1, 1.2], 2, 0).0, 3);
        assert_eq!(
            choose_by(&[1.5, 1.4, 1.1, 1.3, 1.2], 2, 2).0,
            2,
            "which may be the picked one"
        );
        assert_eq!(choose_by(&[1.5; 5], 2, 3).0, 3, "the picked one of equals");
        assert_eq!(
            choose_by(&[1.5, 1.2, 1.5, 1.5, 1.2], 2, 0).0,
            1,
            "then the earliest"
        );
        assert_eq!(choose_by(&[9.0], 2, 0), (0, vec![0]));
    }

    #[test]
    fn every_host_stays_within_its_bound() {
        // All requests have the same hash and stay in flight: 300 on 4 hosts of weights 1 to 4.
        let weights = normalize(&[1, 2, 3, 4]);
        let mut active = [0_u64; 4];
        let mut scratch = Vec::new();
        for sent in 0..300 {
            let bound = |host: u32| slots(sent, 120, weights[host as usize]);
            let load_of = |host: u32| overload_factor(active[host as usize], bound(host));
            let host = choose(42, 0, 4, &mut scratch, load_of);
            let bound = bound(host);
            active[host as usize] += 1;
            // A host at its bound still accepts a request, and is then one above the bound.
            assert!(active[host as usize] <= bound + 1, "{active:?}");
        }
        // The hashed host is full: 120 % of its share, a tenth. No other exceeds its own bound.
        assert_eq!(active[0], slots(299, 120, 0.1) + 1);
        for (active, weight) in active.into_iter().zip(weights) {
            assert!(active <= slots(299, 120, weight) + 1);
        }
    }
}
