//! `plimsoll proxy` with clusters from a management server, under a load that reveals failures.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use plimsoll_testing::http::Connection;
use serde_json::json;

use super::backends::Backends;
use super::load::{Load, Source};
use super::proxy::{Proxy, file, listener, route_all_to, with_management_server};
use super::{wait_to_see, wait_until};

/// Node id of the proxy.
pub(crate) const NODE: &str = "gateway-zone-a";

const TICK: Duration = Duration::from_millis(10);

/// Proxy in zone-a under load for the cluster `orders`, with one host in each zone, so that a zone
/// identifies a host.
pub(crate) struct DynamicProxy {
    pub(crate) load: Load,
    pub(crate) proxy: Proxy,
    pub(crate) backends: Backends,
}

impl DynamicProxy {
    /// Starts one host in each of three zones; the management server needs their addresses.
    pub(crate) fn backends() -> Backends {
        Backends::start(&[("zone-a", 1), ("zone-b", 1), ("zone-c", 1)])
    }

    /// Starts a proxy with this management server and waits until it knows `orders`. `api_type` is
    /// `GRPC` or `DELTA_GRPC`.
    pub(crate) fn start(
        directory: &Path,
        backends: Backends,
        server: SocketAddr,
        api_type: &str,
    ) -> Self {
        let named = json!([{
            "match": { "prefix": "/" },
            "route": { "cluster_header": "x-cluster" },
        }]);
        let listeners = [
            listener("front", &route_all_to("orders")),
            listener("named", &named),
        ];
        let config = with_management_server(file("zone-a", &listeners, &[]), server, api_type);
        let proxy = Proxy::start(directory, "proxy", &config);
        let front = proxy.listener("front");
        wait_until("the proxy knows the cluster", || {
            status(front, "orders") == 200
        });
        let source = Source {
            to: front,
            from: "zone-a".to_owned(),
            per_tick: 2,
        };
        Self {
            load: Load::start(&[source], TICK),
            proxy,
            backends,
        }
    }

    /// Waits until exactly these hosts receive requests.
    pub(crate) fn wait_for_hosts(&self, expected: &[&str]) {
        let receiving = || -> Vec<String> {
            let before = self.backends.counts();
            self.wait_for_requests(40);
            let counts = self.backends.counts().into_iter();
            let gained = counts.filter(|(key, count)| {
                let before = before.get(key).copied().unwrap_or_default();
                key.0 == "zone-a" && *count > before
            });
            gained.map(|(key, _)| key.1).collect()
        };
        let what = format!("only {expected:?} receive requests");
        wait_to_see(&what, receiving, |seen| seen == expected);
    }

    /// Waits until this many more requests have succeeded.
    pub(crate) fn wait_for_requests(&self, requests: u64) {
        let from = self.load.succeeded();
        wait_until("requests are answered", || {
            self.load.succeeded() >= from + requests
        });
    }

    /// Sends a request to a cluster and returns the status; 0 if there is no response.
    pub(crate) fn status_of(&self, cluster: &str) -> u16 {
        status(self.proxy.listener("named"), cluster)
    }
}

fn status(to: SocketAddr, cluster: &str) -> u16 {
    let head = format!("GET / HTTP/1.1\r\nhost: test\r\nx-cluster: {cluster}\r\n\r\n");
    let response = Connection::open(to).and_then(|mut connection| connection.request(&head));
    response.map_or(0, |(status, _)| status)
}
