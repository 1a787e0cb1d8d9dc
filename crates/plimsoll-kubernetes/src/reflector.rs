//! [`Reflector`]: the protocol of list and watch, a state machine without IO.
//!
//! It mirrors the objects of one kind. A list is read in pages and takes effect when its last page
//! is there; then a watch follows changes from the list's resource version. A watch that ends is
//! continued where it was; only if the API server no longer has that version (410 Gone) are all
//! objects listed again. Until such a list is complete, the previous objects stay, and the
//! differences between the two are changes like any other: there is no gap.
//!
//! The driver asks [`Reflector::poll_step`] what to do, passes in what the API server sent, and
//! drains [`Reflector::poll_change`]. Time and randomness are arguments.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use plimsoll_core::backoff::BackoffBounds;
use plimsoll_core::time::Instant;
use plimsoll_serve::discovery::Held;
pub use plimsoll_serve::discovery::RemovalGuard;
use serde_json::value::RawValue;

use crate::objects::{ListJson, ObjectKey, PartialObject, Resource, Status, WatchEventJson};

const FIRST_BACKOFF: Duration = Duration::from_millis(250);
/// After an outage of minutes, the API server is used again within this time.
const LONGEST_BACKOFF: Duration = Duration::from_secs(15);
/// Longest wait that an API server can ask for.
const MAX_RETRY_AFTER: Duration = Duration::from_secs(300);
/// Pause between two attempts to list a kind whose CRD is not installed.
const MISSING_KIND_PAUSE: Duration = Duration::from_secs(30);

/// What the driver should do next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Request a page of a list: the first, or the one after a token.
    List { continue_token: Option<String> },
    /// Watch changes after a resource version.
    Watch { resource_version: String },
    /// Do nothing before this time.
    Wait(Instant),
}

/// A change of the mirrored objects.
#[derive(Clone, Debug, PartialEq)]
pub enum Change<T> {
    /// The object is new or different.
    Applied(Arc<T>),
    Deleted(ObjectKey),
}

/// Reason why a request failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The API server answered with an error; `retry_after` is its header.
    Status {
        status: Status,
        retry_after: Option<Duration>,
    },
    /// No answer, or one that cannot be read.
    Transport(String),
}

impl Failure {
    /// Whether the requested resource version or page is no longer available.
    fn is_gone(&self) -> bool {
        matches!(self, Self::Status { status, .. } if status.code == 410)
    }

    fn is_not_found(&self) -> bool {
        matches!(self, Self::Status { status, .. } if status.code == 404)
    }

    /// Returns the failure in words.
    pub fn text(&self) -> String {
        match self {
            Self::Transport(reason) => reason.clone(),
            Self::Status { status, .. } => {
                format!("{} {}: {}", status.code, status.reason, status.message)
            }
        }
    }
}

/// Numbers of what happened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReflectorCounts {
    /// Lists that took effect.
    pub lists: u64,
    /// Watches that the API server began to answer.
    pub watches: u64,
    /// Requests that failed, and watches that broke.
    pub failures: u64,
    /// Resource versions that the API server no longer had.
    pub gone: u64,
    pub events: u64,
    pub bookmarks: u64,
    /// Objects that could not be decoded.
    pub invalid: u64,
}

/// Mirror of the objects of one kind.
#[derive(Debug)]
pub struct Reflector<T> {
    objects: BTreeMap<ObjectKey, Arc<T>>,
    phase: Phase<T>,
    resource_version: String,
    wait_until: Option<Instant>,
    backoff: BackoffBounds,
    changes: VecDeque<Change<T>>,
    is_synced: bool,
    /// Whether the API server does not know the kind.
    is_missing: bool,
    guard: RemovalGuard,
    held: Option<Held<ObjectKey>>,
    counts: ReflectorCounts,
}

#[derive(Debug)]
enum Phase<T> {
    Listing {
        continue_token: Option<String>,
        listed: BTreeMap<ObjectKey, Arc<T>>,
    },
    Watching,
}

impl<T: Resource> Reflector<T> {
    /// Creates a mirror without objects, which starts with a list.
    pub fn new(guard: RemovalGuard) -> Self {
        Self {
            objects: BTreeMap::new(),
            phase: Phase::first_page(),
            resource_version: String::new(),
            wait_until: None,
            backoff: BackoffBounds::new(FIRST_BACKOFF, LONGEST_BACKOFF),
            changes: VecDeque::new(),
            is_synced: false,
            is_missing: false,
            guard,
            held: None,
            counts: ReflectorCounts::default(),
        }
    }

