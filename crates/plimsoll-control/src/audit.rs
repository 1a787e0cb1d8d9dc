//! [`Audit`]: who or what changed the configuration, what was refused and why, and when proxies had
//! accepted a change. Kept in bounded memory, and on disk if there is a directory for it; served at
//! `/api/v1/audit`. Every entry is also a line of the log and an event of the dashboard.
//!
//! `diff` compares configurations, `describe` has the texts and log lines, `relayed` collects
//! changes of a relayed server, `files` keeps entries on disk as `record` has them. The writer
//! begins an entry when it applies a change, and names the discovery streams whose resources
//! change; the streams report when their client has accepted all of it (ACK), or refused something
//! (NACK).

mod describe;
mod diff;
mod files;
mod record;
mod relayed;

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use plimsoll_core::time::Instant;
use plimsoll_xds::driver::Clock;

use crate::events::cut;

pub(crate) use diff::discovered_changes;
pub use diff::{Change, changes};
pub use files::read;
use files::{AuditFiles, source};
pub use record::{AuditDelivery, AuditRecord};
pub(crate) use relayed::RelayedAudit;

/// Number of entries to keep in memory; the oldest of the source with the most are dropped.
const CAPACITY: usize = 500;
/// Changes of one entry to keep; the others are counted.
const MAX_CHANGES: usize = 100;
/// Bytes of a reason to keep.
const MAX_REASON: usize = 4096;

/// What an entry is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum AuditKind {
    /// The configuration at the start of the process.
    Started,
    /// A configuration that took effect.
    Changed,
    /// An edit that has no effect.
    Refused,
}

/// An entry of the audit.
#[derive(Clone, Debug, PartialEq)]
pub struct AuditEntry {
    /// Number of the entry since the start of the process, or of the files.
    pub number: u64,
    pub at: Instant,
    pub kind: AuditKind,
    /// Who or what caused it, for example `edit of the files`.
    pub by: Arc<str>,
    pub changes: Vec<Change>,
    /// Changes that are left out.
    pub more_changes: usize,
    /// Why an edit was refused.
    pub reason: Option<String>,
    /// How far a change has been delivered; `None` if no connected proxy gets other resources.
    pub delivery: Option<Delivery>,
}

/// How far proxies have accepted a change.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Delivery {
    /// Discovery streams whose resources the change affected.
    pub streams: usize,
    pub accepted: usize,
    pub refused: usize,
    /// Streams that closed before they answered.
    pub closed: usize,
    /// Time from the change to the first and to the last ACK so far.
    pub first_ack: Option<Duration>,
    pub last_ack: Option<Duration>,
    /// A later change came first: some streams got only that one.
    pub superseded: bool,
}

/// A change that every stream has answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivered {
    pub number: u64,
    pub delivery: Delivery,
}

/// Ring buffer of entries.
#[derive(Debug, Default)]
pub struct Audit {
    log: Mutex<Log>,
    /// Whether a change waits for answers, so that streams need no lock otherwise.
    is_waiting: AtomicBool,
    /// `None` without a directory.
    files: Option<AuditFiles>,
    /// Entries of earlier processes, oldest first.
    earlier: Vec<AuditRecord>,
}

#[derive(Debug, Default)]
struct Log {
    last: u64,
    entries: VecDeque<AuditEntry>,
    waiting: Option<Waiting>,
}

#[derive(Debug)]
struct Waiting {
    number: u64,
    /// Streams that have not answered, with the generation of the view that they must accept.
    streams: BTreeMap<u64, u64>,
}

/// Answer of a stream to a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// Everything of the view with this generation is accepted.
    Accepted(u64),
    Refused,
    Closed,
}

impl Audit {
    /// Creates an audit that is kept in a directory, and goes on with what is there.
    pub(crate) fn kept_in(state: &Path) -> io::Result<Self> {
        let files = AuditFiles::open(state)?;
        let mut earlier = read(state)?;
        let last = earlier.last().map_or(0, |entry| entry.number);
        while earlier.len() > CAPACITY {
            let sources = earlier.iter().map(|entry| &*entry.by);
            let index = oldest_of_most(sources);
            earlier.remove(index);
        }
        let log = Log {
            last,
            ..Log::default()
        };
        Ok(Self {
            log: Mutex::new(log),
            files: Some(files),
            earlier,
            ..Self::default()
        })
    }

    /// Adds an entry; returns a copy of it.
    pub(crate) fn add(
        &self,
        kind: AuditKind,
        by: &str,
        changes: Vec<Change>,
        now: Instant,
    ) -> AuditEntry {
        let more_changes = changes.len().saturating_sub(MAX_CHANGES);
        self.push(AuditEntry {
            number: 0,
            at: now,
            kind,
            by: by.into(),
            changes: changes.into_iter().take(MAX_CHANGES).collect(),
            more_changes,
            reason: None,
            delivery: None,
        })
    }

