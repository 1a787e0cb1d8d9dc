//! [`BlockingQuery`]: the protocol of one blocking query, a state machine without IO.
//!
//! A query names the index of the last answer, and is answered when there is a higher one, or when
//! its time is over. Answers have the complete state, so that nothing is missed between two. An
//! index that becomes smaller (a server was restored or replaced) is not waited for: the next query
//! asks at once for what there is. So does the first query after a failure, because a server that
//! lost its data would keep a query with the old index until its time is over. The driver asks
//! [`BlockingQuery::poll_step`] what to do, and passes in what it got.

use std::time::Duration;

use plimsoll_core::backoff::BackoffBounds;
use plimsoll_core::time::Instant;
use plimsoll_serve::discovery::SourceCounts;

const FIRST_BACKOFF: Duration = Duration::from_millis(250);
/// After an outage of minutes, the agent is used again within this time.
const LONGEST_BACKOFF: Duration = Duration::from_secs(15);
/// Shortest time between two answers of one query: an index may change many times per second.
const MIN_INTERVAL: Duration = Duration::from_millis(200);

/// Which server may answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Consistency {
    /// Any server, within `max_stale` of the leader.
    #[default]
    Stale,
    /// The leader, as it believes to be.
    Default,
    /// The leader, after it has asked the other servers.
    Consistent,
}

/// What the driver should do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    Query {
        /// 0 for an answer at once.
        index: u64,
        consistency: Consistency,
    },
    /// Do nothing before this time.
    Wait(Instant),
}

/// Headers of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AnswerMeta {
    pub index: u64,
    /// How long ago the server heard from the leader.
    pub last_contact: Duration,
    pub knows_leader: bool,
}

/// What an answer means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It is out of date: ask again.
    TooOld,
    /// Nothing changed since the last answer.
    Unchanged,
    /// The state at this index.
    State {
        /// Whether it follows the last answer without a gap, so that what it lacks was removed.
        is_continuous: bool,
        /// Whether the index became smaller.
        is_reset: bool,
    },
}

impl Answer {
    /// Returns how the answer counts in the status of the source.
    pub fn counts(self) -> SourceCounts {
        match self {
            Self::TooOld => SourceCounts::default(),
            Self::Unchanged => SourceCounts {
                confirmations: 1,
                ..SourceCounts::default()
            },
            Self::State {
                is_continuous,
                is_reset,
            } => SourceCounts {
                lists: 1,
                events: u64::from(is_continuous),
                resets: u64::from(is_reset),
                ..SourceCounts::default()
            },
        }
    }
}

/// A query that is repeated.
#[derive(Debug)]
pub struct BlockingQuery {
    consistency: Consistency,
    max_stale: Duration,
    /// Index of the last answer; 0 for none, or to ask at once.
    index: u64,
    /// Whether the last answer was too old, so that the leader is asked.
    needs_leader: bool,
    /// Whether a request failed since the last answer.
    was_interrupted: bool,
    wait_until: Option<Instant>,
    backoff: BackoffBounds,
}

impl BlockingQuery {
    /// Creates a query that asks for the state first.
    pub const fn new(consistency: Consistency, max_stale: Duration) -> Self {
        Self {
            consistency,
            max_stale,
            index: 0,
            needs_leader: false,
            was_interrupted: false,
            wait_until: None,
            backoff: BackoffBounds::new(FIRST_BACKOFF, LONGEST_BACKOFF),
        }
    }

    /// Returns what to do next.
    pub fn poll_step(&mut self, now: Instant) -> Step {
        match self.wait_until {
            Some(until) if now < until => Step::Wait(until),
            _ => {
                self.wait_until = None;
                Step::Query {
                    index: self.asked(),
                    consistency: self.consistency(),
                }
            }
        }
    }

    /// Processes the headers of an answer, and returns what to do with its body.
    pub fn handle_answer(&mut self, meta: AnswerMeta, now: Instant) -> Answer {
        self.wait_until = Some(now.saturating_add(MIN_INTERVAL));
        let is_too_old = meta.last_contact > self.max_stale || !meta.knows_leader;
        if self.consistency() == Consistency::Stale && is_too_old {
            self.needs_leader = true;
            return Answer::TooOld;
        }
        self.needs_leader = false;
        self.backoff.reset();
        let asked = self.asked();
        self.was_interrupted = false;
        let is_reset = meta.index < self.index;
        // A server that sends 0 would be asked for an answer at once, again and again.
        self.index = if is_reset && asked > 0 {
            0
        } else {
            meta.index.max(1)
        };
        if asked > 0 && meta.index == asked {
            return Answer::Unchanged;
        }
        Answer::State {
            is_continuous: asked > 0 && !is_reset,
            is_reset,
        }
    }

    /// Processes a request that failed; the last state stays.
    pub fn handle_failure(&mut self, draw: u64, now: Instant) {
        self.was_interrupted = true;
        let delay = self.backoff.next_delay(draw);
        self.wait_until = Some(now.saturating_add(delay));
    }

    /// Returns the index of the next query.
    const fn asked(&self) -> u64 {
        if self.was_interrupted { 0 } else { self.index }
    }

    const fn consistency(&self) -> Consistency {
        if self.needs_leader {
            Consistency::Default
        } else {
            self.consistency
        }
    }
}

#[cfg(test)]
mod tests;
