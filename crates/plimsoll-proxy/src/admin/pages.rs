//! What each admin page says.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use axum::Json;
use axum::extract::{Query, State as Extracted};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use plimsoll_client::{Metadata, XdsState, XdsStatus};
use plimsoll_xds::yaml::{Document, StructYaml};
use prometheus_client::registry::Registry;
use serde_json::{Value, json};

use super::{Admin, PATHS, rds};
use crate::state::{Phase, State};
use crate::stats::{HttpStats, SERVER, describe};

/// A list of pages.
pub(super) async fn index() -> String {
    let mut page = "GET /: the dashboard, where there is one\n".to_owned();
    for path in PATHS {
        let mark = if path.query.is_empty() { "" } else { "?" };
        let (method, query, about) = (path.method, path.query, path.about);
        let _ = writeln!(page, "{method} {}{mark}{query}: {about}", path.path);
    }
    page
}

/// 200 when requests are served.
pub(super) async fn ready(Extracted(admin): Extracted<Admin>) -> (StatusCode, String) {
    let phase = admin.state.phase();
    let status = match phase {
        Phase::Live => StatusCode::OK,
        _ => StatusCode::SERVICE_UNAVAILABLE,
    };
    (status, format!("{}\n", phase.word()))
}

/// Version, state and age.
pub(super) async fn server_info(Extracted(admin): Extracted<Admin>) -> Json<Value> {
    let state = &admin.state;
    let node = &state.loaded().config.node;
    let (succeeded, failed, error) = state.reloads.counts();
    Json(json!({
        "version": concat!("plimsoll/", env!("CARGO_PKG_VERSION")),
        "state": state.phase().word(),
        "uptime_current_epoch": format!("{}s", state.started.elapsed().as_secs()),
        "command_line_options": { "concurrency": state.workers },
        "node": {
            "id": node.id,
            "cluster": node.cluster,
            "locality": {
                "region": node.locality.region(),
                "zone": node.locality.zone(),
                "sub_zone": node.locality.sub_zone(),
            },
        },
        "reload": { "succeeded": succeeded, "failed": failed, "error": error },
        "xds": state.client.xds_status().as_ref().map(discovery),
    }))
}

/// How discovery is doing.
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
        "state": match &status.state {
            XdsState::Connecting => "CONNECTING",
            XdsState::Connected => "CONNECTED",
            XdsState::Disconnected { .. } => "DISCONNECTED",
        },
        "error": match &status.state {
            XdsState::Disconnected { message } => Some(message),
            _ => None,
        },
        "rejected": status.rejected,
        "last_rejection": status.last_rejection,
        "problems": problems.collect::<Vec<_>>(),
    })
}

/// Every counter with its name; listeners with one prefix are summed up.
fn counters(state: &State) -> BTreeMap<String, u64> {
    let mut all = BTreeMap::new();
    for running in state.running() {
        let prefix = running.listener.runtime().config.http.stat_prefix.clone();
        for (name, value) in HttpStats::NAMES.iter().zip(running.listener.totals()) {
            *all.entry(format!("http.{prefix}.{name}")).or_default() += value;
        }
    }
    let (succeeded, failed, _) = state.reloads.counts();
    let (written, dropped) = state.sinks.counts();
    let discovery = state.client.xds_status().unwrap_or_default();
    let values = [
        state.workers as u64,
        state.started.elapsed().as_secs(),
        u64::from(state.phase() == Phase::Live),
        discovery.dynamic_unknown_fields,
        succeeded,
        failed,
        written,
        dropped,
    ];
    let server = SERVER.iter().zip(values);
    all.extend(server.map(|((name, _, _), value)| ((*name).to_owned(), value)));
    all
}

/// `name: value` lines.
pub(super) async fn stats(Extracted(admin): Extracted<Admin>) -> String {
    let mut page = String::new();
    let followed = rds::followed(&admin.state);
    for line in rds::texts(&followed) {
        let _ = writeln!(page, "{line}");
    }
    let mut all = counters(&admin.state);
    all.extend(rds::counters(&followed));
    for (name, value) in all {
        let _ = writeln!(page, "{name}: {value}");
    }
    for (cluster, name, value) in admin.state.client.stats() {
        let _ = writeln!(page, "cluster.{cluster}.{name}: {value}");
    }
    page
}

