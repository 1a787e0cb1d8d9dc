//! Checks and normalizes a request before it is routed, so that routes, access logs and the
//! upstream see the same host, path and headers.
//!
//! Headers that are added or removed on the way to the upstream are in `headers`.

use bytes::{BufMut as _, BytesMut};
use http::header::{COOKIE, HOST};
use http::uri::{Authority, PathAndQuery};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Uri, Version};
use plimsoll_xds::pb::enums::HeadersWithUnderscoresAction;

use crate::config::{HttpOptions, PathOptions, StripHostPort};
use crate::headers;
use crate::local_reply::LocalReply;
use crate::path::{self, NormalizedPath};

/// Why a request is not routed.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    Reply(LocalReply),
    /// Redirect (307) to the normalized path.
    Redirect(PathAndQuery),
}

const BAD_REQUEST: Refused = Refused::Reply(LocalReply::BAD_REQUEST);

/// Applies the policy of a listener that has the port `local_port`.
pub(crate) fn apply<B>(
    request: &mut Request<B>,
    options: &HttpOptions,
    local_port: u16,
) -> Result<(), Refused> {
    if request.version() == Version::HTTP_2 {
        let max = usize::try_from(options.max_headers).unwrap_or(usize::MAX);
        if request.headers().len() > max {
            return Err(Refused::Reply(LocalReply::TOO_MANY_HEADERS));
        }
        join_cookies(request.headers_mut());
        if !has_valid_scheme(request.uri()) || !headers::unify_length(request.headers_mut()) {
            return Err(BAD_REQUEST);
        }
    } else if !headers::has_known_coding(request.headers()) {
        return Err(Refused::Reply(LocalReply::NOT_IMPLEMENTED));
    }
    if !has_valid_target(request) {
        return Err(BAD_REQUEST);
    }
    unify_host(request)?;
    if options.strip_host_port != StripHostPort::None && request.method() != Method::CONNECT {
        strip_host_port(request, options.strip_host_port, local_port);
    }
    if options.headers_with_underscores != HeadersWithUnderscoresAction::Allow {
        check_underscores(request.headers_mut(), options.headers_with_underscores)?;
    }
    if options.path != PathOptions::default() {
        normalize_path(request, &options.path)?;
    }
    Ok(())
}

/// Whether `:scheme` has the form of one (RFC 3986, 3.1); the HTTP/2 library accepts more.
fn has_valid_scheme(uri: &Uri) -> bool {
    uri.scheme_str().is_none_or(|scheme| {
        let mut bytes = scheme.bytes();
        bytes
            .next()
            .is_some_and(|first| first.is_ascii_alphabetic())
            && bytes.all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte))
    })
}

/// Whether the target is a path, or `*` of OPTIONS, or the authority of CONNECT (RFC 9112, 3.2).
fn has_valid_target<B>(request: &Request<B>) -> bool {
    let path = request.uri().path();
    match *request.method() {
        Method::CONNECT => true,
        Method::OPTIONS => path.starts_with('/') || path == "*",
        _ => path.starts_with('/'),
    }
}

/// Joins the `cookie` lines that HTTP/2 clients split for compression (RFC 9113, 8.2.3).
fn join_cookies(headers: &mut HeaderMap) {
    if let Some(joined) = join(headers, &COOKIE, b"; ") {
        headers.insert(COOKIE, joined);
    }
}

/// Joins several values of a header; `None` if it has at most one.
pub(crate) fn join(
    headers: &HeaderMap,
    name: &HeaderName,
    separator: &[u8],
) -> Option<HeaderValue> {
    let mut values = headers.get_all(name).iter();
    let (first, second) = (values.next()?, values.next()?);
    let mut joined = BytesMut::from(first.as_bytes());
    for value in std::iter::once(second).chain(values) {
        joined.put_slice(separator);
        joined.put_slice(value.as_bytes());
    }
    HeaderValue::from_maybe_shared(joined.freeze()).ok()
}

/// Makes authority and `Host` one. In HTTP/1.1 the authority of an absolute target replaces `Host`
/// (RFC 9112, 3.2.2); in HTTP/2 a `host` that differs from `:authority` is malformed (RFC 9113,
/// 8.3.1).
fn unify_host<B>(request: &mut Request<B>) -> Result<(), Refused> {
    let Some(authority) = request.uri().authority() else {
        return Ok(());
    };
    let mut hosts = request.headers().get_all(HOST).iter();
    let (host, repeated) = (hosts.next(), hosts.next().is_some());
    let equal = |host: &HeaderValue| {
        host.as_bytes()
            .eq_ignore_ascii_case(authority.as_str().as_bytes())
    };
    // A host of `:80` would be empty without its port.
    if repeated || authority.as_str().contains('@') || authority.host().is_empty() {
        return Err(BAD_REQUEST);
    }
    if request.method() == Method::CONNECT {
        return Ok(());
    }
    if request.version() == Version::HTTP_2 {
        if !host.is_none_or(equal) {
            return Err(BAD_REQUEST);
        }
        // It may differ in case; the upstream gets what was routed.
        request.headers_mut().remove(HOST);
        return Ok(());
    }
    if !has_valid_port(authority.as_str()) {
        return Err(BAD_REQUEST);
    }
    if host.is_some_and(equal) {
        return Ok(());
    }
    let host = HeaderValue::from_str(authority.as_str()).map_err(|_| BAD_REQUEST)?;
    request.headers_mut().insert(HOST, host);
    Ok(())
}