    /// Returns what to do next.
    pub fn poll_step(&mut self, now: Instant) -> Step {
        if let Some(until) = self.wait_until {
            if now < until {
                return Step::Wait(until);
            }
            self.wait_until = None;
        }
        match &self.phase {
            Phase::Listing { continue_token, .. } => Step::List {
                continue_token: continue_token.clone(),
            },
            Phase::Watching => Step::Watch {
                resource_version: self.resource_version.clone(),
            },
        }
    }

    /// Returns the next change.
    pub fn poll_change(&mut self) -> Option<Change<T>> {
        self.changes.pop_front()
    }

    /// Processes a page of a list.
    pub fn handle_page(&mut self, page: ListJson, now: Instant) {
        let Phase::Listing {
            continue_token,
            listed,
        } = &mut self.phase
        else {
            return;
        };
        for item in page.items {
            match decode::<T>(&item) {
                Ok(object) => drop(listed.insert(object.key().clone(), Arc::new(object))),
                Err(key) => {
                    self.counts.invalid += 1;
                    // An object that can no longer be decoded is not one that was deleted.
                    if let Some(before) = key.as_ref().and_then(|key| self.objects.get(key)) {
                        listed.insert(before.key().clone(), Arc::clone(before));
                    }
                }
            }
        }
        let next = page.metadata.continue_token;
        if !next.is_empty() {
            *continue_token = Some(next);
            return;
        }
        let listed = std::mem::take(listed);
        self.resource_version = page.metadata.resource_version;
        self.phase = Phase::Watching;
        self.counts.lists += 1;
        self.is_missing = false;
        self.backoff.reset();
        self.replace(listed, now);
        self.is_synced = true;
    }

    /// Notes that the API server began to answer a watch.
    pub fn handle_watch_started(&mut self) {
        self.counts.watches += 1;
    }

    /// Processes one line of a watch. An error ends the watch; the driver closes its connection.
    pub fn handle_event(
        &mut self,
        event: &WatchEventJson,
        draw: u64,
        now: Instant,
    ) -> Result<(), Failure> {
        match event.kind.as_str() {
            "BOOKMARK" => {
                self.counts.bookmarks += 1;
                let object: PartialObject = self.metadata(&event.object)?;
                self.advance(object.metadata.resource_version);
            }
            "ADDED" | "MODIFIED" => self.apply(&event.object)?,
            "DELETED" => {
                let object: PartialObject = self.metadata(&event.object)?;
                self.counts.events += 1;
                self.delete(&object.metadata.key());
                self.advance(object.metadata.resource_version);
            }
            "ERROR" => {
                let status = serde_json::from_str(event.object.get()).unwrap_or_default();
                let failure = Failure::Status {
                    status,
                    retry_after: None,
                };
                self.handle_failure(&failure, draw, now);
                return Err(failure);
            }
            other => {
                let failure = Failure::Transport(format!("unknown watch event {other:?}"));
                self.handle_failure(&failure, draw, now);
                return Err(failure);
            }
        }
        // Events show that the API server works: the next failure waits shortly.
        self.backoff.reset();
        Ok(())
    }

    /// Processes the regular end of a watch, for instance at its `timeoutSeconds`. A watch that
    /// ended without a single event is paced, so that a server that closes at once is not flooded.
    pub fn handle_watch_end(&mut self, had_events: bool, draw: u64, now: Instant) {
        if had_events {
            return;
        }
        let delay = self.backoff.first_delay(draw);
        self.wait_until = Some(now.saturating_add(delay));
    }

    /// Processes a failed request, or a watch that broke.
    pub fn handle_failure(&mut self, failure: &Failure, draw: u64, now: Instant) {
        self.counts.failures += 1;
        if failure.is_gone() {
            // Also for a list whose continue token has expired: its first pages are out of date.
            self.counts.gone += 1;
            let is_first = matches!(
                &self.phase,
                Phase::Listing {
                    continue_token: None,
                    ..
                }
            );
            self.phase = Phase::first_page();
            if !is_first {
                self.wait_until = Some(now.saturating_add(self.backoff.first_delay(draw)));
                return;
            }
        }
        if failure.is_not_found() && T::IS_CUSTOM {
            // Without its CRD the kind has no objects; it may be installed later.
            self.phase = Phase::first_page();
            self.is_missing = true;
            self.is_synced = true;
            self.replace(BTreeMap::new(), now);
            self.wait_until = Some(now.saturating_add(MISSING_KIND_PAUSE));
            return;
        }
        let mut delay = self.backoff.next_delay(draw);
        if let Failure::Status {
            retry_after: Some(asked),
            ..
        } = failure
        {
            delay = delay.max((*asked).min(MAX_RETRY_AFTER));
        }
        self.wait_until = Some(now.saturating_add(delay));
    }

