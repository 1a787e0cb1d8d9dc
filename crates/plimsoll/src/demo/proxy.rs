//! [`Proxy`]: a real plimsoll proxy inside the demo, on its own sockets and thread, steered by the
//! control plane.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use anyhow::Context as _;
use plimsoll_proxy::{Options, RunError, run};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

use super::control::CLUSTER;
use super::setting::ZONES;

/// The fleet.
pub(crate) const FLEET: &str = "gateway";
/// How long requests may take to finish at the end.
const DRAIN: Duration = Duration::from_secs(1);
/// How long an admin page may take.
const PATIENCE: Duration = Duration::from_secs(2);

/// One proxy.
#[derive(Debug)]
pub(crate) struct Proxy {
    pub(crate) zone: usize,
    /// Where clients send requests.
    pub(crate) address: SocketAddr,
    admin: SocketAddr,
    stop: oneshot::Sender<()>,
    task: JoinHandle<Result<(), RunError>>,
    /// Kept open: without it the proxy would look for messages that never come.
    _reload: mpsc::Sender<()>,
}

impl Proxy {
    /// Starts one; its file is put into `folder`.
    pub(crate) async fn start(
        zone: usize,
        number: usize,
        xds: SocketAddr,
        folder: &Path,
    ) -> anyhow::Result<Self> {
        let id = format!(
            "{FLEET}-{}-{number}",
            ZONES[zone].trim_start_matches("zone-")
        );
        let file = folder.join(format!("{id}.yaml"));
        std::fs::write(&file, config(&id, zone, xds).to_string())?;
        let options = Options {
            config: file,
            workers: 1,
            drain_time: DRAIN,
            logging: None,
        };
        let (announce, announced) = oneshot::channel();
        let (reload, reloads) = mpsc::channel(1);
        let (stop, stopped) = oneshot::channel::<()>();
        let ready = move |bound| {
            // Nobody listens when the demo has ended.
            let _ = announce.send(bound);
        };
        let shutdown = async move {
            let _ = stopped.await;
        };
        let task = tokio::spawn(run(options, ready, reloads, shutdown));
        let Ok(bound) = announced.await else {
            task.await?.context("a proxy does not start")?;
            anyhow::bail!("a proxy ended at once");
        };
        let (_, address) = *bound
            .listeners
            .first()
            .context("a proxy without listener")?;
        Ok(Self {
            zone,
            address,
            admin: bound.admin.context("a proxy without admin pages")?,
            stop,
            task,
            _reload: reload,
        })
    }

    /// Why it sends where it sends; `None` when it does not say.
    pub(crate) async fn explain(&self) -> Option<Value> {
        let path = format!("/explain?cluster={CLUSTER}");
        let page = tokio::time::timeout(PATIENCE, get(self.admin, &path)).await;
        page.ok()?.ok()
    }

    /// Drains and ends it.
    pub(crate) async fn stop(self) -> anyhow::Result<()> {
        drop(self.stop);
        self.task.await?.context("a proxy")
    }
}

/// One page as JSON.
async fn get(address: SocketAddr, path: &str) -> anyhow::Result<Value> {
    let mut stream = TcpStream::connect(address).await?;
    let request = format!("GET {path} HTTP/1.0\r\nhost: demo\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    let (_, body) = answer.split_once("\r\n\r\n").context("no answer")?;
    Ok(serde_json::from_str(body)?)
}

fn socket(address: SocketAddr) -> Value {
    let (ip, port) = (address.ip(), address.port());
    json!({ "socket_address": { "address": ip, "port_value": port } })
}

/// What it is told: a bootstrap in Envoy's shape.
fn config(id: &str, zone: usize, xds: SocketAddr) -> Value {
    let free = socket(SocketAddr::from(([127, 0, 0, 1], 0)));
    let server = json!({
        "api_type": "GRPC",
        "transport_api_version": "V3",
        "grpc_services": [{ "envoy_grpc": { "cluster_name": "control" } }],
    });
    let manager = "type.googleapis.com/envoy.extensions.filters.network.\
                   http_connection_manager.v3.HttpConnectionManager";
    // Every backend of a dead zone may be tried in vain before one elsewhere is.
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
    fn a_proxy_takes_its_file() {
        let xds = SocketAddr::from(([127, 0, 0, 1], 18000));
        let config = ProxyConfig::parse(&config("gateway-b-1", 1, xds).to_string()).unwrap();
        assert_eq!(config.node.locality.zone(), "zone-b");
        assert_eq!(config.node.cluster, FLEET);
        let server = config.xds.unwrap();
        assert_eq!(server.uri, "http://127.0.0.1:18000");
        assert!(server.report_load);
    }
}
