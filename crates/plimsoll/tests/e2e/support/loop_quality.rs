//! [`Quality`]: what a closed loop did, by the definitions that the simulator has too: utilization
//! of the fullest zone over that of all hosts, in sliding means, and whether a zone swings.

use std::time::Duration;

use super::orca_backends::{Taken, ZONE_CAPACITY, ZONES};

const N: usize = ZONES.len();
/// Bins per second.
const SECOND: usize = 4;
/// A zone swings when its variance is so many times that of independent requests.
const DISPERSION: f64 = 2.5;
/// A crossing counts when the series was so many deviations on the other side.
const HYSTERESIS: f64 = 0.5;

/// What a loop did.
#[derive(Clone, Debug)]
pub(crate) struct Quality {
    /// Of all hosts.
    pub(crate) utilization: f64,
    /// Fullest zone over the mean, means of one second: average, highest.
    pub(crate) one: (f64, f64),
    /// The same over the last five seconds.
    pub(crate) five: (f64, f64),
    /// Lowest and highest utilization of the first zone, means of one second.
    pub(crate) first_zone: (f64, f64),
    /// Load over the mean by zone, over all of the time.
    pub(crate) load_factors: [f64; N],
    /// Share of requests that left their zone.
    pub(crate) cross_zone: f64,
    /// Period in seconds, if a zone swings.
    pub(crate) swing: Option<f64>,
}

impl Quality {
    /// Judges requests in the order in which they were taken.
    pub(crate) fn of(taken: &[Taken]) -> Self {
        let bins = bins(taken);
        let all = bins.len();
        let loads = |length: usize| -> Vec<[f64; N]> {
            (length..=all)
                .map(|end| load(&bins[end - length..end]))
                .collect()
        };
        let relative = |length: usize| -> Vec<[f64; N]> {
            let loads = loads(length).into_iter();
            loads
                .map(|load| load.map(|zone| zone / mean(&load)))
                .collect()
        };
        let one = relative(SECOND);
        let first: Vec<f64> = loads(SECOND).iter().map(|load| load[0]).collect();
        let whole = load(&bins);
        let per_second = taken.len() as f64 / N as f64 / (all as f64 / SECOND as f64);
        let crossed = taken.iter().filter(|one| one.from != one.to).count();
        Self {
            utilization: mean(&whole),
            one: highest(&one),
            five: highest(&relative(5 * SECOND)),
            first_zone: (lowest(&first), most(&first)),
            load_factors: whole.map(|zone| zone / mean(&whole)),
            cross_zone: crossed as f64 / taken.len() as f64,
            swing: (0..N)
                .filter_map(|zone| {
                    let series: Vec<f64> = one.iter().map(|load| load[zone]).collect();
                    swing(&series, per_second)
                })
                .reduce(f64::min),
        }
    }
}

/// Zones are level when the fullest one, in means of 5 s, is at most so far above the mean,
const LEVEL: f64 = 1.06;
/// and stays so for as many seconds.
const STAYS: usize = 5;

/// How many seconds after `step` zones were level again; `None` if they never were for long enough.
pub(crate) fn level_after(taken: &[Taken], step: Duration) -> Option<f64> {
    let window = 5 * SECOND;
    let begin = step.saturating_sub(Duration::from_secs(5));
    let after: Vec<Taken> = taken
        .iter()
        .filter(|one| one.at >= begin)
        .copied()
        .collect();
    let bins = bins_from(&after, begin);
    let fullest: Vec<f64> = bins
        .windows(window)
        .map(|bins| {
            let load = load(bins);
            most(&load) / mean(&load)
        })
        .collect();
    eprintln!(
        "fullest zone after the step, by second: {:.2?}",
        every(&fullest, SECOND)
    );
    let mut stays = fullest.windows(STAYS * SECOND);
    let first = stays.position(|stay| stay.iter().all(|fullest| *fullest <= LEVEL))?;
    Some(first as f64 / SECOND as f64)
}

fn every(values: &[f64], step: usize) -> Vec<f64> {
    values.iter().step_by(step).copied().collect()
}

/// Utilization of every server over that of all, zone by zone; each zone has these capacities.
pub(crate) fn host_factors(taken: &[Taken], capacities: &[f64]) -> [Vec<f64>; N] {
    let mean = taken.len() as f64 / (N as f64 * ZONE_CAPACITY);
    std::array::from_fn(|zone| {
        let factor = |(host, capacity): (usize, &f64)| {
            let own = taken.iter().filter(|one| one.to == zone);
            let count = own.filter(|one| one.host == host).count();
            count as f64 / capacity / mean
        };
        capacities.iter().enumerate().map(factor).collect()
    })
}

/// Requests by zone of the server, a quarter of a second each; the last one is whole.
fn bins(taken: &[Taken]) -> Vec<[u32; N]> {
    bins_from(taken, taken.first().expect("traffic").at)
}

fn bins_from(taken: &[Taken], start: Duration) -> Vec<[u32; N]> {
    let mut bins: Vec<[u32; N]> = Vec::new();
    for one in taken {
        let bin = usize::try_from((one.at - start).as_millis()).unwrap() * SECOND / 1000;
        bins.resize(bins.len().max(bin + 1), [0; N]);
        bins[bin][one.to] += 1;
    }
    bins.pop();
    bins
}

/// Utilization by zone.
fn load(bins: &[[u32; N]]) -> [f64; N] {
    let seconds = bins.len() as f64 / SECOND as f64;
    let mut load = [0.0; N];
    for bin in bins {
        for (load, count) in load.iter_mut().zip(bin) {
            *load += f64::from(*count) / seconds / ZONE_CAPACITY;
        }
    }
    load
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

fn most(values: &[f64]) -> f64 {
    values.iter().copied().fold(f64::MIN, f64::max)
}

fn lowest(values: &[f64]) -> f64 {
    values.iter().copied().fold(f64::MAX, f64::min)
}

/// Of the fullest zone: average and highest.
fn highest(relative: &[[f64; N]]) -> (f64, f64) {
    let fullest: Vec<f64> = relative.iter().map(|load| most(load)).collect();
    (mean(&fullest), most(&fullest))
}

/// Median time between upward crossings of the mean, if the series moves more than chance would.
fn swing(series: &[f64], per_second: f64) -> Option<f64> {
    let middle = mean(series);
    let square = series.iter().map(|value| (value - middle).powi(2));
    let deviation = (square.sum::<f64>() / series.len() as f64).sqrt();
    let chance = middle / per_second.sqrt();
    if deviation <= DISPERSION.sqrt() * chance {
        return None;
    }
    let mut below = false;
    let mut crossings = Vec::new();
    for (bin, value) in series.iter().enumerate() {
        if *value < middle - HYSTERESIS * deviation {
            below = true;
        } else if *value > middle + HYSTERESIS * deviation && below {
            below = false;
            crossings.push(bin);
        }
    }
    let mut gaps: Vec<_> = crossings.windows(2).map(|pair| pair[1] - pair[0]).collect();
    gaps.sort_unstable();
    let median = gaps.get(gaps.len() / 2)?;
    Some(*median as f64 / SECOND as f64)
}
