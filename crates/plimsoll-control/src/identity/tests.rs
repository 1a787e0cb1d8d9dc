//! Tests of rules: which node a client may be, and what it may read.

use bytes::Bytes;
use plimsoll_xds::ads::view::{Resource, TypeResources};
use plimsoll_xds::lrs::{LrsSettings, LrsTraffic};

use super::*;
use crate::config::{ConfigFile, ControlConfig};

/// Rules as in a file.
fn rules(identities: &str) -> Rules {
    let file = ConfigFile {
        name: "control.yaml".to_owned(),
        text: format!(
            "tls: {{certificate: a, private_key: b, client_ca: c}}
identities: {identities}
services: [{{cluster: {{name: orders}}}}, {{cluster: {{name: search}}}}]"
        ),
    };
    let config = ControlConfig::parse(&file, &[]).unwrap();
    Rules::clone(&config.rules)
}

fn uri(uri: &str) -> ClientIdentity {
    ClientIdentity {
        uris: vec![uri.to_owned()],
        dns_names: Vec::new(),
    }
}

fn node(id: &str, fleet: &str, locality: (&str, &str)) -> Node {
    Node {
        id: id.into(),
        cluster: fleet.into(),
        locality: Locality::new(locality.0, locality.1, ""),
    }
}

fn gateway() -> Node {
    node("gateway-1", "gateway", ("r1", "zone-a"))
}

fn refusal(rules: &Rules, identity: &ClientIdentity, node: &Node) -> Option<String> {
    let checked = rules.check(Some(identity), node, Purpose::Discovery);
    checked.err().map(|refusal| refusal.to_string())
}

const GATEWAY: &str = "[{name: gateways, uri: 'spiffe://td/gateway', fleets: [gateway],
    zones: [zone-a, r1/zone-b], node_ids: ['gateway-*'], report_load: false}]";

#[test]
fn a_rule_names_what_it_does_not_allow() {
    let rules = rules(GATEWAY);
    let own = uri("spiffe://td/gateway");
    assert_eq!(refusal(&rules, &own, &gateway()), None);
    let other_zone = node("gateway-1", "gateway", ("r1", "zone-b"));
    assert_eq!(refusal(&rules, &own, &other_zone), None);
    for (node, expected) in [
        (
            node("gateway-1", "checkout", ("r1", "zone-a")),
            r#"rule "gateways", fleets: fleet "checkout" is not allowed"#,
        ),
        (
            node("gateway-1", "gateway", ("r1", "zone-c")),
            r#"rule "gateways", zones: zone "r1/zone-c" is not allowed"#,
        ),
        (
            node("gateway-1", "gateway", ("r2", "zone-b")),
            r#"rule "gateways", zones: zone "r2/zone-b" is not allowed"#,
        ),
        (
            node("checkout-1", "gateway", ("r1", "zone-a")),
            r#"rule "gateways", node_ids: node id "checkout-1" is not allowed"#,
        ),
        (
            node("gateway-1", "", ("r1", "zone-a")),
            r#"rule "gateways", fleets: fleet "" is not allowed"#,
        ),
    ] {
        assert_eq!(refusal(&rules, &own, &node).as_deref(), Some(expected));
    }
}

#[test]
fn reporting_load_needs_permission_of_its_own() {
    let own = uri("spiffe://td/gateway");
    let reporting = |rules: &Rules| {
        let checked = rules.check(Some(&own), &gateway(), Purpose::LoadReporting);
        checked.err().map(|refusal| (refusal.rule, refusal.field))
    };
    let refused = Some((Some("gateways".to_owned()), "report_load"));
    assert_eq!(reporting(&rules(GATEWAY)), refused);
    let default = rules("[{uri: 'spiffe://td/gateway'}]");
    assert_eq!(reporting(&default), None);
}

