//! Adapts a request to the HTTP version of its connection: HTTP/1.1 needs a path and a `host`
//! header, HTTP/2 a scheme and an authority.
//!
//! Callers may write either form, or only a path. Repeated for every attempt: while settings
//! change, hosts may speak different HTTP versions. Hop-by-hop headers are left to forwarders.

use http::header::{HOST, HeaderValue};
use http::uri::{Authority, PathAndQuery, Scheme};
use http::{Method, Request, Uri, Version};

#[derive(Clone, Copy, Debug)]
pub(crate) struct ConnectionForm<'a> {
    pub(crate) http2: bool,
    pub(crate) tls: bool,
    /// Authority for requests that have none.
    pub(crate) authority: &'a Authority,
}

/// Rewrites the URI, version and `host` header of `request` for its connection. Idempotent.
pub(crate) fn normalize<B>(request: &mut Request<B>, form: ConnectionForm<'_>) {
    if form.http2 {
        normalize_http2(request, form);
    } else {
        normalize_http1(request, form);
    }
}

/// Returns the authority of the URI, or else the `host` header.
pub(crate) fn authority_of<B>(request: &Request<B>) -> Option<&str> {
    match request.uri().authority() {
        Some(authority) => Some(authority.as_str()),
        None => request.headers().get(HOST)?.to_str().ok(),
    }
}

fn normalize_http1<B>(request: &mut Request<B>, form: ConnectionForm<'_>) {
    *request.version_mut() = Version::HTTP_11;
    if !request.headers().contains_key(HOST) {
        let authority = request.uri().authority().unwrap_or(form.authority);
        // Userinfo does not belong into the host header (RFC 9110 §7.2).
        let host = match authority.as_str().rsplit_once('@') {
            None => HeaderValue::from_str(authority.as_str()),
            Some((_, host)) => HeaderValue::from_str(host),
        };
        if let Ok(host) = host {
            request.headers_mut().insert(HOST, host);
        }
    }
    // Only the request target of CONNECT is an authority.
    if request.uri().authority().is_some() && request.method() != Method::CONNECT {
        let path = request.uri().path_and_query().cloned();
        *request.uri_mut() = Uri::from(path.unwrap_or_else(root));
        // A path of which only a fragment was left would be an empty target.
        if request.uri().path().is_empty() {
            *request.uri_mut() = Uri::from(root());
        }
    }
}

fn normalize_http2<B>(request: &mut Request<B>, form: ConnectionForm<'_>) {
    *request.version_mut() = Version::HTTP_2;
    let host = request.headers_mut().remove(HOST);
    let uri = request.uri();
    let scheme = if form.tls {
        Scheme::HTTPS
    } else {
        Scheme::HTTP
    };
    let connect = request.method() == Method::CONNECT;
    let complete = match uri.scheme() {
        Some(own) => *own == scheme,
        // Only CONNECT has an authority without a scheme.
        None => connect,
    };
    if uri.authority().is_some() && complete {
        return;
    }
    let named = || Authority::try_from(host.as_ref()?.as_bytes()).ok();
    let authority = uri.authority().cloned().or_else(named);
    let mut parts = http::uri::Parts::default();
    parts.scheme = Some(scheme);
    parts.authority = Some(authority.unwrap_or_else(|| form.authority.clone()));
    parts.path_and_query = Some(uri.path_and_query().cloned().unwrap_or_else(root));
    // Cannot fail: all three parts are set.
    if let Ok(uri) = Uri::from_parts(parts) {
        *request.uri_mut() = uri;
    }
}

fn root() -> PathAndQuery {
    PathAndQuery::from_static("/")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn normalized(uri: &str, host: Option<&str>, http2: bool, tls: bool) -> (String, String) {
        let mut request = Request::get(uri);
        if let Some(host) = host {
            request = request.header(HOST, host);
        }
        let mut request = request.body(()).unwrap();
        let authority = Authority::from_static("cluster");
        let form = ConnectionForm {
            http2,
            tls,
            authority: &authority,
        };
        normalize(&mut request, form);
        let once = (request.uri().clone(), request.headers().clone());
        normalize(&mut request, form);
        assert_eq!((request.uri(), request.headers()), (&once.0, &once.1));
        let host = request
            .headers()
            .get(HOST)
            .map(|host| host.to_str().unwrap().to_owned());
        (request.uri().to_string(), host.unwrap_or_default())
    }

    #[test]
    fn http1_requests_have_a_path_and_a_host_header() {
        let cases = [
            ("/a?b", None, "/a?b", "cluster"),
            ("/a", Some("h:1"), "/a", "h:1"),
            ("http://x:8/a", None, "/a", "x:8"),
            ("http://x", None, "/", "x"),
            ("http://x/", Some("other"), "/", "other"),
            ("http://user:pw@x/", None, "/", "x"),
            ("*", None, "*", "cluster"),
        ];
        for (uri, host, path, expected) in cases {
            let found = normalized(uri, host, false, false);
            assert_eq!(found, (path.into(), expected.into()), "{uri}");
        }
    }

    #[test]
    fn http2_requests_have_a_scheme_and_an_authority() {
        let cases = [
            ("/a?b", None, "http://cluster/a?b"),
            ("/a", Some("h:1"), "http://h:1/a"),
            ("http://x:8/a", Some("other"), "http://x:8/a"),
            ("/a", Some("not a host"), "http://cluster/a"),
            ("x:80", None, "http://x:80/"),
        ];
        for (uri, host, expected) in cases {
            let found = normalized(uri, host, true, false);
            assert_eq!(found, (expected.into(), String::new()), "{uri}");
        }
        assert_eq!(normalized("http://x/a", None, true, true).0, "https://x/a");
    }

    #[test]
    fn an_empty_path_becomes_the_root() {
        let mut parts = Uri::from_static("http://x/").into_parts();
        parts.path_and_query = PathAndQuery::from_maybe_shared("#fragment").ok();
        let uri = Uri::from_parts(parts).unwrap();
        let mut request = Request::get(uri).body(()).unwrap();
        let authority = Authority::from_static("cluster");
        let form = ConnectionForm {
            http2: false,
            tls: false,
            authority: &authority,
        };
        normalize(&mut request, form);
        assert_eq!(request.uri().to_string(), "/");
        assert_eq!(request.headers()[HOST], "x");
    }

    #[test]
    fn connect_requests_keep_their_authority() {
        for http2 in [false, true] {
            let mut request = Request::connect("x:443").body(()).unwrap();
            let authority = Authority::from_static("cluster");
            let form = ConnectionForm {
                http2,
                tls: false,
                authority: &authority,
            };
            normalize(&mut request, form);
            assert_eq!(request.uri().to_string(), "x:443");
        }
    }

    #[test]
    fn the_authority_comes_from_the_uri_or_the_host_header() {
        let request = Request::get("/").header(HOST, "h").body(()).unwrap();
        assert_eq!(authority_of(&request), Some("h"));
        let request = Request::get("http://x:1/").body(()).unwrap();
        assert_eq!(authority_of(&request), Some("x:1"));
        let request = Request::get("/").body(()).unwrap();
        assert_eq!(authority_of(&request), None);
    }
}
