//! [`XdsStatus`]: state of the discovery stream and of its resources.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::SystemTime;

/// State of the discovery stream and of its resources; from
/// [`Client::xds_status`](crate::Client::xds_status).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct XdsStatus {
    pub state: XdsState,
    /// URI of the server in use, or being dialed.
    pub server: String,
    /// Subscribed resources that were removed or do not exist; an earlier version stays in use.
    pub problems: BTreeMap<(Arc<str>, Arc<str>), String>,
    /// Number of rejected responses (NACKs).
    pub rejected: u64,
    pub last_rejection: Option<String>,
    /// Fields of current resources that are set but have no effect, by type and name.
    pub ignored_fields: BTreeMap<(Arc<str>, Arc<str>), IgnoredFields>,
    /// Resource versions with ignored fields, counted like Envoy's `server.dynamic_unknown_fields`.
    pub dynamic_unknown_fields: u64,
    pub routes: BTreeMap<Arc<str>, RouteStatus>,
    /// Whether a wildcard subscription has received all clusters of the server.
    pub clusters_complete: bool,
}

/// Fields of one resource that are set but have no effect.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct IgnoredFields {
    pub version: Arc<str>,
    /// Paths of the fields, each where it is first set.
    pub paths: Vec<String>,
}

impl XdsStatus {
    /// Records ignored fields; returns whether to log them: once per version of the resource.
    pub(crate) fn record_ignored(
        &mut self,
        key: (Arc<str>, Arc<str>),
        version: &Arc<str>,
        paths: &[String],
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
        let paths = paths.to_vec();
        self.ignored_fields
            .insert(key, IgnoredFields { version, paths });
        true
    }
}

/// Update counters of one route configuration, as in Envoy.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RouteStatus {
    /// Accepted updates, including unchanged ones.
    pub update_success: u64,
    /// Rejected responses with route configurations, whichever of them was invalid.
    pub update_rejected: u64,
    pub config_reload: u64,
    /// Last accepted resource version; a hash of the content if the server sends none for each.
    pub version: Arc<str>,
    /// Resource version in effect, and since when.
    pub in_force: Option<(Arc<str>, SystemTime)>,
    /// Keeps literals open for new fields: write `..Default::default()`.
    #[doc(hidden)]
    pub _non_exhaustive: (),
}

/// State of the stream to the management server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum XdsState {
    #[default]
    Connecting,
    Connected,
    /// The last stream or connection attempt failed; the client reconnects.
    Disconnected {
        message: String,
    },
}

impl XdsState {
    /// Name of the state, as gRPC spells those of a channel.
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Connecting => "CONNECTING",
            Self::Connected => "CONNECTED",
            Self::Disconnected { .. } => "DISCONNECTED",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ignored_fields_are_logged_once_per_version() {
        let mut status = XdsStatus::default();
        let key = || (Arc::from("type"), Arc::from("orders"));
        let paths = ["alt_stat_name".to_owned()];
        let (one, two) = (Arc::from("1"), Arc::from("2"));
        assert!(status.record_ignored(key(), &one, &paths));
        assert!(!status.record_ignored(key(), &one, &paths));
        assert!(status.record_ignored(key(), &two, &paths));
        assert_eq!(status.dynamic_unknown_fields, 2);
        assert!(!status.record_ignored(key(), &two, &[]));
        assert!(status.ignored_fields.is_empty());
        assert_eq!(status.dynamic_unknown_fields, 2);
    }
}
