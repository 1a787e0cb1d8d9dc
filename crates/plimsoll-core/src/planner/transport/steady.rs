//! [`flows`]: a plan near the optimum that changes as little as demand does.
//!
//! Beside the price, each lane pays a little for the part of the sink's room that it takes:
//! `Σ k x + ε/2 Σ x² ÷ room`. This has one solution, which is continuous in demand: like currents
//! in a network of resistors, no lane changes by more than the demand does. Zones that are equally
//! cheap get shares in proportion to their room, as with one price. All squares together are at
//! most `ε/2` times the requests, so `ε` is set such that this is half a percent of the optimum.
//!
//! Solved by a projected Newton method on the prices of room, of which sinks with room to spare
//! have 0. Only the four basic operations are used, whose results are the same on every machine.

use super::shortest_paths::{Flows, Lanes};

/// Part of the optimum by which squares may raise the cost.
const ALLOWANCE: f64 = 0.005;
/// Smallest `ε`, as a part of the largest price: below it, differences of prices drown in rounding.
const FLOOR: f64 = 1e-6;
/// Part of its room by which a sink may be overfull; the plan is cut down to its room.
const PRECISION: f64 = 1e-9;
/// Part of a step below which its direction is given up.
const SHORTEST_STEP: f64 = 1e-9;
/// Many more steps than the 15 that the hardest of 240,000 random problems needed.
const MAX_STEPS: u32 = 100;

/// The problem in floating-point numbers.
struct Network {
    supply: Vec<f64>,
    room: Vec<f64>,
    /// A row for each source.
    prices: Vec<f64>,
    epsilon: f64,
}

/// Flows for given prices of room.
struct State {
    /// Price of each sink's room.
    room_prices: Vec<f64>,
    /// A row for each source.
    flows: Vec<f64>,
    /// By how much each sink is overfull.
    overfull: Vec<f64>,
    /// The dual objective, which is greatest at the solution.
    value: f64,
}

/// Returns flows that no sink lacks room for, as integers. `optimum` is the cost of the optimum,
/// `room_prices` are its prices of room.
pub(super) fn flows(lanes: &Lanes, optimum: u128, room_prices: &[u64]) -> Flows {
    let network = Network::new(lanes, optimum);
    let mut state = network.at(room_prices.iter().map(|price| float(*price)).collect());
    for _ in 0..MAX_STEPS {
        match network.improved(&state) {
            Some(better) => state = better,
            None => break,
        }
    }
    network.rounded(&state, lanes)
}

impl Network {
    fn new(lanes: &Lanes, optimum: u128) -> Self {
        let floats = |amounts: &[u64]| -> Vec<f64> { amounts.iter().copied().map(float).collect() };
        let prices: Vec<f64> = lanes.prices.iter().map(|price| f64::from(*price)).collect();
        let supply = floats(&lanes.supply);
        let mean = float_u128(optimum) / supply.iter().sum::<f64>().max(1.0);
        let highest = prices.iter().copied().fold(1.0, f64::max);
        Self {
            supply,
            room: floats(&lanes.room),
            epsilon: (2.0 * ALLOWANCE * mean).max(FLOOR * highest),
            prices,
        }
    }

    /// Returns the flows for these prices of room.
    fn at(&self, room_prices: Vec<f64>) -> State {
        let sinks = self.room.len();
        let mut flows = vec![0.0; self.prices.len()];
        let mut overfull: Vec<f64> = self.room.iter().map(|room| -room).collect();
        let priced = room_prices.iter().zip(&self.room);
        let mut value = -priced.map(|(price, room)| price * room).sum::<f64>();
        let rows = self.prices.chunks(sinks).zip(flows.chunks_mut(sinks));
        for ((prices, row), supply) in rows.zip(&self.supply) {
            let costs: Vec<f64> = prices
                .iter()
                .zip(&room_prices)
                .map(|(a, b)| a + b)
                .collect();
            let marginal = self.marginal_cost(&costs, *supply);
            for sink in 0..sinks {
                let flow = self.room[sink] * (marginal - costs[sink]).max(0.0) / self.epsilon;
                row[sink] = flow;
                overfull[sink] += flow;
                value += flow * (costs[sink] + marginal) / 2.0;
            }
        }
        State {
            room_prices,
            flows,
            overfull,
            value,
        }
    }

    /// Returns the cost at which the lanes of one source take its whole supply.
    fn marginal_cost(&self, costs: &[f64], supply: f64) -> f64 {
        let mut order: Vec<usize> = (0..costs.len()).collect();
        order.sort_by(|a, b| costs[*a].total_cmp(&costs[*b]));
        let (mut room, mut weighted, mut marginal) = (0.0, 0.0, 0.0);
        // Sums are relative to the lowest cost, so that small differences are not lost.
        let lowest = order.first().map_or(0.0, |sink| costs[*sink]);
        for (place, &sink) in order.iter().enumerate() {
            room += self.room[sink];
            weighted += self.room[sink] * (costs[sink] - lowest);
            marginal = lowest + (self.epsilon * supply + weighted) / room;
            let next = order
                .get(place + 1)
                .map_or(f64::INFINITY, |next| costs[*next]);
            if marginal <= next {
                break;
            }
        }
        marginal
    }

