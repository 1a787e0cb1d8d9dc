//! Headers that every HTTP proxy must remove or add.
//!
//! Hop-by-hop headers are removed (RFC 9110, 7.6.1). `x-forwarded-for` and `x-request-id` follow
//! Envoy's rules for edge proxies and sidecars. Header rules of routes are in `header_rules`.

use std::sync::LazyLock;
use std::time::Duration;

use bytes::Bytes;
use http::header::{
    CONNECTION, CONTENT_LENGTH, EXPECT, Entry, HOST, TE, TRANSFER_ENCODING, UPGRADE,
};
use http::{HeaderMap, HeaderName, HeaderValue};

use crate::config::HttpOptions;
use crate::request_policy;

pub(crate) const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
pub(crate) const X_FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
pub(crate) const X_FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
pub(crate) const X_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
const X_ENVOY_EXTERNAL_ADDRESS: HeaderName = HeaderName::from_static("x-envoy-external-address");
const X_ENVOY_UPSTREAM_SERVICE_TIME: HeaderName =
    HeaderName::from_static("x-envoy-upstream-service-time");
const TRAILERS: HeaderValue = HeaderValue::from_static("trailers");

/// Removes hop-by-hop headers, including the ones that `connection` names.
pub(crate) fn remove_hop_by_hop(headers: &mut HeaderMap) {
    remove_all(headers, |name| {
        matches!(
            name.as_str(),
            "connection" | "keep-alive" | "proxy-connection" | "transfer-encoding" | "upgrade"
        )
    });
}

/// Removes the headers with such names. Few messages have any: comparing the names that are there
/// costs less than to look up each name that may be there.
pub(crate) fn remove_all(headers: &mut HeaderMap, is_removed: impl Fn(&HeaderName) -> bool) {
    while let Some(name) = headers.keys().find(|name| is_removed(name)).cloned() {
        if name == CONNECTION {
            remove_named_by_connection(headers);
        }
        headers.remove(name);
    }
}

/// Leaves a message one length: `transfer-encoding` overrides `content-length`, and a repeated
/// `content-length` becomes one. Returns false if the codings are not `chunked`, which would be
/// removed from the headers but not from the body, or if the lengths differ.
pub(crate) fn unify_length(headers: &mut HeaderMap) -> bool {
    if headers.contains_key(TRANSFER_ENCODING) {
        headers.remove(CONTENT_LENGTH);
        return has_known_coding(headers);
    }
    let mut values = headers.get_all(CONTENT_LENGTH).iter();
    let Some(first) = values.next() else {
        return true;
    };
    let is_number = |text: &[u8]| !text.is_empty() && text.iter().all(u8::is_ascii_digit);
    if values.next().is_none() && is_number(first.as_bytes()) {
        return true;
    }
    let values = headers.get_all(CONTENT_LENGTH).iter();
    let mut items = values
        .flat_map(|value| value.as_bytes().split(|byte| *byte == b','))
        .map(<[u8]>::trim_ascii);
    let Some(length) = items.next().filter(|length| is_number(length)) else {
        return false;
    };
    if items.any(|item| item != length) {
        return false;
    }
    let Ok(length) = HeaderValue::from_bytes(length) else {
        return false;
    };
    headers.insert(CONTENT_LENGTH, length);
    true
}

/// Whether `transfer-encoding` is absent or `chunked`.
pub(crate) fn has_known_coding(headers: &HeaderMap) -> bool {
    let mut values = headers.get_all(TRANSFER_ENCODING).iter();
    match (values.next(), values.next()) {
        (None, _) => true,
        (Some(value), None) => value
            .as_bytes()
            .trim_ascii()
            .eq_ignore_ascii_case(b"chunked"),
        _ => false,
    }
}

/// Removes hop-by-hop headers of a request. Keeps `te: trailers`, which gRPC needs; drops `expect`,
/// because hyper has already sent `100 Continue`.
pub(crate) fn remove_request_hop_by_hop(headers: &mut HeaderMap) {
    let trailers = wants_trailers(headers);
    remove_hop_by_hop(headers);
    remove_all(headers, |name| *name == EXPECT || *name == TE);
    if trailers {
        headers.insert(TE, TRAILERS);
    }
}

fn wants_trailers(headers: &HeaderMap) -> bool {
    let values = headers.get_all(TE).iter();
    let mut tokens = values.flat_map(|value| value.as_bytes().split(|byte| *byte == b','));
    tokens.any(|token| token.trim_ascii().eq_ignore_ascii_case(b"trailers"))
}

