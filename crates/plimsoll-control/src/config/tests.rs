//! Tests of parsing configuration files: accepted files, and errors of rejected files.

use plimsoll_xds::pb::route::RouteConfigurationMessage;
use plimsoll_xds::schema::Described as _;

use super::*;

fn file(text: &str) -> ConfigFile {
    ConfigFile {
        name: "control.yaml".to_owned(),
        text: text.to_owned(),
    }
}

fn parse(text: &str) -> Result<ControlConfig, FileError> {
    ControlConfig::parse(&file(text), &[])
}

fn error(text: &str) -> String {
    parse(text).unwrap_err().to_string()
}

const ORDERS: &str = "
services:
- cluster:
    name: orders
    connect_timeout: 0.25s
    http2_protocol_options: {max_concurrent_streams: 7}
    load_balancing_policy:
      policies:
      - typed_extension_config:
          name: envoy.load_balancing_policies.least_request
          typed_config:
            '@type': type.googleapis.com/envoy.extensions.load_balancing_policies\
.least_request.v3.LeastRequest
  ramp: 25
  mode: SHADOW
  delivery: LOCALITY_WEIGHTS
  endpoints:
  - locality: {region: r, zone: a}
    lb_endpoints: ['10.0.0.1:80', {address: '10.0.0.2:80', load_balancing_weight: 3}]
  - locality: {region: r, zone: b}
    priority: 1
    lb_endpoints:
    - endpoint: {address: {socket_address: {address: 10.0.1.1, port_value: 80}}}
      health_status: DRAINING
";

#[test]
fn an_empty_file_has_defaults() {
    let config = parse("{}").unwrap();
    assert_eq!(config.listen.to_string(), "127.0.0.1:18000");
    assert_eq!(config.admin.unwrap().port(), 18001);
    assert_eq!(config.load_reporting_interval, Duration::from_secs(10));
    let interval = config.planner.default_report_interval();
    assert_eq!(interval, config.load_reporting_interval);
    assert_eq!(config.local_cluster_names[0].as_ref(), "local_cluster");
    assert!(config.services.is_empty() && config.relay.is_none());
}

#[test]
fn all_fields_of_a_service_are_parsed() {
    let config = parse(ORDERS).unwrap();
    let orders = &config.services["orders"];
    assert_eq!(orders.config.endpoint_policy().name(), "least_request");
    assert_eq!((orders.mode, orders.ramp), (Mode::Shadow, 25));
    assert_eq!(orders.delivery, Delivery::LocalityWeights);
    assert_eq!(orders.connect_timeout, Duration::from_millis(250));
    let http2 = orders.http2.as_ref().unwrap();
    assert_eq!(http2.max_concurrent_streams, Some(7));
    let [first, second] = orders.assignment.endpoints() else {
        panic!("two localities");
    };
    assert_eq!(first.lb_endpoints.len(), 2);
    assert_eq!(first.lb_endpoints[1].weight(), 3);
    assert_eq!((second.priority, second.locality.zone()), (1, "b"));
}

#[test]
fn included_files_can_only_add_services_and_listeners() {
    let extra = |text: &str| ConfigFile {
        name: "services.d/x.yaml".to_owned(),
        text: text.to_owned(),
    };
    let more = extra("services: [{cluster: {name: carts}}]");
    let config = ControlConfig::parse(&file(ORDERS), &[more]).unwrap();
    assert_eq!(config.services.len(), 2);
    let twice = extra("services: [{cluster: {name: orders}}]");
    let error = ControlConfig::parse(&file(ORDERS), &[twice]).unwrap_err();
    assert_eq!(
        error.to_string(),
        "services.d/x.yaml: services[0].cluster.name: orders is already defined in control.yaml \
         (at 1:29)"
    );
    let settings = extra("listen: 127.0.0.1:1");
    let error = ControlConfig::parse(&file("{}"), &[settings]).unwrap_err();
    assert!(
        error
            .to_string()
            .contains("listen: is only allowed in the main file")
    );
    for setting in [
        "load_reporting: {interval: 1s}",
        "demand: {heartbeat: 1s}",
        "fleets: {leave_after: 1s}",
    ] {
        let error = ControlConfig::parse(&file(ORDERS), &[extra(setting)]).unwrap_err();
        assert!(error.to_string().contains("in the main file"), "{error}");
    }
}

