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
    /// Fields of resources in force that are set and have no effect here, by type and name.
    pub ignored_fields: BTreeMap<(Arc<str>, Arc<str>), IgnoredFields>,
    /// Versions of resources so far that had such fields, as Envoy counts messages in
    /// `server.dynamic_unknown_fields`.
    pub dynamic_unknown_fields: u64,
    /// What became of the routes that are followed, by name.
    pub routes: BTreeMap<Arc<str>, RouteStatus>,
}

/// Fields of one resource that have no effect.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IgnoredFields {
    /// Version of the resource.
    pub version: Arc<str>,
    /// Paths, each at the first place where the field is set.
    pub paths: Vec<String>,
}

impl XdsStatus {
    /// A resource was accepted; `paths` of it have no effect. Returns whether that is news: each
    /// version is reported once.
    pub(crate) fn note_ignored(
        &mut self,
        key: (Arc<str>, Arc<str>),
        version: &Arc<str>,
        paths: Vec<String>,
    ) -> bool {
        if paths.is_empty() {
            self.ignored_fields.remove(&key);
            return false;
        }
        let known = self.ignored_fields.get(&key);
        if known.is_some_and(|known| known.version == *version) {
            return false;
        }
        let version = Arc::clone(version);
        self.dynamic_unknown_fields += 1;
        self.ignored_fields
            .insert(key, IgnoredFields { version, paths });
        true
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_version_is_reported_once() {
        let mut status = XdsStatus::default();
        let key = || (Arc::from("type"), Arc::from("orders"));
        let paths = || vec!["alt_stat_name".to_owned()];
        let (one, two) = (Arc::from("1"), Arc::from("2"));
        assert!(status.note_ignored(key(), &one, paths()));
        assert!(!status.note_ignored(key(), &one, paths()));
        assert!(status.note_ignored(key(), &two, paths()));
        assert_eq!(status.dynamic_unknown_fields, 2);
        assert!(!status.note_ignored(key(), &two, Vec::new()));
        assert!(status.ignored_fields.is_empty());
        assert_eq!(status.dynamic_unknown_fields, 2);
    }
}
