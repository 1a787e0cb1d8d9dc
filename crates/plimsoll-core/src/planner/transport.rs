//! [`Problem`]: which zone serves the requests of which, at the least cost, so that no zone is
//! fuller than its target: the transportation problem behind every objective of a service.
//!
//! Zone *i* has demand `d_i` and capacity `c_i`. With a target utilization `u` a zone may serve
//! `c_j · max(u, Σd ÷ Σc)`: its bound is the target, or what demand forces upon all zones. Within
//! the bounds the cost `Σ k_ij x_ij` is the least. [`Objective::LEVEL`] is the target 0: then all
//! bounds bind, and every zone is equally full. There is no other code path for it, so a plan
//! moves continuously when demand grows past the target.
//!
//! `prices` finds rings in prices, and says which problems are solved ring by ring (here): one
//! price and ultrametric prices, exactly. `matrix` solves the others. Numbers are integers and the
//! order of zones decides ties, so that all replicas make the same plan.

use super::fractions::largest_remainder;
use crate::units::FieldError;

mod hysteresis;
mod matrix;
mod objective;
mod prices;
mod shortest_paths;
mod solutions;
mod steady;

pub use hysteresis::{Hysteresis, SharedSpilling};
pub use objective::Objective;
pub use prices::Prices;
use prices::{Group, Structure};
pub use solutions::Solutions;

/// Sum of demand, and of capacity, that a problem may have. Both are exact as floating-point
/// numbers, also with a first request more, and a product of two fits 128 bits.
const MAX_TOTAL: u64 = 1 << 52;
/// Parts of which the shares in a [`Solution::row`] are. A basis point would be too coarse: among a
/// hundred zones it is a percent of a zone.
pub const ROW_PARTS: u64 = 1_000_000;
/// Bits that the amounts of a row have before they are rounded to parts.
const ROW_BITS: u32 = 36;
/// Bits by which a problem is enlarged to see where the first request of a zone would go…
const FIRST_REQUEST_SCALE: u32 = 30;
/// …and bits by which that request is smaller than all demand.
const FIRST_REQUEST_BITS: u32 = 20;

/// Demand and capacity of a zone, both in one unit, such as thousandths of a request per second.
/// Amounts are whole units.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ZoneLoad {
    /// Requests that arrive at the proxies of the zone, those of all fleets together.
    pub demand: u64,
    /// Requests that the hosts of the zone serve at utilization 1.
    pub capacity: u64,
}

/// Demand, capacity and bound of every zone of one service.
///
/// ```
/// use plimsoll_core::planner::transport::{Objective, Prices, Problem, ZoneLoad};
///
/// let zones = [60_000, 20_000, 20_000].map(|demand| ZoneLoad { demand, capacity: 66_000 });
/// let prices = Prices::uniform(3);
/// let level = Problem::try_new(&zones, Objective::LEVEL)?.solve(&prices)?;
/// assert_eq!(level.crossing(), 26_666); // thousandths of a request per second
/// let waterfall = Problem::try_new(&zones, Objective::waterfall(0.8)?)?.solve(&prices)?;
/// assert_eq!(waterfall.crossing(), 7_200);
/// # Ok::<(), plimsoll_core::units::FieldError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    zones: Vec<ZoneLoad>,
    objective: Objective,
    bounds: Vec<u64>,
}

/// The cheapest plan for a [`Problem`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Solution {
    problem: Problem,
    prices: Prices,
    /// What each zone serves of its own demand.
    kept: Vec<u64>,
    transfers: Vec<Transfer>,
    cost: u128,
}

/// Requests that cross zones: each zone of `from` sends to the zones of `to` in the proportion of
/// their amounts. Both lists sum to `amount`.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Transfer {
    from: Vec<(usize, u64)>,
    to: Vec<(usize, u64)>,
    amount: u64,
}

