//! `plimsoll explain`, the control plane, the dashboard and a proxy's `/explain` give the same
//! explanation for the same state.
//!
//! Three real proxies are configured by a real control plane; synthetic proxies report demand. What
//! the control plane delivers is converted to a scenario for the command line.

use std::io::Write as _;
use std::net::SocketAddr;
use std::process::{Command, Stdio};

use plimsoll_testing::plimsoll;
use serde_json::{Value, json};

use crate::support::control::Control;
use crate::support::data_plane::DataPlane;
use crate::support::http::request;
use crate::support::proxy::{Proxy, start};
use crate::support::wait_for;

const ZONES: [&str; 3] = ["zone-a", "zone-b", "zone-c"];
/// Number of hosts per zone of every service.
const HOSTS: [u64; 3] = [3, 5, 2];
/// Service, its setting in the control plane, and the equivalent basis of a scenario's cluster.
const SERVICES: [(&str, &str, &str); 4] = [
    ("orders", "delivery: EDS_FIELD", "LRS_REPORTED_RATE"),
    ("carts", "delivery: LOCALITY_METADATA", "LRS_REPORTED_RATE"),
    ("search", "mode: SHADOW", "HEALTHY_HOSTS_NUM"),
    ("reviews", "delivery: LOCALITY_WEIGHTS", "locality weights"),
];

/// Control plane with its real proxies.
struct Testbed {
    control: Control,
    proxies: Vec<DataPlane>,
}

impl Testbed {
    /// Starts everything; `demand` is by zone, in thousandths.
    fn start(name: &str, demand: [u64; 3]) -> Self {
        let control = Control::start_with(name, &config());
        for (id, (zone, rate)) in ["load-a", "load-b", "load-c"]
            .iter()
            .zip(ZONES.into_iter().zip(demand))
        {
            let proxy = Proxy {
                id,
                zone,
                sent: vec![(zone, rate)],
                plimsoll: true,
            };
            start(proxy, control.xds);
        }
        let proxies = ZONES.map(|zone| DataPlane::start(zone, control.xds));
        let testbed = Self {
            control,
            proxies: proxies.into(),
        };
        for proxy in &testbed.proxies {
            wait_for("a proxy knows the fleet and its demand", || {
                let page = proxy.page("/explain?cluster=orders");
                let rows = page["localities"].as_array()?.iter();
                let delivered = rows.clone().all(|row| {
                    let place = ZONES.iter().position(|zone| row["zone"] == *zone);
                    place.is_some_and(|place| {
                        row["observed_traffic_fraction_bp"] == 10 * demand[place]
                    })
                });
                let fleet: u64 = rows.filter_map(|row| row["fleet_hosts"].as_u64()).sum();
                (delivered && fleet == 6).then_some(())
            });
        }
        testbed
    }

    /// Returns the scenario of a service as seen from `zone`, with the delivered fractions.
    fn scenario(&self, service: (&str, &str, &str), zone: &str) -> Value {
        let (cluster, mode, basis) = service;
        let fleets = self.control.page("fleets");
        let fleet = &fleets["fleets"][0];
        let field = if mode.contains("METADATA") {
            "metadata_traffic_fraction"
        } else {
            "observed_traffic_fraction"
        };
        let delivered = fleet["delivered"].as_array().unwrap().iter().map(
            |zone| json!({ "locality": zone["locality"], "hosts": 2, field: zone["fraction_bp"] }),
        );
        let weights = self.weights(cluster, zone);
        let upstream = ZONES
            .iter()
            .zip(HOSTS)
            .enumerate()
            .map(|(index, (zone, hosts))| {
                let mut entry =
                    json!({ "locality": { "region": "r1", "zone": zone }, "hosts": hosts });
                if basis == "locality weights" && !weights[index].is_null() {
                    entry["load_balancing_weight"] = weights[index].clone();
                }
                entry
            });
        let rules = match basis {
            "LRS_REPORTED_RATE" if mode.contains("METADATA") => json!({
                "locality_basis": basis, "min_cluster_size": 1,
                "lrs_rate_config": { "fraction_source": "LOCALITY_METADATA" },
            }),
            "LRS_REPORTED_RATE" => json!({ "locality_basis": basis, "min_cluster_size": 1 }),
            _ => json!({ "locality_basis": basis }),
        };
        let by_zone = match basis {
            "locality weights" => json!({ "locality_weighted_lb_config": {} }),
            _ => json!({ "zone_aware_lb_config": rules }),
        };
        let policy = json!({
            "@type": "type.googleapis.com/envoy.extensions.load_balancing_policies.\
                      round_robin.v3.RoundRobin",
            "locality_lb_config": by_zone,
        });
        json!({
            "own_locality": { "region": "r1", "zone": zone },
            "fleet": { "localities": delivered.collect::<Vec<_>>() },
            "upstream": { "localities": upstream.collect::<Vec<_>>() },
            "cluster": {
                "name": cluster,
                "load_balancing_policy": { "policies": [{ "typed_extension_config": {
                    "name": "envoy.load_balancing_policies.round_robin", "typed_config": policy,
                } }] },
            },
        })
    }

