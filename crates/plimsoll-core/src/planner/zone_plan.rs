//! [`ZonePlan`]: which zones of a service serve the requests of which, by the objective of the
//! service (decision 0039).
//!
//! Demand of all fleets together and the healthy hosts of each zone become a problem of
//! `transport`. Its solution is delivered in two forms: [`ZonePlan::row`] as locality weights
//! ([`planned_weights`](super::weights::planned_weights)), and [`ZonePlan::virtual_demand`] to data
//! planes that compute zone-aware routing themselves, where there is one price. `words` says why a
//! zone sends requests away, `bill` what that costs.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::cost::Cost;
use super::fractions::{ZoneFraction, assign_shares, largest_remainder, largest_remainder_f64};
use super::transport::{
    Hysteresis, Objective, Prices, Problem, ROW_PARTS, SharedSpilling, Solution, ZoneLoad,
};
use crate::counts::HostSetCounts;
use crate::model::locality::Locality;
use crate::time::Instant;
use crate::units::{BASIS_POINTS, BasisPoints, FieldError};

mod bill;
mod words;

use bill::BillOnce;
pub use bill::PlanBill;

/// Thousandths of a request: the unit of the planning problem.
const MILLI: f64 = 1000.0;
/// A row that moves by less than this, in parts of [`ROW_PARTS`], is not worth an update: half a
/// percent, as with the demand that plans follow by default.
const MATERIAL: u64 = ROW_PARTS / 200;
/// Highest capacity of a host, in requests per second.
const MAX_CAPACITY: f64 = 1e6;

/// What a service wants of its zones, what its hosts can do, and what a crossing costs.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ZoneGoal {
    pub objective: Objective,
    /// Needed for a target of utilization; `None` counts hosts.
    pub capacity: Option<HostCapacity>,
    pub cost: Arc<Cost>,
}

/// Plans for one service: what has to be remembered between reports of demand.
#[derive(Clone, Debug, Default)]
pub struct ZonePlanner {
    hysteresis: Hysteresis,
    known: Option<KnownPrices>,
}

/// Prices of a problem: to find their rings takes the cube of the number of zones.
#[derive(Clone, Debug)]
struct KnownPrices {
    zones: Vec<Locality>,
    cost: Arc<Cost>,
    prices: Prices,
}

/// Requests per second that a host of weight 1 serves at utilization 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct HostCapacity {
    milli: u64,
    /// Weight of a host like most: 1 unless weights are learned.
    typical_weight: u32,
}

/// What one zone has and gets in a [`ZonePlan`], in requests per second.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct PlannedZone {
    pub locality: Locality,
    /// Requests that arrive at the proxies of the zone, as measured.
    pub demand: f64,
    /// Requests that its healthy hosts serve at utilization 1.
    pub capacity: f64,
    /// Requests that it may serve: its part of the target, or what demand forces on all zones.
    pub bound: f64,
    /// Requests that it serves of its own.
    pub kept: f64,
    /// Requests that it serves of all zones.
    pub served: f64,
    /// Total weight of its healthy hosts.
    pub weight: u64,
}

/// Which zone serves the requests of which.
#[derive(Clone, Debug, PartialEq)]
pub struct ZonePlan {
    goal: ZoneGoal,
    /// In the order of their localities, which `rows` have, too.
    zones: Vec<PlannedZone>,
    is_forced: bool,
    virtual_demand: Vec<ZoneFraction>,
    solution: Solution,
    bill: BillOnce,
    /// A row for each zone, in parts of [`ROW_PARTS`].
    rows: Vec<Vec<u64>>,
}

/// What a plan is made of.
#[derive(Clone, Copy, Debug)]
pub struct ZoneInputs<'a> {
    /// Measured demand of all fleets ([`combined`](super::fractions::combined)).
    pub demand: &'a [ZoneFraction],
    /// Hosts of the service at priority 0.
    pub upstream: &'a HostSetCounts,
    /// Zones whose requests fail. What a waterfall leaves free there is no headroom: they keep
    /// requests of their own, which show whether they still fail.
    pub failing: &'a BTreeSet<Locality>,
}

impl HostCapacity {
    /// Checks that a capacity is above 0 and at most a million requests per second. It is rounded
    /// to thousandths of a request.
    pub fn requests_per_second(rate: f64) -> Result<Self, FieldError> {
        let milli = whole(rate * MILLI);
        if rate <= MAX_CAPACITY && milli > 0 {
            return Ok(Self {
                milli,
                typical_weight: 1,
            });
        }
        let reason = format!("{rate} is not above 0 and at most {MAX_CAPACITY}");
        Err(FieldError::new("requests_per_second", reason))
    }

