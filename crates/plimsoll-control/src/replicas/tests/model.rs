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

use action::{Action, Flaw, Size};
use explore::{Bounds, Outcome, explore, shrink, violation, walk};

/// Returns a number that `make chaos` sets higher with a variable.
fn setting(name: &str, short: u64) -> u64 {
    let longer = std::env::var(name).ok();
    longer
        .and_then(|longer| longer.parse().ok())
        .unwrap_or(short)
}

/// Every order of so many actions, at most two of them faults; a part of the states until they
/// settle. Three actions take minutes in a debug build: `make chaos` has them.
fn bounds() -> Bounds {
    let depth = setting("PLIMSOLL_MODEL_DEPTH", 2);
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
            assert!(states > 60, "the model is empty");
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
    for seed in 0..setting("PLIMSOLL_MODEL_WALKS", 20) {
        let (path, result) = walk(size, seed, 60, Flaw::None);
        if result.is_err() {
            let (path, problem) = shrink(size, path, Flaw::None);
            panic!("seed {seed}: {problem}\nafter {path:?}");
        }
    }
}

/// A model that finds nothing shows nothing: each of these breaks one promise that the store makes,
/// and must be found. Flaws that the next report of a node fixes are not among them.
#[test]
fn every_seeded_flaw_is_found() {
    let size = Size {
        replicas: 2,
        nodes: 2,
    };
    // Only the lease removes the record of a node that ends with its replica.
    let path = [Action::End { node: 1 }, Action::Restart { replica: 1 }];
    assert_eq!(violation(size, &path, Flaw::None), None);
    for flaw in Flaw::SEEDED {
        let problem = violation(size, &path, flaw);
        assert!(problem.is_some(), "{flaw:?} is not found");
    }
}
