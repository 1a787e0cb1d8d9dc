//! [`Error`]: failure of a request, or of the configuration of a client.

use std::fmt;

pub(crate) type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Failure of a request or of a client's configuration. Match on [`Error::kind`]; the text is for
/// people and may change.
#[derive(Debug)]
pub struct Error {
    kind: ErrorKind,
    message: String,
    source: Option<BoxError>,
}

/// Cause of an [`Error`], for programs to act on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    Config,
    UnknownCluster,
    /// No host or subset is available, or `fail_traffic_on_panic` fails requests in panic mode.
    NoHost,
    NoRoute,
    /// The management server does not have a required resource, or did not send it in time.
    Discovery,
    /// The request was dropped by `drop_overloads` of the assignment.
    Dropped,
    /// A circuit breaker of the cluster is open.
    Overflow,
    Connect,
    /// The host did not process the request: it sent REFUSED_STREAM or GOAWAY(NO_ERROR).
    Refused,
    Timeout,
    /// The connection failed while the request was in flight.
    Transport,
    Closed,
}

impl Error {
    pub(crate) fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self {
            kind,
            message: message.into(),
            source: None,
        }
    }

    pub(crate) fn closed() -> Self {
        Self::new(ErrorKind::Closed, "the client is shut down")
    }

    pub(crate) fn with_source(mut self, source: impl Into<BoxError>) -> Self {
        self.source = Some(source.into());
        self
    }

    /// Returns the cause of the error.
    pub const fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// Whether no host has processed any part of the request, so that it is safe to send it again.
    pub const fn is_unsent(&self) -> bool {
        matches!(
            self.kind,
            ErrorKind::NoHost
                | ErrorKind::NoRoute
                | ErrorKind::Discovery
                | ErrorKind::Dropped
                | ErrorKind::Overflow
                | ErrorKind::Connect
                | ErrorKind::Refused
        )
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        match &self.source {
            Some(source) => write!(f, ": {source}"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.source.as_deref().map(|source| source as _)
    }
}