/// Removes the headers that `connection` names, except for `host`, `x-forwarded-for` and `te`.
fn remove_named_by_connection(headers: &mut HeaderMap) {
    let values = headers.get_all(CONNECTION).iter();
    let tokens = values.flat_map(|value| value.as_bytes().split(|byte| *byte == b','));
    // Most messages have one of these, which name no other header.
    let options: [&[u8]; 3] = [b"keep-alive", b"close", b"upgrade"];
    let names: Vec<HeaderName> = tokens
        .map(<[u8]>::trim_ascii)
        .filter(|token| {
            !options
                .iter()
                .any(|option| token.eq_ignore_ascii_case(option))
        })
        .filter_map(|token| HeaderName::from_bytes(token).ok())
        .filter(|name| *name != HOST && *name != X_FORWARDED_FOR && *name != TE)
        .collect();
    for name in names {
        headers.remove(name);
    }
}

/// Returns the requested protocol if both `upgrade` and `connection: upgrade` are present.
pub(crate) fn requested_protocol(headers: &HeaderMap) -> Option<&HeaderValue> {
    let upgrade = headers.get(UPGRADE)?;
    let values = headers.get_all(CONNECTION).iter();
    let mut tokens = values.flat_map(|value| value.as_bytes().split(|byte| *byte == b','));
    let named = tokens.any(|token| token.trim_ascii().eq_ignore_ascii_case(b"upgrade"));
    named.then_some(upgrade)
}

/// The client's address and scheme, as reported to the upstream.
pub(crate) struct Downstream<'a> {
    pub(crate) address: &'a HeaderValue,
    pub(crate) scheme: &'static str,
}

/// Headers by which an Envoy directs the next Envoy. They are removed from external requests.
const ENVOY_INTERNAL: &[&str] = &[
    "x-envoy-internal",
    "x-envoy-retriable-status-codes",
    "x-envoy-retriable-header-names",
    "x-envoy-retry-on",
    "x-envoy-retry-grpc-on",
    "x-envoy-max-retries",
    "x-envoy-upstream-alt-stat-name",
    "x-envoy-upstream-rq-timeout-ms",
    "x-envoy-upstream-rq-per-try-timeout-ms",
    "x-envoy-upstream-rq-timeout-alt-response",
    "x-envoy-expected-rq-timeout-ms",
    "x-envoy-force-trace",
    "x-envoy-ip-tags",
    "x-envoy-original-url",
    "x-envoy-hedge-on-per-try-timeout",
];

/// Further headers that only an edge proxy removes.
const ENVOY_EDGE: &[&str] = &[
    "x-envoy-decorator-operation",
    "x-envoy-downstream-service-cluster",
    "x-envoy-downstream-service-node",
    "x-envoy-original-path",
    "x-envoy-original-host",
];

/// Removes `x-envoy-*` headers as Envoy does for external requests. All requests are external:
/// there is no `internal_address_config`.
pub(crate) fn sanitize(
    headers: &mut HeaderMap,
    downstream: &Downstream<'_>,
    options: &HttpOptions,
) {
    let edge = options.use_remote_address;
    if headers
        .keys()
        .any(|name| name.as_str().starts_with("x-envoy-"))
    {
        let lists = [ENVOY_INTERNAL, if edge { ENVOY_EDGE } else { &[] }];
        for name in lists.into_iter().flatten() {
            headers.remove(*name);
        }
    }
    if edge {
        headers.insert(X_ENVOY_EXTERNAL_ADDRESS, downstream.address.clone());
    }
}

/// Adds `x-forwarded-for` and `x-forwarded-proto`.
pub(crate) fn add_forwarded(
    headers: &mut HeaderMap,
    downstream: &Downstream<'_>,
    options: &HttpOptions,
) {
    if options.use_remote_address {
        headers.append(X_FORWARDED_FOR, downstream.address.clone());
        // Proxies in front may have added lines of their own.
        if let Some(list) = request_policy::join(headers, &X_FORWARDED_FOR, b",") {
            headers.insert(X_FORWARDED_FOR, list);
        }
    }
    let scheme = HeaderValue::from_static(downstream.scheme);
    if options.use_remote_address {
        headers.insert(X_FORWARDED_PROTO, scheme);
    } else {
        headers.entry(X_FORWARDED_PROTO).or_insert(scheme);
    }
}

/// Values of `x-envoy-upstream-service-time` that need no allocation.
static MILLISECONDS: LazyLock<Vec<HeaderValue>> = LazyLock::new(|| {
    let texts = (0..1000).map(|number: u32| number.to_string().leak());
    texts.map(|text| HeaderValue::from_static(text)).collect()
});

/// Sets the time that the upstream took for its response, in milliseconds.
pub(crate) fn set_service_time(headers: &mut HeaderMap, time: Duration) {
    let millis = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    let index = usize::try_from(millis).ok();
    let known = index.and_then(|index| MILLISECONDS.get(index)).cloned();
    let value = known.unwrap_or_else(|| HeaderValue::from(millis));
    headers.insert(X_ENVOY_UPSTREAM_SERVICE_TIME, value);
}

