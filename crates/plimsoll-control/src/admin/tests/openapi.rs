//! Real answers of every page, validated by their schemas in the OpenAPI description.

use jsonschema::Validator;

use super::*;

/// Refuses fields that a schema does not have: the description promises that fields may be added,
/// and must itself have all.
fn close(schema: &mut Value) {
    match schema {
        Value::Object(fields) => {
            if fields.contains_key("properties") && !fields.contains_key("additionalProperties") {
                fields.insert("additionalProperties".to_owned(), json!(false));
            }
            fields.values_mut().for_each(close);
        }
        Value::Array(entries) => entries.iter_mut().for_each(close),
        _ => {}
    }
}

/// Returns the validator of the successful or failed answers of a path.
fn validator(method: &str, path: &str, status: &str) -> Validator {
    let mut components = openapi()["components"].clone();
    close(&mut components);
    let answer = &openapi()["paths"][path][method]["responses"][status];
    let mut schema = answer["content"]["application/json"]["schema"].clone();
    assert!(schema.is_object(), "{method} {path} {status}");
    close(&mut schema);
    schema["components"] = components;
    jsonschema::validator_for(&schema).unwrap()
}

fn validate(method: &str, path: &str, status: &str, answer: &Value) {
    let validator = validator(method, path, status);
    let errors: Vec<String> = validator
        .iter_errors(answer)
        .map(|error| format!("{}: {error}", error.instance_path()))
        .collect();
    assert!(errors.is_empty(), "{path}: {errors:#?}\n{answer:#}");
}

/// Validates the answer of every page with JSON that the router itself serves.
async fn check_pages(control: &Control) {
    let mut checked = 0;
    for served in router().paths() {
        let is_json = openapi()["paths"][served.path]["get"]["responses"]["200"]["content"]
            .get("application/json")
            .is_some();
        if served.method != "GET" || !is_json {
            continue;
        }
        let query = match served.path {
            "/api/v1/explain" => "?cluster=orders",
            _ => "",
        };
        let answer = control.get(&format!("{}{query}", served.path)).await;
        validate("get", served.path, "200", &answer);
        checked += 1;
    }
    assert_eq!(checked, 12);
}

#[tokio::test]
async fn answers_without_nodes_are_as_described() {
    check_pages_without_explanation(&Control::new()).await;
}

/// Without a fleet there is nothing to explain.
async fn check_pages_without_explanation(control: &Control) {
    for path in [
        "/api/v1/status",
        "/api/v1/fleets",
        "/api/v1/nodes",
        "/api/v1/clusters",
    ] {
        validate("get", path, "200", &control.get(path).await);
    }
}

#[tokio::test]
async fn answers_with_demand_are_as_described() {
    let objective = "{name: orders}
  objective: {waterfall: {target_utilization: 0.5}}
  capacity: {requests_per_second: 100}";
    let text = CONFIG.replace("{name: orders}", objective);
    let (control, _open) = with_demand_at(Control::start(&text, None)).await;
    let load = control.get("/api/v1/load?cluster=orders").await;
    let line = &load["load_lines"][0];
    let zones = line["zones"].as_array().unwrap();
    assert!(
        zones.iter().any(|zone| zone["planned"].is_object()),
        "{line}"
    );
    check_pages(&control).await;
    let question = json!({ "cluster": "orders", "hosts": { "a": 9 }, "demand": { "b": 1 } });
    let answer = control.what_if(&question).await;
    validate("post", "/api/v1/what-if", "200", &answer);
    assert!(answer["after"]["cross_zone_share"].is_number(), "{answer}");
}

#[tokio::test]
async fn answers_about_replicas_a_relay_and_subsets_are_as_described() {
    check_replicas(&Control::replica().await).await;
    let relay = "{relay: {address: 'h:1', api_type: DELTA_GRPC}}";
    let status = Control::with(relay).get("/api/v1/status").await;
    assert!(status["relay"]["upstream"].is_object());
    validate("get", "/api/v1/status", "200", &status);
}

async fn check_replicas(control: &Control) {
    let answer = control.get("/api/v1/replicas").await;
    validate("get", "/api/v1/replicas", "200", &answer);
}

#[tokio::test]
async fn errors_and_questions_are_as_described() {
    let control = Control::new();
    for (method, path, query) in [
        (Method::GET, "/api/v1/nodes", "?zonee=a"),
        (Method::GET, "/api/v1/explain", "?cluster=lost"),
        (Method::POST, "/api/v1/what-if", ""),
    ] {
        let name = method.as_str().to_ascii_lowercase();
        let (_, body) = control
            .request(method, &format!("{path}{query}"), "{}")
            .await;
        let answer: Value = serde_json::from_str(&body).unwrap();
        assert!(answer["error"].is_string(), "{body}");
        validate(&name, path, "default", &answer);
    }
    let body = &openapi()["paths"]["/api/v1/what-if"]["post"]["requestBody"];
    let schema = &body["content"]["application/json"]["schema"];
    let question = jsonschema::validator_for(schema).unwrap();
    assert!(question.is_valid(&json!({ "cluster": "orders", "hosts": { "a": 9 } })));
    for wrong in [json!({}), json!({ "cluster": "orders", "host": {} })] {
        assert!(!question.is_valid(&wrong), "{wrong}");
    }
}
