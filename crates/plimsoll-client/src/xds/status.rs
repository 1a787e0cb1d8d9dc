//! [`XdsStatus`]: how discovery is doing, for people and for whoever waits for a first answer.

use std::collections::BTreeMap;
use std::sync::Arc;

/// How discovery is doing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct XdsStatus {
    /// The stream.
    pub state: XdsState,
    /// Where it goes, or went last; empty before the first one.
    pub server: String,
    /// What is wrong with resources that were asked for, by type and name: refused, removed or
    /// never there. What was good before is still in use.
    pub problems: BTreeMap<(Arc<str>, Arc<str>), String>,
    /// Responses that were refused so far, and why the last one.
    pub rejected: u64,
    /// Reason of the last refusal, as the server was told it.
    pub last_rejection: Option<String>,
}

/// The stream to the server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum XdsState {
    /// No stream yet.
    #[default]
    Connecting,
    /// A stream is open.
    Connected,
    /// The last stream, or the last attempt, is over; another follows.
    Disconnected {
        /// Why.
        message: String,
    },
}
