//! `kind.oob`: events of one host's out-of-band ORCA stream, and the resulting counters.
//!
//! The host exists from the start. Time advances only to the next deadline, and only if an event
//! needs it; random numbers are 1 unless the case gives some, so that no delay is 0.

use std::net::SocketAddr;

use plimsoll_core::endpoint_picking::client_side_weighted_round_robin::OrcaWeightSlot;
use plimsoll_core::model::client_side_weighted_round_robin::{
    ClientSideWeightedRoundRobin, OobReporting, OobReportingConfig,
};
use plimsoll_core::model::orca::OrcaLoadReport;
use plimsoll_core::rng::ScriptedRng;
use plimsoll_core::time::Instant;
use plimsoll_xds::orca::encode_message;
use plimsoll_xds::orca::oob::{
    ConnectionId, OobAction, OobEvent, OobHost, OobManager, ResponseHeaders,
};
use serde::Deserialize;

use super::inputs::not_negative_millis;
use crate::compare::table;
use crate::report::ReportInput;
use crate::{CaseError, CaseResult};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct OobInputs {
    events: Vec<Event>,
    oob_reporting_period_ms: Option<i64>,
    #[serde(default)]
    random: Vec<u64>,
}

/// Events of a case. Empty braces, because serde refuses unknown keys only in such variants.
#[derive(Debug, Deserialize)]
#[serde(tag = "op", rename_all = "snake_case", deny_unknown_fields)]
enum Event {
    /// A gRPC frame that is not a valid `OrcaLoadReport`.
    BadProto {},
    CompressedFrame {},
    Connect {
        #[serde(default)]
        fails: bool,
    },
    EndStreamData {},
    Goaway {
        code: String,
    },
    Headers {
        status: Option<u16>,
        content_type: Option<String>,
        grpc_status: Option<Status>,
        #[serde(default)]
        end_stream: bool,
    },
    HostAdded {},
    HostRemoved {},
    /// A gRPC frame whose first byte is neither 0 nor 1.
    MalformedFrame {},
    OversizedFrame {},
    #[serde(alias = "close")]
    RemoteClose {},
    Report {
        report: ReportInput,
        /// A load-balancing policy refuses the report.
        #[serde(default)]
        recipient_error: bool,
        /// There is no load-balancing policy that uses the report.
        #[serde(default)]
        no_recipient: bool,
    },
    Reset {},
    Trailers {
        status: Option<Status>,
    },
    /// Three reporting periods pass without a load report.
    Watchdog {},
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Status {
    Number(u32),
    Name(String),
}

pub(super) fn run(inputs: OobInputs) -> CaseResult {
    let mut draws = inputs.random;
    // One random number for the first connection attempt, at most two per event.
    draws.resize(draws.len().max(1 + 2 * inputs.events.len()), 1);
    let mut host = Host::new(inputs.oob_reporting_period_ms, draws)?;
    let first = host.manager.poll_timeout();
    for event in inputs.events {
        host.handle(event)?;
    }
    let state = host.slot.load();
    // In Envoy, a host that has never reported has weight 1.
    let weight = state.last_update.map_or(1, |_| state.weight);
    let stats = host.manager.stats();
    let retry = stats.stream_failures > 0 && host.connection.is_none();
    let mut outcome = table(stats.iter());
    outcome["weight"] = weight.into();
    outcome["initial_delay_ms"] = first.map(millis).into();
    outcome["retry_scheduled"] = (retry && host.manager.poll_timeout().is_some()).into();
    Ok(outcome.into())
}

/// One host with its ORCA stream, the stream's connection if there is one, and its weight.
struct Host {
    manager: OobManager<ScriptedRng>,
    connection: Option<ConnectionId>,
    now: Instant,
    slot: OrcaWeightSlot,
    settings: ClientSideWeightedRoundRobin,
    /// Whether the load-balancing policy refuses the next report.
    refuse: bool,
}

impl Host {
    fn new(period_ms: Option<i64>, draws: Vec<u64>) -> Result<Self, CaseError> {
        let period = period_ms.map(not_negative_millis);
        let reporting = OobReporting::try_new(period, OobReportingConfig::default())?;
        let mut host = Self {
            manager: OobManager::new(reporting, ScriptedRng::new(draws)),
            connection: None,
            now: Instant::ORIGIN,
            slot: OrcaWeightSlot::default(),
            settings: ClientSideWeightedRoundRobin::default(),
            refuse: false,
        };
        host.set_hosts(true);
        Ok(host)
    }

