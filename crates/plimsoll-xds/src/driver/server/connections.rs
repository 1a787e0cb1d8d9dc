//! Serves HTTP/2 connections, each in a task of its own, until they end or must end.
//!
//! tonic's server limits the age of connections too, but to one age for all: clients that connect
//! together after a restart would come back together, again and again. Here each connection has its
//! own end, which [`Accept`] sets.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use http::{Request, Response};
use hyper::body::Incoming;
use hyper::server::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tonic::Status;
use tonic::body::Body;

use super::{ClientInfo, ServerOptions};
use crate::driver::accept::{Accept, Connection};

/// Why the streams of a connection must end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    No,
    /// It is as old as it may get.
    Age,
    Shutdown,
}

impl Ending {
    /// Resolves when the streams must end, with their status.
    pub(super) async fn wait(ending: &mut watch::Receiver<Self>) -> Status {
        let why = ending.wait_for(|why| *why != Self::No).await;
        // An error means that the connection was dropped.
        match why.as_deref() {
            Ok(Self::Age) => Status::unavailable(
                "the connection is as old as it may get (max_connection_age), or its certificate \
                 has expired: connect again",
            ),
            _ => Status::unavailable("server is shutting down"),
        }
    }
}

/// Serves connections until `stopping` is set; then closes the listener, sends GOAWAY on every
/// connection and returns when all are closed. `service` creates the service of one connection.
pub(super) async fn serve<S>(
    mut listener: impl Accept,
    options: &ServerOptions,
    stopping: watch::Receiver<bool>,
    service: impl Fn(ClientInfo, watch::Receiver<Ending>) -> S,
) where
    S: hyper::service::Service<
            Request<Incoming>,
            Response = Response<Body>,
            Error = Infallible,
            Future: Send,
        > + Send
        + 'static,
{
    let transport = Arc::new(transport(options));
    let drain_timeout = options.drain_timeout;
    let mut stopped = stopping.clone();
    let mut connections = JoinSet::new();
    loop {
        let connection = tokio::select! {
            connection = listener.accept() => connection,
            // An error means that the sender was dropped, which is a shutdown too.
            _ = stopped.wait_for(|stop| *stop) => break,
            Some(_) = connections.join_next() => continue,
        };
        let (ending, endings) = watch::channel(Ending::No);
        let service = service(connection.client.clone(), endings);
        connections.spawn(run(
            connection,
            Arc::clone(&transport),
            service,
            ending,
            stopping.clone(),
            drain_timeout,
        ));
    }
    drop(listener);
    while connections.join_next().await.is_some() {}
}

async fn run<S>(
    connection: Connection,
    transport: Arc<http2::Builder<TokioExecutor>>,
    service: S,
    ending: watch::Sender<Ending>,
    mut stopping: watch::Receiver<bool>,
    drain_timeout: Duration,
) where
    S: hyper::service::Service<
            Request<Incoming>,
            Response = Response<Body>,
            Error = Infallible,
            Future: Send,
        > + Send
        + 'static,
{
    let Connection {
        socket, ends_at, ..
    } = connection;
    let serving = transport.serve_connection(TokioIo::new(socket), service);
    let mut serving = std::pin::pin!(serving);
    let age = async {
        match ends_at {
            Some(at) => tokio::time::sleep_until(at).await,
            None => std::future::pending().await,
        }
    };
    let why = tokio::select! {
        _ = &mut serving => return,
        () = age => Ending::Age,
        _ = stopping.wait_for(|stop| *stop) => Ending::Shutdown,
    };
    // GOAWAY first: a client whose stream ends opens the next one on another connection.
    serving.as_mut().graceful_shutdown();
    ending.send_replace(why);
    // A client that does not read or answer is cut off.
    let _ = tokio::time::timeout(drain_timeout, serving).await;
}

fn transport(options: &ServerOptions) -> http2::Builder<TokioExecutor> {
    let mut builder = http2::Builder::new(TokioExecutor::new());
    builder
        .timer(TokioTimer::new())
        .keep_alive_interval(options.keepalive_interval)
        .keep_alive_timeout(options.keepalive_timeout)
        .initial_connection_window_size(options.connection_window)
        .initial_stream_window_size(options.stream_window)
        .max_concurrent_streams(options.max_concurrent_streams);
    builder
}
