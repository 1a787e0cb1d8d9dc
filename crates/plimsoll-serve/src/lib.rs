//! Common parts of Plimsoll's servers: configuration reload, admin listener, startup and shutdown.
//!
//! [`FileSource`] polls configuration files and [`Reloads`] records the outcome of each reload.
//! [`AdminRouter`] builds the admin API from a table of its paths and protects it from cross-site
//! requests. A server shuts down when its [`CancellationToken`] is canceled. The control plane, the
//! proxy and the demo use this crate; they parse the files and implement the admin pages.

mod access;
mod admin;
mod files;
mod http_guard;
mod log_lines;
mod reloads;
mod run;
mod server;

pub use access::AdminToken;
pub use admin::{AdminFormat, AdminOptions, AdminPath, AdminRouter, guarded, text_error};
pub use files::{ConfigFile, FileError, FileSource, Files, Loader, read_file};
#[doc(hidden)]
pub use log_lines::LOG_LINES;
pub use reloads::{ReloadCounts, Reloads};
pub use run::{RunError, bind, bind_shared, error_chain, find_sockets};
pub use server::{local, serve, serve_until_replaced};
/// Token that is canceled when a server begins to shut down.
pub use tokio_util::sync::CancellationToken;