#[test]
fn errors_have_the_path_and_the_location() {
    for (text, expected) in [
        (
            "listen: here",
            "control.yaml: listen: \"here\" is not an address such as 127.0.0.1:18000 (at 1:9)",
        ),
        ("lisen: x", "control.yaml: lisen: unknown field"),
        (
            "load_reporting: {interval: 0s}",
            "load_reporting.interval: 0ns is outside 100ms to 1 h",
        ),
        (
            "demand: {missed_intervals: 0}",
            "demand.missed_intervals: 0 is outside 1 to 1000",
        ),
        (
            "relay: {address: upstream}",
            "relay.address: \"upstream\" is not host:port",
        ),
        (
            "services: [{cluster: {name: ''}}]",
            "services[0].cluster.name: must not be empty",
        ),
        (
            "services: [{cluster: {name: a}, ramp: 101}]",
            "services[0].ramp: 101 is not a percentage",
        ),
        (
            "services: [{cluster: {name: a, type: STRICT_DNS}}]",
            "services[0].cluster.type: must be EDS: endpoints are configured in services",
        ),
        (
            "services: [{cluster: {name: a, transport_socket: {}}}]",
            "services[0].cluster.transport_socket: is not delivered by this control plane",
        ),
        (
            "services: [{cluster: {name: a, alt_stat_name: b}}]",
            "services[0].cluster.alt_stat_name: is not delivered by this control plane",
        ),
        (
            "services: [{cluster: {name: a, http2_protocol_options: {hpack_table_size: 1}}}]",
            "services[0].cluster.http2_protocol_options.hpack_table_size: is not supported",
        ),
        (
            "services: [{cluster: {name: a}, endpoints: [{lb_endpoints: [{endpoint: {address: \
             {socket_address: {address: a, port_value: 1}}}}]}]}]",
            "lb_endpoints[0].endpoint.address.socket_address.address: \"a\" is not an IP address",
        ),
        (
            "services: [{cluster: {name: a}, endpoints: [{lb_endpoints: [{endpoint: {address: \
             {socket_address: {address: 1.1.1.1, port_value: 1}}, health_check_config: {}}}]}]}]",
            "lb_endpoints[0].endpoint.health_check_config: is not delivered by this control plane",
        ),
        (
            "services: [{cluster: {name: a}, endpoints: [{lb_endpoints: [x]}]}]",
            "services[0].endpoints[0].lb_endpoints[0].address: \"x\" is not an IP address and port",
        ),
        (
            "services: [{cluster: {name: a}, endpoints: [{lb_endpoints: ['1.1.1.1:1', \
             '1.1.1.1:1']}]}]",
            "services[0].endpoints[0].lb_endpoints[1].endpoint.address: 1.1.1.1:1 is already",
        ),
    ] {
        let error = error(text);
        assert!(error.contains(expected), "{text}: {error}");
    }
}

#[test]
fn services_of_a_relay_have_no_endpoints() {
    let relay = "relay: {address: 'h:1', api_type: DELTA_GRPC}\n";
    let config = parse(&format!(
        "{relay}services: [{{cluster: {{name: orders}}, ramp: 40, mode: SHADOW}}]"
    ))
    .unwrap();
    let orders = &config.services["orders"];
    assert_eq!((orders.ramp, orders.mode), (40, Mode::Shadow));
    assert!(!orders.has_explicit_policy && config.relay.unwrap().delta);
    let random = "services: [{cluster: {name: orders, lb_policy: RANDOM}}]";
    let config = parse(&format!("{relay}{random}")).unwrap();
    assert!(config.services["orders"].has_explicit_policy);
    let error = error(&format!("{relay}{ORDERS}"));
    assert!(
        error.contains("services[0].endpoints: must be empty with a relay"),
        "{error}"
    );
}

