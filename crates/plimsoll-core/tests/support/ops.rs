//! Interpreter of operation sequences: maps a byte string to calls on a balancer and its pickers.
//!
//! Every string is valid, so that a fuzzer wastes none. After each operation the invariants of
//! `checks.rs` are checked against a simple model. Used by `tests/suite/ops.rs` with seeded random
//! strings and by the fuzz target `balancer_ops`. Included by path, with `ops/` beside it; uses the
//! public API only.

use std::sync::Arc;
use std::time::Duration;

use plimsoll_core::balancer::Balancer;
use plimsoll_core::event::Event;
use plimsoll_core::host::{ActiveRequest, Host, RequestOutcome};
use plimsoll_core::host_source::HostSource;
use plimsoll_core::model::assignment::ClusterLoadAssignment;
use plimsoll_core::model::cluster::ClusterConfig;
use plimsoll_core::model::health::HealthSignal;
use plimsoll_core::picker::{PickArgs, PickResult, Picker};
use plimsoll_core::publish::{self, Publisher, Reader};
use plimsoll_core::rng::Xoshiro256;
use plimsoll_core::snapshot::RoutingSnapshot;
use plimsoll_core::time::Instant;

#[path = "ops/bytes.rs"]
pub(crate) mod bytes;
#[path = "ops/checks.rs"]
mod checks;
#[path = "ops/configs.rs"]
mod configs;
#[path = "ops/inputs.rs"]
pub(crate) mod inputs;
#[path = "ops/loads.rs"]
mod loads;
#[path = "ops/model.rs"]
mod model;

use bytes::Bytes;
use model::Model;

/// Maximum number of requests in flight.
const IN_FLIGHT: usize = 24;

/// Counters of what a string exercised, so that a test can check its coverage.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Coverage {
    pub(crate) snapshots: u64,
    pub(crate) refused: u64,
    pub(crate) stale: u64,
    pub(crate) recovered: u64,
    pub(crate) picks: u64,
    pub(crate) drops: u64,
    pub(crate) failures: u64,
    pub(crate) queued: u64,
    pub(crate) local: u64,
    pub(crate) avoided: u64,
    /// Load reports that were used.
    pub(crate) reports: u64,
    /// By source: all, healthy, degraded; a locality's healthy, degraded, all.
    pub(crate) sources: [u64; 6],
}

/// Runs the operations that `bytes` encode. Panics if the core violates an invariant.
pub(crate) fn run(bytes: &[u8]) -> Coverage {
    let mut bytes = Bytes::new(bytes);
    let mut world = World::new(&mut bytes);
    // Most sequences start with hosts and a fleet, so that the operations have an effect.
    if !bytes.once_in(8) {
        world.assign(valid_assignment(&mut bytes));
        world.originate(valid_assignment(&mut bytes));
    }
    while !bytes.is_empty() {
        world.step(&mut bytes);
        world.check();
    }
    world.coverage
}

struct World {
    model: Model,
    balancer: Balancer,
    publisher: Publisher<RoutingSnapshot>,
    reader: Reader<RoutingSnapshot>,
    picker: Picker,
    now: Instant,
    requests: Vec<ActiveRequest>,
    tried: Vec<Arc<Host>>,
    coverage: Coverage,
}

impl World {
    fn new(bytes: &mut Bytes<'_>) -> Self {
        let now = Instant::from_secs(u64::from(bytes.byte()) * 100);
        let own = inputs::locality(bytes);
        let config = valid_config(bytes);
        let balancer = Balancer::new(Arc::clone(&config), own.clone(), now);
        let (publisher, reader) = publish::channel(balancer.initial_snapshot(now));
        let picker = Picker::new(
            reader.clone(),
            Xoshiro256::from_seed(u64::from(bytes.byte())),
        );
        Self {
            model: Model::new(config, own),
            balancer,
            publisher,
            reader,
            picker,
            now,
            requests: Vec::new(),
            tried: Vec::new(),
            coverage: Coverage::default(),
        }
    }

    fn step(&mut self, bytes: &mut Bytes<'_>) {
        match bytes.below(27) {
            0..=2 => self.assign(valid_assignment(bytes)),
            3 => self.repeat_assignment(),
            4 => self.refuse(bytes),
            5 | 6 => self.configure(bytes),
            7 | 8 => self.originate(valid_assignment(bytes)),
            9 => {
                let fractions = inputs::fractions(bytes);
                self.model.observe(!fractions.is_empty(), self.now);
                self.balancer.handle_observed_traffic(fractions, self.now);
                self.drain();
            }
            10 | 11 => self.signal(bytes),
            12 => self.timeout(),
            13 => {
                self.now = self
                    .balancer
                    .poll_timeout()
                    .unwrap_or(self.now)
                    .max(self.now);
                self.timeout();
            }
            14 => {
                let steps = [
                    0,
                    1,
                    1_000_000,
                    1_000_000_000,
                    10_000_000_000,
                    61_000_000_000,
                ];
                let step = Duration::from_nanos(bytes.one_of(&steps));
                self.now = self.now.saturating_add(step);
            }
            // A clock that steps back does no harm.
            15 => {
                let back = bytes.one_of(&[1, 1_000_000_000, 3_600_000_000_000]);
                self.now = Instant::from_nanos(self.now.as_nanos().saturating_sub(back));
            }
            16..=18 => (0..=bytes.below(16)).for_each(|_| self.pick(None, false)),
            19 => self.pick(Some(bytes.number()), bytes.flag()),
            20 => self.pick(None, true),
            21 => self.finish(bytes),
            22 => self.tried.clear(),
            23..=25 => self.report(bytes),
            _ => self.replace_picker(bytes),
        }
    }

