//! One writer and many workers: snapshots are consistent and arrive in order, and no count is lost.
//!
//! Drivers own threads; these tests show that the shared parts of the core (publication, hosts,
//! counters) are thread-safe. Nothing is timed: the writer regularly waits until every worker has
//! caught up, and workers run until they have seen the last snapshot.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use plimsoll_core::host::{Host, RequestOutcome};
use plimsoll_core::model::assignment::AssignmentParts;
use plimsoll_core::model::health::HealthStatus;
use plimsoll_core::model::zone_aware::LocalityBasis;
use plimsoll_core::picker::{PickArgs, PickResult, Picker};
use plimsoll_core::rng::{Rng, Xoshiro256};

use crate::support::{Driver, at, by_basis, config, parts};

const WORKERS: usize = 4;
const UPDATES: u64 = 200;
/// Number of updates after which the writer waits for the workers.
const SYNC_INTERVAL: u64 = 20;
/// Zones, with the number of hosts that are added and removed there.
const ZONES: [(&str, usize); 3] = [("a", 20), ("b", 20), ("c", 20)];

/// Members of every generation: one bit per host in its assignment.
struct Generations {
    members: Vec<AtomicU64>,
    last: AtomicU64,
    done: AtomicBool,
    /// Newest generation that each worker has picked from; `u64::MAX` once it has ended.
    seen: [AtomicU64; WORKERS],
}

impl Generations {
    fn new() -> Self {
        // Each update makes at most two generations; the first is the empty snapshot.
        let members = (0..=2 * UPDATES).map(|_| AtomicU64::new(0)).collect();
        Self {
            members,
            last: AtomicU64::new(0),
            done: AtomicBool::new(false),
            seen: Default::default(),
        }
    }

    /// Must be called before the snapshot of `generation` is published.
    fn announce(&self, generation: u64, members: u64) {
        let index = usize::try_from(generation).expect("few generations");
        self.members[index].store(members, Ordering::Relaxed);
        self.last.store(generation, Ordering::Relaxed);
    }

    fn has(&self, generation: u64, host: &Host) -> bool {
        let index = usize::try_from(generation).expect("few generations");
        let members = self.members[index].load(Ordering::Relaxed);
        members >> bit_of(host.address()) & 1 == 1
    }

    /// Blocks until every worker has picked from `generation` or a later one.
    fn wait_for_workers(&self, generation: u64) {
        while self
            .seen
            .iter()
            .any(|seen| seen.load(Ordering::Relaxed) < generation)
        {
            thread::yield_now();
        }
    }
}

/// Returns the bit of an address in a set of members: 20 hosts per zone.
fn bit_of(address: SocketAddr) -> u32 {
    let IpAddr::V4(ip) = address.ip() else {
        unreachable!("{address} is not one of ours")
    };
    let [_, zone, _, host] = ip.octets();
    u32::from(zone) * 20 + u32::from(host)
}

/// Tells the writer on drop that a worker has ended, even by a panic, so that it does not wait.
struct EndGuard<'a>(&'a AtomicU64);

impl Drop for EndGuard<'_> {
    fn drop(&mut self) {
        self.0.store(u64::MAX, Ordering::Relaxed);
    }
}

/// Returns the hosts of `members`, a few of them unhealthy, so that lists differ.
fn assignment(members: u64) -> AssignmentParts {
    let mut assignment = parts(&ZONES);
    for (index, entry) in assignment.endpoints.iter_mut().enumerate() {
        let mut bit = index * 20;
        entry.lb_endpoints.retain(|_| {
            bit += 1;
            members >> (bit - 1) & 1 == 1
        });
        for endpoint in entry.lb_endpoints.iter_mut().skip(6) {
            endpoint.health_status = HealthStatus::Unhealthy;
        }
    }
    assignment
}

fn fleet(shift: u64) -> AssignmentParts {
    let mut fleet = parts(&[("a", 2), ("b", 2), ("c", 2)]);
    for (entry, bp) in fleet
        .endpoints
        .iter_mut()
        .zip([5000 + shift, 3500 - shift, 1500])
    {
        entry.observed_traffic_fraction = Some(bp);
    }
    fleet
}

/// Publishes `UPDATES` changes of hosts, each followed by a change of fractions; returns every host
/// that ever existed.
fn write(driver: &mut Driver, generations: &Generations) -> Vec<Arc<Host>> {
    let mut rng = Xoshiro256::from_seed(42);
    let mut hosts: BTreeMap<usize, Arc<Host>> = BTreeMap::new();
    let mut members = 0;
    for update in 0..UPDATES {
        // A quarter of the hosts, those with both bits set, are added or removed.
        members = (members ^ (rng.next_u64() & rng.next_u64())) | 1;
        let parts = assignment(members);
        let before = driver.balancer.stats().snapshots_built.get();
        driver
            .balancer
            .handle_assignment(crate::support::checked(parts), at(update));
        publish(driver, generations, members, before);
        let before = driver.balancer.stats().snapshots_built.get();
        driver
            .balancer
            .handle_fleet_assignment(crate::support::checked(fleet(update % 100)), at(update));
        publish(driver, generations, members, before);
        if update % SYNC_INTERVAL == 0 {
            generations.wait_for_workers(driver.snapshot().generation());
        }
        for host in driver.snapshot().hosts() {
            hosts.insert(Arc::as_ptr(host).addr(), Arc::clone(host));
        }
    }
    generations.done.store(true, Ordering::Release);
    hosts.into_values().collect()
}