#[test]
fn clients_without_rule_are_refused() {
    let rules = rules(GATEWAY);
    let checked = rules.check(None, &gateway(), Purpose::Discovery);
    let refusal_without = checked.unwrap_err();
    assert_eq!(refusal_without.rule, None);
    assert_eq!(refusal_without.field, "identities");
    assert_eq!(refusal_without.to_string(), "no client certificate");
    let other = refusal(&rules, &uri("spiffe://td/other"), &gateway());
    assert_eq!(other.unwrap(), r#"no rule for "spiffe://td/other""#);
    let nameless = refusal(&rules, &ClientIdentity::default(), &gateway());
    assert_eq!(nameless.unwrap(), "no rule for a certificate without names");
    let both = ClientIdentity {
        uris: vec!["spiffe://td/gateway".to_owned(), "spiffe://td/b".to_owned()],
        dns_names: Vec::new(),
    };
    let ambiguous = refusal(&rules, &both, &gateway());
    assert_eq!(ambiguous.unwrap(), "the certificate has 2 URIs, not one");
}

#[test]
fn without_rules_every_client_may_be_any_node() {
    let any = Rules::default();
    let permission = any.check(None, &gateway(), Purpose::LoadReporting).unwrap();
    assert!(permission.reads("orders"));
    let none = rules("[]");
    assert!(refusal(&none, &uri("spiffe://td/gateway"), &gateway()).is_some());
}

#[test]
fn the_first_rule_that_matches_decides() {
    let rules =
        rules("[{uri: 'spiffe://td/a', fleets: [one]}, {uri: 'spiffe://td/*', fleets: [two]}]");
    let in_fleet = |identity: &str, fleet: &str| {
        let node = node("n", fleet, ("", "z"));
        refusal(&rules, &uri(identity), &node)
    };
    assert_eq!(in_fleet("spiffe://td/a", "one"), None);
    assert_eq!(
        in_fleet("spiffe://td/a", "two").unwrap(),
        r#"rule "identities[0]", fleets: fleet "two" is not allowed"#
    );
    assert_eq!(in_fleet("spiffe://td/b", "two"), None);
    assert_eq!(
        in_fleet("spiffe://td/b", "one").unwrap(),
        r#"rule "identities[1]", fleets: fleet "one" is not allowed"#
    );
}

#[test]
fn fleet_and_zone_may_come_from_the_certificate() {
    let rules = rules(
        "[{uri: 'spiffe://td/fleet/{fleet}/zone/{zone}', fleets: ['{fleet}'], zones: ['{zone}'],
           node_ids: ['{fleet}-{zone}-*']}]",
    );
    let own = uri("spiffe://td/fleet/gateway/zone/zone-a");
    let named = |id: &str, fleet: &str, zone: &str| {
        let node = node(id, fleet, ("r1", zone));
        refusal(&rules, &own, &node).is_none()
    };
    assert!(named("gateway-zone-a-1", "gateway", "zone-a"));
    assert!(!named("gateway-zone-a-1", "gateway", "zone-b"));
    assert!(!named("gateway-zone-a-1", "checkout", "zone-a"));
    assert!(!named("gateway-zone-b-1", "gateway", "zone-a"));
}

#[test]
fn dns_names_match_without_regard_to_case() {
    let rules = rules("[{dns: '*.Gateway.example', fleets: [gateway]}]");
    let named = |name: &str| {
        let identity = ClientIdentity {
            uris: vec!["spiffe://td/x".to_owned()],
            dns_names: vec!["other.example".to_owned(), name.to_owned()],
        };
        refusal(&rules, &identity, &gateway())
    };
    assert_eq!(named("a.gateway.EXAMPLE"), None);
    assert_eq!(
        named("a.b.gateway.example").unwrap(),
        r#"no rule for "spiffe://td/x", "other.example", "a.b.gateway.example""#
    );
}

