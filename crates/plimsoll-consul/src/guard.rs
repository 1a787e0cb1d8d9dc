//! [`Instances`]: the endpoints of one service in one datacenter, of which an answer after an
//! outage does not remove many at once.
//!
//! What a blocking query reports as removed was removed, and is followed. The first answer after a
//! failure or a reset of the index is different: an agent that lost its data answers with an empty
//! list that is valid, while the instances run on. What such an answer lacks is kept for a while if
//! it is much of the service; see [`RemovalGuard`].

use std::collections::BTreeSet;
use std::net::SocketAddr;

use plimsoll_core::time::Instant;
use plimsoll_serve::discovery::{Held, RemovalGuard};

use crate::merge::Endpoints;

/// Endpoints in force, with those that are kept.
#[derive(Debug)]
pub struct Instances {
    endpoints: Endpoints,
    held: Option<Held<SocketAddr>>,
    guard: RemovalGuard,
}

impl Instances {
    /// Creates a service without endpoints.
    pub const fn new(guard: RemovalGuard) -> Self {
        Self {
            endpoints: Endpoints::new(),
            held: None,
            guard,
        }
    }

    /// Processes an answer. `is_continuous` says that what it lacks was removed.
    pub fn handle_answer(&mut self, listed: Endpoints, is_continuous: bool, now: Instant) {
        let known = self.endpoints.len();
        let lost = known.saturating_sub(listed.len());
        let missing = |address: &&SocketAddr| !listed.contains_key(*address);
        let before = self.held.take();
        let kept: BTreeSet<SocketAddr> = if is_continuous {
            let held = before.iter().flat_map(|held| &held.keys);
            held.filter(missing).copied().collect()
        } else if self.guard.holds(lost, known) {
            self.endpoints.keys().filter(missing).copied().collect()
        } else {
            BTreeSet::new()
        };
        if !kept.is_empty() {
            let until = before.map_or_else(|| self.guard.deadline(now), |held| held.until);
            self.held = Some(Held { keys: kept, until });
        }
        let held = self.held.as_ref().map(|held| &held.keys);
        self.endpoints
            .retain(|address, _| held.is_some_and(|held| held.contains(address)));
        self.endpoints.extend(listed);
        self.handle_timeout(now);
    }

    /// Removes endpoints that were kept long enough.
    pub fn handle_timeout(&mut self, now: Instant) {
        if let Some(held) = self.held.take_if(|held| held.until <= now) {
            self.endpoints
                .retain(|address, _| !held.keys.contains(address));
        }
    }

    /// Returns when to call [`Self::handle_timeout`].
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.held.as_ref().map(|held| held.until)
    }

    /// Returns the endpoints in force.
    pub const fn endpoints(&self) -> &Endpoints {
        &self.endpoints
    }

    /// Returns the number of endpoints that an answer lacked and that stay for a while.
    pub fn held(&self) -> usize {
        self.held.as_ref().map_or(0, |held| held.keys.len())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::merge::{Endpoint, EndpointState};

    const DELAY: Duration = Duration::from_secs(300);

    fn listed(hosts: &[u16]) -> Endpoints {
        let endpoint = Endpoint {
            region: "dc1".into(),
            zone: None,
            state: EndpointState::Ready,
            weight: 1,
        };
        let address = |port: &u16| SocketAddr::from(([127, 0, 0, 1], *port));
        hosts
            .iter()
            .map(|port| (address(port), endpoint.clone()))
            .collect()
    }

    fn known(hosts: &[u16]) -> Instances {
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
                (instances.endpoints(), instances.held()),
                (&listed(hosts), 0)
            );
        }
    }

    #[test]
    fn an_empty_answer_after_an_outage_removes_nothing_for_a_while() {
        let mut instances = known(&[1, 2]);
        instances.handle_answer(listed(&[]), false, Instant::ORIGIN);
        assert_eq!(
            (instances.endpoints(), instances.held()),
            (&listed(&[1, 2]), 2)
        );
        // Instances register again one by one.
        instances.handle_answer(listed(&[2]), true, after(DELAY / 2));
        assert_eq!(
            (instances.endpoints(), instances.held()),
            (&listed(&[1, 2]), 1)
        );
        assert_eq!(instances.poll_timeout(), Some(after(DELAY)));
        instances.handle_timeout(after(DELAY));
        assert_eq!(
            (instances.endpoints(), instances.held()),
            (&listed(&[2]), 0)
        );
        assert_eq!(instances.poll_timeout(), None);
    }

    #[test]
    fn outages_one_after_the_other_do_not_prolong_the_time() {
        let mut instances = known(&[1, 2]);
        instances.handle_answer(listed(&[]), false, Instant::ORIGIN);
        instances.handle_answer(listed(&[]), false, after(DELAY / 2));
        assert_eq!(instances.poll_timeout(), Some(after(DELAY)));
        instances.handle_answer(listed(&[]), false, after(DELAY));
        assert_eq!(instances.endpoints(), &listed(&[]));
    }

    #[test]
    fn a_small_loss_is_followed_also_after_an_outage() {
        let mut instances = known(&[1, 2]);
        instances.handle_answer(listed(&[2]), false, Instant::ORIGIN);
        assert_eq!(
            (instances.endpoints(), instances.held()),
            (&listed(&[2]), 0)
        );
        // As many as before, but others: they are counted, not compared.
        instances.handle_answer(listed(&[7]), false, Instant::ORIGIN);
        assert_eq!(instances.endpoints(), &listed(&[7]));
    }

    #[test]
    fn what_is_listed_again_is_no_longer_held() {
        let mut instances = known(&[1, 2]);
        instances.handle_answer(listed(&[]), false, Instant::ORIGIN);
        instances.handle_answer(listed(&[1, 2]), true, Instant::ORIGIN);
        assert_eq!(instances.held(), 0);
        instances.handle_answer(listed(&[1]), true, Instant::ORIGIN);
        assert_eq!(instances.endpoints(), &listed(&[1]));
    }
}