impl Problem {
    /// Computes the bounds. An error if no zone has capacity, or demand or capacity are absurd.
    pub fn try_new(zones: &[ZoneLoad], objective: Objective) -> Result<Self, FieldError> {
        let total = |field, of: fn(&ZoneLoad) -> u64| {
            let sum: u128 = zones.iter().map(|zone| u128::from(of(zone))).sum();
            let absurd = || FieldError::new(field, "the sum over all zones exceeds 2^52");
            (sum <= u128::from(MAX_TOTAL))
                .then_some(())
                .ok_or_else(absurd)
        };
        total("demand", |zone| zone.demand)?;
        total("capacity", |zone| zone.capacity)?;
        let no_capacity = || FieldError::new("capacity", "no zone has any");
        Self::new(zones.to_vec(), objective).ok_or_else(no_capacity)
    }

    /// `None` if no zone has capacity.
    fn new(zones: Vec<ZoneLoad>, objective: Objective) -> Option<Self> {
        let demand = zones.iter().map(|zone| zone.demand).sum();
        let capacity = zones.iter().map(|zone| zone.capacity).sum();
        let weights: Vec<u64> = zones.iter().map(|zone| zone.capacity).collect();
        let allowed: u64 = objective.of(capacity).max(demand);
        // Each bound is less than one unit off, and together they hold all demand.
        let bounds = largest_remainder(&weights, allowed)?;
        Some(Self {
            zones,
            objective,
            bounds,
        })
    }

    /// Returns the demand and capacity that the problem was made of.
    pub fn zones(&self) -> &[ZoneLoad] {
        &self.zones
    }

    /// Returns what each zone may serve.
    pub fn bounds(&self) -> &[u64] {
        &self.bounds
    }

    /// Whether demand exceeds the target of all zones together, so that all are equally full.
    pub fn is_forced(&self) -> bool {
        let demand = self.zones.iter().map(|zone| zone.demand);
        demand.sum::<u64>() == self.bounds.iter().sum::<u64>()
    }

    /// Finds the cheapest plan. An error if `prices` are for another number of zones.
    pub fn solve(&self, prices: &Prices) -> Result<Solution, FieldError> {
        if prices.zones() != self.zones.len() {
            let reason = format!("for {} zones, not {}", prices.zones(), self.zones.len());
            return Err(FieldError::new("prices", reason));
        }
        let demand = || self.zones.iter().map(|zone| zone.demand);
        let mut kept: Vec<u64> = demand()
            .zip(&self.bounds)
            .map(|(demand, bound)| demand.min(*bound))
            .collect();
        let left = |of: &dyn Fn(usize) -> u64| -> Vec<u64> {
            (0..kept.len()).map(|zone| of(zone) - kept[zone]).collect()
        };
        let excess = left(&|zone| self.zones[zone].demand);
        let headroom = left(&|zone| self.bounds[zone]);
        let transfers = match prices.structure() {
            _ if excess.iter().all(|excess| *excess == 0) => Vec::new(),
            Structure::Rings(rings) => fill(rings, excess, headroom),
            Structure::Matrix { local_first: true } => matrix::solve(prices, &excess, &headroom),
            // Where a detour is cheaper than the direct way, zones may rather send their own
            // requests away and serve others.
            Structure::Matrix { local_first: false } => {
                let demand: Vec<u64> = demand().collect();
                let transfers = matrix::solve(prices, &demand, &self.bounds);
                kept.fill(0);
                transfers
            }
        };
        Ok(Solution::new(self, prices, kept, transfers))
    }

    /// Returns the problem in a unit `2^FIRST_REQUEST_SCALE` times smaller, with a millionth of its
    /// demand added in `zone`.
    fn with_first_request(&self, zone: usize) -> Option<Self> {
        let total: u64 = self.zones.iter().map(|zone| zone.demand).sum();
        let room = (MAX_TOTAL / self.largest_total().max(1)).max(1).ilog2();
        let scale = FIRST_REQUEST_SCALE.min(room.saturating_sub(1));
        let mut zones = self.zones.clone();
        for zone in &mut zones {
            zone.demand <<= scale;
            zone.capacity <<= scale;
        }
        // Without any demand it is still large enough to be divided in proportion.
        let least = 1 << (scale * 2 / 3);
        zones.get_mut(zone)?.demand = ((total << scale) >> FIRST_REQUEST_BITS).max(least);
        Self::new(zones, self.objective)
    }

