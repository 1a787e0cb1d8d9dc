//! `plimsoll proxy` inside the demo, on its own sockets and thread, configured by the control
//! plane.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use anyhow::Context as _;
use plimsoll_proxy::{Context, Options};
use plimsoll_serve::AdminOptions;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use crate::control::CLUSTER;
use crate::setting::ZONES;
use plimsoll_serve::fetch::{self, AdminAddress};

/// Name of the fleet (`node.cluster`).
pub(crate) const FLEET: &str = "gateway";
const DRAIN: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(crate) struct Proxy {
    pub(crate) zone: usize,
    pub(crate) address: SocketAddr,
    admin: AdminAddress,
    context: Context,
    task: JoinHandle<()>,
}

impl Proxy {
    pub(crate) async fn start(
        zone: usize,
        number: usize,
        xds: SocketAddr,
        directory: &Path,
    ) -> anyhow::Result<Self> {
        let id = format!(
            "{FLEET}-{}-{number}",
            ZONES[zone].trim_start_matches("zone-")
        );
        let file = directory.join(format!("{id}.yaml"));
        std::fs::write(&file, config(&id, zone, xds).to_string())?;
        let options = Options {
            drain_time: DRAIN,
            ..Options::new(file)
        };
        let proxy = plimsoll_proxy::Proxy::start(options)
            .await
            .with_context(|| format!("cannot start proxy {id}"))?;
        let bound = proxy.bound();
        let (_, address) = *bound
            .listeners
            .first()
            .context("the proxy has no listener")?;
        let (context, (_, no_reloads)) = (proxy.context(), mpsc::channel(1));
        let task = tokio::spawn(proxy.run(AdminOptions::default(), no_reloads));
        // Clients are started next: nothing is accepted before clusters and endpoints are known.
        context.wait_until_live().await;
        Ok(Self {
            zone,
            address,
            admin: bound
                .admin
                .context("the proxy has no admin address")?
                .into(),
            context,
            task,
        })
    }

    /// Returns the proxy's explanation of the cluster; `None` if its admin API fails.
    pub(crate) async fn explain(&self) -> Option<Value> {
        let path = format!("/explain?cluster={CLUSTER}");
        let page = fetch::get(&self.admin, &path).await.ok()?;
        serde_json::from_slice(&page).ok()
    }

    /// Drains connections and stops the proxy.
    pub(crate) async fn stop(self) -> anyhow::Result<()> {
        self.context.stopping().cancel();
        self.task.await.context("a proxy failed")
    }
}

fn socket(address: SocketAddr) -> Value {
    let (ip, port) = (address.ip(), address.port());
    json!({ "socket_address": { "address": ip, "port_value": port } })
}

fn config(id: &str, zone: usize, xds: SocketAddr) -> Value {
    let free = socket(SocketAddr::from(([127, 0, 0, 1], 0)));
    let server = json!({
        "api_type": "GRPC",
        "transport_api_version": "V3",
        "grpc_services": [{ "envoy_grpc": { "cluster_name": "control" } }],
    });
    let manager = "type.googleapis.com/envoy.extensions.filters.network.\
                   http_connection_manager.v3.HttpConnectionManager";
    // A request may fail on every backend of a dead zone before it is sent to another zone.
    let retries = json!({ "retry_on": "connect-failure,refused-stream,reset", "num_retries": 5 });
    let route = json!({
        "match": { "prefix": "/" },
        "route": { "cluster": CLUSTER, "timeout": "15s", "retry_policy": retries },
    });
    json!({
        "admin": { "address": free },
        "node": { "id": id, "cluster": FLEET, "locality": { "zone": ZONES[zone] } },
        "cluster_manager": { "local_cluster_name": "local_cluster", "load_stats_config": server },
        "dynamic_resources": { "ads_config": server, "cds_config": { "ads": {} } },
        "static_resources": {
            "listeners": [{
                "name": "http",
                "address": free,
                "filter_chains": [{ "filters": [{ "typed_config": {
                    "@type": manager,
                    "stat_prefix": "http",
                    "route_config": { "virtual_hosts": [
                        { "name": "all", "domains": ["*"], "routes": [route] },
                    ] },
                } }] }],
            }],
            "clusters": [{
                "name": "control",
                "load_assignment": {
                    "cluster_name": "control",
                    "endpoints": [{ "lb_endpoints": [{ "endpoint": { "address": socket(xds) } }] }],
                },
            }, {
                "name": "local_cluster",
                "type": "EDS",
                "eds_cluster_config": { "eds_config": { "ads": {} } },
            }],
        },
    })
}

#[cfg(test)]
mod tests {
    use plimsoll_proxy::config::ProxyConfig;

    use super::*;

    #[test]
    fn the_proxy_accepts_its_configuration() {
        let xds = SocketAddr::from(([127, 0, 0, 1], 18000));
        let config = ProxyConfig::parse(&config("gateway-b-1", 1, xds).to_string()).unwrap();
        assert_eq!(config.node.locality.zone(), "zone-b");
        assert_eq!(config.node.cluster, FLEET);
        let server = config.xds.unwrap();
        assert_eq!(server.uri, "http://127.0.0.1:18000");
        assert!(server.report_load);
    }
}
