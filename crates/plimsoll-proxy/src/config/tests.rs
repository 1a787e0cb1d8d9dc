//! Tests of reading: what is accepted, what is refused, and where the fault is said to be.

use super::*;
use crate::router::{Action, PathRedirect, RequestView, Target};

/// A bootstrap around the fields of a connection manager, its routes, and clusters, all in flow
/// style.
fn bootstrap(manager: &str, routes: &str, clusters: &str) -> String {
    format!(
        "static_resources:
  listeners:
  - name: front
    address: {{socket_address: {{address: 127.0.0.1, port_value: 80}}}}
    filter_chains:
    - filters:
      - name: envoy.filters.network.http_connection_manager
        typed_config:
          '@type': type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.\
         v3.HttpConnectionManager
          stat_prefix: front
          route_config: {{virtual_hosts: [{{name: all, domains: ['*'], routes: [{routes}]}}]}}
          {manager}
  clusters: [{clusters}]
"
    )
}

fn parse(manager: &str, routes: &str) -> ProxyConfig {
    ProxyConfig::parse(&bootstrap(manager, routes, "")).unwrap()
}

fn refused(manager: &str, routes: &str, clusters: &str) -> String {
    let error = ProxyConfig::parse(&bootstrap(manager, routes, clusters)).unwrap_err();
    assert!(error.location().is_some(), "{error}");
    let place = "static_resources.listeners[0].filter_chains[0].filters[0].typed_config.";
    let path = error.path().strip_prefix(place).unwrap_or(error.path());
    let place = "route_config.virtual_hosts[0].routes[0].";
    let path = path.strip_prefix(place).unwrap_or(path);
    format!("{path}: {}", error.reason())
}

const ROUTER: &str = "{typed_config: {'@type': type.googleapis.com/envoy.extensions.filters.http.\
                      router.v3.Router}}";

#[test]
fn defaults_are_safe_and_mostly_envoys() {
    let config = parse("", "");
    let listener = &config.listeners[0];
    assert_eq!(
        (listener.name.as_str(), listener.address.port()),
        ("front", 80)
    );
    let http = &listener.http;
    assert_eq!(http.codec, Codec::Auto);
    assert_eq!(
        (http.max_request_header_bytes, http.max_headers),
        (60 << 10, 100)
    );
    assert_eq!(http.request_headers_timeout, Some(Duration::from_secs(10)));
    assert_eq!(http.idle_timeout, Some(Duration::from_secs(3600)));
    assert_eq!(http.stream_idle_timeout, Some(Duration::from_secs(300)));
    assert!(http.generate_request_id && !http.use_remote_address);
    assert!(http.upgrades.is_empty() && http.server.is_none() && listener.tls.is_none());
    assert_eq!((config.max_connections, config.admin), (None, None));
}

#[test]
fn settings_of_the_manager_are_read() {
    let config = parse(
        &format!(
            "codecType: HTTP2
          use_remote_address: true
          max_request_headers_kb: 16
          request_headers_timeout: 0s
          common_http_protocol_options: {{idle_timeout: 5s, max_headers_count: 50}}
          http2_protocol_options: {{max_concurrent_streams: 7}}
          upgrade_configs: [{{upgrade_type: WebSocket}}, {{upgrade_type: x, enabled: false}}]
          server_header_transformation: OVERWRITE
          http_filters: [{{typed_config: {{'@type': type.googleapis.com/envoy.extensions.filters.\
             http.buffer.v3.Buffer, max_request_bytes: 9}}}}, {ROUTER}]"
        ),
        "",
    );
    let http = &config.listeners[0].http;
    assert_eq!(http.codec, Codec::Http2);
    assert!(http.use_remote_address);
    assert_eq!(
        (http.max_request_header_bytes, http.max_headers),
        (16 << 10, 50)
    );
    assert_eq!(http.request_headers_timeout, None);
    assert_eq!(http.idle_timeout, Some(Duration::from_secs(5)));
    assert_eq!(http.http2.max_concurrent_streams, 7);
    assert_eq!(http.upgrades, ["websocket"]);
    assert_eq!(http.server.as_ref().unwrap(), "plimsoll");
    assert_eq!(http.max_request_bytes, Some(9));
}

