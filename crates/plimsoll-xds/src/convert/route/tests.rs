//! Routes encoded by another implementation, and errors.

use std::collections::BTreeMap;

use bytes::Bytes;
use proptest::prelude::*;
use prost::Message;

use super::*;
use crate::convert::hex::message;
use crate::route::{HeaderPattern, PathMatcher, RuntimeFraction};
use crate::string_match::StringPattern;
use plimsoll_schema::metadata::metadata;
use plimsoll_schema::pb::metadata::{StructMessage, ValueMessage};
use plimsoll_schema::pb::route::{
    ClusterWeightMessage, ConnectionPropertiesMessage, HeaderMatcherMessage, HeaderValueMessage,
    RetryBackOffMessage, RouteMatchMessage,
};
use plimsoll_schema::pb::tls::RegexMessage;
use plimsoll_schema::pb::{AnyMessage, DurationMessage};

fn full() -> RouteConfiguration {
    decode_route_configuration(&message("route_full")).unwrap()
}

#[test]
fn routes_of_another_encoder_are_decoded() {
    let config = full();
    assert_eq!(config.name, "rc");
    assert!(config.unread.is_empty(), "{:?}", config.unread);
    let [shop, rest] = config.virtual_hosts() else {
        panic!("{config:?}")
    };
    assert_eq!(shop.domains, ["shop.example", "*.shop.example"]);
    let Action::Forward(action) = &shop.routes[0].action else {
        panic!("{shop:?}")
    };
    let seconds = Duration::from_secs;
    assert_eq!(action.target, ClusterSpecifier::Cluster("carts".into()));
    assert_eq!(action.timeout, Some(seconds(3)));
    assert_eq!(action.max_stream_duration, Some(seconds(4)));
    assert_eq!(action.grpc_timeout_header_max, Some(seconds(5)));
    let hash = HashPolicy {
        source: HashSource::Header("x-user".into()),
        terminal: true,
    };
    assert_eq!(action.hash_policy, [hash]);
    let retry = RetryPolicy {
        retry_on: vec!["5xx".into(), "connect-failure".into()],
        num_retries: 4,
        per_try_timeout: Some(seconds(1)),
        retriable_status_codes: vec![418],
        base_interval: Duration::from_millis(10),
        max_interval: Duration::from_millis(100),
        retry_host_predicate: Vec::new(),
        host_selection_retry_max_attempts: 0,
    };
    assert_eq!(action.retry_policy, Some(retry));
    let Action::Forward(last) = &rest.routes[0].action else {
        panic!("{rest:?}")
    };
    assert_eq!(
        (last.timeout, &last.retry_policy),
        (Some(Duration::ZERO), &None)
    );
}

#[test]
fn every_kind_of_match_is_decoded() {
    let config = full();
    let routes = &config.virtual_hosts()[0].routes;
    let first = &routes[0].route_match;
    assert_eq!(first.path, PathMatcher::Prefix("/cart".into()));
    assert!(!first.case_sensitive);
    let fraction = RuntimeFraction {
        numerator: 25,
        denominator: 10_000,
    };
    assert_eq!(first.runtime_fraction, Some(fraction));
    let strings: Vec<_> = first
        .headers
        .iter()
        .filter_map(|header| match &header.pattern {
            HeaderPattern::String(matcher) => Some(matcher.pattern.clone()),
            _ => None,
        })
        .collect();
    assert_eq!(strings[0], StringPattern::Exact("a".into()));
    assert_eq!(strings[1], StringPattern::Prefix("b".into()));
    assert_eq!(strings[2], StringPattern::Suffix("c".into()));
    assert_eq!(strings[3], StringPattern::Contains("d".into()));
    assert!(matches!(&strings[4], StringPattern::Regex(regex) if regex.as_str() == "e+"));
    assert_eq!(first.headers[5].pattern, HeaderPattern::Present(true));
    assert_eq!(first.headers[6].pattern, HeaderPattern::Range(1, 5));
    let last = &first.headers[7];
    assert!(last.invert);
    assert!(matches!(&last.pattern, HeaderPattern::String(matcher) if matcher.ignore_case));
    assert!(matches!(&routes[1].route_match.path, PathMatcher::Regex(_)));
    let separated = PathMatcher::PathSeparatedPrefix("/api".into());
    assert_eq!(routes[4].route_match.path, separated);
}

