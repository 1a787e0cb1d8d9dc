//! One load reporting conversation: reports in, settings out.
//!
//! Decisions are those of `lrs::ServerStream`; what to do with a report is the handler's.

use std::sync::Arc;

use bytes::Bytes;
use tonic::Status;

use super::{Shared, Stream, malformed, stopped};
use crate::driver::handler::{LrsHandler, LrsReporter, LrsSession};
use crate::lrs::message::LoadStatsRequest;
use crate::lrs::{NoNode, Report, ServerStream};
use crate::wire;

/// Talks until the client leaves, something is wrong or the server stops.
pub(super) async fn run<A, L: LrsHandler>(
    mut stream: Stream,
    shared: Arc<Shared<A, L>>,
) -> Result<(), Status> {
    let patience = shared.options.first_message_timeout;
    let Some(bytes) = stream.first(patience).await? else {
        return Ok(());
    };
    let request = decode(bytes)?;
    let node = request.node.as_ref().ok_or_else(|| no_node(NoNode))?;
    let mut session = shared.lrs.open(node, stream.peer).await?;
    let first = session.instructions.borrow_and_update().clone();
    let mut machine = ServerStream::new(first.settings);
    machine.set_traffic(first.traffic);
    let report = machine.handle_request(request).map_err(no_node)?;
    deliver(&mut session, report).await;
    loop {
        while let Some(response) = machine.poll_transmit() {
            let bytes = wire::encode_load_stats_response(&response);
            stream.outbox.send(bytes).await;
        }
        tokio::select! {
            message = stream.messages.next() => {
                let Some(bytes) = message? else {
                    return Ok(());
                };
                let report = machine.handle_request(decode(bytes)?).map_err(no_node)?;
                if report.is_new_node {
                    // The old session is dropped only now: its node is gone.
                    session = shared.lrs.open(&report.node, stream.peer).await?;
                    session.instructions.mark_changed();
                }
                deliver(&mut session, report).await;
            }
            changed = session.instructions.changed() => {
                changed.map_err(|_| Status::unavailable("load reporting has ended"))?;
                let next = session.instructions.borrow_and_update().clone();
                machine.set_settings(next.settings);
                machine.set_traffic(next.traffic);
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

fn no_node(error: NoNode) -> Status {
    Status::invalid_argument(error.to_string())
}