#[test]
fn metadata_that_is_not_delivered_is_rejected() {
    let endpoint = |metadata: &str| {
        let endpoint = format!("{{address: '10.0.0.1:80', metadata: {metadata}}}");
        format!("services: [{{cluster: {{name: o}}, endpoints: [{{lb_endpoints: [{endpoint}]}}]}}]")
    };
    let text = endpoint("{filter_metadata: {envoy.lb: {Version: 1, hash_key: k}}}");
    let config = parse(&text).unwrap();
    let orders = &config.services["o"].assignment.endpoints()[0].lb_endpoints[0];
    assert_eq!(orders.metadata.to_string(), r#"Version=1, hash_key="k""#);
    assert_eq!(orders.hash_key.as_deref(), Some("k"));
    let others = error(&endpoint("{filter_metadata: {envoy.filters.x: {a: 1}}}"));
    assert!(
        others.contains("lb_endpoints[0].metadata.filter_metadata[envoy.filters.x]: is not deliv"),
        "{others}"
    );
}

#[test]
fn routes_must_refer_to_services() {
    let listener = "
listeners:
- name: in
  address: 127.0.0.1:10000
  virtual_hosts: [{name: all, routes: [{match: {prefix: /}, route: {cluster: orders}}]}]
";
    let lost = error(listener);
    assert!(
        lost.contains("listener in: routes to orders, which no service defines"),
        "{lost}"
    );
    let config = parse(&format!("{ORDERS}{listener}")).unwrap();
    let host = &config.listeners["in"].routes.virtual_hosts()[0];
    assert_eq!(host.domains, ["*"], "of whatever host");
    let relayed = parse(&format!("relay: {{address: 'h:1'}}\n{listener}"));
    assert!(relayed.is_ok(), "the other server may know the cluster");
}

/// A configuration file with one route.
fn routed(route: &str) -> String {
    format!(
        "relay: {{address: 'h:1'}}\nlisteners: [{{name: in, address: '1.1.1.1:1', virtual_hosts: \
         [{{name: v, routes: [{route}]}}]}}]"
    )
}

#[test]
fn routes_are_validated_like_in_data_planes() {
    let place = "listeners[0].virtual_hosts[0].routes[0]";
    let weighted = |weights: [u32; 2]| {
        let [a, b] = weights;
        routed(&format!(
            "{{match: {{path: /}}, route: {{weighted_clusters: {{clusters: [{{name: a, weight: \
             {a}}}, {{name: b, weight: {b}}}]}}}}}}"
        ))
    };
    assert!(parse(&weighted([0, 1])).is_ok(), "one may have nothing");
    let nameless = error(&weighted([0, 1]).replace("name: v, ", ""));
    assert!(
        nameless.contains("virtual_hosts[0].name: must not be empty"),
        "{nameless}"
    );
    for (text, expected) in [
        (
            weighted([0, 0]),
            "route.weighted_clusters.clusters: the sum of the weights is 0",
        ),
        (
            routed("{match: {}, route: {cluster: a}}"),
            "match: must have exactly one of prefix, path",
        ),
        (
            routed("{match: {path: /}, route: {}}"),
            "route: must have exactly one of cluster, cluster_header and weighted_clusters",
        ),
        (
            routed("{match: {path: /}, route: {cluster: a, priority: HIGH}}"),
            "route.priority: is not supported",
        ),
        (
            routed("{match: {path: /}, redirect: {regex_rewrite: {}}}"),
            "redirect.regex_rewrite: is not delivered by this control plane",
        ),
        (
            routed(
                "{match: {path: /}, route: {cluster: a, retry_policy: {retry_on: 5xx, \
                 retry_host_predicate: [{name: envoy.retry_host_predicates.omit_canary_hosts}]}}}",
            ),
            "route.retry_policy.retry_host_predicate: is not delivered by this control plane",
        ),
    ] {
        let error = error(&text);
        assert!(error.contains(&format!("{place}.{expected}")), "{error}");
    }
}

#[test]
fn routes_are_delivered_unchanged() {
    let text = routed(
        "{match: {path_separated_prefix: /a}, route: {cluster: a, retry_policy: {retry_on: 5xx}}, \
         response_headers_to_remove: [server]}",
    );
    let config = parse(&text).unwrap();
    let routes = &config.listeners["in"].routes;
    let json = plimsoll_xds::schema::json::message(
        &routes.message.0,
        RouteConfigurationMessage::DESCRIPTOR,
    );
    let route = &json.unwrap()["virtual_hosts"][0]["routes"][0];
    assert_eq!(route["match"]["path_separated_prefix"], "/a");
    assert_eq!(route["route"]["retry_policy"]["retry_on"], "5xx");
    assert_eq!(route["response_headers_to_remove"][0], "server");
}