    /// Returns the weights delivered to proxies of `zone`, by zone of the hosts.
    fn weights(&self, cluster: &str, zone: &str) -> [Value; 3] {
        let page = self.control.page(&format!("clusters?cluster={cluster}"));
        let receivers = page["clusters"][0]["fleets"][0]["locality_weights"].clone();
        let of = |list: &Value, field: &str, name: &str| {
            let mut entries = list.as_array().into_iter().flatten();
            let found = entries.find(|entry| entry[field]["zone"] == name);
            found.cloned().unwrap_or_default()
        };
        let own = of(&receivers, "receiver", zone);
        ZONES.map(|to| of(&own["weights"], "locality", to)["weight"].clone())
    }
}

fn config() -> String {
    let mut text = "load_reporting: {interval: 1s}\n\
                    demand: {smoothing_time_constant: 0.001s}\nservices:\n"
        .to_owned();
    for (place, (cluster, mode, _)) in SERVICES.iter().enumerate() {
        let endpoints = ZONES
            .iter()
            .zip(HOSTS)
            .enumerate()
            .map(|(zone, (name, hosts))| {
                let hosts: Vec<String> = (1..=hosts)
                    .map(|host| format!("'10.{place}.{zone}.{host}:80'"))
                    .collect();
                let hosts = hosts.join(", ");
                format!("{{locality: {{region: r1, zone: {name}}}, lb_endpoints: [{hosts}]}}")
            });
        let endpoints: Vec<String> = endpoints.collect();
        let endpoints = endpoints.join(", ");
        text.push_str(&format!(
            "- {{cluster: {{name: {cluster}}}, {mode}, endpoints: [{endpoints}]}}\n"
        ));
    }
    text
}

/// Runs `plimsoll explain` on a scenario.
fn explain(scenario: &Value, args: &[&str]) -> String {
    let mut command = Command::new(plimsoll());
    command.arg("explain").args(args).arg("-");
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let text = scenario.to_string();
    let mut input = child.stdin.take().unwrap();
    input.write_all(text.as_bytes()).unwrap();
    drop(input);
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{scenario}");
    String::from_utf8(output.stdout).unwrap()
}

/// Requests the explanation of a zone from a dashboard.
fn ask_dashboard(address: SocketAddr, cluster: &str, zone: &str) -> Value {
    let fleet = "gateway";
    let question = json!({ "cluster": cluster, "fleet": fleet, "region": "r1", "zone": zone });
    request(address, "POST", "/dashboard/explain", &question.to_string())
}

/// Removes fields that do not depend on the state: generation, age and changes.
fn state_of(mut document: Value) -> Value {
    let age = &document["fractions"]["age_ms"];
    let threshold = document["fractions"]["staleness_threshold_ms"].as_u64();
    if let Some(threshold) = threshold {
        assert!(
            age.as_u64().is_some_and(|age| age < threshold),
            "{document}"
        );
    }
    document["fractions"]["age_ms"] = Value::Null;
    // Only the control plane knows the configured values.
    assert!(document["changes"].is_array(), "{document}");
    document["changes"] = Value::Null;
    document["generation"] = Value::Null;
    // Only the control plane knows the load of all zones.
    document.as_object_mut().unwrap().remove("load_line");
    document
}

