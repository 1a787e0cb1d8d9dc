//! [`Shares`]: how the proxies of every zone divide their requests, and [`ShareCache`].
//!
//! Shares only change with the configuration, the proxies of a fleet and the delivered demand, but
//! take a balancer to compute. They are computed beside the writer, a few at a time, and kept.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use plimsoll_core::explain::{Explanation, LocalityExplanation, ZoneExplanation};
use plimsoll_core::model::locality::Locality;
use plimsoll_core::planner::fractions::ZoneFraction;
use plimsoll_core::time::Instant;

use super::enforced::is_enforced;
use crate::config::{ControlConfig, Service};
use crate::explain::{Prepared, Question, Routing};
use crate::fleet_plan::FleetPlan;
use crate::run::Context;
use crate::server::Stopped;
use crate::state::State;

/// Pairs of fleet and service that are prepared between two messages of the writer.
const PREPARED_AT_ONCE: usize = 4;

/// How the proxies of every zone divide their requests to one service.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Shares {
    /// Share of the capacity of every zone with hosts.
    pub(super) capacity: BTreeMap<Locality, f64>,
    pub(super) rows: Rows,
    /// Why zones are above their line.
    pub(super) above_line: BTreeMap<Locality, Arc<str>>,
}

/// How the proxies of every zone divide their requests.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) enum Rows {
    #[default]
    NotComputed,
    /// By zone of the proxies: the share of each zone in [`Shares::capacity`], in its order.
    Computed(BTreeMap<Locality, Vec<f64>>),
    /// The policy chooses by what proxies observe: their reports have the shares.
    Observed,
    /// As `Observed`, for resources that proxies do not have.
    OnlyProxiesKnow,
}

/// Shares of one service now and with `mode: ENFORCE`.
#[derive(Clone, Debug, Default)]
pub(super) struct ServiceShares {
    pub(super) now: Arc<Shares>,
    pub(super) enforce: Arc<Shares>,
}

/// Why a zone is above its line with policies that observe load.
const BY_OBSERVED_LOAD: &str = "proxies choose zones by the load that they observe";

/// Names of the fleet and of the service.
pub(super) type Key = (Arc<str>, Arc<str>);

/// Shares that were computed before, shared by cloning.
#[derive(Clone, Debug, Default)]
pub(crate) struct ShareCache {
    entries: Arc<Mutex<BTreeMap<Key, Entry>>>,
    /// Held while shares are computed: one caller at a time.
    computing: Arc<tokio::sync::Mutex<()>>,
}

#[derive(Clone, Debug)]
struct Entry {
    config: Arc<ControlConfig>,
    inputs: u64,
    shares: ServiceShares,
}

struct Stale {
    key: Key,
    config: Arc<ControlConfig>,
    inputs: u64,
    now: Prepared,
    /// `None` if it is the same as `now`.
    enforce: Option<Prepared>,
}

impl Shares {
    fn of(explanation: &Explanation) -> Self {
        let rows = explanation.localities.iter();
        let order: Vec<Locality> = rows.map(LocalityExplanation::locality).collect();
        let capacity: BTreeMap<Locality, f64> = order
            .iter()
            .cloned()
            .zip(explanation.localities.iter().map(|row| row.capacity_share))
            .collect();
        let row = |zone: &ZoneExplanation| {
            let shares = order.iter().zip(&zone.shares);
            let by_zone: BTreeMap<&Locality, f64> =
                shares.map(|(to, share)| (to, *share)).collect();
            let sorted = capacity.keys();
            let share = |to| by_zone.get(to).copied().unwrap_or(0.0);
            (zone.locality.clone(), sorted.map(share).collect())
        };
        Self {
            rows: Rows::Computed(explanation.zones.iter().map(row).collect()),
            above_line: explanation
                .localities
                .iter()
                .filter_map(above_line)
                .collect(),
            capacity,
        }
    }

    /// Returns why a zone is above its line, if it is.
    pub(super) fn reason(&self, zone: &Locality) -> Option<Arc<str>> {
        match self.rows {
            Rows::Observed => Some(BY_OBSERVED_LOAD.into()),
            _ => self.above_line.get(zone).cloned(),
        }
    }

    /// Replaces the rows of an explanation in which proxies have observed nothing.
    fn with_rows(mut self, rows: Rows) -> Self {
        self.rows = rows;
        self.above_line.clear();
        self
    }
}

impl ShareCache {
    pub(super) fn get(&self, key: &Key) -> Option<ServiceShares> {
        self.lock().get(key).map(|entry| entry.shares.clone())
    }

    /// Computes shares whose inputs have changed, until `budget` is used up; the others follow in
    /// later calls and stay as they were. The budget includes the wait for another caller that
    /// computes.
    pub(super) async fn refresh(&self, context: &Context, budget: Duration) -> Result<(), Stopped> {
        let started = tokio::time::Instant::now();
        let Ok(_turn) = tokio::time::timeout(budget, self.computing.lock()).await else {
            return Ok(());
        };
        loop {
            let cache = self.clone();
            let find = move |state: &State, now| cache.stale(state, now);
            let stale = context.handle.inspect(find).await?;
            if stale.is_empty() {
                return Ok(());
            }
            let cache = self.clone();
            // At least one, so that callers with small budgets get on as well.
            let compute = move || {
                for (done, stale) in stale.into_iter().enumerate() {
                    if done > 0 && started.elapsed() >= budget {
                        return;
                    }
                    cache.compute(stale);
                }
            };
            // The thread only fails if it panics, or if the runtime shuts down.
            tokio::task::spawn_blocking(compute)
                .await
                .map_err(|_| Stopped)?;
            if started.elapsed() >= budget {
                return Ok(());
            }
        }
    }

