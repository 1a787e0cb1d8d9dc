//! Zones through the admin API: a question, a drain, its answer in the list and the audit, and the
//! return.

use plimsoll_serve::AdminToken;

use super::*;

const ZONES: &str = "services:
- cluster: {name: orders}
  endpoints:
  - locality: {region: eu, zone: a}
    lb_endpoints: [{endpoint: {address: {socket_address: {address: 10.0.0.1, port_value: 80}}}}]
  - locality: {region: eu, zone: b}
    lb_endpoints: [{endpoint: {address: {socket_address: {address: 10.0.0.2, port_value: 80}}}}]
";

const TOKEN: &str = "0123456789abcdef";

/// Sends a request with the admin token: it comes from no address.
pub(super) async fn post(control: &Control, path: &str, body: Value) -> (StatusCode, Value) {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), TOKEN).unwrap();
    let options = AdminOptions {
        token: Some(AdminToken::read(file.path()).unwrap()),
        ..AdminOptions::default()
    };
    let request = Request::builder()
        .method(Method::POST)
        .uri(path)
        .header("authorization", format!("Bearer {TOKEN}"))
        .header("content-type", "application/json")
        .body(Body::from(body.to_string()))
        .unwrap();
    let router = router().into_router(control.context.clone(), options);
    let response = router.oneshot(request).await.unwrap();
    let status = response.status();
    let body = to_bytes(response.into_body(), usize::MAX).await.unwrap();
    (status, serde_json::from_slice(&body).unwrap())
}

#[tokio::test]
async fn a_zone_is_drained_and_returned() {
    let control = Control::with(ZONES);
    let listed = control.get("/api/v1/zones").await;
    assert_eq!(listed["zones"][1]["zone"], "eu/b");
    assert_eq!(listed["zones"][1]["state"], "in_service");
    let drain = "/api/v1/zones/drain";
    let question = json!({ "zone": "b", "dry_run": true });
    let (status, answer) = post(&control, drain, question).await;
    assert_eq!(
        (status, &answer["allowed_percent"]),
        (StatusCode::OK, &json!(100)),
        "{answer}"
    );
    assert_eq!(answer["order"], Value::Null);

    for (body, field) in [
        (json!({ "zone": "b" }), "reason"),
        (json!({ "zone": "", "reason": "x" }), "zone"),
        (json!({ "zone": "z", "reason": "x" }), "zone"),
        (json!({ "zone": "b", "reason": "x", "for": "0s" }), "for"),
        (json!({ "zone": "b", "reson": "x" }), "reson"),
    ] {
        let (status, answer) = post(&control, drain, body).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{answer}");
        assert_eq!(answer["field"], field, "{answer}");
    }

    let body = json!({ "zone": "b", "reason": "power", "for": "30m", "step": "0s" });
    let (status, answer) = post(&control, drain, body.clone()).await;
    assert_eq!(status, StatusCode::OK, "{answer}");
    assert_eq!(answer["order"]["limit_percent"], 100);
    let listed = control.get("/api/v1/zones").await;
    let own = &listed["zones"][1];
    assert_eq!(
        (&own["state"], &own["hosts_in_use"]),
        (&json!("out"), &json!(0)),
        "{own}"
    );
    assert_eq!(own["order"]["reason"], "power");
    let (status, answer) = post(&control, drain, body).await;
    assert_eq!(status, StatusCode::CONFLICT);
    let error = answer["error"].as_str().unwrap();
    assert!(error.starts_with("b is out already: power"), "{error}");
    // The other half of the hosts cannot go as well: they stay, and the answer says so.
    let body = json!({ "zone": "a", "reason": "fire", "step": "0s" });
    let (status, answer) = post(&control, drain, body).await;
    assert_eq!(status, StatusCode::OK, "{answer}");
    assert_eq!(answer["stays"], json!(["orders"]), "{answer}");
    let listed = control.get("/api/v1/zones").await;
    let in_use = |zone: usize| listed["zones"][zone]["hosts_in_use"].as_u64().unwrap();
    assert!(in_use(0) + in_use(1) > 0, "{listed}");

    let (status, answer) = post(&control, "/api/v1/zones/return", json!({ "zone": "b" })).await;
    assert_eq!(status, StatusCode::OK, "{answer}");
    let listed = control.get("/api/v1/zones").await;
    assert_eq!(listed["zones"][1]["state"], "returning");
    let (status, _) = post(&control, "/api/v1/zones/return", json!({ "zone": "q" })).await;
    assert_eq!(status, StatusCode::CONFLICT);
    let audit = control.get("/api/v1/audit").await;
    let text = audit.to_string();
    assert!(text.contains("zone b") && text.contains("power"), "{text}");
    assert!(text.contains("out already"), "refusals are kept: {text}");
}
