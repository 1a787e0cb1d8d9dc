//! Tunnels: what a connection becomes after `101 Switching Protocols`.

use http::Response;
use http::header::{CONNECTION, UPGRADE};
use hyper_util::rt::TokioIo;
use tokio::io::copy_bidirectional;

use crate::body::ProxyBody;
use crate::exchange::Exchange;
use crate::forward::Tunnel;
use crate::headers;
use crate::worker::UpstreamResponse;

/// Hands on the response and joins both ends. The request lives as long as the tunnel.
pub(crate) fn accept(
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
    exchange.response(&head);
    let stats = exchange.connection().stats.clone();
    tokio::spawn(async move {
        let (client, upstream) = match tokio::try_join!(tunnel.client, upstream) {
            Ok(both) => both,
            Err(error) => {
                tracing::debug!(%error, "an upgrade was agreed on but did not happen");
                return;
            }
        };
        stats.downstream_cx_upgrades_total.inc();
        stats.downstream_cx_upgrades_active.inc();
        let (mut client, mut upstream) = (TokioIo::new(client), TokioIo::new(upstream));
        if let Err(error) = copy_bidirectional(&mut client, &mut upstream).await {
            tracing::debug!(%error, "a tunnel broke");
        }
        stats.downstream_cx_upgrades_active.dec();
        // The client's account of the request is closed with the body.
        drop(body);
        drop(exchange);
    });
    head.map(|()| ProxyBody::tunnel())
}