    fn handle(&mut self, event: Event) -> Result<(), CaseError> {
        match event {
            Event::BadProto {} => self.data(&[0, 0, 0, 0, 1, 0x80], false),
            Event::CompressedFrame {} => self.data(&[1, 0, 0, 0, 0], false),
            Event::Connect { fails } => self.connect(fails)?,
            Event::EndStreamData {} => self.data(&[], true),
            Event::Goaway { code } => self.send(OobEvent::GoAway {
                no_error: code == "NO_ERROR",
            }),
            Event::Headers {
                status,
                content_type,
                grpc_status,
                end_stream,
            } => {
                let headers = ResponseHeaders {
                    status: status.unwrap_or(200),
                    content_type: Some(content_type.as_deref().unwrap_or("application/grpc")),
                    grpc_status: grpc_status.as_ref().map(Status::number).transpose()?,
                    end_stream,
                };
                self.send(OobEvent::Headers(headers));
            }
            Event::HostAdded {} => self.set_hosts(true),
            Event::HostRemoved {} => self.set_hosts(false),
            Event::MalformedFrame {} => self.data(&[2, 0, 0, 0, 0], false),
            Event::OversizedFrame {} => self.data(&[0, 0, 1, 0, 1], false),
            Event::RemoteClose {} => self.send(OobEvent::Closed),
            Event::Report {
                report,
                recipient_error,
                no_recipient,
            } => {
                self.refuse = recipient_error || no_recipient;
                self.data(&frame(&report.0), false);
            }
            Event::Reset {} => self.send(OobEvent::Reset),
            Event::Trailers { status } => {
                let grpc_status = status.as_ref().map(Status::number).transpose()?;
                self.send(OobEvent::Trailers { grpc_status });
            }
            Event::Watchdog {} => self.wake(),
        }
        Ok(())
    }

    fn connect(&mut self, fails: bool) -> Result<(), CaseError> {
        self.wake();
        if self.connection.is_none() {
            return Err(CaseError::inputs("connect: no connection attempt is due"));
        }
        if fails {
            self.send(OobEvent::ConnectFailed);
        }
        Ok(())
    }

    fn wake(&mut self) {
        if let Some(deadline) = self.manager.poll_timeout() {
            self.now = self.now.max(deadline);
            self.manager.handle_timeout(self.now);
            self.drain();
        }
    }

    fn set_hosts(&mut self, present: bool) {
        let host = OobHost {
            address: SocketAddr::from(([10, 0, 0, 1], 80)),
            hostname: "".into(),
        };
        self.manager.handle_hosts(present.then_some(host), self.now);
        self.drain();
    }

    fn data(&mut self, bytes: &[u8], end_stream: bool) {
        self.send(OobEvent::Data { bytes, end_stream });
    }

    /// Delivers an event of the connection; does nothing if the connection is closed.
    fn send(&mut self, event: OobEvent<'_>) {
        if let Some(connection) = self.connection {
            self.manager.handle_event(connection, event, self.now);
            self.drain();
        }
    }

    fn drain(&mut self) {
        while let Some(action) = self.manager.poll_action() {
            self.connection = match action {
                OobAction::Open(stream) => Some(stream.connection),
                OobAction::Close { .. } => None,
            };
        }
        while let Some((_, report)) = self.manager.poll_report() {
            let refused = std::mem::take(&mut self.refuse);
            let observed = self.slot.observe(&report, &self.settings, self.now);
            if refused || observed.is_err() {
                self.manager.handle_undelivered();
            }
        }
    }
}

impl Status {
    const NAMES: [&str; 17] = [
        "OK",
        "CANCELLED",
        "UNKNOWN",
        "INVALID_ARGUMENT",
        "DEADLINE_EXCEEDED",
        "NOT_FOUND",
        "ALREADY_EXISTS",
        "PERMISSION_DENIED",
        "RESOURCE_EXHAUSTED",
        "FAILED_PRECONDITION",
        "ABORTED",
        "OUT_OF_RANGE",
        "UNIMPLEMENTED",
        "INTERNAL",
        "UNAVAILABLE",
        "DATA_LOSS",
        "UNAUTHENTICATED",
    ];

    fn number(&self) -> Result<u32, CaseError> {
        match self {
            Self::Number(number) => Ok(*number),
            Self::Name(name) => (0..)
                .zip(Self::NAMES)
                .find_map(|(number, known)| (known == name).then_some(number))
                .ok_or_else(|| CaseError::inputs(format!("unknown gRPC status {name:?}"))),
        }
    }
}

fn frame(report: &OrcaLoadReport) -> Vec<u8> {
    let message = encode_message(report);
    let length = u32::try_from(message.len()).unwrap_or(u32::MAX);
    [&[0][..], &length.to_be_bytes(), &message].concat()
}

fn millis(time: Instant) -> u64 {
    time.as_nanos() / 1_000_000
}
