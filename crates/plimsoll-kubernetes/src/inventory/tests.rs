//! Objects in any order, and slices that come and go.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::objects::Resource;

const NOW: Instant = Instant::from_secs(50);

fn read<T: Resource>(json: Value) -> Arc<T> {
    Arc::new(T::from_json(serde_json::from_value(json).unwrap()))
}

fn service(name: &str, annotations: &Value) -> Arc<Service> {
    read(
        json!({"metadata": {"namespace": "n", "name": name, "annotations": annotations},
                "spec": {"ports": [{"name": "http", "port": 80}]}}),
    )
}

fn slice(name: &str, service: Option<&str>, hosts: &[u8]) -> Arc<EndpointSlice> {
    let endpoints: Vec<Value> = hosts
        .iter()
        .map(|host| json!({"addresses": [format!("10.0.0.{host}")]}))
        .collect();
    let labels = service.map_or(
        json!({}),
        |name| json!({"kubernetes.io/service-name": name}),
    );
    read(
        json!({"metadata": {"namespace": "n", "name": name, "labels": labels},
                "addressType": "IPv4", "ports": [{"name": "http", "port": 80}],
                "endpoints": endpoints}),
    )
}

fn policy(service: &str, mode: &str) -> Arc<ZoneRoutingPolicy> {
    read(json!({"metadata": {"namespace": "n", "name": "p"},
                "spec": {"targetRefs": [{"kind": "Service", "name": service}], "mode": mode}}))
}

fn key(name: &str) -> ObjectKey {
    ObjectKey::new("n", name)
}

/// Names of changed Services with their hosts; `gone` for those that are not there.
fn changed(inventory: &mut Inventory) -> Vec<String> {
    let mut found = Vec::new();
    while let Some((key, discovered)) = inventory.poll_changed() {
        let hosts = discovered.map_or("gone".to_owned(), |discovered| {
            let endpoints = discovered
                .ports
                .iter()
                .flat_map(|port| &port.endpoints.endpoints);
            let hosts = endpoints.map(|one| match one.address.ip() {
                std::net::IpAddr::V4(ip) => ip.octets()[3].to_string(),
                std::net::IpAddr::V6(ip) => ip.to_string(),
            });
            hosts.collect::<Vec<_>>().join(" ")
        });
        found.push(format!("{}: {hosts}", key.name));
    }
    found
}

fn with_orders() -> Inventory {
    let mut inventory = Inventory::default();
    inventory.handle_service(Change::Applied(service("orders", &json!({}))), NOW);
    inventory.handle_slice(Change::Applied(slice("o1", Some("orders"), &[1, 2])), NOW);
    changed(&mut inventory);
    inventory
}

#[test]
fn a_slice_may_come_before_its_service() {
    let mut inventory = Inventory::default();
    inventory.handle_slice(Change::Applied(slice("o1", Some("orders"), &[1])), NOW);
    assert_eq!(changed(&mut inventory), ["orders: gone"]);
    inventory.handle_service(Change::Applied(service("orders", &json!({}))), NOW);
    assert_eq!(changed(&mut inventory), ["orders: 1"]);
    inventory.handle_service(Change::Deleted(key("orders")), NOW);
    assert_eq!(changed(&mut inventory), ["orders: gone"]);
}

#[test]
fn a_change_affects_its_service_only() {
    let mut inventory = with_orders();
    inventory.handle_service(Change::Applied(service("users", &json!({}))), NOW);
    assert_eq!(changed(&mut inventory), ["users: "]);
    inventory.handle_slice(Change::Applied(slice("o2", Some("orders"), &[3])), NOW);
    assert_eq!(changed(&mut inventory), ["orders: 1 2 3"]);
    inventory.handle_slice(Change::Deleted(key("o1")), NOW);
    assert_eq!(changed(&mut inventory), ["orders: 3"], "one slice is left");
    assert_eq!(inventory.poll_timeout(), None);
}

#[test]
fn endpoints_stay_while_all_slices_are_recreated() {
    let mut inventory = with_orders();
    inventory.handle_slice(Change::Applied(slice("o2", Some("orders"), &[3])), NOW);
    inventory.handle_slice(Change::Deleted(key("o1")), NOW);
    inventory.handle_slice(Change::Deleted(key("o2")), NOW);
    assert_eq!(changed(&mut inventory), ["orders: 3"]);
    assert_eq!(inventory.poll_timeout(), Some(Instant::from_secs(60)));
    inventory.handle_slice(Change::Applied(slice("o3", Some("orders"), &[4])), NOW);
    assert_eq!(changed(&mut inventory), ["orders: 4"]);
    assert_eq!(inventory.poll_timeout(), None);
    inventory.handle_slice(Change::Deleted(key("o3")), NOW);
    changed(&mut inventory);
    inventory.handle_timeout(Instant::from_secs(59));
    assert_eq!(changed(&mut inventory), [""; 0]);
    inventory.handle_timeout(Instant::from_secs(60));
    assert_eq!(changed(&mut inventory), ["orders: "], "not recreated");
    assert_eq!(inventory.poll_timeout(), None);
}