    /// Like [`Self::refresh`], in the calling thread.
    #[cfg(test)]
    pub(super) fn refresh_now(&self, state: &State, now: Instant) {
        loop {
            let stale = self.stale(state, now);
            if stale.is_empty() {
                return;
            }
            stale.into_iter().for_each(|stale| self.compute(stale));
        }
    }

    /// Drops entries of removed fleets and services, and prepares some that have changed.
    fn stale(&self, state: &State, now: Instant) -> Vec<Stale> {
        let mut entries = self.lock();
        entries.retain(|(fleet, cluster), _| {
            state.fleet_plan(fleet).is_some() && state.service(cluster).is_some()
        });
        let mut stale = Vec::new();
        for (fleet, _) in state.fleets().iter() {
            let Some(plan) = state.fleet_plan(fleet) else {
                continue;
            };
            let of_fleet = fleet_inputs(state, fleet, plan);
            for service in state.shown_services() {
                if stale.len() >= PREPARED_AT_ONCE {
                    return stale;
                }
                let key = (Arc::clone(fleet), Arc::clone(service.name()));
                let inputs = inputs(state, fleet, of_fleet, plan, service);
                let current = entries.get(&key).is_some_and(|entry| {
                    Arc::ptr_eq(&entry.config, state.config()) && entry.inputs == inputs
                });
                if !current {
                    stale.extend(prepare(state, key, service, inputs, now));
                }
            }
        }
        stale
    }

    fn compute(&self, stale: Stale) {
        let differs = |enforce: &Prepared| !stale.now.observes_the_same(enforce);
        let different = stale.enforce.filter(differs);
        let now = shares(stale.now, Rows::Observed);
        let enforce = different.map_or_else(
            || Arc::clone(&now),
            |enforce| shares(enforce, Rows::OnlyProxiesKnow),
        );
        let entry = Entry {
            config: stale.config,
            inputs: stale.inputs,
            shares: ServiceShares { now, enforce },
        };
        self.lock().insert(stale.key, entry);
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Key, Entry>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn above_line(row: &LocalityExplanation) -> Option<(Locality, Arc<str>)> {
    let above = row.above_line.as_ref()?;
    Some((row.locality(), above.text.as_str().into()))
}

/// Runs the balancer; `observed` replaces its shares if the policy chooses by observed load.
fn shares(prepared: Prepared, observed: Rows) -> Arc<Shares> {
    let by_observed_load = prepared.observes_load();
    let explained = prepared.explain().ok();
    let shares = explained.as_ref().map(Shares::of).unwrap_or_default();
    Arc::new(if by_observed_load {
        shares.with_rows(observed)
    } else {
        shares
    })
}

fn prepare(state: &State, key: Key, service: &Service, inputs: u64, now: Instant) -> Option<Stale> {
    let question = Question {
        cluster: key.1.to_string(),
        fleet: Some(key.0.to_string()),
        every_zone: true,
        ..Question::default()
    };
    let prepared = |routing| {
        let question = Question {
            routing,
            ..question.clone()
        };
        Prepared::new(state, &question, now).ok()
    };
    Some(Stale {
        now: prepared(Routing::Now)?,
        enforce: if is_enforced(service) {
            None
        } else {
            Some(prepared(Routing::Enforce)?)
        },
        key,
        config: Arc::clone(state.config()),
        inputs,
    })
}

/// Hashes what the shares of all services of a fleet are computed from, beside the configuration:
/// its proxies, and its demand as delivered and as measured.
fn fleet_inputs(state: &State, fleet: &Arc<str>, plan: &FleetPlan) -> u64 {
    let mut hash = DefaultHasher::new();
    for slot in &plan.counts.localities {
        (&slot.locality, slot.healthy).hash(&mut hash);
    }
    // The class of proxies decides how demand is delivered.
    for class in state.fleets().classes(fleet) {
        (class as u8).hash(&mut hash);
    }
    add_zones(&mut hash, Some(&plan.zones));
    let measured = state.measured_plan(fleet, None);
    add_zones(&mut hash, measured.map(|plan| &plan.zones[..]));
    hash.finish()
}

/// Hashes what the shares of one service are computed from.
fn inputs(
    state: &State,
    fleet: &Arc<str>,
    fleet_inputs: u64,
    plan: &FleetPlan,
    service: &Service,
) -> u64 {
    let mut hash = DefaultHasher::new();
    fleet_inputs.hash(&mut hash);
    let own = plan.services.get(service.name());
    add_zones(&mut hash, own.map(|own| &own.zones[..]));
    let measured = state.measured_plan(fleet, Some(service.name()));
    add_zones(&mut hash, measured.map(|plan| &plan.zones[..]));
    let own = state.own_plan(service.name());
    add_zones(&mut hash, own.map(|plan| plan.zones()));
    hash.finish()
}

fn add_zones(hash: &mut DefaultHasher, zones: Option<&[ZoneFraction]>) {
    let zones = zones.unwrap_or_default();
    zones.len().hash(hash);
    for zone in zones {
        (&zone.locality, zone.fraction.get()).hash(hash);
    }
}