/// Whether the port of an authority is absent or a number.
fn has_valid_port(authority: &str) -> bool {
    match authority.rsplit_once(':') {
        Some((_, port)) if !port.ends_with(']') => port.parse::<u16>().is_ok(),
        _ => true,
    }
}

fn strip_host_port<B>(request: &mut Request<B>, strip: StripHostPort, local_port: u16) {
    let without_port = |host: &str| {
        let (name, port) = host.rsplit_once(':')?;
        let port: u16 = port.parse().ok()?;
        (strip == StripHostPort::Any || port == local_port).then_some(name.len())
    };
    let host = request.headers().get(HOST);
    let host = host.and_then(|host| {
        let name = without_port(host.to_str().ok()?)?;
        HeaderValue::from_bytes(&host.as_bytes()[..name]).ok()
    });
    if let Some(host) = host {
        request.headers_mut().insert(HOST, host);
    }
    let authority = request.uri().authority();
    let authority = authority.and_then(|authority| {
        let name = without_port(authority.as_str())?;
        Authority::try_from(&authority.as_str()[..name]).ok()
    });
    if let Some(authority) = authority {
        let mut parts = request.uri().clone().into_parts();
        parts.authority = Some(authority);
        if let Ok(uri) = Uri::from_parts(parts) {
            *request.uri_mut() = uri;
        }
    }
}

fn check_underscores(
    headers: &mut HeaderMap,
    action: HeadersWithUnderscoresAction,
) -> Result<(), Refused> {
    let has_underscore = |name: &&HeaderName| name.as_str().contains('_');
    if !headers.keys().any(|name| has_underscore(&name)) {
        return Ok(());
    }
    if action == HeadersWithUnderscoresAction::RejectRequest {
        return Err(BAD_REQUEST);
    }
    let names: Vec<HeaderName> = headers.keys().filter(has_underscore).cloned().collect();
    for name in names {
        headers.remove(name);
    }
    Ok(())
}

