//! Our picks beside those of other balancers, in one run: `cargo bench` in this folder.
//!
//! Two questions. Does a pick cost more in a large cluster than in a small one? Is it faster than a
//! pick of `pingora-load-balancing` and of tower's `p2c::Balance`? Nanoseconds are printed, ratios
//! are judged: exit code 1 when one fails. What each line does is in `contenders`, how it is timed
//! in `measure`.

use std::process::ExitCode;

#[path = "../../../crates/plimsoll-core/benches/common/mod.rs"]
mod common;
mod contenders;
mod measure;

use common::{LARGE, SMALL, Shape, State};
use contenders::{Contender, Policy};
use measure::{Timings, measure};

/// A pick in 10,000 hosts × 100 zones may cost this many times one in 10 hosts × 3 zones.
const SCALING_BAR: f64 = 1.5;
/// A peer must take more than this many times our time.
const PEER_BAR: f64 = 1.0;

fn main() -> ExitCode {
    // `cargo test --benches` only wants to know whether it runs.
    let quick = !std::env::args().any(|argument| argument == "--bench");
    let mut passed = true;
    for table in [scaling(), peers()] {
        passed &= table.run(quick);
    }
    ExitCode::from(u8::from(!passed))
}

/// One table: contenders measured together, and the ratios that are judged.
struct Table {
    title: &'static str,
    contenders: Vec<Contender>,
    ratios: Vec<Ratio>,
}

/// Time of one contender in units of another's, and what it must be.
struct Ratio {
    of: usize,
    to: usize,
    bar: Bar,
}

#[derive(Clone, Copy)]
enum Bar {
    AtMost(f64),
    Above(f64),
}

impl Bar {
    fn holds(self, ratio: f64) -> bool {
        match self {
            Self::AtMost(bar) => ratio <= bar,
            Self::Above(bar) => ratio > bar,
        }
    }
}

/// Pairs of the same pick in a small and in a large cluster.
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
                bar: Bar::AtMost(SCALING_BAR),
            });
        }
    }
    Table {
        title: "pick, 10,000 hosts x 100 zones beside 10 hosts x 3 zones",
        contenders,
        ratios,
    }
}

/// Each peer beside what we have for the same job, at both sizes. Ours routes by zone on top.
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
                bar: Bar::Above(PEER_BAR),
            });
        }
    }
    Table {
        title: "other balancers beside ours",
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
    /// Measures, prints, and tells whether every ratio held.
    fn run(mut self, quick: bool) -> bool {
        let timings = measure(&mut self.contenders, quick);
        println!("\n{}", self.title);
        println!("{:<58}{:>10}{:>10}", "", "ns", "fastest");
        for (contender, timing) in self.contenders.iter().zip(&timings.0) {
            let (median, fastest) = (measure::median(timing), measure::fastest(timing));
            println!("{:<58}{median:>10.1}{fastest:>10.1}", contender.name);
        }
        println!();
        let verdicts: Vec<bool> = self
            .ratios
            .iter()
            .map(|ratio| self.judge(ratio, &timings))
            .collect();
        quick || verdicts.iter().all(|&passed| passed)
    }

    fn judge(&self, ratio: &Ratio, timings: &Timings) -> bool {
        let value = timings.ratio(ratio.of, ratio.to);
        let passed = ratio.bar.holds(value);
        let bar = match ratio.bar {
            Bar::AtMost(bar) => format!("at most {bar}"),
            Bar::Above(bar) => format!("above {bar}"),
        };
        let verdict = if passed { "PASS" } else { "FAIL" };
        let (of, to) = (
            &self.contenders[ratio.of].name,
            &self.contenders[ratio.to].name,
        );
        println!("{verdict}  {value:>5.2} ({bar})  {of} : {to}");
        passed
    }
}
