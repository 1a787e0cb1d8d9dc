//! [`Connector`]: who opens the socket to a server, where plain TCP is not enough.
//!
//! This crate knows neither certificates nor addresses; whoever does (the embeddable client) passes
//! one in the options of a connection.

use std::fmt::Debug;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::Uri;
use http::uri::Scheme;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tower_service::Service;

/// A socket, whatever is below it.
pub trait Socket: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Socket for T {}

/// A socket that is being opened.
pub type Connecting = Pin<Box<dyn Future<Output = io::Result<Box<dyn Socket>>> + Send>>;

/// Opens sockets to a server. Asked again for every attempt.
pub trait Connector: Debug + Send + Sync {
    /// Opens a socket to the host and port of `uri`. Dropped when it takes too long.
    fn connect(&self, uri: &Uri) -> Connecting;

    /// What is spoken on it: `https` if it has TLS.
    fn scheme(&self) -> Scheme;
}

/// A connector as the transport wants it.
#[derive(Clone)]
pub(super) struct Sockets(pub(super) Arc<dyn Connector>);

impl Service<Uri> for Sockets {
    type Response = TokioIo<Box<dyn Socket>>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Self::Response>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let connecting = self.0.connect(&uri);
        Box::pin(async move { connecting.await.map(TokioIo::new) })
    }
}
