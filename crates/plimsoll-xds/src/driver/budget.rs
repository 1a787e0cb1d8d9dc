//! [`Budget`]: bytes that clients make the server hold, over all streams.
//!
//! A limit of one stream does not limit memory, because a client may open many. If all streams
//! together hold too much, one ends: of the peer whose streams hold most, the one that holds most.
//! So a client with thousands of small holdings does not push out an honest one with one of average
//! size. A budget may also limit how long something is held.
//!
//! Ending a stream frees what it holds at once: a stream whose client does not read is not polled,
//! so telling it would free nothing. `messages` and `server` keep the accounts; `session` ends
//! streams.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use super::request_limits::RequestLimit;
use super::session::Session;

/// Bytes that all streams together may hold.
#[derive(Debug)]
pub(super) struct Budget {
    limit: RequestLimit,
    /// What is counted, for the status of streams that end.
    what: &'static str,
    bytes: usize,
    /// How long a stream may hold something.
    timeout: Option<(RequestLimit, Duration)>,
    held: Mutex<Held>,
    /// A stream holds something and no other did before.
    first_deadline: Notify,
}

/// Network of a client; `None` if the transport does not know it.
type Peer = Option<IpAddr>;

#[derive(Debug, Default)]
struct Held {
    bytes: usize,
    last_id: u64,
    streams: BTreeMap<u64, Holding>,
    peers: BTreeMap<Peer, PeerHoldings>,
    /// Peers by what their streams hold together.
    largest: BTreeSet<(usize, Peer)>,
    deadlines: BTreeSet<(Instant, u64)>,
}

/// What one stream holds.
#[derive(Debug)]
struct Holding {
    peer: Peer,
    bytes: usize,
    deadline: Option<Instant>,
    session: Weak<Session>,
}

#[derive(Debug, Default)]
struct PeerHoldings {
    bytes: usize,
    /// Streams by what they hold.
    streams: BTreeSet<(usize, u64)>,
}

/// Account of one stream.
#[derive(Debug)]
pub(super) struct Account {
    budget: Arc<Budget>,
    peer: Peer,
    session: Weak<Session>,
    bytes: usize,
    /// 0 until the stream holds something for the first time.
    id: u64,
}

/// The stream has been ended, because it held too much or for too long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Evicted;

impl Budget {
    pub(super) fn new(limit: RequestLimit, what: &'static str, bytes: usize) -> Self {
        Self {
            limit,
            what,
            bytes,
            timeout: None,
            held: Mutex::default(),
            first_deadline: Notify::new(),
        }
    }

    /// Ends streams that hold something for longer than `timeout`, while [`Self::expire`] runs.
    pub(super) fn with_timeout(self, limit: RequestLimit, timeout: Duration) -> Self {
        Self {
            timeout: Some((limit, timeout)),
            ..self
        }
    }

    /// Opens the account of a stream of the client at `address`.
    pub(super) fn account(
        self: &Arc<Self>,
        address: Option<IpAddr>,
        session: Weak<Session>,
    ) -> Account {
        Account {
            budget: Arc::clone(self),
            peer: address.map(network_of),
            session,
            bytes: 0,
            id: 0,
        }
    }

    /// Ends streams whose time is over. Never returns.
    pub(super) async fn expire(&self) {
        let Some((limit, timeout)) = self.timeout else {
            return std::future::pending().await;
        };
        loop {
            let first = self.lock().deadlines.first().map(|(deadline, _)| *deadline);
            // Later deadlines are never before earlier ones: all have the same timeout.
            match first {
                Some(deadline) => tokio::time::sleep_until(deadline).await,
                None => self.first_deadline.notified().await,
            }
            let late = self.lock().take_late(Instant::now());
            self.end(&late, limit, |what| {
                format!("{what}: not complete within {timeout:?}")
            });
        }
    }

