//! Exports metrics by OTLP over gRPC, from a thread and runtime of its own (decision 0030): a slow
//! or dead collector delays neither the writer nor a request.
//!
//! The values are those of `/metrics`, collected by the same function. `messages` has the messages.

mod messages;
#[cfg(test)]
mod tests;

use std::io;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::{Buf as _, BufMut as _, Bytes};
use http::uri::PathAndQuery;
use plimsoll_core::log_line;
use prost::Message as _;
use tokio::time::MissedTickBehavior;
use tonic::client::Grpc;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Status};

use crate::admin::families;
use crate::config::Otlp;
use crate::log_lines;
use crate::run::Context;

/// Time of one export, of all its requests together.
const TIMEOUT: Duration = Duration::from_secs(10);
const EXPORT: &str = "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export";

/// Starts the thread; fails if the operating system refuses one. It ends with the control plane.
pub(crate) fn start(context: Context, otlp: Otlp) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let work = move || runtime.block_on(run(context, otlp));
    let thread = std::thread::Builder::new().name("metrics-export".to_owned());
    thread.spawn(work).map(drop)
}

async fn run(context: Context, otlp: Otlp) {
    let endpoint = Endpoint::from(otlp.endpoint.clone()).connect_timeout(TIMEOUT);
    let channel = endpoint.connect_lazy();
    let started = unix_nanos();
    let mut ticks = tokio::time::interval(otlp.interval);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut was_failing = false;
    loop {
        tokio::select! {
            () = context.stopping.cancelled() => return,
            _ = ticks.tick() => {}
        }
        let exporting = tokio::time::timeout(TIMEOUT, export(&context, &channel, started));
        let exported = tokio::select! {
            () = context.stopping.cancelled() => return,
            exported = exporting => exported,
        };
        let failure = match exported {
            Ok(Ok(())) => None,
            Ok(Err(status)) => Some(status.message().to_owned()),
            Err(_) => Some(format!("no response within {TIMEOUT:?}")),
        };
        context.handle.counters().otlp_export(failure.is_none());
        let collector = &otlp.endpoint;
        match &failure {
            Some(reason) if !was_failing => {
                log_line!(log_lines::OTLP_EXPORT_FAILED, %collector, reason);
            }
            None if was_failing => log_line!(log_lines::OTLP_EXPORT_RECOVERED, %collector),
            _ => {}
        }
        was_failing = failure.is_some();
    }
}

/// Sends all metrics, in several requests if they are many: collectors limit the size of one.
async fn export(context: &Context, channel: &Channel, started: u64) -> Result<(), Status> {
    let families = families(context)
        .await
        .map_err(|stopped| Status::unavailable(stopped.to_string()))?;
    for request in messages::requests(&families, started, unix_nanos()) {
        let mut client = Grpc::new(channel.clone());
        let ready = client.ready().await;
        ready.map_err(|error| Status::unavailable(error.to_string()))?;
        let path = PathAndQuery::from_static(EXPORT);
        let message = Bytes::from(request.encode_to_vec());
        client.unary(Request::new(message), path, Encoded).await?;
    }
    Ok(())
}

fn unix_nanos() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    u64::try_from(since.unwrap_or_default().as_nanos()).unwrap_or(u64::MAX)
}

/// Codec of messages that are encoded already, and of responses that nobody reads.
#[derive(Clone, Copy, Debug, Default)]
struct Encoded;

impl Codec for Encoded {
    type Encode = Bytes;
    type Decode = ();
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        *self
    }

    fn decoder(&mut self) -> Self {
        *self
    }
}

impl Encoder for Encoded {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, item: Bytes, buffer: &mut EncodeBuf<'_>) -> Result<(), Status> {
        buffer.put(item);
        Ok(())
    }
}

impl Decoder for Encoded {
    type Item = ();
    type Error = Status;

    fn decode(&mut self, buffer: &mut DecodeBuf<'_>) -> Result<Option<()>, Status> {
        buffer.advance(buffer.remaining());
        Ok(Some(()))
    }
}
