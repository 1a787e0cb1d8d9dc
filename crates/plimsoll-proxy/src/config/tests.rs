//! Tests of parsing bootstrap files: accepted files, rejected files, and locations of errors.

mod listeners;

use plimsoll_client::{RetryOn, RetryPolicy};
use plimsoll_xds::pb::route::RouteConfigurationMessage;
use plimsoll_xds::schema::file::FileMessage;
use plimsoll_xds::schema::{Described as _, json};
use plimsoll_xds::wire::decode_route_configuration;

use super::*;
use crate::router::{ClusterSelector, CompiledAction, CompiledRoute, PathRedirect, RequestView};

/// A bootstrap with the given fields of the `HttpConnectionManager`, routes and clusters, all in
/// YAML flow style.
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

fn rejection(manager: &str, routes: &str, clusters: &str) -> String {
    let error = ProxyConfig::parse(&bootstrap(manager, routes, clusters)).unwrap_err();
    assert!(error.location().is_some(), "{error}");
    let prefix = "static_resources.listeners[0].filter_chains[0].filters[0].typed_config.";
    let path = error.path().strip_prefix(prefix).unwrap_or(error.path());
    let prefix = "route_config.virtual_hosts[0].routes[0].";
    let path = path.strip_prefix(prefix).unwrap_or(path);
    format!("{path}: {}", error.reason())
}

const ROUTER: &str = "{typed_config: {'@type': type.googleapis.com/envoy.extensions.filters.http.\
                      router.v3.Router}}";

/// An overload manager with one monitor and one action, in YAML flow style.
fn overload_manager(monitor: &str, action: &str, threshold: &str) -> String {
    format!(
        "overload_manager: {{refresh_interval: 0.1s, resource_monitors: [{{name: x, typed_config: \
         {{'@type': type.googleapis.com/{monitor}}}}}], actions: [{{name: {action}, triggers: \
         [{{name: x, threshold: {{value: {threshold}}}}}]}}]}}"
    )
}

const KEEPALIVE: &str = "envoy.overload_actions.disable_http_keepalive";

#[test]
fn actions_against_overload_depend_on_monitors() {
    let envoy = "envoy.extensions.resource_monitors";
    for (monitor, expected) in [
        (
            format!("{envoy}.fixed_heap.v3.FixedHeapConfig, max_heap_size_bytes: 9"),
            ResourceMonitor::FixedHeap { max_bytes: 9 },
        ),
        (
            format!("{envoy}.cgroup_memory.v3.CgroupMemoryConfig, max_memory_bytes: 9"),
            ResourceMonitor::CgroupMemory { max_bytes: Some(9) },
        ),
        (
            format!("{envoy}.cgroup_memory.v3.CgroupMemoryConfig"),
            ResourceMonitor::CgroupMemory { max_bytes: None },
        ),
        (
            "plimsoll.resource_monitors.v1.WorkerLagConfig, max_lag: 2s".to_owned(),
            ResourceMonitor::WorkerLag {
                max: Duration::from_secs(2),
            },
        ),
    ] {
        let text = overload_manager(&monitor, KEEPALIVE, "0.9");
        let overload = ProxyConfig::parse(&text).unwrap().overload;
        assert_eq!(overload.refresh_interval, Duration::from_millis(100));
        assert_eq!(overload.monitors, [expected]);
        let trigger = OverloadTrigger {
            action: OverloadAction::DisableHttpKeepalive,
            monitor: 0,
            threshold: 0.9,
        };
        assert_eq!(overload.triggers, [trigger]);
    }
}