    /// Ends streams. Not called under the lock, which dropping an [`Account`] takes.
    fn end(&self, evicted: &[Holding], limit: RequestLimit, reason: impl FnOnce(&str) -> String) {
        if evicted.is_empty() {
            return;
        }
        let reason = reason(self.what);
        for session in evicted.iter().filter_map(|it| it.session.upgrade()) {
            session.refuse(limit, &reason);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Account {
    /// Sets the bytes that the stream holds. Takes no lock if they are the same as before, so that
    /// messages that arrive in one piece take none.
    pub(super) fn set(&mut self, bytes: usize) -> Result<(), Evicted> {
        if bytes == self.bytes {
            return Ok(());
        }
        let budget = Arc::clone(&self.budget);
        let mut held = budget.lock();
        if self.id == 0 {
            held.last_id += 1;
            self.id = held.last_id;
        }
        let before = held.remove(self.id);
        if before.is_none() && self.bytes > 0 {
            return Err(Evicted);
        }
        self.bytes = bytes;
        if bytes > 0 {
            let timeout = || budget.timeout.map(|(_, timeout)| Instant::now() + timeout);
            let deadline = before.map_or_else(timeout, |before| before.deadline);
            if deadline.is_some() && held.deadlines.is_empty() {
                budget.first_deadline.notify_one();
            }
            let holding = Holding {
                peer: self.peer,
                bytes,
                deadline,
                session: Weak::clone(&self.session),
            };
            held.insert(self.id, holding);
        }
        let evicted = held.take_excess(budget.bytes);
        let is_evicted = bytes > 0 && !held.streams.contains_key(&self.id);
        drop(held);
        budget.end(&evicted, budget.limit, |what| {
            let limit = budget.bytes;
            format!(
                "{what} of all streams: more than {limit} bytes, and this stream has most of the \
                 client that has most"
            )
        });
        if is_evicted { Err(Evicted) } else { Ok(()) }
    }
}

impl Drop for Account {
    fn drop(&mut self) {
        if self.bytes > 0 {
            // It is missing if it was evicted.
            let _ = self.budget.lock().remove(self.id);
        }
    }
}

impl Held {
    fn insert(&mut self, id: u64, holding: Holding) {
        let Holding { peer, bytes, .. } = holding;
        self.bytes += bytes;
        let of_peer = self.peers.entry(peer).or_default();
        self.largest.remove(&(of_peer.bytes, peer));
        of_peer.bytes += bytes;
        of_peer.streams.insert((bytes, id));
        self.largest.insert((of_peer.bytes, peer));
        self.deadlines
            .extend(holding.deadline.map(|deadline| (deadline, id)));
        self.streams.insert(id, holding);
    }

    fn remove(&mut self, id: u64) -> Option<Holding> {
        let holding = self.streams.remove(&id)?;
        let Holding { peer, bytes, .. } = holding;
        self.bytes -= bytes;
        if let Some(of_peer) = self.peers.get_mut(&peer) {
            self.largest.remove(&(of_peer.bytes, peer));
            of_peer.bytes -= bytes;
            of_peer.streams.remove(&(bytes, id));
            if of_peer.streams.is_empty() {
                self.peers.remove(&peer);
            } else {
                self.largest.insert((of_peer.bytes, peer));
            }
        }
        if let Some(deadline) = holding.deadline {
            self.deadlines.remove(&(deadline, id));
        }
        Some(holding)
    }

    /// Removes streams until the others fit.
    fn take_excess(&mut self, bytes: usize) -> Vec<Holding> {
        let mut taken = Vec::new();
        while self.bytes > bytes
            && let Some((_, peer)) = self.largest.last()
            && let Some((_, id)) = self.peers.get(peer).and_then(|it| it.streams.last())
        {
            let id = *id;
            taken.extend(self.remove(id));
        }
        taken
    }

    /// Removes streams whose deadline is not after `now`.
    fn take_late(&mut self, now: Instant) -> Vec<Holding> {
        let mut taken = Vec::new();
        while let Some((deadline, id)) = self.deadlines.first().copied()
            && deadline <= now
        {
            taken.extend(self.remove(id));
        }
        taken
    }
}

/// Returns the network that holdings and streams are summed by. A host often has a whole IPv6
/// network of 64 bits to choose its addresses from.
pub(super) fn network_of(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) if !address.is_loopback() => {
            let [a, b, c, d, ..] = address.segments();
            Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0).into()
        }
        address => address,
    }
}

#[cfg(test)]
mod tests;
