//! [`Steered`]: `plimsoll proxy` that learns its clusters from a management server, with traffic
//! that shows a lost request.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use serde_json::json;

use super::backends::Backends;
use super::http::Connection;
use super::load::{Load, Source};
use super::proxy::{Proxy, everything, file, listener, steered_by};
use super::wait_until;

/// Who the proxy says it is.
pub(crate) const NODE: &str = "gateway-zone-a";

const TICK: Duration = Duration::from_millis(10);

/// A proxy in zone-a under load for the cluster `orders`, with one host in each zone, so that zones
/// are hosts.
pub(crate) struct Steered {
    pub(crate) load: Load,
    pub(crate) proxy: Proxy,
    pub(crate) backends: Backends,
}

impl Steered {
    /// Three zones of one host. They come first: the server is told their addresses.
    pub(crate) fn backends() -> Backends {
        Backends::start(&[("zone-a", 1), ("zone-b", 1), ("zone-c", 1)])
    }

    /// Starts a proxy of the server and waits until it knows `orders`. `api_type` is `GRPC` or
    /// `DELTA_GRPC`.
    pub(crate) fn start(
        folder: &Path,
        backends: Backends,
        server: SocketAddr,
        api_type: &str,
    ) -> Self {
        let named = json!([{
            "match": { "prefix": "/" },
            "route": { "cluster_header": "x-cluster" },
        }]);
        let listeners = [
            listener("front", &everything("orders")),
            listener("named", &named),
        ];
        let config = steered_by(file("zone-a", &listeners, &[]), server, api_type);
        let proxy = Proxy::start(folder, "proxy", &config);
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

    /// Waits until these hosts, and no others, take requests.
    pub(crate) fn wait_for_hosts(&self, expected: &[&str]) {
        wait_until("requests go where they should", || {
            let before = self.backends.counts();
            self.answered(40);
            let counts = self.backends.counts();
            let mut gained = counts.iter().filter(|(key, count)| {
                let before = before.get(*key).copied().unwrap_or_default();
                key.0 == "zone-a" && **count > before
            });
            let hosts: Vec<_> = gained.by_ref().map(|(key, _)| key.1.as_str()).collect();
            hosts == expected
        });
    }

    /// Waits until so many more requests have succeeded.
    pub(crate) fn answered(&self, requests: u64) {
        let from = self.load.succeeded();
        wait_until("requests are answered", || {
            self.load.succeeded() >= from + requests
        });
    }

    /// The answer to a request to this cluster; 0 is none.
    pub(crate) fn status_of(&self, cluster: &str) -> u16 {
        status(self.proxy.listener("named"), cluster)
    }
}

fn status(to: SocketAddr, cluster: &str) -> u16 {
    let head = format!("GET / HTTP/1.1\r\nhost: test\r\nx-cluster: {cluster}\r\n\r\n");
    let answer = Connection::open(to).and_then(|mut connection| connection.request(&head));
    answer.map_or(0, |(status, _)| status)
}
