//! Paths and request handlers of the admin API.
//!
//! `reload` and the commands about zones change something; `what-if` is a POST request because its
//! parameters may be long.
//! Responses are built in `report`, error responses in `failure`.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::body::Bytes;
use axum::extract::rejection::{BytesRejection, QueryRejection};
use axum::extract::{Extension, Query, State as Extracted};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use plimsoll_core::model::locality::Locality;
use plimsoll_core::stats::TextFormat;
use plimsoll_core::units::FieldError;
use plimsoll_serve::{AdminFormat, AdminPath, AdminRouter, Caller};
use serde_json::{Value, json};

use super::failure::{ApiError, body_error};
use super::{metrics, report, responses};
use crate::evacuation::{DrainBody, ReturnBody};
use crate::explain::Question;
use crate::load_line::LoadLine;
use crate::replicas::Replicas;
use crate::run::Context;
use crate::state::State;

const DEFAULT_LIMIT: usize = 100;
/// Maximum `limit` of a list: the writer task is blocked while the response is built.
const MAX_LIMIT: usize = 1000;

type ApiResult = Result<Json<Value>, ApiError>;

/// Builds the router; every path except the dashboard's is added here.
#[rustfmt::skip]
pub fn router() -> AdminRouter<Context> {
    let format = AdminFormat {
        index,
        error: |status, error| ApiError::new(status, error).into_response(),
    };
    with_description(AdminRouter::new(format, "/api/v1"))
        .get("/healthz", "", "`ok` if the writer responds within 5 s, else 503", healthy)
        .get("/readyz", "",
            "`ready` when a configuration is active, the services of all sources have been listed \
             and the writer responds, else 503", ready)
        .get("/metrics", "", "Metrics in OpenMetrics format", metrics_page)
        .get("/runbook", "alert=ALERT", "What to do about an alert, or about all", runbook)
        .get("/api/v1/status", "",
            "What is wrong, why and what to do; version, addresses, configuration, streams", status)
        .get("/api/v1/fleets", "fleet=FLEET",
            "Demand by fleet and zone: measured, smoothed, delivered", fleets)
        .get("/api/v1/nodes", "fleet=FLEET&id=ID&offset=0&limit=100",
            "Nodes: identity, deliveries, and versions sent, acknowledged and rejected", nodes)
        .get("/api/v1/replicas", "",
            "Replicas of the control plane, and the store that they share", replicas)
        .get("/api/v1/clusters", "cluster=CLUSTER&fleet=FLEET&offset=0&limit=100",
            "Services: policy, endpoints by locality, deliveries, traffic between zones", clusters)
        .get("/api/v1/load", "cluster=CLUSTER&fleet=FLEET&offset=0&limit=100",
            "Load of every zone: as reported, as routed now, and as ENFORCE would route", load)
        .get("/api/v1/zone-loss", "cluster=CLUSTER&offset=0&limit=100",
            "How full services would be without each of their zones", zone_loss)
        .get("/api/v1/explain", "cluster=CLUSTER&fleet=FLEET&zone=ZONE",
            "Why proxies of a zone route as they do", explain_page)
        .get("/api/v1/audit", "service=SERVICE&offset=0&limit=100",
            "What was changed and refused, by whom, and when proxies had accepted it", audit)
        .get("/api/v1/zones", "",
            "Zones with their state, and why they are out of use", zones)
        .action("/api/v1/zones/drain", "",
            "Takes a zone out of use step by step, or only tells what that would do (`dry_run`). \
             409 if it is refused", drain)
        .action("/api/v1/zones/return", "",
            "Returns a zone to service, by slow start", give_back)
        .post("/api/v1/what-if", "",
            "Traffic shares now and after a hypothetical change", what_if)
        .action("/api/v1/reload", "allow_removal=false",
            "Loads the files now; `allow_removal=true` also if they remove more than \
             `reload.max_removed_percent`. 409 if they are refused", reload)
}

#[cfg(feature = "schema")]
fn with_description(router: AdminRouter<Context>) -> AdminRouter<Context> {
    let about = "OpenAPI 3.1 description of this API, generated from its types";
    router.get("/api/v1/openapi.json", "", about, || async {
        Json(super::openapi::openapi())
    })
}

#[cfg(not(feature = "schema"))]
const fn with_description(router: AdminRouter<Context>) -> AdminRouter<Context> {
    router
}