#[test]
fn mistakes_in_the_overload_manager_are_errors_with_their_path() {
    let heap = "envoy.extensions.resource_monitors.fixed_heap.v3.FixedHeapConfig";
    let good = format!("{heap}, max_heap_size_bytes: 9");
    let monitor = "resource_monitors[0].typed_config";
    for (text, path) in [
        (
            overload_manager(heap, KEEPALIVE, "1"),
            format!("{monitor}.max_heap_size_bytes"),
        ),
        (
            overload_manager(&format!("{heap}, max_heap_size_bytes: 0"), KEEPALIVE, "1"),
            format!("{monitor}.max_heap_size_bytes"),
        ),
        (
            overload_manager(&format!("{good}, max_lag: 1s"), KEEPALIVE, "1"),
            format!("{monitor}.max_lag"),
        ),
        (
            overload_manager(&good, "envoy.overload_actions.shrink_heap", "1"),
            "actions[0].name".to_owned(),
        ),
        (
            overload_manager(&good, KEEPALIVE, "1.5"),
            "actions[0].triggers[0].threshold.value".to_owned(),
        ),
        (
            overload_manager(&good, KEEPALIVE, "1").replace("[{name: x, thr", "[{name: y, thr"),
            "actions[0].triggers[0].name".to_owned(),
        ),
        (
            overload_manager(&good, KEEPALIVE, "1").replace("0.1s", "0s"),
            "refresh_interval".to_owned(),
        ),
    ] {
        let error = ProxyConfig::parse(&text).unwrap_err().to_string();
        assert!(
            error.contains(&format!("overload_manager.{path}:")),
            "{error}"
        );
    }
}

#[test]
fn limits_of_connections_are_monitors_of_two_types() {
    let parse = |type_url: &str| {
        ProxyConfig::parse(&format!(
            "overload_manager: {{resource_monitors: [{{name: x, typed_config: {{'@type': \
             type.googleapis.com/{type_url}, max_active_downstream_connections: 7}}}}]}}"
        ))
    };
    let total = "envoy.extensions.resource_monitors.downstream_connections.v3.\
                 DownstreamConnectionsConfig";
    let max = parse(total).unwrap().max_connections;
    assert_eq!((max.total, max.per_address), (Some(7), None));
    let per_address = "plimsoll.resource_monitors.v1.ConnectionsPerAddressConfig";
    let max = parse(per_address).unwrap().max_connections;
    assert_eq!((max.total, max.per_address), (None, Some(7)));
    let error = parse("other").unwrap_err().to_string();
    let path = "overload_manager.resource_monitors[0].typed_config.@type";
    assert!(error.contains(path), "{error}");
}

#[test]
fn defaults_are_safe_and_mostly_envoys() {
    let config = parse("", "");
    let listener = &config.listeners[0];
    assert_eq!(
        (listener.name.as_str(), listener.address.port()),
        ("front", 80)
    );
    let http = &listener.chains[0].http;
    assert_eq!(http.codec, CodecType::Auto);
    assert_eq!(
        (http.max_request_header_bytes, http.max_headers),
        (60 << 10, 100)
    );
    assert_eq!(http.request_headers_timeout, Some(Duration::from_secs(10)));
    assert_eq!(http.idle_timeout, Some(Duration::from_secs(3600)));
    assert_eq!(http.stream_idle_timeout, Some(Duration::from_secs(300)));
    assert!(http.generate_request_id && !http.use_remote_address);
    assert!(http.upgrades.is_empty() && http.server.is_none() && listener.chains[0].tls.is_none());
    assert_eq!(config.max_connections, MaxConnections::default());
    assert_eq!(config.admin, None);
}

#[test]
fn connection_manager_settings_are_parsed() {
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
    let http = &config.listeners[0].chains[0].http;
    assert_eq!(http.codec, CodecType::Http2);
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

fn action<'a>(config: &'a ProxyConfig, path: &str) -> &'a CompiledAction {
    &selected(config, path).action
}

fn selected<'a>(config: &'a ProxyConfig, path: &str) -> &'a CompiledRoute {
    let headers = http::HeaderMap::new();
    let view = RequestView {
        host: "h",
        path,
        path_and_query: path,
        method: &http::Method::GET,
        scheme: "http",
        headers: &headers,
    };
    let RouteSource::Inline(routes) = &config.listeners[0].chains[0].routes else {
        panic!("routes are in the file");
    };
    routes.route(&view, || 0).unwrap()
}

