//! OpenAPI 3.1 description of the admin API, generated from the table of paths and the types that
//! are serialized. Served at `/api/v1/openapi.json` and kept in docs/reference/openapi.json.

use std::sync::OnceLock;

use plimsoll_admin::history::{HistoryQuery, HistoryResponse};
use plimsoll_admin::state::DashboardState;
use plimsoll_admin::what_if::{WhatIf, WhatIfQuestion};
use plimsoll_admin::zone_loss::ZoneLosses;
use plimsoll_admin::{HISTORY_PATH, STATE_PATH};
use plimsoll_serve::AdminPath;
use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde_json::{Map, Value, json};

use super::{responses, routes};
use crate::evacuation::{DrainAnswer, DrainBody, OrderRecord, ReturnBody, ZoneList};

/// Where the types are in the description.
const COMPONENTS: &str = "/components/schemas";
const ABOUT: &str = "\
Names and types are stable: fields may be added, so readers must ignore fields that they do not \
know. With `pretty` in the query, answers have line breaks.";

type TypeSchema = fn(&mut SchemaGenerator) -> Schema;

/// What a path takes and responds with.
struct Operation {
    path: &'static str,
    query: Option<TypeSchema>,
    body: Option<TypeSchema>,
    answer: Answer,
}

enum Answer {
    Text(&'static str),
    Json(TypeSchema),
}

fn schema_of<T: JsonSchema>(generator: &mut SchemaGenerator) -> Schema {
    generator.subschema_for::<T>()
}

const fn text(path: &'static str, media_type: &'static str) -> Operation {
    Operation {
        path,
        query: None,
        body: None,
        answer: Answer::Text(media_type),
    }
}

const fn json<T: JsonSchema>(path: &'static str) -> Operation {
    Operation {
        path,
        query: None,
        body: None,
        answer: Answer::Json(schema_of::<T>),
    }
}

impl Operation {
    const fn with_query<T: JsonSchema>(mut self) -> Self {
        self.query = Some(schema_of::<T>);
        self
    }

    const fn with_body<T: JsonSchema>(mut self) -> Self {
        self.body = Some(schema_of::<T>);
        self
    }
}

/// Every path that responds with text or JSON; a test compares them with the routes.
#[rustfmt::skip]
static OPERATIONS: [Operation; 21] = [
    text("/healthz", "text/plain"),
    text("/readyz", "text/plain"),
    text("/metrics", "application/openmetrics-text"),
    text("/runbook", "text/plain").with_query::<routes::RunbookQuery>(),
    json::<responses::Index>("/api/v1"),
    json::<Map<String, Value>>("/api/v1/openapi.json"),
    json::<responses::Status>("/api/v1/status"),
    json::<responses::Fleets>("/api/v1/fleets").with_query::<routes::FleetsQuery>(),
    json::<responses::Nodes>("/api/v1/nodes").with_query::<routes::NodesQuery>(),
    json::<responses::Replicas>("/api/v1/replicas"),
    json::<responses::Clusters>("/api/v1/clusters").with_query::<routes::ClustersQuery>(),
    json::<responses::Load>("/api/v1/load").with_query::<routes::ClustersQuery>(),
    json::<ZoneLosses>("/api/v1/zone-loss").with_query::<routes::ZoneLossQuery>(),
    json::<responses::Explained>("/api/v1/explain").with_query::<routes::ExplainQuery>(),
    json::<responses::Audit>("/api/v1/audit").with_query::<routes::AuditQuery>(),
    json::<ZoneList>("/api/v1/zones"),
    json::<DrainAnswer>("/api/v1/zones/drain").with_body::<DrainBody>(),
    json::<OrderRecord>("/api/v1/zones/return").with_body::<ReturnBody>(),
    json::<WhatIf>("/api/v1/what-if").with_body::<WhatIfQuestion>(),
    json::<responses::Reloaded>("/api/v1/reload").with_query::<routes::ReloadQuery>(),
    json::<HistoryResponse>(HISTORY_PATH.0).with_query::<HistoryQuery>(),
];

/// The document that the dashboard shows and `plimsoll top` reads.
static DASHBOARD: Operation = json::<DashboardState>(STATE_PATH.0);

/// Returns the description of the admin API.
pub fn openapi() -> &'static Value {
    static DESCRIPTION: OnceLock<Value> = OnceLock::new();
    DESCRIPTION.get_or_init(describe)
}

fn describe() -> Value {
    let settings = SchemaSettings::draft2020_12().with(|settings| {
        settings.meta_schema = None;
        settings.definitions_path = COMPONENTS.into();
    });
    let mut answers = settings.clone().for_serialize().into_generator();
    let mut questions = settings
        .with(|settings| settings.inline_subschemas = true)
        .into_generator();
    let error = answers.subschema_for::<responses::Error>();
    let router = routes::router();
    let dashboard = [HISTORY_PATH, STATE_PATH]
        .map(|(path, query, about)| AdminPath::new("GET", path, query, about));
    let mut paths = Map::new();
    for served in router.paths().iter().chain(&dashboard) {
        let mut operations = OPERATIONS.iter().chain([&DASHBOARD]);
        if let Some(operation) = operations.find(|one| one.path == served.path) {
            let described = operation.describe(served, &error, &mut questions, &mut answers);
            let method = served.method.to_ascii_lowercase();
            paths.insert(served.path.to_owned(), json!({ method: described }));
        }
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Admin API of the Plimsoll control plane",
            "version": env!("CARGO_PKG_VERSION"),
            "description": ABOUT,
            "license": { "name": "Apache-2.0", "identifier": "Apache-2.0" },
        },
        "paths": paths,
        "components": { "schemas": answers.take_definitions(true) },
    })
}

impl Operation {
    fn describe(
        &self,
        served: &AdminPath,
        error: &Schema,
        questions: &mut SchemaGenerator,
        answers: &mut SchemaGenerator,
    ) -> Value {
        let content = match self.answer {
            Answer::Text(media_type) => json!({ media_type: { "schema": { "type": "string" } } }),
            Answer::Json(schema) => in_json(&schema(answers)),
        };
        let id = served
            .path
            .trim_start_matches('/')
            .replace(['/', '.', '-'], "_");
        let mut operation = json!({
            "operationId": format!("{}_{id}", served.method.to_ascii_lowercase()),
            "summary": served.about,
            "responses": {
                "200": { "description": "The answer.", "content": content },
                "default": {
                    "description": "The request failed; the status says why.",
                    "content": in_json(error),
                },
            },
        });
        if let Some(query) = self.query {
            operation["parameters"] = parameters(&query(questions));
        }
        if let Some(body) = self.body {
            let content = in_json(&body(questions));
            operation["requestBody"] = json!({ "required": true, "content": content });
        }
        operation
    }
}

fn in_json(schema: &Schema) -> Value {
    json!({ "application/json": { "schema": schema } })
}

/// Returns the fields of a query as parameters.
fn parameters(query: &Schema) -> Value {
    let fields = query.get("properties").and_then(Value::as_object);
    let required = query.get("required").and_then(Value::as_array);
    let parameter = |(name, field): (&String, &Value)| {
        let mut schema = field.clone();
        let about = schema
            .as_object_mut()
            .and_then(|all| all.remove("description"));
        let is_required = required.is_some_and(|all| all.contains(&json!(name)));
        json!({
            "name": name,
            "in": "query",
            "description": about.unwrap_or_default(),
            "required": is_required,
            "schema": schema,
        })
    };
    fields.into_iter().flatten().map(parameter).collect()
}

#[cfg(test)]
mod tests;
