//! Out-of-band load reports (ORCA): one gRPC stream per host of a cluster, over plain text, on one
//! thread of the module for all clusters.
//!
//! `plimsoll_xds::orca::oob` has the protocol and runs the streams; this module has the thread and
//! opens connections. The streams of a cluster follow its hosts, which the load balancer of the
//! main thread feeds, and end with the cluster.

use std::error::Error;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use arc_swap::ArcSwap;
use http::uri::Scheme;
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use plimsoll_core::snapshot::RoutingSnapshot;
use plimsoll_xds::orca::oob::{Connect, OobStats, OobStream, OobStreams, RequestSender};
use tokio::net::TcpStream;
use tokio::runtime;

/// Time for connecting and for the HTTP/2 handshake.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Opens connections over plain text.
#[derive(Clone, Copy)]
struct PlainText;

/// Starts the streams of a cluster for the hosts of a snapshot, if the cluster's policies ask for
/// out-of-band reports.
pub fn start(
    routing: Arc<RoutingSnapshot>,
    stats: Arc<ArcSwap<OobStats>>,
    seed: u64,
) -> io::Result<Option<OobStreams>> {
    let Some((streams, task)) = OobStreams::new(routing, PlainText, stats, seed) else {
        return Ok(None);
    };
    shared_thread()?.spawn(task);
    Ok(Some(streams))
}

impl Connect for PlainText {
    fn scheme(&self) -> Scheme {
        Scheme::HTTP
    }

    async fn connect(
        &self,
        stream: &OobStream,
        _: Arc<str>,
    ) -> Result<RequestSender, Box<dyn Error + Send + Sync>> {
        let connected = tokio::time::timeout(CONNECT_TIMEOUT, async {
            let socket = TcpStream::connect(stream.dial).await?;
            socket.set_nodelay(true)?;
            let handshake = http2::handshake(TokioExecutor::new(), TokioIo::new(socket));
            Ok::<_, Box<dyn Error + Send + Sync>>(handshake.await?)
        });
        let (sender, connection) = connected.await??;
        // Ends when the stream does.
        tokio::spawn(connection);
        Ok(sender)
    }
}

/// Returns the runtime of the thread that runs all streams; the first call starts it. It runs until
/// the process exits, and a panic in a task ends the streams of one cluster only.
fn shared_thread() -> io::Result<runtime::Handle> {
    static RUNTIME: Mutex<Option<runtime::Handle>> = Mutex::new(None);
    let mut running = RUNTIME.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(handle) = &*running {
        return Ok(handle.clone());
    }
    let runtime = runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let handle = runtime.handle().clone();
    let thread = thread::Builder::new().name("plimsoll-oob".to_owned());
    thread.spawn(move || runtime.block_on(std::future::pending::<()>()))?;
    *running = Some(handle.clone());
    Ok(handle)
}

#[cfg(test)]
mod tests;