/// The values that header formats refer to are copied for every request of such a route.
#[test]
fn only_routes_with_header_formats_collect_values() {
    let header = |value: &str| format!("[{{header: {{key: x, value: '{value}'}}}}]");
    let weighted = |more: String| {
        format!("route: {{weighted_clusters: {{clusters: [{{name: a, weight: 1{more}}}]}}}}")
    };
    let (fixed, computed) = (header("a"), header("%PROTOCOL%"));
    for (fields, expected) in [
        ("route: {cluster: a}".to_owned(), false),
        (
            format!("route: {{cluster: a}}, request_headers_to_add: {fixed}"),
            false,
        ),
        (
            format!("route: {{cluster: a}}, request_headers_to_add: {computed}"),
            true,
        ),
        (
            format!("route: {{cluster: a}}, response_headers_to_add: {computed}"),
            true,
        ),
        (
            format!("redirect: {{}}, response_headers_to_add: {computed}"),
            true,
        ),
        ("redirect: {}".to_owned(), false),
        (weighted(String::new()), false),
        (
            weighted(format!(", request_headers_to_add: {fixed}")),
            false,
        ),
        (
            weighted(format!(", request_headers_to_add: {computed}")),
            true,
        ),
        (
            weighted(format!(", response_headers_to_add: {computed}")),
            true,
        ),
    ] {
        let config = parse("", &format!("{{match: {{prefix: /}}, {fields}}}"));
        let needed = selected(&config, "/").needs_request_info;
        assert_eq!(needed, expected, "{fields}");
    }
}

#[test]
fn routes_are_parsed() {
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
    let CompiledAction::Forward(forward) = action(&config, "/a") else {
        panic!("a is forwarded");
    };
    let retry = RetryPolicy::new()
        .num_retries(3)
        .retry_on(RetryOn::parse("connect-failure,5xx").unwrap())
        .retriable_status_codes([429]);
    assert_eq!((forward.timeout, &forward.retry), (None, &retry));
    assert_eq!(forward.per_try_timeout, Some(Duration::from_secs(1)));
    assert_eq!(forward.hash_policy.len(), 2);
    let CompiledAction::Forward(forward) = action(&config, "/b7") else {
        panic!("b is forwarded");
    };
    assert_eq!(forward.timeout, Some(Duration::from_secs(15)));
    assert!(matches!(&forward.cluster, ClusterSelector::Weighted(list) if list[1].until == 3));
    let CompiledAction::Redirect(redirect) = action(&config, "/c") else {
        panic!("c is redirected");
    };
    assert_eq!(redirect.status, 303);
    assert!(matches!(&redirect.path, PathRedirect::Replace(path) if path == "/d"));
    assert!(
        matches!(action(&config, "/e"), CompiledAction::Direct(direct) if direct.status == 204)
    );
}

#[test]
fn unsupported_settings_are_rejected_with_their_path() {
    for (manager, expected) in [
        (
            "rds: {route_config_name: r, config_source: {ads: {}}}",
            "rds: cannot be combined with route_config",
        ),
        ("tracing: {}", "tracing.provider: must be set"),
        (
            "max_request_headers_kb: 0",
            "max_request_headers_kb: must be from 1 to 8192",
        ),
        ("codec_type: HTTP3", "codec_type: unknown value HTTP3"),
        (
            "http2_protocol_options: {initial_stream_window_size: 1}",
            "http2_protocol_options.initial_stream_window_size: must be from",
        ),
        (
            "http_filters: [{typed_config: {'@type': type.googleapis.com/x.Lua}}]",
            "http_filters[0].typed_config.@type: \"type.googleapis.com/x.Lua\" is not supported",
        ),
        (
            "http_filters: [{typed_config: {'@type': type.googleapis.com/envoy.extensions.filters.\
             http.router.v3.Router, max_request_bytes: 1}}]",
            "http_filters[0].typed_config.max_request_bytes: unknown field",
        ),
        (
            "http_filters: [{typed_config: {'@type': type.googleapis.com/envoy.extensions.filters.\
             http.health_check.v3.HealthCheck, pass_through_mode: true}}, {typed_config: {}}]",
            "http_filters[1].typed_config",
        ),
        (
            "http_filters: [{typed_config: {'@type': type.googleapis.com/envoy.extensions.filters.\
             http.local_ratelimit.v3.LocalRateLimit, stat_prefix: a}}, {typed_config: {'@type': a}}]",
            "http_filters[0].typed_config.filter_enabled: must be set",
        ),
        (
            "strip_matching_host_port: true\n          strip_any_host_port: true",
            "strip_any_host_port: ",
        ),
        (
            "access_log: [{typed_config: {'@type': type.googleapis.com/x.Http}}]",
            "access_log[0].typed_config.@type: ",
        ),
        (
            "access_log: [{typed_config: {'@type': type.googleapis.com/envoy.extensions.\
             access_loggers.stream.v3.StdoutAccessLog, log_format: {text_format: '%NO%'}}}]",
            "access_log[0].typed_config.log_format.text_format_source.inline_string: operator %NO%",
        ),
    ] {
        let rejection = rejection(manager, "", "");
        assert!(rejection.starts_with(expected), "{manager}: {rejection}");
    }
}

