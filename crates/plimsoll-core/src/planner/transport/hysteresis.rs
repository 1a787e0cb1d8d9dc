//! [`Hysteresis`]: which demand a plan is made for, so that zones at their target do not swing
//! between keeping all of their requests and sending some away.
//!
//! Demand arrives from outside and bounds do not depend on where requests are sent, so no loop can
//! swing: each change of plan only closes and opens connections. A zone begins to spill after one
//! report of too much demand, with the newest values leading, and ends after its demand has been
//! lower for a while. Demand is then averaged twice, and the higher average counts: it follows a
//! rise within seconds and a fall within a minute.

use std::collections::BTreeMap;
use std::time::Duration;

use super::Problem;
use crate::model::locality::Locality;
use crate::time::Instant;

/// Half of the dead band, in hundredths of the bound.
const BAND: u64 = 2;
/// Time constant of the average that leads when demand rises.
const FAST: Duration = Duration::from_secs(10);
/// Time constant of the average that leads when demand falls.
const SLOW: Duration = Duration::from_secs(60);
/// Reports in a row below the band after which a zone no longer spills…
const REPORTS_BELOW: u32 = 3;
/// …if they cover at least this time.
const TIME_BELOW: Duration = Duration::from_secs(60);
/// Which zones of one service spill, and the averages of their demand.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Hysteresis {
    spilling: BTreeMap<Locality, Spilling>,
}

/// A zone that spills, as replicas of a control plane share it: with ages, because each has a clock
/// of its own.
#[derive(Clone, Debug, PartialEq)]
pub struct SharedSpilling {
    pub locality: Locality,
    /// Averages of the demand, in thousandths of a request per second.
    pub fast: f64,
    pub slow: f64,
    /// Time since the last report.
    pub age: Duration,
    /// Reports in a row below the band, and the time since the first.
    pub below: Option<(u32, Duration)>,
}

#[derive(Clone, Debug, PartialEq)]
struct Spilling {
    at: Instant,
    fast: f64,
    slow: f64,
    /// Reports in a row below the band, and the time of the first.
    below: Option<(u32, Instant)>,
}

impl Hysteresis {
    /// Handles a report of the demand of all zones, whose localities are in the order of the
    /// problem. Returns the demand to plan for. With [`Objective::LEVEL`](super::Objective::LEVEL)
    /// that is the reported one: all zones take part in every change anyway.
    pub fn handle_report(
        &mut self,
        localities: &[Locality],
        problem: &Problem,
        now: Instant,
    ) -> Vec<u64> {
        self.spilling.retain(|zone, _| localities.contains(zone));
        if problem.objective.is_level() {
            self.spilling.clear();
            return problem.zones.iter().map(|zone| zone.demand).collect();
        }
        let bounds = problem.zones.iter().zip(&problem.bounds);
        let zones = localities.iter().zip(bounds);
        zones
            .map(|(zone, (load, bound))| self.planned(zone, load.demand, *bound, now))
            .collect()
    }

    /// Returns the zones that spill, sorted.
    pub fn spilling(&self) -> impl Iterator<Item = &Locality> {
        self.spilling.keys()
    }

    /// Returns what other replicas need to go on from here.
    pub fn shared(&self, now: Instant) -> Vec<SharedSpilling> {
        let age = |at| now.saturating_duration_since(at);
        let zones = self.spilling.iter();
        let shared = zones.map(|(zone, spilling)| SharedSpilling {
            locality: zone.clone(),
            fast: spilling.fast,
            slow: spilling.slow,
            age: age(spilling.at),
            below: spilling.below.map(|(reports, at)| (reports, age(at))),
        });
        shared.collect()
    }

    /// Goes on from where another replica is. A replica younger than an age takes its own start
    /// for the time of the report.
    pub fn adopted(shared: &[SharedSpilling], now: Instant) -> Self {
        let at = |age: Duration| {
            let age = u64::try_from(age.as_nanos()).unwrap_or(u64::MAX);
            Instant::from_nanos(now.as_nanos().saturating_sub(age))
        };
        let spilling = shared.iter().map(|zone| {
            let below = zone.below.map(|(reports, age)| (reports, at(age)));
            let spilling = Spilling {
                at: at(zone.age),
                fast: zone.fast,
                slow: zone.slow,
                below,
            };
            (zone.locality.clone(), spilling)
        });
        Self {
            spilling: spilling.collect(),
        }
    }

    fn planned(&mut self, zone: &Locality, demand: u64, bound: u64, now: Instant) -> u64 {
        let percent = |percent: u64| u128::from(bound) * u128::from(percent);
        let in_percent = u128::from(demand) * 100;
        let Some(spilling) = self.spilling.get_mut(zone) else {
            if in_percent <= percent(100 + BAND) {
                return demand.min(bound);
            }
            let begun = Spilling::new(demand, now);
            self.spilling.insert(zone.clone(), begun);
            return demand;
        };
        let planned = spilling.follow(demand, now);
        if in_percent >= percent(100 - BAND) {
            spilling.below = None;
        } else if spilling.is_over(now) && planned <= bound {
            self.spilling.remove(zone);
        }
        planned
    }
}

impl Spilling {
    fn new(demand: u64, now: Instant) -> Self {
        Self {
            at: now,
            fast: float(demand),
            slow: float(demand),
            below: None,
        }
    }

    /// Counts a report below the band; returns whether that has been so for long enough.
    fn is_over(&mut self, now: Instant) -> bool {
        let (reports, since) = self.below.unwrap_or((0, now));
        self.below = Some((reports + 1, since));
        reports + 1 >= REPORTS_BELOW && now.saturating_duration_since(since) >= TIME_BELOW
    }

    /// Moves the averages, and returns the demand to plan for.
    fn follow(&mut self, demand: u64, now: Instant) -> u64 {
        let passed = now.saturating_duration_since(self.at).as_secs_f64();
        let towards = |average: f64, tau: Duration| {
            let kept = (-passed / tau.as_secs_f64()).exp();
            float(demand) + (average - float(demand)) * kept
        };
        self.fast = towards(self.fast, FAST);
        self.slow = towards(self.slow, SLOW);
        self.at = self.at.max(now);
        whole(self.fast.max(self.slow))
    }
}

#[expect(clippy::cast_precision_loss, reason = "demand is at most 2^52")]
const fn float(demand: u64) -> f64 {
    demand as f64
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "demand is 0 to 2^52"
)]
fn whole(demand: f64) -> u64 {
    demand.round() as u64
}
