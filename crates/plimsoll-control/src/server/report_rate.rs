//! [`ReportRate`]: how often a stream may report load. One writer handles the reports of all
//! streams, so a client that reports in a loop would delay those of others.

use std::time::Duration;

use tokio::time::Instant;

/// Reports beyond the rate that are used: a client may report at once after it has reconnected, or
/// after it was asked for another interval.
const GRACE: u32 = 3;
/// Reports per interval that are used.
const PER_INTERVAL: u32 = 3;

/// Token bucket of one load reporting stream.
#[derive(Debug, Default)]
pub(super) struct ReportRate {
    /// When the bucket is full again; `None` before the first report.
    full_at: Option<Instant>,
}

impl ReportRate {
    /// Returns whether a report is used that arrives now, on a stream that is asked to report every
    /// `interval`.
    pub(super) fn admit(&mut self, interval: Duration, now: Instant) -> bool {
        let token = interval / PER_INTERVAL;
        // Not later than an empty bucket: the interval may be shorter than it was.
        let (full, empty) = (now, now + token * GRACE);
        let full_at = self.full_at.map_or(full, |at| at.clamp(full, empty));
        let is_admitted = full_at - now <= token * (GRACE - 1);
        self.full_at = Some(if is_admitted {
            full_at + token
        } else {
            full_at
        });
        is_admitted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_reports_are_used_at_once_and_then_three_per_interval() {
        let (mut rate, start) = (ReportRate::default(), Instant::now());
        let mut admitted = |milliseconds: u64| {
            let now = start + Duration::from_millis(milliseconds);
            rate.admit(Duration::from_secs(3), now)
        };
        assert_eq!([0; 5].map(&mut admitted), [true, true, true, false, false]);
        let used = (0..6000).step_by(10).filter(|at| admitted(*at)).count();
        assert_eq!(used, 5, "one per second; the first second is used up");
        assert!(!admitted(6000 - 10) && admitted(6000));
        // A client that reports every interval always has room.
        assert!((3..100).all(|interval| admitted(interval * 3000)));
        assert_eq!([300_000; 4].map(&mut admitted), [true, true, true, false]);
    }

    #[test]
    fn a_shorter_interval_takes_effect_at_once() {
        let (mut rate, start) = (ReportRate::default(), Instant::now());
        let long = Duration::from_secs(300);
        let admitted = [0; 4].map(|_| rate.admit(long, start));
        assert_eq!(admitted, [true, true, true, false]);
        let short = Duration::from_secs(3);
        assert!(!rate.admit(short, start + Duration::from_secs(1)));
        assert!(
            rate.admit(short, start + Duration::from_secs(2)),
            "a second later"
        );
    }
}
