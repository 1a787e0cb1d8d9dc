//! Lock-free storage of a host's [`ClientWeight`] in three atomics.
//!
//! Any worker may write a report at any time, without locking or allocating; one reader, the
//! balancer's tick, reads the weight and resets it when it has expired. The rules are those of
//! [`ClientWeight`]; this module is about their concurrency.
//!
//! Memory ordering: a writer stores the weight, then the time of the report, then, if there is
//! none, the start of the blackout. A reader loads in the opposite order (acquire), so that a time
//! it sees comes with that report's weight or a newer one. Two concurrent writers may leave the
//! weight of one and the time of the other; both are fresh.
//!
//! The one race that matters: a report arrives while the reader resets an expired weight. The
//! writer stores the time and then loads the start of the blackout; the reader clears the start and
//! then loads the time. All four operations are sequentially consistent, hence at least one side
//! sees the other's store, and the report is not lost.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use super::{ClientWeight, WeightError, WeightStatus, weight};
use crate::model::client_side_weighted_round_robin::ClientSideWeightedRoundRobin;
use crate::model::orca::OrcaLoadReport;
use crate::time::Instant;

/// Encodes "never"; other instants are nanoseconds plus one.
const NEVER: u64 = 0;

/// The weight that load reports gave one host; initially there is none.
#[derive(Debug, Default)]
pub struct OrcaWeightSlot {
    weight: AtomicU32,
    non_empty_since: AtomicU64,
    last_update: AtomicU64,
}

impl OrcaWeightSlot {
    /// Stores a report that arrived at `now` and returns its weight. A report without a weight
    /// changes nothing.
    pub fn observe(
        &self,
        report: &OrcaLoadReport,
        settings: &ClientSideWeightedRoundRobin,
        now: Instant,
    ) -> Result<u32, WeightError> {
        let weight = weight(report, settings)?;
        let now = encode(Some(now));
        self.weight.store(weight, Ordering::Relaxed);
        // The latest report time of all workers wins. This store publishes the weight.
        self.last_update.fetch_max(now, Ordering::SeqCst);
        if self.non_empty_since.load(Ordering::SeqCst) == NEVER {
            self.begin(now);
        }
        Ok(weight)
    }

    /// Returns the weight if it is valid at `now`; an expired one starts over
    /// ([`ClientWeight::if_valid`]). For one reader at a time.
    pub fn if_valid(&self, blackout: Duration, expiration: Duration, now: Instant) -> Option<u32> {
        let seen = self.load();
        match seen.status(blackout, expiration, now) {
            WeightStatus::Valid(weight) => Some(weight),
            WeightStatus::Blackout => None,
            WeightStatus::Expired => {
                self.forget(encode(seen.last_update));
                None
            }
        }
    }

    /// Reads the stored weight and times.
    pub fn load(&self) -> ClientWeight {
        let non_empty_since = decode(self.non_empty_since.load(Ordering::Acquire));
        let last_update = decode(self.last_update.load(Ordering::Acquire));
        ClientWeight {
            weight: self.weight.load(Ordering::Relaxed),
            non_empty_since,
            last_update,
        }
    }

    /// Clears the start of the blackout, unless a report after `seen` restarts it.
    fn forget(&self, seen: u64) {
        self.non_empty_since.store(NEVER, Ordering::SeqCst);
        let last = self.last_update.load(Ordering::SeqCst);
        if last != seen {
            self.begin(last);
        }
    }

    /// Starts the blackout at `time`, if it has not started.
    fn begin(&self, time: u64) {
        // If the exchange fails, another thread has started the blackout: just as good.
        let _ =
            self.non_empty_since
                .compare_exchange(NEVER, time, Ordering::SeqCst, Ordering::Relaxed);
    }
}

impl From<ClientWeight> for OrcaWeightSlot {
    fn from(state: ClientWeight) -> Self {
        Self {
            weight: AtomicU32::new(state.weight),
            non_empty_since: AtomicU64::new(encode(state.non_empty_since)),
            last_update: AtomicU64::new(encode(state.last_update)),
        }
    }
}

const fn encode(time: Option<Instant>) -> u64 {
    match time {
        // Saturates: the last nanosecond of time is 584 years off.
        Some(time) => time.as_nanos().saturating_add(1),
        None => NEVER,
    }
}