fn normalize_path<B>(request: &mut Request<B>, options: &PathOptions) -> Result<(), Refused> {
    let Some(target) = request.uri().path_and_query() else {
        return Ok(());
    };
    let path = match path::normalize(target, options) {
        NormalizedPath::Unchanged => return Ok(()),
        NormalizedPath::Forward(path) => path,
        NormalizedPath::Redirect(path) => return Err(Refused::Redirect(path)),
        NormalizedPath::Rejected => return Err(BAD_REQUEST),
    };
    let mut parts = request.uri().clone().into_parts();
    parts.path_and_query = Some(path);
    *request.uri_mut() = Uri::from_parts(parts).map_err(|_| BAD_REQUEST)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(version: Version, uri: &str, fields: &[(&str, &str)]) -> Request<()> {
        let mut request = Request::builder().version(version).uri(uri);
        for (name, value) in fields {
            request = request.header(*name, *value);
        }
        request.body(()).unwrap()
    }

    fn applied(mut request: Request<()>, options: &HttpOptions) -> Result<Request<()>, Refused> {
        apply(&mut request, options, 8080).map(|()| request)
    }

    #[test]
    fn authority_and_host_are_one() {
        let options = HttpOptions::default();
        let absolute = request(
            Version::HTTP_11,
            "http://public.example/x",
            &[("host", "internal.example")],
        );
        let absolute = applied(absolute, &options).unwrap();
        assert_eq!(absolute.headers()["host"], "public.example");
        let differs = [("host", "internal.example")];
        let http2 = request(Version::HTTP_2, "http://public.example/x", &differs);
        assert_eq!(applied(http2, &options).unwrap_err(), BAD_REQUEST);
        for same in ["public.example", "PUBLIC.example"] {
            let http2 = request(
                Version::HTTP_2,
                "http://public.example/x",
                &[("host", same)],
            );
            assert!(applied(http2, &options).is_ok(), "{same}");
        }
        for version in [Version::HTTP_11, Version::HTTP_2] {
            let user = request(version, "http://public.example@internal.example/", &[]);
            assert_eq!(applied(user, &options).unwrap_err(), BAD_REQUEST);
        }
    }

    #[test]
    fn cookies_of_http2_are_joined() {
        let crumbs = [("cookie", "a=1"), ("cookie", "b=2"), ("cookie", "c=3")];
        let http2 = request(Version::HTTP_2, "http://h/", &crumbs);
        let joined = applied(http2, &HttpOptions::default()).unwrap();
        let values: Vec<_> = joined.headers().get_all("cookie").iter().collect();
        assert_eq!(values, ["a=1; b=2; c=3"]);
    }

    #[test]
    fn ports_are_stripped_from_host() {
        for (strip, host, expected) in [
            (StripHostPort::None, "h:8080", "h:8080"),
            (StripHostPort::Matching, "h:8080", "h"),
            (StripHostPort::Matching, "h:8081", "h:8081"),
            (StripHostPort::Matching, "[::1]:8080", "[::1]"),
            (StripHostPort::Matching, "[::8080]", "[::8080]"),
            (StripHostPort::Any, "h:1", "h"),
            (StripHostPort::Any, "h", "h"),
        ] {
            let options = HttpOptions {
                strip_host_port: strip,
                ..Default::default()
            };
            let http1 = request(Version::HTTP_11, "/", &[("host", host)]);
            assert_eq!(
                applied(http1, &options).unwrap().headers()["host"],
                expected
            );
            let uri = format!("http://{host}/a?b");
            let http2 = applied(request(Version::HTTP_2, &uri, &[]), &options).unwrap();
            assert_eq!(http2.uri().to_string(), format!("http://{expected}/a?b"));
        }
    }

    #[test]
    fn headers_with_underscores_are_kept_dropped_or_rejected() {
        let fields = [("host", "h"), ("x_admin", "1"), ("x-a", "2")];
        let mut options = HttpOptions::default();
        let count = |options: &HttpOptions| {
            let applied = applied(request(Version::HTTP_11, "/", &fields), options);
            applied.map(|request| request.headers().len())
        };
        assert_eq!(count(&options), Ok(3));
        options.headers_with_underscores = HeadersWithUnderscoresAction::DropHeader;
        assert_eq!(count(&options), Ok(2));
        options.headers_with_underscores = HeadersWithUnderscoresAction::RejectRequest;
        assert_eq!(count(&options), Err(BAD_REQUEST));
    }

    #[test]
    fn targets_are_paths() {
        let options = HttpOptions::default();
        for (version, method, uri, accepted) in [
            (Version::HTTP_11, Method::GET, "/x", true),
            (Version::HTTP_11, Method::GET, "http://h", true),
            (Version::HTTP_11, Method::GET, "http://h?q", true),
            (Version::HTTP_11, Method::GET, "http://h:8080/", true),
            (Version::HTTP_11, Method::GET, "http://[::1]/", true),
            (Version::HTTP_11, Method::GET, "http://h:x/", false),
            (Version::HTTP_11, Method::GET, "http://h:/", false),
            (Version::HTTP_11, Method::GET, "http://:80/", false),
            (Version::HTTP_11, Method::GET, "*", false),
            (Version::HTTP_11, Method::OPTIONS, "*", true),
            (Version::HTTP_11, Method::GET, "h:80", false),
            (Version::HTTP_11, Method::CONNECT, "h:80", true),
            (Version::HTTP_2, Method::GET, "http://h/x", true),
            (Version::HTTP_2, Method::GET, "ftp+x://h/x", true),
            (Version::HTTP_2, Method::GET, "1http://h/x", false),
        ] {
            let mut request = request(version, uri, &[("host", "h")]);
            *request.method_mut() = method;
            if version == Version::HTTP_2 {
                request.headers_mut().clear();
            }
            assert_eq!(applied(request, &options).is_ok(), accepted, "{uri}");
        }
    }

    #[test]
    fn http2_requests_are_forwarded_with_the_authority_and_one_length() {
        let fields = [
            ("host", "H"),
            ("content-length", "5"),
            ("content-length", "5"),
        ];
        let http2 = request(Version::HTTP_2, "http://h/", &fields);
        let unified = applied(http2, &HttpOptions::default()).unwrap();
        assert!(!unified.headers().contains_key("host"));
        let lengths: Vec<_> = unified.headers().get_all("content-length").iter().collect();
        assert_eq!(lengths, ["5"]);
    }

    #[test]
    fn codings_other_than_chunked_are_rejected() {
        for (values, accepted) in [
            (&["chunked"][..], true),
            (&["Chunked"], true),
            (&["gzip, chunked"], false),
            (&["identity", "chunked"], false),
        ] {
            let fields: Vec<_> = values
                .iter()
                .map(|value| ("transfer-encoding", *value))
                .collect();
            let request = request(Version::HTTP_11, "/", &fields);
            let applied = applied(request, &HttpOptions::default());
            assert_eq!(applied.is_ok(), accepted, "{values:?}");
        }
    }

    #[test]
    fn header_count_of_http2_is_limited() {
        let many: Vec<(String, &str)> = (0..101).map(|n| (format!("x-{n}"), "1")).collect();
        let many: Vec<(&str, &str)> = many.iter().map(|(name, v)| (name.as_str(), *v)).collect();
        let result = applied(
            request(Version::HTTP_2, "http://h/", &many),
            &HttpOptions::default(),
        );
        let expected = Refused::Reply(LocalReply::TOO_MANY_HEADERS);
        assert_eq!(result.unwrap_err(), expected);
    }
}
