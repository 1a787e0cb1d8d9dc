//! Earliest-deadline-first scheduler: weighted round robin in Envoy's order (§3.2).
//!
//! Items are indices. Weights are read when an item is picked, so a changed weight takes effect
//! when its item comes round again. Used by weighted round robin, weighted least request and
//! locality-weighted balancing. Peeking is not supported, because preconnecting is not.

/// Added to weights while earlier picks are emulated; breaks ties between multiples, as in Envoy.
const EPSILON: f64 = 1e-13;
/// Emulated picks are reduced modulo this (u32::MAX / 10), as in Envoy.
const MAX_EMULATED: u32 = 429_496_729;

/// Minimum weight: a factor or a bias may underflow to 0, and 0 (or NaN) would break the order.
const MIN_WEIGHT: f64 = 1e-12;

#[inline]
const fn positive_weight(weight: f64) -> f64 {
    if weight > MIN_WEIGHT {
        weight
    } else {
        MIN_WEIGHT
    }
}

/// A schedule over items `0..n`.
#[derive(Clone, Debug, Default)]
pub struct Edf {
    /// Binary min-heap by (deadline, sequence).
    heap: Vec<Entry>,
    now: f64,
    sequence: u64,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    deadline: f64,
    sequence: u64,
    item: u32,
}

impl Entry {
    fn before(&self, other: &Self) -> bool {
        (self.deadline, self.sequence) < (other.deadline, other.sequence)
    }
}

impl Edf {
    /// Builds a schedule of `items` (index, weight; indices ascending) as if the low 32 bits of
    /// `seed` picks had already been made, so that workers that start together do not all begin
    /// with the same host.
    pub fn with_emulated_picks(items: &[(u32, f64)], seed: u64) -> Self {
        #[expect(clippy::cast_possible_truncation, reason = "the low 32 bits are meant")]
        let picks = (seed as u32) % MAX_EMULATED;
        let augmented = |weight: f64| positive_weight(weight) + EPSILON;
        let total: f64 = items.iter().map(|&(_, weight)| augmented(weight)).sum();
        let mut edf = Self {
            heap: Vec::with_capacity(items.len()),
            now: 0.0,
            sequence: 0,
        };
        let mut emulated = 0.0;
        for &(item, weight) in items {
            let weight = augmented(weight);
            let rate = f64::from(picks) / total;
            let mut floor = (weight * f64::from(picks) / total).trunc();
            if floor > 0.0 && floor / weight >= rate {
                floor -= 1.0;
            }
            emulated += floor;
            edf.now = edf.now.max(floor / weight);
            edf.push((floor + 1.0) / weight, item);
        }
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "0..=n"
        )]
        let rest = (f64::from(picks) - emulated).max(0.0) as u64;
        // Plain weights from here on: the remaining picks are ordinary ones. Rounding leaves fewer
        // than two per item; more would mean that weights are not numbers, and would take hours.
        for _ in 0..rest.min(2 * items.len() as u64) {
            edf.pick(|item| {
                let found = items.binary_search_by_key(&item, |&(index, _)| index);
                found.map_or(1.0, |position| items[position].1)
            });
        }
        edf
    }

    /// Returns the next item, and reschedules it with its current weight.
    #[inline]
    pub fn pick(&mut self, weight_of: impl FnOnce(u32) -> f64) -> Option<u32> {
        let entry = *self.heap.first()?;
        self.now = entry.deadline;
        let weight = weight_of(entry.item);
        let deadline = self.now + 1.0 / positive_weight(weight);
        self.heap[0] = Entry {
            deadline,
            sequence: self.sequence,
            item: entry.item,
        };
        self.sequence += 1;
        self.sift_down();
        Some(entry.item)
    }

    /// Whether the schedule has no items.
    pub fn is_empty(&self) -> bool {
        self.heap.is_empty()
    }

    fn push(&mut self, deadline: f64, item: u32) {
        self.heap.push(Entry {
            deadline,
            sequence: self.sequence,
            item,
        });
        self.sequence += 1;
        let mut child = self.heap.len() - 1;
        while child > 0 {
            let parent = (child - 1) / 2;
            if !self.heap[child].before(&self.heap[parent]) {
                break;
            }
            self.heap.swap(child, parent);
            child = parent;
        }
    }

    fn sift_down(&mut self) {
        let len = self.heap.len();
        let mut parent = 0;
        loop {
            let left = 2 * parent + 1;
            if left >= len {
                break;
            }
            let right = left + 1;
            let child = if right < len && self.heap[right].before(&self.heap[left]) {
                right
            } else {
                left
            };
            if !self.heap[child].before(&self.heap[parent]) {
                break;
            }
            self.heap.swap(child, parent);
            parent = child;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn items(weights: &[f64]) -> Vec<(u32, f64)> {
        (0..).zip(weights.iter().copied()).collect()
    }

    fn sequence(weights: &[f64], seed: u64, picks: usize) -> Vec<u32> {
        let mut edf = Edf::with_emulated_picks(&items(weights), seed);
        (0..picks)
            .map(|_| edf.pick(|item| weights[item as usize]).unwrap())
            .collect()
    }

    #[test]
    fn multiples_are_ordered_by_the_epsilon() {
        assert_eq!(sequence(&[1.0, 2.0], 0, 6), [1, 0, 1, 1, 0, 1]);
    }

    #[test]
    fn an_emulated_start_continues_the_same_sequence() {
        let weights = [6.0, 3.0, 1.0];
        let whole = sequence(&weights, 0, 200);
        for start in 0..100_usize {
            let late = sequence(&weights, start as u64, 20);
            let count = |picks: &[u32], item| picks.iter().filter(|&&pick| pick == item).count();
            for item in 0..3 {
                let expected = count(&whole[start..start + 20], item);
                let actual = count(&late, item);
                assert!(actual.abs_diff(expected) <= 1, "start {start} item {item}");
            }
        }
    }

    #[test]
    fn any_seed_starts_quickly_and_in_proportion() {
        for seed in [u64::MAX, u64::from(u32::MAX), 429_496_728, 123_456_789] {
            let picks = sequence(&[1.0, 3.0], seed, 400);
            let heavy = picks.iter().filter(|&&item| item == 1).count();
            assert!((299..=301).contains(&heavy), "seed {seed}: {heavy}");
        }
    }

    #[test]
    fn a_changed_weight_takes_effect_when_its_item_returns() {
        let mut edf = Edf::with_emulated_picks(&items(&[1.0, 1.0]), 0);
        let picks: Vec<_> = (0..300)
            .filter_map(|_| edf.pick(|item| [1.0, 2.0][item as usize]))
            .collect();
        let heavy = picks.iter().filter(|&&item| item == 1).count();
        assert!((199..=201).contains(&heavy), "{heavy}");
    }

    #[test]
    fn empty_schedules_and_invalid_weights_are_harmless() {
        assert_eq!(Edf::with_emulated_picks(&[], 7).pick(|_| 1.0), None);
        let mut edf = Edf::with_emulated_picks(&items(&[1.0, 1.0]), 0);
        for _ in 0..100 {
            edf.pick(|item| if item == 0 { f64::NAN } else { 1.0 });
        }
        assert_eq!(edf.pick(|_| 1.0), Some(1));
        let endless = Edf::with_emulated_picks(&items(&[f64::INFINITY, 1.0]), u64::MAX);
        assert!(!endless.is_empty());
    }
}
