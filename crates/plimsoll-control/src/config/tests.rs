//! What files may say, and what they are told when they may not.

use super::*;

fn file(text: &str) -> File {
    File {
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
    http2_protocol_options: {}
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
fn an_empty_file_is_a_control_plane_with_defaults() {
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
fn a_service_is_read_whole() {
    let config = parse(ORDERS).unwrap();
    let orders = &config.services["orders"];
    assert_eq!(orders.config.endpoint_policy().name(), "least_request");
    assert_eq!((orders.mode, orders.ramp), (Mode::Shadow, 25));
    assert_eq!(orders.delivery, Delivery::LocalityWeights);
    assert_eq!(orders.connect_timeout, Duration::from_millis(250));
    assert_eq!(orders.protocol, Protocol::Http2);
    let [first, second] = orders.assignment.endpoints() else {
        panic!("two localities");
    };
    assert_eq!(first.lb_endpoints.len(), 2);
    assert_eq!(first.lb_endpoints[1].weight(), 3);
    assert_eq!((second.priority, second.locality.zone()), (1, "b"));
}

#[test]
fn included_files_add_services_and_nothing_else() {
    let extra = |text: &str| File {
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
            .contains("listen: belongs into the main file")
    );
    for setting in [
        "load_reporting: {interval: 1s}",
        "demand: {heartbeat: 1s}",
        "fleets: {leave_after: 1s}",
    ] {
        let error = ControlConfig::parse(&file(ORDERS), &[extra(setting)]).unwrap_err();
        assert!(error.to_string().contains("belongs into"), "{error}");
    }
}

#[test]
fn errors_name_the_field_and_the_place() {
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
            "services[0].cluster.type: STRICT_DNS is not EDS",
        ),
        (
            "services: [{cluster: {name: a, transport_socket: {}}}]",
            "services[0].cluster.transport_socket: is not delivered by this control plane",
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
fn behind_a_relay_a_service_is_a_name_and_how_far_to_go() {
    let relay = "relay: {address: 'h:1', api_type: DELTA_GRPC}\n";
    let config = parse(&format!(
        "{relay}services: [{{cluster: {{name: orders}}, ramp: 40, mode: SHADOW}}]"
    ));
    let config = config.unwrap();
    let orders = &config.services["orders"];
    assert_eq!((orders.ramp, orders.mode), (40, Mode::Shadow));
    assert!(!orders.is_policy_written && config.relay.unwrap().delta);
    let random = "services: [{cluster: {name: orders, lb_policy: RANDOM}}]";
    let config = parse(&format!("{relay}{random}")).unwrap();
    assert!(config.services["orders"].is_policy_written);
    let error = error(&format!("{relay}{ORDERS}"));
    assert!(
        error.contains("services[0].endpoints: come from the management server"),
        "{error}"
    );
}

#[test]
fn only_metadata_that_is_delivered_is_taken() {
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
        others.contains("lb_endpoints[0].metadata.filter_metadata.envoy.filters.x: unknown field"),
        "{others}"
    );
}

#[test]
fn routes_must_lead_somewhere() {
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
    let route = &config.listeners["in"].virtual_hosts[0].routes[0];
    assert_eq!(route.matches, Match::Prefix("/".to_owned()));
    let relayed = parse(&format!("relay: {{address: 'h:1'}}\n{listener}"));
    assert!(relayed.is_ok(), "the other server may know the cluster");
    for (route, expected) in [
        (
            "{match: {}, route: {cluster: a}}",
            "match: needs either prefix or path",
        ),
        (
            "{match: {path: /}, route: {}}",
            "route: needs either cluster or weighted_clusters",
        ),
        (
            "{match: {path: /}, route: {weighted_clusters: {clusters: [{name: a, weight: 0}]}}}",
            "clusters[0].weight: must be at least 1",
        ),
    ] {
        let text = format!(
            "listeners: [{{name: in, address: '1.1.1.1:1', virtual_hosts: \
             [{{name: v, routes: [{route}]}}]}}]"
        );
        let error = error(&text);
        assert!(error.contains(expected), "{error}");
    }
}
