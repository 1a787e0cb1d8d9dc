//! Runs one server-side load reporting stream.
//!
//! `lrs::ServerStream` decides what to send; the handler receives the reports.

use std::sync::Arc;

use bytes::Bytes;
use tonic::Status;

use super::{Shared, Stream, malformed, stopped};
use crate::driver::handler::{LrsHandler, LrsReporter, LrsSession};
use crate::lrs::message::LoadStatsRequest;
use crate::lrs::{MissingNode, Report, ServerStream};
use crate::wire;

/// Runs until the client closes the stream, an error occurs or the server shuts down.
pub(super) async fn run<A, L: LrsHandler>(
    mut stream: Stream,
    shared: Arc<Shared<A, L>>,
) -> Result<(), Status> {
    let timeout = shared.options.first_message_timeout;
    let Some(bytes) = stream.first(timeout).await? else {
        return Ok(());
    };
    let request = decode(bytes)?;
    let node = request
        .node
        .as_ref()
        .ok_or_else(|| missing_node(MissingNode))?;
    let mut session = shared.lrs.open(node, stream.peer).await?;
    let first = session.instructions.borrow_and_update().clone();
    let mut state = ServerStream::new(first.settings);
    state.set_traffic(first.traffic);
    let report = state.handle_request(request).map_err(missing_node)?;
    deliver(&mut session, report).await;
    loop {
        while let Some(response) = state.poll_transmit() {
            let bytes = wire::encode_load_stats_response(&response);
            stream.outbox.send(bytes).await;
        }
        tokio::select! {
            message = stream.messages.next() => {
                let Some(bytes) = message? else {
                    return Ok(());
                };
                let report = state.handle_request(decode(bytes)?).map_err(missing_node)?;
                if report.is_new_node {
                    // Drops the previous session, whose node is gone.
                    session = shared.lrs.open(&report.node, stream.peer).await?;
                    session.instructions.mark_changed();
                }
                deliver(&mut session, report).await;
            }
            changed = session.instructions.changed() => {
                changed.map_err(|_| Status::unavailable("load reporting has ended"))?;
                let next = session.instructions.borrow_and_update().clone();
                state.set_settings(next.settings);
                state.set_traffic(next.traffic);
            }
            status = stopped(&mut stream.stopping) => return Err(status),
        }
    }
}

async fn deliver<R: LrsReporter>(session: &mut LrsSession<R>, report: Report) {
    if !report.cluster_stats.is_empty() {
        let reporter = &mut session.reporter;
        reporter
            .report(&report.node.node, report.cluster_stats)
            .await;
    }
}

fn decode(bytes: Bytes) -> Result<LoadStatsRequest, Status> {
    wire::decode_load_stats_request(bytes).map_err(|error| malformed(&error))
}

fn missing_node(error: MissingNode) -> Status {
    Status::invalid_argument(error.to_string())
}
