//! Fields that trailers must not have (RFC 9110, 6.5.1): framing, routing, credentials, and what
//! the proxy says about the client. The rules of `headers`, which the upstream relies on, would not
//! hold if trailers could repeat these fields, because many servers merge trailers into headers.

use http::header::CONTENT_LENGTH;
use http::{HeaderMap, HeaderName};

use crate::headers::{remove_all, remove_hop_by_hop};

/// Removed from trailers of requests, besides `x-envoy-*`, `x-forwarded-*` and hop-by-hop fields.
const REQUEST: &[&str] = &[
    "authorization",
    "cache-control",
    "content-encoding",
    "content-length",
    "content-range",
    "content-type",
    "cookie",
    "expect",
    "forwarded",
    "host",
    "max-forwards",
    "proxy-authorization",
    "te",
    "trailer",
    "x-real-ip",
    "x-request-id",
];

/// Removes what trailers of a request must not have.
pub(crate) fn sanitize_request(trailers: &mut HeaderMap, allow_underscores: bool) {
    remove_hop_by_hop(trailers);
    remove_all(trailers, |name| {
        let name = name.as_str();
        REQUEST.contains(&name)
            || name.starts_with("x-envoy-")
            || name.starts_with("x-forwarded-")
            || !allow_underscores && name.contains('_')
    });
}

/// Removes what trailers of a response must not have.
pub(crate) fn sanitize_response(trailers: &mut HeaderMap) {
    remove_hop_by_hop(trailers);
    remove_all(trailers, |name: &HeaderName| {
        matches!(
            name.as_str(),
            "content-encoding" | "content-length" | "content-range" | "content-type" | "trailer"
        )
    });
}

/// Whether trailers make an HTTP/2 request malformed: they come too late for a length.
pub(crate) fn is_malformed_http2(trailers: &HeaderMap) -> bool {
    trailers.contains_key(CONTENT_LENGTH)
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn trailers(names: &[&'static str]) -> HeaderMap {
        let value = HeaderValue::from_static("x");
        let pairs = names
            .iter()
            .map(|name| (HeaderName::from_static(name), value.clone()));
        pairs.collect()
    }

    fn names(trailers: &HeaderMap) -> Vec<&str> {
        let mut names: Vec<_> = trailers.keys().map(HeaderName::as_str).collect();
        names.sort_unstable();
        names
    }

    #[test]
    fn trailers_of_requests_cannot_pose_as_headers() {
        let mut fields = trailers(&[
            "x-forwarded-client-cert",
            "x-forwarded-for",
            "x-envoy-internal",
            "x-envoy-anything",
            "x-request-id",
            "transfer-encoding",
            "content-length",
            "authorization",
            "host",
            "grpc-status",
            "x_y",
            "named",
        ]);
        fields.insert("connection", HeaderValue::from_static("named"));
        let mut strict = fields.clone();
        sanitize_request(&mut fields, true);
        assert_eq!(names(&fields), ["grpc-status", "x_y"]);
        sanitize_request(&mut strict, false);
        assert_eq!(names(&strict), ["grpc-status"]);
    }

    #[test]
    fn trailers_of_responses_have_no_framing() {
        let mut fields = trailers(&["connection", "content-length", "grpc-status", "x-envoy-a"]);
        sanitize_response(&mut fields);
        assert_eq!(names(&fields), ["grpc-status", "x-envoy-a"]);
    }
}
