//! The form in which a request is forwarded (`request_policy`, `headers`, `path`).
//!
//! The first byte selects version and options. The lines of the rest are method and URI, then
//! header fields.

use http::header::{CONNECTION, CONTENT_LENGTH, HOST, TE};
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Uri, Version};
use plimsoll_xds::pb::enums::{HeadersWithUnderscoresAction, PathWithEscapedSlashesAction};

use super::MemoryLimit;
use crate::config::{HttpOptions, PathOptions, StripHostPort};
use crate::headers::{self, Downstream, X_FORWARDED_FOR, X_FORWARDED_PROTO};
use crate::path::{self, NormalizedPath};
use crate::request_policy;

/// A request with the headers that are added to it.
pub const MEMORY: MemoryLimit = MemoryLimit {
    base: 64 << 10,
    per_byte: 512,
};

/// Builds a request from the input and checks its form after every step of the proxy.
pub fn run(bytes: &[u8]) {
    let Some((flags, rest)) = bytes.split_first() else {
        return;
    };
    let options = options(*flags);
    let Some(mut request) = parse(*flags, rest) else {
        return;
    };
    check_path(&request, &options.path);
    if request_policy::apply(&mut request, &options, 8080).is_err() {
        return;
    }
    check_policy(&request, &options);
    check_headers(request.headers().clone(), &options);
}

fn options(flags: u8) -> HttpOptions {
    let strip = [
        StripHostPort::None,
        StripHostPort::Matching,
        StripHostPort::Any,
        StripHostPort::None,
    ];
    let slashes = [
        PathWithEscapedSlashesAction::KeepUnchanged,
        PathWithEscapedSlashesAction::RejectRequest,
        PathWithEscapedSlashesAction::UnescapeAndRedirect,
        PathWithEscapedSlashesAction::UnescapeAndForward,
    ];
    let underscores = if flags & 64 == 0 {
        HeadersWithUnderscoresAction::DropHeader
    } else {
        HeadersWithUnderscoresAction::Allow
    };
    HttpOptions {
        strip_host_port: strip[usize::from(flags >> 1 & 3)],
        headers_with_underscores: underscores,
        use_remote_address: flags & 128 != 0,
        path: PathOptions {
            normalize: flags & 32 != 0,
            merge_slashes: flags & 32 != 0,
            escaped_slashes: slashes[usize::from(flags >> 3 & 3)],
        },
        ..HttpOptions::default()
    }
}

fn parse(flags: u8, text: &[u8]) -> Option<Request<()>> {
    let mut lines = text.split(|byte| *byte == b'\n');
    let first = lines.next()?;
    let space = first.iter().position(|byte| *byte == b' ')?;
    let mut request = Request::new(());
    *request.method_mut() = Method::from_bytes(&first[..space]).ok()?;
    *request.uri_mut() = Uri::try_from(&first[space + 1..]).ok()?;
    *request.version_mut() = if flags & 1 == 0 {
        Version::HTTP_11
    } else {
        Version::HTTP_2
    };
    for line in lines {
        let colon = line.iter().position(|byte| *byte == b':')?;
        let name = HeaderName::from_bytes(&line[..colon]).ok()?;
        let value = HeaderValue::from_bytes(line[colon + 1..].trim_ascii()).ok()?;
        request.headers_mut().append(name, value);
    }
    Some(request)
}

/// A normalized path is left alone, and has nothing that an upstream could normalize.
fn check_path(request: &Request<()>, options: &PathOptions) {
    let Some(target) = request.uri().path_and_query() else {
        return;
    };
    let normalized = match path::normalize(target, options) {
        NormalizedPath::Forward(new) | NormalizedPath::Redirect(new) => new,
        NormalizedPath::Unchanged => target.clone(),
        NormalizedPath::Rejected => return,
    };
    let same = match path::normalize(&normalized, options) {
        NormalizedPath::Unchanged => true,
        NormalizedPath::Forward(again) => again == normalized,
        NormalizedPath::Redirect(_) | NormalizedPath::Rejected => false,
    };
    assert!(same, "{target} becomes {normalized}");
    if options.normalize && target.path().starts_with('/') {
        check_normalized(&normalized, options);
    }
}

fn check_normalized(target: &PathAndQuery, options: &PathOptions) {
    let path = target.path().to_ascii_lowercase();
    let mut segments = path.split('/');
    assert!(!segments.any(|part| part == "." || part == ".."), "{path}");
    assert!(!path.contains("//") && !path.contains('\\'), "{path}");
    assert!(!path.contains("%2e") && !path.contains("%00"), "{path}");
    if options.escaped_slashes != PathWithEscapedSlashesAction::KeepUnchanged {
        assert!(!path.contains("%2f") && !path.contains("%5c"), "{path}");
    }
}