#[test]
fn zones_without_placeholders_are_known() {
    let rules = rules(
        "[{uri: 'spiffe://td/a', zones: [zone-a, r1/zone-b, '*', 'r2/*']},
          {uri: 'spiffe://td/b'},
          {uri: 'spiffe://td/zone/{zone}', zones: ['{zone}', 'r1/{zone}', zone-c]}]",
    );
    let zones: Vec<String> = rules.zones().map(|zone| zone.to_string()).collect();
    let expected = [("", "zone-a"), ("r1", "zone-b"), ("", "zone-c")]
        .map(|(region, zone)| Locality::new(region, zone, "").to_string());
    assert_eq!(zones, expected);
    assert_eq!(Rules::default().zones().count(), 0);
}

fn resources(names: &[&str]) -> Arc<TypeResources> {
    let resource = |name: &&str| Resource::new(*name, Bytes::from((*name).to_owned()));
    Arc::new(TypeResources::new(names.iter().map(resource)))
}

fn names(view: &View, type_url: &str) -> Vec<String> {
    let resources = view.get(type_url).unwrap();
    resources.iter().map(|one| one.name.to_string()).collect()
}

#[test]
fn services_that_a_client_may_not_read_are_left_out() {
    let rules = rules("[{uri: 'spiffe://td/{s}', services: ['{s}']}]");
    let own = uri("spiffe://td/orders");
    let permission = rules
        .check(Some(&own), &gateway(), Purpose::Discovery)
        .unwrap();
    let custom = "type.googleapis.com/example.Custom";
    let view = View::new(1)
        .with(CLUSTER, resources(&["orders", "search"]))
        .with(
            CLUSTER_LOAD_ASSIGNMENT,
            resources(&["gateway", "local_cluster", "orders", "search"]),
        )
        .with(LISTENER, resources(&["ingress", "orders", "search"]))
        .with(
            ROUTE_CONFIGURATION,
            resources(&["ingress", "orders", "search"]),
        )
        .with(custom, resources(&["search"]));
    let view = Arc::new(view);
    let readable = permission.readable(Arc::clone(&view), &rules);
    assert_eq!(names(&readable, CLUSTER), ["orders"]);
    assert_eq!(
        names(&readable, CLUSTER_LOAD_ASSIGNMENT),
        ["gateway", "local_cluster", "orders"]
    );
    for type_url in [LISTENER, ROUTE_CONFIGURATION] {
        assert_eq!(names(&readable, type_url), ["ingress", "orders"]);
    }
    assert!(Arc::ptr_eq(
        readable.get(custom).unwrap(),
        view.get(custom).unwrap()
    ));
    let all = Permission::default().readable(Arc::clone(&view), &rules);
    assert!(Arc::ptr_eq(&all, &view));
    let hidden = View::new(1).with(CLUSTER, resources(&["search"]));
    let readable = permission.readable(Arc::new(hidden), &rules);
    assert_eq!(names(&readable, CLUSTER), [""; 0]);
}

/// The rules forget a service that is removed before the view does.
#[test]
fn a_service_that_goes_is_hidden_as_long_as_it_is_in_the_view() {
    let mut rules = rules("[{uri: 'spiffe://td/{s}', services: ['{s}']}]");
    let own = uri("spiffe://td/orders");
    let permission = rules
        .check(Some(&own), &gateway(), Purpose::Discovery)
        .unwrap();
    rules.services.remove("search");
    let view = View::new(1)
        .with(CLUSTER, resources(&["orders", "search"]))
        .with(CLUSTER_LOAD_ASSIGNMENT, resources(&["orders", "search"]))
        .with(LISTENER, resources(&["ingress", "search"]))
        .with(ROUTE_CONFIGURATION, resources(&["search"]));
    let readable = permission.readable(Arc::new(view), &rules);
    for type_url in [CLUSTER, CLUSTER_LOAD_ASSIGNMENT] {
        assert_eq!(names(&readable, type_url), ["orders"]);
    }
    assert_eq!(names(&readable, LISTENER), ["ingress"]);
    assert_eq!(names(&readable, ROUTE_CONFIGURATION), [""; 0]);
}