fn action<'a>(config: &'a ProxyConfig, path: &str) -> &'a Action {
    let headers = http::HeaderMap::new();
    let view = RequestView {
        host: "h",
        path,
        path_and_query: path,
        method: &http::Method::GET,
        scheme: "http",
        headers: &headers,
    };
    let RouteSource::Inline(routes) = &config.listeners[0].routes else {
        panic!("routes are in the file");
    };
    &routes.route(&view, || 0).unwrap().action
}

#[test]
fn routes_are_read() {
    let config = parse(
        "",
        "{match: {path: /a}, route: {cluster: a, timeout: 0s, retry_policy: {retry_on: \
         'connect-failure,5xx', retriable_status_codes: [429], num_retries: 3, \
         per_try_timeout: 1s}, hash_policy: [{header: {header_name: x}, \
         terminal: true}, {connection_properties: {source_ip: true}}]}},
         {match: {safe_regex: {regex: '/b[0-9]'}}, route: {weighted_clusters: {clusters: \
         [{name: a, weight: 1}, {name: b, weight: 2}]}}},
         {match: {prefix: /c}, redirect: {path_redirect: /d, response_code: SEE_OTHER}},
         {match: {prefix: /e}, direct_response: {status: 204}}",
    );
    let Action::Forward(forward) = action(&config, "/a") else {
        panic!("a is forwarded");
    };
    assert_eq!((forward.timeout, forward.retry.num_retries), (None, 3));
    assert_eq!(forward.per_try_timeout, Some(Duration::from_secs(1)));
    assert_eq!(forward.hash_policy.len(), 2);
    let Action::Forward(forward) = action(&config, "/b7") else {
        panic!("b is forwarded");
    };
    assert_eq!(forward.timeout, Some(Duration::from_secs(15)));
    assert!(matches!(&forward.target, Target::Weighted(list) if list[1].until == 3));
    let Action::Redirect(redirect) = action(&config, "/c") else {
        panic!("c is redirected");
    };
    assert_eq!(redirect.status, 303);
    assert!(matches!(&redirect.path, PathRedirect::Replace(path) if path == "/d"));
    assert!(matches!(action(&config, "/e"), Action::Direct(direct) if direct.status == 204));
}

#[test]
fn what_is_not_supported_is_named() {
    for (manager, expected) in [
        (
            "rds: {route_config_name: r, config_source: {ads: {}}}",
            "rds: stands beside route_config",
        ),
        ("rds: {}", "rds.route_config_name: must be set"),
        ("tracing: {}", "tracing: unknown field"),
        (
            "max_request_headers_kb: 0",
            "max_request_headers_kb: 0 is not from 1 to 8192",
        ),
        ("codec_type: HTTP3", "codec_type: unknown value HTTP3"),
        (
            "http2_protocol_options: {initial_stream_window_size: 1}",
            "http2_protocol_options.initial_stream_window_size: 1 is not from",
        ),
        (
            "http_filters: [{typed_config: {'@type': type.googleapis.com/x.Lua}}]",
            "http_filters[0].typed_config.@type: \"type.googleapis.com/x.Lua\" is not supported",
        ),
        (
            "access_log: [{typed_config: {'@type': type.googleapis.com/x.Http}}]",
            "access_log[0].typed_config.@type: ",
        ),
        (
            "access_log: [{typed_config: {'@type': type.googleapis.com/x.StdoutAccessLog, \
             log_format: {text_format: '%NO%'}}}]",
            "access_log[0].typed_config.log_format.text_format_source.inline_string: %NO% is not",
        ),
    ] {
        let refused = refused(manager, "", "");
        assert!(refused.starts_with(expected), "{manager}: {refused}");
    }
}