    /// Sets the weight that most hosts have, at least 1: what is counted in hosts counts in those.
    #[must_use]
    pub const fn with_typical_weight(self, weight: u32) -> Self {
        Self {
            typical_weight: if weight == 0 { 1 } else { weight },
            ..self
        }
    }

    /// Returns the capacity in requests per second.
    pub fn rate(self) -> f64 {
        per_second(self.milli)
    }

    /// Returns what a host serves that is like most.
    pub fn of_typical_host(self) -> f64 {
        self.rate() * f64::from(self.typical_weight)
    }
}

impl ZoneGoal {
    /// Whether plans differ from those that every fleet makes by itself.
    pub fn needs_plan(&self) -> bool {
        !self.objective.is_level() || self.needs_rows()
    }

    /// Whether plans can be delivered as rows only: data planes that compute zone-aware routing
    /// themselves divide what leaves a zone over all others alike.
    pub fn needs_rows(&self) -> bool {
        !self.cost.is_uniform()
    }

    /// Returns the hosts of weight 1, or, if weights are learned, the hosts like most that a zone
    /// needs for its own `demand` to be at the target; `None` without a target.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a float saturates when it is cast to an integer"
    )]
    pub fn wanted_hosts(&self, demand: f64) -> Option<u64> {
        let target = self.objective.target_utilization() * self.capacity?.of_typical_host();
        // Rounding must not ask for a host more than a demand that fits exactly.
        (target > 0.0).then(|| (demand / target - 1e-9).ceil().max(0.0) as u64)
    }
}

impl ZonePlanner {
    /// Plans for a report of demand. An error if no zone has capacity, or if numbers are absurd.
    pub fn plan(
        &mut self,
        goal: &ZoneGoal,
        inputs: ZoneInputs<'_>,
        now: Instant,
    ) -> Result<ZonePlan, FieldError> {
        let zones = inputs.zones(goal);
        let names: Vec<Locality> = zones.keys().map(|zone| (*zone).clone()).collect();
        let loads: Vec<ZoneLoad> = zones.values().map(|zone| zone.load).collect();
        let reported = Problem::try_new(&loads, goal.objective)?;
        let demand = self.hysteresis.handle_report(&names, &reported, now);
        let planned: Vec<ZoneLoad> = loads
            .iter()
            .zip(demand)
            .map(|(load, demand)| ZoneLoad { demand, ..*load })
            .collect();
        let problem = Problem::try_new(&planned, goal.objective)?;
        let solution = problem.solve(&self.prices(&goal.cost, names)?)?;
        let served = solution.loads();
        let zone = |(index, (name, zone)): (usize, (&&Locality, &Zone<'_>))| PlannedZone {
            locality: (*name).clone(),
            demand: zone.measured.map_or(0.0, |zone| zone.rate_per_second),
            capacity: per_second(zone.capacity),
            bound: per_second(problem.bounds()[index]),
            kept: per_second(solution.kept()[index]),
            served: per_second(served[index]),
            weight: zone.weight,
        };
        Ok(ZonePlan {
            goal: goal.clone(),
            is_forced: problem.is_forced(),
            virtual_demand: virtual_demand(&solution, &zones),
            rows: (0..planned.len()).map(|zone| solution.row(zone)).collect(),
            zones: zones.iter().enumerate().map(zone).collect(),
            solution,
            bill: BillOnce::default(),
        })
    }

    /// Returns which zones spill, for other replicas, as of `now`.
    pub fn spilling(&self, now: Instant) -> Vec<SharedSpilling> {
        self.hysteresis.shared(now)
    }

    /// Plans the next report as the replica does whose plan all deliver.
    pub fn adopt(&mut self, spilling: &[SharedSpilling], now: Instant) {
        self.hysteresis = Hysteresis::adopted(spilling, now);
    }

    fn prices(&mut self, cost: &Arc<Cost>, zones: Vec<Locality>) -> Result<Prices, FieldError> {
        let is_known = |known: &&KnownPrices| known.cost == *cost && known.zones == zones;
        if let Some(known) = self.known.as_ref().filter(is_known) {
            return Ok(known.prices.clone());
        }
        let prices = cost.prices(&zones)?;
        self.known = Some(KnownPrices {
            zones,
            cost: Arc::clone(cost),
            prices: prices.clone(),
        });
        Ok(prices)
    }
}

impl ZonePlan {
    /// Returns this plan with the split of `before`, unless a zone would send half a percent of its
    /// requests elsewhere than there: an update makes receivers rebuild their tables.
    #[must_use]
    pub fn settled(self, before: &Self) -> Self {
        let hosts = |plan: &Self| -> Vec<(Locality, u64)> {
            let zones = plan.zones.iter();
            zones
                .map(|zone| (zone.locality.clone(), zone.weight))
                .collect()
        };
        let cells = self.rows.iter().flatten();
        let is_same = self.goal == before.goal
            && hosts(&self) == hosts(before)
            && cells
                .zip(before.rows.iter().flatten())
                .all(|(own, other)| own.abs_diff(*other) < MATERIAL);
        if !is_same {
            return self;
        }
        Self {
            virtual_demand: before.virtual_demand.clone(),
            rows: before.rows.clone(),
            ..self
        }
    }

