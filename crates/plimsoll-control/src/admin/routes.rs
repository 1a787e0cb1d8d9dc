//! Paths of the admin API, and the way from a request to a question.
//!
//! Nothing can be changed here: every path is for reading, and `what-if` is posted only because its
//! question may be long. Answers are made in `report`, errors in `failure`.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::rejection::{BytesRejection, QueryRejection};
use axum::extract::{DefaultBodyLimit, Query, Request, State as Extracted};
use axum::http::{Method, StatusCode, Uri, header};
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use plimsoll_core::model::locality::Locality;
use plimsoll_core::units::FieldError;
use plimsoll_xds::driver::AdminPath;
use serde_json::{Value, json};

use super::failure::{Failure, body_error};
use super::{Admin, metrics, report};
use crate::explain::{Question, explain};
use crate::state::State;
use crate::unreported::{Subscriptions, Unreported};

/// The largest question: a what-if about thousands of zones fits.
const MAX_BODY_BYTES: usize = 256 << 10;
/// Entries of a list when nobody says how many.
const DEFAULT_LIMIT: usize = 100;
/// Entries of a list at most: the control plane waits while a page is made.
const MAX_LIMIT: usize = 1000;

type Page = Result<Json<Value>, Failure>;

/// Every path, but for those of the dashboard.
#[rustfmt::skip]
pub const PATHS: [AdminPath; 10] = [
    AdminPath::get("/api/v1", "", "A list of these paths"),
    AdminPath::get("/healthz", "", "`ok` while the process answers"),
    AdminPath::get("/readyz", "",
        "`ready` when there is a configuration and the writer answers, else 503"),
    AdminPath::get("/metrics", "", "Metrics, as OpenMetrics text"),
    AdminPath::get("/api/v1/status", "", "Version, addresses, configuration in force, streams"),
    AdminPath::get("/api/v1/fleets", "fleet=FLEET",
        "Demand by fleet and zone: measured, smoothed, delivered"),
    AdminPath::get("/api/v1/nodes", "fleet=FLEET&id=ID&offset=0&limit=100",
        "Nodes, what each was sent, accepted and refused"),
    AdminPath::get("/api/v1/clusters", "cluster=CLUSTER&fleet=FLEET&offset=0&limit=100",
        "Services: policy, endpoints by locality, delivery, and who sends to whom"),
    AdminPath::get("/api/v1/explain", "cluster=CLUSTER&fleet=FLEET&zone=ZONE",
        "Why proxies of a zone send where they send"),
    AdminPath::post("/api/v1/what-if", "",
        "Shares now, and after a change that nobody has made"),
];

/// Everything that is served.
pub(super) fn router(admin: Admin) -> Router {
    let guard = Arc::clone(&admin.guard);
    let first = match admin.pages.clone() {
        Some(pages) => pages,
        None => Router::new().route("/", get(index)),
    };
    Router::new()
        .route("/api/v1", get(index))
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/readyz", get(ready))
        .route("/metrics", get(metrics_page))
        .route("/api/v1/status", get(status))
        .route("/api/v1/fleets", get(fleets))
        .route("/api/v1/nodes", get(nodes))
        .route("/api/v1/clusters", get(clusters))
        .route("/api/v1/explain", get(explain_page))
        .route("/api/v1/what-if", post(what_if))
        .fallback(|uri: Uri| async move {
            let error = format!("there is no {}; /api/v1 lists what there is", uri.path());
            Failure::new(StatusCode::NOT_FOUND, error)
        })
        .method_not_allowed_fallback(|method: Method, uri: Uri| async move {
            let error = format!("{method} is not for {}", uri.path());
            Failure::new(StatusCode::METHOD_NOT_ALLOWED, error)
        })
        .layer(DefaultBodyLimit::max(MAX_BODY_BYTES))
        .with_state(admin)
        .merge(first)
        .layer(from_fn(move |request: Request, next: Next| {
            let checked = guard.check(&request);
            async move {
                match checked {
                    Ok(()) => next.run(request).await,
                    Err(why) => Failure::new(StatusCode::FORBIDDEN, why).into_response(),
                }
            }
        }))
}