#[test]
fn routes_can_come_from_the_management_server() {
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
    let routes = &config.listeners[0].chains[0].routes;
    assert!(matches!(routes, RouteSource::Rds(name) if &**name == "r"));
    for (wrong, expected) in [
        ("rds: {}", "rds.route_config_name: must not be empty"),
        (
            "rds: {route_config_name: r}",
            "rds.config_source: only `ads: {}` is",
        ),
        (
            "rds: {route_config_name: r, config_source: {self: {}}}",
            "rds.config_source: only `ads: {}` is",
        ),
        (
            "rds: {route_config_name: r, config_source: {ads: {}, initial_fetch_timeout: 1s}}",
            "rds.config_source.initial_fetch_timeout: is not supported",
        ),
    ] {
        let error = ProxyConfig::parse(&text.replace(rds, wrong)).unwrap_err();
        assert!(error.to_string().contains(expected), "{error}");
    }
    let neither = ProxyConfig::parse(&text.replace(rds, "")).unwrap_err();
    assert!(neither.to_string().contains("route_config"), "{neither}");
}

#[test]
fn invalid_routes_are_rejected_with_their_path() {
    for (route, expected) in [
        (
            "{match: {prefix: /}}",
            ": must have exactly one of route, redirect",
        ),
        (
            "{match: {}, direct_response: {status: 200}}",
            "match: must have exactly one of prefix, path",
        ),
        (
            "{match: {prefix: /}, direct_response: {status: 99}}",
            "direct_response.status: 99",
        ),
        (
            "{match: {prefix: /}, route: {}}",
            "route: must have exactly one of cluster",
        ),
        (
            "{match: {prefix: /}, route: {cluster: a, rate_limits: []}}",
            "route.rate_limits: is not supported",
        ),
        (
            "{match: {prefix: /}, route: {cluster: a, retry_policy: {retry_on: magic}}}",
            "route.retry_policy.retry_on: unknown condition \"magic\"",
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
            "request_headers_to_remove[0]: cannot modify host here",
        ),
        (
            "{match: {prefix: /}, route: {weighted_clusters: {clusters: [{name: a, weight: 0}]}}}",
            "route.weighted_clusters.clusters: the sum of the weights",
        ),
        (
            "{match: {prefix: /}, route: {cluster: a, cluster_header: b}}",
            "route: must have exactly one of cluster",
        ),
        (
            "{match: {prefix: /}, route: {cluster_specifier_plugin: a}}",
            "route.cluster_specifier_plugin: is not supported",
        ),
        (
            "{match: {prefix: /}, route: {cluster: a, auto_host_rewrite: true}}",
            "route.auto_host_rewrite: is not supported",
        ),
        (
            "{match: {prefix: /}, route: {cluster: a, max_stream_duration: \
             {grpc_timeout_header_max: 1s}}}",
            "route.max_stream_duration.grpc_timeout_header_max: is not supported",
        ),
        (
            "{match: {prefix: /}, route: {cluster: a, hash_policy: [{cookie: {name: c}}]}}",
            "route.hash_policy[0].cookie: is not supported",
        ),
        (
            "{match: {prefix: /}, route: {cluster: a, hash_policy: [{header: {header_name: x}, \
             connection_properties: {source_ip: true}}]}}",
            "route.hash_policy[0]: must have header, or connection_properties",
        ),
        (
            "{match: {prefix: /}, route: {cluster: a, retry_policy: {retry_back_off: \
             {max_interval: 1s}}}}",
            "route.retry_policy.retry_back_off.base_interval: must be above 0",
        ),
        (
            "{match: {prefix: /, runtime_fraction: {}}, route: {cluster: a}}",
            "match.runtime_fraction.default_value: must be set",
        ),
        (
            "{match: {prefix: /, query_parameters: [{present_match: true}]}, route: {cluster: a}}",
            "match.query_parameters[0].name: must not be empty",
        ),
        (
            "{match: {prefix: /}, redirect: {regex_rewrite: {}}}",
            "redirect.regex_rewrite: is not supported",
        ),
        (
            "{match: {prefix: /}, redirect: {portRedirect: 70000}}",
            "redirect.portRedirect: must be at most 65535",
        ),
        (
            "{match: {prefix: /}, direct_response: {status: 200, body: {filename: x}}}",
            "direct_response.body: must be inline",
        ),
        (
            "{match: {prefix: /}, filter_action: {}}",
            "filter_action: is not supported",
        ),
        (
            "{match: {prefix: /}, route: {cluster: a, timeout: 1}}",
            "route.timeout: ",
        ),
    ] {
        let rejection = rejection("", route, "");
        let trimmed = rejection.strip_prefix("route_config.virtual_hosts[0].routes[0]");
        let rejection = trimmed.unwrap_or(&rejection);
        assert!(rejection.starts_with(expected), "{route}: {rejection}");
    }
}

