//! Events and status of a [`ServerStream`](super::ServerStream).

use std::collections::VecDeque;
use std::sync::Arc;

use plimsoll_core::time::Instant;

use crate::ads::message::ErrorDetail;

/// Subscription change, ACK or NACK on a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StreamEvent {
    /// Names were added to the subscription; `*` is the wildcard.
    Subscribed {
        type_url: Arc<str>,
        names: Vec<Arc<str>>,
    },
    /// Names were removed from the subscription; `*` is the wildcard.
    Unsubscribed {
        type_url: Arc<str>,
        names: Vec<Arc<str>>,
    },
    Acked {
        type_url: Arc<str>,
        /// Version (hash) of all resources of this type that the client has.
        version: Arc<str>,
    },
    /// The client rejected a response and keeps the resources that it had.
    Nacked { type_url: Arc<str>, nack: Nack },
}

/// Response that the client rejected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Nack {
    /// Version that the client's resources would have if it had accepted the response.
    pub version: Arc<str>,
    pub names: Vec<Arc<str>>,
    pub detail: ErrorDetail,
}

/// Synchronization status of one resource type on a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TypeStatus {
    pub type_url: Arc<str>,
    pub wildcard: bool,
    /// Number of subscribed names, wildcard not counted.
    pub names: usize,
    pub sent: Option<Arc<str>>,
    /// Last accepted version, on this stream or claimed by the client from an earlier one.
    pub acked: Option<Arc<str>>,
    /// The last NACK, until every rejected resource has been replaced or accepted.
    pub nacked: Option<Nack>,
    pub in_flight: bool,
    pub answered_at: Option<Instant>,
    pub responses: u64,
    pub acks: u64,
    pub nacks: u64,
    /// Number of ignored requests that answered an older response.
    pub stale: u64,
}

impl StreamEvent {
    /// Pushes events for a changed subscription; none if nothing changed.
    pub(super) fn push_change(
        events: &mut VecDeque<Self>,
        type_url: &Arc<str>,
        added: Vec<Arc<str>>,
        removed: Vec<Arc<str>>,
    ) {
        if !added.is_empty() {
            events.push_back(Self::Subscribed {
                type_url: Arc::clone(type_url),
                names: added,
            });
        }
        if !removed.is_empty() {
            events.push_back(Self::Unsubscribed {
                type_url: Arc::clone(type_url),
                names: removed,
            });
        }
    }
}
