//! Instances as the agent writes them.

use serde_json::{Value, json};

use super::*;

fn entry(service: Value, checks: &[(&str, &str)]) -> EntryJson {
    let checks: Vec<_> = checks
        .iter()
        .map(|(id, status)| json!({"CheckID": id, "Status": status}))
        .collect();
    let mut entry = json!({
        "Node": {"Node": "n1", "Address": "10.0.0.9", "Datacenter": "dc1",
                 "Meta": {"zone": "of-node", "empty": ""}},
        "Service": {"ID": "o1", "Service": "orders", "Tags": ["v1", "zone=of-tag"],
                    "Address": "10.0.0.1", "Port": 80, "Meta": null,
                    "Weights": {"Passing": 10, "Warning": 2}},
        "Checks": checks,
    });
    let fields = entry["Service"].as_object_mut().unwrap();
    fields.extend(service.as_object().unwrap().clone());
    serde_json::from_value(entry).unwrap()
}

fn options() -> MergeOptions {
    MergeOptions {
        zone_meta: "zone".to_owned(),
        ..MergeOptions::default()
    }
}

/// Merges one instance, which is an endpoint.
fn one(entry: EntryJson, options: &MergeOptions) -> (SocketAddr, Endpoint) {
    let (mut endpoints, invalid) = merge(&[entry], None, options);
    assert_eq!(invalid, None);
    endpoints.pop_first().unwrap()
}

#[test]
fn an_instance_has_its_own_address_or_that_of_its_node() {
    let (address, endpoint) = one(entry(json!({}), &[]), &options());
    assert_eq!(address, "10.0.0.1:80".parse().unwrap());
    assert_eq!((&*endpoint.region, endpoint.weight), ("dc1", 10));
    let (address, _) = one(entry(json!({"Address": ""}), &[]), &options());
    assert_eq!(address, "10.0.0.9:80".parse().unwrap());
    let (address, _) = one(entry(json!({"Address": "fd00::1"}), &[]), &options());
    assert_eq!(address, "[fd00::1]:80".parse().unwrap());
    let entries = [entry(json!({}), &[])];
    let (endpoints, _) = merge(&entries, Some("eu"), &options());
    assert_eq!(&*endpoints.into_values().next().unwrap().region, "eu");
}

#[test]
fn host_names_and_missing_ports_are_reported() {
    for (service, part) in [
        (
            json!({"Address": "db.example"}),
            "\"db.example\" is not an IP",
        ),
        (json!({"Port": 0}), "instance o1 of node n1: has no port"),
        (json!({"Port": 70_000}), "has no port"),
    ] {
        let (endpoints, invalid) = merge(&[entry(service, &[])], None, &options());
        assert!(endpoints.is_empty());
        assert!(invalid.unwrap().contains(part), "{part}");
    }
}

#[test]
fn checks_decide_about_health_and_weight() {
    use EndpointState::{Draining, Ready, Unhealthy};
    let passing = ("serfHealth", "passing");
    for (checks, expected) in [
        (vec![], (Ready, 10)),
        (vec![passing], (Ready, 10)),
        (vec![passing, ("service:o1", "warning")], (Ready, 2)),
        (vec![passing, ("service:o1", "critical")], (Unhealthy, 10)),
        (vec![("serfHealth", "critical")], (Unhealthy, 10)),
        (vec![("_node_maintenance", "critical")], (Draining, 10)),
        (
            vec![("_service_maintenance:o1", "critical"), passing],
            (Draining, 10),
        ),
    ] {
        let (_, endpoint) = one(entry(json!({}), &checks), &options());
        assert_eq!((endpoint.state, endpoint.weight), expected, "{checks:?}");
    }
    let idle = json!({"Weights": {"Passing": 1, "Warning": 0}});
    let (_, endpoint) = one(entry(idle, &[("c", "warning")]), &options());
    assert_eq!((endpoint.state, endpoint.weight), (Unhealthy, 1));
    let (_, endpoint) = one(entry(json!({"Weights": null}), &[]), &options());
    assert_eq!(endpoint.weight, 1);
}

#[test]
fn the_zone_is_that_of_the_instance_the_node_a_tag_or_the_file() {
    let zone = |service: Value, options: &MergeOptions| {
        let (_, endpoint) = one(entry(service, &[]), options);
        endpoint.zone.map(|zone| zone.to_string())
    };
    let own = json!({"Meta": {"zone": "own"}});
    assert_eq!(zone(own, &options()).as_deref(), Some("own"));
    assert_eq!(zone(json!({}), &options()).as_deref(), Some("of-node"));
    let empty = json!({"Meta": {"zone": ""}});
    assert_eq!(zone(empty, &options()).as_deref(), Some("of-node"));
    let by_tag = MergeOptions {
        zone_meta: "empty".to_owned(),
        zone_tag: Some("zone=".to_owned()),
        ..MergeOptions::default()
    };
    assert_eq!(zone(json!({}), &by_tag).as_deref(), Some("of-tag"));
    let fallback = MergeOptions {
        zone_meta: "other".to_owned(),
        fallback_zone: Some("f".into()),
        ..by_tag
    };
    let untagged = json!({"Tags": null});
    assert_eq!(zone(untagged.clone(), &fallback).as_deref(), Some("f"));
    let none = MergeOptions::default();
    assert_eq!(zone(untagged, &none), None);
}

#[test]
fn instances_without_the_tags_and_parts_of_the_mesh_are_left_out() {
    let tagged = MergeOptions {
        tags: vec!["v1".to_owned()],
        ..options()
    };
    let other = json!({"Tags": ["v2"], "Address": "10.0.0.2"});
    let proxy = json!({"Kind": "connect-proxy", "Address": "10.0.0.3"});
    let entries = [json!({}), other, proxy].map(|service| entry(service, &[]));
    let (endpoints, invalid) = merge(&entries, None, &tagged);
    let addresses: Vec<_> = endpoints.keys().map(ToString::to_string).collect();
    assert_eq!((addresses, invalid), (vec!["10.0.0.1:80".to_owned()], None));
}

#[test]
fn of_two_instances_with_one_address_the_better_one_is_used() {
    let critical = entry(json!({"ID": "o2"}), &[("c", "critical")]);
    let good = entry(json!({}), &[]);
    for entries in [[critical.clone(), good.clone()], [good, critical]] {
        let (endpoints, _) = merge(&entries, None, &options());
        let endpoint = endpoints.into_values().next().unwrap();
        assert_eq!(endpoint.state, EndpointState::Ready);
    }
}
