//! Visits every state within bounds, breadth first, and long random histories.
//!
//! The state machines are not `Clone`: a state is the actions that lead to it, which are applied
//! again for each that follows. States with the same content are visited once.

use std::collections::BTreeSet;

use super::action::{Action, Flaw, Size};
use super::invariants;
use super::world::World;

#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    /// Most actions after the start.
    pub(super) depth: usize,
    /// Most faults among them.
    pub(super) faults: usize,
    /// One in so many states, by its hash, is followed until everything has settled.
    pub(super) settled: u64,
}

pub(super) enum Outcome {
    Held { states: usize, actions: usize },
    Violated { path: Vec<Action>, problem: String },
}

pub(super) fn explore(size: Size, bounds: Bounds, flaw: Flaw) -> Outcome {
    let mut seen = BTreeSet::from([World::new(size, flaw).digest()]);
    let mut level = vec![Vec::new()];
    let mut actions = 0;
    for _ in 0..bounds.depth {
        let mut next = Vec::new();
        for path in level {
            let faults = path.iter().filter(|action: &&Action| action.is_fault());
            let may_fail = faults.count() < bounds.faults;
            for action in reached(size, &path, flaw).actions() {
                if action.is_fault() && !may_fail {
                    continue;
                }
                actions += 1;
                let path = [&path[..], &[action]].concat();
                let mut world = reached(size, &path, flaw);
                let digest = world.digest();
                if !seen.insert(digest) {
                    continue;
                }
                let mut checked = invariants::always(&world);
                if digest.is_multiple_of(bounds.settled) {
                    checked = checked.and_then(|()| invariants::in_the_end(&mut world));
                }
                if let Err(problem) = checked {
                    return Outcome::Violated { path, problem };
                }
                next.push(path);
            }
        }
        level = next;
    }
    let states = seen.len();
    Outcome::Held { states, actions }
}

fn reached(size: Size, path: &[Action], flaw: Flaw) -> World {
    let mut world = World::new(size, flaw);
    for action in path {
        world.apply(*action);
    }
    world
}

/// A random history: the actions, and whether the invariants held.
pub(super) fn walk(
    size: Size,
    seed: u64,
    length: usize,
    flaw: Flaw,
) -> (Vec<Action>, Result<(), String>) {
    let mut random = seed;
    let mut path = Vec::new();
    let mut world = World::new(size, flaw);
    for _ in 0..length {
        let actions = world.actions();
        // Faults are the larger part of what may happen; as many of all other actions happen.
        let (faults, quiet): (Vec<_>, Vec<_>) =
            actions.into_iter().partition(|action| action.is_fault());
        let of = if next(&mut random).is_multiple_of(3) {
            faults
        } else {
            quiet
        };
        let action = of[usize::try_from(next(&mut random)).unwrap_or_default() % of.len()];
        path.push(action);
        world.apply(action);
        if let Err(problem) = invariants::always(&world) {
            return (path, Err(problem));
        }
    }
    let result = invariants::in_the_end(&mut world);
    (path, result)
}

/// Returns a shorter history that still violates an invariant, and how.
pub(super) fn shrink(size: Size, mut path: Vec<Action>, flaw: Flaw) -> (Vec<Action>, String) {
    let mut problem = violation(size, &path, flaw).unwrap_or_default();
    let mut index = 0;
    while index < path.len() {
        let mut shorter = path.clone();
        shorter.remove(index);
        match violation(size, &shorter, flaw) {
            Some(found) => (path, problem, index) = (shorter, found, 0),
            None => index += 1,
        }
    }
    (path, problem)
}

/// Returns what is wrong after a history; `None` as well if it is not possible.
pub(super) fn violation(size: Size, path: &[Action], flaw: Flaw) -> Option<String> {
    let mut world = World::new(size, flaw);
    for action in path {
        if !world.actions().contains(action) {
            return None;
        }
        world.apply(*action);
        if let Err(problem) = invariants::always(&world) {
            return Some(problem);
        }
    }
    invariants::in_the_end(&mut world).err()
}

/// Steps SplitMix64: random numbers that a seed repeats on every machine.
const fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut mixed = *state;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    // 32 bits, which `usize` has everywhere.
    (mixed ^ (mixed >> 31)) >> 32
}