/// Names of the clusters and assignments that a client of the service `orders` may read.
fn readable_names(rules: &Rules, fleet: &str) -> [Vec<String>; 2] {
    let own = uri("spiffe://td/orders");
    let node = node("n", fleet, ("", "z"));
    let checked = rules.check(Some(&own), &node, Purpose::Discovery);
    let all = [fleet, "local_cluster", "orders", "search"];
    let view = View::new(1)
        .with(CLUSTER, resources(&all))
        .with(CLUSTER_LOAD_ASSIGNMENT, resources(&all));
    let readable = checked.unwrap().readable(Arc::new(view), rules);
    [CLUSTER, CLUSTER_LOAD_ASSIGNMENT].map(|type_url| names(&readable, type_url))
}

#[test]
fn a_fleet_with_the_name_of_a_service_is_no_way_to_read_the_service() {
    let rules = rules("[{uri: 'spiffe://td/{s}', services: ['{s}']}]");
    for (fleet, expected) in [
        ("gateway", &["gateway", "local_cluster", "orders"][..]),
        ("search", &["local_cluster", "orders"]),
        ("orders", &["local_cluster", "orders"]),
    ] {
        let expected = [expected; 2];
        assert_eq!(readable_names(&rules, fleet), expected, "{fleet}");
    }
    let mut discovered = rules.clone();
    discovered.services.insert("gateway".into());
    discovered.services.insert("local_cluster".into());
    assert_eq!(readable_names(&discovered, "gateway"), [["orders"]; 2]);
    // Any name may be a cluster of the relayed server; those of the file are not the client's.
    let relaying = Rules {
        relays: true,
        services: BTreeSet::new(),
        ..rules
    };
    let expected = [["local_cluster", "orders"]; 2];
    assert_eq!(readable_names(&relaying, "search"), expected);
}

#[test]
fn load_reporting_does_not_name_a_service_for_the_fleet_of_its_name() {
    let rules = rules("[{uri: 'spiffe://td/{s}', services: ['{s}']}]");
    let node = node("n", "search", ("", "z"));
    let own = uri("spiffe://td/orders");
    let checked = rules.check(Some(&own), &node, Purpose::LoadReporting);
    let permission = checked.unwrap();
    assert!(permission.reads("orders"));
    assert!(!permission.reads("search"));
    assert!(!permission.reads("local_cluster"), "no service");
}

#[test]
fn load_reporting_names_readable_services_only() {
    let rules = rules("[{uri: 'spiffe://td/{s}', services: ['{s}']}]");
    let own = uri("spiffe://td/orders");
    let permission = rules
        .check(Some(&own), &gateway(), Purpose::LoadReporting)
        .unwrap();
    let traffic = |name: &str| ClusterTraffic {
        cluster_name: name.into(),
        fractions: Vec::new(),
        observation_time: None,
    };
    let all = LrsInstructions {
        settings: Arc::new(LrsSettings {
            interval: std::time::Duration::from_secs(1),
            send_all_clusters: true,
            clusters: vec!["orders".into(), "search".into()],
            report_endpoint_granularity: false,
        }),
        traffic: Arc::new(LrsTraffic {
            epoch: 7,
            clusters: vec![traffic("orders"), traffic("search")],
        }),
    };
    let readable = permission.readable_instructions(all.clone());
    assert_eq!(readable.settings.clusters, ["orders".into()]);
    assert_eq!(readable.traffic.clusters, [traffic("orders")]);
    assert_eq!(readable.traffic.epoch, 7);
    let hidden = LrsInstructions {
        settings: Arc::new(LrsSettings {
            clusters: vec!["search".into()],
            ..LrsSettings::clone(&all.settings)
        }),
        traffic: Arc::new(LrsTraffic {
            epoch: 7,
            clusters: vec![traffic("search")],
        }),
    };
    let readable = permission.readable_instructions(hidden);
    assert_eq!(readable.settings.clusters, []);
    assert_eq!(readable.traffic.clusters, []);
    let unchanged = Permission::default().readable_instructions(all.clone());
    assert!(Arc::ptr_eq(&unchanged.settings, &all.settings));
    assert!(Arc::ptr_eq(&unchanged.traffic, &all.traffic));
}