/// Compares field by field, so that a failure names the path.
fn assert_same(path: &str, left: &Value, right: &Value) {
    match (left, right) {
        (Value::Object(one), Value::Object(other)) => {
            let names = |fields: &serde_json::Map<String, Value>| -> Vec<String> {
                fields.keys().cloned().collect()
            };
            assert_eq!(names(one), names(other), "{path}");
            for (name, value) in one {
                assert_same(&format!("{path}.{name}"), value, &other[name]);
            }
        }
        (Value::Array(one), Value::Array(other)) => {
            assert_eq!(one.len(), other.len(), "{path}");
            for (index, (value, other)) in one.iter().zip(other).enumerate() {
                assert_same(&format!("{path}[{index}]"), value, other);
            }
        }
        _ => assert_eq!(left, right, "{path}"),
    }
}

fn normalized(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Compares all explanations of every cluster and zone; `states` are the expected ones of `orders`.
fn assert_all_agree(testbed: &Testbed, states: [&str; 3]) {
    for service in SERVICES {
        for ((zone, proxy), state) in ZONES.into_iter().zip(&testbed.proxies).zip(states) {
            let (cluster, ..) = service;
            let scenario = testbed.scenario(service, zone);
            let expected: Value = serde_json::from_str(&explain(&scenario, &["--json"])).unwrap();
            let expected = state_of(expected);
            if cluster == "orders" {
                assert_eq!(expected["state"], state, "{zone}");
            }
            let path = format!("/explain?cluster={cluster}");
            let answers = [
                ("the proxy", proxy.page(&path)),
                (
                    "the control plane",
                    testbed
                        .control
                        .page(&format!("explain?cluster={cluster}&zone={zone}")),
                ),
                (
                    "the dashboard",
                    ask_dashboard(testbed.control.admin, cluster, zone),
                ),
                (
                    "the dashboard of the proxy",
                    ask_dashboard(proxy.admin, cluster, zone),
                ),
            ];
            for (source, answer) in answers {
                let path = format!("{cluster} in {zone}, {source}");
                assert_same(&path, &state_of(answer), &expected);
            }
            let page = normalized(&explain(&scenario, &[]));
            let reason = normalized(expected["reason"].as_str().unwrap());
            assert!(page.contains(&reason), "{page}");
        }
    }
}

/// Returns states and reasons of every zone of `orders` in a dashboard's document.
fn shown(address: SocketAddr) -> Vec<(Value, Value)> {
    let state = wait_for("every zone has its reason", || {
        let state = request(address, "GET", "/dashboard/state", "");
        let zones = orders(&state)?["zones"].as_array()?.clone();
        let complete = zones.iter().all(|zone| !zone["reason"].is_null());
        (complete && zones.len() == 3).then_some(zones)
    });
    let pairs = state.into_iter();
    pairs
        .map(|zone| (zone["state"].clone(), zone["reason"].clone()))
        .collect()
}

fn orders(state: &Value) -> Option<&Value> {
    let mut clusters = state["clusters"].as_array()?.iter();
    clusters.find(|cluster| cluster["cluster"] == "orders")
}

#[test]
fn a_zone_that_spills_has_the_same_explanation_everywhere() {
    let testbed = Testbed::start("same-spill", [500, 350, 150]);
    let states = ["LocalityResidual", "LocalityDirect", "LocalityDirect"];
    assert_all_agree(&testbed, states);
    let shown = shown(testbed.control.admin);
    for ((state, reason), proxy) in shown.into_iter().zip(&testbed.proxies) {
        let answer = proxy.page("/explain?cluster=orders");
        assert_eq!(state, answer["state"]);
        assert_eq!(reason, answer["reason"]);
    }
}

#[test]
fn a_zone_within_the_dead_band_has_the_same_explanation_everywhere() {
    let testbed = Testbed::start("same-band", [308, 495, 197]);
    assert_all_agree(&testbed, ["LocalityDirect"; 3]);
}
