//! Common parts of Plimsoll's servers: configuration reload, admin listener, startup and shutdown.
//!
//! [`FileSource`] polls configuration files and [`Reloads`] records the outcome of each reload.
//! [`AdminRouter`] builds the admin API from a table of its paths and protects it from cross-site
//! requests; [`fetch`] reads a page of one. [`otlp`] has the messages around exported metrics and
//! spans. [`discovery`] and [`http_client`] are for sources of services. A server shuts down when its [`CancellationToken`] is canceled. The control plane, the
//! proxy and the demo use this crate; they parse the files and implement the admin pages.

mod accept;
mod access;
mod admin;
mod appended;
pub mod discovery;
mod expiry;
pub mod fetch;
mod files;
mod handshake;
pub mod http_client;
mod http_guard;
mod identity;
mod incoming;
mod log_lines;
pub mod otlp;
mod pretty;
mod reloads;
mod run;
mod server;
mod tls;

pub use accept::{AcceptRetry, ConnectionLimits, ConnectionStats, LogLimit, peer_of};
pub use access::{AdminToken, Administrators, Caller};
pub use admin::{
    AdminAccess, AdminFormat, AdminOptions, AdminPath, AdminRouter, guarded, text_error,
};
pub use appended::AppendedFile;
pub use expiry::{CertificateUse, Expiry};
pub use files::{ConfigFile, FileError, FileSource, Files, Loader, read_file};
pub use handshake::{FailedHandshake, HandshakeFailure};
pub use identity::PeerIdentity;
pub use incoming::{AcceptedConnection, Incoming, IncomingOptions, ServerStream};
#[doc(hidden)]
pub use log_lines::LOG_LINES;
pub use reloads::{ReloadCounts, Reloads};
pub use run::{RunError, bind, bind_shared, error_chain, find_sockets, same_socket};
pub use server::{AdminListener, local, serve, serve_until_replaced};
pub use tls::{
    ClientTlsSettings, PemSource, ServerTls, ServerTlsSettings, TlsError, WatchedTls, client_tls,
    server_tls, server_tls_without_resumption,
};
/// Token that is canceled when a server begins to shut down.
pub use tokio_util::sync::CancellationToken;
