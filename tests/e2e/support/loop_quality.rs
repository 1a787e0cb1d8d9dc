//! Quality of a closed loop, with the definitions of the simulator: utilization of the busiest zone
//! relative to the mean in sliding windows, and oscillation of zones.

use std::time::Duration;

use super::orca_backends::{RequestRecord, ZONE_CAPACITY, ZONES};

const N: usize = ZONES.len();
/// Number of bins per second.
const SECOND: usize = 4;
/// A zone oscillates if its variance is this many times that of independent requests.
const DISPERSION: f64 = 2.5;
/// A crossing counts if the series was this many standard deviations on the other side.
const HYSTERESIS: f64 = 0.5;

/// Measured quality of a loop.
#[derive(Clone, Debug)]
pub(crate) struct Quality {
    /// Mean utilization of all hosts.
    pub(crate) utilization: f64,
    /// Busiest zone relative to the mean in windows of one second: average and maximum.
    pub(crate) one: (f64, f64),
    /// Busiest zone relative to the mean in windows of five seconds: average and maximum.
    pub(crate) five: (f64, f64),
    /// Highest utilization of a zone in windows of five seconds.
    pub(crate) highest_zone: f64,
    /// Minimum and maximum utilization of the first zone in windows of one second.
    pub(crate) first_zone: (f64, f64),
    /// Load of each zone relative to the mean, over the whole time.
    pub(crate) load_factors: [f64; N],
    /// Share of requests that went to another zone.
    pub(crate) cross_zone: f64,
    /// Period in seconds, if a zone oscillates.
    pub(crate) oscillation: Option<f64>,
}

impl Quality {
    /// Computes the quality from requests in order of time.
    pub(crate) fn of(requests: &[RequestRecord]) -> Self {
        let bins = bins(requests);
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
        let per_second = requests.len() as f64 / N as f64 / (all as f64 / SECOND as f64);
        let crossed = requests.iter().filter(|one| one.from != one.to).count();
        Self {
            utilization: mean(&whole),
            one: highest(&one),
            five: highest(&relative(5 * SECOND)),
            highest_zone: loads(5 * SECOND)
                .iter()
                .map(|load| most(load))
                .fold(0.0, f64::max),
            first_zone: (lowest(&first), most(&first)),
            load_factors: whole.map(|zone| zone / mean(&whole)),
            cross_zone: crossed as f64 / requests.len() as f64,
            oscillation: (0..N)
                .filter_map(|zone| {
                    let series: Vec<f64> = one.iter().map(|load| load[zone]).collect();
                    oscillation(&series, per_second)
                })
                .reduce(f64::min),
        }
    }
}

/// Zones are even if the busiest one, in windows of 5 s, is at most this far above the mean,
const EVEN: f64 = 1.06;
/// for at least this many seconds.
const SETTLED_SECONDS: usize = 5;

/// Returns the seconds after `step` until zones are even; `None` if they do not stay even.
pub(crate) fn settling_time(requests: &[RequestRecord], step: Duration) -> Option<f64> {
    let window = 5 * SECOND;
    let begin = step.saturating_sub(Duration::from_secs(5));
    let after: Vec<RequestRecord> = requests
        .iter()
        .filter(|one| one.at >= begin)
        .copied()
        .collect();
    let bins = bins_from(&after, begin);
    let busiest: Vec<f64> = bins
        .windows(window)
        .map(|bins| {
            let load = load(bins);
            most(&load) / mean(&load)
        })
        .collect();
    eprintln!(
        "busiest zone after the step, by second: {:.2?}",
        every(&busiest, SECOND)
    );
    let mut windows = busiest.windows(SETTLED_SECONDS * SECOND);
    let first = windows.position(|window| window.iter().all(|busiest| *busiest <= EVEN))?;
    Some(first as f64 / SECOND as f64)
}

fn every(values: &[f64], step: usize) -> Vec<f64> {
    values.iter().step_by(step).copied().collect()
}

/// Returns the utilization of every server relative to the mean, by zone; each zone has these
/// capacities.
pub(crate) fn host_factors(requests: &[RequestRecord], capacities: &[f64]) -> [Vec<f64>; N] {
    let mean = requests.len() as f64 / (N as f64 * ZONE_CAPACITY);
    std::array::from_fn(|zone| {
        let factor = |(host, capacity): (usize, &f64)| {
            let own = requests.iter().filter(|one| one.to == zone);
            let count = own.filter(|one| one.host == host).count();
            count as f64 / capacity / mean
        };
        capacities.iter().enumerate().map(factor).collect()
    })
}

/// Returns the utilization of the busiest server relative to the mean in sliding windows of five
/// seconds, average and maximum; each zone has these capacities.
pub(crate) fn busiest_host(requests: &[RequestRecord], capacities: &[f64]) -> (f64, f64) {
    let start = requests.first().expect("traffic").at;
    let hosts = N * capacities.len();
    let mut bins: Vec<Vec<f64>> = Vec::new();
    for one in requests {
        let bin = usize::try_from((one.at - start).as_millis()).unwrap() * SECOND / 1000;
        bins.resize(bins.len().max(bin + 1), vec![0.0; hosts]);
        bins[bin][one.to * capacities.len() + one.host] += 1.0;
    }
    bins.pop();
    let relative = bins.windows(5 * SECOND).map(|window| {
        let sum = |host: usize| window.iter().map(|bin| bin[host]).sum::<f64>();
        let all: f64 = (0..hosts).map(sum).sum();
        let per_capacity = all / (N as f64 * capacities.iter().sum::<f64>());
        let load = |host: usize| sum(host) / capacities[host % capacities.len()] / per_capacity;
        (0..hosts).map(load).fold(f64::MIN, f64::max)
    });
    let relative: Vec<f64> = relative.collect();
    (mean(&relative), most(&relative))
}

/// Counts requests by zone of the server in bins of 250 ms; drops the last, incomplete bin.
fn bins(requests: &[RequestRecord]) -> Vec<[u32; N]> {
    bins_from(requests, requests.first().expect("traffic").at)
}

fn bins_from(requests: &[RequestRecord], start: Duration) -> Vec<[u32; N]> {
    let mut bins: Vec<[u32; N]> = Vec::new();
    for one in requests {
        let bin = usize::try_from((one.at - start).as_millis()).unwrap() * SECOND / 1000;
        bins.resize(bins.len().max(bin + 1), [0; N]);
        bins[bin][one.to] += 1;
    }
    bins.pop();
    bins
}

/// Returns the utilization by zone.
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

/// Returns average and maximum of the busiest zone.
fn highest(relative: &[[f64; N]]) -> (f64, f64) {
    let busiest: Vec<f64> = relative.iter().map(|load| most(load)).collect();
    (mean(&busiest), most(&busiest))
}

/// Returns the median time between upward crossings of the mean, if the variance is more than
/// random.
fn oscillation(series: &[f64], per_second: f64) -> Option<f64> {
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