#[test]
fn other_actions_are_distinguished_and_retries_inherited() {
    let config = full();
    let routes = &config.virtual_hosts()[0].routes;
    let Action::Forward(weighted) = &routes[1].action else {
        panic!("{routes:?}")
    };
    assert_eq!(weighted.target.cluster(0), Some("a"));
    assert_eq!(weighted.target.cluster(1), Some("b"));
    let inherited = weighted.retry_policy.as_ref().unwrap();
    assert_eq!((inherited.num_retries, inherited.retry_on.len()), (1, 1));
    assert_eq!(inherited.max_interval, Duration::from_millis(250));
    let Action::Redirect(redirect) = &routes[2].action else {
        panic!("{routes:?}")
    };
    assert_eq!(
        (redirect.response_code, redirect.path_redirect.as_str()),
        (302, "/new")
    );
    assert!(matches!(
        routes[3].action,
        Action::DirectResponse {
            status: 418,
            body: Some(_)
        }
    ));
    let clusters: Vec<_> = config.clusters().into_iter().collect();
    assert_eq!(clusters, ["a", "api", "b", "carts", "rest"]);
}

/// Decodes a configuration that was encoded here.
#[test]
fn own_routes_are_decoded() {
    let read = decode_route_configuration(&message("route")).unwrap();
    assert_eq!(read.virtual_hosts()[0].routes.len(), 3);
}

fn one(route: RouteMessage) -> RouteConfigurationMessage {
    RouteConfigurationMessage {
        virtual_hosts: vec![VirtualHostMessage {
            domains: vec!["*".into()],
            routes: vec![route],
            ..Default::default()
        }],
        ..Default::default()
    }
}

fn to(change: impl FnOnce(&mut RouteActionMessage)) -> RouteMessage {
    let mut action = RouteActionMessage {
        cluster: Some("c".into()),
        ..Default::default()
    };
    change(&mut action);
    RouteMessage {
        route_match: Some(RouteMatchMessage {
            prefix: Some(String::new()),
            ..Default::default()
        }),
        route: Some(action),
        ..Default::default()
    }
}

#[test]
fn unsupported_features_are_rejected_by_path() {
    let matching = |change: fn(&mut RouteMatchMessage)| {
        let mut route = to(|_| {});
        change(route.route_match.as_mut().unwrap());
        route
    };
    let weights = |weights: &[u32]| WeightedClusterMessage {
        clusters: weights
            .iter()
            .map(|&weight| ClusterWeightMessage {
                name: "c".into(),
                weight: Some(weight),
                ..Default::default()
            })
            .collect(),
    };
    let cases = [
        (matching(|m| m.prefix = None), "match"),
        (matching(|m| m.tls_context = Some(())), "match.tls_context"),
        (
            matching(|m| m.safe_regex = Some(RegexMessage { regex: "(".into() })),
            "match.safe_regex.regex",
        ),
        (
            matching(|m| m.headers.push(HeaderMatcherMessage::default())),
            "match.headers[0].name",
        ),
        (to(|a| a.cluster = Some(String::new())), "route.cluster"),
        (to(|a| a.cluster = None), "route"),
        (
            to(|a| {
                a.cluster = None;
                a.weighted_clusters = Some(weights(&[0, 0]));
            }),
            "route.weighted_clusters.clusters",
        ),
        (
            to(|a| {
                a.timeout = Some(DurationMessage {
                    seconds: -1,
                    nanos: 0,
                });
            }),
            "route.timeout",
        ),
        (
            to(|a| {
                let back_off = RetryBackOffMessage {
                    base_interval: Some(Duration::ZERO.into()),
                    max_interval: None,
                };
                a.retry_policy = Some(RetryPolicyMessage {
                    retry_back_off: Some(back_off),
                    ..Default::default()
                });
            }),
            "route.retry_policy.retry_back_off.base_interval",
        ),
        (
            to(|a| {
                a.retry_policy = Some(RetryPolicyMessage {
                    host_selection_retry_max_attempts: -1,
                    ..Default::default()
                });
            }),
            "route.retry_policy.host_selection_retry_max_attempts",
        ),
        (
            to(|a| {
                let mut weighted = weights(&[1, 1]);
                let both = HeaderValueOptionMessage {
                    append: Some(true),
                    append_action: 1,
                    ..Default::default()
                };
                weighted.clusters[1].response_headers_to_add = vec![both];
                a.cluster = None;
                a.weighted_clusters = Some(weighted);
            }),
            "route.weighted_clusters.clusters[1].response_headers_to_add[0].append",
        ),
        (
            RouteMessage {
                route: None,
                ..to(|_| {})
            },
            "",
        ),
    ];
    for (route, path) in cases {
        let error = route_configuration(one(route)).unwrap_err();
        let path = format!("virtual_hosts[0].routes[0].{path}");
        assert_eq!(error.path(), path.trim_end_matches('.'));
    }
    let mut no_domains = one(to(|_| {}));
    no_domains.virtual_hosts[0].domains.clear();
    let error = route_configuration(no_domains).unwrap_err();
    assert_eq!(error.path(), "virtual_hosts[0].domains");
}

