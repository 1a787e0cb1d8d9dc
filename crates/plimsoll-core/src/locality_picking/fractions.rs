//! [`FractionStore`]: the measured fractions a balancer was handed, and how old they are (D2, D3).
//!
//! One deadline per origin = receive time (or time of observation, where it is known) +
//! `staleness_threshold`, re-armed by every update that carries fractions, also by one that repeats
//! them: silence and "unchanged" are different things.
//! Fractions for this upstream cluster (LRS response) win over those for the whole fleet (its
//! assignment) while they are fresh. What shares follow lives in `demand`.

use std::sync::Arc;
use std::time::Duration;

use super::demand::FractionMap;
use crate::model::zone_aware::FractionSource;
use crate::time::Instant;

/// Which way fractions came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize),
    serde(rename_all = "snake_case")
)]
pub enum FractionOrigin {
    /// `LoadStatsResponse.observed_traffic`, for this upstream cluster.
    LrsResponse,
    /// The field of the fleet's assignment, for all upstream clusters.
    EdsField,
    /// The metadata of its localities, for all upstream clusters.
    LocalityMetadata,
}

impl From<FractionSource> for FractionOrigin {
    fn from(source: FractionSource) -> Self {
        match source {
            FractionSource::EdsField => Self::EdsField,
            FractionSource::LocalityMetadata => Self::LocalityMetadata,
        }
    }
}

impl FractionOrigin {
    /// Its place in the order of precedence. Settings say from which part of the fleet's assignment
    /// fractions are read, so that there is one place for both.
    const fn place(self) -> usize {
        match self {
            Self::LrsResponse => 0,
            Self::EdsField | Self::LocalityMetadata => 1,
        }
    }
}

/// Fractions of one origin.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Received {
    origin: FractionOrigin,
    /// Shared: snapshots keep the store they were built from, and it is copied when it changes.
    fractions: Arc<FractionMap>,
    at: Instant,
    stale: bool,
}

/// All fractions at hand.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FractionStore {
    /// By precedence.
    received: [Option<Received>; 2],
}

/// Fractions in force.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CurrentFractions<'a> {
    /// The fractions.
    pub fractions: &'a FractionMap,
    /// Which way they came.
    pub origin: FractionOrigin,
    /// When.
    pub received_at: Instant,
}

impl FractionStore {
    /// Takes what an update carried. An update without fractions withdraws what that origin had
    /// said before (presence decides) and re-arms nothing. Their age counts from `at`, when they
    /// arrived or were observed. What is stale does not recover by being repeated: only by
    /// fractions that are newer. Returns whether a stale origin recovered.
    pub fn receive(
        &mut self,
        origin: FractionOrigin,
        fractions: impl Into<Arc<FractionMap>>,
        at: Instant,
    ) -> bool {
        let fractions = fractions.into();
        let slot = &mut self.received[origin.place()];
        if fractions.is_empty() {
            *slot = None;
            return false;
        }
        let was_stale = slot.as_ref().is_some_and(|old| old.stale);
        let stale = was_stale && slot.as_ref().is_some_and(|old| at <= old.at);
        *slot = Some(Received {
            origin,
            fractions,
            at,
            stale,
        });
        was_stale && !stale
    }

    /// Marks what is too old at `now`; returns each origin that became stale, with its age.
    pub fn expire(&mut self, threshold: Duration, now: Instant) -> Vec<(FractionOrigin, Duration)> {
        let mut expired = Vec::new();
        for received in self.received.iter_mut().flatten() {
            if !received.stale && received.at.saturating_add(threshold) <= now {
                received.stale = true;
                expired.push((received.origin, now.saturating_duration_since(received.at)));
            }
        }
        expired
    }

