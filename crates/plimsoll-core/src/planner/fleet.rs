//! [`Fleet`]: the reports of one fleet and the grains they feed.
//!
//! Keeps the sums of all grains in step with the reports, and says what is known of every zone.
//! What follows from that is decided in `fractions` and `grain`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use super::aggregate::{Change, Reports};
use super::fractions::KnownZone;
use super::grain::GrainState;
use crate::model::locality::Locality;
use crate::time::Instant;

/// Name of a grain within its fleet: an upstream cluster, or `None` for all of them.
pub(super) type GrainKey = Option<Arc<str>>;

/// One fleet.
#[derive(Debug, Default)]
pub(super) struct Fleet {
    pub(super) reports: Reports,
    grains: BTreeMap<GrainKey, GrainState>,
}

impl Fleet {
    /// Brings all sums up to date; returns the grains to look at.
    pub(super) fn apply(
        &mut self,
        changes: &[Change],
        interval: Option<Duration>,
        tau: Duration,
        now: Instant,
    ) -> BTreeSet<GrainKey> {
        let mut touched = BTreeSet::new();
        for change in changes {
            let grain = self
                .grains
                .entry(change.upstream_cluster.clone())
                .or_insert_with(|| GrainState::new(now));
            grain.apply(change, interval, tau, now);
            touched.insert(change.upstream_cluster.clone());
        }
        if self.forget_silent_zones() {
            touched.extend(self.grains.keys().cloned());
        }
        touched
    }

    /// What is known of every zone at `now`: its smoothed demand, or the one it approaches.
    ///
    /// A zone is known when any of its nodes reports. If none of them mentions this upstream
    /// cluster, they send it nothing: proxies report every cluster they use. That is a zero, and no
    /// reason to guess. Empty when nobody mentions the cluster at all.
    pub(super) fn known(
        &self,
        key: &GrainKey,
        smoothed: Option<(Duration, Instant)>,
    ) -> BTreeMap<Locality, KnownZone> {
        let Some(grain) = self.grains.get(key) else {
            return BTreeMap::new();
        };
        if !grain.has_reporters() {
            return BTreeMap::new();
        }
        let zone = |(locality, reporters): (&Locality, u64)| {
            let rate_per_second = match smoothed {
                Some((tau, now)) => grain.smoothed(locality, tau, now),
                None => grain.target(locality),
            };
            let known = KnownZone {
                rate_per_second,
                reporters,
            };
            (locality.clone(), known)
        };
        self.zone_reporters().map(zone).collect()
    }

    pub(super) fn grain(&self, key: &GrainKey) -> Option<&GrainState> {
        self.grains.get(key)
    }

    pub(super) fn grain_mut(&mut self, key: &GrainKey) -> Option<&mut GrainState> {
        self.grains.get_mut(key)
    }

    /// Every grain there is, the fleet as a whole first.
    pub(super) fn grains(&self) -> impl Iterator<Item = (&GrainKey, &GrainState)> {
        self.grains.iter()
    }

    /// Every zone where a node reports, and how many do.
    pub(super) fn zone_reporters(&self) -> impl Iterator<Item = (&Locality, u64)> {
        let whole = self.grains.get(&None).into_iter();
        whole.flat_map(GrainState::reporters)
    }

    pub(super) fn grain_keys(&self) -> impl Iterator<Item = &GrainKey> {
        self.grains.keys()
    }

    /// Forgets a grain.
    pub(super) fn remove_grain(&mut self, key: &GrainKey) {
        self.grains.remove(key);
    }

    /// A zone whose last node left is unknown in every grain. Returns whether there was one.
    fn forget_silent_zones(&mut self) -> bool {
        let Some(whole) = self.grains.get(&None) else {
            return false;
        };
        let silent: Vec<Locality> = whole
            .reporters()
            .filter(|&(_, reporters)| reporters == 0)
            .map(|(locality, _)| locality.clone())
            .collect();
        for grain in self.grains.values_mut() {
            silent.iter().for_each(|zone| grain.remove_zone(zone));
        }
        !silent.is_empty()
    }
}
