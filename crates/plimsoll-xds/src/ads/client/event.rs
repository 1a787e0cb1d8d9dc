//! What a [`Client`](super::Client) tells its driver, beside requests.

use std::sync::Arc;

use crate::ads::view::Resource;

/// What became of a watched resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClientEvent {
    /// It arrived. The same content arrives too: its epoch grows with every arrival.
    Updated {
        /// Its type.
        type_url: Arc<str>,
        /// The resource.
        resource: Resource,
    },
    /// It was there and the server took it away.
    Removed {
        /// Its type.
        type_url: Arc<str>,
        /// Its name.
        name: Arc<str>,
    },
    /// The server does not have it, or did not answer in time.
    DoesNotExist {
        /// Its type.
        type_url: Arc<str>,
        /// Its name.
        name: Arc<str>,
    },
    /// Everything of a type was asked for and has been listed, on this stream for the first time.
    Complete {
        /// The type.
        type_url: Arc<str>,
    },
    /// A response was refused, wholly or in part.
    Rejected {
        /// The type.
        type_url: Arc<str>,
        /// Its version.
        version: String,
        /// What was wrong with which resource; sent to the server.
        reason: String,
    },
}
