//! Events that an ADS [`Client`](super::Client) emits to its driver.

use std::sync::Arc;

use bytes::Bytes;

use crate::ads::view::Resource;

/// Change of a subscribed resource, or a rejected response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClientEvent<T = Bytes> {
    /// A resource arrived, possibly unchanged; its `epoch` grows with every arrival.
    Updated {
        type_url: Arc<str>,
        resource: Resource<T>,
    },
    /// The server deleted a resource that the client had.
    Removed { type_url: Arc<str>, name: Arc<str> },
    /// The server does not have the resource, or did not answer in time.
    DoesNotExist {
        type_url: Arc<str>,
        name: Arc<str>,
        /// The server did not answer in time, rather than say so.
        timed_out: bool,
    },
    /// A wildcard subscription received its first full response on this stream.
    Complete { type_url: Arc<str> },
    /// The response was NACKed; its valid resources are in use.
    Rejected {
        type_url: Arc<str>,
        version: String,
        /// Invalid resources and their errors, as sent in the NACK.
        reason: String,
    },
}
