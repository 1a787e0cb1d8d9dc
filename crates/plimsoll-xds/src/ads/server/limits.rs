//! Per-stream limits of a client, and the error that ends a stream.
//!
//! Exceeding a limit ends that stream only. Message sizes are limited by the transport.

use std::fmt;
use std::sync::Arc;

/// Memory of a name beside its bytes: its allocation, and its entries in the sets of a stream.
pub(super) const NAME_OVERHEAD: usize = 96;

/// Limits of one ADS stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Maximum number of resource types; Envoy subscribes to about ten.
    pub types: usize,
    pub names_per_type: usize,
    /// Maximum length in bytes of a resource name, and of a type URL.
    pub name_length: usize,
    /// Maximum memory in bytes of names that are in no view of the stream, over all types. Names of
    /// resources are shared by all streams and do not count.
    pub subscription_bytes: usize,
    /// Keeps literals open for new fields: write `..Default::default()`.
    #[doc(hidden)]
    pub _non_exhaustive: (),
}

impl Default for Limits {
    /// The largest known meshes subscribe to a third of `names_per_type`. Even if none of these
    /// exists, their names take a quarter of `subscription_bytes`.
    fn default() -> Self {
        Self {
            types: 32,
            names_per_type: 32_768,
            name_length: 1024,
            subscription_bytes: 16 << 20,
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
            return Err(ProtocolError::exceeded(StreamLimit::NameLength, message));
        }
        Ok(())
    }

    pub(super) fn check_count(&self, type_url: &str, names: usize) -> Result<(), ProtocolError> {
        if names > self.names_per_type {
            let limit = self.names_per_type;
            let message = format!("{type_url}: more than {limit} names");
            return Err(ProtocolError::exceeded(StreamLimit::NamesPerType, message));
        }
        Ok(())
    }

    pub(super) fn check_bytes(&self, bytes: usize) -> Result<(), ProtocolError> {
        if bytes > self.subscription_bytes {
            let limit = self.subscription_bytes;
            let message = format!("subscribed names without resources: more than {limit} bytes");
            let limit = StreamLimit::SubscriptionBytes;
            return Err(ProtocolError::exceeded(limit, message));
        }
        Ok(())
    }
}

/// Which of the [`Limits`] a client exceeds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StreamLimit {
    Types,
    NamesPerType,
    NameLength,
    SubscriptionBytes,
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
    /// Set if the code is [`StatusCode::ResourceExhausted`].
    pub limit: Option<StreamLimit>,
}

impl ProtocolError {
    pub(super) fn invalid(message: impl Into<String>) -> Self {
        Self {
            code: StatusCode::InvalidArgument,
            message: message.into(),
            limit: None,
        }
    }

    pub(super) fn exceeded(limit: StreamLimit, message: impl Into<String>) -> Self {
        Self {
            code: StatusCode::ResourceExhausted,
            message: message.into(),
            limit: Some(limit),
        }
    }
}

impl fmt::Display for ProtocolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for ProtocolError {}
