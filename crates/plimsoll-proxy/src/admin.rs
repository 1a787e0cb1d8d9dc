//! Admin pages, in Envoy's words.
//!
//! Reading changes nothing; what does (`/quitquitquit`, `/logging`) must be posted.

mod pages;

use std::sync::Arc;

use axum::Router;
use axum::routing::{get, post};
use tokio::net::TcpListener;
use tokio::sync::mpsc;

use crate::run::SetLogging;
use crate::state::State;

/// What a page needs.
#[derive(Clone)]
pub(crate) struct Admin {
    pub(crate) state: Arc<State>,
    pub(crate) quit: mpsc::Sender<()>,
    pub(crate) logging: Option<SetLogging>,
}

/// Serves pages until the task is aborted.
pub(crate) async fn serve(
    listener: TcpListener,
    state: Arc<State>,
    quit: mpsc::Sender<()>,
    logging: Option<SetLogging>,
) {
    let admin = Admin {
        state,
        quit,
        logging,
    };
    if let Err(error) = axum::serve(listener, router(admin)).await {
        tracing::error!(%error, "the admin pages are gone");
    }
}

fn router(admin: Admin) -> Router {
    Router::new()
        .route("/", get(pages::index))
        .route("/ready", get(pages::ready))
        .route("/server_info", get(pages::server_info))
        .route("/stats", get(pages::stats))
        .route("/stats/prometheus", get(pages::prometheus))
        .route("/clusters", get(pages::clusters))
        .route("/config_dump", get(pages::config_dump))
        .route("/listeners", get(pages::listeners))
        .route("/explain", get(pages::explain))
        .route("/logging", post(pages::logging))
        .route("/quitquitquit", post(pages::quit))
        .with_state(admin)
}
