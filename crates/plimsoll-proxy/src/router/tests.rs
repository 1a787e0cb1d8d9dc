//! Tests of compiled routes. Matching is tested in plimsoll-xds.

use http::StatusCode;
use plimsoll_core::units::FieldError;
use plimsoll_xds::route::{self as model, HashSource as HashNoun, RouteMatch, VirtualHost};
use plimsoll_xds::upstream::DataSource;
use plimsoll_xds::wire;

use super::*;

fn forward(change: impl FnOnce(&mut model::RouteAction)) -> model::Action {
    let mut action = model::RouteAction {
        target: model::ClusterSpecifier::Cluster("c".into()),
        metadata_match: None,
        timeout: None,
        idle_timeout: None,
        max_stream_duration: None,
        grpc_timeout_header_max: None,
        retry_policy: None,
        hash_policy: Vec::new(),
        prefix_rewrite: String::new(),
        host_rewrite_literal: String::new(),
        auto_host_rewrite: false,
        append_x_forwarded_host: false,
        request_mirror_policies: Vec::new(),
    };
    change(&mut action);
    model::Action::Forward(Box::new(action))
}

fn route(name: &str, path: PathMatcher, action: model::Action) -> model::Route {
    model::Route {
        name: name.into(),
        route_match: RouteMatch {
            path,
            ..RouteMatch::any()
        },
        action,
        headers: model::HeaderRules::default(),
        filters: model::PerFilterConfig::default(),
    }
}

fn any(action: model::Action) -> model::Route {
    route("any", PathMatcher::Prefix(String::new()), action)
}

fn table(routes: Vec<model::Route>) -> Result<RouteTable, FieldError> {
    let host = VirtualHost {
        domains: vec!["*".into()],
        routes,
        ..VirtualHost::default()
    };
    RouteConfiguration::try_new("rc".into(), vec![host])
        .map(Arc::new)
        .and_then(RouteTable::try_from)
}

fn view<'a>(path: &'a str, headers: &'a HeaderMap) -> RequestView<'a> {
    RequestView {
        host: "h",
        path: path.split('?').next().unwrap_or_default(),
        path_and_query: path,
        method: &Method::GET,
        scheme: "http",
        headers,
    }
}

#[test]
fn the_first_matching_route_is_selected() {
    let direct = || model::Action::DirectResponse {
        status: 200,
        body: None,
    };
    let mut tagged = route("tagged", PathMatcher::Prefix("/a".into()), direct());
    tagged.route_match.headers.push(model::HeaderMatcher {
        name: "x".into(),
        pattern: model::HeaderPattern::Present(true),
        invert: false,
        treat_missing_as_empty: false,
    });
    let table = table(vec![
        tagged,
        route("exact", PathMatcher::Path("/a".into()), direct()),
    ])
    .unwrap();
    let none = HeaderMap::new();
    let mut some = HeaderMap::new();
    some.append("x", HeaderValue::from_static("1"));
    for (path, headers, expected) in [
        ("/a?q", &some, Some("tagged")),
        ("/a?q", &none, Some("exact")),
        ("/b", &some, None),
    ] {
        let found = table.route(&view(path, headers), || {
            unreachable!("no route has a fraction")
        });
        assert_eq!(found.map(|route| &*route.name), expected, "{path}");
    }
    assert!(
        RouteTable::default()
            .route(&view("/a", &none), || 0)
            .is_none()
    );
}

#[test]
fn runtime_fractions_use_a_random_number() {
    let mut some = any(forward(|_| {}));
    some.route_match.runtime_fraction = Some(model::RuntimeFraction {
        numerator: 30,
        denominator: 100,
    });
    let table = table(vec![some]).unwrap();
    let headers = HeaderMap::new();
    let matches = |draw| table.route(&view("/", &headers), || draw).is_some();
    assert_eq!((matches(29), matches(30)), (true, false));
}

#[test]
fn repeated_headers_are_joined() {
    let mut headers = HeaderMap::new();
    headers.append("x", HeaderValue::from_static("5"));
    assert_eq!(joined(&headers, "x").as_deref(), Some(&b"5"[..]));
    headers.append("x", HeaderValue::from_static("6"));
    assert_eq!(joined(&headers, "x").as_deref(), Some(&b"5,6"[..]));
    assert_eq!(joined(&headers, "y"), None);
}

