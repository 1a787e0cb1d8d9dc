//! Least request (envoy-semantics §8.1): compares a few random hosts if weights are equal, and
//! schedules by weight and active requests otherwise.
//!
//! Active requests are read through a closure; nothing is stored here.

use crate::rng::Rng;

/// Returns the best of `choice_count` random hosts, drawn with replacement; a tie keeps the earlier
/// one.
#[inline]
pub fn choose(
    len: usize,
    choice_count: u32,
    rng: &mut impl Rng,
    active_of: impl Fn(usize) -> u64,
) -> Option<usize> {
    let mut candidate = super::random::index(rng.next_u64(), len)?;
    let mut fewest = active_of(candidate);
    for _ in 1..choice_count {
        let other = super::random::index(rng.next_u64(), len)?;
        let active = active_of(other);
        if active < fewest {
            (candidate, fewest) = (other, active);
        }
    }
    Some(candidate)
}

/// Returns the best of all hosts. Ties are broken by reservoir sampling: the k-th of them replaces
/// the candidate if its draw is divisible by k.
#[inline(never)]
pub fn full_scan(
    len: usize,
    rng: &mut impl Rng,
    active_of: impl Fn(usize) -> u64,
) -> Option<usize> {
    let mut candidate = (len > 0).then_some(0)?;
    let mut fewest = active_of(0);
    let mut ties = 1_u64;
    for other in 1..len {
        let active = active_of(other);
        if active < fewest {
            (candidate, fewest, ties) = (other, active, 1);
        } else if active == fewest {
            ties += 1;
            if rng.next_u64().is_multiple_of(ties) {
                candidate = other;
            }
        }
    }
    Some(candidate)
}

/// Returns the weight in the schedule: `weight / (active + 1)^bias`. A bias that is negative or not
/// a number counts as 1.
#[inline]
#[expect(
    clippy::cast_precision_loss,
    reason = "active requests are far below 2^53"
)]
pub fn weight(weight: f64, active: u64, bias: f64) -> f64 {
    let load = active as f64 + 1.0;
    if bias == 0.0 {
        weight
    } else if bias == 1.0 || bias < 0.0 || bias.is_nan() {
        weight / load
    } else {
        weight / load.powf(bias)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::{ScriptedRng, Xoshiro256};

    #[test]
    fn strictly_fewer_requests_replace_the_candidate() {
        let pick = |active: [u64; 2], draws: [u64; 2]| {
            choose(2, 2, &mut ScriptedRng::new(draws), |host| active[host])
        };
        assert_eq!(pick([1, 2], [2, 3]), Some(0));
        assert_eq!(pick([2, 1], [2, 3]), Some(1));
        assert_eq!(pick([1, 1], [1, 0]), Some(1), "a tie keeps the earlier");
        assert_eq!(choose(0, 2, &mut ScriptedRng::default(), |_| 0), None);
    }

    #[test]
    fn choices_take_exactly_their_draws() {
        let mut rng = ScriptedRng::new([3, 0, 3, 2, 1]);
        let active = [4, 3, 2, 1];
        assert_eq!(choose(4, 5, &mut rng, |host| active[host]), Some(3));
        assert_eq!(rng.used(), 5);
    }

    #[test]
    fn a_full_scan_draws_only_on_ties() {
        let mut rng = ScriptedRng::new([1, 1, 0]);
        let active = [3, 3, 1, 1, 1];
        assert_eq!(full_scan(5, &mut rng, |host| active[host]), Some(4));
        assert_eq!(rng.used(), 3);
        assert_eq!(full_scan(0, &mut rng, |_| 0), None);
        assert_eq!(full_scan(1, &mut rng, |_| 9), Some(0));
    }

    #[test]
    fn ties_of_a_full_scan_are_uniform() {
        let mut rng = Xoshiro256::from_seed(4);
        let mut picked = [0_u32; 5];
        for _ in 0..50_000 {
            picked[full_scan(5, &mut rng, |_| 7).unwrap()] += 1;
        }
        assert!(
            picked.iter().all(|&count| (9_500..10_500).contains(&count)),
            "{picked:?}"
        );
    }

    #[test]
    fn bias_shapes_the_weight() {
        assert_eq!(weight(2.0, 1, 1.0), 1.0);
        assert_eq!(weight(2.0, 3, 2.0), 0.125);
        assert_eq!(weight(2.0, 9, 0.0), 2.0);
        assert_eq!(weight(2.0, 1, -1.0), 1.0);
        assert_eq!(weight(2.0, 1, f64::NAN), 1.0);
    }
}