/// Lists the paths of the API, except the first, which is this list.
fn index(paths: &[AdminPath]) -> Response {
    let written = |path: &AdminPath| {
        let posted = if path.method == "POST" { " (POST)" } else { "" };
        format!("{}{posted}", path.target())
    };
    let paths = paths.iter().skip(1).map(written).collect();
    Json(responses::Index { paths }).into_response()
}

/// How long the writer may take to answer `/healthz`.
const HEALTH_TIMEOUT: Duration = Duration::from_secs(5);

/// Healthy while the writer task responds. A process whose writer hangs or has ended serves nobody
/// and is best restarted.
async fn healthy(Extracted(context): Extracted<Context>) -> Result<&'static str, ApiError> {
    if context.handle.responds(HEALTH_TIMEOUT).await {
        return Ok("ok\n");
    }
    let reason = format!("the writer does not respond within {HEALTH_TIMEOUT:?}");
    Err(ApiError::new(StatusCode::SERVICE_UNAVAILABLE, reason))
}

/// Ready once the writer task responds and has a configuration with all services. The loss of a
/// relayed server, of the store or of a source of services is shown but does not affect readiness:
/// proxies keep their resources and still receive demand, and without the store all replicas would
/// be taken out of service at once.
async fn ready(Extracted(context): Extracted<Context>) -> Result<String, ApiError> {
    let inspect = |state: &State, _| {
        let store = state.replicas().map(Replicas::is_connected);
        (state.config().relay.is_some(), store)
    };
    let (relayed, store) = context.handle.inspect(inspect).await?;
    if let Some(source) = context.handle.discovery().awaited() {
        let state = context.handle.source(source);
        let failing = state.and_then(|state| state.failing);
        let why = failing.map_or_else(String::new, |(_, reason)| format!(": {reason}"));
        let reason = format!("services of {} have not been listed{why}", source.name());
        return Err(ApiError::new(StatusCode::SERVICE_UNAVAILABLE, reason));
    }
    let mut page = "ready\n".to_owned();
    for source in context.handle.sources() {
        let label = source.id.label();
        page += &match source.failing {
            Some((since, reason)) => {
                let seconds = since.as_secs();
                format!("{label}: no answer for {seconds} s: {reason}\n")
            }
            None => format!("{label}: connected\n"),
        };
    }
    if relayed {
        let relay = context.handle.upstreams().status();
        let (connected, streams) = (relay.connected, relay.streams);
        page += &format!("relay: {connected} of {streams} streams connected\n");
    }
    match store {
        Some(true) => page += "store: connected\n",
        Some(false) => page += "store: not connected\n",
        None => {}
    }
    Ok(page)
}

async fn replicas(Extracted(context): Extracted<Context>) -> ApiResult {
    let stats = context.handle.store_stats().cloned();
    let inspect = move |state: &_, now| report::replicas(state, stats.as_deref(), now);
    Ok(Json(json!(context.handle.inspect(inspect).await?)))
}

async fn metrics_page(Extracted(context): Extracted<Context>) -> Result<Response, ApiError> {
    let text = metrics::page(&context).await?;
    let kind = TextFormat::OpenMetrics.content_type();
    Ok(([(header::CONTENT_TYPE, kind)], text).into_response())
}

async fn status(Extracted(context): Extracted<Context>) -> ApiResult {
    let reloads = context.reloads.counts();
    let streams = context.handle.records().len();
    let upstreams = context.handle.upstreams().status();
    let (bound, insecure) = (context.bound, context.listeners.insecure.any());
    let verdict = context.verdict(LOAD_BUDGET).await?;
    let page = context.handle.inspect(move |state, _| {
        report::status(state, reloads, streams, upstreams, bound, insecure, verdict)
    });
    Ok(Json(json!(page.await?)))
}

#[derive(Debug, Default, serde::Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub(super) struct RunbookQuery {
    /// Only the section of this alert.
    alert: Option<String>,
}

/// The page is part of the program: it fits the version, and needs no other server.
async fn runbook(
    query: Result<Query<RunbookQuery>, QueryRejection>,
) -> Result<&'static str, ApiError> {
    let Query(RunbookQuery { alert }) = query?;
    let Some(alert) = alert else {
        return Ok(super::RUNBOOK);
    };
    super::runbook_section(&alert)
        .ok_or_else(|| FieldError::new("alert", format!("no alert is named {alert:?}")).into())
}

#[derive(Debug, Default, serde::Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub(super) struct FleetsQuery {
    /// Only the fleet with this name.
    fleet: Option<String>,
}

