//! Model checking of replicas: the real state machines of the control plane (`State` with its
//! planner, fleets and `Replicas`, and the queues `Outbox` and `Proposals`) against a store that
//! behaves as etcd may, with every order of messages and faults that a small configuration has
//! (decision 0048, docs/replicas.md#invariants).
//!
//! `world` is one configuration, `action` what may happen in it, `etcd` the store in it,
//! `explore` visits all states that can be reached, and `invariants` are checked in each.

mod action;
mod etcd;
mod explore;
mod invariants;
mod world;

use action::{Flaw, Size};
use explore::{Bounds, Outcome, explore, shrink, walk};

/// Returns a number that `make chaos` sets higher with a variable.
fn setting(name: &str, short: u64) -> u64 {
    let longer = std::env::var(name).ok();
    longer
        .and_then(|longer| longer.parse().ok())
        .unwrap_or(short)
}

/// Every order of so many actions, two of them faults; a part of the states until they settle.
fn bounds() -> Bounds {
    let depth = setting("PLIMSOLL_MODEL_DEPTH", 3);
    Bounds {
        depth: usize::try_from(depth).expect("a small number"),
        faults: 2,
        settled: setting("PLIMSOLL_MODEL_SETTLED", 16),
    }
}

/// Explores a configuration without a violation, and prints how much of it there is.
fn holds(size: Size, bounds: Bounds) {
    match explore(size, bounds, Flaw::None) {
        Outcome::Held { states, actions } => {
            println!("{size:?}, {bounds:?}: {states} states, {actions} actions");
            assert!(states > 100, "the model is empty");
        }
        Outcome::Violated { path, problem } => panic!("{problem}\nafter {path:?}"),
    }
}

#[test]
fn two_replicas_with_a_node_each_hold_the_invariants_in_every_order() {
    let size = Size {
        replicas: 2,
        nodes: 2,
    };
    holds(size, bounds());
}

#[test]
fn three_replicas_with_one_node_hold_the_invariants_in_every_order() {
    let size = Size {
        replicas: 3,
        nodes: 1,
    };
    holds(size, bounds());
}

#[test]
fn long_random_histories_hold_the_invariants() {
    let size = Size {
        replicas: 3,
        nodes: 3,
    };
    for seed in 0..setting("PLIMSOLL_MODEL_WALKS", 40) {
        let (path, result) = walk(size, seed, 60, Flaw::None);
        if result.is_err() {
            let (path, problem) = shrink(size, path, Flaw::None);
            panic!("seed {seed}: {problem}\nafter {path:?}");
        }
    }
}

/// A model that finds nothing shows nothing: each of these breaks one promise that the store or
/// the session with it makes, and must be found.
#[test]
fn every_seeded_flaw_is_found() {
    let size = Size {
        replicas: 2,
        nodes: 2,
    };
    for flaw in Flaw::SEEDED {
        let found = (0..400).find_map(|seed| {
            let (path, result) = walk(size, seed, 40, flaw);
            result.err().map(|_| (seed, path))
        });
        let Some((seed, path)) = found else {
            panic!("{flaw:?} is not found");
        };
        println!("{flaw:?}: seed {seed}, after {} actions", path.len());
    }
}
