//! Requests through an Envoy, and where they arrived.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

use super::servers::Server;
use plimsoll_testing::http::Connection;

/// How many requests got which status; 0 is a broken connection.
pub(crate) type Statuses = BTreeMap<u16, u64>;

/// Sends requests over one connection.
pub(crate) fn send(to: SocketAddr, path: &str, requests: usize) -> Statuses {
    let head = format!("GET {path} HTTP/1.1\r\nhost: test\r\n\r\n");
    let mut statuses = Statuses::new();
    let mut connection = Connection::open(to).unwrap();
    for _ in 0..requests {
        let status = connection.request(&head).map_or(0, |(status, _)| status);
        if status == 0 {
            connection = Connection::open(to).unwrap();
        }
        *statuses.entry(status).or_default() += 1;
    }
    statuses
}

/// Sends requests that must all succeed, and returns the share of each zone.
pub(crate) fn shares(
    to: SocketAddr,
    path: &str,
    servers: &[Arc<Server>],
    requests: usize,
) -> BTreeMap<&'static str, f64> {
    let count = || servers.iter().map(|server| server.requests());
    let before: Vec<_> = count().collect();
    let statuses = send(to, path, requests);
    assert_eq!(statuses, Statuses::from([(200, requests as u64)]));
    let mut shares = BTreeMap::new();
    for ((server, after), before) in servers.iter().zip(count()).zip(before) {
        *shares.entry(server.zone).or_default() += (after - before) as f64 / requests as f64;
    }
    shares
}
