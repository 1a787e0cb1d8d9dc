//! [`Dashboard`]: the paths of the page, for a host to mount at its root.
//!
//! `/` is the page, `/dashboard/…` what it loads and asks. Documents come from the `feed`, files
//! from `assets`; questions and actions go to the source as they are.

use std::sync::Arc;

use axum::body::{Body, Bytes};
use axum::extract::{DefaultBodyLimit, Path, State as Extracted};
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use serde::de::DeserializeOwned;
use serde_json::json;

use crate::assets::{Asset, FILES, HEADERS, INDEX};
use crate::feed::Feed;
use crate::source::{Ended, Refused, Source};

/// The largest question: a what-if about thousands of zones fits.
const MAX_BODY_BYTES: usize = 256 << 10;

/// The dashboard of one host.
#[derive(Clone)]
pub struct Dashboard {
    source: Arc<dyn Source>,
    feed: Arc<Feed>,
}

impl std::fmt::Debug for Dashboard {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Dashboard")
    }
}

impl Dashboard {
    /// A dashboard of what `source` says.
    pub fn new(source: impl Source) -> Self {
        let source: Arc<dyn Source> = Arc::new(source);
        Self {
            feed: Arc::new(Feed::new(Arc::clone(&source))),
            source,
        }
    }

    /// Its paths: `/` and everything under `/dashboard/`.
    pub fn router(self) -> Router {
        Router::new()
            .route("/", get(|| async { INDEX }))
            .route("/dashboard/events", get(events))
            .route("/dashboard/state", get(state))
            .route("/dashboard/explain", post(explain))
            .route("/dashboard/what-if", post(what_if))
            .route("/dashboard/actions/{name}", post(act))
            .route("/dashboard/{file}", get(file))
            .layer(DefaultBodyLimit::max(MAX_BODY_BYTES))
            .with_state(self)
    }
}

/// Why there is no answer.
struct Failure(StatusCode, Refused);

impl From<Refused> for Failure {
    fn from(refused: Refused) -> Self {
        Self(StatusCode::BAD_REQUEST, refused)
    }
}

impl From<Ended> for Failure {
    fn from(_: Ended) -> Self {
        let refused = Refused::new("the host is shutting down");
        Self(StatusCode::SERVICE_UNAVAILABLE, refused)
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let Self(status, Refused { error, field }) = self;
        let body = json!({ "error": error, "field": field });
        (status, HEADERS, Json(body)).into_response()
    }
}

async fn file(Path(name): Path<String>) -> Result<Asset, Failure> {
    let mut files = FILES.into_iter();
    let found = files.find(|file| file.name == name);
    found.ok_or_else(|| {
        let refused = Refused::new(format!("there is no /dashboard/{name}"));
        Failure(StatusCode::NOT_FOUND, refused)
    })
}

/// What viewers see, once.
async fn state(Extracted(dashboard): Extracted<Dashboard>) -> Result<Response, Failure> {
    let state = dashboard.source.state().await?;
    Ok((HEADERS, Json(&*state)).into_response())
}

/// What viewers see, and what becomes of it.
async fn events(Extracted(dashboard): Extracted<Dashboard>) -> Response {
    let body = Body::from_stream(dashboard.feed.subscribe());
    let content_type = [(CONTENT_TYPE, "text/event-stream")];
    (HEADERS, content_type, body).into_response()
}

async fn act(
    Extracted(dashboard): Extracted<Dashboard>,
    Path(name): Path<String>,
    headers: HeaderMap,
) -> Result<Response, Failure> {
    same_page(&headers)?;
    tracing::info!(action = %name, "a viewer of the dashboard asked for this");
    let done = dashboard.source.act(name).await?;
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
    same_page(headers)?;
    let read = serde_json::from_slice(body);
    read.map_err(|error| Refused::new(error.to_string()).into())
}

/// A page of another origin can post what a form can post. JSON it can only send after asking,
/// which nobody here answers.
fn same_page(headers: &HeaderMap) -> Result<(), Failure> {
    let sent = headers.get(CONTENT_TYPE).map(HeaderValue::as_bytes);
    match sent.is_some_and(|kind| kind.starts_with(b"application/json")) {
        true => Ok(()),
        false => {
            let refused = Refused::new("content-type must be application/json");
            Err(Failure(StatusCode::UNSUPPORTED_MEDIA_TYPE, refused))
        }
    }
}
