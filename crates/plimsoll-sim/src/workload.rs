//! [`Workload`]: request rates and host capacity per zone over time.
//!
//! Demand is a table of rates, one row per [`TICK`], computed before the run and shared by all
//! policies. [`Stream`] converts the rate of one proxy to arrival times, paced or Poisson, exactly:
//! the integral of the rate between two arrivals is 1 (or an exponential draw).

use plimsoll_core::rng::Xoshiro256;

use crate::draws::{self, Purpose};
use crate::faults::Faults;
use crate::num;
use crate::scenario::{Arrivals, EventKind, Scenario, Wave};

/// Resolution of demand: it is constant for this long.
pub(crate) const TICK: u64 = 50_000_000;

#[derive(Clone, Debug)]
pub(crate) struct Workload {
    zones: usize,
    ticks: usize,
    /// Requests per second, by tick, then zone.
    rates: Vec<f64>,
    /// Capacity per zone, with the time from which it applies; sorted.
    capacity: Vec<(u64, Vec<f64>)>,
}

impl Workload {
    pub(crate) fn new(scenario: &Scenario) -> Self {
        let zones = scenario.zones.len();
        let ticks = num::slot(scenario.duration, TICK) + 1;
        let steps = scenario.steps();
        let changes: Vec<(u64, Faults)> = steps
            .iter()
            .map(|&at| (at, Faults::at(scenario, at)))
            .collect();
        let mut rates = Vec::with_capacity(ticks * zones);
        for tick in 0..ticks {
            let at = tick as u64 * TICK;
            let index = changes.partition_point(|(from, _)| *from <= at);
            let (_, faults) = &changes[index.saturating_sub(1)];
            rates.extend(rates_at(scenario, faults, at));
        }
        let capacity = changes
            .iter()
            .map(|(at, faults)| (*at, faults.capacity(scenario)))
            .collect();
        Self {
            zones,
            ticks,
            rates,
            capacity,
        }
    }

    /// Returns the requests per second of each zone at a moment.
    pub(crate) fn rates(&self, at: u64) -> &[f64] {
        let tick = num::slot(at, TICK).min(self.ticks - 1);
        &self.rates[tick * self.zones..(tick + 1) * self.zones]
    }

    /// Returns the requests per second that the usable hosts of each zone can serve at a moment.
    pub(crate) fn capacity(&self, at: u64) -> &[f64] {
        let index = self.capacity.partition_point(|(from, _)| *from <= at);
        &self.capacity[index.saturating_sub(1)].1
    }

    /// Returns the next arrival of a stream; `None` if there is none before the end.
    pub(crate) fn next_arrival(&self, stream: &mut Stream) -> Option<u64> {
        let mut missing = stream.draw();
        loop {
            let tick = num::slot(stream.at, TICK);
            if tick >= self.ticks {
                return None;
            }
            let end = (tick as u64 + 1) * TICK;
            let rate = self.rates[tick * self.zones + stream.zone] * stream.share;
            let expected = rate * num::seconds(end - stream.at);
            if expected > missing {
                stream.at += num::from_seconds(missing / rate);
                return Some(stream.at);
            }
            missing -= expected;
            stream.at = end;
        }
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Stream {
    zone: usize,
    /// Share of the zone's requests, divided by the requests per sample.
    share: f64,
    arrivals: Arrivals,
    /// Time up to which arrivals have been generated.
    at: u64,
    first: bool,
    rng: Xoshiro256,
}

impl Stream {
    /// Creates the arrivals at balancer `number`, which gets `share` of the requests of `zone`.
    pub(crate) fn new(scenario: &Scenario, number: usize, zone: usize, share: f64) -> Self {
        Self {
            zone,
            share: share / f64::from(scenario.requests_per_sample),
            arrivals: scenario.traffic.arrivals,
            at: 0,
            first: true,
            rng: draws::stream(scenario.seed, Purpose::Arrivals, number),
        }
    }

    /// Suppresses arrivals before `at`.
    pub(crate) fn start(&mut self, at: u64) {
        self.at = self.at.max(at);
    }

    /// Draws the expected number of requests until the next arrival. Paced streams start at random
    /// phases.
    fn draw(&mut self) -> f64 {
        let first = std::mem::replace(&mut self.first, false);
        match self.arrivals {
            Arrivals::Paced if first => draws::uniform(&mut self.rng),
            Arrivals::Paced => 1.0,
            Arrivals::Poisson => draws::exponential(&mut self.rng),
        }
    }
}

fn rates_at(scenario: &Scenario, faults: &Faults, at: u64) -> Vec<f64> {
    let mut rates: Vec<f64> = match &scenario.traffic.recorded {
        Some(recorded) => recorded.rates(at),
        None => shares_at(scenario, at)
            .iter()
            .map(|share| share * scenario.traffic.requests_per_second)
            .collect(),
    };
    for wave in &scenario.traffic.waves {
        let factor = wave_factor(wave, at);
        wave.zones.iter().for_each(|&zone| rates[zone] *= factor);
    }
    for event in &scenario.events {
        if let EventKind::Demand {
            zones,
            factor,
            over,
        } = &event.kind
        {
            let reached = ramp(at, event.from, *over) - ramp(at, event.until, *over);
            let factor = 1.0 + (factor - 1.0) * reached;
            zones.iter().for_each(|&zone| rates[zone] *= factor);
        }
    }
    move_from_lost_zones(&mut rates, faults);
    rates
}

/// Returns the split of demand in force: that of the zones, or of the last event that changed it.
fn shares_at(scenario: &Scenario, at: u64) -> Vec<f64> {
    let begun = scenario.events.iter().filter(|event| event.from <= at);
    let last = begun
        .filter_map(|event| match &event.kind {
            EventKind::Shares { shares } => Some((event.from, shares)),
            _ => None,
        })
        .max_by_key(|(from, _)| *from);
    match last {
        Some((_, shares)) => shares.clone(),
        None => scenario.zones.iter().map(|zone| zone.share).collect(),
    }
}

fn wave_factor(wave: &Wave, at: u64) -> f64 {
    let turns = at as f64 / wave.period as f64 + wave.phase;
    1.0 + wave.amplitude * (turns * std::f64::consts::TAU).sin()
}

/// Rises from 0 to 1 over `over`, starting at `from`.
fn ramp(at: u64, from: u64, over: u64) -> f64 {
    if at < from {
        0.0
    } else if at - from >= over {
        1.0
    } else {
        (at - from) as f64 / over as f64
    }
}

/// Redistributes the clients of a lost zone over the others, in proportion to their demand.
fn move_from_lost_zones(rates: &mut [f64], faults: &Faults) {
    let (mut lost, mut kept) = (0.0, 0.0);
    for (rate, zone) in rates.iter_mut().zip(&faults.zones) {
        if zone.proxies_lost {
            lost += std::mem::take(rate);
        } else {
            kept += *rate;
        }
    }
    if lost > 0.0 && kept > 0.0 {
        let factor = (kept + lost) / kept;
        rates.iter_mut().for_each(|rate| *rate *= factor);
    }
}

#[cfg(test)]
mod tests;
