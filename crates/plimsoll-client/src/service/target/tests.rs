//! Request options from routes, and hash policies.

use plimsoll_xds::route::ClusterSpecifier;

use super::*;

fn header(name: &str, terminal: bool) -> HashPolicy {
    HashPolicy {
        source: HashSource::Header(name.to_owned()),
        terminal,
    }
}

fn action() -> RouteAction {
    RouteAction {
        target: ClusterSpecifier::Cluster("c".to_owned()),
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
    }
}

#[test]
fn hashes_are_combined_up_to_a_terminal_policy() {
    let mut headers = HeaderMap::new();
    headers.insert("user", "u1".parse().unwrap());
    headers.append("tag", "a".parse().unwrap());
    headers.append("tag", "b".parse().unwrap());
    let (user, tag) = (xxh64(b"u1", 0), xxh64(b"a,b", 0));
    let hash = |policies: &[HashPolicy]| hash(policies, &headers, 7);
    assert_eq!(hash(&[header("user", false)]), Some(user));
    assert_eq!(hash(&[header("none", true)]), None);
    let both = [header("user", false), header("tag", false)];
    assert_eq!(hash(&both), Some(user.rotate_left(1) ^ tag));
    let first = [header("user", true), header("tag", false)];
    assert_eq!(hash(&first), Some(user));
    let channel = HashPolicy {
        source: HashSource::ChannelId,
        terminal: false,
    };
    assert_eq!(hash(&[header("none", true), channel]), Some(7));
}

#[test]
fn a_timeout_of_zero_is_unlimited() {
    let second = Duration::from_secs(1);
    let timeout = |timeout, longest| {
        let action = RouteAction {
            timeout,
            max_stream_duration: longest,
            ..action()
        };
        route_options(&action).timeout
    };
    assert_eq!(timeout(None, None), None);
    assert_eq!(timeout(Some(Duration::ZERO), None), None);
    assert_eq!(timeout(Some(second), Some(second * 2)), Some(second));
    assert_eq!(timeout(None, Some(second)), Some(second));
    assert_eq!(timeout(Some(second * 2), Some(second)), Some(second));
    // `grpc_timeout_header_max` takes precedence, even if it is 0 (unlimited).
    let header = RouteAction {
        max_stream_duration: Some(second),
        grpc_timeout_header_max: Some(Duration::ZERO),
        ..action()
    };
    assert_eq!(route_options(&header).timeout, None);
    let options = route_options(&action()).cap_timeout(Some(second));
    assert_eq!(options.timeout, Some(second));
}

#[test]
fn requests_without_authority_get_that_of_the_target() {
    let filled = |uri: &str, authority: &str| {
        let mut request = Request::get(uri).body(()).unwrap();
        set_default_authority(&mut request, authority);
        request.uri().to_string()
    };
    assert_eq!(filled("/a/b?c", "orders"), "http://orders/a/b?c");
    assert_eq!(filled("https://own/a", "orders"), "https://own/a");
    assert_eq!(filled("/a", "not one"), "/a");
}

#[test]
fn grpc_timeout_carries_the_timeout_of_the_route() {
    let sent_timeout = |content_type: &str, timeout: Option<u64>, own: Option<u64>| {
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, content_type.parse().unwrap());
        if let Some(own) = own {
            headers.insert(GRPC_TIMEOUT, format!("{own}S").parse().unwrap());
        }
        let seconds = |limit: Option<u64>| limit.map(Duration::from_secs);
        set_grpc_timeout(&mut headers, seconds(timeout), seconds(own));
        let value = headers.get(GRPC_TIMEOUT)?;
        Some(value.to_str().unwrap().to_owned())
    };
    let grpc = "application/grpc+proto";
    assert_eq!(sent_timeout(grpc, Some(3), None).as_deref(), Some("3000m"));
    assert_eq!(
        sent_timeout(grpc, Some(3), Some(9)).as_deref(),
        Some("3000m")
    );
    assert_eq!(sent_timeout(grpc, Some(9), Some(9)).as_deref(), Some("9S"));
    assert_eq!(
        sent_timeout(grpc, Some(200_000), None).as_deref(),
        Some("200000S")
    );
    assert_eq!(sent_timeout(grpc, None, None), None);
    assert_eq!(sent_timeout("text/plain", Some(3), None), None);
}
