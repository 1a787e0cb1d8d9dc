//! HTTP requests to the dashboard, without sockets.
#![expect(clippy::unwrap_used, clippy::panic, reason = "tests")]

use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::http::{Request, StatusCode, header};
use axum::response::Response;
use http_body_util::BodyExt as _;
use plimsoll_admin::Dashboard;
use plimsoll_admin::source::{BoxFuture, Rejection, ShuttingDown, Source};
use plimsoll_admin::state::DashboardState;
use plimsoll_admin::what_if::{Shares, WhatIf, WhatIfQuestion};
use serde_json::{Value, json};
use tower::ServiceExt as _;

/// A host that records actions and answers what-ifs.
#[derive(Clone, Default)]
struct Host {
    acted: Arc<Mutex<Vec<String>>>,
    ended: bool,
}

impl Source for Host {
    fn state(&self) -> BoxFuture<'_, Result<Arc<DashboardState>, ShuttingDown>> {
        let state = DashboardState {
            title: "a host".to_owned(),
            ..Default::default()
        };
        let answer = if self.ended {
            Err(ShuttingDown)
        } else {
            Ok(Arc::new(state))
        };
        Box::pin(std::future::ready(answer))
    }

    fn act(&self, action: String) -> BoxFuture<'_, Result<String, Rejection>> {
        self.acted.lock().unwrap().push(action);
        Box::pin(std::future::ready(Ok("done".to_owned())))
    }

    fn what_if(&self, question: WhatIfQuestion) -> BoxFuture<'_, Result<WhatIf, Rejection>> {
        let shares = Shares {
            localities: Vec::new(),
            zones: Vec::new(),
            cross_zone_share: f64::from(question.hosts["a"]),
            notes: Vec::new(),
        };
        let answer = WhatIf {
            cluster: question.cluster,
            before: shares.clone(),
            after: shares,
            enforce: None,
        };
        Box::pin(std::future::ready(Ok(answer)))
    }
}

fn router() -> Router {
    Dashboard::new(Host::default()).router()
}

async fn get(router: Router, path: &str) -> Response {
    let request = Request::get(path).body(Body::empty()).unwrap();
    router.oneshot(request).await.unwrap()
}

async fn post(router: Router, path: &str, kind: &str, body: &str) -> (StatusCode, Value) {
    let request = Request::post(path)
        .header(header::CONTENT_TYPE, kind)
        .body(Body::from(body.to_owned()))
        .unwrap();
    let response = router.oneshot(request).await.unwrap();
    let status = response.status();
    let bytes = to_bytes(response.into_body(), usize::MAX).await.unwrap();
    (status, serde_json::from_slice(&bytes).unwrap())
}

fn header_of<'a>(response: &'a Response, name: &str) -> &'a str {
    let value = response.headers().get(name);
    value
        .unwrap_or_else(|| panic!("no {name}"))
        .to_str()
        .unwrap()
}

#[tokio::test]
async fn the_page_and_its_files_have_security_headers() {
    for (path, kind) in [
        ("/", "text/html; charset=utf-8"),
        ("/dashboard/app.js", "text/javascript; charset=utf-8"),
        ("/dashboard/style.css", "text/css; charset=utf-8"),
        ("/dashboard/state", "application/json"),
    ] {
        let response = get(router(), path).await;
        assert_eq!(response.status(), StatusCode::OK, "{path}");
        assert_eq!(header_of(&response, "content-type"), kind, "{path}");
        assert_eq!(header_of(&response, "x-content-type-options"), "nosniff");
        let policy = header_of(&response, "content-security-policy");
        assert!(policy.starts_with("default-src 'none'"), "{policy}");
        assert!(!policy.contains("unsafe"), "{policy}");
    }
    let response = get(router(), "/dashboard/nothing.js").await;
    assert_eq!(response.status(), StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn the_first_event_is_the_full_document() {
    let response = get(router(), "/dashboard/events").await;
    assert_eq!(header_of(&response, "content-type"), "text/event-stream");
    let mut body = response.into_body();
    let frame = body.frame().await.unwrap().unwrap();
    let text = String::from_utf8(frame.into_data().unwrap().into()).unwrap();
    assert!(text.starts_with("event: full\nid: 1\ndata: {"), "{text}");
    assert!(text.contains("\"title\":\"a host\""), "{text}");
}

#[tokio::test]
async fn actions_are_forwarded_unless_posted_by_a_form() {
    let host = Host::default();
    let router = Dashboard::new(host.clone()).router();
    let path = "/dashboard/actions/kill";
    let form = "application/x-www-form-urlencoded";
    let (status, _) = post(router.clone(), path, form, "").await;
    assert_eq!(status, StatusCode::UNSUPPORTED_MEDIA_TYPE);
    assert!(host.acted.lock().unwrap().is_empty());
    let answer = post(router, path, "application/json", "{}").await;
    assert_eq!(answer, (StatusCode::OK, json!({ "done": "done" })));
    assert_eq!(*host.acted.lock().unwrap(), ["kill"]);
}

#[tokio::test]
async fn questions_are_parsed_and_forwarded() {
    let path = "/dashboard/what-if";
    let kind = "application/json";
    let (status, answer) = post(
        router(),
        path,
        kind,
        r#"{"cluster": "orders", "hosts": {"a": 3}}"#,
    )
    .await;
    assert_eq!(status, StatusCode::OK);
    assert_eq!(answer["after"]["cross_zone_share"], 3.0);
    let (status, answer) = post(
        router(),
        path,
        kind,
        r#"{"cluster": "orders", "hosts": {"a": -3}}"#,
    )
    .await;
    assert_eq!(status, StatusCode::BAD_REQUEST);
    assert!(answer["error"].as_str().unwrap().contains("-3"), "{answer}");
    let (status, answer) = post(router(), "/dashboard/explain", kind, "{}").await;
    assert_eq!(
        status,
        StatusCode::BAD_REQUEST,
        "this host does not explain"
    );
    assert!(answer["error"].is_string());
}

#[tokio::test]
async fn a_host_that_shuts_down_responds_with_503() {
    let host = Host {
        ended: true,
        ..Default::default()
    };
    let response = get(Dashboard::new(host).router(), "/dashboard/state").await;
    assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
}
