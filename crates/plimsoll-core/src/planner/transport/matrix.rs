//! Plans for prices without rings: the optimum, and beside it a plan that costs at most one percent
//! more and does not jump when demand moves a little.
//!
//! An optimum is a vertex: among zones that are equally cheap it takes one, and a thousandth more
//! demand can make it take another. `steady` spreads requests over all zones that are about as
//! cheap. `shortest_paths` finds the optimum, which sets how much "about" is, places what rounding
//! leaves over, and is the plan itself if the other one should cost more than allowed.

use super::shortest_paths::{Flows, Lanes};
use super::{Prices, Transfer, present, steady};

/// The steady plan may cost this part of the optimum more: one percent.
const TOLERANCE: u128 = 100;

/// Moves all of `supply` to zones with `room`, which there is enough of.
pub(super) fn solve(prices: &Prices, supply: &[u64], room: &[u64]) -> Vec<Transfer> {
    let all: Vec<usize> = (0..supply.len()).collect();
    let (sources, sinks) = (present(&all, supply), present(&all, room));
    let price = |&(from, _): &(usize, u64)| {
        let to = sinks.iter().map(move |(to, _)| (from, *to));
        to.map(|(from, to)| prices.between(from, to))
    };
    let lanes = Lanes {
        supply: sources.iter().map(|(_, amount)| *amount).collect(),
        room: sinks.iter().map(|(_, amount)| *amount).collect(),
        prices: sources.iter().flat_map(price).collect(),
    };
    let (flows, sink_prices) = lanes.cheapest();
    let optimum = lanes.cost(&flows);
    let steady = completed(&lanes, steady::flows(&lanes, optimum, &sink_prices));
    let flows = if lanes.cost(&steady) <= optimum + optimum / TOLERANCE {
        steady
    } else {
        flows
    };
    let transfer = |(source, row): (&(usize, u64), &[u64])| {
        let to = sinks.iter().zip(row).filter(|(_, amount)| **amount > 0);
        Transfer {
            from: vec![*source],
            to: to.map(|((to, _), amount)| (*to, *amount)).collect(),
            amount: source.1,
        }
    };
    let rows = flows.chunks(sinks.len().max(1));
    sources.iter().zip(rows).map(transfer).collect()
}

/// Sends what `flows` leave of the supply to where they leave room, as cheaply as possible.
fn completed(lanes: &Lanes, mut flows: Flows) -> Flows {
    let mut left = lanes.clone();
    let sinks = left.room.len().max(1);
    for (source, row) in flows.chunks(sinks).enumerate() {
        for (sink, amount) in row.iter().enumerate() {
            left.supply[source] -= amount;
            left.room[sink] -= amount;
        }
    }
    let (rest, _) = left.cheapest();
    for (flow, rest) in flows.iter_mut().zip(rest) {
        *flow += rest;
    }
    flows
}