const fn decode(time: u64) -> Option<Instant> {
    match time {
        NEVER => None,
        time => Some(Instant::from_nanos(time - 1)),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;

    use super::*;
    use crate::model::client_side_weighted_round_robin::ClientSideWeightedRoundRobinParts;

    const BLACKOUT: Duration = Duration::from_secs(10);
    const EXPIRATION: Duration = Duration::from_secs(180);

    fn settings() -> ClientSideWeightedRoundRobin {
        ClientSideWeightedRoundRobin::try_new(ClientSideWeightedRoundRobinParts::default()).unwrap()
    }

    /// A report that weighs `weight`.
    fn report(weight: u32) -> OrcaLoadReport {
        OrcaLoadReport {
            rps_fractional: f64::from(weight),
            application_utilization: 1.0,
            ..OrcaLoadReport::default()
        }
    }

    #[test]
    fn a_slot_behaves_like_a_client_weight() {
        // Slot and plain value get the same reports, including one without a weight, and an expiry.
        let (slot, mut plain) = (OrcaWeightSlot::default(), ClientWeight::default());
        let reports = [(5, 100), (20, 7), (21, 0), (400, 9), (405, 9), (411, 3)];
        for second in 0..500 {
            let now = Instant::from_secs(second);
            for (_, weight) in reports.into_iter().filter(|(at, _)| *at == second) {
                let observed = slot.observe(&report(weight), &settings(), now);
                assert_eq!(observed.is_ok(), weight > 0);
                if let Ok(weight) = observed {
                    plain.on_report(weight, now);
                }
            }
            assert_eq!(
                slot.if_valid(BLACKOUT, EXPIRATION, now),
                plain.if_valid(BLACKOUT, EXPIRATION, now),
                "{second} s"
            );
            assert_eq!(slot.load(), plain, "{second} s");
        }
    }

    #[test]
    fn the_origin_is_a_valid_time() {
        let slot = OrcaWeightSlot::default();
        assert_eq!(slot.load(), ClientWeight::default());
        slot.observe(&report(8), &settings(), Instant::ORIGIN)
            .unwrap();
        let origin = Some(Instant::ORIGIN);
        let expected = ClientWeight {
            weight: 8,
            non_empty_since: origin,
            last_update: origin,
        };
        assert_eq!(slot.load(), expected);
        assert_eq!(
            slot.if_valid(Duration::ZERO, EXPIRATION, Instant::ORIGIN),
            Some(8)
        );
        let end = Instant::from_nanos(u64::MAX);
        let last = decode(encode(Some(end))).unwrap();
        assert_eq!(last, Instant::from_nanos(u64::MAX - 1));
    }

    #[test]
    fn an_older_report_does_not_move_the_time_back() {
        let slot = OrcaWeightSlot::default();
        slot.observe(&report(1), &settings(), Instant::from_secs(20))
            .unwrap();
        slot.observe(&report(2), &settings(), Instant::from_secs(19))
            .unwrap();
        let state = slot.load();
        assert_eq!(
            (state.weight, state.last_update),
            (2, Some(Instant::from_secs(20)))
        );
    }

    #[test]
    fn a_report_during_expiry_begins_the_next_blackout() {
        // `forget` finds this if a writer was faster: a newer report time, the old blackout.
        let at = |second| Some(Instant::from_secs(second));
        let slot = OrcaWeightSlot::from(ClientWeight {
            weight: 5,
            non_empty_since: at(1),
            last_update: at(300),
        });
        slot.forget(encode(at(100)));
        assert_eq!(slot.load().non_empty_since, at(300));
        slot.forget(encode(at(300)));
        assert_eq!(slot.load().non_empty_since, None);
    }

    #[test]
    fn no_report_is_lost_to_an_expiry() {
        // Each round: an expired weight, one writer and the reader at the same time. Whichever is
        // first, afterwards the report has started a blackout.
        let (old, now) = (Instant::from_secs(1), Instant::from_secs(1000));
        for round in 0..2000 {
            let slot = OrcaWeightSlot::from(ClientWeight {
                weight: 1,
                non_empty_since: Some(old),
                last_update: Some(old),
            });
            let (report, settings, start) = (report(7), settings(), Barrier::new(2));
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    start.wait();
                    slot.observe(&report, &settings, now).unwrap();
                });
                start.wait();
                slot.if_valid(BLACKOUT, EXPIRATION, now);
            });
            let state = slot.load();
            assert_eq!(
                (state.weight, state.last_update),
                (7, Some(now)),
                "round {round}"
            );
            // Either the reader was first and reset the weight, or the writer was and nothing had
            // expired.
            let since = state.non_empty_since;
            assert!(
                since == Some(now) || since == Some(old),
                "round {round}: {since:?}"
            );
        }
    }
}