/// The same for Prometheus, with the prefix of a listener as a label, as Envoy does.
pub(super) async fn prometheus(Extracted(admin): Extracted<Admin>) -> Response {
    let mut families: BTreeMap<String, Vec<(String, u64)>> = BTreeMap::new();
    for (name, value) in counters(&admin.state) {
        let (family, labels) = match name.strip_prefix("http.") {
            Some(rest) => {
                let (prefix, name) = rest.rsplit_once('.').unwrap_or(("", rest));
                let labels = format!("{{plimsoll_http_conn_manager_prefix={prefix:?}}}");
                (format!("http_{name}"), labels)
            }
            None => (name.replace('.', "_"), String::new()),
        };
        families.entry(family).or_default().push((labels, value));
    }
    let mut page = String::new();
    for (family, values) in families {
        let (kind, help) = describe(&family);
        let family = format!("plimsoll_{family}");
        let _ = writeln!(page, "# HELP {family} {help}\n# TYPE {family} {kind}");
        for (labels, value) in values {
            let _ = writeln!(page, "{family}{labels} {value}");
        }
    }
    page.push_str(&rds::prometheus(&rds::followed(&admin.state)));
    let mut registry = Registry::default();
    admin.state.client.register_metrics(&mut registry);
    let mut clusters = String::new();
    // Writing into a string does not fail; the mark of the end belongs to another format.
    let _ = prometheus_client::encoding::text::encode(&mut clusters, &registry);
    page.push_str(clusters.trim_end().trim_end_matches("# EOF"));
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4")], page).into_response()
}

/// `name::address` lines.
pub(super) async fn listeners(Extracted(admin): Extracted<Admin>) -> String {
    let mut page = String::new();
    for running in admin.state.running() {
        let _ = writeln!(page, "{}::{}", running.name, running.address);
    }
    page
}

/// Which cluster to explain.
#[derive(Debug, Default, serde::Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct ExplainQuery {
    cluster: Option<String>,
    /// Metadata of one of its subsets, as JSON.
    subset: Option<String>,
}

/// Why a cluster routes as it does; of all of them without a name.
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

/// The metadata that names a subset, such as `{"version": "canary"}`.
fn subset(text: &str) -> Result<Metadata, (StatusCode, String)> {
    let document = Document::parse(text);
    let fields = document.and_then(|document| document.read::<StructYaml>());
    let fields = fields.map_err(|error| (StatusCode::BAD_REQUEST, format!("subset: {error}\n")))?;
    Ok(fields.0)
}

/// Names of clusters, and what the engine says about each.
async fn explain_all(state: &State) -> Json<Value> {
    let mut all = serde_json::Map::new();
    for name in state.client.cluster_names() {
        // One that went since is not there.
        if let Ok(explained) = state.client.explain(&name).await {
            let explained = serde_json::to_value(explained);
            all.insert(name.to_string(), explained.unwrap_or_default());
        }
    }
    Json(json!({ "cluster_statuses": all }))
}

/// What to log.
#[derive(Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct LoggingQuery {
    level: String,
}

/// Changes what is logged: a level, or directives like those of `RUST_LOG`.
pub(super) async fn logging(
    Extracted(admin): Extracted<Admin>,
    Query(query): Query<LoggingQuery>,
) -> (StatusCode, String) {
    let set = admin
        .logging
        .as_ref()
        .map(|logging| logging.set(&query.level));
    match set {
        Some(Ok(())) => (StatusCode::OK, format!("active: {}\n", query.level)),
        Some(Err(error)) => (StatusCode::BAD_REQUEST, format!("{error}\n")),
        None => (
            StatusCode::NOT_IMPLEMENTED,
            "the log cannot be changed here\n".to_owned(),
        ),
    }
}

/// Ends the proxy as SIGTERM does.
pub(super) async fn quit(Extracted(admin): Extracted<Admin>) -> &'static str {
    // Somebody may have said so already.
    let _ = admin.quit.try_send(());
    "OK\n"
}