    fn assign(&mut self, assignment: ClusterLoadAssignment) {
        self.model.assign(assignment.clone());
        self.balancer.handle_assignment(assignment, self.now);
        self.drain();
    }

    fn originate(&mut self, fleet: ClusterLoadAssignment) {
        self.model.originate(fleet.clone(), self.now);
        self.balancer.handle_fleet_assignment(fleet, self.now);
        self.drain();
    }

    /// Repeating an assignment is a no-op, unless host weights come from load reports, which an
    /// assignment resets.
    fn repeat_assignment(&mut self) {
        if self.model.reported_weights {
            return;
        }
        if let Some(assignment) = self.model.assignment.clone() {
            self.balancer.handle_assignment(assignment, self.now);
            assert!(self.balancer.poll_snapshot().is_none(), "nothing changed");
            assert_eq!(self.balancer.poll_event(), None, "nothing happened");
        }
    }

    /// Rejects broken inputs with the path of the field and no other effect.
    fn refuse(&mut self, bytes: &mut Bytes<'_>) {
        let (result, path) = if bytes.flag() {
            let (parts, path) = inputs::broken_assignment(bytes);
            (ClusterLoadAssignment::try_new(parts).map(drop), path)
        } else {
            configs::broken_config(bytes)
        };
        let error = result.expect_err("a broken input");
        assert!(error.path().contains(path), "{error} does not name {path}");
        assert!(!error.reason().is_empty());
        self.coverage.refused += 1;
    }

    fn configure(&mut self, bytes: &mut Bytes<'_>) {
        let config = valid_config(bytes);
        self.model.configure(Arc::clone(&config));
        // Settings under which fractions are already too old expire them at once.
        self.model.expire(self.now);
        self.balancer.handle_config(config, self.now);
        self.drain();
    }

    /// Applies a load report to a host, which may use it or not.
    fn report(&mut self, bytes: &mut Bytes<'_>) {
        let report = loads::report(bytes);
        let snapshot = Arc::clone(self.reader.latest());
        let config = snapshot.config();
        let hosts: Vec<_> = snapshot.hosts().collect();
        if hosts.is_empty() {
            return;
        }
        let host = hosts[bytes.below(hosts.len())];
        let used = host.observe_orca(&report, config, self.now);
        let wanted = self.model.follows_reports();
        assert!(wanted || !used, "the policy does not use reports");
        let utilization = host.utilization().map(|(utilization, _)| utilization);
        assert!(utilization.is_none_or(|value| (0.0..=1.0).contains(&value)));
        self.coverage.reports += u64::from(used);
    }

    fn signal(&mut self, bytes: &mut Bytes<'_>) {
        let signal = bytes.one_of(&[
            HealthSignal::ActiveCheckPassed,
            HealthSignal::ActiveCheckFailed,
            HealthSignal::ActiveCheckDegraded,
            HealthSignal::ImmediateFailure,
            HealthSignal::OutlierEjected,
            HealthSignal::OutlierReturned,
        ]);
        let address = inputs::address(bytes);
        self.model.signal(address, signal);
        self.balancer.handle_health(address, signal, self.now);
        self.drain();
    }

    /// Fires the timer: early it does nothing, late it handles everything that was due, and then it
    /// is not due again at once.
    fn timeout(&mut self) {
        let due = self
            .balancer
            .poll_timeout()
            .is_some_and(|deadline| deadline <= self.now);
        let knows_ages = self.model.knows_ages();
        let expected = self.model.expire(self.now);
        self.balancer.handle_timeout(self.now);
        let next = self.balancer.poll_timeout();
        assert!(
            next.is_none_or(|next| next > self.now),
            "{next:?} at {:?}",
            self.now
        );
        if !due {
            assert!(self.balancer.poll_snapshot().is_none(), "early");
        }
        let in_force = self.model.threshold();
        let stale = |event: &Event| match *event {
            Event::FractionsStale {
                origin,
                age,
                threshold,
            } => {
                assert!(age >= threshold && in_force == Some(threshold));
                Some((origin, age))
            }
            _ => None,
        };
        let events = self.drain();
        assert!(due || events.is_empty(), "too early: {events:?}");
        let reported: Vec<_> = events.iter().filter_map(stale).collect();
        assert!(
            !knows_ages || reported == expected,
            "{reported:?} is not {expected:?}"
        );
    }

