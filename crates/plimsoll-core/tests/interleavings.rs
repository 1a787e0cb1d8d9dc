//! Model checking of the parts of the core that threads share.
//!
//! `loom` runs the counters of a host through all interleavings that the memory model allows: their
//! files are compiled here a second time, with loom's atomics as `crate::sync`. Writer and workers
//! together (publication, removed hosts, load reports) are too large for that: there `shuttle`
//! tries many random schedules of whole operations, and prints the schedule of a failure.

#[path = "../src/host/metric_sum.rs"]
mod metric_sum;
#[path = "interleavings/publication.rs"]
mod publication;
#[allow(dead_code, reason = "the suite uses more")]
mod support;
#[path = "../src/host/totals.rs"]
#[expect(unreachable_pub, reason = "public in the crate it belongs to")]
mod totals;

use loom::sync::Arc;
use loom::thread;

use metric_sum::MetricSum;
use totals::{RequestCounts, Totals};

/// Atomics for the included files.
mod sync {
    pub(crate) mod atomic {
        pub(crate) use loom::sync::atomic::{AtomicU64, Ordering};
    }
}

#[test]
fn a_request_never_ends_before_it_starts() {
    loom::model(|| {
        let totals = Arc::new(Totals::new());
        let worker = |succeeds: bool| {
            let totals = Arc::clone(&totals);
            thread::spawn(move || {
                totals.issue();
                if succeeds {
                    totals.succeed();
                } else {
                    totals.fail();
                }
            })
        };
        let workers = [worker(true), worker(false)];
        let early = totals.read();
        assert!(early.issued >= early.succeeded + early.failed, "{early:?}");
        for worker in workers {
            worker.join().unwrap();
        }
        let end = totals.read();
        let mut reported = early;
        let later = end.report(&mut reported);
        assert_eq!((early.plus(later), reported), (end, end));
        let all = RequestCounts {
            issued: 2,
            succeeded: 1,
            failed: 1,
        };
        assert_eq!((end, end.in_progress()), (all, 0));
    });
}

#[test]
fn withdrawn_counts_are_missing_from_a_later_report() {
    loom::model(|| {
        let totals = Arc::new(Totals::new());
        let theirs = Arc::clone(&totals);
        let worker = thread::spawn(move || {
            theirs.issue();
            theirs.withdraw();
            theirs.issue();
            theirs.succeed();
        });
        let mut reported = RequestCounts::default();
        let early = totals.read().report(&mut reported);
        worker.join().unwrap();
        let later = totals.read().report(&mut reported);
        let both = early.plus(later);
        assert_eq!((both.issued, both.succeeded), (1, 1));
    });
}

#[test]
fn a_request_may_begin_on_one_thread_and_end_on_another() {
    loom::model(|| {
        let totals = Arc::new(Totals::new());
        totals.issue();
        let theirs = Arc::clone(&totals);
        let worker = thread::spawn(move || theirs.succeed());
        let early = totals.read();
        assert_eq!(early.issued, 1);
        assert_eq!(early.in_progress(), 1 - early.succeeded);
        worker.join().unwrap();
        assert_eq!(totals.read().in_progress(), 0);
    });
}

#[test]
fn metrics_are_taken_once_and_none_is_lost() {
    // Three threads that retry have too many interleavings to try all of them.
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(2);
    model.check(|| {
        let sum = Arc::new(MetricSum::new());
        let worker = |value: f64| {
            let sum = Arc::clone(&sum);
            thread::spawn(move || sum.add(value))
        };
        let workers = [worker(1.0), worker(4.0)];
        let (count, total) = sum.take();
        // A value may be taken before its count, never after it.
        assert!(count <= 2 && total >= f64::from(u32::try_from(count).unwrap()));
        for worker in workers {
            worker.join().unwrap();
        }
        let (rest, rest_total) = sum.take();
        assert_eq!((count + rest, total + rest_total), (2, 5.0));
        assert_eq!(sum.take(), (0, 0.0));
    });
}