    /// Adds an edit that was refused.
    pub(crate) fn refuse(&self, by: &str, reason: &str, now: Instant) -> AuditEntry {
        let mut reason = reason.to_owned();
        cut(&mut reason, MAX_REASON);
        self.push(AuditEntry {
            number: 0,
            at: now,
            kind: AuditKind::Refused,
            by: by.into(),
            changes: Vec::new(),
            more_changes: 0,
            reason: Some(reason),
            delivery: None,
        })
    }

    /// Begins to wait for the answers of streams, each to the view with the given generation.
    pub(crate) fn await_answers(&self, number: u64, streams: BTreeMap<u64, u64>) {
        let mut log = self.lock();
        if let Some(before) = log.waiting.take()
            && let Some(delivery) = log.delivery(before.number)
        {
            delivery.superseded = true;
        }
        if streams.is_empty() {
            self.is_waiting.store(false, Ordering::Release);
            return;
        }
        if let Some(entry) = log.entry(number) {
            entry.delivery = Some(Delivery {
                streams: streams.len(),
                ..Delivery::default()
            });
        }
        log.waiting = Some(Waiting { number, streams });
        self.is_waiting.store(true, Ordering::Release);
    }

    /// Whether a change waits for answers of streams.
    pub(crate) fn is_waiting(&self) -> bool {
        self.is_waiting.load(Ordering::Acquire)
    }

    /// Records the answer of a stream. Returns the change if this was the last answer to it.
    pub(crate) fn answer(&self, stream: u64, answer: Answer, now: Instant) -> Option<Delivered> {
        if !self.is_waiting() {
            return None;
        }
        let mut log = self.lock();
        let waiting = log.waiting.as_mut()?;
        let needed = *waiting.streams.get(&stream)?;
        if matches!(answer, Answer::Accepted(generation) if generation < needed) {
            return None;
        }
        waiting.streams.remove(&stream);
        let (number, is_last) = (waiting.number, waiting.streams.is_empty());
        let entry = log.entry(number)?;
        let after = now.saturating_duration_since(entry.at);
        let delivery = entry.delivery.get_or_insert_default();
        match answer {
            Answer::Accepted(_) => {
                delivery.accepted += 1;
                delivery.first_ack.get_or_insert(after);
                delivery.last_ack = Some(after);
            }
            Answer::Refused => delivery.refused += 1,
            Answer::Closed => delivery.closed += 1,
        }
        let delivery = delivery.clone();
        let by = Arc::clone(&entry.by);
        if !is_last {
            return None;
        }
        if let Some(files) = &self.files {
            files.delivered(&by, number, AuditDelivery::of(&delivery));
        }
        log.waiting = None;
        self.is_waiting.store(false, Ordering::Release);
        Some(Delivered { number, delivery })
    }

    /// Returns all entries, newest first.
    pub fn all(&self) -> Vec<AuditEntry> {
        self.lock().entries.iter().rev().cloned().collect()
    }

    /// Returns all entries, newest first, with those of earlier processes.
    pub fn records(&self) -> Vec<AuditRecord> {
        let origin = Clock::system().unix_origin();
        let entries = self.all();
        let own = entries.iter().map(|entry| AuditRecord::of(entry, origin));
        own.chain(self.earlier.iter().rev().cloned()).collect()
    }

    /// Returns the number of entries that could not be written to disk; `None` without files.
    pub fn lost(&self) -> Option<u64> {
        self.files.as_ref().map(AuditFiles::lost)
    }

    fn push(&self, mut entry: AuditEntry) -> AuditEntry {
        let mut log = self.lock();
        log.last += 1;
        entry.number = log.last;
        if log.entries.len() >= CAPACITY {
            let index = oldest_of_most(log.entries.iter().map(|entry| &*entry.by));
            log.entries.remove(index);
        }
        log.entries.push_back(entry.clone());
        if let Some(files) = &self.files {
            let origin = Clock::system().unix_origin();
            files.entry(AuditRecord::of(&entry, origin));
        }
        entry
    }

    fn lock(&self) -> MutexGuard<'_, Log> {
        // Every critical section leaves the data consistent, so poisoning can be ignored.
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Log {
    fn entry(&mut self, number: u64) -> Option<&mut AuditEntry> {
        let newest_first = self.entries.iter_mut().rev();
        newest_first
            .take_while(|entry| entry.number >= number)
            .find(|entry| entry.number == number)
    }

    fn delivery(&mut self, number: u64) -> Option<&mut Delivery> {
        self.entry(number)?.delivery.as_mut()
    }
}

/// Returns the index of the oldest entry of the source that has the most, so that a flood of one
/// source pushes out its own entries only. `by` has the authors of the entries, oldest first.
fn oldest_of_most<'a>(by: impl Iterator<Item = &'a str> + Clone) -> usize {
    let mut counts: BTreeMap<String, (usize, usize)> = BTreeMap::new();
    for (index, by) in by.enumerate() {
        let (count, _) = counts.entry(source(by)).or_insert((0, index));
        *count += 1;
    }
    let most = counts
        .into_values()
        .max_by_key(|(count, first)| (*count, usize::MAX - first));
    most.map_or(0, |(_, first)| first)
}

#[cfg(test)]
mod tests;
