//! Tests of matching.

use http::HeaderMap;
use plimsoll_xds::string_match::{SafeRegex, StringMatcher, StringPattern};

use super::*;

fn direct(name: &str, path: PathMatcher) -> Route {
    Route {
        name: name.into(),
        path,
        headers: Vec::new(),
        grpc: false,
        action: Action::Direct(DirectResponse {
            status: StatusCode::OK,
            body: Bytes::new(),
        }),
        request_rules: HeaderRules::default(),
        response_rules: HeaderRules::default(),
    }
}

fn prefix(path: &str) -> PathMatcher {
    PathMatcher::Prefix(path.into(), Case::Sensitive)
}

fn host(name: &str, domains: &[&str], routes: Vec<Route>) -> VirtualHost {
    VirtualHost {
        name: name.into(),
        domains: domains.iter().map(|domain| (*domain).into()).collect(),
        routes,
    }
}

fn view<'a>(host: &'a str, path: &'a str, headers: &'a HeaderMap) -> RequestView<'a> {
    RequestView {
        host,
        path: path.split('?').next().unwrap_or_default(),
        path_and_query: path,
        method: &Method::GET,
        scheme: "http",
        headers,
    }
}

#[test]
fn domains_go_exact_suffix_prefix_any_and_the_longest_wins() {
    let domains = [
        ("exact", "a.example.com"),
        ("suffix", "*.com"),
        ("longer-suffix", "*.example.com"),
        ("prefix", "b.*"),
        ("any", "*"),
    ];
    let hosts = domains.map(|(name, domain)| host(name, &[domain], Vec::new()));
    let table = RouteTable::new(String::new(), hosts.into()).unwrap();
    for (asked, expected) in [
        ("a.example.com", "exact"),
        ("A.EXAMPLE.com", "exact"),
        ("b.example.com", "longer-suffix"),
        ("x.com", "suffix"),
        (".com", "any"),
        ("b.org", "prefix"),
        ("org", "any"),
    ] {
        let found = table.virtual_host(asked).map(|host| host.name.as_str());
        assert_eq!(found, Some(expected), "{asked}");
    }
}

#[test]
fn a_domain_stands_once() {
    for domain in ["*", "a", "*.a", "a.*"] {
        let hosts = vec![host("x", &[domain], vec![]), host("y", &[domain], vec![])];
        assert_eq!(RouteTable::new(String::new(), hosts).unwrap_err(), domain);
    }
}

#[test]
fn the_first_route_that_matches_is_taken() {
    let regex = SafeRegex::try_new("/r/[0-9]+").unwrap();
    let routes = vec![
        direct("exact", PathMatcher::Exact("/a".into(), Case::Sensitive)),
        direct("ignored", PathMatcher::Exact("/b".into(), Case::Ignored)),
        direct(
            "separated",
            PathMatcher::Separated("/s".into(), Case::Sensitive),
        ),
        direct("regex", PathMatcher::Regex(regex)),
        direct("prefix", prefix("/p")),
    ];
    let table = RouteTable::new(String::new(), vec![host("x", &["*"], routes)]).unwrap();
    let headers = HeaderMap::new();
    for (path, expected) in [
        ("/a?q=1", Some("exact")),
        ("/A", None),
        ("/B", Some("ignored")),
        ("/s", Some("separated")),
        ("/s/t", Some("separated")),
        ("/sx", None),
        ("/r/12", Some("regex")),
        ("/r/12/3", None),
        ("/px/y", Some("prefix")),
    ] {
        let found = table.route(&view("x", path, &headers));
        assert_eq!(found.map(|route| &*route.name), expected, "{path}");
    }
}

fn header(source: HeaderSource, check: HeaderCheck, invert: bool) -> HeaderMatcher {
    HeaderMatcher {
        source,
        check,
        invert,
        missing_is_empty: false,
    }
}

#[test]
fn conditions_on_headers() {
    let field = || HeaderSource::Field(HeaderName::from_static("x-n"));
    let exact =
        |text: &str| HeaderCheck::Matches(StringMatcher::new(StringPattern::Exact(text.into())));
    let mut some = HeaderMap::new();
    some.append("x-n", HeaderValue::from_static("5"));
    let mut two = some.clone();
    two.append("x-n", HeaderValue::from_static("6"));
    let none = HeaderMap::new();
    for (matcher, headers, expected) in [
        (header(field(), exact("5"), false), &some, true),
        (header(field(), exact("5"), true), &some, false),
        (header(field(), exact("5"), false), &none, false),
        (header(field(), exact("5"), true), &none, false),
        (header(field(), exact("5,6"), false), &two, true),
        (
            header(field(), HeaderCheck::Present(true), false),
            &none,
            false,
        ),
        (
            header(field(), HeaderCheck::Present(true), true),
            &none,
            true,
        ),
        (
            header(field(), HeaderCheck::Present(false), false),
            &none,
            true,
        ),
        (
            header(field(), HeaderCheck::Range(5, 6), false),
            &some,
            true,
        ),
        (
            header(field(), HeaderCheck::Range(6, 9), false),
            &some,
            false,
        ),
        (
            header(HeaderSource::Method, exact("GET"), false),
            &none,
            true,
        ),
        (
            header(HeaderSource::Path, exact("/a?b"), false),
            &none,
            true,
        ),
        (
            header(HeaderSource::Authority, exact("h"), false),
            &none,
            true,
        ),
        (
            header(HeaderSource::Scheme, exact("http"), false),
            &none,
            true,
        ),
    ] {
        assert_eq!(
            matcher.matches(&view("h", "/a?b", headers)),
            expected,
            "{matcher:?}"
        );
    }
    let mut missing = header(field(), exact(""), false);
    missing.missing_is_empty = true;
    assert!(missing.matches(&view("h", "/", &none)));
}

#[test]
fn only_grpc_is_grpc() {
    let with = |kind: &'static str| {
        let mut headers = HeaderMap::new();
        headers.insert("content-type", HeaderValue::from_static(kind));
        is_grpc(&headers)
    };
    assert!(with("application/grpc") && with("application/grpc+proto"));
    assert!(!with("application/grpc-web") && !with("application/json"));
    assert!(!is_grpc(&HeaderMap::new()));
}

#[test]
fn weights_are_shares_of_the_draws() {
    let cluster = |name: &str, until| WeightedCluster {
        name: name.into(),
        until,
    };
    let target = Target::Weighted(vec![cluster("a", 30), cluster("b", 30), cluster("c", 100)]);
    for (draw, expected) in [(0, "a"), (29, "a"), (30, "c"), (99, "c"), (100, "a")] {
        let chosen = target.choose(&HeaderMap::new(), || draw);
        assert_eq!(chosen.as_deref(), Some(expected), "{draw}");
    }
}

#[test]
fn rewriting_replaces_what_was_matched() {
    assert_eq!(prefix("/a").rewrite("/a/b", "/c"), "/c/b");
    let exact = PathMatcher::Exact("/a".into(), Case::Sensitive);
    assert_eq!(exact.rewrite("/a", "/c"), "/c");
}
