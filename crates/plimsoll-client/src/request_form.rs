//! How a request must look on a connection: HTTP/1.1 wants a path and a `host` header, HTTP/2 a
//! scheme and an authority.
//!
//! Callers may write either, or only a path. Done anew for every try, because hosts may speak
//! different versions while settings change. Hop-by-hop headers are the business of whoever
//! forwards requests, not ours.

use http::header::{HOST, HeaderValue};
use http::uri::{Authority, PathAndQuery, Scheme};
use http::{Method, Request, Uri, Version};

/// What is known of the connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Form<'a> {
    pub(crate) http2: bool,
    pub(crate) tls: bool,
    /// For requests that name no host.
    pub(crate) authority: &'a Authority,
}

/// Brings `request` into the form that its connection wants. Doing it twice changes nothing.
pub(crate) fn shape<B>(request: &mut Request<B>, form: Form<'_>) {
    if form.http2 {
        shape_http2(request, form);
    } else {
        shape_http1(request, form);
    }
}

/// The host that a request names, if it names one.
pub(crate) fn authority_of<B>(request: &Request<B>) -> Option<&str> {
    match request.uri().authority() {
        Some(authority) => Some(authority.as_str()),
        None => request.headers().get(HOST)?.to_str().ok(),
    }
}

fn shape_http1<B>(request: &mut Request<B>, form: Form<'_>) {
    *request.version_mut() = Version::HTTP_11;
    if !request.headers().contains_key(HOST) {
        let authority = request.uri().authority().unwrap_or(form.authority);
        // Who wrote user and password into the address did not mean the host header.
        let host = match authority.as_str().rsplit_once('@') {
            None => HeaderValue::from_str(authority.as_str()),
            Some((_, host)) => HeaderValue::from_str(host),
        };
        if let Ok(host) = host {
            request.headers_mut().insert(HOST, host);
        }
    }
    // CONNECT is the one method whose target is an authority.
    if request.uri().authority().is_some() && request.method() != Method::CONNECT {
        let path = request.uri().path_and_query().cloned();
        *request.uri_mut() = Uri::from(path.unwrap_or_else(root));
    }
}

fn shape_http2<B>(request: &mut Request<B>, form: Form<'_>) {
    *request.version_mut() = Version::HTTP_2;
    let host = request.headers_mut().remove(HOST);
    let uri = request.uri();
    let scheme = if form.tls {
        Scheme::HTTPS
    } else {
        Scheme::HTTP
    };
    if uri.authority().is_some() && (uri.scheme() == Some(&scheme) || uri.scheme().is_none()) {
        // Complete as it is; an authority without scheme is that of CONNECT.
        return;
    }
    let named = || Authority::try_from(host.as_ref()?.as_bytes()).ok();
    let authority = uri.authority().cloned().or_else(named);
    let mut parts = http::uri::Parts::default();
    parts.scheme = Some(scheme);
    parts.authority = Some(authority.unwrap_or_else(|| form.authority.clone()));
    parts.path_and_query = Some(uri.path_and_query().cloned().unwrap_or_else(root));
    // All three parts are there, so they make an address.
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

    fn shaped(uri: &str, host: Option<&str>, (http2, tls): (bool, bool)) -> (String, String) {
        let mut request = Request::get(uri);
        if let Some(host) = host {
            request = request.header(HOST, host);
        }
        let mut request = request.body(()).unwrap();
        let authority = Authority::from_static("cluster");
        let form = Form {
            http2,
            tls,
            authority: &authority,
        };
        shape(&mut request, form);
        let once = (request.uri().clone(), request.headers().clone());
        shape(&mut request, form);
        assert_eq!((request.uri(), request.headers()), (&once.0, &once.1));
        let host = request.headers().get(HOST);
        let host = host.map(|host| host.to_str().unwrap().to_owned());
        (request.uri().to_string(), host.unwrap_or_default())
    }

    #[test]
    fn http1_gets_a_path_and_a_host() {
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
            let found = shaped(uri, host, (false, false));
            assert_eq!(found, (path.into(), expected.into()), "{uri}");
        }
    }

    #[test]
    fn http2_gets_scheme_and_authority() {
        let cases = [
            ("/a?b", None, "http://cluster/a?b"),
            ("/a", Some("h:1"), "http://h:1/a"),
            ("http://x:8/a", Some("other"), "http://x:8/a"),
            ("/a", Some("not a host"), "http://cluster/a"),
        ];
        for (uri, host, expected) in cases {
            let found = shaped(uri, host, (true, false));
            assert_eq!(found, (expected.into(), String::new()), "{uri}");
        }
        assert_eq!(shaped("http://x/a", None, (true, true)).0, "https://x/a");
    }

    #[test]
    fn connect_keeps_its_target() {
        for http2 in [false, true] {
            let mut request = Request::connect("x:443").body(()).unwrap();
            let authority = Authority::from_static("cluster");
            let form = Form {
                http2,
                tls: false,
                authority: &authority,
            };
            shape(&mut request, form);
            assert_eq!(request.uri().to_string(), "x:443");
        }
    }

    #[test]
    fn the_host_of_a_request_is_found() {
        let request = Request::get("/").header(HOST, "h").body(()).unwrap();
        assert_eq!(authority_of(&request), Some("h"));
        let request = Request::get("http://x:1/").body(()).unwrap();
        assert_eq!(authority_of(&request), Some("x:1"));
        let request = Request::get("/").body(()).unwrap();
        assert_eq!(authority_of(&request), None);
    }
}