async fn fleets(
    Extracted(context): Extracted<Context>,
    query: Result<Query<FleetsQuery>, QueryRejection>,
) -> ApiResult {
    let Query(FleetsQuery { fleet }) = query?;
    let inspect = move |state: &_, now| report::fleets(state, fleet.as_deref(), now);
    Ok(Json(json!(context.handle.inspect(inspect).await?)))
}

#[derive(Debug, Default, serde::Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub(super) struct NodesQuery {
    /// Only nodes of this fleet.
    fleet: Option<String>,
    /// Only the node with this id.
    id: Option<String>,
    /// Entries to leave out before the first one.
    offset: usize,
    /// Most entries, 1 to 1000; by default 100.
    limit: Option<usize>,
}

async fn nodes(
    Extracted(context): Extracted<Context>,
    query: Result<Query<NodesQuery>, QueryRejection>,
) -> ApiResult {
    let Query(query) = query?;
    let list = report::ListQuery {
        fleet: query.fleet,
        name: query.id,
        offset: query.offset,
        limit: limit(query.limit)?,
    };
    let page = context
        .handle
        .inspect(move |state, _| report::node_page(state, &list));
    let page = page.await?;
    // Of the nodes on the page only: subscriptions of all would be many.
    let records = context.handle.records().of_nodes(&page.keys);
    let inspect = move |state: &State, now| report::nodes(state, &page, &records, now);
    Ok(Json(json!(context.handle.inspect(inspect).await?)))
}

#[derive(Debug, Default, serde::Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub(super) struct ClustersQuery {
    /// Only this upstream cluster.
    cluster: Option<String>,
    /// Only the fleet with this name.
    fleet: Option<String>,
    /// Entries to leave out before the first one.
    offset: usize,
    /// Most entries, 1 to 1000; by default 100.
    limit: Option<usize>,
}

impl ClustersQuery {
    fn list(self) -> Result<report::ListQuery, FieldError> {
        Ok(report::ListQuery {
            fleet: self.fleet,
            name: self.cluster,
            offset: self.offset,
            limit: limit(self.limit)?,
        })
    }
}

async fn clusters(
    Extracted(context): Extracted<Context>,
    query: Result<Query<ClustersQuery>, QueryRejection>,
) -> ApiResult {
    let Query(query) = query?;
    let list = query.list()?;
    let inspect = move |state: &_, now| report::clusters(state, &list, now);
    Ok(Json(json!(context.handle.inspect(inspect).await?)))
}

/// How long the shares of load lines may be computed for one response.
const LOAD_BUDGET: Duration = Duration::from_secs(1);

async fn load(
    Extracted(context): Extracted<Context>,
    query: Result<Query<ClustersQuery>, QueryRejection>,
) -> ApiResult {
    let Query(query) = query?;
    let list = query.list()?;
    let lines = context.load_lines(LOAD_BUDGET).await?;
    let cost = context
        .handle
        .inspect(|state, _| Arc::clone(&state.config().operation.cost))
        .await?;
    Ok(Json(json!(report::load(&lines, &cost, &list))))
}

#[derive(Debug, Default, serde::Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub(super) struct ZoneLossQuery {
    /// Only this upstream cluster.
    cluster: Option<String>,
    /// Entries to leave out before the first one.
    offset: usize,
    /// Most entries, 1 to 1000; by default 100.
    limit: Option<usize>,
}

async fn zone_loss(
    Extracted(context): Extracted<Context>,
    query: Result<Query<ZoneLossQuery>, QueryRejection>,
) -> ApiResult {
    let Query(query) = query?;
    let list = report::ListQuery {
        name: query.cluster,
        offset: query.offset,
        limit: limit(query.limit)?,
        ..report::ListQuery::default()
    };
    let lines = context.load_lines(LOAD_BUDGET).await?;
    let losses = context.losses(Arc::new(lines)).await?;
    let max = context
        .handle
        .inspect(|state, _| state.config().operation.evacuation.max_utilization)
        .await?;
    Ok(Json(json!(report::zone_losses(&losses, max, &list))))
}

fn limit(requested: Option<usize>) -> Result<usize, FieldError> {
    let limit = requested.unwrap_or(DEFAULT_LIMIT);
    if (1..=MAX_LIMIT).contains(&limit) {
        return Ok(limit);
    }
    let reason = format!("{limit} is not between 1 and {MAX_LIMIT}");
    Err(FieldError::new("limit", reason))
}

