//! Selection of virtual hosts, routes and clusters.

use std::borrow::Cow;

use super::*;
use crate::string_match::{SafeRegex, StringMatcher, StringPattern};

fn host(domains: &[&str]) -> VirtualHost {
    VirtualHost {
        name: domains.join(","),
        domains: domains.iter().map(|&domain| domain.to_owned()).collect(),
        ..Default::default()
    }
}

fn configuration(hosts: &[&[&str]]) -> Result<RouteConfiguration, FieldError> {
    let hosts = hosts.iter().map(|domains| host(domains)).collect();
    RouteConfiguration::try_new("rc".to_owned(), hosts)
}

#[test]
fn the_most_specific_domain_wins() {
    let config = configuration(&[
        &["*"],
        &["foo.*", "x.y"],
        &["*.example"],
        &["*.a.example"],
        &["foo.a.*"],
        &["foo.a.example"],
    ])
    .unwrap();
    let cases = [
        ("foo.a.example", "foo.a.example"),
        ("FOO.a.Example", "foo.a.example"),
        ("bar.a.example", "*.a.example"),
        ("bar.b.example", "*.example"),
        // A suffix takes precedence over a prefix, even a longer one.
        ("foo.b.example", "*.example"),
        ("foo.a.org", "foo.a.*"),
        ("foo.org", "foo.*,x.y"),
        ("x.y", "foo.*,x.y"),
        ("example", "*"),
        ("x.y:80", "*"),
    ];
    for (authority, expected) in cases {
        assert_eq!(
            config.virtual_host(authority).unwrap().name,
            expected,
            "{authority}"
        );
    }
    let ported = RouteConfiguration {
        ignore_port_in_host_matching: true,
        ..config
    };
    assert_eq!(ported.virtual_host("x.y:80").unwrap().name, "foo.*,x.y");
    let one = configuration(&[&["a"]]).unwrap();
    assert!(one.virtual_host("b").is_none());
}

#[test]
fn invalid_domains_are_named() {
    for (hosts, path) in [
        (
            &[&["a", "b"][..], &["*.c", "A"]][..],
            "virtual_hosts[1].domains[1]",
        ),
        (&[&["a*b"]], "virtual_hosts[0].domains[0]"),
    ] {
        let error = configuration(hosts).unwrap_err();
        assert_eq!(error.path(), path);
    }
}