#[test]
fn a_service_that_is_scaled_to_zero_is_empty_at_once() {
    let mut inventory = with_orders();
    inventory.handle_slice(Change::Applied(slice("o1", Some("orders"), &[])), NOW);
    assert_eq!(changed(&mut inventory), ["orders: "]);
}

#[test]
fn a_slice_can_move_to_another_service() {
    let mut inventory = with_orders();
    inventory.handle_service(Change::Applied(service("users", &json!({}))), NOW);
    inventory.handle_slice(Change::Applied(slice("o2", Some("orders"), &[3])), NOW);
    changed(&mut inventory);
    inventory.handle_slice(Change::Applied(slice("o2", Some("users"), &[3])), NOW);
    assert_eq!(changed(&mut inventory), ["orders: 1 2", "users: 3"]);
    inventory.handle_slice(Change::Applied(slice("o2", None, &[3])), NOW);
    assert_eq!(
        changed(&mut inventory),
        ["users: 3"],
        "its last slice: kept for a while"
    );
}

#[test]
fn settings_follow_policies_and_annotations() {
    let mut inventory = with_orders();
    let mode = |inventory: &mut Inventory| -> Option<String> {
        let (_, discovered) = inventory.poll_changed().unwrap();
        let discovered = discovered?;
        let settings = &discovered.ports[0].settings;
        let mode = settings.values.get("mode");
        Some(
            mode.map_or("", |mode| mode.value.as_str().unwrap())
                .to_owned(),
        )
    };
    inventory.handle_policy(Change::Applied(policy("orders", "Enforce")));
    assert_eq!(mode(&mut inventory).as_deref(), Some("ENFORCE"));
    inventory.handle_policy(Change::Applied(policy("users", "Enforce")));
    assert_eq!(
        mode(&mut inventory).as_deref(),
        Some(""),
        "no longer a target"
    );
    assert_eq!(mode(&mut inventory), None, "users does not exist");
    inventory.handle_policy(Change::Deleted(key("p")));
    assert_eq!(mode(&mut inventory), None);
    let ignored = service("orders", &json!({"plimsoll.dev/ignore": "true"}));
    inventory.handle_service(Change::Applied(ignored), NOW);
    assert_eq!(mode(&mut inventory), None);
}

proptest! {
    /// Whatever the order of changes: once the grace is over, the result is that of a fresh list.
    #[test]
    fn the_state_equals_a_fresh_list(
        steps in prop::collection::vec((any::<bool>(), 0_u8..5, 0_u8..3, 0_u8..4), 0..40)
    ) {
        let mut inventory = Inventory::default();
        let names = ["orders", "users"];
        for name in names {
            inventory.handle_service(Change::Applied(service(name, &json!({}))), NOW);
        }
        let mut listed: BTreeMap<String, Arc<EndpointSlice>> = BTreeMap::new();
        for (is_delete, slice_number, owner, host) in steps {
            let name = format!("s{slice_number}");
            if is_delete {
                listed.remove(&name);
                inventory.handle_slice(Change::Deleted(key(&name)), NOW);
            } else {
                let owner = names.get(usize::from(owner)).copied();
                let one = slice(&name, owner, &[host, host + 1]);
                listed.insert(name, Arc::clone(&one));
                inventory.handle_slice(Change::Applied(one), NOW);
            }
        }
        inventory.handle_timeout(NOW.saturating_add(RECREATION_GRACE));
        let mut fresh = Inventory::default();
        for name in names {
            fresh.handle_service(Change::Applied(service(name, &json!({}))), NOW);
        }
        for slice in listed.into_values() {
            fresh.handle_slice(Change::Applied(slice), NOW);
        }
        for name in names {
            prop_assert_eq!(inventory.discovered(&key(name)), fresh.discovered(&key(name)));
        }
    }
}

fn ports(names: &[(&str, u16)]) -> Arc<Service> {
    let ports = names
        .iter()
        .map(|(name, port)| json!({"name": name, "port": port}));
    let ports: Vec<Value> = ports.collect();
    read(json!({"metadata": {"namespace": "n", "name": "orders"}, "spec": {"ports": ports}}))
}

