//! What a [`ServerStream`](super::ServerStream) tells its driver, beside responses.

use std::collections::VecDeque;
use std::sync::Arc;

use plimsoll_core::time::Instant;

use crate::ads::message::ErrorDetail;

/// Something the control plane may want to know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StreamEvent {
    /// The client wants more of a type. `*` stands for all.
    Subscribed {
        /// The type.
        type_url: Arc<str>,
        /// What it wants in addition.
        names: Vec<Arc<str>>,
    },
    /// The client wants less of a type. `*` stands for all.
    Unsubscribed {
        /// The type.
        type_url: Arc<str>,
        /// What it does not want any more.
        names: Vec<Arc<str>>,
    },
    /// The client uses this version.
    Acked {
        /// The type.
        type_url: Arc<str>,
        /// Version of all it has of the type.
        version: Arc<str>,
    },
    /// The client refused this version and keeps what it had.
    Nacked {
        /// The type.
        type_url: Arc<str>,
        /// What was refused, and why.
        refusal: Refusal,
    },
}

/// A refused response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Version of all that the client would have had.
    pub version: Arc<str>,
    /// The resources that were in the response.
    pub names: Vec<Arc<str>>,
    /// The client's words.
    pub detail: ErrorDetail,
}

/// How far a client is with one type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TypeStatus {
    /// The type.
    pub type_url: Arc<str>,
    /// Whether it wants all.
    pub wildcard: bool,
    /// How many names it asked for.
    pub names: usize,
    /// Version sent last on this stream.
    pub sent: Option<Arc<str>>,
    /// Version accepted last, on this stream or, as it says, on an earlier one.
    pub acked: Option<Arc<str>>,
    /// The last refusal, until all that was refused has been replaced or accepted.
    pub nacked: Option<Refusal>,
    /// Whether an answer is due from the client.
    pub in_flight: bool,
    /// When it answered last.
    pub answered_at: Option<Instant>,
    /// Responses sent.
    pub responses: u64,
    /// Responses accepted.
    pub acks: u64,
    /// Responses refused.
    pub nacks: u64,
    /// Requests that answered an older response and were ignored.
    pub stale: u64,
}

impl StreamEvent {
    /// Events for a changed subscription, if it changed.
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