/// Matches a request with headers; `draw` is 7.
fn matches(route_match: &RouteMatch, path: &str, headers: &[(&str, &'static str)]) -> bool {
    let header = |name: &str| {
        let found = headers.iter().find(|&&(known, _)| known == name);
        found.map(|&(_, value)| Cow::Borrowed(value.as_bytes()))
    };
    let request = RequestHead {
        method: "POST",
        authority: "svc.example",
        path,
        scheme: "http",
        header: &header,
    };
    route_match.matches(&request, 7)
}

fn path(path: PathMatcher) -> RouteMatch {
    RouteMatch {
        path,
        ..RouteMatch::any()
    }
}

#[test]
fn paths_match_without_their_query() {
    let regex = SafeRegex::try_new("/v[0-9]+").unwrap();
    let cases = [
        (PathMatcher::Prefix(String::new()), "/any?x", ""),
        (PathMatcher::Prefix("/a".into()), "/abc", "/b/a"),
        (PathMatcher::Path("/a".into()), "/a?b=c", "/ab"),
        (PathMatcher::Path("/a".into()), "/a#f", "/A"),
        (PathMatcher::PathSeparatedPrefix("/a".into()), "/a/b", "/ab"),
        (PathMatcher::PathSeparatedPrefix("/a".into()), "/a", "/"),
        (PathMatcher::Regex(regex), "/v12?x", "/v12/x"),
    ];
    for (matcher, yes, no) in cases {
        let matcher = path(matcher);
        assert!(matches(&matcher, yes, &[]), "{matcher:?} {yes}");
        assert!(
            no.is_empty() || !matches(&matcher, no, &[]),
            "{matcher:?} {no}"
        );
        if !matches!(matcher.path, PathMatcher::Regex(_)) {
            let insensitive = RouteMatch {
                case_sensitive: false,
                ..matcher
            };
            assert!(matches(&insensitive, &yes.to_uppercase(), &[]));
        }
    }
}

fn header(name: &str, pattern: HeaderPattern) -> HeaderMatcher {
    HeaderMatcher {
        name: name.to_owned(),
        pattern,
        invert: false,
        treat_missing_as_empty: false,
    }
}

fn exact(text: &str) -> HeaderPattern {
    HeaderPattern::String(StringMatcher::new(StringPattern::Exact(text.to_owned())))
}

/// Pattern, header value, whether it matches, and whether the inverted one does.
#[test]
fn missing_headers_never_match() {
    let range = || HeaderPattern::Range(-5, 10);
    let cases = [
        (exact("a"), Some("a"), true, false),
        (exact("a"), Some("b"), false, true),
        (exact("a"), None, false, false),
        (range(), Some("-5"), true, false),
        (range(), Some("10"), false, true),
        (range(), Some("x"), false, true),
        (range(), None, false, false),
        (HeaderPattern::Present(true), Some(""), true, false),
        (HeaderPattern::Present(true), None, false, true),
        (HeaderPattern::Present(false), Some(""), false, true),
        (HeaderPattern::Present(false), None, true, false),
    ];
    for (pattern, value, plain, inverted) in cases {
        let headers: Vec<_> = value.map(|value| ("x-h", value)).into_iter().collect();
        for (invert, expected) in [(false, plain), (true, inverted)] {
            let mut matcher = header("x-h", pattern.clone());
            matcher.invert = invert;
            let route_match = RouteMatch {
                headers: vec![matcher],
                ..RouteMatch::any()
            };
            let found = matches(&route_match, "/", &headers);
            assert_eq!(found, expected, "{route_match:?} {value:?}");
        }
    }
}

#[test]
fn missing_headers_can_count_as_empty_and_pseudo_headers_match() {
    let mut empty = header("x-h", exact(""));
    let one = |matcher: &HeaderMatcher| RouteMatch {
        headers: vec![matcher.clone()],
        ..RouteMatch::any()
    };
    assert!(!matches(&one(&empty), "/", &[]));
    empty.treat_missing_as_empty = true;
    assert!(matches(&one(&empty), "/", &[]));
    assert!(matches(&one(&header(":method", exact("POST"))), "/", &[]));
    assert!(matches(
        &one(&header(":authority", exact("svc.example"))),
        "/",
        &[]
    ));
    assert!(matches(&one(&header(":path", exact("/a?b"))), "/a?b", &[]));
    // All conditions must hold.
    let both = RouteMatch {
        headers: vec![header("a", exact("1")), header("b", exact("2"))],
        ..RouteMatch::any()
    };
    assert!(matches(&both, "/", &[("a", "1"), ("b", "2")]));
    assert!(!matches(&both, "/", &[("a", "1")]));
}

#[test]
fn query_grpc_and_fraction_conditions_must_hold() {
    let mut query = RouteMatch::any();
    query.query_parameters.push(QueryParameterMatcher {
        name: "k".into(),
        value: Some(StringMatcher::new(StringPattern::Prefix("v".into()))),
    });
    assert!(matches(&query, "/?a&k=v1&k=x", &[]));
    assert!(!matches(&query, "/?k=x&k=v", &[]) && !matches(&query, "/k=v", &[]));
    query.query_parameters[0].value = None;
    assert!(matches(&query, "/?k", &[]) && !matches(&query, "/?kk", &[]));

    let mut grpc = RouteMatch::any();
    grpc.grpc = true;
    for (value, expected) in [
        ("application/grpc", true),
        ("application/grpc+proto", true),
        ("application/grpc-web", false),
        ("text/plain", false),
    ] {
        assert_eq!(matches(&grpc, "/", &[("content-type", value)]), expected);
    }

    let mut part = RouteMatch::any();
    for (numerator, expected) in [(7, false), (8, true), (0, false), (500, true)] {
        part.runtime_fraction = Some(RuntimeFraction {
            numerator,
            denominator: 100,
        });
        assert_eq!(matches(&part, "/", &[]), expected, "{numerator}");
    }
}

#[test]
fn the_first_route_wins() {
    let route = |name: &str, route_match| Route {
        name: name.to_owned(),
        route_match,
        action: Action::NonForwarding,
        headers: HeaderRules::default(),
        filters: PerFilterConfig::default(),
    };
    let mut virtual_host = host(&["*"]);
    virtual_host.routes = vec![
        route("exact", path(PathMatcher::Path("/a".into()))),
        route("any", RouteMatch::any()),
        route("never", path(PathMatcher::Path("/b".into()))),
    ];
    let name = |path: &str| {
        let request = RequestHead {
            method: "GET",
            authority: "a",
            path,
            scheme: "http",
            header: &|_| None,
        };
        virtual_host.route(&request, 0).unwrap().name.clone()
    };
    assert_eq!((name("/a").as_str(), name("/b").as_str()), ("exact", "any"));
}

#[test]
fn draws_select_clusters_by_weight() {
    let weighted = |weights: &[(&str, u32)]| {
        let clusters = weights.iter().map(|&(name, weight)| ClusterWeight {
            name: name.to_owned(),
            weight,
            ..ClusterWeight::default()
        });
        WeightedClusters::try_new(clusters.collect(), None)
    };
    let bad = weighted;
    let weighted = weighted(&[("a", 1), ("none", 0), ("b", 3)]).unwrap();
    assert_eq!(weighted.total(), 4);
    let drawn: Vec<_> = (0..5).map(|draw| weighted.pick(draw)).collect();
    assert_eq!(drawn, [0, 2, 2, 2, 0]);
    let target = ClusterSpecifier::Weighted(weighted);
    assert_eq!(target.cluster(u64::MAX), Some("b"));
    let names: Vec<_> = target.clusters().collect();
    assert_eq!(names, ["a", "none", "b"]);
    let cases: [(&[(&str, u32)], &str); 4] = [
        (&[], "clusters"),
        (&[("a", 0)], "clusters"),
        (&[("a", u32::MAX), ("b", 1)], "clusters"),
        (&[("", 1)], "clusters[0].name"),
    ];
    for (clusters, path) in cases {
        assert_eq!(bad(clusters).unwrap_err().path(), path);
    }
}

#[test]
fn retry_predicates_are_identified_by_type_or_name() {
    let previous = RetryHostPredicate::PREVIOUS_HOSTS;
    let kind = RetryHostPredicate::PREVIOUS_HOSTS_TYPE;
    let other = |name: &str| RetryHostPredicate::Other(name.to_owned());
    let cases = [
        (previous, None, RetryHostPredicate::PreviousHosts),
        ("any name", Some(kind), RetryHostPredicate::PreviousHosts),
        ("any name", None, other("any name")),
        (previous, Some("t"), other("t")),
    ];
    for (name, kind, expected) in cases {
        assert_eq!(RetryHostPredicate::new(name, kind), expected);
    }
}
