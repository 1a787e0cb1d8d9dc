//! [`RepeatLimit`]: limits how often a library repeats a log line. Some write one for each frame
//! of a peer, as HTTP/2 for PING acknowledgements, so that the peer could fill the disk.
//! Lines of this workspace have limits of their own where a peer can cause them.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use plimsoll_core::log_line;
use tracing::callsite::Identifier;
use tracing::{Event, Level, Metadata, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;

use crate::log_lines;

/// Lines of one place in the code of a library that are written in each [`PERIOD`].
const BURST: u32 = 10;
const PERIOD: Duration = Duration::from_secs(60);

#[derive(Debug, Default)]
pub(super) struct RepeatLimit {
    /// By place in the code, so that its size has a bound.
    written: Mutex<HashMap<Identifier, Period>>,
}

#[derive(Debug)]
struct Period {
    begun: Instant,
    lines: u32,
}

/// What becomes of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Write,
    /// The first one that is not written.
    SuppressFirst,
    Suppress,
}

impl RepeatLimit {
    fn check(&self, metadata: &Metadata<'_>, now: Instant) -> Verdict {
        // Debug lines are off unless an operator asks for them.
        if metadata.target().starts_with("plimsoll") || *metadata.level() > Level::INFO {
            return Verdict::Write;
        }
        let mut written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
        let period = written.entry(metadata.callsite()).or_insert(Period {
            begun: now,
            lines: 0,
        });
        if now.saturating_duration_since(period.begun) >= PERIOD {
            *period = Period {
                begun: now,
                lines: 0,
            };
        }
        period.lines = period.lines.saturating_add(1);
        match period.lines {
            ..=BURST => Verdict::Write,
            lines if lines == BURST + 1 => Verdict::SuppressFirst,
            _ => Verdict::Suppress,
        }
    }
}

impl<S: Subscriber> Layer<S> for RepeatLimit {
    fn event_enabled(&self, event: &Event<'_>, _: Context<'_, S>) -> bool {
        let metadata = event.metadata();
        let verdict = self.check(metadata, Instant::now());
        if verdict == Verdict::SuppressFirst {
            let library = metadata.target();
            let line = metadata.line().unwrap_or_default();
            log_line!(log_lines::LINES_SUPPRESSED, library, line);
        }
        verdict == Verdict::Write
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    use tracing_subscriber::layer::SubscriberExt as _;

    use super::*;

    /// Counts the lines that are left.
    struct Count(Arc<AtomicU32>);

    impl<S: Subscriber> Layer<S> for Count {
        fn on_event(&self, _: &Event<'_>, _: Context<'_, S>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn count(log: impl Fn()) -> u32 {
        let lines = Arc::<AtomicU32>::default();
        let subscriber = tracing_subscriber::registry()
            .with(Count(Arc::clone(&lines)))
            .with(RepeatLimit::default());
        tracing::subscriber::with_default(subscriber, || (0..100).for_each(|_| log()));
        lines.load(Ordering::Relaxed)
    }

    #[test]
    fn a_library_repeats_a_line_a_few_times_only() {
        let ping = || tracing::event!(target: "h2::proto", Level::WARN, "PING ack not asked for");
        assert_eq!(count(ping), BURST);
        let two = || {
            tracing::event!(target: "h2", Level::WARN, "one");
            tracing::event!(target: "h2", Level::ERROR, "two");
        };
        assert_eq!(count(two), 2 * BURST);
    }

    #[test]
    fn own_lines_and_debug_lines_are_not_limited() {
        assert_eq!(
            count(|| tracing::event!(target: "plimsoll_proxy", Level::WARN, "own")),
            100
        );
        assert_eq!(
            count(|| tracing::event!(target: "h2", Level::DEBUG, "wanted")),
            100
        );
    }

    #[test]
    fn lines_are_written_again_after_a_period() {
        let limit = RepeatLimit::default();
        let now = Instant::now();
        let metadata = Arc::new(Mutex::new(None));
        let seen = Arc::clone(&metadata);
        struct Capture(Arc<Mutex<Option<&'static Metadata<'static>>>>);
        impl<S: Subscriber> Layer<S> for Capture {
            fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
                *self.0.lock().unwrap() = Some(event.metadata());
            }
        }
        let subscriber = tracing_subscriber::registry().with(Capture(seen));
        tracing::subscriber::with_default(
            subscriber,
            || tracing::event!(target: "h2", Level::WARN, "x"),
        );
        let metadata = metadata.lock().unwrap().unwrap();
        for (at, expected) in [(now, Verdict::Write), (now + PERIOD, Verdict::Write)] {
            for _ in 0..BURST {
                assert_eq!(limit.check(metadata, at), expected);
            }
            assert_eq!(limit.check(metadata, at), Verdict::SuppressFirst);
            assert_eq!(limit.check(metadata, at), Verdict::Suppress);
        }
    }
}
