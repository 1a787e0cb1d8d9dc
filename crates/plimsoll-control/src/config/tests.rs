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
    assert_eq!(config.addresses.listen.to_string(), "127.0.0.1:18000");
    assert_eq!(config.addresses.admin.unwrap().port(), 18001);
    assert_eq!(
        config.reporting.load_reporting_interval,
        Duration::from_secs(10)
    );
    let interval = config.reporting.planner.default_report_interval();
    assert_eq!(interval, config.reporting.load_reporting_interval);
    assert_eq!(
        config.fleets.local_cluster_names[0].as_ref(),
        "local_cluster"
    );
    assert!(config.services.is_empty() && config.relay.is_none());
}

#[test]
fn all_fields_of_a_service_are_parsed() {
    let config = parse(ORDERS).unwrap();
    let orders = &config.services["orders"];
    assert_eq!(orders.config.endpoint_policy().name(), "least_request");
    assert_eq!((orders.mode, orders.ramp), (Mode::Shadow, 25));
    assert_eq!(orders.delivery, Delivery::LocalityWeights);
    let timeout = orders.settings.written().connect_timeout;
    assert_eq!(timeout, Some(Duration::from_millis(250).into()));
    assert!(orders.settings.is_http2());
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
        "admin: ''",
        "load_reporting: {interval: 1s}",
        "load_reporting: {report_endpoint_granularity: true}",
        "demand: {smoothing_time_constant: 1s}",
        "demand: {missed_intervals: 5}",
        "demand: {material_change_bp: 5}",
        "demand: {heartbeat: 1s}",
        "demand: {max_times_median: 5}",
        "demand: {idle_timeout: 60s}",
        "fleets: {local_cluster_names: [own]}",
        "fleets: {leave_after: 1s}",
        "fleets: {endpoint_stale_after: 1s}",
        "fleets: {zones: [{zone: a}]}",
        "limits: {nodes: 5}",
        "reload: {max_removed_percent: 5}",
        "cost: {bytes_per_request: 1}",
        "otlp: {endpoint: 'http://collector'}",
        "relay: {address: 'h:1'}",
        "kubernetes: {}",
        "consul: {}",
        "dns: {names: [{name: a.example, cluster: a}]}",
        "store: {etcd: {endpoints: ['[::1]:1']}}",
        "include: [more.yaml]",
    ] {
        let field = setting.split(':').next().unwrap();
        let error = ControlConfig::parse(&file(ORDERS), &[extra(setting)]).unwrap_err();
        let expected = format!("services.d/x.yaml: {field}: is only allowed in the main file");
        assert!(error.to_string().starts_with(&expected), "{error}");
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
            "relay: {address: ':1'}",
            "relay.address: \":1\" is not host:port",
        ),
        (
            "relay: {address: 'h:0'}",
            "relay.address: \"h:0\" is not host:port",
        ),
        (
            "reload: {max_removed_percent: 101}",
            "reload.max_removed_percent: 101 is outside 0 to 100",
        ),
        (
            "fleets: {zones: [{zone: a}, {}]}",
            "fleets.zones[1]: has neither region, zone nor sub_zone",
        ),
        (
            "fleets: {zones: [{zone: a}, {region: r, zone: a}, {zone: a}]}",
            "fleets.zones[2]: is already listed",
        ),
        (
            "admin: 127.0.0.1:18000",
            "admin: 127.0.0.1:18000 is already the address of listen",
        ),
        (
            "read_only: 127.0.0.1:18000",
            "read_only: 127.0.0.1:18000 is already the address of listen",
        ),
        (
            "listen: 127.0.0.1:18001",
            "listen: 127.0.0.1:18001 is already the address of admin",
        ),
        (
            "services: [{cluster: {name: a}, endpoints: [{lb_endpoints: [5]}]}]",
            "an address such as \"10.0.0.1:80\" or an LbEndpoint",
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
            "services: [{cluster: {name: a, filters: [{}]}}]",
            "services[0].cluster.filters: is not delivered by this control plane",
        ),
        (
            "services: [{cluster: {name: a, lrs_server: {self: {}}}}]",
            "services[0].cluster.lrs_server: is not delivered by this control plane",
        ),
        (
            "services: [{cluster: {name: a, http2_protocol_options: {use_oghttp2_codec: true}}}]",
            "services[0].cluster.http2_protocol_options.use_oghttp2_codec: is not delivered",
        ),
        (
            "services: [{cluster: {name: a}, endpoints: [{lb_endpoints: [{endpoint: {address: \
             {socket_address: {address: a, port_value: 1}}}}]}]}]",
            "lb_endpoints[0].endpoint.address.socket_address.address: \"a\" is not an IP address",
        ),
        (
            "services: [{cluster: {name: a}, endpoints: [{lb_endpoints: [{endpoint: {address: \
             {socket_address: {address: 1.1.1.1, port_value: 1}}, observability_name: x}}]}]}]",
            "lb_endpoints[0].endpoint.observability_name: is not delivered by this control plane",
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
        (
            routed(
                "{match: {path: /}, route: {cluster: a, hash_policy: [{header: {header_name: h}}, \
                 {filter_state: {key: k}}]}}",
            ),
            "route.hash_policy: is not delivered by this control plane",
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

#[test]
fn hash_policies_and_predicates_that_are_known_are_delivered() {
    let previous = "retry_host_predicate: [{name: envoy.retry_host_predicates.previous_hosts}]";
    let route = format!(
        "{{match: {{path: /}}, route: {{cluster: a, hash_policy: [{{header: {{header_name: h}}}}], \
         retry_policy: {{retry_on: 5xx, {previous}}}}}}}"
    );
    assert!(parse(&routed(&route)).is_ok());
    let host = |predicate: &str| {
        let policy = format!("retry_policy: {{retry_on: 5xx, {predicate}}}");
        routed(&route).replace("name: v, ", &format!("name: v, {policy}, "))
    };
    assert!(parse(&host(previous)).is_ok());
    let canary = previous.replace("previous_hosts", "omit_canary_hosts");
    let error = error(&host(&canary));
    let expected = "listeners[0].virtual_hosts[0].retry_policy.retry_host_predicate: is not deliv";
    assert!(error.contains(expected), "{error}");
}

#[test]
fn optional_fields_of_a_service_are_parsed() {
    let service = |text: &str| {
        let config = parse(&format!("services: [{text}]")).unwrap();
        Service::clone(&config.services["a"])
    };
    for (fields, demand_field) in [
        ("", None),
        ("mode: SHADOW", None),
        ("mode: ENFORCE", Some("mode")),
        ("ramp: 100", Some("ramp")),
        ("ramp: 5, mode: ENFORCE", Some("ramp")),
        ("delivery: FLEET_WEIGHTS, ramp: 5", Some("delivery")),
    ] {
        let found = service(&format!("{{cluster: {{name: a}}, {fields}}}"));
        assert_eq!(found.demand_field, demand_field, "{fields}");
    }
    let text = "{cluster: {name: a, connect_timeout: 1s}, overprovisioning_factor: 200,
        endpoints: [{locality: {zone: z}, load_balancing_weight: 7, lb_endpoints: ['1.1.1.1:1']}]}";
    let found = service(text);
    assert!(!found.has_explicit_policy);
    assert_eq!(found.assignment.overprovisioning_factor(), 200);
    assert_eq!(found.assignment.endpoints()[0].load_balancing_weight, 7);
}

#[test]
fn settings_are_the_same_if_only_endpoints_differ() {
    let orders = || Service::clone(&parse(ORDERS).unwrap().services["orders"]);
    let other = parse("services: [{cluster: {name: orders}}]").unwrap();
    let (service, other) = (orders(), &other.services["orders"]);
    assert!(service.has_same_settings(&orders()), "parsed again");
    let moved = Service {
        assignment: Arc::clone(&other.assignment),
        ..orders()
    };
    assert!(moved.has_same_settings(&service) && moved != service);
    let changes: [fn(&mut Service); 6] = [
        |service| service.mode = Mode::Off,
        |service| service.ramp = 26,
        |service| service.delivery = Delivery::Auto,
        |service| service.settings = Arc::default(),
        |service| service.has_explicit_policy = false,
        |service| service.demand_field = None,
    ];
    for (index, change) in changes.iter().enumerate() {
        let mut changed = orders();
        change(&mut changed);
        assert!(!changed.has_same_settings(&service), "{index}");
    }
    let config = Arc::clone(&other.config);
    assert!(!Service { config, ..orders() }.has_same_settings(&service));
}

#[test]
fn the_fingerprint_is_that_of_the_settings_that_replicas_share() {
    let fingerprint = |text: &str| parse(text).unwrap().fingerprint();
    assert_eq!(fingerprint(ORDERS), fingerprint(&format!("# x\n{ORDERS}")));
    assert_eq!(fingerprint("{}"), fingerprint("listen: 127.0.0.1:1"));
    assert_ne!(fingerprint("{}"), fingerprint(ORDERS));
    assert_ne!(fingerprint("{}"), fingerprint("fleets: {leave_after: 1s}"));
}

#[test]
fn demand_is_confirmed_three_times_within_the_shortest_staleness_threshold() {
    let heartbeat = |seconds: u32| {
        let policy = "type.googleapis.com/envoy.extensions.load_balancing_policies.round_robin.v3";
        let text = format!(
            "demand: {{heartbeat: 20s}}
services:
- cluster: {{name: orders, load_balancing_policy: {{policies: [{{typed_extension_config: {{
    name: round_robin, typed_config: {{'@type': {policy}.RoundRobin, locality_lb_config: {{
    zone_aware_lb_config: {{locality_basis: LRS_REPORTED_RATE, lrs_rate_config: {{
    staleness_threshold: {seconds}s}}}}}}}}}}}}]}}}}"
        );
        let config = parse(&text).unwrap();
        let (heartbeat, shortened) = config.heartbeat();
        let shortened = shortened.map(|(service, time)| (service.name().to_string(), time));
        (
            heartbeat,
            shortened,
            config.reporting.heartbeat_error.is_some(),
        )
    };
    let seconds = Duration::from_secs;
    assert_eq!(heartbeat(60), (seconds(20), None, false));
    let shortened = Some(("orders".to_owned(), seconds(30)));
    assert_eq!(heartbeat(30), (seconds(10), shortened, true));
}

#[test]
fn services_that_an_edit_leaves_alone_are_shared_with_the_earlier_reading() {
    let text = |second: &str| {
        format!(
            "services:\n- {{cluster: {{name: a}}}}\n- {{cluster: {{name: b}}, mode: {second}}}\n"
        )
    };
    let before = parse(&text("SHADOW")).unwrap();
    let edited = parse(&text("ENFORCE")).unwrap().sharing_services(&before);
    assert_eq!(edited, parse(&text("ENFORCE")).unwrap());
    let is_shared = |name: &str| Arc::ptr_eq(&edited.services[name], &before.services[name]);
    assert!(is_shared("a") && !is_shared("b"));
}
