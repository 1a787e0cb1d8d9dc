//! What goes in and out of an [`OobManager`](super::OobManager): events of a stream, actions for a
//! driver, and the reasons why streams end.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use super::ConnectionId;
use crate::content_type::is_grpc;

/// gRPC's status for a method that a server does not have.
pub(super) const UNIMPLEMENTED: u32 = 12;
/// gRPC's status for "no idea".
const UNKNOWN: u32 = 2;

/// What happened on a connection that an [`OobAction::Open`] asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OobEvent<'a> {
    /// The connection is gone.
    Closed,
    /// There is no connection, or the request could not be sent.
    ConnectFailed,
    /// Bytes of the body.
    Data {
        /// As they came, cut anywhere.
        bytes: &'a [u8],
        /// Nothing follows, not even trailers.
        end_stream: bool,
    },
    /// HTTP/2 GOAWAY.
    GoAway {
        /// Its code is NO_ERROR: the server shuts down in peace.
        no_error: bool,
    },
    /// The head of the answer (not an informational one).
    Headers(ResponseHeaders<'a>),
    /// The stream was reset.
    Reset,
    /// The end of the answer.
    Trailers {
        /// `grpc-status`, if it is there and a number.
        grpc_status: Option<u32>,
    },
}

/// The head of an answer, as far as it matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResponseHeaders<'a> {
    /// `:status`.
    pub status: u16,
    /// `content-type`.
    pub content_type: Option<&'a str>,
    /// `grpc-status`, if it is there and a number.
    pub grpc_status: Option<u32>,
    /// Nothing follows.
    pub end_stream: bool,
}

impl ResponseHeaders<'_> {
    /// Why the stream is over already; `None` while reports may follow.
    ///
    /// An answer that ends here is gRPC if it has a `grpc-status`; one that goes on is gRPC if it
    /// is a 200 of that content type. What is not gRPC is judged by its HTTP status, of which only
    /// 404 means that the method does not exist.
    pub(super) fn end(&self) -> Option<CloseReason> {
        match self.grpc_status {
            Some(status) if self.end_stream => Some(CloseReason::of_status(Some(status))),
            _ if !self.end_stream && self.status == 200 && self.is_grpc() => None,
            _ if self.status == 404 => Some(CloseReason::Unimplemented),
            _ => Some(CloseReason::NotGrpc {
                http_status: self.status,
            }),
        }
    }

    fn is_grpc(&self) -> bool {
        let content_type = self.content_type.map(str::as_bytes);
        content_type.is_some_and(is_grpc)
    }
}

/// What a driver is to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OobAction {
    /// Forget a connection; close it if it is still there.
    Close {
        /// Which one.
        connection: ConnectionId,
        /// The host it was for.
        host: SocketAddr,
        /// Why, for the log.
        reason: CloseReason,
    },
    /// Dial and ask for reports.
    Open(OobStream),
}

/// A stream to open: a connection of its own over HTTP/2 (ALPN `h2`), on it one POST to
/// [`PATH`](super::PATH) with gRPC's headers, the body, and the end of the stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OobStream {
    /// Names the connection in events.
    pub connection: ConnectionId,
    /// The host that is asked.
    pub host: SocketAddr,
    /// Where to dial.
    pub dial: SocketAddr,
    /// `:authority`.
    pub authority: Arc<str>,
    /// The body: one gRPC frame with an `OrcaLoadReportRequest`.
    pub request: Arc<[u8]>,
}

/// Why a stream ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CloseReason {
    /// A frame with flags: compressed, or no gRPC at all.
    BadFrame {
        /// Its first byte.
        flags: u8,
    },
    /// No connection, or the request could not be sent.
    ConnectFailed,
    /// The other side closed the connection.
    ConnectionClosed,
    /// The server shuts down: an error at once, NO_ERROR with the next data.
    GoAway,
    /// The host left the cluster.
    HostRemoved,
    /// A frame that holds no report.
    InvalidReport,
    /// Three periods without a report.
    NoReport,
    /// An answer that is not gRPC.
    NotGrpc {
        /// What it is instead.
        http_status: u16,
    },
    /// The answer ended without trailers.
    NoTrailers,
    /// Period, port or authority are others now.
    SettingsChanged,
    /// The call ended, even if with OK: reports should go on for ever.
    Status {
        /// gRPC's status.
        grpc_status: u32,
    },
    /// The stream was reset.
    StreamReset,
    /// A frame above 64 KiB.
    TooLarge {
        /// What it said its length is.
        length: u32,
    },
    /// The host does not implement the service. It is not asked again.
    Unimplemented,
}

impl CloseReason {
    /// The end of a call; a status that is missing is unknown.
    pub(super) fn of_status(grpc_status: Option<u32>) -> Self {
        match grpc_status.unwrap_or(UNKNOWN) {
            UNIMPLEMENTED => Self::Unimplemented,
            grpc_status => Self::Status { grpc_status },
        }
    }
}

impl fmt::Display for CloseReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BadFrame { flags } => write!(f, "frame with flags {flags:#04x}"),
            Self::ConnectFailed => f.write_str("cannot connect"),
            Self::ConnectionClosed => f.write_str("connection closed"),
            Self::GoAway => f.write_str("server is going away"),
            Self::HostRemoved => f.write_str("host removed"),
            Self::InvalidReport => f.write_str("frame holds no load report"),
            Self::NoReport => f.write_str("no report for three periods"),
            Self::NotGrpc { http_status } => {
                write!(f, "answer is not gRPC, HTTP status {http_status}")
            }
            Self::NoTrailers => f.write_str("stream ended without trailers"),
            Self::SettingsChanged => f.write_str("settings changed"),
            Self::Status { grpc_status } => write!(f, "call ended, gRPC status {grpc_status}"),
            Self::StreamReset => f.write_str("stream reset"),
            Self::TooLarge { length } => write!(f, "frame of {length} bytes is above 64 KiB"),
            Self::Unimplemented => f.write_str("host does not implement out-of-band reports"),
        }
    }
}
