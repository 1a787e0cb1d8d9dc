//! What routes, header formats and access logs read of a request.

use std::sync::Arc;
use std::time::SystemTime;

use http::header::HOST;
use http::uri::{Authority, PathAndQuery};
use http::{Request, Version};
use hyper::body::Incoming;

use crate::exchange::{Exchange, protocol};
use crate::router::{CompiledRoute, RequestView};
use crate::substitution::RequestInfo;

/// Characters of a host and its port beside letters and digits: those of `authority` in RFC 3986,
/// 3.2, without `@`, because user information is no part of a host. Envoy accepts the same.
const HOST_MARKS: &[u8] = b"-._~%!$&'()*+,;=:[]";

/// Collects the values that header formats such as `%UPSTREAM_HOST%` refer to.
pub(crate) fn request_info(
    view: &RequestView<'_>,
    route: &CompiledRoute,
    exchange: &Exchange,
    version: Version,
) -> Box<RequestInfo> {
    let connection = exchange.connection();
    Box::new(RequestInfo {
        start: SystemTime::now(),
        protocol: protocol(version),
        peer: connection.peer,
        method: view.method.clone(),
        path: view.path_and_query.to_owned(),
        authority: view.host.to_owned(),
        scheme: connection.scheme,
        headers: view.headers.clone(),
        route: Arc::clone(&route.name),
        cluster: None,
        upstream_host: None,
        status: None,
    })
}

/// Returns the values that routes match on; `None` if `Host` is missing, repeated or malformed.
pub(crate) fn request_view<'a>(
    request: &'a Request<Incoming>,
    scheme: &'static str,
) -> Option<RequestView<'a>> {
    let headers = request.headers();
    let mut fields = headers.get_all(HOST).iter();
    let field = fields.next();
    if fields.next().is_some() {
        return None;
    }
    let field = match field {
        Some(field) => Some(field.to_str().ok()?),
        None => None,
    };
    let uri = request.uri();
    let host = uri.authority().map(Authority::as_str).or(field)?;
    if !host.bytes().all(is_host_byte) {
        return None;
    }
    Some(RequestView {
        host,
        path: uri.path(),
        path_and_query: uri.path_and_query().map_or("", PathAndQuery::as_str),
        method: request.method(),
        scheme,
        headers,
    })
}

fn is_host_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || HOST_MARKS.contains(&byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_has_the_characters_of_an_authority() {
        for host in [
            "a-b.example:8080",
            "[::1]:80",
            "A_b~",
            "a%2e",
            "x!$&'()*+,;=",
        ] {
            assert!(host.bytes().all(is_host_byte), "{host}");
        }
        for byte in "|\\\"<>^`{}/?#@ \t\0\u{7f}".bytes().chain([0x80, 0xff]) {
            assert!(!is_host_byte(byte), "{byte:#x}");
        }
    }
}
