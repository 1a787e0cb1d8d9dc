//! Comparison of our picks with other balancers: `cargo bench` in this directory.
//!
//! It answers two questions: does a pick cost more in a large cluster than in a small one, and is
//! it faster than a pick of `pingora-load-balancing` and of tower's `p2c::Balance`? It prints
//! nanoseconds and checks ratios; the exit code is 1 if a check fails. `contenders` has the rows,
//! `measure` the timing.

use std::process::ExitCode;

#[path = "../../../crates/plimsoll-core/benches/common/mod.rs"]
mod common;
mod contenders;
mod measure;

use common::{LARGE, SMALL, Shape, State};
use contenders::{Contender, Policy};
use measure::{Timings, measure};

/// Limit of the cost of a pick in 10,000 hosts × 100 zones, relative to 10 hosts × 3 zones.
const MAX_SCALING: f64 = 1.5;
/// Another balancer must take more than this many times our time.
const MIN_PEER_RATIO: f64 = 1.0;

fn main() -> ExitCode {
    // `cargo test --benches` only checks that it runs.
    let quick = !std::env::args().any(|argument| argument == "--bench");
    let mut passed = true;
    for table in [scaling(), peers()] {
        passed &= table.run(quick);
    }
    ExitCode::from(u8::from(!passed))
}

/// Table of contenders that are measured together, and the ratios that are checked.
struct Table {
    title: &'static str,
    contenders: Vec<Contender>,
    ratios: Vec<Ratio>,
}

/// Time of one contender relative to another, and its limit.
struct Ratio {
    of: usize,
    to: usize,
    limit: Limit,
}

#[derive(Clone, Copy)]
enum Limit {
    AtMost(f64),
    Above(f64),
}

impl Limit {
    fn holds(self, ratio: f64) -> bool {
        match self {
            Self::AtMost(limit) => ratio <= limit,
            Self::Above(limit) => ratio > limit,
        }
    }
}

/// Compares the same pick in a small and in a large cluster.
fn scaling() -> Table {
    let mut contenders = Vec::new();
    let mut ratios = Vec::new();
    for policy in [Policy::RoundRobin, Policy::Random, Policy::LeastRequest] {
        for state in [State::Direct, State::Residual] {
            contenders.extend([SMALL, LARGE].map(|shape| contenders::pick(policy, state, shape)));
            let large = contenders.len() - 1;
            ratios.push(Ratio {
                of: large,
                to: large - 1,
                limit: Limit::AtMost(MAX_SCALING),
            });
        }
    }
    Table {
        title: "pick in 10,000 hosts x 100 zones compared with 10 hosts x 3 zones",
        contenders,
        ratios,
    }
}

/// Compares each balancer with our equivalent, at both sizes. Ours also routes by zone.
fn peers() -> Table {
    let mut contenders = Vec::new();
    let mut ratios = Vec::new();
    for shape in [SMALL, LARGE] {
        for (ours, peer) in matches_of(shape) {
            contenders.extend([ours, peer]);
            let peer = contenders.len() - 1;
            ratios.push(Ratio {
                of: peer,
                to: peer - 1,
                limit: Limit::Above(MIN_PEER_RATIO),
            });
        }
    }
    Table {
        title: "other balancers compared with ours",
        contenders,
        ratios,
    }
}

fn matches_of(shape: Shape) -> [(Contender, Contender); 3] {
    let ours = |policy| contenders::pick_address(policy, State::Residual, shape);
    [
        (
            ours(Policy::RoundRobin),
            contenders::pingora_round_robin(shape),
        ),
        (ours(Policy::Random), contenders::pingora_random(shape)),
        (
            contenders::request(State::Residual, shape),
            contenders::tower_p2c(shape),
        ),
    ]
}

impl Table {
    /// Measures and prints; returns whether all ratios are within their limits.
    fn run(mut self, quick: bool) -> bool {
        let timings = measure(&mut self.contenders, quick);
        println!("\n{}", self.title);
        println!("{:<58}{:>10}{:>10}", "", "ns", "fastest");
        for (contender, timing) in self.contenders.iter().zip(&timings.0) {
            let (median, fastest) = (measure::median(timing), measure::fastest(timing));
            println!("{:<58}{median:>10.1}{fastest:>10.1}", contender.name);
        }
        println!();
        let results: Vec<bool> = self
            .ratios
            .iter()
            .map(|ratio| self.check(ratio, &timings))
            .collect();
        quick || results.iter().all(|&passed| passed)
    }

    fn check(&self, ratio: &Ratio, timings: &Timings) -> bool {
        let value = timings.ratio(ratio.of, ratio.to);
        let passed = ratio.limit.holds(value);
        let bar = match ratio.limit {
            Limit::AtMost(bar) => format!("at most {bar}"),
            Limit::Above(bar) => format!("above {bar}"),
        };
        let result = if passed { "PASS" } else { "FAIL" };
        let (of, to) = (
            &self.contenders[ratio.of].name,
            &self.contenders[ratio.to].name,
        );
        println!("{result}  {value:>5.2} ({bar})  {of} : {to}");
        passed
    }
}