    /// The fractions in force, if any are fresh.
    pub fn current(&self) -> Option<CurrentFractions<'_>> {
        let mut received = self.received.iter().flatten();
        let received = received.find(|received| !received.stale)?;
        Some(CurrentFractions {
            fractions: &received.fractions,
            origin: received.origin,
            received_at: received.at,
        })
    }

    /// The last fractions that arrived by the way that counts most, stale or not: the best guess of
    /// true demand, for explanations only.
    pub fn last_known(&self) -> Option<&FractionMap> {
        let current = self.current().map(|current| current.fractions);
        current.or_else(|| self.received.iter().flatten().map(|r| &*r.fractions).next())
    }

    /// Fractions are there, but all of them are too old.
    pub fn is_stale(&self) -> bool {
        self.current().is_none()
            && self
                .received
                .iter()
                .flatten()
                .any(|received| received.stale)
    }

    /// When the last fractions arrived, stale or not.
    pub fn last_received_at(&self) -> Option<Instant> {
        self.received
            .iter()
            .flatten()
            .map(|received| received.at)
            .max()
    }

    /// When [`Self::expire`] must be called next.
    pub fn poll_timeout(&self, threshold: Duration) -> Option<Instant> {
        let fresh = self
            .received
            .iter()
            .flatten()
            .filter(|received| !received.stale);
        fresh
            .map(|received| received.at.saturating_add(threshold))
            .min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::locality::Locality;
    use crate::units::BasisPoints;

    const THRESHOLD: Duration = Duration::from_secs(60);

    fn fractions(bp: u64) -> FractionMap {
        [(Locality::zone_only("a"), BasisPoints::new(bp, "a").unwrap())].into()
    }

    fn at(seconds: u64) -> Instant {
        Instant::from_secs(seconds)
    }

    #[test]
    fn one_deadline_rearmed_by_every_update_that_carries_fractions() {
        let mut store = FractionStore::default();
        assert_eq!(store.poll_timeout(THRESHOLD), None);
        store.receive(FractionOrigin::EdsField, fractions(5000), at(0));
        assert_eq!(store.poll_timeout(THRESHOLD), Some(at(60)));
        // The same fractions again are news: they say "still so".
        store.receive(FractionOrigin::EdsField, fractions(5000), at(40));
        assert_eq!(store.poll_timeout(THRESHOLD), Some(at(100)));
        assert!(store.expire(THRESHOLD, at(99)).is_empty());
        let expired = store.expire(THRESHOLD, at(100));
        assert_eq!(
            expired,
            [(FractionOrigin::EdsField, Duration::from_secs(60))]
        );
        assert!(store.is_stale() && store.current().is_none());
        assert!(store.expire(THRESHOLD, at(200)).is_empty(), "reported once");
        assert_eq!(store.poll_timeout(THRESHOLD), None);
    }

    #[test]
    fn recovery_is_immediate_and_told() {
        let mut store = FractionStore::default();
        assert!(!store.receive(FractionOrigin::EdsField, fractions(1), at(0)));
        store.expire(THRESHOLD, at(60));
        assert!(store.receive(FractionOrigin::EdsField, fractions(2), at(61)));
        assert_eq!(store.current().unwrap().fractions, &fractions(2));
        assert!(!store.is_stale());
    }

    #[test]
    fn what_is_stale_does_not_recover_by_being_repeated() {
        let mut store = FractionStore::default();
        store.receive(FractionOrigin::LrsResponse, fractions(1), at(0));
        store.expire(THRESHOLD, at(60));
        assert!(!store.receive(FractionOrigin::LrsResponse, fractions(1), at(0)));
        assert!(store.is_stale());
        assert!(store.expire(THRESHOLD, at(70)).is_empty(), "reported once");
        assert!(store.receive(FractionOrigin::LrsResponse, fractions(1), at(65)));
        assert_eq!(store.poll_timeout(THRESHOLD), Some(at(125)));
    }

    #[test]
    fn fractions_of_the_upstream_cluster_win_while_fresh() {
        let mut store = FractionStore::default();
        store.receive(FractionOrigin::LrsResponse, fractions(1), at(0));
        store.receive(FractionOrigin::EdsField, fractions(2), at(30));
        assert_eq!(store.current().unwrap().origin, FractionOrigin::LrsResponse);
        let expired = store.expire(THRESHOLD, at(60));
        assert_eq!(
            expired,
            [(FractionOrigin::LrsResponse, Duration::from_secs(60))]
        );
        let current = store.current().unwrap();
        assert_eq!(
            (current.origin, current.received_at),
            (FractionOrigin::EdsField, at(30))
        );
        assert!(!store.is_stale());
        assert_eq!(store.last_received_at(), Some(at(30)));
    }

    #[test]
    fn an_update_without_fractions_withdraws_them() {
        let mut store = FractionStore::default();
        store.receive(FractionOrigin::EdsField, fractions(1), at(0));
        store.receive(FractionOrigin::EdsField, FractionMap::new(), at(1));
        assert_eq!(store.current(), None);
        assert!(!store.is_stale(), "withdrawn is not stale: no warning");
    }

    #[test]
    fn another_part_of_the_assignment_replaces_the_one_before() {
        let mut store = FractionStore::default();
        store.receive(FractionOrigin::EdsField, fractions(1), at(0));
        store.receive(FractionOrigin::LocalityMetadata, fractions(2), at(1));
        let current = store.current().unwrap();
        assert_eq!(current.origin, FractionOrigin::LocalityMetadata);
        assert_eq!(current.fractions, &fractions(2));
        store.receive(FractionOrigin::LocalityMetadata, FractionMap::new(), at(2));
        assert!(store.current().is_none());
    }
}
