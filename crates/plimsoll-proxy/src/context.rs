//! [`Context`]: handle to a running proxy for embedders, such as the dashboard.

use std::net::SocketAddr;
use std::sync::Arc;

use plimsoll_client::Client;
use plimsoll_serve::CancellationToken;

use crate::config::NodeConfig;
use crate::state::{Phase, State};

/// Handle to observe and stop a running proxy.
#[derive(Clone, Debug)]
pub struct Context {
    pub(crate) state: Arc<State>,
}

impl Context {
    /// Returns the client, which balances the load and explains its decisions.
    pub fn client(&self) -> &Client {
        &self.state.client
    }

    /// Returns the token that stops the proxy: once it is canceled, the proxy drains and exits.
    pub fn stopping(&self) -> &CancellationToken {
        &self.state.stopping
    }

    /// Returns the identity and locality of this proxy.
    pub fn node(&self) -> NodeConfig {
        self.state.loaded().config.node.clone()
    }

    /// Returns the name of the local cluster, which has this proxy as a host.
    pub fn local_cluster_name(&self) -> Option<String> {
        self.state.loaded().config.local_cluster_name.clone()
    }

    /// Returns the name of the cluster that has the address of the management server.
    pub fn management_cluster(&self) -> Option<String> {
        let loaded = self.state.loaded();
        loaded.config.xds.as_ref().map(|xds| xds.server.clone())
    }

    /// Returns the lifecycle phase of the proxy, as in Envoy's `ServerInfo.State`.
    pub fn phase(&self) -> &'static str {
        self.state.phase().as_str()
    }

    /// Whether the proxy is serving requests.
    pub fn is_live(&self) -> bool {
        self.state.phase() == Phase::Live
    }

    /// Waits until the proxy accepts connections.
    pub async fn wait_until_live(&self) {
        let mut live = self.state.live.subscribe();
        // The sender lives as long as this handle.
        let _ = live.wait_for(|live| *live).await;
    }

    /// Returns names and addresses of the listeners that accept connections.
    pub fn listeners(&self) -> Vec<(String, SocketAddr)> {
        let listeners = self.state.listeners().into_iter();
        listeners.map(|one| (one.name, one.address)).collect()
    }

    /// Opens access log files again, for programs that rotate logs.
    pub fn reopen_logs(&self) {
        self.state.sinks.reopen();
    }

    /// Returns the error if the latest edit of the bootstrap file was rejected.
    pub fn rejected_edit(&self) -> Option<String> {
        self.state.reloads.counts().error
    }
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;
    use crate::config::ProxyConfig;
    use crate::source::Loaded;

    const BOOTSTRAP: &str = "
node: {id: p1, cluster: edge}
cluster_manager: {local_cluster_name: server}
dynamic_resources: {ads_config: {api_type: GRPC, grpc_services: [{envoy_grpc: {cluster_name: \
                             server}}]}}
static_resources: {clusters: [{name: server, type: STATIC, load_assignment: {cluster_name: server, \
                             endpoints: [{lb_endpoints: [{endpoint: {address: {socket_address: \
                             {address: 127.0.0.1, port_value: 1}}}}]}]}}]}
";

    fn context(text: &str) -> Context {
        let loaded = Loaded {
            config: Arc::new(ProxyConfig::parse(text).unwrap()),
            json: serde_json::Value::Null,
            last_updated: SystemTime::now(),
        };
        let client = Client::builder().build().unwrap();
        let state = Arc::new(State::new(client, 1, loaded, 0));
        Context { state }
    }

    #[tokio::test]
    async fn the_bootstrap_can_be_read() {
        let context = context(BOOTSTRAP);
        let node = context.node();
        assert_eq!((node.id.as_str(), node.cluster.as_str()), ("p1", "edge"));
        assert_eq!(context.local_cluster_name().as_deref(), Some("server"));
        assert_eq!(context.management_cluster().as_deref(), Some("server"));
        assert!(context.listeners().is_empty());
        let bare = self::context("static_resources: {}");
        assert_eq!(bare.local_cluster_name(), None);
        assert_eq!(bare.management_cluster(), None);
    }

    #[tokio::test]
    async fn phases_and_rejected_edits_are_those_of_the_proxy() {
        let context = context("static_resources: {}");
        assert_eq!(
            (context.phase(), context.is_live()),
            ("INITIALIZING", false)
        );
        context.state.set_live();
        context.wait_until_live().await;
        assert_eq!((context.phase(), context.is_live()), ("LIVE", true));
        assert_eq!(context.rejected_edit(), None);
        let error = "no such field".to_owned();
        context.state.reloads.record(Err(error.clone()));
        assert_eq!(context.rejected_edit(), Some(error));
        context.stopping().cancel();
        assert_eq!((context.phase(), context.is_live()), ("DRAINING", false));
    }
}
