//! One writer and its workers in random schedules: snapshots only get newer and are freed, and load
//! reports add up to exactly what the workers did while hosts are added and removed.

use std::sync::Arc;

use plimsoll_core::host::{Host, RequestOutcome};
use plimsoll_core::model::load_report::ClusterLoadStats;
use plimsoll_core::model::orca::OrcaLoadReport;
use plimsoll_core::picker::{PickArgs, PickResult, Picker};
use plimsoll_core::publish;
use plimsoll_core::rng::Xoshiro256;
use plimsoll_core::snapshot::DriverSnapshot;
use shuttle::thread;

use crate::support::{Driver, at, config, parts};

/// Number of random schedules per test, which take a fraction of a second each.
const SCHEDULES: usize = 400;
const REQUESTS: u64 = 4;

#[test]
fn readers_never_go_back_and_old_snapshots_are_freed() {
    let run = || {
        let first = Arc::new(0_u64);
        let weak = Arc::downgrade(&first);
        let (mut publisher, reader) = publish::channel(first);
        let workers: Vec<_> = (0..3)
            .map(|_| {
                let mut reader = reader.clone();
                thread::spawn(move || {
                    let mut newest = 0;
                    for _ in 0..4 {
                        let seen = **reader.latest();
                        assert!(seen >= newest, "{seen} after {newest}");
                        newest = seen;
                        thread::yield_now();
                    }
                })
            })
            .collect();
        drop(reader);
        for next in 1..4 {
            publisher.publish(Arc::new(next));
            thread::yield_now();
        }
        for worker in workers {
            worker.join().unwrap();
        }
        assert!(weak.upgrade().is_none(), "the first value is still held");
    };
    shuttle::check_random(run, SCHEDULES);
}

/// Requests that workers made, or that reports contain.
#[derive(Debug, Default, PartialEq)]
struct Done {
    issued: u64,
    succeeded: u64,
    failed: u64,
    dropped: u64,
    /// Requests with a metric.
    measured: u64,
}

impl Done {
    fn add(&mut self, other: &Self) {
        self.issued += other.issued;
        self.succeeded += other.succeeded;
        self.failed += other.failed;
        self.dropped += other.dropped;
        self.measured += other.measured;
    }

    fn reported(stats: &ClusterLoadStats) -> Self {
        let mut done = Self {
            dropped: stats.total_dropped_requests,
            ..Default::default()
        };
        for locality in &stats.localities {
            done.issued += locality.stats.total_issued_requests;
            done.succeeded += locality.stats.total_successful_requests;
            done.failed += locality.stats.total_error_requests;
            for metric in locality.load_metric_stats.values() {
                done.measured += metric.num_requests_finished_with_metric;
            }
            let by_endpoint = locality.endpoints.iter();
            let issued: u64 = by_endpoint.map(|host| host.total_issued_requests).sum();
            assert_eq!(issued, locality.stats.total_issued_requests, "{stats:?}");
        }
        done
    }
}

/// Picks, sends and ends requests; the scheduler may interrupt anywhere.
fn work(mut picker: Picker, worker: u64) -> Done {
    let mut done = Done::default();
    let report = OrcaLoadReport {
        named_metrics: [("queue", 1.0)].into_iter().collect(),
        ..Default::default()
    };
    for number in 0..REQUESTS {
        let config = Arc::clone(picker.snapshot().config());
        let host = match picker.pick(PickArgs::default()) {
            PickResult::Complete(pick) => Arc::clone(pick.host),
            PickResult::Drop { .. } => {
                done.dropped += 1;
                continue;
            }
            other => unreachable!("a host is always available: {other:?}"),
        };
        thread::yield_now();
        let request = host.begin_request();
        done.issued += 1;
        drop(host);
        thread::yield_now();
        request
            .host()
            .observe_response_orca(&report, &config, at(0));
        done.measured += 1;
        if (number + worker).is_multiple_of(2) {
            done.succeeded += 1;
            request.finish(RequestOutcome::Success);
        } else {
            done.failed += 1;
            drop(request);
        }
        thread::yield_now();
    }
    done
}

#[test]
fn a_pick_finds_driver_data_while_hosts_change() {
    let run = || {
        let mut driver = Driver::new(config(|_| ()), "a");
        driver.assignment(parts(&[("a", 2)]), at(0));
        let attach = |host: &Arc<Host>| host.address();
        let mut newest = Arc::new(DriverSnapshot::new(driver.snapshot(), attach));
        let (mut publisher, reader) = publish::channel(Arc::clone(&newest));
        let workers: Vec<_> = (0..3)
            .map(|seed| {
                let mut picker = Picker::new(reader.clone(), Xoshiro256::from_seed(seed));
                thread::spawn(move || {
                    for _ in 0..REQUESTS {
                        let (snapshot, result) = picker.pick_with_snapshot(PickArgs::default());
                        thread::yield_now();
                        let host = result.host().expect("a host is always available");
                        assert_eq!(snapshot.attached(host), Some(&host.address()));
                    }
                })
            })
            .collect();
        let shapes: [&[(&str, usize)]; 3] = [&[("b", 2)], &[("a", 3)], &[("a", 1), ("b", 1)]];
        for (second, shape) in (1..).zip(shapes) {
            driver.assignment(parts(shape), at(second));
            newest = Arc::new(newest.next(driver.snapshot(), |host, _| attach(host)));
            publisher.publish(Arc::clone(&newest));
            thread::yield_now();
        }
        for worker in workers {
            worker.join().expect("the worker ended");
        }
    };
    shuttle::check_random(run, SCHEDULES);
}

#[test]
fn load_reports_match_worker_counts_while_hosts_change() {
    shuttle::check_random(report_while_hosts_change, SCHEDULES);
}

fn report_while_hosts_change() {
    let settings = config(|parts| {
        parts.lrs_report_endpoint_metrics = vec!["named_metrics.*".into()];
    });
    let mut driver = Driver::new(settings, "a");
    driver.assignment(parts(&[("a", 2), ("b", 1)]), at(0));
    let workers: Vec<_> = (0..3)
        .map(|worker| {
            let picker = driver.picker(worker);
            thread::spawn(move || work(picker, worker))
        })
        .collect();
    let mut reported = Done::default();
    let shapes: [&[(&str, usize)]; 4] = [
        &[("a", 1), ("b", 2)],
        &[("b", 1)],
        &[("b", 1), ("a", 1)],
        &[("a", 3)],
    ];
    for (second, shape) in (1..).zip(shapes) {
        let mut assignment = parts(shape);
        if second % 2 == 0 {
            assignment
                .drop_overloads
                .push(plimsoll_core::model::assignment::DropOverloadParts {
                    category: "throttle".into(),
                    numerator: 30,
                    denominator: 100,
                });
        }
        driver.assignment(assignment, at(second));
        thread::yield_now();
        reported.add(&Done::reported(
            &driver.balancer.drain_load_stats(true, at(second)),
        ));
        thread::yield_now();
    }
    let mut done = Done::default();
    for worker in workers {
        done.add(&worker.join().expect("the worker ended"));
    }
    let last = driver.balancer.drain_load_stats(true, at(9));
    reported.add(&Done::reported(&last));
    assert_eq!(reported, done);
    let progress = last.localities.iter().map(|locality| &locality.stats);
    assert_eq!(
        progress
            .map(|stats| stats.total_requests_in_progress)
            .sum::<u64>(),
        0
    );
}