fn check_policy(request: &Request<()>, options: &HttpOptions) {
    let hosts = request.headers().get_all(HOST).iter().count();
    let path = request.uri().path();
    if let Some(authority) = request.uri().authority() {
        assert!(hosts <= 1, "a request with an authority has one host");
        assert!(!authority.as_str().contains('@'));
        let host = request.headers().get(HOST).map(HeaderValue::as_bytes);
        let same = |host: &[u8]| host.eq_ignore_ascii_case(authority.as_str().as_bytes());
        let connect = request.method() == Method::CONNECT;
        assert!(connect || host.is_none_or(same), "{authority} {host:?}");
    }
    if request.method() != Method::CONNECT {
        assert!(path.starts_with('/') || path == "*", "{path}");
    }
    if request.version() == Version::HTTP_2 {
        let lengths = request.headers().get_all(CONTENT_LENGTH);
        assert!(lengths.iter().count() <= 1);
    }
    // A second port would be stripped again.
    if options.strip_host_port == StripHostPort::None {
        let mut again = request.clone();
        assert_eq!(request_policy::apply(&mut again, options, 8080), Ok(()));
        assert_eq!(again.uri(), request.uri());
        assert_eq!(again.headers(), request.headers());
    }
}

fn check_headers(mut headers: HeaderMap, options: &HttpOptions) {
    let connection = headers.get_all(CONNECTION).iter();
    let named: Vec<_> = connection
        .flat_map(|value| value.as_bytes().split(|byte| *byte == b','))
        .filter_map(|name| HeaderName::from_bytes(name.trim_ascii()).ok())
        .filter(|name| *name != HOST && *name != X_FORWARDED_FOR && *name != TE)
        .collect();
    let hosts = headers.get_all(HOST).iter().count();
    headers::remove_request_hop_by_hop(&mut headers);
    let hop_by_hop = [
        "connection",
        "expect",
        "keep-alive",
        "proxy-connection",
        "transfer-encoding",
        "upgrade",
    ];
    let gone = |name: &str| assert!(!headers.contains_key(name), "{name}");
    hop_by_hop.into_iter().for_each(gone);
    named.iter().map(HeaderName::as_str).for_each(gone);
    assert!(headers.get(TE).is_none_or(|te| te == "trailers"));
    assert_eq!(headers.get_all(HOST).iter().count(), hosts);
    let address = HeaderValue::from_static("10.0.0.9");
    let downstream = Downstream {
        address: &address,
        scheme: "http",
    };
    headers::sanitize(&mut headers, &downstream, options);
    headers::add_forwarded(&mut headers, &downstream, options);
    assert!(headers.contains_key(X_FORWARDED_PROTO));
    if options.use_remote_address {
        assert_eq!(headers[X_FORWARDED_PROTO], "http");
        let mut list = headers.get_all(X_FORWARDED_FOR).iter();
        let last = list.next().map(HeaderValue::as_bytes);
        assert!(last.is_some_and(|list| list.ends_with(b"10.0.0.9")));
        assert!(list.next().is_none(), "one list");
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::run_seeded;
    use super::*;

    #[test]
    fn forwarded_requests_keep_the_invariants() {
        let tokens = [
            "GET ",
            "OPTIONS ",
            "CONNECT ",
            "http://h",
            "http://u@h:80",
            "/",
            "..",
            ".",
            "//",
            "%2",
            "%2e",
            "%2F",
            "%5c",
            "%65",
            "%32",
            "%",
            "\\",
            "x",
            "?q",
            ":80",
            "\nhost:h",
            "\nhost:u@h",
            "\nconnection:x, te, host",
            "\nx:1",
            "\nx_y:1",
            "\nte:trailers",
            "\ncontent-length:5",
            "\nx-forwarded-for:1.1.1.1",
            "\ntransfer-encoding:chunked",
            "\nupgrade:websocket",
        ];
        run_seeded(&tokens, 6000, MEMORY, run);
        // Regressions: one byte of options, then the request.
        for regression in [
            "\u{20}GET /x/%2%65%2%65/y",
            "\u{30}GET /%2%66",
            "\u{4}GET http://:0/",
        ] {
            run(regression.as_bytes());
        }
    }
}