/// `envoy.lb` metadata with these strings.
fn envoy_lb(pairs: &[(&str, &str)]) -> (MetadataMessage, Metadata) {
    let pairs = pairs.iter();
    let fields: Metadata = pairs.map(|&(key, value)| (key, value.into())).collect();
    (metadata(&fields), fields)
}

#[test]
fn criteria_of_weighted_clusters_override_those_of_the_route() {
    let (of_route, route_fields) = envoy_lb(&[("stage", "prod"), ("version", "1")]);
    let (of_cluster, cluster_fields) = envoy_lb(&[("version", "2")]);
    let cluster = |metadata_match| ClusterWeightMessage {
        name: "c".into(),
        weight: Some(1),
        metadata_match,
        ..Default::default()
    };
    // Metadata under other keys does not count.
    let other = MetadataMessage::default();
    let clusters = [Some(of_cluster), None, Some(other)].map(cluster);
    let message = to(|action| {
        action.cluster = None;
        action.metadata_match = Some(of_route);
        action.weighted_clusters = Some(WeightedClusterMessage {
            clusters: clusters.into(),
        });
    });
    let config = route_configuration(one(message)).unwrap();
    let Action::Forward(action) = &config.virtual_hosts()[0].routes[0].action else {
        panic!("{config:?}")
    };
    let route = MatchCriteria::new(route_fields);
    let merged = route.merged(&cluster_fields);
    assert_eq!(merged.metadata().get("version"), Some(&"2".into()));
    assert_eq!(action.metadata_match.as_ref(), Some(&route));
    for (draw, criteria) in [(0, &merged), (1, &route), (2, &route)] {
        assert_eq!(action.criteria(draw), Some(criteria), "{draw}");
    }
}

#[test]
fn malformed_criteria_are_rejected_by_path() {
    let broken = || {
        let fields = BTreeMap::from([("k".to_owned(), ValueMessage::default())]);
        Some(MetadataMessage::envoy_lb(StructMessage { fields }))
    };
    let of_route = to(|action| action.metadata_match = broken());
    let of_cluster = to(|action| {
        action.cluster = None;
        action.weighted_clusters = Some(WeightedClusterMessage {
            clusters: vec![ClusterWeightMessage {
                metadata_match: broken(),
                ..Default::default()
            }],
        });
    });
    let inside = "metadata_match.filter_metadata[envoy.lb].k";
    for (message, path) in [
        (of_route, format!("route.{inside}")),
        (
            of_cluster,
            format!("route.weighted_clusters.clusters[0].{inside}"),
        ),
    ] {
        let error = route_configuration(one(message)).unwrap_err();
        assert_eq!(error.path(), format!("virtual_hosts[0].routes[0].{path}"));
    }
}

#[test]
fn weighted_clusters_have_header_rules_and_retry_predicates() {
    let weighted = WeightedClusterMessage {
        clusters: vec![ClusterWeightMessage {
            name: "c".into(),
            weight: Some(1),
            metadata_match: None,
            request_headers_to_add: vec![HeaderValueOptionMessage {
                header: Some(HeaderValueMessage {
                    key: "a".into(),
                    value: "1".into(),
                    ..Default::default()
                }),
                ..Default::default()
            }],
            request_headers_to_remove: vec!["b".into()],
            response_headers_to_add: Vec::new(),
            response_headers_to_remove: vec!["d".into()],
        }],
    };
    let predicate = |type_url: &str| RetryHostPredicateMessage {
        name: "any".into(),
        typed_config: Some(AnyMessage {
            type_url: type_url.into(),
            value: Bytes::new(),
        }),
    };
    let route = to(|action| {
        action.cluster = None;
        action.weighted_clusters = Some(weighted);
        action.retry_policy = Some(RetryPolicyMessage {
            retry_host_predicate: vec![
                predicate(RetryHostPredicate::PREVIOUS_HOSTS_TYPE),
                predicate("other"),
            ],
            host_selection_retry_max_attempts: 5,
            ..Default::default()
        });
    });
    let mut message = one(route);
    message.most_specific_header_mutations_wins = true;
    let read = decode_route_configuration(&message.encode_to_vec()).unwrap();
    assert_eq!(read.unread, [""; 0]);
    assert!(read.most_specific_header_mutations_wins);
    let Action::Forward(action) = &read.virtual_hosts()[0].routes[0].action else {
        panic!("{read:?}")
    };
    let ClusterSpecifier::Weighted(weighted) = &action.target else {
        panic!("{action:?}")
    };
    let rules = &weighted.clusters()[0].headers;
    assert_eq!(rules.request_add[0].key, "a");
    assert_eq!(rules.request_remove, ["b"]);
    assert_eq!(rules.response_remove, ["d"]);
    let retry = action.retry_policy.as_ref().unwrap();
    let other = RetryHostPredicate::Other("other".into());
    assert_eq!(
        retry.retry_host_predicate,
        [RetryHostPredicate::PreviousHosts, other]
    );
    assert_eq!(retry.host_selection_retry_max_attempts, 5);
}

