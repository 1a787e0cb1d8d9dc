//! Parts of a [`Client`] for programs with their own listeners, such as `plimsoll proxy`, behind
//! the feature `unstable-proxy`: they may change in any release.

#[cfg(feature = "xds")]
use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use plimsoll_core::stats::Families;
#[cfg(feature = "xds")]
use plimsoll_xds::route::RouteConfiguration;
#[cfg(feature = "xds")]
use tokio::sync::{oneshot, watch};

use super::Client;
use crate::cluster::manager::Update;
use crate::error::Error;
use crate::metrics;
#[cfg(feature = "xds")]
use crate::xds::Subscriptions;
#[cfg(feature = "xds")]
use crate::xds::subscriber::SubscribeCommand;

impl Client {
    /// Counter that is incremented when a cluster is added or removed, and only then. A service
    /// from an earlier epoch may belong to a removed cluster.
    pub fn cluster_epoch(&self) -> u64 {
        self.0.cluster_epoch.load(Ordering::Acquire)
    }

    /// Uses the endpoints of one of the program's own clusters as the fleet (the processes like
    /// this one), from the cluster's next update on; call this before [`Self::set_cluster`]. Do
    /// not also subscribe to the fleet: see [`Subscriptions::local_cluster_name`].
    pub async fn set_local_cluster(&self, cluster: Option<&str>) -> Result<(), Error> {
        let cluster = cluster.map(Arc::from);
        self.update(Update::LocalCluster(cluster)).await?;
        self.flush().await
    }

    /// Returns all metrics with their values, for a custom metrics page.
    pub fn metric_families(&self) -> Families {
        metrics::families(&self.0.clusters.load())
    }
}

#[cfg(feature = "xds")]
impl Client {
    /// Replaces the subscriptions to route configurations by name and to endpoints of the program's
    /// own clusters. For programs with their own listeners, such as a proxy. Add the clusters first
    /// ([`Self::set_cluster`]).
    pub async fn subscribe(&self, subscriptions: Subscriptions) -> Result<(), Error> {
        let command = SubscribeCommand::Replace(subscriptions);
        let sent = self.xds()?.commands.send(command).await;
        sent.map_err(|_| self.ended())
    }

    /// Newest accepted version of a subscribed route configuration, once its clusters are known.
    pub fn route_configuration(&self, name: &str) -> Option<Arc<RouteConfiguration>> {
        let xds = self.0.xds.as_ref()?;
        let routes = xds.routes.load();
        Some(Arc::clone(&routes.subscribed.get(name)?.configuration))
    }

    /// Result of [`XdsOptions::compile_routes`] for a subscribed route configuration, if it is a
    /// `T`.
    ///
    /// [`XdsOptions::compile_routes`]: crate::XdsOptions::compile_routes
    pub fn compiled_routes<T: Any + Send + Sync>(&self, name: &str) -> Option<Arc<T>> {
        let xds = self.0.xds.as_ref()?;
        let routes = xds.routes.load();
        let compiled = routes.subscribed.get(name)?.compiled.clone()?;
        compiled.downcast().ok()
    }

    /// Listeners of the management server (LDS), by name, each with its resource version and the
    /// result of [`XdsOptions::compile_listeners`] if that is a `T`.
    ///
    /// [`XdsOptions::compile_listeners`]: crate::XdsOptions::compile_listeners
    pub fn compiled_listeners<T: Any + Send + Sync>(&self) -> Vec<(Arc<str>, Arc<str>, Arc<T>)> {
        let Some(xds) = &self.0.xds else {
            return Vec::new();
        };
        let routes = xds.routes.load();
        let listeners = routes.listeners.iter();
        listeners
            .filter_map(|(name, listener)| {
                let compiled = Arc::clone(&listener.compiled).downcast().ok()?;
                Some((Arc::clone(name), Arc::clone(&listener.version), compiled))
            })
            .collect()
    }

    /// Type and name of subscribed resources that have neither arrived nor, except for routes, are
    /// known not to exist; the name `*` stands for all resources of a type. Empty without a
    /// management server.
    pub async fn pending_resources(&self) -> Result<Vec<(Arc<str>, Arc<str>)>, Error> {
        let Some(xds) = &self.0.xds else {
            return Ok(Vec::new());
        };
        let (reply, pending) = oneshot::channel();
        xds.commands
            .send(SubscribeCommand::Pending(reply))
            .await
            .map_err(|_| self.ended())?;
        let pending = pending.await.map_err(|_| self.ended())?;
        // Resources that have arrived are in use when this returns.
        self.flush().await?;
        Ok(pending.into_iter().collect())
    }

    /// Watches a counter that changes whenever routes or listeners are updated; `None` without a
    /// management server.
    pub fn routes_changed(&self) -> Option<watch::Receiver<u64>> {
        self.0.xds.as_ref().map(|xds| xds.routed.clone())
    }
}
