//! [`Dashboard`]: HTTP routes of the dashboard, to be mounted at the root of an admin listener.
//!
//! `/` is the page, `/dashboard/…` its files and API. `feed` provides the JSON documents, `assets`
//! the files; what-ifs, explanations and actions are forwarded to the [`Source`].

use std::sync::Arc;

use axum::body::{Body, Bytes};
use axum::extract::rejection::QueryRejection;
use axum::extract::{Path, Query, State as Extracted};
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use plimsoll_core::log_line;
use serde::de::DeserializeOwned;
use serde_json::json;

use crate::assets::{Asset, FILES, HEADERS, INDEX};
use crate::feed::Feed;
use crate::history::{History, HistoryQuery, record_until_closed};
use crate::log_lines;
use crate::source::{Rejection, ShuttingDown, Source};

/// Path of the history: path, query and description, for lists of paths.
pub const HISTORY_PATH: (&str, &str, &str) = (
    "/api/v1/history",
    "cluster=CLUSTER&fleet=FLEET&range=1h&step=30s",
    "The last hour: load, demand and traffic of clusters and, with `cluster`, of its zones; events",
);

/// Path of the dashboard's document, as [`HISTORY_PATH`].
pub const STATE_PATH: (&str, &str, &str) = (
    "/dashboard/state",
    "",
    "What the dashboard and `plimsoll top` show; at most a second old",
);

/// The dashboard of one control plane, proxy or demo.
#[derive(Clone)]
pub struct Dashboard {
    source: Arc<dyn Source>,
    feed: Arc<Feed>,
    history: Arc<History>,
}

impl std::fmt::Debug for Dashboard {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Dashboard")
    }
}

impl Dashboard {
    /// Creates a dashboard that shows the JSON documents of `source`.
    pub fn new(source: impl Source) -> Self {
        let source: Arc<dyn Source> = Arc::new(source);
        Self {
            feed: Arc::new(Feed::new(Arc::clone(&source))),
            history: Arc::default(),
            source,
        }
    }

    /// Starts to record the documents of the source every few seconds, until it shuts down. Must be
    /// called within a Tokio runtime.
    #[must_use]
    pub fn recording(self) -> Self {
        let (source, history) = (Arc::clone(&self.source), Arc::clone(&self.history));
        tokio::spawn(record_until_closed(source, history));
        self
    }

    /// Returns what was recorded.
    pub const fn history(&self) -> &Arc<History> {
        &self.history
    }

    /// Returns the routes: `/`, the history, and everything under `/dashboard/`.
    pub fn router(self) -> Router {
        Router::new()
            .route("/", get(|| async { INDEX }))
            .route(HISTORY_PATH.0, get(history))
            .route("/dashboard/events", get(events))
            .route(STATE_PATH.0, get(state))
            .route("/dashboard/explain", post(explain))
            .route("/dashboard/what-if", post(what_if))
            .route("/dashboard/actions/{name}", post(act))
            .route("/dashboard/{file}", get(file))
            .with_state(self)
    }
}

/// An error response: HTTP status, reason, and the field that caused it.
struct Failure(StatusCode, Rejection);

impl From<Rejection> for Failure {
    fn from(rejection: Rejection) -> Self {
        Self(StatusCode::BAD_REQUEST, rejection)
    }
}

impl From<ShuttingDown> for Failure {
    fn from(_: ShuttingDown) -> Self {
        let rejection = Rejection::new("the host is shutting down");
        Self(StatusCode::SERVICE_UNAVAILABLE, rejection)
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let Self(status, Rejection { error, field }) = self;
        let body = json!({ "error": error, "field": field });
        (status, HEADERS, Json(body)).into_response()
    }
}

async fn file(Path(name): Path<String>) -> Result<Asset, Failure> {
    let found = FILES.into_iter().find(|file| file.name == name);
    found.ok_or_else(|| {
        let rejection = Rejection::new(format!("/dashboard/{name} not found"));
        Failure(StatusCode::NOT_FOUND, rejection)
    })
}

/// Serves the JSON document once, at most a second old.
async fn state(Extracted(dashboard): Extracted<Dashboard>) -> Result<Response, Failure> {
    let state = dashboard.feed.document().await?;
    Ok((HEADERS, Json(&*state)).into_response())
}

/// Serves the recorded values.
async fn history(
    Extracted(dashboard): Extracted<Dashboard>,
    query: Result<Query<HistoryQuery>, QueryRejection>,
) -> Result<Response, Failure> {
    let Query(query) = query.map_err(|error| Rejection::new(error.body_text()))?;
    let answer = dashboard.history.response(&query)?;
    Ok((HEADERS, Json(answer)).into_response())
}

/// Streams the JSON document and its changes as server-sent events.
async fn events(Extracted(dashboard): Extracted<Dashboard>) -> Result<Response, Failure> {
    let events = dashboard.feed.subscribe().ok_or_else(|| {
        let rejection = Rejection::new("too many viewers");
        Failure(StatusCode::SERVICE_UNAVAILABLE, rejection)
    })?;
    let content_type = [(CONTENT_TYPE, "text/event-stream")];
    Ok((HEADERS, content_type, Body::from_stream(events)).into_response())
}

async fn act(
    Extracted(dashboard): Extracted<Dashboard>,
    Path(name): Path<String>,
    headers: HeaderMap,
) -> Result<Response, Failure> {
    require_json(&headers)?;
    log_line!(log_lines::ACTION_REQUESTED, action = %name);
    let done = dashboard.source.act(name).await?;
    dashboard.feed.forget().await;
    Ok((HEADERS, Json(json!({ "done": done }))).into_response())
}

async fn what_if(
    Extracted(dashboard): Extracted<Dashboard>,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Response, Failure> {
    let answer = dashboard.source.what_if(question(&headers, &body)?).await?;
    Ok((HEADERS, Json(answer)).into_response())
}

async fn explain(
    Extracted(dashboard): Extracted<Dashboard>,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Response, Failure> {
    let answer = dashboard.source.explain(question(&headers, &body)?).await?;
    Ok((HEADERS, Json(answer)).into_response())
}

fn question<T: DeserializeOwned>(headers: &HeaderMap, body: &[u8]) -> Result<T, Failure> {
    require_json(headers)?;
    serde_json::from_slice(body).map_err(|error| Rejection::new(error.to_string()).into())
}

/// Refuses requests other than JSON. A page of another origin can post forms, but JSON only after a
/// CORS preflight, which this server does not answer.
fn require_json(headers: &HeaderMap) -> Result<(), Failure> {
    let content_type = headers.get(CONTENT_TYPE).map(HeaderValue::as_bytes);
    if content_type.is_some_and(|value| value.starts_with(b"application/json")) {
        return Ok(());
    }
    let rejection = Rejection::new("content-type must be application/json");
    Err(Failure(StatusCode::UNSUPPORTED_MEDIA_TYPE, rejection))
}