#[test]
fn the_value_of_a_header_may_be_bytes() {
    let with = |raw_value: &[u8]| {
        let mut route = to(|_| {});
        route.request_headers_to_add = vec![HeaderValueOptionMessage {
            header: Some(HeaderValueMessage {
                key: "a".into(),
                raw_value: raw_value.to_vec(),
                ..Default::default()
            }),
            ..Default::default()
        }];
        decode_route_configuration(&one(route).encode_to_vec())
    };
    let read = with(b"raw").unwrap();
    let added = &read.virtual_hosts()[0].routes[0].headers.request_add;
    assert_eq!(added[0].value, "raw");
    let error = with(b"\xff").unwrap_err();
    assert!(
        error
            .path()
            .ends_with("request_headers_to_add[0].header.raw_value")
    );
}

#[test]
fn header_rules_and_proxy_features_are_decoded() {
    let mut route = to(|action| {
        action.cluster = None;
        action.cluster_header = Some("x".into());
        action.append_x_forwarded_host = true;
        action.hash_policy.push(HashPolicyMessage {
            connection_properties: Some(ConnectionPropertiesMessage { source_ip: true }),
            ..Default::default()
        });
    });
    let option = |append_action, append| HeaderValueOptionMessage {
        header: Some(HeaderValueMessage {
            key: "a".into(),
            value: "1".into(),
            ..Default::default()
        }),
        append,
        append_action,
        keep_empty_value: false,
    };
    route.request_headers_to_add = vec![option(0, Some(false)), option(3, None)];
    route.response_headers_to_remove = vec!["b".into()];
    let bytes = one(route.clone()).encode_to_vec();
    let read = decode_route_configuration(&bytes).unwrap();
    assert_eq!(read.unread, [""; 0]);
    let read = &read.virtual_hosts()[0].routes[0];
    let actions: Vec<_> = read
        .headers
        .request_add
        .iter()
        .map(|option| option.append_action)
        .collect();
    let expected = [
        AppendAction::OverwriteIfExistsOrAdd,
        AppendAction::OverwriteIfExists,
    ];
    assert_eq!(actions, expected);
    assert_eq!(read.headers.response_remove, ["b"]);
    let Action::Forward(action) = &read.action else {
        panic!("{read:?}")
    };
    assert_eq!(action.target, ClusterSpecifier::ClusterHeader("x".into()));
    assert_eq!(action.target.cluster(0), None);
    assert_eq!(action.hash_policy[0].source, HashSource::SourceIp);
    assert!(action.append_x_forwarded_host);
    for (wrong, path) in [
        (option(4, None), "append_action"),
        (option(1, Some(true)), "append"),
    ] {
        route.request_headers_to_add = vec![wrong];
        let error = route_configuration(one(route.clone())).unwrap_err();
        let expected = format!("virtual_hosts[0].routes[0].request_headers_to_add[0].{path}");
        assert_eq!(error.path(), expected);
    }
}

proptest! {
    #[test]
    fn damaged_bytes_never_panic(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
        end in any::<prop::sample::Index>(),
        cut in any::<bool>(),
        draw in any::<u64>(),
    ) {
        let mut bytes = message("route_full");
        for (place, byte) in changes {
            *place.get_mut(&mut bytes) = byte;
        }
        if cut {
            bytes.truncate(end.index(bytes.len()));
        }
        if let Ok(config) = decode_route_configuration(&bytes) {
            let header = |_: &str| Some(std::borrow::Cow::Borrowed(&b"e"[..]));
            let request = crate::route::RequestHead {
                method: "GET",
                authority: "shop.example",
                path: "/cart?x",
                scheme: "http",
                header: &header,
            };
            let host = config.virtual_host(request.authority);
            let route = host.and_then(|host| host.route(&request, draw));
            if let Some(Action::Forward(action)) = route.map(|route| &route.action) {
                let cluster = action.target.cluster(draw);
                prop_assert!(cluster.is_none_or(|name| config.clusters().contains(name)));
            }
        }
    }
}