/// Adds an `x-request-id` unless the request has one that is to be kept.
pub(crate) fn add_request_id(
    headers: &mut HeaderMap,
    options: &HttpOptions,
    draw: impl Fn() -> u64,
) {
    if !options.generate_request_id {
        return;
    }
    let kept = !options.use_remote_address || options.preserve_external_request_id;
    let id = || HeaderValue::from_maybe_shared(uuid(draw(), draw()));
    match headers.entry(X_REQUEST_ID) {
        Entry::Occupied(_) if kept => {}
        Entry::Occupied(mut entry) => drop(id().map(|id| entry.insert(id))),
        Entry::Vacant(entry) => drop(id().map(|id| entry.insert(id))),
    }
}

/// Formats a random UUID (RFC 9562, version 4).
fn uuid(high: u64, low: u64) -> Bytes {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    let high = high & !0xf000 | 0x4000;
    let low = low & !(0b11 << 62) | 0b10 << 62;
    let bits = (u128::from(high) << 64 | u128::from(low)).to_be_bytes();
    let mut text = [b'-'; 36];
    for (index, byte) in bits.into_iter().enumerate() {
        let hyphens = [4, 6, 8, 10].iter().filter(|at| index >= **at).count();
        let at = 2 * index + hyphens;
        text[at] = HEX[usize::from(byte >> 4)];
        text[at + 1] = HEX[usize::from(byte & 0xf)];
    }
    Bytes::copy_from_slice(&text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(fields: &[(&'static str, &'static str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in fields {
            headers.append(*name, HeaderValue::from_static(value));
        }
        headers
    }

    fn names(headers: &HeaderMap) -> Vec<&str> {
        let mut names: Vec<&str> = headers.keys().map(HeaderName::as_str).collect();
        names.sort_unstable();
        names
    }

    #[test]
    fn hop_by_hop_headers_are_removed() {
        let mut headers = map(&[
            ("host", "h"),
            ("connection", "close, X-Secret"),
            ("connection", "host, te"),
            ("x-secret", "1"),
            ("keep-alive", "5"),
            ("proxy-connection", "close"),
            ("transfer-encoding", "chunked"),
            ("upgrade", "h2c"),
            ("expect", "100-continue"),
            ("te", "gzip, Trailers;q=1"),
            ("te", "trailers"),
            ("x", "y"),
        ]);
        remove_request_hop_by_hop(&mut headers);
        assert_eq!(names(&headers), ["host", "te", "x"]);
        assert_eq!(headers["te"], "trailers");
        let mut headers = map(&[("te", "gzip")]);
        remove_request_hop_by_hop(&mut headers);
        assert_eq!(names(&headers), [""; 0]);
    }

    #[test]
    fn a_message_has_one_length() {
        for (fields, expected) in [
            (&[][..], Some(None)),
            (&[("content-length", "5")], Some(Some("5"))),
            (
                &[("content-length", "5"), ("content-length", "5")],
                Some(Some("5")),
            ),
            (&[("content-length", "5, 5")], Some(Some("5"))),
            (&[("content-length", "5, 6")], None),
            (&[("content-length", "5"), ("content-length", "05")], None),
            (&[("content-length", "")], None),
            (&[("content-length", "+5")], None),
            (
                &[("content-length", "5"), ("transfer-encoding", "chunked")],
                Some(None),
            ),
            (&[("transfer-encoding", "gzip, chunked")], None),
        ] {
            let mut headers = map(fields);
            let length = unify_length(&mut headers).then(|| {
                let mut values = headers.get_all("content-length").iter();
                let length = values.next().map(|value| value.to_str().unwrap());
                assert!(values.next().is_none());
                length
            });
            assert_eq!(length, expected, "{fields:?}");
        }
    }

    #[test]
    fn an_upgrade_needs_both_headers() {
        let both = map(&[
            ("connection", "keep-alive, Upgrade"),
            ("upgrade", "websocket"),
        ]);
        assert_eq!(requested_protocol(&both).unwrap(), "websocket");
        assert!(requested_protocol(&map(&[("upgrade", "websocket")])).is_none());
        assert!(requested_protocol(&map(&[("connection", "upgrade")])).is_none());
    }

    #[test]
    fn edge_proxies_overwrite_forwarded_headers_and_sidecars_keep_them() {
        let address = HeaderValue::from_static("10.0.0.9");
        let downstream = Downstream {
            address: &address,
            scheme: "http",
        };
        let received = [
            ("x-forwarded-for", "1.1.1.1"),
            ("x-forwarded-proto", "https"),
        ];
        let mut headers = map(&received);
        let mut options = HttpOptions::default();
        add_forwarded(&mut headers, &downstream, &options);
        assert_eq!(headers["x-forwarded-for"], "1.1.1.1");
        assert_eq!(headers["x-forwarded-proto"], "https");
        options.use_remote_address = true;
        add_forwarded(&mut headers, &downstream, &options);
        assert_eq!(headers["x-forwarded-for"], "1.1.1.1,10.0.0.9");
        assert_eq!(headers["x-forwarded-proto"], "http");
        let mut headers = HeaderMap::new();
        add_forwarded(&mut headers, &downstream, &options);
        assert_eq!(headers["x-forwarded-for"], "10.0.0.9");
        let lines = [
            ("x-forwarded-for", "6.6.6.6"),
            ("x-forwarded-for", "1.2.3.4"),
        ];
        let mut headers = map(&lines);
        add_forwarded(&mut headers, &downstream, &options);
        let values: Vec<_> = headers.get_all("x-forwarded-for").iter().collect();
        assert_eq!(values, ["6.6.6.6,1.2.3.4,10.0.0.9"]);
    }

    #[test]
    fn service_times_are_milliseconds() {
        let mut headers = map(&[("x-envoy-upstream-service-time", "forged")]);
        for (micros, expected) in [(0, "0"), (999_999, "999"), (1_234_567, "1234")] {
            set_service_time(&mut headers, Duration::from_micros(micros));
            assert_eq!(headers["x-envoy-upstream-service-time"], expected);
        }
    }

    #[test]
    fn headers_that_direct_an_envoy_are_removed() {
        let address = HeaderValue::from_static("10.0.0.9");
        let downstream = Downstream {
            address: &address,
            scheme: "http",
        };
        let received = [
            ("x-envoy-internal", "true"),
            ("x-envoy-retry-on", "5xx"),
            ("x-envoy-original-path", "/innocent"),
            ("x-envoy-external-address", "1.1.1.1"),
            ("x-envoy-attempt-count", "1"),
        ];
        let mut headers = map(&received);
        let mut options = HttpOptions::default();
        sanitize(&mut headers, &downstream, &options);
        let kept = [
            "x-envoy-attempt-count",
            "x-envoy-external-address",
            "x-envoy-original-path",
        ];
        assert_eq!(names(&headers), kept);
        options.use_remote_address = true;
        sanitize(&mut headers, &downstream, &options);
        assert_eq!(names(&headers), kept[..2]);
        assert_eq!(headers["x-envoy-external-address"], "10.0.0.9");
    }

    #[test]
    fn request_ids_are_generated_kept_or_replaced() {
        let id = |fields: &[(&'static str, &'static str)], options: &HttpOptions| {
            let mut headers = map(fields);
            add_request_id(&mut headers, options, || u64::MAX);
            let id = headers.get("x-request-id");
            id.map(|id| id.to_str().unwrap().to_owned())
        };
        let generated = "ffffffff-ffff-4fff-bfff-ffffffffffff".to_owned();
        let mut options = HttpOptions::default();
        assert_eq!(id(&[], &options), Some(generated.clone()));
        assert_eq!(id(&[("x-request-id", "a")], &options), Some("a".to_owned()));
        options.use_remote_address = true;
        assert_eq!(id(&[("x-request-id", "a")], &options), Some(generated));
        options.preserve_external_request_id = true;
        assert_eq!(id(&[("x-request-id", "a")], &options), Some("a".to_owned()));
        options.generate_request_id = false;
        assert_eq!(id(&[], &options), None);
    }

    #[test]
    fn uuids_have_the_drawn_bits_except_version_and_variant() {
        let text = |high, low| String::from_utf8(uuid(high, low).to_vec()).unwrap();
        assert_eq!(text(0, 0), "00000000-0000-4000-8000-000000000000");
        assert_eq!(
            text(u64::MAX, u64::MAX),
            "ffffffff-ffff-4fff-bfff-ffffffffffff"
        );
        assert_eq!(
            text(0x0123_4567_89ab_cdef, 0x4edc_ba98_7654_3210),
            "01234567-89ab-4def-8edc-ba9876543210"
        );
    }

    #[test]
    fn service_times_are_whole_milliseconds() {
        let mut headers = HeaderMap::new();
        for (time, expected) in [
            (Duration::from_micros(999), "0"),
            (Duration::from_millis(7), "7"),
            (Duration::from_secs(3600), "3600000"),
        ] {
            set_service_time(&mut headers, time);
            assert_eq!(headers[X_ENVOY_UPSTREAM_SERVICE_TIME], expected);
        }
    }
}
