//! Request handlers of the admin interface.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use axum::Json;
use axum::extract::{Query, State as Extracted};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use plimsoll_client::{Metadata, XdsState, XdsStatus};
use plimsoll_core::stats::{Sample, TextFormat};
use plimsoll_serve::AdminPath;
use plimsoll_xds::yaml::{Document, StructYaml};
use serde_json::{Value, json};

use super::{Admin, rds};
use crate::listener::Listener;
use crate::state::{Phase, State};
use crate::stats::ServerStats;

pub(super) fn index(paths: &[AdminPath]) -> Response {
    let mut page = "GET /: dashboard, if it is enabled\n".to_owned();
    for path in paths {
        let _ = writeln!(page, "{} {}: {}", path.method, path.target(), path.about);
    }
    page.into_response()
}

/// Readiness: 200 while requests are served, otherwise 503. During startup the lines after the
/// first name the resources of the management server that are awaited.
pub(super) async fn ready(Extracted(admin): Extracted<Admin>) -> (StatusCode, String) {
    let phase = admin.state.phase();
    let status = match phase {
        Phase::Live => StatusCode::OK,
        _ => StatusCode::SERVICE_UNAVAILABLE,
    };
    let mut page = format!("{}\n", phase.as_str());
    for resource in admin.state.awaited() {
        let _ = writeln!(page, "awaiting {resource}");
    }
    (status, page)
}

pub(super) async fn server_info(Extracted(admin): Extracted<Admin>) -> Json<Value> {
    let state = &admin.state;
    let node = &state.loaded().config.node;
    let reloads = state.reloads.counts();
    Json(json!({
        "version": concat!("plimsoll/", env!("CARGO_PKG_VERSION")),
        "state": state.phase().as_str(),
        "uptime_current_epoch": format!("{}s", state.started.elapsed().as_secs()),
        "command_line_options": {
            "concurrency": state.workers,
            "restart_epoch": state.restart_epoch,
        },
        "node": {
            "id": node.id,
            "cluster": node.cluster,
            "locality": node.locality,
        },
        "reload": {
            "succeeded": reloads.succeeded,
            "failed": reloads.failed,
            "error": reloads.error,
        },
        "xds": state.client.xds_status().as_ref().map(discovery),
    }))
}

/// State of the connection to the management server and problems with its resources.
fn discovery(status: &XdsStatus) -> Value {
    let problems = status.problems.iter().map(|((type_url, name), problem)| {
        let entry = [
            ("type_url", &**type_url),
            ("name", &**name),
            ("problem", problem.as_str()),
        ];
        BTreeMap::from(entry)
    });
    json!({
        "state": status.state.as_str(),
        "error": match &status.state {
            XdsState::Disconnected { message } => Some(message),
            _ => None,
        },
        "rejected": status.rejected,
        "last_rejection": status.last_rejection,
        "problems": problems.collect::<Vec<_>>(),
    })
}

fn server_stats(state: &State) -> ServerStats {
    let reloads = state.reloads.counts();
    let written = state.sinks.counts();
    let (spans_sent, spans_dropped) = state.exporters.counts();
    let discovery = state.client.xds_status().unwrap_or_default();
    ServerStats {
        concurrency: state.workers as u64,
        uptime: state.started.elapsed().as_secs(),
        live: u64::from(state.phase() == Phase::Live),
        dynamic_unknown_fields: discovery.dynamic_unknown_fields,
        reload_success: reloads.succeeded,
        reload_failure: reloads.failed,
        overload_actions_active: u64::from(state.overload.active_actions()),
        total_listeners_active: state.listeners().len() as u64,
        write_completed: written.completed,
        write_dropped: written.dropped,
        write_failed: written.failed,
        reopen_failed: written.reopen_failed,
        spans_sent,
        spans_dropped,
    }
}

/// Returns the counters of a listener by `stat_prefix`, which several filter chains may share.
fn http_totals(listener: &Listener) -> BTreeMap<String, Vec<Sample>> {
    let runtime = listener.runtime();
    let chains = runtime.chains().iter();
    chains
        .map(|chain| (chain.config().http.stat_prefix.clone(), chain.totals()))
        .collect()
}

/// Counters and gauges as `name: value` lines. Listeners with the same prefix are summed up.
pub(super) async fn stats(Extracted(admin): Extracted<Admin>) -> String {
    let state = &admin.state;
    let mut page = String::new();
    let rds_statuses = rds::statuses(state);
    for line in rds::texts(&rds_statuses) {
        let _ = writeln!(page, "{line}");
    }
    let mut all: BTreeMap<String, u64> = BTreeMap::new();
    for listener in state.listeners() {
        for (prefix, totals) in http_totals(&listener.listener) {
            for (metric, value) in totals {
                *all.entry(format!("http.{prefix}.{}", metric.name))
                    .or_default() += value;
            }
        }
        // As in Envoy, the address has no colons.
        let address = listener.address.to_string().replace(':', "_");
        for (name, value) in listener.listener.stats().iter() {
            all.insert(format!("listener.{address}.{name}"), value);
        }
    }
    let server = server_stats(state);
    all.extend(server.iter().map(|(name, value)| (name.to_owned(), value)));
    all.extend(rds::counters(&rds_statuses));
    for (name, value) in all {
        let _ = writeln!(page, "{name}: {value}");
    }
    for stat in state.client.stats() {
        let _ = writeln!(
            page,
            "cluster.{}.{}: {}",
            stat.cluster, stat.name, stat.value
        );
    }
    page
}

