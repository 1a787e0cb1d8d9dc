//! Tunnels: connections that were upgraded with `101 Switching Protocols`.

use std::sync::Arc;

use http::Response;
use http::header::{CONNECTION, UPGRADE};
use hyper_util::rt::TokioIo;
use plimsoll_core::log_line;
use tokio::io::copy_bidirectional;

use crate::body::ProxyBody;
use crate::connection::{Connection, DrainLevel};
use crate::exchange::Exchange;
use crate::forward::Tunnel;
use crate::headers;
use crate::log_lines;
use crate::worker::UpstreamResponse;

/// Returns the 101 response and copies bytes in both directions; `exchange` ends with the tunnel.
pub(crate) fn start_tunnel(
    mut response: UpstreamResponse,
    tunnel: Tunnel,
    mut exchange: Exchange,
) -> Response<ProxyBody> {
    let upstream = hyper::upgrade::on(&mut response);
    let (mut head, body) = response.into_parts();
    let protocol = head.headers.get(UPGRADE).cloned();
    headers::remove_hop_by_hop(&mut head.headers);
    if let Some(protocol) = protocol {
        head.headers.insert(UPGRADE, protocol);
        head.headers
            .insert(CONNECTION, http::HeaderValue::from_static("upgrade"));
    }
    let head = Response::from_parts(head, ());
    exchange.record_response(&head);
    let connection = Arc::clone(exchange.connection());
    connection.became_tunnel();
    tokio::spawn(async move {
        let (client, upstream) = match tokio::try_join!(tunnel.client, upstream) {
            Ok(both) => both,
            Err(error) => {
                log_line!(log_lines::UPGRADE_FAILED, %error);
                return;
            }
        };
        let stats = &connection.stats;
        stats.downstream_cx_upgrades_total.increment();
        stats.downstream_cx_upgrades_active.increment();
        let (mut client, mut upstream) = (TokioIo::new(client), TokioIo::new(upstream));
        tokio::select! {
            copied = copy_bidirectional(&mut client, &mut upstream) => {
                if let Err(error) = copied {
                    log_line!(log_lines::TUNNEL_CLOSED, %error);
                }
            }
            // An idle or expired tunnel, or the end of the drain time.
            () = drained(&connection) => {}
        }
        stats.downstream_cx_upgrades_active.decrement();
        // The client counts the request as active until the response body is dropped.
        drop(body);
        drop(exchange);
    });
    head.map(|()| ProxyBody::tunnel())
}

/// Waits until the connection has to close. A drain that has only been announced leaves tunnels
/// open: there is no response that could tell the client to leave.
async fn drained(connection: &Connection) {
    while connection.drain_level() < DrainLevel::Drain {
        connection.drain_level_changed().await;
    }
}