#[test]
fn a_renamed_port_keeps_its_endpoints_until_the_slices_have_the_name() {
    let mut inventory = with_orders();
    inventory.handle_service(Change::Applied(ports(&[("web", 80)])), NOW);
    assert_eq!(changed(&mut inventory), ["orders: 1 2"]);
    inventory.handle_service(Change::Applied(ports(&[("h2", 80)])), NOW);
    assert_eq!(changed(&mut inventory), ["orders: 1 2"], "renamed twice");
    assert_eq!(inventory.poll_timeout(), Some(Instant::from_secs(60)));
    let rewritten: Arc<EndpointSlice> = read(json!({
        "metadata": {"namespace": "n", "name": "o1",
                     "labels": {"kubernetes.io/service-name": "orders"}},
        "addressType": "IPv4", "ports": [{"name": "h2", "port": 80}],
        "endpoints": [{"addresses": ["10.0.0.7"]}]}));
    let slices = [slice("o1", Some("orders"), &[1, 2]), rewritten];
    for (one, hosts) in slices.into_iter().zip(["orders: 1 2", "orders: 7"]) {
        inventory.handle_slice(Change::Applied(one), NOW);
        assert_eq!(changed(&mut inventory), [hosts]);
    }
    inventory.handle_timeout(Instant::from_secs(60));
    assert_eq!(changed(&mut inventory), ["orders: 7"]);
    assert_eq!(inventory.poll_timeout(), None);
    // Slices that nobody rewrites end with the grace.
    inventory.handle_service(Change::Applied(ports(&[("web", 80)])), NOW);
    assert_eq!(changed(&mut inventory), ["orders: 7"]);
    inventory.handle_timeout(Instant::from_secs(60));
    assert_eq!(changed(&mut inventory), ["orders: "]);
}

/// The limit that a Service exceeds, of those that changed.
fn over_limit(inventory: &mut Inventory) -> BTreeMap<String, Option<&'static str>> {
    let mut found = BTreeMap::new();
    while let Some((key, discovered)) = inventory.poll_changed() {
        let over = discovered
            .and_then(|one| one.over_limit)
            .map(|one| one.limit);
        found.insert(key.name.to_string(), over);
    }
    found
}

#[test]
fn a_service_of_many_ports_is_refused_before_they_are_multiplied() {
    let mut inventory = with_orders();
    let names: Vec<String> = (0..500).map(|port| format!("p{port}")).collect();
    let many: Vec<(&str, u16)> = names.iter().map(|name| (name.as_str(), 80)).collect();
    inventory.handle_service(Change::Applied(ports(&many)), NOW);
    let (_, discovered) = inventory.poll_changed().unwrap();
    let discovered = discovered.unwrap();
    assert_eq!(discovered.ports, []);
    assert_eq!(discovered.over_limit.unwrap().limit, "ports_per_service");
    inventory.handle_service(Change::Applied(service("orders", &json!({}))), NOW);
    assert_eq!(changed(&mut inventory), ["orders: 1 2"]);
}

#[test]
fn services_beyond_the_limit_of_their_namespace_wait_for_room_and_the_oldest_are_first() {
    let limits = NamespaceLimits {
        endpoints_per_namespace: 3,
        ..NamespaceLimits::default()
    };
    let mut inventory = Inventory::new(InventoryOptions {
        limits,
        ..InventoryOptions::default()
    });
    let created = |name: &str, time: &str| -> Arc<Service> {
        read(
            json!({"metadata": {"namespace": "n", "name": name, "creationTimestamp": time},
                    "spec": {"ports": [{"name": "http", "port": 80}]}}),
        )
    };
    inventory.handle_service(Change::Applied(created("a", "2026-02-01T00:00:00Z")), NOW);
    inventory.handle_service(Change::Applied(created("b", "2026-01-01T00:00:00Z")), NOW);
    inventory.handle_slice(Change::Applied(slice("a1", Some("a"), &[1, 2])), NOW);
    inventory.handle_slice(Change::Applied(slice("b1", Some("b"), &[3, 4])), NOW);
    let over = over_limit(&mut inventory);
    let limit = Some("endpoints_per_namespace");
    assert_eq!((over["a"], over["b"]), (limit, None));
    // One that shrinks makes room for one that waits.
    inventory.handle_slice(Change::Applied(slice("b1", Some("b"), &[3])), NOW);
    let over = over_limit(&mut inventory);
    assert_eq!((over["a"], over["b"]), (None, None));
    inventory.handle_slice(Change::Applied(slice("b1", Some("b"), &[3, 4])), NOW);
    assert_eq!(over_limit(&mut inventory)["b"], limit);
    inventory.handle_service(Change::Deleted(key("a")), NOW);
    let over = over_limit(&mut inventory);
    assert_eq!((over["a"], over["b"]), (None, None));
}