#[test]
fn routes_may_be_at_the_management_server() {
    let inline = "route_config: {virtual_hosts: [{name: all, domains: ['*'], routes: []}]}";
    let rds = "rds: {route_config_name: r, config_source: {ads: {}, resource_api_version: V3}}";
    let alone = bootstrap("", "", "").replace(inline, rds);
    let error = ProxyConfig::parse(&alone).unwrap_err();
    assert!(error.path().ends_with("typed_config.rds"), "{error}");
    let cluster = "{name: server, load_assignment: {cluster_name: server, endpoints: \
                   [{lb_endpoints: [{endpoint: {address: {socket_address: {address: 127.0.0.1, \
                   port_value: 1}}}}]}]}}";
    let server = "dynamic_resources: {ads_config: {api_type: GRPC, grpc_services: [{envoy_grpc: \
                  {cluster_name: server}}]}}\n";
    let text = bootstrap("", "", cluster).replace(inline, rds) + server;
    let config = ProxyConfig::parse(&text).unwrap();
    let routes = &config.listeners[0].routes;
    assert!(matches!(routes, RouteSource::Rds(name) if &**name == "r"));
    let neither = ProxyConfig::parse(&text.replace(rds, "")).unwrap_err();
    assert!(neither.to_string().contains("route_config"), "{neither}");
}

#[test]
fn faults_of_routes_are_found() {
    for (route, expected) in [
        (
            "{match: {prefix: /}}",
            ": must have exactly one of route, redirect",
        ),
        (
            "{match: {}, direct_response: {status: 200}}",
            "match: must have one of prefix, path",
        ),
        (
            "{match: {prefix: /}, direct_response: {status: 99}}",
            "direct_response.status: 99",
        ),
        (
            "{match: {prefix: /}, route: {}}",
            "route: must have one of cluster",
        ),
        (
            "{match: {prefix: /}, route: {cluster: a, rate_limits: []}}",
            "route.rate_limits: unknown field",
        ),
        (
            "{match: {prefix: /}, route: {cluster: a, retry_policy: {retry_on: magic}}}",
            "route.retry_policy.retry_on: \"magic\" is none of",
        ),
        (
            "{match: {safe_regex: {regex: '('}}, route: {cluster: a}}",
            "match.safe_regex.regex: ",
        ),
        (
            "{match: {prefix: /, headers: [{name: a, exact_match: x, present_match: true}]}, \
             route: {cluster: a}}",
            "match.headers[0]: has more than one condition",
        ),
        (
            "{match: {prefix: /}, route: {cluster: a}, request_headers_to_add: \
             [{header: {key: x, value: '%DOWNSTREAM_LOCAL_PORT%'}}]}",
            "request_headers_to_add[0].header.value: ",
        ),
        (
            "{match: {prefix: /}, route: {cluster: a}, request_headers_to_remove: [host]}",
            "request_headers_to_remove[0]: the host is changed with",
        ),
        (
            "{match: {prefix: /}, route: {weighted_clusters: {clusters: [{name: a, weight: 0}]}}}",
            "route.weighted_clusters.clusters: the sum of the weights",
        ),
    ] {
        let refused = refused("", route, "");
        let trimmed = refused.strip_prefix("route_config.virtual_hosts[0].routes[0]");
        let refused = trimmed.unwrap_or(&refused);
        assert!(refused.starts_with(expected), "{route}: {refused}");
    }
}

#[test]
fn faults_of_clusters_are_found() {
    let eds = "{name: a, type: EDS, eds_cluster_config: {eds_config: {ads: {}}}}";
    let refused_eds = refused("", "", eds);
    assert!(
        refused_eds.starts_with("static_resources.clusters[0].type: EDS needs"),
        "{refused_eds}"
    );
    let endpoint = "load_assignment: {cluster_name: a, endpoints: [{lb_endpoints: [{endpoint: \
                    {address: {socket_address: {address: 127.0.0.1, port_value: 1}}}}]}]}";
    let twice = format!("{{name: a, {endpoint}}}, {{name: a, {endpoint}}}");
    let refused_twice = refused("", "", &twice);
    assert!(refused_twice.contains("clusters[1].name: a cluster \"a\" stands above"));
    let unknown = refused("", "", "{name: a, lb_subset_config: {keys: []}}");
    assert!(
        unknown.starts_with("static_resources.clusters[0].lb_subset_config.keys"),
        "{unknown}"
    );
}