    /// Applies removals that were held back long enough; see [`RemovalGuard`].
    pub fn handle_timeout(&mut self, now: Instant) {
        let due = self.held.as_ref().is_some_and(|held| held.until <= now);
        if due && let Some(held) = self.held.take() {
            for key in held.keys {
                self.remove(&key);
            }
        }
    }

    /// Returns when to call [`Self::handle_timeout`].
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.held.as_ref().map(|held| held.until)
    }

    /// Whether a list has taken effect since the start.
    pub const fn is_synced(&self) -> bool {
        self.is_synced
    }

    /// Whether the API server does not know the kind, because its CRD is not installed.
    pub const fn is_missing(&self) -> bool {
        self.is_missing
    }

    /// Returns the number of objects.
    pub fn len(&self) -> usize {
        self.objects.len()
    }

    /// Whether there are no objects.
    pub fn is_empty(&self) -> bool {
        self.objects.is_empty()
    }

    /// Returns the number of objects that a list no longer had, and that stay for a while.
    pub fn held(&self) -> usize {
        self.held.as_ref().map_or(0, |held| held.keys.len())
    }

    /// Returns what happened so far.
    pub const fn counts(&self) -> ReflectorCounts {
        self.counts
    }

    fn apply(&mut self, raw: &RawValue) -> Result<(), Failure> {
        self.counts.events += 1;
        let object: T = match decode(raw) {
            Ok(object) => object,
            Err(_) => {
                // The object stays as it was; the others are not affected.
                self.counts.invalid += 1;
                let partial: PartialObject = self.metadata(raw)?;
                self.advance(partial.metadata.resource_version);
                return Ok(());
            }
        };
        self.advance(object.resource_version().to_owned());
        self.insert(Arc::new(object));
        Ok(())
    }

    fn insert(&mut self, object: Arc<T>) {
        let key = object.key().clone();
        if let Some(held) = &mut self.held {
            held.keys.remove(&key);
        }
        let before = self.objects.insert(key, Arc::clone(&object));
        if before.is_none_or(|before| before != object) {
            self.changes.push_back(Change::Applied(object));
        }
    }

    /// Removes an object that the API server says is deleted.
    fn delete(&mut self, key: &ObjectKey) {
        if let Some(held) = &mut self.held {
            held.keys.remove(key);
        }
        self.remove(key);
    }

    fn remove(&mut self, key: &ObjectKey) {
        if self.objects.remove(key).is_some() {
            self.changes.push_back(Change::Deleted(key.clone()));
        }
    }

    /// Replaces all objects by those of a complete list.
    fn replace(&mut self, listed: BTreeMap<ObjectKey, Arc<T>>, now: Instant) {
        let gone = self.objects.keys().filter(|key| !listed.contains_key(*key));
        let removed: std::collections::BTreeSet<ObjectKey> = gone.cloned().collect();
        let before = self.held.take();
        // Objects are counted, not compared: slices may all have been replaced by others.
        let lost = self.objects.len().saturating_sub(listed.len());
        if self.guard.holds(lost, self.objects.len()) {
            let until = before.map_or_else(|| self.guard.deadline(now), |held| held.until);
            let keys = removed;
            self.held = Some(Held { keys, until });
        } else {
            for key in &removed {
                self.remove(key);
            }
        }
        for object in listed.into_values() {
            self.insert(object);
        }
        self.handle_timeout(now);
    }

    fn advance(&mut self, resource_version: String) {
        if !resource_version.is_empty() {
            self.resource_version = resource_version;
        }
    }

    fn metadata(&self, raw: &RawValue) -> Result<PartialObject, Failure> {
        serde_json::from_str(raw.get())
            .map_err(|error| Failure::Transport(format!("invalid {}: {error}", T::KIND)))
    }
}

impl<T> Phase<T> {
    const fn first_page() -> Self {
        Self::Listing {
            continue_token: None,
            listed: BTreeMap::new(),
        }
    }
}

/// Decodes an object; an error has the key if at least that can be read.
fn decode<T: Resource>(raw: &RawValue) -> Result<T, Option<ObjectKey>> {
    match serde_json::from_str::<T::Json>(raw.get()) {
        Ok(json) => Ok(T::from_json(json)),
        Err(_) => {
            let partial: Option<PartialObject> = serde_json::from_str(raw.get()).ok();
            Err(partial.map(|object| object.metadata.key()))
        }
    }
}

#[cfg(test)]
mod tests;