/// Statistics in Prometheus format; as in Envoy, the stat prefix of a listener is a label.
pub(super) async fn prometheus(Extracted(admin): Extracted<Admin>) -> Response {
    let state = &admin.state;
    let mut families = state.client.metric_families();
    for listener in state.listeners() {
        for (prefix, totals) in http_totals(&listener.listener) {
            for (metric, value) in totals {
                let name = metric.exposed_name("plimsoll_http_");
                families.add(name, metric, &[&prefix], value);
            }
        }
        let address = listener.address.to_string().replace(':', "_");
        for (metric, value) in listener.listener.stats().samples() {
            let name = metric.exposed_name("plimsoll_listener_");
            families.add(name, metric, &[&address], value);
        }
    }
    for (metric, value) in server_stats(state).samples() {
        families.add(metric.exposed_name("plimsoll_"), metric, &[], value);
    }
    rds::expose(&rds::statuses(state), &mut families);
    let format = TextFormat::Prometheus;
    let kind = [(header::CONTENT_TYPE, format.content_type())];
    (kind, families.text(format)).into_response()
}

/// Listeners as `name::address` lines.
pub(super) async fn listeners(Extracted(admin): Extracted<Admin>) -> String {
    let mut page = String::new();
    for listener in admin.state.listeners() {
        let _ = writeln!(page, "{}::{}", listener.name, listener.address);
    }
    page
}

#[derive(Debug, Default, serde::Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct ExplainQuery {
    cluster: Option<String>,
    /// Endpoint metadata that selects a subset, as JSON.
    subset: Option<String>,
}

pub(super) async fn explain(
    Extracted(admin): Extracted<Admin>,
    Query(query): Query<ExplainQuery>,
) -> Result<Json<Value>, (StatusCode, String)> {
    let Some(name) = query.cluster else {
        return Ok(explain_all(&admin.state).await);
    };
    let explained = match query.subset.as_deref().map(subset).transpose()? {
        Some(subset) => admin.state.client.explain_subset(&name, &subset),
        None => admin.state.client.explain(&name).await,
    };
    let explained = explained.map_err(|error| (StatusCode::NOT_FOUND, format!("{error}\n")))?;
    let internal =
        |error: serde_json::Error| (StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n"));
    serde_json::to_value(explained).map(Json).map_err(internal)
}

/// Parses the endpoint metadata that selects a subset, such as `{"version": "canary"}`.
fn subset(text: &str) -> Result<Metadata, (StatusCode, String)> {
    Document::parse(text)
        .and_then(|document| document.read::<StructYaml>())
        .map(|fields| fields.0)
        .map_err(|error| (StatusCode::BAD_REQUEST, format!("subset: {error}\n")))
}

async fn explain_all(state: &State) -> Json<Value> {
    let mut all = serde_json::Map::new();
    for name in state.client.cluster_names() {
        // The cluster may have been removed since its name was listed.
        if let Ok(explained) = state.client.explain(&name).await {
            let explained = serde_json::to_value(explained);
            all.insert(name.to_string(), explained.unwrap_or_default());
        }
    }
    Json(json!({ "cluster_statuses": all }))
}

#[derive(Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct LoggingQuery {
    level: String,
}

/// Changes the log filter: a level, or directives as in `RUST_LOG`.
pub(super) async fn logging(
    Extracted(admin): Extracted<Admin>,
    Query(query): Query<LoggingQuery>,
) -> (StatusCode, String) {
    match admin.logging.map(|set| set(&query.level)) {
        Some(Ok(())) => (StatusCode::OK, format!("active: {}\n", query.level)),
        Some(Err(error)) => (StatusCode::BAD_REQUEST, format!("{error}\n")),
        None => (
            StatusCode::NOT_IMPLEMENTED,
            "the log filter cannot be changed at run time\n".to_owned(),
        ),
    }
}

/// Opens access log files again, like SIGUSR1.
pub(super) async fn reopen_logs(Extracted(admin): Extracted<Admin>) -> &'static str {
    admin.state.sinks.reopen();
    "OK\n"
}

/// Shuts the proxy down, like SIGTERM.
pub(super) async fn quit(Extracted(admin): Extracted<Admin>) -> &'static str {
    admin.state.stopping.cancel();
    "OK\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subsets_are_read_from_json_and_errors_name_the_parameter() {
        let expected: Metadata = [("version", "canary".into())].into_iter().collect();
        assert_eq!(subset("{\"version\": \"canary\"}").unwrap(), expected);
        let (status, text) = subset("[]").unwrap_err();
        assert_eq!(status, StatusCode::BAD_REQUEST);
        assert!(text.starts_with("subset: "), "{text}");
    }
}
