//! [`Watched`]: a source whose batches are read as text, `address zone state weight` by service.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use plimsoll_consul::{
    Batch, Consistency, ConsulAccess, Datacenter, EndpointState, MergeOptions, Source,
    SourceOptions,
};
use plimsoll_serve::discovery::RemovalGuard;
use plimsoll_serve::http_client::HttpServer;

/// Longest wait for something that must happen.
const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) struct Watched {
    pub(crate) source: Source,
    pub(crate) seen: BTreeMap<String, String>,
    pub(crate) batches: usize,
}

/// Returns options for the datacenter of an agent without TLS or token.
pub(crate) fn options(agent: SocketAddr) -> SourceOptions {
    SourceOptions {
        access: ConsulAccess {
            server: HttpServer::parse(&format!("http://{agent}"), None, None).unwrap(),
            token_file: None,
        },
        datacenters: vec![Datacenter {
            name: None,
            region: None,
        }],
        consistency: Consistency::Stale,
        max_stale: Duration::from_secs(10),
        wait: Duration::from_secs(600),
        grace: Duration::from_secs(10),
        max_connections: 10,
        merge: MergeOptions {
            zone_meta: "zone".to_owned(),
            ..MergeOptions::default()
        },
        guard: RemovalGuard::default(),
    }
}

impl Watched {
    pub(crate) fn start(options: SourceOptions) -> Self {
        Self {
            source: plimsoll_consul::start(options),
            seen: BTreeMap::new(),
            batches: 0,
        }
    }

    /// Reads batches until a service is as expected; `None` for a service that is gone.
    pub(crate) async fn wait_for(&mut self, service: &str, expected: Option<&str>) {
        let is_seen =
            |seen: &BTreeMap<String, String>| seen.get(service).map(String::as_str) == expected;
        let waiting = async {
            while self.batches == 0 || !is_seen(&self.seen) {
                let batch = self.source.next().await.expect("the source runs");
                take(&mut self.seen, &batch);
                self.batches += 1;
            }
        };
        let waited = tokio::time::timeout(PATIENCE, waiting).await;
        let status = self.source.status();
        assert!(
            waited.is_ok(),
            "{service} is not {expected:?}: {:?}, {status:?}",
            self.seen
        );
    }

    /// Waits until the status fails, or does not, and returns the reason.
    pub(crate) async fn wait_failing(&mut self, is_failing: bool) -> String {
        let status = self.source.status();
        plimsoll_testing::tasks::wait_for("the status changes", async || {
            let failing = status.failing();
            let is_expected = failing.is_some() == is_failing;
            is_expected.then(|| failing.map_or_else(String::new, |(_, reason)| reason))
        })
        .await
    }
}

fn take(seen: &mut BTreeMap<String, String>, batch: &Batch) {
    for (name, service) in &batch.services {
        let Some(service) = service else {
            seen.remove(&**name);
            continue;
        };
        let shown = service.endpoints.iter().map(|(address, endpoint)| {
            let zone = endpoint.zone.as_deref().unwrap_or("-");
            let state = match endpoint.state {
                EndpointState::Ready => "ready",
                EndpointState::Draining => "draining",
                EndpointState::Unhealthy => "unhealthy",
            };
            let (port, region) = (address.port(), &endpoint.region);
            format!("{port} {region}/{zone} {state} {}", endpoint.weight)
        });
        let shown: Vec<_> = shown.collect();
        seen.insert(name.to_string(), shown.join(", "));
    }
}

/// Returns the address of a host that nobody runs.
pub(crate) fn host(port: u16) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, 1], port))
}
