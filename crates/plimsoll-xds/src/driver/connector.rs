//! Pluggable connector for sockets to a management server, for example with TLS.
//!
//! This crate knows neither certificates nor DNS; the embeddable client passes a connector in
//! [`ConnectOptions`](super::ConnectOptions).

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

/// Bidirectional byte stream of any kind.
pub trait Socket: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Socket for T {}

/// Future of a socket being opened.
pub type Connecting = Pin<Box<dyn Future<Output = io::Result<Box<dyn Socket>>> + Send>>;

/// Opens sockets to a server, one per connection attempt.
pub trait Connector: Debug + Send + Sync {
    /// Opens a socket to the host and port of `uri`. The future is dropped on timeout.
    fn connect(&self, uri: &Uri) -> Connecting;

    /// Returns the URI scheme: `https` if the socket uses TLS.
    fn scheme(&self) -> Scheme;
}

/// Adapts a [`Connector`] to tonic's transport. The URI of the endpoint must have the scheme
/// `http`: otherwise tonic insists on TLS of its own. Requests have the scheme of its `origin`.
#[derive(Clone, Debug)]
pub struct Sockets(pub Arc<dyn Connector>);

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
