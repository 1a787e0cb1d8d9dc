//! Timing for a noisy machine: short batches, all contenders in turn, many rounds.
//!
//! Noise that lasts longer than a round affects all contenders alike, so ratios are computed within
//! a round and their median is reported.

use std::time::{Duration, Instant};

use crate::contenders::Contender;

/// Number of batches per contender.
const ROUNDS: usize = 101;
/// Duration of a batch: long enough to warm caches and hide the cost of the clock, short enough to
/// be rarely interrupted.
const BATCH: Duration = Duration::from_millis(1);

/// Nanoseconds per operation, for every contender and round.
pub(crate) struct Timings(pub(crate) Vec<Vec<f64>>);

impl Timings {
    /// Returns the median over all rounds of one contender's time relative to another's.
    pub(crate) fn ratio(&self, of: usize, to: usize) -> f64 {
        let rounds = self.0[of].iter().zip(&self.0[to]);
        median(&rounds.map(|(of, to)| of / to).collect::<Vec<_>>())
    }
}

/// Runs all contenders in turn; `quick` runs each once, to check that it works.
pub(crate) fn measure(contenders: &mut [Contender], quick: bool) -> Timings {
    let rounds = if quick { 1 } else { ROUNDS };
    let sizes: Vec<u32> = contenders.iter_mut().map(batch_size).collect();
    let mut timings = vec![Vec::with_capacity(rounds); contenders.len()];
    for _ in 0..rounds {
        for (index, contender) in contenders.iter_mut().enumerate() {
            let size = sizes[index];
            // Warm the caches, which the other contenders have used.
            (contender.run)(size / 2);
            timings[index].push(nanos(contender, size));
        }
    }
    Timings(timings)
}

/// Returns the median of all values.
pub(crate) fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or(f64::NAN)
}

/// Returns the minimum, which has the least interruptions.
pub(crate) fn fastest(values: &[f64]) -> f64 {
    values.iter().copied().fold(f64::INFINITY, f64::min)
}

/// Returns the number of operations that take about one [`BATCH`].
fn batch_size(contender: &mut Contender) -> u32 {
    let mut size = 1_000;
    // The first run also includes lazy initialization.
    (contender.run)(size);
    while nanos(contender, size) * f64::from(size) < BATCH.as_secs_f64() * 1e9 {
        size *= 2;
    }
    size
}

fn nanos(contender: &mut Contender, operations: u32) -> f64 {
    let start = Instant::now();
    (contender.run)(operations);
    start.elapsed().as_secs_f64() * 1e9 / f64::from(operations)
}