    fn pick(&mut self, hash: Option<u64>, retry: bool) {
        let snapshot = Arc::clone(self.reader.latest());
        let avoid = if retry { &self.tried[..] } else { &[] };
        match self.picker.pick(PickArgs {
            hash,
            avoid,
            ..Default::default()
        }) {
            PickResult::Complete(pick) => {
                checks::pick(&pick, avoid, &snapshot, &self.model);
                self.coverage.picks += 1;
                self.coverage.local += u64::from(pick.local);
                self.coverage.avoided += u64::from(!avoid.is_empty());
                self.coverage.sources[match pick.source {
                    HostSource::AllHosts => 0,
                    HostSource::HealthyHosts => 1,
                    HostSource::DegradedHosts => 2,
                    HostSource::LocalityHealthyHosts(_) => 3,
                    HostSource::LocalityDegradedHosts(_) => 4,
                    HostSource::LocalityAllHosts(_) => 5,
                }] += 1;
                self.tried.push(Arc::clone(pick.host));
                if self.requests.len() < IN_FLIGHT {
                    self.requests.push(pick.host.begin_request());
                }
            }
            PickResult::Drop { category } => {
                let drops = self
                    .model
                    .assignment
                    .iter()
                    .flat_map(ClusterLoadAssignment::drop_overloads);
                assert!(drops.into_iter().any(|drop| drop.category == *category));
                self.coverage.drops += 1;
            }
            PickResult::Fail(error) => {
                checks::failure(error, &snapshot, &self.model);
                self.coverage.failures += 1;
            }
            PickResult::Queue => {
                assert!(
                    self.model.assignment.is_none(),
                    "queued after an assignment"
                );
                self.coverage.queued += 1;
            }
        }
        if self.tried.len() > 8 {
            self.tried.clear();
        }
    }

    fn finish(&mut self, bytes: &mut Bytes<'_>) {
        if self.requests.is_empty() {
            return;
        }
        let request = self.requests.swap_remove(bytes.below(self.requests.len()));
        let (host, before) = (Arc::clone(request.host()), request.host().totals());
        let good = bytes.flag();
        match bytes.below(3) {
            0 => drop(request),
            _ if good => {
                let latency = Duration::from_micros(bytes.one_of(&[1_000, 0, 50_000]));
                request.finish_with_latency(RequestOutcome::Success, latency);
            }
            _ => request.finish(RequestOutcome::Error),
        }
        let after = host.totals();
        let ended = |totals: (u64, u64, u64)| totals.1 + totals.2;
        assert_eq!(
            (after.0, ended(after)),
            (before.0, ended(before) + 1),
            "ended once"
        );
    }

    fn replace_picker(&mut self, bytes: &mut Bytes<'_>) {
        self.picker = if bytes.flag() {
            self.picker.fork()
        } else {
            Picker::new(self.reader.clone(), Xoshiro256::from_seed(bytes.number()))
        };
    }

    /// Drains the balancer, as a driver does after every input.
    fn drain(&mut self) -> Vec<Event> {
        if let Some(snapshot) = self.balancer.poll_snapshot() {
            let before = self.reader.latest().generation();
            assert!(snapshot.generation() > before, "generations grow");
            checks::snapshot(&snapshot, &mut self.model);
            self.publisher.publish(snapshot);
            self.coverage.snapshots += 1;
        }
        assert!(self.balancer.poll_snapshot().is_none(), "the newest, once");
        let events: Vec<Event> = std::iter::from_fn(|| self.balancer.poll_event()).collect();
        for event in &events {
            match event {
                Event::FractionsStale { .. } => self.coverage.stale += 1,
                Event::FractionsRecovered { .. } => self.coverage.recovered += 1,
                _ => {}
            }
        }
        events
    }

    /// Checks the invariants that hold at any time.
    fn check(&mut self) {
        let stats = self.balancer.stats();
        assert_eq!(
            stats.lrs_fractions_stale.get(),
            self.coverage.stale,
            "each reported once"
        );
        assert_eq!(stats.snapshots_built.get(), self.coverage.snapshots);
        if !self.model.ticks() && self.model.knows_ages() {
            assert_eq!(self.balancer.poll_timeout(), self.model.deadline());
        }
        for request in &self.requests {
            let host = request.host();
            let mine = self
                .requests
                .iter()
                .filter(|other| Arc::ptr_eq(other.host(), host));
            assert_eq!(host.active_requests(), mine.count() as u64);
            assert_eq!(host.cluster_load().active(), self.requests.len() as u64);
        }
    }
}

fn valid_config(bytes: &mut Bytes<'_>) -> Arc<ClusterConfig> {
    Arc::new(ClusterConfig::try_new(configs::config(bytes)).expect("valid settings"))
}

fn valid_assignment(bytes: &mut Bytes<'_>) -> ClusterLoadAssignment {
    ClusterLoadAssignment::try_new(inputs::assignment(bytes)).expect("a valid assignment")
}