/// Covers every supported route field: each is compiled and appears in `/config_dump`.
#[test]
fn every_supported_route_field_is_parsed_and_dumped() {
    let text = include_str!("tests/everything.yaml");
    let read = |text: &str| {
        let document = Document::parse(text).unwrap();
        let written: FileMessage<RouteConfigurationMessage> = document.read().unwrap();
        Arc::new(decode_route_configuration(written.bytes()).unwrap())
    };
    let routes = read(text);
    RouteTable::try_from(Arc::clone(&routes)).unwrap();
    let dumped = json::message(&routes.message.0, RouteConfigurationMessage::DESCRIPTOR).unwrap();
    assert_eq!(read(&dumped.to_string()), routes, "{dumped:#}");
    let count = |value: &serde_json::Value| value.to_string().matches("\":").count();
    let given = Document::parse(text).unwrap().json();
    assert_eq!(count(&dumped), count(&given), "{dumped:#}");
}

#[test]
fn invalid_clusters_are_rejected_with_their_path() {
    let eds = "{name: a, type: EDS, eds_cluster_config: {eds_config: {ads: {}}}}";
    let rejected_eds = rejection("", "", eds);
    assert!(
        rejected_eds.starts_with("static_resources.clusters[0].type: EDS requires"),
        "{rejected_eds}"
    );
    let endpoint = "load_assignment: {cluster_name: a, endpoints: [{lb_endpoints: [{endpoint: \
                    {address: {socket_address: {address: 127.0.0.1, port_value: 1}}}}]}]}";
    let twice = format!("{{name: a, {endpoint}}}, {{name: a, {endpoint}}}");
    let duplicate = rejection("", "", &twice);
    assert!(duplicate.contains("clusters[1].name: another cluster is already named \"a\""));
    let ignored = format!("{{name: a, alt_stat_name: b, track_cluster_stats: {{}}, {endpoint}}}");
    let config = ProxyConfig::parse(&bootstrap("", "", &ignored)).unwrap();
    let fields = ["alt_stat_name", "track_cluster_stats"];
    let paths = fields.map(|field| format!("static_resources.clusters[0].{field}"));
    assert_eq!(config.ignored_fields, paths);
    let unknown = rejection("", "", "{name: a, lb_subset_config: {keys: []}}");
    assert!(
        unknown.starts_with("static_resources.clusters[0].lb_subset_config.keys"),
        "{unknown}"
    );
}

#[test]
fn the_management_server_is_a_static_cluster() {
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
        listeners: false,
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
fn listener_names_and_addresses_must_be_unique() {
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
        named.contains("listeners[1].name: another listener is already named \"front\""),
        "{named}"
    );
    let addressed = with(&listener.replace("name: front\n", "name: other\n"));
    assert!(
        addressed.contains("listeners[1].address: is already used by listener"),
        "{addressed}"
    );
}

