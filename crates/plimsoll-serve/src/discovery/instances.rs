//! [`Instances`]: what answers list of one thing, such as the endpoints of a service, of which an
//! answer after an outage does not remove many at once.
//!
//! What a server reports as removed was removed, and is followed. An answer that does not follow
//! the one before without a gap is different: a server that lost its data answers with an empty
//! list that is valid, while the instances run on. What such an answer lacks is kept for a while if
//! it is much; see [`RemovalGuard`].

use std::collections::{BTreeMap, BTreeSet};

use plimsoll_core::time::Instant;

use super::{Held, RemovalGuard};

/// Instances in force by key, with those that are kept.
#[derive(Debug)]
pub struct Instances<K, V> {
    in_force: BTreeMap<K, V>,
    held: Option<Held<K>>,
    guard: RemovalGuard,
}

impl<K: Clone + Ord, V> Instances<K, V> {
    /// Creates a list that waits for its first answer.
    pub const fn new(guard: RemovalGuard) -> Self {
        Self {
            in_force: BTreeMap::new(),
            held: None,
            guard,
        }
    }

    /// Processes an answer. `is_continuous` says that what it lacks was removed.
    pub fn handle_answer(&mut self, listed: BTreeMap<K, V>, is_continuous: bool, now: Instant) {
        let known = self.in_force.len();
        let lost = known.saturating_sub(listed.len());
        let missing = |key: &&K| !listed.contains_key(*key);
        let before = self.held.take();
        let kept: BTreeSet<K> = if is_continuous {
            let held = before.iter().flat_map(|held| &held.keys);
            held.filter(missing).cloned().collect()
        } else if self.guard.holds(lost, known) {
            self.in_force.keys().filter(missing).cloned().collect()
        } else {
            BTreeSet::new()
        };
        if !kept.is_empty() {
            let until = before.map_or_else(|| self.guard.deadline(now), |held| held.until);
            self.held = Some(Held { keys: kept, until });
        }
        let held = self.held.as_ref().map(|held| &held.keys);
        self.in_force
            .retain(|key, _| held.is_some_and(|held| held.contains(key)));
        self.in_force.extend(listed);
        self.handle_timeout(now);
    }

    /// Removes instances that were kept long enough.
    pub fn handle_timeout(&mut self, now: Instant) {
        if let Some(held) = self.held.take_if(|held| held.until <= now) {
            self.in_force.retain(|key, _| !held.keys.contains(key));
        }
    }

    /// Returns when to call [`Self::handle_timeout`].
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.held.as_ref().map(|held| held.until)
    }

    /// Returns the instances in force.
    pub const fn in_force(&self) -> &BTreeMap<K, V> {
        &self.in_force
    }

    /// Returns the number of instances that an answer lacked and that stay for a while.
    pub fn held(&self) -> usize {
        self.held.as_ref().map_or(0, |held| held.keys.len())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const DELAY: Duration = Duration::from_secs(300);

    fn listed(hosts: &[u16]) -> BTreeMap<u16, ()> {
        hosts.iter().map(|host| (*host, ())).collect()
    }

    fn known(hosts: &[u16]) -> Instances<u16, ()> {
        let mut instances = Instances::new(RemovalGuard {
            max_removed_percent: 50,
            delay: DELAY,
        });
        instances.handle_answer(listed(hosts), false, Instant::ORIGIN);
        instances
    }

    fn after(time: Duration) -> Instant {
        Instant::ORIGIN.saturating_add(time)
    }

    #[test]
    fn what_is_reported_removed_goes_at_once() {
        let mut instances = known(&[1, 2, 3, 4]);
        for hosts in [&[1][..], &[]] {
            instances.handle_answer(listed(hosts), true, Instant::ORIGIN);
            assert_eq!(
                (instances.in_force(), instances.held()),
                (&listed(hosts), 0)
            );
        }
    }

    #[test]
    fn an_empty_answer_after_an_outage_removes_nothing_for_a_while() {
        let mut instances = known(&[1, 2]);
        instances.handle_answer(listed(&[]), false, Instant::ORIGIN);
        assert_eq!(
            (instances.in_force(), instances.held()),
            (&listed(&[1, 2]), 2)
        );
        // Instances register again one by one.
        instances.handle_answer(listed(&[2]), true, after(DELAY / 2));
        assert_eq!(
            (instances.in_force(), instances.held()),
            (&listed(&[1, 2]), 1)
        );
        assert_eq!(instances.poll_timeout(), Some(after(DELAY)));
        instances.handle_timeout(after(DELAY));
        assert_eq!((instances.in_force(), instances.held()), (&listed(&[2]), 0));
        assert_eq!(instances.poll_timeout(), None);
    }

    #[test]
    fn outages_one_after_the_other_do_not_prolong_the_time() {
        let mut instances = known(&[1, 2]);
        instances.handle_answer(listed(&[]), false, Instant::ORIGIN);
        instances.handle_answer(listed(&[]), false, after(DELAY / 2));
        assert_eq!(instances.poll_timeout(), Some(after(DELAY)));
        instances.handle_answer(listed(&[]), false, after(DELAY));
        assert_eq!(instances.in_force(), &listed(&[]));
    }

    #[test]
    fn a_small_loss_is_followed_also_after_an_outage() {
        let mut instances = known(&[1, 2]);
        instances.handle_answer(listed(&[2]), false, Instant::ORIGIN);
        assert_eq!((instances.in_force(), instances.held()), (&listed(&[2]), 0));
        // As many as before, but others: they are counted, not compared.
        instances.handle_answer(listed(&[7]), false, Instant::ORIGIN);
        assert_eq!(instances.in_force(), &listed(&[7]));
    }

    #[test]
    fn what_is_listed_again_is_no_longer_held() {
        let mut instances = known(&[1, 2]);
        instances.handle_answer(listed(&[]), false, Instant::ORIGIN);
        instances.handle_answer(listed(&[1, 2]), true, Instant::ORIGIN);
        assert_eq!(instances.held(), 0);
        instances.handle_answer(listed(&[1]), true, Instant::ORIGIN);
        assert_eq!(instances.in_force(), &listed(&[1]));
    }
}