async fn index() -> Json<Value> {
    let written = |path: &AdminPath| {
        let AdminPath { path, query, .. } = path;
        let mark = if query.is_empty() { "" } else { "?" };
        let posted = if path.ends_with("what-if") {
            " (POST)"
        } else {
            ""
        };
        format!("{path}{mark}{query}{posted}")
    };
    let paths = PATHS.iter().filter(|path| path.path != "/api/v1");
    Json(json!({ "paths": paths.map(written).collect::<Vec<_>>() }))
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

async fn status(Extracted(admin): Extracted<Admin>) -> Page {
    let reloads = admin.reloads.counts();
    let streams = admin.handle.records().len();
    let upstreams = admin.handle.upstreams().status();
    let bound = admin.bound;
    let page = admin
        .handle
        .inspect(move |state, _| report::status(state, &reloads, (streams, &upstreams), bound));
    Ok(Json(page.await?))
}

#[derive(Debug, Default, serde::Deserialize)]
#[serde(default, deny_unknown_fields)]
struct FleetsQuery {
    fleet: Option<String>,
}

async fn fleets(
    Extracted(admin): Extracted<Admin>,
    query: Result<Query<FleetsQuery>, QueryRejection>,
) -> Page {
    let Query(FleetsQuery { fleet }) = query?;
    let look = move |state: &_, now| report::fleets(state, fleet.as_deref(), now);
    Ok(Json(admin.handle.inspect(look).await?))
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
    query: Result<Query<NodesQuery>, QueryRejection>,
) -> Page {
    let Query(query) = query?;
    let page = report::Page {
        fleet: query.fleet,
        name: query.id,
        offset: query.offset,
        limit: limit(query.limit)?,
    };
    let records = admin.handle.records().all();
    let subscriptions = Subscriptions::of(admin.handle.records());
    let look = move |state: &State, now| {
        let unreported = Unreported::new(state, &subscriptions, now);
        report::nodes(state, (&records, &unreported), &page, now)
    };
    Ok(Json(admin.handle.inspect(look).await?))
}

#[derive(Debug, Default, serde::Deserialize)]
#[serde(default, deny_unknown_fields)]
struct ClustersQuery {
    cluster: Option<String>,
    fleet: Option<String>,
    offset: usize,
    limit: Option<usize>,
}

async fn clusters(
    Extracted(admin): Extracted<Admin>,
    query: Result<Query<ClustersQuery>, QueryRejection>,
) -> Page {
    let Query(query) = query?;
    let page = report::Page {
        fleet: query.fleet,
        name: query.cluster,
        offset: query.offset,
        limit: limit(query.limit)?,
    };
    let look = move |state: &_, now| report::clusters(state, &page, now);
    Ok(Json(admin.handle.inspect(look).await?))
}

fn limit(asked: Option<usize>) -> Result<usize, FieldError> {
    let limit = asked.unwrap_or(DEFAULT_LIMIT);
    match (1..=MAX_LIMIT).contains(&limit) {
        true => Ok(limit),
        false => {
            let reason = format!("{limit} is not between 1 and {MAX_LIMIT}");
            Err(FieldError::new("limit", reason))
        }
    }
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
    fn question(self) -> Result<Question, FieldError> {
        let parts = [("region", &self.region), ("sub_zone", &self.sub_zone)];
        let lone = parts.iter().find(|(_, part)| !part.is_empty());
        let locality = match (&self.zone, lone) {
            (Some(zone), _) => Some(Locality::new(&self.region, zone, &self.sub_zone)),
            (None, None) => None,
            (None, Some((field, _))) => {
                return Err(FieldError::new(*field, "needs zone beside it"));
            }
        };
        Ok(Question {
            locality,
            cluster: self.cluster,
            fleet: self.fleet,
            ..Question::default()
        })
    }
}

async fn explain_page(
    Extracted(admin): Extracted<Admin>,
    query: Result<Query<ExplainQuery>, QueryRejection>,
) -> Page {
    let Query(query) = query?;
    let question = query.question()?;
    let explanation = admin
        .handle
        .inspect(move |state, now| explain(state, &question, now))
        .await??;
    Ok(Json(json!(explanation)))
}

#[derive(Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct WhatIfBody {
    cluster: String,
    fleet: Option<String>,
    #[serde(default)]
    hosts: BTreeMap<String, u32>,
    #[serde(default)]
    demand: BTreeMap<String, f64>,
}

/// Shares before and after a change that nobody has made.
async fn what_if(Extracted(admin): Extracted<Admin>, body: Result<Bytes, BytesRejection>) -> Page {
    let bytes = body?;
    let mut json = serde_json::Deserializer::from_slice(&bytes);
    let body: WhatIfBody = serde_path_to_error::deserialize(&mut json).map_err(body_error)?;
    let before = Question {
        cluster: body.cluster,
        fleet: body.fleet,
        every_zone: true,
        ..Question::default()
    };
    let after = Question {
        hosts: body.hosts,
        demand: body.demand,
        ..before.clone()
    };
    let look = move |state: &_, now| -> Result<_, FieldError> {
        let [before, after] = [&before, &after].map(|asked| explain(state, asked, now));
        Ok((before?, after?))
    };
    let (before, after) = admin.handle.inspect(look).await??;
    Ok(Json(report::what_if(&before, &after)))
}
