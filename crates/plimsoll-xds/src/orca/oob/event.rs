//! Inputs and outputs of an [`OobManager`](super::OobManager): stream events, driver actions, and
//! reasons why streams end.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;

use super::ConnectionId;
use crate::content_type::is_grpc;

/// gRPC status of a method that the server does not implement.
pub(super) const UNIMPLEMENTED: u32 = 12;
/// gRPC status UNKNOWN, for a missing status.
const UNKNOWN: u32 = 2;

/// Event on a connection requested by [`OobAction::Open`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OobEvent<'a> {
    Closed,
    /// Connecting or sending the request failed.
    ConnectFailed,
    Data {
        bytes: &'a [u8],
        end_stream: bool,
    },
    GoAway {
        /// Whether the error code is NO_ERROR: a graceful shutdown.
        no_error: bool,
    },
    /// Final response headers, not informational ones.
    Headers(ResponseHeaders<'a>),
    Reset,
    Trailers {
        /// `grpc-status`, if present and a number.
        grpc_status: Option<u32>,
    },
}

/// Response headers, as far as they matter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResponseHeaders<'a> {
    pub status: u16,
    pub content_type: Option<&'a str>,
    /// `grpc-status`, if present and a number.
    pub grpc_status: Option<u32>,
    pub end_stream: bool,
}

impl ResponseHeaders<'_> {
    /// Returns why the stream ends, if it does. A response that ends with its headers is gRPC if it
    /// has a `grpc-status`; one that continues, if it is a 200 with a gRPC content type. Others are
    /// judged by HTTP status, of which only 404 means that the method does not exist.
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

/// Network action for the driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OobAction {
    /// Drop a connection; close it if it is still open.
    Close {
        connection: ConnectionId,
        host: SocketAddr,
        reason: CloseReason,
    },
    Open(OobStream),
}

/// Stream to open: on a new HTTP/2 connection (ALPN `h2`), one POST to [`PATH`](super::PATH) with
/// gRPC headers, the body, and END_STREAM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OobStream {
    pub connection: ConnectionId,
    pub host: SocketAddr,
    pub dial: SocketAddr,
    pub authority: Arc<str>,
    /// Body: one gRPC frame with an `OrcaLoadReportRequest`.
    pub request: Bytes,
}

/// Reason why a stream ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CloseReason {
    /// A frame has flags: it is compressed, or the peer does not speak gRPC.
    BadFrame {
        flags: u8,
    },
    ConnectFailed,
    ConnectionClosed,
    /// GOAWAY: with an error the stream ends at once, with NO_ERROR when the next data arrives.
    GoAway,
    HostRemoved,
    InvalidReport,
    /// No report arrived within three periods.
    NoReport,
    NotGrpc {
        http_status: u16,
    },
    NoTrailers,
    /// Period, port or authority changed.
    SettingsChanged,
    /// The call ended, possibly with OK, although a report stream should never end.
    Status {
        grpc_status: u32,
    },
    StreamReset,
    /// A frame exceeds 64 KiB.
    TooLarge {
        length: u32,
    },
    /// The host does not implement the service; no stream to it is opened again.
    Unimplemented,
}

impl CloseReason {
    /// Returns the reason for the end of a call; a missing status is UNKNOWN.
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
            Self::InvalidReport => f.write_str("frame contains no valid load report"),
            Self::NoReport => f.write_str("no report for three periods"),
            Self::NotGrpc { http_status } => {
                write!(f, "response is not gRPC, HTTP status {http_status}")
            }
            Self::NoTrailers => f.write_str("stream ended without trailers"),
            Self::SettingsChanged => f.write_str("settings changed"),
            Self::Status { grpc_status } => write!(f, "call ended, gRPC status {grpc_status}"),
            Self::StreamReset => f.write_str("stream reset"),
            Self::TooLarge { length } => write!(f, "frame of {length} bytes exceeds 64 KiB"),
            Self::Unimplemented => f.write_str("host does not implement out-of-band reports"),
        }
    }
}
