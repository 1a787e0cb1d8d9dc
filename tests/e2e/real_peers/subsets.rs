//! Subset load balancing: the same bootstrap in an Envoy and in `plimsoll proxy`.
//!
//! Both must distribute each kind of request equally over the same hosts and have the same
//! counters, with `lb_subset_config` and with the policy `envoy.load_balancing_policies.subset`.

use std::net::SocketAddr;

use plimsoll_testing::http::Connection;
use serde_json::{Value, json};

use crate::support::envoy::{CURRENT, Envoy};
use crate::support::hosts::Hosts;
use crate::support::proxy::{Proxy, cluster, file, listener};
use crate::support::scratch;

/// Multiple of the size of every subset, so that round robin gives each host the same number.
const REQUESTS: u64 = 12;

/// Metadata of the hosts under `envoy.lb`, by index.
fn hosts() -> Vec<Value> {
    vec![
        json!({ "version": "1.0", "stage": "prod", "Tier": 1 }),
        json!({ "version": "1.0", "stage": "prod" }),
        json!({ "version": "1.1", "stage": "prod", "Tier": [1, 2] }),
        json!({ "version": "1.2-pre", "stage": "dev" }),
        json!({ "stage": "prod" }),
        Value::Null,
    ]
}

/// Name, `metadata_match` of the route, and number of requests per host.
type Case = (&'static str, Value, [u64; 6]);

fn cases() -> [Case; 10] {
    [
        ("no-criteria", Value::Null, [3, 3, 3, 0, 3, 0]),
        ("stable", json!({ "version": "1.0" }), [6, 6, 0, 0, 0, 0]),
        (
            "canary",
            json!({ "stage": "prod", "version": "1.1" }),
            [0, 0, 12, 0, 0, 0],
        ),
        ("no-fallback", json!({ "version": "9" }), [0; 6]),
        ("any-endpoint", json!({ "team": "x" }), [2; 6]),
        // The keys of this selector are a prefix of an earlier one's, so Envoy ignores its fallback
        // policy and uses that of the cluster.
        ("prefix", json!({ "stage": "test" }), [3, 3, 3, 0, 3, 0]),
        ("no-selector", json!({ "zzz": true }), [3, 3, 3, 0, 3, 0]),
        (
            "keys-subset",
            json!({ "stage": "prod", "version": "1.0", "region": "nowhere" }),
            [6, 6, 0, 0, 0, 0],
        ),
        // An element of a list matches; keys are case-sensitive.
        ("list-as-any", json!({ "Tier": 1 }), [6, 0, 6, 0, 0, 0]),
        ("list-only", json!({ "Tier": 2 }), [0, 0, 12, 0, 0, 0]),
    ]
}

fn metadata(envoy_lb: &Value) -> Value {
    json!({ "filter_metadata": { "envoy.lb": envoy_lb } })
}

/// Returns a route for each case, and one with weighted clusters whose criteria are merged into its
/// own.
fn routes() -> Value {
    let mut routes = Vec::new();
    for (name, criteria, _) in cases() {
        let mut action = json!({ "cluster": "orders" });
        if !criteria.is_null() {
            action["metadata_match"] = metadata(&criteria);
        }
        routes.push(json!({ "match": { "prefix": format!("/{name}") }, "route": action }));
    }
    let entry = |criteria: Value| {
        let metadata_match = metadata(&criteria);
        json!({ "name": "orders", "weight": 50, "metadata_match": metadata_match })
    };
    routes.push(json!({ "match": { "prefix": "/weighted" }, "route": {
        "metadata_match": metadata(&json!({ "stage": "prod", "version": "1.2-pre" })),
        "weighted_clusters": { "clusters": [
            entry(json!({ "version": "1.0" })),
            entry(json!({ "version": "1.1" })),
        ] },
    } }));
    Value::Array(routes)
}

fn subset_config() -> Value {
    json!({
        "fallback_policy": "DEFAULT_SUBSET",
        "default_subset": { "stage": "prod" },
        "list_as_any": true,
        "subset_selectors": [
            { "keys": ["stage", "version"] },
            { "keys": ["version"], "fallback_policy": "NO_FALLBACK" },
            { "keys": ["stage"], "fallback_policy": "ANY_ENDPOINT" },
            { "keys": ["team"], "fallback_policy": "ANY_ENDPOINT" },
            { "keys": ["Tier"] },
            {
                "keys": ["region", "stage", "version"],
                "fallback_policy": "KEYS_SUBSET",
                "fallback_keys_subset": ["stage", "version"],
            },
        ],
    })
}

/// Returns `orders` with subsets in the legacy field or in the policy.
fn orders(addresses: &[SocketAddr], typed: bool) -> Value {
    let mut orders = cluster("orders", &[("zone-a", addresses)]);
    let endpoints = &mut orders["load_assignment"]["endpoints"][0]["lb_endpoints"];
    for (index, envoy_lb) in hosts().iter().enumerate() {
        if !envoy_lb.is_null() {
            endpoints[index]["metadata"] = metadata(envoy_lb);
        }
    }
    if !typed {
        orders["lb_subset_config"] = subset_config();
        return orders;
    }
    let policies = "type.googleapis.com/envoy.extensions.load_balancing_policies";
    let policy = |name: &str, config: Value| {
        json!({ "policies": [{ "typed_extension_config": {
            "name": format!("envoy.load_balancing_policies.{name}"),
            "typed_config": config,
        } }] })
    };
    let mut subset = subset_config();
    subset["@type"] = json!(format!("{policies}.subset.v3.Subset"));
    let child = json!({ "@type": format!("{policies}.round_robin.v3.RoundRobin") });
    subset["subset_lb_policy"] = policy("round_robin", child);
    orders["load_balancing_policy"] = policy("subset", subset);
    orders
}

/// Sends `count` requests for `path`; returns the requests per host and the statuses other than
/// 200.
fn send(ingress: SocketAddr, hosts: &Hosts, path: &str, count: u64) -> ([u64; 6], Vec<u16>) {
    let taken = || std::array::from_fn(|host| hosts.request_count(host));
    let before: [u64; 6] = taken();
    let mut connection = Connection::open(ingress).unwrap();
    let mut failed = Vec::new();
    for _ in 0..count {
        let head = format!("GET /{path} HTTP/1.1\r\nhost: test\r\n\r\n");
        let (status, _) = connection.request(&head).unwrap();
        if status != 200 {
            failed.push(status);
        }
    }
    let after = taken();
    (
        std::array::from_fn(|host| after[host] - before[host]),
        failed,
    )
}

/// Asserts every case of a data plane, then its counters: selected, fallback, panic.
fn assert_served(
    name: &str,
    ingress: SocketAddr,
    hosts: &Hosts,
    stat: impl Fn(&str) -> Option<u64>,
) {
    for (path, _, expected) in cases() {
        let (taken, failed) = send(ingress, hosts, path, REQUESTS);
        assert_eq!(taken, expected, "{name}: {path}");
        let expected_failures = match path {
            "no-fallback" => vec![503; 12],
            _ => Vec::new(),
        };
        assert_eq!(failed, expected_failures, "{name}: {path}");
    }
    // The choice between entries is random, but 100 requests reach both.
    let (taken, failed) = send(ingress, hosts, "weighted", 100);
    assert_eq!(failed, [0; 0], "{name}");
    let used = taken.map(|requests| requests > 0);
    assert_eq!(used, [true, true, true, false, false, false], "{name}");
    let counted = ["selected", "fallback", "fallback_panic"]
        .map(|end| stat(&format!("cluster.orders.lb_subsets_{end}")));
    // Five of the cases match a subset, and so do the weighted clusters. A fallback of a selector
    // is not counted.
    assert_eq!(
        counted,
        [Some(5 * REQUESTS + 100), Some(3 * REQUESTS), Some(0)],
        "{name}"
    );
}

#[test]
fn envoy_and_the_proxy_send_to_the_same_subsets() {
    let hosts = Hosts::start(6);
    for typed in [false, true] {
        let form = if typed { "policy" } else { "legacy" };
        let directory = scratch(&format!("subsets-{form}"));
        let listeners = [listener("ingress", &routes())];
        let config = file("zone-a", &listeners, &[orders(&hosts.addresses(), typed)]);
        let envoy = Envoy::start_with(&directory, "zone-a", CURRENT, &config);
        let stat = |name: &str| envoy.stat(name);
        assert_served(&format!("envoy, {form}"), envoy.listener, &hosts, stat);
        let proxy = Proxy::start(&directory, form, &config);
        let stat = |name: &str| Some(proxy.stat(name));
        let ingress = proxy.listener("ingress");
        assert_served(&format!("plimsoll, {form}"), ingress, &hosts, stat);
        assert_eq!(proxy.stat("cluster.orders.lb_subsets_active"), 10, "{form}");
    }
}
