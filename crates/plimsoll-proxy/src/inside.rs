//! [`Inside`]: what further admin pages may look at.
//!
//! The dashboard is one such page; it lives elsewhere and knows nobody. Whoever starts the proxy
//! brings the two together, see [`run_with`](crate::run_with).

use std::sync::Arc;

use axum::Router;
use plimsoll_client::Client;
use tokio::sync::watch;

use crate::config::NodeConfig;
use crate::state::{Phase, State};

/// Makes further admin pages, `/` among them.
pub type Pages = Box<dyn FnOnce(Inside) -> Router + Send>;

/// What whoever starts a proxy says of its admin address.
#[derive(Default)]
pub struct AdminOptions {
    /// Further pages.
    pub pages: Option<Pages>,
    /// Further names of the address: requests to other names are refused.
    pub hosts: Vec<String>,
}

impl std::fmt::Debug for AdminOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AdminOptions")
            .field("hosts", &self.hosts)
            .finish_non_exhaustive()
    }
}

/// A running proxy, for looking at.
#[derive(Clone, Debug)]
pub struct Inside {
    pub(crate) state: Arc<State>,
    /// Its sender is dropped when the proxy begins to drain.
    pub(crate) stopping: watch::Receiver<()>,
}

impl Inside {
    /// What chooses hosts, and says why.
    pub fn client(&self) -> &Client {
        &self.state.client
    }

    /// Who and where it is.
    pub fn node(&self) -> NodeConfig {
        self.state.loaded().config.node.clone()
    }

    /// The cluster whose hosts are proxies like this one.
    pub fn local_cluster_name(&self) -> Option<String> {
        self.state.loaded().config.local_cluster_name.clone()
    }

    /// The cluster that says where the management server is.
    pub fn management_cluster(&self) -> Option<String> {
        let loaded = self.state.loaded();
        loaded.config.xds.as_ref().map(|xds| xds.server.clone())
    }

    /// Where in its life it is, in Envoy's words.
    pub fn phase(&self) -> &'static str {
        self.state.phase().word()
    }

    /// Whether requests are served.
    pub fn is_live(&self) -> bool {
        self.state.phase() == Phase::Live
    }

    /// Why the newest edit of the file is refused, if it is.
    pub fn refused_edit(&self) -> Option<String> {
        self.state.reloads.counts().2
    }

    /// Whether it has begun to drain.
    pub fn is_stopping(&self) -> bool {
        self.stopping.has_changed().is_err()
    }

    /// Done when it begins to drain.
    pub async fn stopped(&self) {
        let mut stopping = self.stopping.clone();
        // The sender never sends: it is dropped.
        while stopping.changed().await.is_ok() {}
    }
}
