//! What a client may ask of one stream, and the error that ends a stream.
//!
//! A stream that breaks a limit ends; others do not notice. Sizes of messages are limited by the
//! transport.

use std::fmt;
use std::sync::Arc;

/// Bounds of one stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Resource types. Envoy knows about ten.
    pub types: usize,
    /// Names subscribed to, per type.
    pub names_per_type: usize,
    /// Bytes of a name, and of a type URL.
    pub name_length: usize,
}

impl Default for Limits {
    /// Together they bound what one stream can make the server remember to some 30 MB per type;
    /// the largest meshes known ask for a third of these names.
    fn default() -> Self {
        Self {
            types: 32,
            names_per_type: 32_768,
            name_length: 1024,
        }
    }
}

impl Limits {
    /// Whether a request may list these names.
    pub(super) fn check_names(
        &self,
        type_url: &str,
        names: &[Arc<str>],
    ) -> Result<(), ProtocolError> {
        self.check_count(type_url, names.len())?;
        if names.iter().any(|name| name.len() > self.name_length) {
            let limit = self.name_length;
            let message = format!("{type_url}: a name has more than {limit} bytes");
            return Err(ProtocolError::exhausted(message));
        }
        Ok(())
    }

    /// Whether this many names may be subscribed to.
    pub(super) fn check_count(&self, type_url: &str, names: usize) -> Result<(), ProtocolError> {
        if names > self.names_per_type {
            let limit = self.names_per_type;
            let message = format!("{type_url}: more than {limit} names");
            return Err(ProtocolError::exhausted(message));
        }
        Ok(())
    }
}

/// Why a stream ends, as gRPC status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StatusCode {
    /// 3: the client broke the protocol.
    InvalidArgument,
    /// 8: the client asked for more than [`Limits`].
    ResourceExhausted,
}

impl StatusCode {
    /// The number on the wire.
    pub fn number(self) -> i32 {
        match self {
            Self::InvalidArgument => 3,
            Self::ResourceExhausted => 8,
        }
    }
}

/// A fault of the peer after which the stream cannot go on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProtocolError {
    /// Status to end the stream with.
    pub code: StatusCode,
    /// What was wrong, for the peer's log.
    pub message: String,
}

impl ProtocolError {
    pub(super) fn invalid(message: impl Into<String>) -> Self {
        Self {
            code: StatusCode::InvalidArgument,
            message: message.into(),
        }
    }

    pub(super) fn exhausted(message: impl Into<String>) -> Self {
        Self {
            code: StatusCode::ResourceExhausted,
            message: message.into(),
        }
    }
}

impl fmt::Display for ProtocolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for ProtocolError {}