    /// Plans with the same goal for requests per second and hosts that somebody supposes. A
    /// supposed moment has no past, so nothing is damped.
    pub fn supposing(
        &self,
        demand: &[(Locality, f64)],
        upstream: &HostSetCounts,
    ) -> Result<Self, FieldError> {
        let zone = |(locality, rate): &(Locality, f64)| ZoneFraction {
            locality: locality.clone(),
            fraction: BasisPoints::ZERO,
            rate_per_second: *rate,
            reporters: 1,
            estimated: false,
        };
        let demand: Vec<ZoneFraction> = demand.iter().map(zone).collect();
        let inputs = ZoneInputs {
            demand: &demand,
            upstream,
            failing: &BTreeSet::new(),
        };
        ZonePlanner::default().plan(&self.goal, inputs, Instant::ORIGIN)
    }

    /// Returns the goal that the plan was made for.
    pub const fn goal(&self) -> &ZoneGoal {
        &self.goal
    }

    /// Returns all zones with demand or hosts, sorted.
    pub fn zones(&self) -> &[PlannedZone] {
        &self.zones
    }

    /// Whether demand exceeds the target of all zones together, so that all are equally full.
    pub const fn is_forced(&self) -> bool {
        self.is_forced
    }

    /// Returns fractions from which zone-aware routing computes this plan in a data plane. With
    /// more than one price that is not possible ([`ZoneGoal::needs_rows`]): then measured demand.
    pub fn virtual_demand(&self) -> &[ZoneFraction] {
        &self.virtual_demand
    }

    /// Returns what the requests between zones cost.
    pub fn bill(&self) -> PlanBill {
        self.bill.get(&self.goal, &self.solution)
    }

    /// Returns the share of the requests of `from` that each zone serves, in parts of
    /// [`ROW_PARTS`]; `None` for a zone without demand and hosts.
    pub fn row(&self, from: &Locality) -> Option<impl Iterator<Item = (&Locality, u64)>> {
        let index = self.index(from)?;
        let zones = self.zones.iter().map(|zone| &zone.locality);
        Some(zones.zip(self.rows.get(index)?.iter().copied()))
    }

    /// Whether requests go where they go by another plan.
    pub fn has_same_split(&self, other: &Self) -> bool {
        self.rows == other.rows && self.virtual_demand == other.virtual_demand
    }

    /// Returns the plan for one zone.
    pub fn zone(&self, zone: &Locality) -> Option<&PlannedZone> {
        self.zones.get(self.index(zone)?)
    }

    fn index(&self, zone: &Locality) -> Option<usize> {
        let by_name = |other: &PlannedZone| other.locality.cmp(zone);
        self.zones.binary_search_by(by_name).ok()
    }
}

/// A zone of the problem.
struct Zone<'a> {
    load: ZoneLoad,
    /// Capacity of all healthy hosts, whether they fail or not.
    capacity: u64,
    weight: u64,
    measured: Option<&'a ZoneFraction>,
}

