//! Exports metrics by OTLP over gRPC, from a thread and runtime of its own (decision 0030): a slow
//! or dead collector delays neither the writer nor a request.
//!
//! The values are those of `/metrics`, collected by the same function. `messages` has the messages.
//! With TLS, certificates are loaded again when their files change.

mod messages;
#[cfg(test)]
mod tests;

use std::io;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use http::Uri;
use http::uri::{PathAndQuery, Scheme};
use plimsoll_core::log_line;
use plimsoll_serve::{TlsError, error_chain};
use plimsoll_xds::driver::{BytesCodec, Sockets};
use prost::Message as _;
use tokio::time::MissedTickBehavior;
use tonic::client::Grpc;
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Status};

use crate::admin::families;
use crate::config::Otlp;
use crate::log_lines;
use crate::run::Context;
use crate::tls_dialer::TlsDialer;

/// Time of one export, of all its requests together.
const TIMEOUT: Duration = Duration::from_secs(10);
const EXPORT: &str = "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export";

/// Why metrics cannot be exported.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StartError {
    #[error(transparent)]
    Tls(#[from] TlsError),
    #[error("cannot start a thread: {0}")]
    Thread(#[from] io::Error),
}

/// Loads the certificates and starts the thread, which ends with the control plane.
pub(crate) fn start(context: Context, otlp: Otlp) -> Result<(), StartError> {
    let connecting = |tls| TlsDialer::start("otlp", tls);
    let connector = otlp.tls.clone().map(connecting).transpose()?.map(Arc::new);
    if let Some(connector) = connector.clone() {
        let expiries = move || connector.expiries();
        context.handle.certificates().watch("otlp", expiries);
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let work = move || runtime.block_on(run(context, otlp, connector));
    let thread = std::thread::Builder::new().name("metrics-export".to_owned());
    Ok(thread.spawn(work).map(drop)?)
}

/// Returns the channel to a collector, which connects when it is used.
fn channel(collector: &Uri, connector: Option<Arc<TlsDialer>>) -> Channel {
    let Some(connector) = connector else {
        let endpoint = Endpoint::from(collector.clone());
        return endpoint.connect_timeout(TIMEOUT).connect_lazy();
    };
    // The scheme of the address that is dialed; requests have that of `origin`.
    let mut parts = collector.clone().into_parts();
    parts.scheme = Some(Scheme::HTTP);
    let plain = Uri::from_parts(parts).unwrap_or_else(|_| collector.clone());
    Endpoint::from(plain)
        .origin(collector.clone())
        .connect_timeout(TIMEOUT)
        .connect_with_connector_lazy(Sockets(connector))
}

async fn run(context: Context, otlp: Otlp, connector: Option<Arc<TlsDialer>>) {
    let channel = channel(&otlp.endpoint, connector);
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
        ready.map_err(|error| Status::unavailable(error_chain(&error)))?;
        let path = PathAndQuery::from_static(EXPORT);
        let message = Bytes::from(request.encode_to_vec());
        // The response says nothing that matters.
        client
            .unary(Request::new(message), path, BytesCodec)
            .await?;
    }
    Ok(())
}

fn unix_nanos() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    u64::try_from(since.unwrap_or_default().as_nanos()).unwrap_or(u64::MAX)
}
