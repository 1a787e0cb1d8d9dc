//! Out-of-band reports: one gRPC stream per host on which the host reports its load unasked
//! (envoy-semantics §5.5, gRFC A51).
//!
//! Here lives the protocol without any IO: when to dial, what to send, what the answers mean, when
//! to try again. A driver owns sockets, HTTP/2 and TLS. It calls [`OobManager::handle_hosts`] when
//! membership changes, [`OobManager::handle_event`] when something happens on a stream, and
//! [`OobManager::handle_timeout`] when [`OobManager::poll_timeout`] has come; after every call it
//! drains [`OobManager::poll_action`] and [`OobManager::poll_report`].
//!
//! There is one session per host however many policies want its reports (decisions D6): the driver
//! gives each report to the host, which gives it to all of them, and says so with
//! [`OobManager::handle_undelivered`] when that failed. Merge what the policies ask for with
//! `OobReporting::shared_with`. Reports that ride on responses are read in `header`.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use plimsoll_core::model::client_side_weighted_round_robin::OobReporting;
use plimsoll_core::model::orca::OrcaLoadReport;
use plimsoll_core::rng::Rng;
use plimsoll_core::time::Instant;

mod event;
mod frames;
mod session;

pub use event::{CloseReason, OobAction, OobEvent, OobStream, ResponseHeaders};

use self::session::{Session, Stream};
use super::OrcaError;
use crate::convert;

/// `:path` of every stream.
pub const PATH: &str = "/xds.service.orca.v3.OpenRcaService/StreamCoreMetrics";

/// Periods without a report after which a stream counts as stalled.
const WATCHDOG_PERIODS: u32 = 3;

/// How often the client of a stream wants a report, from the message it opens the stream with.
///
/// The other end of a session: for those who serve [`PATH`]. `None` = it has no wish.
pub fn parse_request(message: &[u8]) -> Result<Option<Duration>, OrcaError> {
    convert::orca_request::decode(message).map_err(OrcaError::invalid)
}

/// The message with which a client asks for a report every `interval`.
pub fn encode_request(interval: Duration) -> Vec<u8> {
    convert::orca_request::encode(interval)
}

/// A host that reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OobHost {
    /// Where it serves requests; `OobReporting::port` may send reports elsewhere.
    pub address: SocketAddr,
    /// Its name in the assignment, may be empty.
    pub hostname: Arc<str>,
}

/// One attempt to get reports from a host. Never used twice, so that what arrives late from an old
/// connection is recognised and ignored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectionId(u64);

/// Counters, and one gauge, with Envoy's names (`cluster.<name>.lb_orca_oob.*`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OobStats {
    /// Reports that arrived and could be read.
    pub reports_received: u64,
    /// Reports that a consumer refused, or that nobody wanted.
    pub report_errors: u64,
    /// Streams that ended and will be tried again.
    pub stream_failures: u64,
    /// Hosts that do not implement the service.
    pub stream_terminated: u64,
    /// Gauge: hosts that are reporting, being dialled, or waiting for the next attempt.
    pub active_sessions: u64,
}

impl OobStats {
    /// Name of all of them and what they count, in the same order.
    pub const DESCRIPTIONS: [(&'static str, &'static str); 5] = [
        (
            "reports_received",
            "Load reports that arrived on a stream of their own and could be read.",
        ),
        (
            "report_errors",
            "Reports that a consumer refused, or that nobody wanted.",
        ),
        ("stream_failures", "Streams that ended and are tried again."),
        (
            "stream_terminated",
            "Hosts that do not offer the service; they are not asked again.",
        ),
        (
            "active_sessions",
            "Hosts that report, are being dialled, or wait for the next attempt.",
        ),
    ];

    /// Name and value of all of them, in a fixed order.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> {
        [
            ("reports_received", self.reports_received),
            ("report_errors", self.report_errors),
            ("stream_failures", self.stream_failures),
            ("stream_terminated", self.stream_terminated),
            ("active_sessions", self.active_sessions),
        ]
        .into_iter()
    }
}

