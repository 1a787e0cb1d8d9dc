//! Measured traffic fractions of a balancer and their staleness (decisions 0023, 0024).
//!
//! Each origin has one deadline: receive time (or time of observation, if known) +
//! `staleness_threshold`. Every update that carries fractions re-arms it, also one that repeats
//! them: silence and "unchanged" are different things. Fractions for this upstream cluster (LRS
//! response) take precedence over those for the whole fleet (its assignment) while they are fresh,
//! and those over stated demand. Fractions that nobody measured have no age and never expire.
//! `demand` computes the shares that follow.

use std::sync::Arc;
use std::time::Duration;

use super::demand::FractionMap;
use crate::model::zone_aware::FractionSource;
use crate::time::Instant;

/// How fractions were delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize),
    serde(rename_all = "snake_case")
)]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub enum FractionOrigin {
    /// `LoadStatsResponse.observed_traffic`, for this upstream cluster.
    LrsResponse,
    /// `observed_traffic_fraction` in the fleet's assignment, for all upstream clusters.
    EdsField,
    /// Locality metadata of the fleet's assignment, for all upstream clusters.
    LocalityMetadata,
    /// Demand that a program or configuration states, for all upstream clusters.
    Stated,
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
    /// Index by precedence. Settings choose from which part of the fleet's assignment fractions are
    /// read, so `EdsField` and `LocalityMetadata` share one index.
    const fn place(self) -> usize {
        match self {
            Self::LrsResponse => 0,
            Self::EdsField | Self::LocalityMetadata => 1,
            Self::Stated => 2,
        }
    }
}

/// Fractions of one origin and their age.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Received {
    origin: FractionOrigin,
    /// Shared, because snapshots keep the store they were built from and it is copied on write.
    fractions: Arc<FractionMap>,
    /// `None` = stated, not measured: such fractions have no age.
    at: Option<Instant>,
    stale: bool,
}

/// The newest fractions of every origin.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FractionStore {
    received: [Option<Received>; 3],
}

/// The fractions that are in force.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CurrentFractions<'a> {
    pub fractions: &'a FractionMap,
    pub origin: FractionOrigin,
    /// When the fractions arrived or were observed; `None` if they are stated and never expire.
    pub received_at: Option<Instant>,
}

impl FractionStore {
    /// Stores the fractions of an update; their age counts from `at`, when they arrived or were
    /// observed; `None` = they are stated and never expire. An update without fractions withdraws
    /// those of its origin. Stale fractions do not recover by being repeated, only by newer ones.
    /// Returns whether a stale origin recovered.
    pub fn receive(
        &mut self,
        origin: FractionOrigin,
        fractions: impl Into<Arc<FractionMap>>,
        at: impl Into<Option<Instant>>,
    ) -> bool {
        let (fractions, at) = (fractions.into(), at.into());
        let slot = &mut self.received[origin.place()];
        if fractions.is_empty() {
            *slot = None;
            return false;
        }
        let was_stale = slot.as_ref().is_some_and(|old| old.stale);
        let repeated = |old: &Received| at.is_some_and(|at| old.at.is_some_and(|old| at <= old));
        let stale = was_stale && slot.as_ref().is_some_and(repeated);
        *slot = Some(Received {
            origin,
            fractions,
            at,
            stale,
        });
        was_stale && !stale
    }

    /// Marks fractions that are too old at `now` as stale. Returns each origin that became stale,
    /// with its age.
    pub fn expire(&mut self, threshold: Duration, now: Instant) -> Vec<(FractionOrigin, Duration)> {
        let mut expired = Vec::new();
        for received in self.received.iter_mut().flatten() {
            let Some(at) = received.at else { continue };
            if !received.stale && at.saturating_add(threshold) <= now {
                received.stale = true;
                expired.push((received.origin, now.saturating_duration_since(at)));
            }
        }
        expired
    }

