//! The admin API: what the control plane knows, as JSON over HTTP.
//!
//! Pages are made in `report` from the state, which the writer shows between two messages;
//! `plimsoll_control::explain` answers why and what if; `metrics` is the page for Prometheus.
//! Nothing can be changed here, and pages of the web are kept away (`HttpGuard`). Whoever starts
//! the control plane may add pages of their own, the dashboard for one.

mod failure;
mod metrics;
mod reloads;
mod report;
mod routes;

use std::sync::Arc;

use axum::Router;
use plimsoll_xds::driver::HttpGuard;
use tokio::net::TcpListener;

pub use metrics::{METRICS, Metric};
pub use reloads::{Counts, Reloads};
pub use report::{delivery, mode_name};
pub use routes::PATHS;

use crate::run::Bound;
use crate::server::Handle;

/// What the API needs.
#[derive(Clone, Debug)]
pub struct Admin {
    handle: Handle,
    reloads: Arc<Reloads>,
    bound: Bound,
    pages: Option<Router>,
    guard: Arc<HttpGuard>,
}

impl Admin {
    /// An API about the control plane behind `handle`.
    pub fn new(handle: Handle, reloads: Arc<Reloads>, bound: Bound) -> Self {
        Self {
            handle,
            reloads,
            bound,
            pages: None,
            guard: Arc::default(),
        }
    }

    /// The same with further pages, which have `/` for themselves.
    #[must_use]
    pub fn with_pages(self, pages: Option<Router>) -> Self {
        Self { pages, ..self }
    }

    /// The same under further names.
    #[must_use]
    pub fn with_guard(self, guard: HttpGuard) -> Self {
        let guard = Arc::new(guard);
        Self { guard, ..self }
    }
}

/// Serves until `shutdown` is done.
pub async fn serve(
    listener: TcpListener,
    admin: Admin,
    shutdown: impl Future<Output = ()> + Send + 'static,
) {
    let served = axum::serve(listener, routes::router(admin)).with_graceful_shutdown(shutdown);
    if let Err(error) = served.await {
        tracing::error!(%error, "the admin API ended");
    }
}

#[cfg(test)]
mod tests;