    /// Takes a Newton step; `None` at the solution.
    fn improved(&self, state: &State) -> Option<State> {
        let free: Vec<usize> = (0..self.room.len())
            .filter(|&sink| state.room_prices[sink] > 0.0 || state.overfull[sink] > 0.0)
            .collect();
        let all: f64 = self.supply.iter().sum();
        let off = |sink: &usize| state.overfull[*sink].abs() > PRECISION * all;
        if !free.iter().any(off) {
            return None;
        }
        // A step that would make a price of room negative is cut off there, and what remains of the
        // direction may lead down. That of the gradient never does.
        let gradient = |sink: &usize| state.overfull[*sink] * self.epsilon / self.room[*sink];
        self.ascended(state, &free, &self.newton_direction(state, &free))
            .or_else(|| self.ascended(state, &free, &free.iter().map(gradient).collect::<Vec<_>>()))
    }

    /// Goes as far in a direction as the dual objective rises enough.
    fn ascended(&self, state: &State, free: &[usize], direction: &[f64]) -> Option<State> {
        let mut length = 1.0;
        while length > SHORTEST_STEP {
            let mut prices = state.room_prices.clone();
            for (&sink, step) in free.iter().zip(direction) {
                prices[sink] = (prices[sink] + length * step).max(0.0);
            }
            let next = self.at(prices);
            let slope = |overfull: &[f64]| -> f64 {
                let steps = next.room_prices.iter().zip(&state.room_prices);
                let slopes = steps.zip(overfull);
                slopes
                    .map(|((to, from), overfull)| (to - from) * overfull)
                    .sum()
            };
            let gain = slope(&state.overfull);
            // While the slope is still upward the value has risen, even if rounding hides it.
            let rises = || slope(&next.overfull) >= 0.0 || next.value >= state.value + gain * 1e-4;
            if gain > 0.0 && rises() {
                return Some(next);
            }
            length /= 2.0;
        }
        None
    }

    /// Solves `L x = overfull` for the free sinks, where `L` says how flows follow prices of room.
    fn newton_direction(&self, state: &State, free: &[usize]) -> Vec<f64> {
        let size = free.len();
        let mut matrix = vec![0.0; size * size];
        for row in state.flows.chunks(self.room.len()) {
            let takes = |sink: usize| {
                if row[sink] > 0.0 {
                    self.room[sink]
                } else {
                    0.0
                }
            };
            let all: f64 = (0..row.len()).map(takes).sum();
            let used: Vec<(usize, f64)> = (0..size)
                .map(|place| (place, takes(free[place])))
                .filter(|(_, room)| *room > 0.0)
                .collect();
            for &(at, room) in &used {
                matrix[at * size + at] += room / self.epsilon;
                for &(other, others) in &used {
                    matrix[at * size + other] -= room * others / all / self.epsilon;
                }
            }
        }
        let highest = (0..size)
            .map(|at| matrix[at * size + at])
            .fold(0.0, f64::max);
        for at in 0..size {
            // Prices of room that all rise together change no flow: keep the matrix regular.
            let room = self.room[free[at]] / self.epsilon;
            matrix[at * size + at] += 1e-9 * highest.max(room);
        }
        let right = free.iter().map(|sink| state.overfull[*sink]).collect();
        solved(matrix, right)
    }

    /// Cuts flows down to the room, and to integers.
    fn rounded(&self, state: &State, lanes: &Lanes) -> Flows {
        let sinks = self.room.len();
        let inflow = |sink: usize| self.room[sink] + state.overfull[sink];
        let part: Vec<f64> = (0..sinks)
            .map(|sink| (self.room[sink] / inflow(sink).max(1.0)).min(1.0))
            .collect();
        let mut room = lanes.room.clone();
        let mut flows = vec![0; lanes.prices.len()];
        for (source, supply) in lanes.supply.iter().enumerate() {
            let mut left = *supply;
            for sink in 0..sinks {
                let lane = source * sinks + sink;
                let flow = whole(state.flows[lane] * part[sink])
                    .min(left)
                    .min(room[sink]);
                flows[lane] = flow;
                left -= flow;
                room[sink] -= flow;
            }
        }
        flows
    }
}

/// Solves a symmetric, positive definite system by elimination, which needs no pivoting then.
fn solved(mut matrix: Vec<f64>, mut right: Vec<f64>) -> Vec<f64> {
    let size = right.len();
    for column in 0..size {
        let pivot = matrix[column * size + column].max(f64::MIN_POSITIVE);
        for row in column + 1..size {
            let factor = matrix[row * size + column] / pivot;
            if factor == 0.0 {
                continue;
            }
            for at in column + 1..size {
                matrix[row * size + at] -= factor * matrix[column * size + at];
            }
            right[row] -= factor * right[column];
        }
    }
    for row in (0..size).rev() {
        let known: f64 = (row + 1..size)
            .map(|at| matrix[row * size + at] * right[at])
            .sum();
        right[row] = (right[row] - known) / matrix[row * size + row].max(f64::MIN_POSITIVE);
    }
    right
}

#[expect(clippy::cast_precision_loss, reason = "amounts are at most 2^52")]
const fn float(amount: u64) -> f64 {
    amount as f64
}

#[expect(
    clippy::cast_precision_loss,
    reason = "a cost only sets the scale of squares"
)]
const fn float_u128(cost: u128) -> f64 {
    cost as f64
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "flows are 0 to 2^52"
)]
fn whole(flow: f64) -> u64 {
    flow.round() as u64
}