    /// Returns the fractions in force, if any are fresh.
    pub fn current(&self) -> Option<CurrentFractions<'_>> {
        let received = self.received.iter().flatten().find(|it| !it.stale)?;
        Some(CurrentFractions {
            fractions: &received.fractions,
            origin: received.origin,
            received_at: received.at,
        })
    }

    /// Returns the last fractions of the origin with the highest precedence, stale or not: the best
    /// guess of true demand, for explanations only.
    pub fn last_known(&self) -> Option<&FractionMap> {
        self.current().map(|current| current.fractions).or_else(|| {
            self.received
                .iter()
                .flatten()
                .map(|it| &*it.fractions)
                .next()
        })
    }

    /// Whether there are fractions, but all of them are stale.
    pub fn is_stale(&self) -> bool {
        self.current().is_none() && self.received.iter().flatten().any(|it| it.stale)
    }

    /// Returns when the last measured fractions arrived, stale or not.
    pub fn last_received_at(&self) -> Option<Instant> {
        self.received.iter().flatten().filter_map(|it| it.at).max()
    }

    /// Returns when [`Self::expire`] must be called next.
    pub fn poll_timeout(&self, threshold: Duration) -> Option<Instant> {
        let fresh = self.received.iter().flatten().filter(|it| !it.stale);
        let deadline = |it: &Received| it.at.map(|at| at.saturating_add(threshold));
        fresh.filter_map(deadline).min()
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
        // The same fractions again are an update: they say "unchanged".
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
    fn recovery_is_immediate_and_reported() {
        let mut store = FractionStore::default();
        assert!(!store.receive(FractionOrigin::EdsField, fractions(1), at(0)));
        store.expire(THRESHOLD, at(60));
        assert!(store.receive(FractionOrigin::EdsField, fractions(2), at(61)));
        assert_eq!(store.current().unwrap().fractions, &fractions(2));
        assert!(!store.is_stale());
    }

    #[test]
    fn repeating_stale_fractions_does_not_refresh_them() {
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
    fn fractions_of_the_upstream_cluster_take_precedence_while_fresh() {
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
            (FractionOrigin::EdsField, Some(at(30)))
        );
        assert!(!store.is_stale());
        assert_eq!(store.last_received_at(), Some(at(30)));
    }

    #[test]
    fn stated_fractions_never_expire() {
        let mut store = FractionStore::default();
        store.receive(FractionOrigin::Stated, fractions(1), None);
        assert_eq!(store.poll_timeout(THRESHOLD), None);
        assert!(store.expire(THRESHOLD, at(1_000_000)).is_empty());
        let current = store.current().unwrap();
        assert_eq!(current.origin, FractionOrigin::Stated);
        assert_eq!(current.received_at, None);
        assert_eq!(store.last_received_at(), None);
        // The fractions of an assignment may be stated too.
        store.receive(FractionOrigin::EdsField, fractions(2), None);
        assert!(store.expire(THRESHOLD, at(1_000_000)).is_empty());
        assert_eq!(store.current().unwrap().origin, FractionOrigin::EdsField);
    }

    #[test]
    fn measured_fractions_take_precedence_over_stated_ones_while_fresh() {
        let mut store = FractionStore::default();
        store.receive(FractionOrigin::Stated, fractions(1), None);
        store.receive(FractionOrigin::LrsResponse, fractions(2), at(0));
        assert_eq!(store.current().unwrap().origin, FractionOrigin::LrsResponse);
        assert_eq!(store.poll_timeout(THRESHOLD), Some(at(60)));
        store.expire(THRESHOLD, at(60));
        assert_eq!(store.current().unwrap().origin, FractionOrigin::Stated);
        assert!(!store.is_stale(), "stated demand is in force");
        // Measured fractions that went stale recover when they are stated.
        assert!(store.receive(FractionOrigin::LrsResponse, fractions(2), None));
    }

    #[test]
    fn an_update_without_fractions_withdraws_them() {
        let mut store = FractionStore::default();
        store.receive(FractionOrigin::EdsField, fractions(1), at(0));
        store.receive(FractionOrigin::EdsField, FractionMap::new(), at(1));
        assert_eq!(store.current(), None);
        assert!(!store.is_stale(), "withdrawn fractions are not stale");
    }

    #[test]
    fn another_part_of_the_assignment_replaces_the_previous_one() {
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
