//! Events of streams, and of limits that are reached.

use std::net::SocketAddr;
use std::sync::Arc;

use plimsoll_core::log_line;
use plimsoll_core::model::load_report::Node;
use plimsoll_xds::ads::server::Nack;

use super::Description;
use crate::log_lines;

/// Counter of what was refused, cut or delayed because of a limit of the configuration.
pub(crate) const LIMIT_EXCEEDED: &str = "limit_exceeded_total";

/// A node refused resources of a type.
pub(crate) fn nacked<'a>(node: &'a Node, type_url: &'a str, nack: &'a Nack) -> Description<'a> {
    let (id, reason) = (&node.id, &nack.detail.message);
    let (_, what) = type_url.rsplit_once('.').unwrap_or(("", type_url));
    let line = move |suppressed| {
        log_line!(log_lines::UPDATE_REJECTED, node = %id,
            fleet = %node.cluster,
            type_url = %type_url,
            version = %nack.version,
            reason = %reason,
            suppressed);
    };
    Description::logged(line).limited("nack").error(format!(
        "{id} rejected {what} and keeps its previous version: {reason}"
    ))
}

/// Label of services in load reports that a rule of `identities` does not let the client read.
pub(crate) const NOT_READABLE: &str = "not_readable";

/// A node reports load of a service that it may not read. Services are counted by the caller.
pub(crate) fn not_readable<'a>(node: &'a Node, cluster: &'a Arc<str>) -> Description<'a> {
    let (id, fleet) = (&node.id, &node.cluster);
    Description::logged(move |suppressed| {
        let reason = NOT_READABLE;
        log_line!(
            log_lines::REPORT_IGNORED, %fleet, node = %id, %cluster, reason, suppressed
        );
    })
    .limited("report_ignored")
    .warning(format!(
        "load report of {id} about {cluster} is ignored: its rule does not let it read the service"
    ))
    .shown_as_logged()
}

/// A client may not be the node that it says it is. `authorization` logs and counts it.
pub(crate) fn node_refused(text: &str) -> Description<'_> {
    Description::logged(|_| ())
        .limited("node_refused")
        .warning(format!("node refused: {text}"))
        .shown_as_logged()
}

/// A TLS handshake failed, as `text` says. The listener logs and counts it.
pub(crate) fn handshake_failed(text: &str) -> Description<'_> {
    Description::logged(|_| ())
        .limited("handshake_failed")
        .warning(text.to_owned())
        .shown_as_logged()
}

/// A node reports more often than it is asked to.
pub(crate) fn report_too_early(node: &Node) -> Description<'_> {
    let (id, fleet) = (&node.id, &node.cluster);
    Description::logged(move |suppressed| {
        log_line!(log_lines::REPORT_TOO_EARLY, %fleet, node = %id, suppressed);
    })
    .limited("report_rate")
    .counted(LIMIT_EXCEEDED, "report_rate")
}

/// A request exceeds a limit.
pub(crate) fn request_refused<'a>(
    limit: &'static str,
    peer: Option<SocketAddr>,
    reason: &'a str,
) -> Description<'a> {
    let name = peer.map_or_else(|| "a peer".to_owned(), |peer| peer.to_string());
    Description::logged(move |suppressed| {
        log_line!(log_lines::REQUEST_REFUSED, ?peer, reason, limit, suppressed);
    })
    .limited(limit)
    .warning(format!("request of {name} refused: {reason}"))
    .shown_as_logged()
    .counted(LIMIT_EXCEEDED, limit)
}

/// An object of Kubernetes would use more than a limit allows.
pub(crate) fn beyond_budget<'a>(
    limit: &'static str,
    object: &'a str,
    reason: &'a str,
) -> Description<'a> {
    Description::logged(move |suppressed| {
        log_line!(log_lines::BEYOND_BUDGET, object, limit, reason, suppressed);
    })
    .limited(limit)
    .warning(format!("{object}: {reason}"))
    .shown_as_logged()
    .counted(LIMIT_EXCEEDED, limit)
}

/// Load reports wait, because the writer's queue is full.
pub(crate) fn queue_full(queued_bytes: usize) -> Description<'static> {
    Description::logged(move |suppressed| {
        log_line!(log_lines::QUEUE_FULL, queued_bytes, suppressed);
    })
    .limited("queue_bytes")
    .counted(LIMIT_EXCEEDED, "queue_bytes")
}

/// The record of a node is too large for the store.
pub(crate) fn record_too_large<'a>(
    fleet: &'a Arc<str>,
    node: &'a Arc<str>,
    bytes: usize,
) -> Description<'a> {
    Description::logged(move |suppressed| {
        log_line!(log_lines::RECORD_TOO_LARGE, %fleet, %node, bytes, suppressed);
    })
    .limited("store_record")
    .counted(LIMIT_EXCEEDED, "store_record")
}