    fn largest_total(&self) -> u64 {
        let sum = |of: fn(&ZoneLoad) -> u64| self.zones.iter().map(of).sum::<u64>();
        sum(|zone| zone.demand).max(sum(|zone| zone.capacity))
    }
}

/// Moves excess to headroom ring by ring, the cheapest first: in each group of zones in proportion
/// to what is left. Rings are nested, so this costs the least.
fn fill(rings: &[Vec<Group>], mut excess: Vec<u64>, mut headroom: Vec<u64>) -> Vec<Transfer> {
    let mut transfers = Vec::new();
    for group in rings.iter().flatten() {
        let (from, to) = (present(group, &excess), present(group, &headroom));
        let amount = sum(&from).min(sum(&to));
        if amount == 0 {
            continue;
        }
        let transfer = Transfer {
            from: proportional(from, amount),
            to: proportional(to, amount),
            amount,
        };
        let taken = |left: &mut [u64], by: &[(usize, u64)]| {
            by.iter().for_each(|&(zone, amount)| left[zone] -= amount);
        };
        taken(&mut excess, &transfer.from);
        taken(&mut headroom, &transfer.to);
        transfers.push(transfer);
    }
    transfers
}

/// Returns the zones of a group that have anything, with what they have.
fn present(group: &[usize], amounts: &[u64]) -> Vec<(usize, u64)> {
    let with = group.iter().map(|&zone| (zone, amounts[zone]));
    with.filter(|(_, amount)| *amount > 0).collect()
}

fn sum(amounts: &[(usize, u64)]) -> u64 {
    amounts.iter().map(|(_, amount)| amount).sum()
}

/// Returns `sent · amount ÷ of`, rounded down; `amount` is at most `of`.
fn part(sent: u64, amount: u64, of: u64) -> u64 {
    sent.checked_mul(amount).map_or_else(
        || {
            let part = u128::from(sent) * u128::from(amount) / u128::from(of);
            u64::try_from(part).unwrap_or(sent)
        },
        |product| product / of,
    )
}

/// Takes `total` from the amounts, in proportion to them.
fn proportional(mut amounts: Vec<(usize, u64)>, total: u64) -> Vec<(usize, u64)> {
    if sum(&amounts) == total {
        return amounts;
    }
    let weights: Vec<u64> = amounts.iter().map(|(_, amount)| *amount).collect();
    let shares = largest_remainder(&weights, total).unwrap_or_default();
    for ((_, amount), share) in amounts.iter_mut().zip(shares) {
        *amount = share;
    }
    amounts.retain(|(_, amount)| *amount > 0);
    amounts
}

impl Solution {
    fn new(
        problem: &Problem,
        prices: &Prices,
        mut kept: Vec<u64>,
        mut transfers: Vec<Transfer>,
    ) -> Self {
        // A matrix may be solved without setting aside what stays local.
        for transfer in &mut transfers {
            if let [(from, _)] = transfer.from[..]
                && let Some(own) = transfer.to.iter().position(|(to, _)| *to == from)
            {
                let (_, amount) = transfer.to.remove(own);
                kept[from] += amount;
                transfer.from[0].1 -= amount;
                transfer.amount -= amount;
            }
        }
        transfers.retain(|transfer| transfer.amount > 0);
        let cost = transfers.iter().map(|transfer| transfer.cost(prices)).sum();
        Self {
            problem: problem.clone(),
            prices: prices.clone(),
            kept,
            transfers,
            cost,
        }
    }

    /// Whether this is the plan for a problem and prices.
    fn is_for(&self, problem: &Problem, prices: &Prices) -> bool {
        self.problem == *problem && self.prices == *prices
    }

    /// Returns the prices that it is the cheapest for.
    pub const fn prices(&self) -> &Prices {
        &self.prices
    }

    /// Returns the problem that is solved.
    pub const fn problem(&self) -> &Problem {
        &self.problem
    }

