//! Runs one server-side load reporting stream.
//!
//! `lrs::ServerStream` decides what to send; the handler receives the reports.

use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use plimsoll_core::model::load_report::Node;
use tonic::Status;

use super::{Ending, ReadError, Shared, Stream, malformed, unread};
use crate::clock::Clock;
use crate::driver::handler::{LrsHandler, LrsInstructions, LrsReporter, LrsSession, Refusal};
use crate::lrs::message::LoadStatsRequest;
use crate::lrs::{MissingNode, Report, ServerStream};
use crate::wire;

/// Runs until the client closes the stream, an error occurs or the server shuts down.
pub(super) async fn run<A, L: LrsHandler>(
    mut stream: Stream,
    shared: Arc<Shared<A, L>>,
) -> Result<(), Status> {
    stream.messages.trim_reports();
    let timeout = shared.options.first_message_timeout;
    let peer = stream.client.peer;
    let refused = |refusal: &Refusal<'_>| shared.lrs.refused(refusal);
    let first = stream.first(timeout).await;
    let Some(bytes) = first.map_err(|error| unread(error, peer, refused))? else {
        return Ok(());
    };
    let request = decode(bytes, &shared, stream.client.peer, false)?;
    let node = request
        .node
        .clone()
        .ok_or_else(|| missing_node(MissingNode))?;
    // Boxed, so that the stream does not keep room for it.
    let mut session = Box::pin(shared.lrs.open(&node, &stream.client)).await?;
    let first = newest(&mut session);
    let mut state = ServerStream::new(first.settings);
    state.set_traffic(first.traffic);
    let clock = Clock::system();
    let report = state.handle_request(request, clock.now());
    let report = report.map_err(missing_node)?;
    deliver(&mut session, report).await;
    loop {
        while let Some(response) = state.poll_transmit() {
            let bytes = wire::encode_load_stats_response(&response);
            stream.outbox.send(bytes.into()).await;
        }
        tokio::select! {
            message = stream.messages.next() => {
                let message = message.map_err(|error| unread(error, peer, refused))?;
                let Some(bytes) = message else {
                    return Ok(());
                };
                let asks = state.asks_for_endpoints();
                let request = decode(bytes, &shared, stream.client.peer, asks)?;
                let report = state.handle_request(request, clock.now());
                let report = report.map_err(missing_node)?;
                if report.is_new_node {
                    // Otherwise one stream could report for any number of nodes.
                    return Err(another_node(&node.node, &report.node.node));
                }
                deliver(&mut session, report).await;
            }
            changed = session.instructions.changed() => {
                changed.map_err(|_| Status::unavailable("load reporting has ended"))?;
                let next = newest(&mut session);
                state.set_settings(next.settings);
                state.set_traffic(next.traffic);
            }
            status = session.reporter.revoked() => return Err(status),
            status = Ending::wait(&mut stream.ending) => return Err(status),
        }
    }
}

fn newest<R: LrsReporter>(session: &mut LrsSession<R>) -> LrsInstructions {
    let newest = session.instructions.borrow_and_update().clone();
    session.reporter.readable(newest)
}

async fn deliver<R: LrsReporter>(session: &mut LrsSession<R>, report: Report) {
    if !report.cluster_stats.is_empty() {
        let reporter = &mut session.reporter;
        reporter
            .report(&report.node.node, report.cluster_stats)
            .await;
        if !report.host_stats.is_empty() {
            reporter.report_hosts(report.host_stats).await;
        }
    }
}

/// Decodes a report within its limits, with what it says of hosts if that was asked for. Features
/// that nobody asks for are dropped from its node.
fn decode<A, L: LrsHandler>(
    bytes: Bytes,
    shared: &Shared<A, L>,
    peer: Option<SocketAddr>,
    asks_for_endpoints: bool,
) -> Result<LoadStatsRequest, Status> {
    let limits = &shared.options.requests;
    let refused = |refusal: &Refusal<'_>| shared.lrs.refused(refusal);
    limits
        .check_load_stats(&bytes)
        .map_err(|error| unread(ReadError::Refused(error), peer, refused))?;
    let host_stats = if asks_for_endpoints {
        wire::decode_host_stats(&bytes)
    } else {
        Vec::new()
    };
    let request = wire::decode_load_stats_request(bytes);
    let mut request = request.map_err(|error| malformed(&error))?;
    request.host_stats = host_stats;
    if let Some(node) = &mut request.node {
        node.drop_unused_features();
    }
    Ok(request)
}

fn another_node(first: &Node, other: &Node) -> Status {
    let field = if first.id != other.id {
        "node.id"
    } else if first.cluster != other.cluster {
        "node.cluster"
    } else {
        "node.locality"
    };
    Status::invalid_argument(format!(
        "{field}: differs from the first message of the stream"
    ))
}

fn missing_node(error: MissingNode) -> Status {
    Status::invalid_argument(error.to_string())
}