/// The out-of-band sessions of one cluster.
#[derive(Debug)]
pub struct OobManager<R> {
    reporting: OobReporting,
    request: Arc<[u8]>,
    rng: R,
    sessions: BTreeMap<SocketAddr, Session>,
    /// Which host a live connection belongs to.
    streams: BTreeMap<ConnectionId, SocketAddr>,
    /// Deadlines of all sessions, earliest first.
    timers: BTreeSet<(Instant, SocketAddr)>,
    connections: u64,
    actions: VecDeque<OobAction>,
    reports: VecDeque<(SocketAddr, OrcaLoadReport)>,
    stats: OobStats,
}

impl<R: Rng> OobManager<R> {
    /// A manager without hosts; `rng` spreads first attempts and retries.
    pub fn new(reporting: OobReporting, rng: R) -> Self {
        Self {
            request: frames::frame(&convert::orca_request::encode(reporting.period())),
            reporting,
            rng,
            sessions: BTreeMap::new(),
            streams: BTreeMap::new(),
            timers: BTreeSet::new(),
            connections: 0,
            actions: VecDeque::new(),
            reports: VecDeque::new(),
            stats: OobStats::default(),
        }
    }

    /// The hosts there are now, of all priorities. Known ones keep their session, those that left
    /// lose it, new ones get one draw each, in the order of addresses, for the time of their first
    /// attempt. A host whose name changed is another host. No hosts at all ends everything.
    pub fn handle_hosts(&mut self, hosts: impl IntoIterator<Item = OobHost>, now: Instant) {
        let mut wanted = BTreeMap::new();
        for host in hosts {
            wanted.entry(host.address).or_insert(host.hostname);
        }
        let gone = |(address, session): (&SocketAddr, &Session)| {
            (wanted.get(address) != Some(&session.hostname)).then_some(*address)
        };
        let gone: Vec<_> = self.sessions.iter().filter_map(gone).collect();
        for address in gone {
            self.remove(address, CloseReason::HostRemoved);
        }
        for (address, hostname) in wanted {
            if !self.sessions.contains_key(&address) {
                self.add(address, hostname, now);
            }
        }
    }

    /// New settings. If they differ every session starts over, those of hosts that did not
    /// implement the service included: the port may be another one now.
    pub fn handle_settings(&mut self, reporting: OobReporting, now: Instant) {
        if reporting == self.reporting {
            return;
        }
        self.request = frames::frame(&convert::orca_request::encode(reporting.period()));
        self.reporting = reporting;
        let hosts = self.sessions.iter();
        let hosts: Vec<_> = hosts
            .map(|(at, host)| (*at, Arc::clone(&host.hostname)))
            .collect();
        for (address, hostname) in hosts {
            self.remove(address, CloseReason::SettingsChanged);
            self.add(address, hostname, now);
        }
    }

    /// Something happened on a connection. Events of connections that are over are ignored.
    pub fn handle_event(&mut self, connection: ConnectionId, event: OobEvent<'_>, now: Instant) {
        let Some(&address) = self.streams.get(&connection) else {
            return;
        };
        let Some(session) = self.sessions.get_mut(&address) else {
            return;
        };
        let mut reports = Vec::new();
        let end = session.handle_event(event, &mut reports);
        if !reports.is_empty() {
            self.stats.reports_received += reports.len() as u64;
            self.reports
                .extend(reports.into_iter().map(|report| (address, report)));
            self.set_deadline(address, Some(self.watchdog(now)));
        }
        if let Some(reason) = end {
            self.end_stream(address, reason, now);
        }
    }

    /// The moment asked for by [`Self::poll_timeout`] has come (calling early or late is harmless).
    pub fn handle_timeout(&mut self, now: Instant) {
        while let Some(&(deadline, address)) = self.timers.first()
            && deadline <= now
        {
            match self.sessions.get(&address) {
                Some(session) if session.stream.is_some() => {
                    self.end_stream(address, CloseReason::NoReport, now);
                }
                _ => self.open(address, now),
            }
        }
    }

