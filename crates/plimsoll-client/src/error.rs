//! [`Error`]: why a request has no response, or a client could not be made.

use std::fmt;

/// Anything that another crate may return.
pub(crate) type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// What went wrong.
#[derive(Debug)]
pub struct Error {
    kind: ErrorKind,
    message: String,
    source: Option<BoxError>,
}

/// Kinds of errors, for programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// A setting is wrong.
    Config,
    /// No such cluster.
    UnknownCluster,
    /// There is no host to send to, or panic forbids it.
    NoHost,
    /// No route of the target fits the request.
    NoRoute,
    /// The management server did not say what is needed.
    Discovery,
    /// The assignment orders that a share of requests is dropped.
    Dropped,
    /// A circuit breaker is open.
    Overflow,
    /// No connection to the host.
    Connect,
    /// The host said that it did not process the request.
    Refused,
    /// The time was up.
    Timeout,
    /// The connection failed while the request was on it.
    Transport,
    /// The client is shut down.
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

    pub(crate) fn because(mut self, source: impl Into<BoxError>) -> Self {
        self.source = Some(source.into());
        self
    }

    /// Which kind it is.
    pub const fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// Whether no host has seen anything of the request.
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