#[derive(Debug, Default, serde::Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub(super) struct AuditQuery {
    /// Only changes of this service.
    service: Option<String>,
    /// Entries to leave out before the first one.
    offset: usize,
    /// Most entries, 1 to 1000; by default 100.
    limit: Option<usize>,
}

async fn audit(
    Extracted(context): Extracted<Context>,
    query: Result<Query<AuditQuery>, QueryRejection>,
) -> ApiResult {
    let Query(query) = query?;
    let list = report::AuditQuery {
        service: query.service,
        offset: query.offset,
        limit: limit(query.limit)?,
    };
    let entries = context.handle.audit().records();
    Ok(Json(json!(report::audit(&entries, &list))))
}

#[derive(Debug, serde::Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(super) struct ExplainQuery {
    /// Name of the upstream cluster.
    cluster: String,
    /// Fleet of proxies; by default the first one by name.
    fleet: Option<String>,
    /// Region of the proxies; requires `zone`.
    #[serde(default)]
    region: String,
    /// Zone of the proxies; by default the first one of the fleet.
    zone: Option<String>,
    /// Sub-zone of the proxies; requires `zone`.
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
                return Err(FieldError::new(*field, "requires zone"));
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
    Extracted(context): Extracted<Context>,
    query: Result<Query<ExplainQuery>, QueryRejection>,
) -> ApiResult {
    let Query(query) = query?;
    let question = query.question()?;
    let (cluster, fleet) = (question.cluster.clone(), question.fleet.clone());
    let [explanation] = context.explain([question]).await?;
    let lines = context.load_lines(LOAD_BUDGET).await?;
    let is_asked = |line: &&LoadLine| {
        *line.cluster == *cluster && fleet.as_deref().is_none_or(|fleet| *line.fleet == *fleet)
    };
    let line = lines.iter().find(is_asked);
    Ok(Json(json!(responses::Explained {
        explanation,
        load_line: line.map(report::load_line),
    })))
}

async fn zones(Extracted(context): Extracted<Context>) -> ApiResult {
    Ok(Json(json!(context.zones().await?)))
}

async fn drain(
    Extracted(context): Extracted<Context>,
    caller: Option<Extension<Caller>>,
    body: Result<Bytes, BytesRejection>,
) -> ApiResult {
    let body: DrainBody = read(&body?)?;
    Ok(Json(json!(context.drain(body, &by(caller)).await?)))
}

async fn give_back(
    Extracted(context): Extracted<Context>,
    caller: Option<Extension<Caller>>,
    body: Result<Bytes, BytesRejection>,
) -> ApiResult {
    let body: ReturnBody = read(&body?)?;
    Ok(Json(json!(context.give_back(&body, &by(caller)).await?)))
}

/// Reads a body; the error names the field.
fn read<T: serde::de::DeserializeOwned>(bytes: &Bytes) -> Result<T, ApiError> {
    let mut json = serde_json::Deserializer::from_slice(bytes);
    serde_path_to_error::deserialize(&mut json).map_err(body_error)
}

/// Who sent a command, for the audit.
fn by(caller: Option<Extension<Caller>>) -> String {
    caller.map_or_else(
        || "an unknown caller".to_owned(),
        |Extension(Caller(caller))| caller,
    )
}

#[derive(Debug, Default, serde::Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub(super) struct ReloadQuery {
    /// Loads the files also if they remove more than `reload.max_removed_percent`.
    allow_removal: bool,
}

async fn reload(
    Extracted(context): Extracted<Context>,
    caller: Option<Extension<Caller>>,
    query: Result<Query<ReloadQuery>, QueryRejection>,
) -> ApiResult {
    let Query(ReloadQuery { allow_removal }) = query?;
    let caller = caller.map_or_else(String::new, |Extension(Caller(caller))| caller);
    let by = format!("request to /api/v1/reload by {caller}");
    let outcome = context.reload.reload_by(allow_removal, &by).await?;
    outcome.map_err(|error| ApiError::new(StatusCode::CONFLICT, error))?;
    let restart_needed = context.reloads.counts().restart_needed;
    Ok(Json(json!(responses::Reloaded { restart_needed })))
}

async fn what_if(
    Extracted(context): Extracted<Context>,
    body: Result<Bytes, BytesRejection>,
) -> ApiResult {
    Ok(Json(json!(context.what_if(read(&body?)?).await?)))
}