#[test]
fn the_collector_is_a_known_cluster() {
    let manager = |service: &str| {
        format!(
            "tracing: {{provider: {{name: t, typed_config: {{'@type': \
             type.googleapis.com/envoy.config.trace.v3.OpenTelemetryConfig, {service}}}}}}}"
        )
    };
    let grpc = manager("grpc_service: {envoy_grpc: {cluster_name: c}}");
    let expected = "tracing.provider.typed_config.grpc_service.envoy_grpc.cluster_name: no \
                    cluster \"c\" in static_resources";
    assert_eq!(rejection(&grpc, "", ""), expected);
    let http = "http_service: {http_uri: {uri: 'http://a/b', cluster: d, timeout: 1s}}";
    let expected = "tracing.provider.typed_config.http_service.http_uri.cluster: no cluster";
    let error = rejection(&manager(http), "", "");
    assert!(error.starts_with(expected), "{error}");
    let cluster = "{name: c, type: STATIC, load_assignment: {cluster_name: c}}";
    let config = ProxyConfig::parse(&bootstrap(&grpc, "", cluster)).unwrap();
    let tracing = config.listeners[0].chains[0].tracing.as_ref().unwrap();
    assert_eq!(tracing.collector.as_ref().unwrap().cluster, "c");
}

fn filter(name: &str, fields: &str) -> String {
    let type_url = "type.googleapis.com/envoy.extensions.filters.http";
    format!("http_filters: [{{typed_config: {{'@type': {type_url}.{name}, {fields}}}}}, {ROUTER}]")
}

const ALL: &str = "{default_value: {numerator: 100}}";

fn rate_limit(bucket: &str, enabled: &str, enforced: &str) -> String {
    filter(
        "local_ratelimit.v3.LocalRateLimit",
        &format!(
            "stat_prefix: a, token_bucket: {bucket}, filter_enabled: {enabled}, \
             filter_enforced: {enforced}"
        ),
    )
}

#[test]
fn rate_limits_need_tokens_an_interval_and_all_requests() {
    let valid = "{max_tokens: 3, tokens_per_fill: 2, fill_interval: 0.05s}";
    let http = &parse(&rate_limit(valid, ALL, ALL), "").listeners[0].chains[0].http;
    let expected = TokenBucket::new(3, 2, Duration::from_millis(50));
    assert_eq!(http.local_rate_limit.as_deref(), Some(&expected));
    let default = "{max_tokens: 3, fill_interval: 1s}";
    let http = &parse(&rate_limit(default, ALL, ALL), "").listeners[0].chains[0].http;
    let expected = TokenBucket::new(3, 1, Duration::from_secs(1));
    assert_eq!(http.local_rate_limit.as_deref(), Some(&expected));
    let half = "{default_value: {numerator: 50}}";
    let ten_thousand = "{default_value: {numerator: 100, denominator: TEN_THOUSAND}}";
    for (bucket, enabled, enforced, expected) in [
        (
            "{max_tokens: 0, fill_interval: 1s}",
            ALL,
            ALL,
            "token_bucket: needs at least one",
        ),
        (
            "{max_tokens: 1, tokens_per_fill: 0, fill_interval: 1s}",
            ALL,
            ALL,
            "token_bucket: needs at least one",
        ),
        (
            "{max_tokens: 1, fill_interval: 0.049s}",
            ALL,
            ALL,
            "token_bucket.fill_interval: must be at least 0.05s",
        ),
        (valid, half, ALL, "filter_enabled: must be set"),
        (valid, ALL, half, "filter_enforced: must be set"),
        (valid, ALL, ten_thousand, "filter_enforced: must be set"),
    ] {
        let rejection = rejection(&rate_limit(bucket, enabled, enforced), "", "");
        let expected = format!("http_filters[0].typed_config.{expected}");
        assert!(rejection.starts_with(&expected), "{rejection}");
    }
}

#[test]
fn health_checks_answer_one_path() {
    let check = |fields: &str| filter("health_check.v3.HealthCheck", fields);
    let path = "{name: ':path', string_match: {exact: /healthz}}";
    let valid = check(&format!("pass_through_mode: false, headers: [{path}]"));
    let http = &parse(&valid, "").listeners[0].chains[0].http;
    assert_eq!(http.health_check_path.as_deref(), Some("/healthz"));
    let other = "{name: x, string_match: {exact: a}}";
    for (fields, expected) in [
        (
            format!("headers: [{path}]"),
            "pass_through_mode: must be false",
        ),
        (
            format!("pass_through_mode: true, headers: [{path}]"),
            "pass_through_mode: must be false",
        ),
        (
            format!("pass_through_mode: false, headers: [{path}, {other}]"),
            "headers: must have exactly one entry",
        ),
        (
            format!("pass_through_mode: false, headers: [{other}]"),
            "headers: must have exactly one entry",
        ),
        (
            format!("pass_through_mode: false, headers: [{path}], stat_prefix: a"),
            "stat_prefix: unknown field",
        ),
    ] {
        let rejection = rejection(&check(&fields), "", "");
        let expected = format!("http_filters[0].typed_config.{expected}");
        assert!(rejection.starts_with(&expected), "{rejection}");
    }
}

