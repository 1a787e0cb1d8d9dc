//! Admin pages, in Envoy's words.
//!
//! Reading changes nothing; what does (`/quitquitquit`, `/logging`) must be posted, and pages of
//! the web are kept away (`HttpGuard`). Whoever starts the proxy may add pages of their own, the
//! dashboard for one.

mod clusters;
mod config_dump;
mod endpoints;
mod pages;
mod paths;
mod rds;

use std::sync::Arc;

use axum::Router;
use axum::extract::Request;
use axum::http::StatusCode;
use axum::middleware::{Next, from_fn};
use axum::response::IntoResponse as _;
use axum::routing::{get, post};
use plimsoll_xds::driver::HttpGuard;
use tokio::net::TcpListener;
use tokio::sync::mpsc;

pub use paths::PATHS;

use crate::run::SetLogging;
use crate::state::State;

/// What a page needs.
#[derive(Clone)]
pub(crate) struct Admin {
    pub(crate) state: Arc<State>,
    pub(crate) quit: mpsc::Sender<()>,
    pub(crate) logging: Option<SetLogging>,
}

/// Serves pages until the task is aborted; `pages` has `/` for itself.
pub(crate) async fn serve(
    listener: TcpListener,
    admin: Admin,
    pages: Option<Router>,
    guard: HttpGuard,
) {
    let first = pages.unwrap_or_else(|| Router::new().route("/", get(pages::index)));
    let router = router(admin).merge(first);
    let router = router.layer(from_fn(move |request: Request, next: Next| {
        let checked = guard.check(&request);
        async move {
            match checked {
                Ok(()) => next.run(request).await,
                Err(why) => (StatusCode::FORBIDDEN, format!("{why}\n")).into_response(),
            }
        }
    }));
    if let Err(error) = axum::serve(listener, router).await {
        tracing::error!(%error, "the admin pages are gone");
    }
}

fn router(admin: Admin) -> Router {
    Router::new()
        .route("/help", get(pages::index))
        .route("/ready", get(pages::ready))
        .route("/server_info", get(pages::server_info))
        .route("/stats", get(pages::stats))
        .route("/stats/prometheus", get(pages::prometheus))
        .route("/clusters", get(clusters::clusters))
        .route("/config_dump", get(config_dump::config_dump))
        .route("/listeners", get(pages::listeners))
        .route("/explain", get(pages::explain))
        .route("/logging", post(pages::logging))
        .route("/quitquitquit", post(pages::quit))
        .with_state(admin)
}