    /// Returns the cost: the sum over all requests that cross, of their prices.
    pub const fn cost(&self) -> u128 {
        self.cost
    }

    /// Returns what each zone serves of its own demand.
    pub fn kept(&self) -> &[u64] {
        &self.kept
    }

    /// Returns the requests that cross zones.
    pub fn crossing(&self) -> u64 {
        self.transfers.iter().map(|transfer| transfer.amount).sum()
    }

    /// Returns what each zone serves.
    pub fn loads(&self) -> Vec<u64> {
        let mut loads = self.kept.clone();
        for (zone, amount) in self.transfers.iter().flat_map(|transfer| &transfer.to) {
            loads[*zone] += amount;
        }
        loads
    }

    /// Returns the shares of the requests of `zone` that each zone serves, in parts of
    /// [`ROW_PARTS`], to which they sum. Of a zone without demand: where its first request would
    /// go, so that a plan does not jump when there is one. Empty if there is no such zone.
    pub fn row(&self, zone: usize) -> Vec<u64> {
        let problem = &self.problem;
        let Some(ZoneLoad { demand, .. }) = problem.zones.get(zone) else {
            return Vec::new();
        };
        if *demand > 0 {
            return self.row_of(zone, *demand);
        }
        if problem.bounds[zone] > 0 && self.prices.is_local_first() {
            let mut row = vec![0; problem.zones.len()];
            row[zone] = ROW_PARTS;
            return row;
        }
        let first = problem.with_first_request(zone);
        first
            .and_then(|first| first.solve(&self.prices).ok())
            .map_or_else(Vec::new, |first| {
                first.row_of(zone, first.problem.zones[zone].demand)
            })
    }

    fn row_of(&self, zone: usize, demand: u64) -> Vec<u64> {
        let mut amounts = vec![0; self.kept.len()];
        if self.kept[zone] == demand {
            amounts[zone] = ROW_PARTS;
            return amounts;
        }
        // Amounts are brought to about the same number of bits, for precision and for speed.
        let bits = demand.max(1).ilog2();
        let (up, down) = (ROW_BITS.saturating_sub(bits), bits.saturating_sub(ROW_BITS));
        amounts[zone] = self.kept[zone] >> down << up;
        for transfer in &self.transfers {
            let from = transfer.from.iter().find(|(from, _)| *from == zone);
            let Some((_, sent)) = from else { continue };
            let sent = sent >> down << up;
            for (to, amount) in &transfer.to {
                amounts[*to] += part(sent, *amount, transfer.amount);
            }
        }
        largest_remainder(&amounts, ROW_PARTS).unwrap_or(amounts)
    }

    /// Returns demand from which zone-aware routing with one price computes this plan, zone by zone
    /// in every data plane: `d` for zones that send requests away, and for the others their bound
    /// without what they take in. It sums to the bounds of all zones. If demand forces these, it is
    /// the demand itself. `None` with more than one price: the formula spreads what exceeds a zone
    /// over all others alike.
    pub fn virtual_demand(&self) -> Option<Vec<u64>> {
        if !self.prices.is_uniform() {
            return None;
        }
        let mut demand = self.problem.bounds.clone();
        for transfer in &self.transfers {
            for (zone, amount) in &transfer.from {
                demand[*zone] += amount;
            }
            for (zone, amount) in &transfer.to {
                demand[*zone] -= amount;
            }
        }
        Some(demand)
    }
}

impl Transfer {
    fn cost(&self, prices: &Prices) -> u128 {
        // All pairs of a ring have its price, also those between groups of cheaper rings: within
        // these either no excess is left or no headroom.
        let price = |from: usize, to: usize| u128::from(prices.between(from, to));
        match &self.from[..] {
            [(from, _)] => {
                let to = self.to.iter();
                to.map(|(to, amount)| price(*from, *to) * u128::from(*amount))
                    .sum()
            }
            [(from, _), ..] => price(*from, self.to[0].0) * u128::from(self.amount),
            [] => 0,
        }
    }
}

#[cfg(test)]
mod tests;
