//! One writer, many workers: snapshots are whole, arrive in order, and no count is lost.
//!
//! Threads are the business of drivers; here they show that the parts of the core which threads
//! share (publication, hosts, counters) hold up. Nothing is timed: the writer waits now and then
//! until every worker has followed, the workers go on until they have seen the last snapshot.

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

mod support;

use support::{Driver, at, by_basis, config, parts};

const WORKERS: usize = 4;
const UPDATES: u64 = 200;
/// Updates after which the writer waits for the workers.
const PACE: u64 = 20;
/// Hosts that come and go.
const ZONES: [(&str, usize); 3] = [("a", 20), ("b", 20), ("c", 20)];

/// What is known of every generation: a bit per host that its assignment has.
struct Generations {
    members: Vec<AtomicU64>,
    last: AtomicU64,
    done: AtomicBool,
    /// Newest generation that each worker has picked from; the largest number once it is gone.
    seen: [AtomicU64; WORKERS],
}

impl Generations {
    fn new() -> Self {
        // Two updates at most make one generation each; the first is the empty snapshot.
        let members = (0..=2 * UPDATES).map(|_| AtomicU64::new(0)).collect();
        Self {
            members,
            last: AtomicU64::new(0),
            done: AtomicBool::new(false),
            seen: Default::default(),
        }
    }

    /// To be called before the snapshot of `generation` is published.
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

    /// Until every worker has picked from `generation` or a later one.
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

/// Its place in a set of members: 20 hosts to a zone.
fn bit_of(address: SocketAddr) -> u32 {
    let IpAddr::V4(ip) = address.ip() else {
        unreachable!("{address} is not one of ours")
    };
    let [_, zone, _, host] = ip.octets();
    u32::from(zone) * 20 + u32::from(host)
}

/// Tells the writer that a worker is gone, also when it panicked: it must not be waited for.
struct Leaving<'a>(&'a AtomicU64);

impl Drop for Leaving<'_> {
    fn drop(&mut self) {
        self.0.store(u64::MAX, Ordering::Relaxed);
    }
}

/// The hosts of `members`; a few of them unhealthy, so that lists differ.
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

/// Publishes `UPDATES` changes of hosts, each followed by one of fractions alone; returns every
/// host there ever was.
fn write(driver: &mut Driver, generations: &Generations) -> Vec<Arc<Host>> {
    let mut rng = Xoshiro256::from_seed(42);
    let mut hosts: BTreeMap<usize, Arc<Host>> = BTreeMap::new();
    let mut members = 0;
    for update in 0..UPDATES {
        // Bits that are set in both draws change sides: a quarter of the hosts.
        members = (members ^ (rng.next_u64() & rng.next_u64())) | 1;
        let parts = assignment(members);
        let before = driver.balancer.stats().snapshots_built.get();
        driver
            .balancer
            .handle_assignment(support::checked(parts), at(update));
        publish(driver, generations, (members, before));
        let before = driver.balancer.stats().snapshots_built.get();
        driver
            .balancer
            .handle_originating(support::checked(fleet(update % 100)), at(update));
        publish(driver, generations, (members, before));
        if update % PACE == 0 {
            generations.wait_for_workers(driver.snapshot().generation());
        }
        for host in driver.snapshot().hosts() {
            hosts.insert(Arc::as_ptr(host).addr(), Arc::clone(host));
        }
    }
    generations.done.store(true, Ordering::Release);
    hosts.into_values().collect()
}

/// The count of built snapshots is the next generation: announce it, then let workers see it.
fn publish(driver: &mut Driver, generations: &Generations, (members, before): (u64, u64)) {
    let generation = driver.balancer.stats().snapshots_built.get();
    if generation > before {
        generations.announce(generation, members);
    }
    driver.drain();
    assert_eq!(driver.snapshot().generation(), generation);
    thread::yield_now();
}

/// What one worker did.
#[derive(Debug, Default)]
struct Work {
    picks: u64,
    without_host: u64,
    generations: u64,
}

/// Picks until the last snapshot was seen; every pick begins a request and ends an older one.
fn work(mut picker: Picker, worker: usize, generations: &Generations) -> Work {
    let seen = Leaving(&generations.seen[worker]);
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
                PickResult::Queue => assert_eq!(newest, 0, "no way back to before the first"),
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
            // What is still in flight is dropped: counted as failed, but counted.
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
            work.picks > 0 && work.generations >= UPDATES / PACE,
            "{work:?}"
        );
    }
    assert_eq!(
        issued, picks,
        "every request was counted in, at whatever host"
    );
    assert_eq!(succeeded + failed, picks, "and out");
    assert!(
        failed <= 21 * WORKERS as u64,
        "only what was still in flight failed"
    );
}

#[test]
fn workers_see_whole_snapshots_in_order_and_lose_no_count() {
    let driver = Driver::new(by_basis(LocalityBasis::LrsReportedRate), "a");
    let (work, hosts) = run(driver);
    assert_nothing_lost(&work, &hosts);
}

#[test]
fn least_request_reads_what_other_workers_count() {
    use plimsoll_core::model::endpoint_policy::{EndpointPolicy, LeastRequest, LeastRequestParts};
    let policy = LeastRequest::try_new(LeastRequestParts::default()).expect("valid");
    let config = config(|parts| parts.endpoint_policy = EndpointPolicy::LeastRequest(policy));
    let (work, hosts) = run(Driver::new(config, "b"));
    assert_nothing_lost(&work, &hosts);
}

/// Each worker counts for itself; the sum over workers is the number of picks.
#[test]
fn counters_of_workers_add_up() {
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
        "workers draw apart: {kept:?}"
    );
    assert_eq!(
        first.stats().lb_zone_routing_sampled.get(),
        0,
        "a fork counts for itself"
    );
}