/// Announces the generation of the next snapshot, then publishes it.
fn publish(driver: &mut Driver, generations: &Generations, members: u64, before: u64) {
    let generation = driver.balancer.stats().snapshots_built.get();
    if generation > before {
        generations.announce(generation, members);
    }
    driver.drain();
    assert_eq!(driver.snapshot().generation(), generation);
    thread::yield_now();
}

/// Counts of one worker.
#[derive(Debug, Default)]
struct Work {
    picks: u64,
    without_host: u64,
    generations: u64,
}

/// Picks until the last snapshot is seen; every pick starts a request and ends an older one.
fn work(mut picker: Picker, worker: usize, generations: &Generations) -> Work {
    let seen = EndGuard(&generations.seen[worker]);
    let mut work = Work::default();
    let mut newest = 0;
    let mut in_flight = std::collections::VecDeque::new();
    loop {
        let done = generations.done.load(Ordering::Acquire);
        for _ in 0..50 {
            match picker.pick(PickArgs::default()) {
                PickResult::Complete(pick) => {
                    assert!(
                        pick.generation >= newest,
                        "{} after {newest}",
                        pick.generation
                    );
                    work.generations += u64::from(pick.generation > newest);
                    newest = pick.generation;
                    assert!(
                        generations.has(newest, pick.host),
                        "{} is not in generation {newest}",
                        pick.host.address()
                    );
                    work.picks += 1;
                    in_flight.push_back(pick.host.begin_request());
                }
                PickResult::Queue => assert_eq!(newest, 0, "no return to the empty snapshot"),
                _ => work.without_host += 1,
            }
            if in_flight.len() > 20
                && let Some(oldest) = in_flight.pop_front()
            {
                oldest.finish(RequestOutcome::Success);
            }
        }
        seen.0.store(newest, Ordering::Relaxed);
        if done {
            assert_eq!(
                newest,
                generations.last.load(Ordering::Relaxed),
                "the last one was seen"
            );
            // Requests still in flight are dropped, which counts them as failed.
            return work;
        }
    }
}

fn run(mut driver: Driver) -> (Vec<Work>, Vec<Arc<Host>>) {
    let generations = Generations::new();
    let pickers: Vec<Picker> = (0..)
        .take(WORKERS)
        .map(|seed| driver.picker(seed))
        .collect();
    thread::scope(|scope| {
        let generations = &generations;
        let workers: Vec<_> = pickers
            .into_iter()
            .enumerate()
            .map(|(worker, picker)| scope.spawn(move || work(picker, worker, generations)))
            .collect();
        let hosts = write(&mut driver, generations);
        let work = workers
            .into_iter()
            .map(|worker| worker.join().expect("no worker panics"));
        (work.collect(), hosts)
    })
}

fn assert_nothing_lost(work: &[Work], hosts: &[Arc<Host>]) {
    let picks: u64 = work.iter().map(|work| work.picks).sum();
    let (mut issued, mut succeeded, mut failed) = (0, 0, 0);
    for host in hosts {
        let totals = host.totals();
        issued += totals.0;
        succeeded += totals.1;
        failed += totals.2;
        assert_eq!(host.active_requests(), 0, "{}", host.address());
        assert_eq!(host.cluster_load().active(), 0);
    }
    for work in work {
        assert!(
            work.picks > 0 && work.generations >= UPDATES / SYNC_INTERVAL,
            "{work:?}"
        );
    }
    assert_eq!(issued, picks, "every request start was counted");
    assert_eq!(succeeded + failed, picks, "every request end was counted");
    assert!(
        failed <= 21 * WORKERS as u64,
        "only requests in flight failed"
    );
}

#[test]
fn workers_see_consistent_snapshots_in_order_and_lose_no_count() {
    let driver = Driver::new(by_basis(LocalityBasis::LrsReportedRate), "a");
    let (work, hosts) = run(driver);
    assert_nothing_lost(&work, &hosts);
}

#[test]
fn least_request_reads_counters_of_other_workers() {
    use plimsoll_core::model::endpoint_policy::{EndpointPolicy, LeastRequest, LeastRequestParts};
    let policy = LeastRequest::try_new(LeastRequestParts::default()).expect("valid");
    let config = config(|parts| parts.endpoint_policy = EndpointPolicy::LeastRequest(policy));
    let (work, hosts) = run(Driver::new(config, "b"));
    assert_nothing_lost(&work, &hosts);
}

/// Each worker has its own counters; their sum is the number of picks.
#[test]
fn worker_counters_sum_to_the_number_of_picks() {
    let mut driver = Driver::new(by_basis(LocalityBasis::LrsReportedRate), "a");
    driver.originating(fleet(0), at(0));
    driver.assignment(parts(&ZONES), at(0));
    let mut first = driver.picker(1);
    let pickers: Vec<Picker> = (0..WORKERS).map(|_| first.fork()).collect();
    let stats: Vec<_> = pickers
        .iter()
        .map(|picker| Arc::clone(picker.stats()))
        .collect();
    let each = 20_000;
    thread::scope(|scope| {
        for mut picker in pickers {
            scope.spawn(move || {
                for _ in 0..each {
                    assert!(picker.pick(PickArgs::default()).host().is_some());
                }
            });
        }
    });
    for stats in &stats {
        let routed = stats.lb_zone_routing_sampled.get() + stats.lb_zone_routing_cross_zone.get();
        assert_eq!(routed, each, "one counter per pick: {stats:?}");
    }
    let kept: Vec<u64> = stats
        .iter()
        .map(|stats| stats.lb_zone_routing_sampled.get())
        .collect();
    assert!(
        kept.windows(2).any(|pair| pair[0] != pair[1]),
        "workers draw independently: {kept:?}"
    );
    assert_eq!(
        first.stats().lb_zone_routing_sampled.get(),
        0,
        "a fork has its own counters"
    );
}
