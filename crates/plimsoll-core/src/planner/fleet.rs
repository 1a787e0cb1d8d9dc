//! [`Fleet`]: the load reports of one fleet and the sums of its scopes.
//!
//! Keeps the sums of all scopes in step with the reports. `fractions` and `scope` decide what
//! follows from them.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use super::aggregate::{Change, Reports};
use super::failing::{self, Changed};
use super::fractions::ReportedZone;
use super::outcomes::{Outcome, Outcomes};
use super::scope::ScopeState;
use crate::evacuation::{Ended, ErrorMatrix};
use crate::model::load_report::ClusterStats;
use crate::model::locality::Locality;
use crate::time::Instant;

/// Key of a scope within its fleet: an upstream cluster, or `None` for all of them.
pub(super) type ScopeKey = Option<Arc<str>>;

#[derive(Debug, Default)]
pub(super) struct Fleet {
    pub(super) reports: Reports,
    scopes: BTreeMap<ScopeKey, ScopeState>,
}

impl Fleet {
    pub(super) fn apply(
        &mut self,
        changes: &[Change],
        interval: Option<Duration>,
        tau: Duration,
        now: Instant,
    ) -> BTreeSet<ScopeKey> {
        let mut touched = BTreeSet::new();
        for change in changes {
            let scope = self
                .scopes
                .entry(change.upstream_cluster.clone())
                .or_insert_with(|| ScopeState::new(now));
            scope.apply(change, interval, tau, now);
            touched.insert(change.upstream_cluster.clone());
        }
        if self.forget_silent_zones() {
            touched.extend(self.scopes.keys().cloned());
        }
        touched
    }

    /// Demand of every zone with reporters, smoothed at a moment or (`None`) its final value; empty
    /// if no node mentions the cluster. A zone whose nodes do not mention it has demand zero, since
    /// proxies report every cluster they use.
    pub(super) fn reported_zones(
        &self,
        key: &ScopeKey,
        smoothed: Option<(Duration, Instant)>,
    ) -> BTreeMap<Locality, ReportedZone> {
        let Some(scope) = self.scopes.get(key) else {
            return BTreeMap::new();
        };
        if !scope.has_reporters() {
            return BTreeMap::new();
        }
        let zone = |(locality, reporters): (&Locality, u64)| {
            let rate_per_second = match smoothed {
                Some((tau, now)) => scope.smoothed(locality, tau, now),
                None => scope.target(locality),
            };
            let known = ReportedZone {
                rate_per_second,
                reporters,
            };
            (locality.clone(), known)
        };
        self.zone_reporters().map(zone).collect()
    }

    /// Divides the statistics of a report into those of clusters that the fleet has room for, and
    /// the names of others. Names come from the network.
    pub(super) fn admit<'a>(
        &self,
        stats: &'a [ClusterStats],
        max_clusters: usize,
    ) -> (Cow<'a, [ClusterStats]>, Vec<Arc<str>>) {
        let whole_fleet = usize::from(self.scopes.contains_key(&None));
        let mut room = max_clusters.saturating_sub(self.scopes.len() - whole_fleet);
        let is_known =
            |stats: &ClusterStats| self.scopes.contains_key(&Some(stats.cluster_name.clone()));
        if stats.len() <= room || stats.iter().all(is_known) {
            return (Cow::Borrowed(stats), Vec::new());
        }
        let mut refused = Vec::new();
        let mut admitted = Vec::new();
        for stats in stats {
            if is_known(stats) {
                admitted.push(stats.clone());
            } else if room > 0 {
                room -= 1;
                admitted.push(stats.clone());
            } else {
                refused.push(Arc::clone(&stats.cluster_name));
            }
        }
        (Cow::Owned(admitted), refused)
    }

    /// Finds the upstream zones of a scope whose requests fail or are not seen, at most once per
    /// second.
    pub(super) fn evaluate_failures(
        &mut self,
        key: &ScopeKey,
        interval: Duration,
        now: Instant,
    ) -> Changed {
        let Some(scope) = self.scopes.get_mut(key) else {
            return Changed::default();
        };
        if !scope.failing.is_due(now) {
            return Changed::default();
        }
        let outcomes = self.reports.outcomes.get(key);
        let reporters = scope.reporters().filter(|(_, reporters)| *reporters > 0);
        let reporters: BTreeSet<Locality> = reporters.map(|(zone, _)| zone.clone()).collect();
        scope.unseen.evaluate(outcomes, &reporters, interval, now);
        let compared = outcomes.map(failing::compared).unwrap_or_default();
        scope.losses.evaluate(&compared, &reporters, now);
        scope.failing.evaluate(&compared, &reporters, now)
    }

    /// Returns the share of failed requests in the latest reports, by upstream zone, 0 to 1.
    pub(super) fn failed_shares(&self, key: &ScopeKey) -> BTreeMap<&Locality, f64> {
        let outcomes = self.reports.outcomes.get(key);
        outcomes
            .into_iter()
            .flat_map(Outcomes::failed_shares)
            .collect()
    }

    /// Returns what became of the requests between zones, to all upstream clusters together.
    pub(super) fn errors(&self) -> ErrorMatrix {
        let sums = self.reports.outcomes.get(&None);
        let rows = sums.into_iter().flat_map(Outcomes::by_source);
        rows.map(|(from, row)| {
            let cell = |(to, outcome): (&Locality, &Outcome)| {
                let ended = Ended {
                    requests: outcome.requests(),
                    failed: outcome.failed,
                };
                (to.clone(), ended)
            };
            (from.clone(), row.iter().map(cell).collect())
        })
        .collect()
    }

    pub(super) fn scope(&self, key: &ScopeKey) -> Option<&ScopeState> {
        self.scopes.get(key)
    }

    pub(super) fn scope_mut(&mut self, key: &ScopeKey) -> Option<&mut ScopeState> {
        self.scopes.get_mut(key)
    }

    pub(super) fn scopes(&self) -> impl Iterator<Item = (&ScopeKey, &ScopeState)> {
        self.scopes.iter()
    }

    pub(super) fn zone_reporters(&self) -> impl Iterator<Item = (&Locality, u64)> {
        let whole = self.scopes.get(&None).into_iter();
        whole.flat_map(ScopeState::reporters)
    }

    pub(super) fn scope_keys(&self) -> impl Iterator<Item = &ScopeKey> {
        self.scopes.keys()
    }

    pub(super) fn remove_scope(&mut self, key: &ScopeKey) {
        self.scopes.remove(key);
    }

    /// Removes zones without reporters from every scope. Returns whether there were any.
    fn forget_silent_zones(&mut self) -> bool {
        let Some(whole) = self.scopes.get(&None) else {
            return false;
        };
        let silent: Vec<Locality> = whole
            .reporters()
            .filter(|&(_, reporters)| reporters == 0)
            .map(|(locality, _)| locality.clone())
            .collect();
        for scope in self.scopes.values_mut() {
            silent.iter().for_each(|zone| scope.remove_zone(zone));
        }
        !silent.is_empty()
    }
}