#[test]
fn settings_of_the_management_server_have_defaults() {
    let cluster = |name: &str, host: &str| {
        format!(
            "{{name: {name}, load_assignment: {{cluster_name: {name}, endpoints: [{{lb_endpoints: \
             [{{endpoint: {{address: {{socket_address: {{address: '{host}', port_value: 18000}}}}\
             }}}}]}}]}}}}"
        )
    };
    let clusters = format!(
        "{}, {}",
        cluster("other", "127.0.0.1"),
        cluster("server", "::1")
    );
    let xds = |ads: &str, more: &str| {
        let dynamic = format!(
            "dynamic_resources: {{ads_config: {{api_type: GRPC, grpc_services: [{ads}]}}{more}}}\n"
        );
        ProxyConfig::parse(&(bootstrap("", "", &clusters) + &dynamic))
    };
    let plain = "{envoy_grpc: {cluster_name: server}}";
    let found = xds(plain, "").unwrap().xds.unwrap();
    assert_eq!(
        (found.server.as_str(), found.uri.as_str()),
        ("server", "http://[::1]:18000")
    );
    assert!(!found.delta && !found.clusters && !found.listeners && !found.report_load);
    assert_eq!(found.back_off, None);
    let found = xds(plain, ", lds_config: {ads: {}}").unwrap().xds.unwrap();
    assert!(found.listeners && !found.clusters);
    let back_off = |interval: &str| {
        let policy = format!("retry_policy: {{retry_back_off: {{base_interval: {interval}}}}}");
        let found = xds(
            &format!("{{envoy_grpc: {{cluster_name: server, {policy}}}}}"),
            "",
        );
        found.unwrap().xds.unwrap().back_off
    };
    let seconds = Duration::from_secs;
    assert_eq!(back_off("2s"), Some((seconds(2), seconds(20))));
    assert_eq!(back_off("0s"), None);
    for (ads, more, expected) in [
        (
            "",
            "",
            "dynamic_resources.ads_config.grpc_services: must have exactly one",
        ),
        (
            &*format!("{plain}, {plain}"),
            "",
            "dynamic_resources.ads_config.grpc_services: must",
        ),
        (
            plain,
            ", cds_config: {self: {}}",
            "dynamic_resources.cds_config: only `ads: {}`",
        ),
    ] {
        let error = xds(ads, more).unwrap_err().to_string();
        assert!(error.starts_with(expected), "{error}");
    }
}

#[test]
fn listeners_are_compared_by_name_settings_and_address() {
    let listener = || {
        let first = parse("", "").listeners.swap_remove(0);
        Arc::into_inner(first).unwrap()
    };
    let (one, mut other) = (listener(), listener());
    assert!(one.differs_only_in_routes(&other));
    other.address.set_port(81);
    assert!(
        one.differs_only_in_routes(&other),
        "addresses are compared elsewhere"
    );
    other.name = "other".to_owned();
    assert!(!one.differs_only_in_routes(&other));
    let mut other = listener();
    other.chains[0].http.max_headers = 7;
    assert!(!one.differs_only_in_routes(&other));
    let mut other = listener();
    other.chains[0].access_log.push(AccessLogConfig {
        path: None,
        format: Arc::default(),
    });
    assert!(!one.differs_only_in_routes(&other));
    let text = bootstrap("", "", "").replace("port_value: 80", "port_value: 0");
    let rest = text.split("  listeners:\n").nth(1).unwrap();
    let first = rest.split("  clusters:").next().unwrap();
    let second = first.replace("name: front\n", "name: other\n");
    let both = text.replace("  clusters:", &format!("{second}  clusters:"));
    assert_eq!(ProxyConfig::parse(&both).unwrap().listeners.len(), 2);
}