#[test]
fn unsupported_features_are_rejected_with_their_path() {
    let hash = |source| {
        forward(|action| {
            action.hash_policy = vec![model::HashPolicy {
                source,
                terminal: false,
            }];
        })
    };
    let magic = model::RetryPolicy {
        retry_on: vec!["magic".into()],
        num_retries: 1,
        per_try_timeout: None,
        retriable_status_codes: Vec::new(),
        base_interval: std::time::Duration::from_millis(25),
        max_interval: std::time::Duration::from_millis(250),
        retry_host_predicate: Vec::new(),
        host_selection_retry_max_attempts: 0,
    };
    let canaries = model::RetryPolicy {
        retry_on: Vec::new(),
        retry_host_predicate: vec![
            model::RetryHostPredicate::PreviousHosts,
            model::RetryHostPredicate::Other("omit_canary_hosts".into()),
        ],
        ..magic.clone()
    };
    let mut misnamed = model::ClusterWeight {
        name: "c".into(),
        weight: 1,
        ..model::ClusterWeight::default()
    };
    misnamed.headers.request_remove.push("a b".into());
    let misnamed = model::WeightedClusters::try_new(vec![misnamed], None).unwrap();
    let file = DataSource::Filename("x".into());
    let cases = [
        (
            forward(|a| a.auto_host_rewrite = true),
            "route.auto_host_rewrite",
        ),
        (
            forward(|a| a.grpc_timeout_header_max = Some(std::time::Duration::ZERO)),
            "route.max_stream_duration.grpc_timeout_header_max",
        ),
        (
            forward(|a| a.retry_policy = Some(magic.clone())),
            "route.retry_policy.retry_on",
        ),
        (
            forward(|a| a.retry_policy = Some(canaries)),
            "route.retry_policy.retry_host_predicate[1]",
        ),
        (
            forward(|a| a.target = model::ClusterSpecifier::Weighted(misnamed)),
            "route.weighted_clusters.clusters[0].request_headers_to_remove[0]",
        ),
        (
            forward(|a| a.target = model::ClusterSpecifier::ClusterHeader("host".into())),
            "route.cluster_header",
        ),
        (
            hash(HashNoun::ChannelId),
            "route.hash_policy[0].filter_state",
        ),
        (hash(HashNoun::Unsupported), "route.hash_policy[0]"),
        (model::Action::NonForwarding, "non_forwarding_action"),
        (model::Action::Unsupported("filter_action"), "filter_action"),
        (
            model::Action::DirectResponse {
                status: 200,
                body: Some(file),
            },
            "direct_response.body",
        ),
    ];
    for (action, path) in cases {
        let error = table(vec![any(action)]).unwrap_err();
        assert_eq!(error.path(), format!("virtual_hosts[0].routes[0].{path}"));
    }
    let mut named = any(forward(|_| {}));
    named.headers.response_remove.push("a b".into());
    let error = table(vec![named]).unwrap_err();
    let prefix = "virtual_hosts[0].routes[0].response_headers_to_remove[0]";
    assert_eq!(error.path(), prefix);
}

#[test]
fn unknown_fields_on_the_wire_are_rejected() {
    // A `RouteConfiguration` named "r" with field 18, `vhost_header`.
    let bytes = [0x0a, 1, b'r', 0x92, 1, 0];
    let config = wire::decode_route_configuration(&bytes).unwrap();
    let error = RouteTable::try_from(Arc::new(config)).unwrap_err();
    assert_eq!(error.path(), "vhost_header");
}

#[test]
fn grpc_is_detected_by_content_type() {
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
fn weighted_clusters_are_selected_in_proportion() {
    let weights = [("a", 30), ("b", 0), ("c", 70)].map(|(name, weight)| model::ClusterWeight {
        name: name.into(),
        weight,
        ..model::ClusterWeight::default()
    });
    let weighted = model::WeightedClusters::try_new(weights.into(), None).unwrap();
    let table = table(vec![any(forward(|action| {
        action.target = model::ClusterSpecifier::Weighted(weighted);
    }))])
    .unwrap();
    let headers = HeaderMap::new();
    let route = table.route(&view("/", &headers), || 0).unwrap();
    let CompiledAction::Forward(forward) = &route.action else {
        panic!("{route:?}");
    };
    for (draw, expected) in [(0, "a"), (29, "a"), (30, "c"), (99, "c"), (100, "a")] {
        let selected = forward.cluster.select(&headers, || draw).unwrap();
        assert_eq!(&*selected.cluster, expected, "{draw}");
        assert_eq!(&*selected.weighted.unwrap().name, expected, "{draw}");
    }
}

#[test]
fn redirects_are_compiled() {
    let redirect = model::Redirect {
        prefix_rewrite: "/new".into(),
        response_code: 308,
        ..model::Redirect::default()
    };
    let both = model::Redirect {
        path_redirect: "/x".into(),
        ..redirect.clone()
    };
    let made = table(vec![any(model::Action::Redirect(redirect))]).unwrap();
    let headers = HeaderMap::new();
    let route = made.route(&view("/", &headers), || 0).unwrap();
    let CompiledAction::Redirect(redirect) = &route.action else {
        panic!("{route:?}");
    };
    assert_eq!(redirect.status, StatusCode::PERMANENT_REDIRECT);
    assert!(matches!(&redirect.path, PathRedirect::Prefix(prefix) if prefix == "/new"));
    let error = table(vec![any(model::Action::Redirect(both))]).unwrap_err();
    assert_eq!(
        error.path(),
        "virtual_hosts[0].routes[0].redirect.prefix_rewrite"
    );
}
