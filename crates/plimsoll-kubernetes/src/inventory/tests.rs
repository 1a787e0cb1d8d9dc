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
    inventory.handle_service(Change::Applied(service("orders", &json!({}))));
    inventory.handle_slice(Change::Applied(slice("o1", Some("orders"), &[1, 2])), NOW);
    changed(&mut inventory);
    inventory
}

#[test]
fn a_slice_may_come_before_its_service() {
    let mut inventory = Inventory::default();
    inventory.handle_slice(Change::Applied(slice("o1", Some("orders"), &[1])), NOW);
    assert_eq!(changed(&mut inventory), ["orders: gone"]);
    inventory.handle_service(Change::Applied(service("orders", &json!({}))));
    assert_eq!(changed(&mut inventory), ["orders: 1"]);
    inventory.handle_service(Change::Deleted(key("orders")));
    assert_eq!(changed(&mut inventory), ["orders: gone"]);
}

#[test]
fn a_change_affects_its_service_only() {
    let mut inventory = with_orders();
    inventory.handle_service(Change::Applied(service("users", &json!({}))));
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
    inventory.handle_service(Change::Applied(service("users", &json!({}))));
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
        let settings = discovered.ports[0].settings.as_ref().unwrap();
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
    inventory.handle_service(Change::Applied(ignored));
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
            inventory.handle_service(Change::Applied(service(name, &json!({}))));
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
            fresh.handle_service(Change::Applied(service(name, &json!({}))));
        }
        for slice in listed.into_values() {
            fresh.handle_slice(Change::Applied(slice), NOW);
        }
        for name in names {
            prop_assert_eq!(inventory.discovered(&key(name)), fresh.discovered(&key(name)));
        }
    }
}
