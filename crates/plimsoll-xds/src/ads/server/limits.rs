//! Per-stream limits of a client, and the error that ends a stream.
//!
//! Exceeding a limit ends that stream only. Message sizes are limited by the transport.

use std::fmt;
use std::sync::Arc;

/// Limits of one ADS stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Maximum number of resource types; Envoy subscribes to about ten.
    pub types: usize,
    pub names_per_type: usize,
    /// Maximum length in bytes of a resource name, and of a type URL.
    pub name_length: usize,
    /// Keeps literals open for new fields: write `..Default::default()`.
    #[doc(hidden)]
    pub _non_exhaustive: (),
}

impl Default for Limits {
    /// Bounds the memory of one stream to about 30 MB per type; the largest known meshes subscribe
    /// to a third of `names_per_type`.
    fn default() -> Self {
        Self {
            types: 32,
            names_per_type: 32_768,
            name_length: 1024,
            _non_exhaustive: (),
        }
    }
}

impl Limits {
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

    pub(super) fn check_count(&self, type_url: &str, names: usize) -> Result<(), ProtocolError> {
        if names > self.names_per_type {
            let limit = self.names_per_type;
            let message = format!("{type_url}: more than {limit} names");
            return Err(ProtocolError::exhausted(message));
        }
        Ok(())
    }
}

/// gRPC status that ends a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StatusCode {
    /// 3: the client violated the protocol.
    InvalidArgument,
    /// 8: the client exceeded [`Limits`].
    ResourceExhausted,
}

impl StatusCode {
    /// Returns the gRPC status code as a number.
    pub fn number(self) -> i32 {
        match self {
            Self::InvalidArgument => 3,
            Self::ResourceExhausted => 8,
        }
    }
}

/// Violation by the client that ends the stream.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ProtocolError {
    pub code: StatusCode,
    /// Sent to the client as the status message.
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
