//! Startup order, as in Envoy: no connection is accepted before the resources that requests need
//! are known, or known not to exist, or [`INITIAL_FETCH_TIMEOUT`] has passed.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use plimsoll_client::Client;
use plimsoll_xds::ads::{CLUSTER, CLUSTER_LOAD_ASSIGNMENT, LISTENER, ROUTE_CONFIGURATION};

/// Envoy's default of `initial_fetch_timeout`: without a management server the proxy starts after
/// this time, with what the file has.
pub(crate) const INITIAL_FETCH_TIMEOUT: Duration = Duration::from_secs(15);

/// How often startup checks whether the resources have arrived.
pub(crate) const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// A resource that startup waits for; `*` stands for all resources of the type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Awaited {
    type_url: Arc<str>,
    name: Arc<str>,
}

impl Awaited {
    /// Whether this is a cluster or an assignment.
    pub(crate) fn is_upstream(&self) -> bool {
        matches!(&*self.type_url, CLUSTER | CLUSTER_LOAD_ASSIGNMENT)
    }
}

impl fmt::Display for Awaited {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match &*self.type_url {
            LISTENER => "listener",
            ROUTE_CONFIGURATION => "route configuration",
            CLUSTER => "cluster",
            CLUSTER_LOAD_ASSIGNMENT => "endpoints of",
            other => other,
        };
        write!(f, "{kind} {}", self.name)
    }
}

#[cfg(test)]
impl Awaited {
    pub(crate) fn new(type_url: &str, name: &str) -> Self {
        Self {
            type_url: type_url.into(),
            name: name.into(),
        }
    }
}

/// Returns the subscribed resources that have not arrived and are not known to be missing.
pub(crate) async fn awaited(client: &Client) -> Vec<Awaited> {
    let pending = client.pending_resources().await.unwrap_or_default();
    pending
        .into_iter()
        .map(|(type_url, name)| Awaited { type_url, name })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn awaited_resources_are_named_by_kind() {
        let cases = [
            (LISTENER, "listener x", false),
            (ROUTE_CONFIGURATION, "route configuration x", false),
            (CLUSTER, "cluster x", true),
            (CLUSTER_LOAD_ASSIGNMENT, "endpoints of x", true),
            ("other", "other x", false),
        ];
        for (type_url, text, upstream) in cases {
            let awaited = Awaited::new(type_url, "x");
            assert_eq!(awaited.to_string(), text);
            assert_eq!(awaited.is_upstream(), upstream, "{text}");
        }
    }
}