#[test]
fn a_management_server_is_a_cluster() {
    let text = "
node: {id: p1, cluster: edge, locality: {region: r, zone: a}}
cluster_manager:
  local_cluster_name: fleet
  load_stats_config: {api_type: GRPC, grpc_services: [{envoy_grpc: {cluster_name: server}}]}
dynamic_resources:
  ads_config:
    api_type: DELTA_GRPC
    transport_api_version: V3
    set_node_on_first_message_only: true
    grpc_services: [{envoy_grpc: {cluster_name: server, retry_policy: {retry_back_off: \
                {base_interval: 0.25s, max_interval: 2s}}}}]
  cds_config: {ads: {}, resource_api_version: V3}
static_resources:
  clusters:
  - name: server
    type: STATIC
    load_assignment: {cluster_name: server, endpoints: [{lb_endpoints: [{endpoint: {address: \
                {socket_address: {address: 127.0.0.1, port_value: 18000}}}}]}]}
  - {name: fleet, type: EDS, eds_cluster_config: {eds_config: {ads: {}}}}
";
    let config = ProxyConfig::parse(text).unwrap();
    let expected = XdsConfig {
        server: "server".to_owned(),
        uri: "http://127.0.0.1:18000".to_owned(),
        tls: None,
        delta: true,
        clusters: true,
        report_load: true,
        back_off: Some((Duration::from_millis(250), Duration::from_secs(2))),
    };
    assert_eq!(config.xds, Some(expected));
    assert_eq!(config.node.locality, Locality::new("r", "a", ""));
    let secured = text.replace(
        "type: STATIC\n",
        "type: STATIC
    transport_socket: {name: tls, typed_config: {sni: control.test, '@type': \
         type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext}}\n",
    );
    let xds = ProxyConfig::parse(&secured).unwrap().xds.unwrap();
    assert_eq!(xds.tls.unwrap().tls.unwrap().sni, "control.test");
    for (from, to, path) in [
        (
            "cluster_name: server, retry",
            "cluster_name: other, retry",
            "dynamic_resources.ads_config",
        ),
        (
            "cluster_name: server}}]}\nd",
            "cluster_name: other}}]}\nd",
            "cluster_manager.load_stats",
        ),
        (
            "local_cluster_name: fleet",
            "local_cluster_name: none",
            "cluster_manager.local_cluster_name",
        ),
        ("{id: p1, cluster: edge,", "{cluster: edge,", "node.id"),
        ("{id: p1, cluster: edge,", "{id: p1,", "node.cluster"),
        (
            "eds_config: {ads: {}}",
            "eds_config: {path_config_source: {path: x}}",
            "static_resources.clusters[1].eds_cluster_config.eds_config",
        ),
    ] {
        assert!(text.contains(from), "{from}");
        let error = ProxyConfig::parse(&text.replace(from, to)).unwrap_err();
        assert!(error.path().starts_with(path), "{error}");
    }
}

#[test]
fn listeners_have_names_and_addresses_of_their_own() {
    let one = bootstrap("", "", "");
    let listener = one
        .split("  listeners:\n")
        .nth(1)
        .unwrap()
        .split("  clusters:")
        .next()
        .unwrap();
    let with = |second: &str| {
        let both = one.replace("  clusters:", &format!("{second}  clusters:"));
        ProxyConfig::parse(&both).unwrap_err().to_string()
    };
    let named = with(listener);
    assert!(
        named.contains("listeners[1].name: a listener \"front\" stands above"),
        "{named}"
    );
    let addressed = with(&listener.replace("name: front\n", "name: other\n"));
    assert!(
        addressed.contains("listeners[1].address: is that of listener"),
        "{addressed}"
    );
}