    /// A report from [`Self::poll_report`] had no consumer, or one that refused it.
    pub fn handle_undelivered(&mut self) {
        self.stats.report_errors += 1;
    }

    /// The next thing to do on the network.
    pub fn poll_action(&mut self) -> Option<OobAction> {
        self.actions.pop_front()
    }

    /// The next report, for every consumer of that host.
    pub fn poll_report(&mut self) -> Option<(SocketAddr, OrcaLoadReport)> {
        self.reports.pop_front()
    }

    /// When [`Self::handle_timeout`] wants to be called.
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.timers.first().map(|(deadline, _)| *deadline)
    }

    /// Counters.
    pub const fn stats(&self) -> OobStats {
        self.stats
    }

    /// First attempt after a random part of the period, so that a cluster does not dial all its
    /// hosts at once.
    fn add(&mut self, address: SocketAddr, hostname: Arc<str>, now: Instant) {
        self.sessions.insert(address, Session::new(hostname));
        self.stats.active_sessions += 1;
        let delay = session::draw(&mut self.rng, self.reporting.period());
        self.set_deadline(address, Some(now.saturating_add(delay)));
    }

    fn remove(&mut self, address: SocketAddr, reason: CloseReason) {
        self.close(address, reason);
        self.set_deadline(address, None);
        let session = self.sessions.remove(&address);
        if session.is_some_and(|session| !session.terminated) {
            self.stats.active_sessions -= 1;
        }
    }

    fn open(&mut self, address: SocketAddr, now: Instant) {
        let watchdog = self.watchdog(now);
        self.set_deadline(address, Some(watchdog));
        let Some(session) = self.sessions.get_mut(&address) else {
            return;
        };
        self.connections += 1;
        let connection = ConnectionId(self.connections);
        session.stream = Some(Stream::new(connection));
        self.streams.insert(connection, address);
        let mut dial = address;
        if let Some(port) = self.reporting.port() {
            dial.set_port(port);
        }
        let authority = match self.reporting.authority() {
            Some(authority) => Arc::clone(authority),
            None if !session.hostname.is_empty() => Arc::clone(&session.hostname),
            None => dial.to_string().into(),
        };
        self.actions.push_back(OobAction::Open(OobStream {
            connection,
            host: address,
            dial,
            authority,
            request: Arc::clone(&self.request),
        }));
    }

    /// The stream is over: for good if the host does not implement the service, else until a random
    /// part of the growing pause has passed.
    fn end_stream(&mut self, address: SocketAddr, reason: CloseReason, now: Instant) {
        self.close(address, reason);
        let Some(session) = self.sessions.get_mut(&address) else {
            return;
        };
        if reason == CloseReason::Unimplemented {
            session.terminated = true;
            self.stats.stream_terminated += 1;
            self.stats.active_sessions -= 1;
            self.set_deadline(address, None);
            return;
        }
        self.stats.stream_failures += 1;
        let delay = session::draw(&mut self.rng, session.backoff.next_pause());
        self.set_deadline(address, Some(now.saturating_add(delay)));
    }

    fn close(&mut self, address: SocketAddr, reason: CloseReason) {
        let session = self.sessions.get_mut(&address);
        if let Some(stream) = session.and_then(|session| session.stream.take()) {
            let (connection, host) = (stream.connection, address);
            self.streams.remove(&connection);
            let close = OobAction::Close {
                connection,
                host,
                reason,
            };
            self.actions.push_back(close);
        }
    }

    fn set_deadline(&mut self, address: SocketAddr, deadline: Option<Instant>) {
        let Some(session) = self.sessions.get_mut(&address) else {
            return;
        };
        if let Some(old) = std::mem::replace(&mut session.deadline, deadline) {
            self.timers.remove(&(old, address));
        }
        self.timers
            .extend(deadline.map(|deadline| (deadline, address)));
    }

    fn watchdog(&self, now: Instant) -> Instant {
        let patience = self.reporting.period().saturating_mul(WATCHDOG_PERIODS);
        now.saturating_add(patience)
    }
}

#[cfg(test)]
mod tests;