impl<'a> ZoneInputs<'a> {
    fn zones(&self, goal: &ZoneGoal) -> BTreeMap<&'a Locality, Zone<'a>> {
        let measured: BTreeMap<_, _> = self
            .demand
            .iter()
            .map(|zone| (&zone.locality, zone))
            .collect();
        let mut weights: BTreeMap<&Locality, u64> = BTreeMap::new();
        for slot in &self.upstream.localities {
            *weights.entry(&slot.locality).or_default() += slot.healthy_weight;
        }
        let names: BTreeSet<&Locality> = measured.keys().chain(weights.keys()).copied().collect();
        let of_host = goal.capacity.map_or(1, |capacity| capacity.milli);
        let zone = |name: &'a Locality| {
            let measured = measured.get(name).copied();
            let demand = measured.map_or(0, |zone| whole(zone.rate_per_second * MILLI));
            let weight = weights.get(name).copied().unwrap_or(0);
            let capacity = weight.saturating_mul(of_host);
            let usable = match goal.objective.capacity_for(demand) {
                Some(needed) if self.failing.contains(name) => capacity.min(needed),
                _ => capacity,
            };
            let load = ZoneLoad {
                demand,
                capacity: usable,
            };
            (
                name,
                Zone {
                    load,
                    capacity,
                    weight,
                    measured,
                },
            )
        };
        names.into_iter().map(zone).collect()
    }
}

fn virtual_demand(solution: &Solution, zones: &BTreeMap<&Locality, Zone<'_>>) -> Vec<ZoneFraction> {
    let zone = |(locality, zone): (&&Locality, &Zone<'_>)| ZoneFraction {
        locality: (*locality).clone(),
        fraction: BasisPoints::ZERO,
        rate_per_second: zone.measured.map_or(0.0, |zone| zone.rate_per_second),
        reporters: zone.measured.map_or(0, |zone| zone.reporters),
        estimated: zone.measured.is_some_and(|zone| zone.estimated),
    };
    let mut fractions: Vec<ZoneFraction> = zones.iter().map(zone).collect();
    let is_usable = |zone: &Zone<'_>| zone.load.capacity == zone.capacity;
    let shares = if !solution.prices().is_uniform() {
        let demand = solution.problem().zones().iter().map(|zone| zone.demand);
        let demand = largest_remainder(&demand.collect::<Vec<_>>(), BASIS_POINTS);
        demand.or_else(|| largest_remainder(solution.problem().bounds(), BASIS_POINTS))
    } else if zones.values().all(is_usable) {
        let weights = solution.virtual_demand().unwrap_or_default();
        largest_remainder(&weights, BASIS_POINTS)
    } else {
        largest_remainder_f64(&with_all_hosts(solution, zones), BASIS_POINTS)
    };
    let Some(shares) = shares else {
        return Vec::new();
    };
    assign_shares(&mut fractions, shares);
    fractions
}

/// Returns virtual demand for data planes that count all hosts, also those that the plan leaves out
/// because their requests fail. A zone that sends requests away keeps the share `capacity ÷ demand`
/// there, and what it sends is divided by what others have of capacity beyond their demand.
fn with_all_hosts(solution: &Solution, zones: &BTreeMap<&Locality, Zone<'_>>) -> Vec<f64> {
    let problem = solution.problem();
    let (kept, served) = (solution.kept(), solution.loads());
    let all: u64 = zones.values().map(|zone| zone.capacity).sum();
    let bounds: u64 = problem.bounds().iter().sum();
    let capacity: Vec<f64> = zones
        .values()
        .map(|zone| ratio(zone.capacity, all))
        .collect();
    let received: u64 = served.iter().sum::<u64>() - kept.iter().sum::<u64>();
    let sent = |index: usize| {
        let demand = problem.zones()[index].demand;
        match kept[index] {
            _ if demand <= kept[index] => None,
            0 => Some(ratio(demand, bounds)),
            kept => Some(capacity[index] * ratio(demand, kept)),
        }
    };
    let sending: Vec<Option<f64>> = (0..zones.len()).map(sent).collect();
    let beyond = sending.iter().zip(&capacity);
    let beyond: f64 = beyond
        .filter_map(|(sending, capacity)| Some((*sending)? - capacity))
        .sum();
    let demand = |index: usize| {
        let part = ratio(served[index] - kept[index], received);
        sending[index].unwrap_or_else(|| (capacity[index] - beyond * part).max(0.0))
    };
    (0..zones.len()).map(demand).collect()
}

#[expect(clippy::cast_precision_loss, reason = "amounts are at most 2^52")]
fn ratio(part: u64, whole: u64) -> f64 {
    if whole == 0 {
        return 0.0;
    }
    part as f64 / whole as f64
}

/// Returns whole units; negative and invalid amounts are 0.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a float saturates when it is cast to an integer"
)]
fn whole(amount: f64) -> u64 {
    amount.round() as u64
}

#[expect(clippy::cast_precision_loss, reason = "amounts are at most 2^52")]
fn per_second(milli: u64) -> f64 {
    milli as f64 / MILLI
}

#[cfg(test)]
mod tests;
