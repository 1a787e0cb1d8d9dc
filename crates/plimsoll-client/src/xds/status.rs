//! [`XdsStatus`]: how discovery is doing, for people and for whoever waits for a first answer.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::SystemTime;

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
    /// What became of the routes that are followed, by name.
    pub routes: BTreeMap<Arc<str>, RouteStatus>,
}

/// What became of one route configuration, counted as Envoy does.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RouteStatus {
    /// How often the server sent it and it was good, the same again included.
    pub update_success: u64,
    /// How often a response with routes was refused, whichever of them were bad.
    pub update_rejected: u64,
    /// How often another one was put in force.
    pub config_reload: u64,
    /// Version of what was good last. Where the server has no versions for single resources, it is
    /// a hash of the content.
    pub version: Arc<str>,
    /// Version of what is in force, and since when.
    pub in_force: Option<(Arc<str>, SystemTime)>,
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
