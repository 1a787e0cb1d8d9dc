//! `?pretty`: JSON of the admin API with line breaks, for people at a terminal.
//!
//! The parameter is removed before the request reaches its handler, which refuses unknown ones.

use axum::body::{Body, to_bytes};
use axum::extract::Request;
use axum::http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use axum::http::{HeaderValue, Uri};
use axum::middleware::Next;
use axum::response::Response;

/// Largest response that is reformatted; a larger one is sent as it is.
const MAX_BYTES: usize = 16 << 20;

/// Reformats the response if the query of the request has `pretty`.
pub(crate) async fn pretty(mut request: Request, next: Next) -> Response {
    let Some(uri) = without_parameter(request.uri()) else {
        return next.run(request).await;
    };
    *request.uri_mut() = uri;
    indented(next.run(request).await).await
}

/// Returns the address without `pretty`; `None` if it does not have the parameter.
fn without_parameter(uri: &Uri) -> Option<Uri> {
    let is_pretty =
        |part: &&str| matches!(*part, "pretty" | "pretty=" | "pretty=true" | "pretty=1");
    let parts = || uri.query().unwrap_or_default().split('&');
    parts().find(is_pretty)?;
    let rest: Vec<&str> = parts().filter(|part| !is_pretty(part)).collect();
    let target = match rest.join("&") {
        query if query.is_empty() => uri.path().to_owned(),
        query => format!("{}?{query}", uri.path()),
    };
    let mut changed = uri.clone().into_parts();
    changed.path_and_query = Some(target.parse().ok()?);
    Uri::from_parts(changed).ok()
}

async fn indented(response: Response) -> Response {
    let json = HeaderValue::from_static("application/json");
    let (mut parts, body) = response.into_parts();
    let is_small = |length: &HeaderValue| {
        let length = length.to_str().ok()?.parse::<usize>().ok()?;
        (length <= MAX_BYTES).then_some(())
    };
    let small = parts.headers.get(CONTENT_LENGTH).and_then(is_small);
    let is_json = parts.headers.get(CONTENT_TYPE) == Some(&json);
    if !is_json || (parts.headers.contains_key(CONTENT_LENGTH) && small.is_none()) {
        return Response::from_parts(parts, body);
    }
    let Ok(bytes) = to_bytes(body, MAX_BYTES).await else {
        // A handler sends JSON in one piece, and its length was checked: this does not happen.
        return Response::from_parts(parts, Body::empty());
    };
    let value = serde_json::from_slice::<serde_json::Value>(&bytes);
    let text = value.and_then(|value| serde_json::to_string_pretty(&value));
    let body = match text {
        Ok(text) => Body::from(format!("{text}\n")),
        Err(_) => Body::from(bytes),
    };
    parts.headers.remove(CONTENT_LENGTH);
    Response::from_parts(parts, body)
}

#[cfg(test)]
mod tests {
    use axum::Router;
    use axum::middleware::from_fn;
    use axum::routing::get;
    use tower::ServiceExt as _;

    use super::*;

    async fn ask(target: &str) -> String {
        let json = |uri: Uri| async move {
            let body = format!(
                "{{\"b\":[1],\"query\":{:?}}}",
                uri.query().unwrap_or("none")
            );
            ([(CONTENT_TYPE, "application/json")], body)
        };
        let router = Router::new()
            .route("/json", get(json))
            .route("/text", get(|| async { "plain" }))
            .layer(from_fn(pretty));
        let request = Request::get(target).body(Body::empty()).unwrap();
        let response = router.oneshot(request).await.unwrap();
        let bytes = to_bytes(response.into_body(), 1000).await.unwrap();
        String::from_utf8(bytes.into()).unwrap()
    }

    #[tokio::test]
    async fn json_is_indented_on_request() {
        assert_eq!(ask("/json?a=1").await, "{\"b\":[1],\"query\":\"a=1\"}");
        let lines = "{\n  \"b\": [\n    1\n  ],\n  \"query\": \"none\"\n}\n";
        assert_eq!(ask("/json?pretty").await, lines);
        let lines = ask("/json?a=1&pretty&b=2").await;
        assert!(lines.contains("\"query\": \"a=1&b=2\""), "{lines}");
        assert_eq!(ask("/text?pretty").await, "plain");
    }
}
