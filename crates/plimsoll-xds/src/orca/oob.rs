//! Out-of-band load reporting: one gRPC stream per host, on which the host reports its load
//! periodically (gRFC A51).
//!
//! [`OobManager`] is protocol state without IO; its driver `OobStreams` (feature `oob`) runs a task
//! per host on HTTP/2 connections that the program opens. After every `handle_` call a driver
//! drains [`OobManager::poll_action`] and [`OobManager::poll_report`], and arms a timer for
//! [`OobManager::poll_timeout`].
//!
//! There is one session per host even if several policies use its reports (decision 0025): the
//! driver gives each report to the host, which passes it to all policies, and calls
//! [`OobManager::handle_undelivered`] if that failed. Merge the settings of the policies with
//! `OobReporting::merge`. `header` parses in-band reports.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use plimsoll_core::model::client_side_weighted_round_robin::OobReporting;
use plimsoll_core::model::orca::OrcaLoadReport;
use plimsoll_core::rng::Rng;
use plimsoll_core::time::Instant;

#[cfg(feature = "oob")]
mod driver;
mod event;
mod frames;
mod request;
mod session;

#[cfg(feature = "oob")]
pub use driver::{Connect, OobStreams, RequestSender};
pub use event::{CloseReason, OobAction, OobEvent, OobStream, ResponseHeaders};

use self::session::{Session, Stream};
use super::OrcaError;
use crate::grpc_frame::frame;

/// `:path` of the reporting RPC.
pub const PATH: &str = "/xds.service.orca.v3.OpenRcaService/StreamCoreMetrics";

/// Periods without a report after which a stream is considered stalled.
const WATCHDOG_PERIODS: u32 = 3;

/// Parses the reporting interval that a client requests when it opens a stream.
///
/// For servers of [`PATH`]. Returns `None` if the client requests no interval.
pub fn parse_request(message: &[u8]) -> Result<Option<Duration>, OrcaError> {
    request::decode(message).map_err(|error| OrcaError::invalid(error.to_string()))
}

/// Encodes a request for a report every `interval`.
pub fn encode_request(interval: Duration) -> Vec<u8> {
    request::encode(interval)
}

/// Host to request load reports from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OobHost {
    /// Address for requests; `OobReporting::port` may override the port for reports.
    pub address: SocketAddr,
    /// Hostname in the assignment, may be empty.
    pub hostname: Arc<str>,
}

/// Identifies one connection attempt. Never reused, so that late events of an old connection are
/// recognized and ignored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectionId(u64);

plimsoll_core::counters! {
    /// Statistics of out-of-band reporting.
    #[derive(Clone, Copy, PartialEq, Eq)]
    pub struct OobStats("lb_orca_oob.", ["cluster"]): u64 {
        /// Load reports that arrived on a stream of their own and could be read.
        reports_received,
        /// Load reports that a consumer rejected or that had no consumer.
        report_errors,
        /// Streams that ended and are tried again.
        stream_failures,
        /// Hosts that do not offer the service; they are not asked again.
        stream_terminated,
        /// Hosts that are asked for out-of-band reports
        active_sessions: gauge,
    }
}

/// Out-of-band sessions of one cluster.
#[derive(Debug)]
pub struct OobManager<R> {
    reporting: OobReporting,
    request: Bytes,
    rng: R,
    sessions: BTreeMap<SocketAddr, Session>,
    streams: BTreeMap<ConnectionId, SocketAddr>,
    /// Deadlines of all sessions, earliest first.
    timers: BTreeSet<(Instant, SocketAddr)>,
    connections: u64,
    actions: VecDeque<OobAction>,
    reports: VecDeque<(SocketAddr, OrcaLoadReport)>,
    stats: OobStats,
}

impl<R: Rng> OobManager<R> {
    /// Creates a manager without hosts; `rng` spreads first attempts and retries.
    pub fn new(reporting: OobReporting, rng: R) -> Self {
        Self {
            request: frame(&encode_request(reporting.period())),
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

    /// Replaces the hosts, of all priorities. Existing hosts keep their session, removed hosts lose
    /// it. Each new host takes one random draw, in address order, for the time of its first
    /// attempt. A host with a changed hostname counts as new. An empty list ends all sessions.
    pub fn handle_hosts(&mut self, hosts: impl IntoIterator<Item = OobHost>, now: Instant) {
        let mut current = BTreeMap::new();
        for host in hosts {
            current.entry(host.address).or_insert(host.hostname);
        }
        let gone = |(address, session): (&SocketAddr, &Session)| {
            (current.get(address) != Some(&session.hostname)).then_some(*address)
        };
        let gone: Vec<_> = self.sessions.iter().filter_map(gone).collect();
        for address in gone {
            self.remove(address, CloseReason::HostRemoved);
        }
        for (address, hostname) in current {
            if !self.sessions.contains_key(&address) {
                self.add(address, hostname, now);
            }
        }
    }

    /// Applies new settings. If they differ, every session restarts, even of hosts that do not
    /// implement the reporting service: the port may have changed.
    pub fn handle_settings(&mut self, reporting: OobReporting, now: Instant) {
        if reporting == self.reporting {
            return;
        }
        self.request = frame(&encode_request(reporting.period()));
        self.reporting = reporting;
        let hosts: Vec<_> = self
            .sessions
            .iter()
            .map(|(at, host)| (*at, Arc::clone(&host.hostname)))
            .collect();
        for (address, hostname) in hosts {
            self.remove(address, CloseReason::SettingsChanged);
            self.add(address, hostname, now);
        }
    }

    /// Handles an event of a connection. Events of closed connections are ignored.
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

    /// Handles timers that are due. Calling it early or late is harmless.
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

    /// Counts a report from [`Self::poll_report`] that had no consumer or was rejected.
    pub fn handle_undelivered(&mut self) {
        self.stats.report_errors += 1;
    }

    /// Returns the next network action for the driver.
    pub fn poll_action(&mut self) -> Option<OobAction> {
        self.actions.pop_front()
    }

    /// Returns the next report, for every consumer of that host.
    pub fn poll_report(&mut self) -> Option<(SocketAddr, OrcaLoadReport)> {
        self.reports.pop_front()
    }

    /// Returns when to call [`Self::handle_timeout`].
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.timers.first().map(|(deadline, _)| *deadline)
    }

    /// Returns the counters of the manager.
    pub const fn stats(&self) -> OobStats {
        self.stats
    }

    /// Spreads first attempts over a period, so that a cluster does not dial all hosts at once.
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
            request: self.request.clone(),
        }));
    }

    /// Ends a stream: for good if the host does not implement the service, else until a retry.
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
        let delay = session::draw(&mut self.rng, session.backoff.next_bound());
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
        let timeout = self.reporting.period().saturating_mul(WATCHDOG_PERIODS);
        now.saturating_add(timeout)
    }
}

#[cfg(test)]
mod tests;
