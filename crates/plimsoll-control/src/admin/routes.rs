//! Paths of the admin API and their answers' shapes: status codes, errors, query strings.

use axum::extract::{Query, State as Extracted};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use plimsoll_core::model::locality::Locality;
use plimsoll_core::units::FieldError;
use serde_json::{Value, json};

use super::{Admin, metrics, report};
use crate::explain::{Question, explain};
use crate::server::Stopped;
use crate::state::State;

/// Everything that is served.
pub(super) fn router(admin: Admin) -> Router {
    Router::new()
        .route("/", get(index))
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/readyz", get(ready))
        .route("/metrics", get(metrics_page))
        .route("/api/v1/status", get(status))
        .route("/api/v1/fleets", get(fleets))
        .route("/api/v1/nodes", get(nodes))
        .route("/api/v1/clusters", get(clusters))
        .route("/api/v1/explain", get(explain_page))
        .route("/api/v1/what-if", post(what_if))
        .with_state(admin)
}

/// What went wrong, as JSON.
struct Failure(StatusCode, String);

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        (self.0, Json(json!({ "error": self.1 }))).into_response()
    }
}

impl From<Stopped> for Failure {
    fn from(stopped: Stopped) -> Self {
        Self(StatusCode::SERVICE_UNAVAILABLE, stopped.to_string())
    }
}

impl From<FieldError> for Failure {
    fn from(error: FieldError) -> Self {
        Self(StatusCode::BAD_REQUEST, error.to_string())
    }
}

async fn index() -> Json<Value> {
    Json(json!({
        "paths": [
            "/healthz", "/readyz", "/metrics", "/api/v1/status", "/api/v1/fleets",
            "/api/v1/nodes", "/api/v1/clusters", "/api/v1/explain?cluster=NAME&zone=ZONE",
            "/api/v1/what-if",
        ],
    }))
}

/// Ready is who can answer: the writer is alive and has a configuration. A lost server behind a
/// relay is told but changes nothing: proxies keep what they have, and demand still reaches them.
async fn ready(Extracted(admin): Extracted<Admin>) -> Result<String, Failure> {
    let relayed = |state: &State, _| state.config().relay.is_some();
    if !admin.handle.inspect(relayed).await? {
        return Ok("ready\n".to_owned());
    }
    let relay = admin.handle.upstreams().status();
    let (connected, streams) = (relay.connected, relay.streams);
    Ok(format!(
        "ready\nrelay: {connected} of {streams} streams connected\n"
    ))
}

async fn metrics_page(Extracted(admin): Extracted<Admin>) -> Result<Response, Failure> {
    let text = metrics::page(&admin).await?;
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    Ok(([(header::CONTENT_TYPE, kind)], text).into_response())
}

async fn status(Extracted(admin): Extracted<Admin>) -> Result<Json<Value>, Failure> {
    let reloads = admin.reloads.counts();
    let streams = admin.handle.records().len();
    let upstreams = admin.handle.upstreams().status();
    let bound = admin.bound;
    let page = admin
        .handle
        .inspect(move |state, _| report::status(state, &reloads, (streams, &upstreams), bound));
    Ok(Json(page.await?))
}

async fn fleets(Extracted(admin): Extracted<Admin>) -> Result<Json<Value>, Failure> {
    Ok(Json(admin.handle.inspect(report::fleets).await?))
}

#[derive(Debug, Default, serde::Deserialize)]
#[serde(default, deny_unknown_fields)]
struct NodesQuery {
    fleet: Option<String>,
    id: Option<String>,
    offset: usize,
    limit: Option<usize>,
}

async fn nodes(
    Extracted(admin): Extracted<Admin>,
    Query(query): Query<NodesQuery>,
) -> Result<Json<Value>, Failure> {
    let records = admin.handle.records().all();
    let page = report::Page {
        fleet: query.fleet,
        id: query.id,
        offset: query.offset,
        limit: query.limit.unwrap_or(1000).min(10_000),
    };
    let look = move |state: &_, now| report::nodes(state, &records, &page, now);
    Ok(Json(admin.handle.inspect(look).await?))
}

async fn clusters(Extracted(admin): Extracted<Admin>) -> Result<Json<Value>, Failure> {
    Ok(Json(admin.handle.inspect(report::clusters).await?))
}

#[derive(Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct ExplainQuery {
    cluster: String,
    fleet: Option<String>,
    #[serde(default)]
    region: String,
    zone: Option<String>,
    #[serde(default)]
    sub_zone: String,
}

impl ExplainQuery {
    fn question(self) -> Question {
        let Self {
            region, sub_zone, ..
        } = &self;
        let locality = self.zone.as_ref();
        Question {
            locality: locality.map(|zone| Locality::new(region, zone, sub_zone)),
            cluster: self.cluster,
            fleet: self.fleet,
            ..Question::default()
        }
    }
}

async fn explain_page(
    Extracted(admin): Extracted<Admin>,
    Query(query): Query<ExplainQuery>,
) -> Result<Json<Value>, Failure> {
    let question = query.question();
    let explanation = admin
        .handle
        .inspect(move |state, _| explain(state, &question))
        .await??;
    Ok(Json(json!(explanation)))
}

#[derive(Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct WhatIfBody {
    cluster: String,
    fleet: Option<String>,
    #[serde(default)]
    hosts: std::collections::BTreeMap<String, u32>,
    #[serde(default)]
    demand: std::collections::BTreeMap<String, f64>,
}

/// Shares before and after a change that nobody has made.
async fn what_if(
    Extracted(admin): Extracted<Admin>,
    Json(body): Json<WhatIfBody>,
) -> Result<Json<Value>, Failure> {
    let before = Question {
        cluster: body.cluster,
        fleet: body.fleet,
        ..Question::default()
    };
    let after = Question {
        hosts: body.hosts,
        demand: body.demand,
        ..before.clone()
    };
    let look = move |state: &_, _| -> Result<_, FieldError> {
        Ok((explain(state, &before)?, explain(state, &after)?))
    };
    let (before, after) = admin.handle.inspect(look).await??;
    Ok(Json(report::what_if(&before, &after)))
}
