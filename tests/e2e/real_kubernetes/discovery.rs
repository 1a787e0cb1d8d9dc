//! The control plane follows a real API server, and requests through a real Envoy never fail:
//! whatever happens to the API server, its history, tokens and slices.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use plimsoll_testing::http::{get, get_json};
use serde_json::{Value, json};

use crate::support::api_server::ApiServer;
use crate::support::control::{Control, bootstrap};
use crate::support::envoy::{CURRENT, Envoy, ingress};
use crate::support::hosts::Hosts;
use crate::support::load::{Load, Source};
use crate::support::{scratch, wait_until};

const SERVICES: &str = "/api/v1/namespaces/default/services";
const SLICES: &str = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices";
pub(super) const ZONES: [&str; 3] = ["zone-a", "zone-b", "zone-c"];
pub(super) const HOSTS: usize = 6;
const TICK: Duration = Duration::from_millis(20);
/// Cluster of the port `http` of the Service `orders`.
const CLUSTER: &str = "orders.default:80";

/// Processes of a test. Dropped in this order: traffic, proxy, control plane, API server, hosts.
pub(super) struct Testbed {
    load: Load,
    envoy: Envoy,
    control: Control,
    pub(super) api: ApiServer,
    hosts: Hosts,
}

impl Testbed {
    fn start(name: &str, arguments: &[&str]) -> Self {
        Self::start_with(name, arguments, |api, hosts| {
            api.apply(SERVICES, &service());
            for host in 0..HOSTS {
                api.apply(SLICES, &slice(&format!("orders-{host}"), hosts, host));
            }
        })
    }

    /// Starts with what `write` writes about the hosts.
    pub(super) fn start_with(
        name: &str,
        arguments: &[&str],
        write: impl FnOnce(&ApiServer, &Hosts),
    ) -> Self {
        let directory = scratch(name);
        let mut api = ApiServer::start(&directory, arguments);
        api.install_control_plane();
        api.rotate_token(false);
        let hosts = Hosts::start_on(ApiServer::endpoint_address(), HOSTS);
        write(&api, &hosts);
        let control = Control::start(&directory, &config(&api));
        let envoy = start_envoy(&directory, &control);
        wait_until("the Envoy serves", || get(envoy.listener, "/").is_some());
        let source = Source {
            to: envoy.listener,
            from: "client".to_owned(),
            per_tick: 5,
        };
        let testbed = Self {
            load: Load::start(&[source], TICK),
            envoy,
            control,
            api,
            hosts,
        };
        testbed.wait_for_fresh_list();
        testbed
    }

    /// Waits until the Envoy has exactly the endpoints that the API server lists now.
    pub(super) fn wait_for_fresh_list(&self) {
        wait_until("the Envoy has what the API server lists", || {
            listed(&self.api) == self.routed()
        });
    }

    /// Endpoints of the Envoy.
    pub(super) fn routed(&self) -> BTreeSet<(SocketAddr, String)> {
        let page = get_json(self.envoy.admin, "/clusters?format=json").unwrap_or_default();
        let clusters = page["cluster_statuses"].as_array().cloned();
        let own = clusters
            .unwrap_or_default()
            .into_iter()
            .find(|one| one["name"] == CLUSTER);
        let hosts = own.and_then(|own| own["host_statuses"].as_array().cloned());
        let endpoint = |host: &Value| {
            let address = &host["address"]["socket_address"];
            let ip = address["address"].as_str()?;
            let address = format!("{ip}:{}", address["port_value"]).parse().ok()?;
            Some((address, host["locality"]["zone"].as_str()?.to_owned()))
        };
        hosts
            .unwrap_or_default()
            .iter()
            .filter_map(endpoint)
            .collect()
    }

    fn wait_for_requests(&self, requests: u64) {
        let from = self.load.succeeded() + self.load.failed();
        wait_until("requests are answered", || {
            self.load.succeeded() + self.load.failed() >= from + requests
        });
    }

    /// Asserts that nothing failed so far, and that the Envoy has the state of a fresh list.
    pub(super) fn assert_calm(&self, after: &str) {
        self.wait_for_fresh_list();
        self.wait_for_requests(200);
        assert_eq!(self.load.failed(), 0, "after {after}");
    }
}

/// Ready endpoints in all slices of the Service, by a list of this moment.
pub(super) fn listed(api: &ApiServer) -> BTreeSet<(SocketAddr, String)> {
    let own = format!("{SLICES}?labelSelector=kubernetes.io/service-name=orders");
    let list = api.request("GET", &own, None).body;
    let slices = list["items"].as_array().cloned().unwrap_or_default();
    let endpoints = slices.iter().flat_map(|slice| {
        let port = slice["ports"][0]["port"].clone();
        let all = slice["endpoints"].as_array().cloned().unwrap_or_default();
        let is_ready = |one: &Value| one["conditions"]["ready"] != false;
        all.into_iter().filter(is_ready).map(move |one| {
            let address = format!("{}:{port}", one["addresses"][0].as_str().unwrap());
            let zone = one["zone"].as_str().unwrap_or_default().to_owned();
            (address.parse().unwrap(), zone)
        })
    });
    endpoints.collect()
}

fn service() -> Value {
    json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {"name": "orders", "namespace": "default"},
        "spec": {"ports": [{"name": "http", "port": 80, "protocol": "TCP"}]},
    })
}

/// Each host has a slice of its own, because the ports of tests differ.
fn slice(name: &str, hosts: &Hosts, host: usize) -> Value {
    let address = hosts.addresses()[host];
    json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
        "metadata": {"name": name, "namespace": "default",
                     "labels": {"kubernetes.io/service-name": "orders"}},
        "addressType": "IPv4",
        "ports": [{"name": "http", "port": address.port(), "protocol": "TCP"}],
        "endpoints": [{"addresses": [address.ip().to_string()], "zone": ZONES[host % 3],
                       "conditions": {"ready": true}}],
    })
}

fn config(api: &ApiServer) -> String {
    json!({
        "load_reporting": {"interval": "1s"},
        "kubernetes": {
            "api_server": format!("https://{}", api.address),
            "ca_file": api.ca_file(),
            "token_file": api.token_file(),
            "namespaces": ["default"],
        },
    })
    .to_string()
}

fn start_envoy(directory: &Path, control: &Control) -> Envoy {
    let address = control.xds.to_string();
    let args = [
        "envoy",
        "--zone",
        "zone-a",
        "--control",
        &address,
        "--admin-port",
        "0",
        "--delta",
    ];
    let mut bootstrap = bootstrap(&args);
    let mut listener = ingress();
    let route =
        "/filter_chains/0/filters/0/typed_config/route_config/virtual_hosts/0/routes/0/route";
    listener.pointer_mut(route).unwrap()["cluster"] = json!(CLUSTER);
    bootstrap["static_resources"]["listeners"] = json!([listener]);
    Envoy::start_with(directory, "zone-a", CURRENT, &bootstrap)
}

#[test]
#[ignore = "needs an API server: make test-kubernetes"]
fn no_request_fails_while_the_api_server_is_away() {
    let mut testbed = Testbed::start("discovery-outage", &[]);
    testbed.api.kill();
    testbed.wait_for_requests(1000);
    assert_eq!(testbed.load.failed(), 0, "the last state stays");
    assert_eq!(testbed.routed().len(), HOSTS);
    testbed.api.restart();
    testbed.api.delete(&format!("{SLICES}/orders-0"));
    testbed.assert_calm("a restart of the API server");
    assert_eq!(testbed.routed().len(), HOSTS - 1);
    // Watches resume from a version that etcd has forgotten.
    testbed.api.kill();
    testbed.api.compact();
    testbed.api.restart();
    testbed
        .api
        .apply(SLICES, &slice("orders-0", &testbed.hosts, 0));
    testbed.assert_calm("a compaction");
    assert!(testbed.control.is_alive());
}

#[test]
#[ignore = "needs an API server: make test-kubernetes"]
fn changes_that_a_compaction_hides_are_found_by_a_list() {
    let mut testbed = Testbed::start("discovery-compaction", &[]);
    // While no watch is open, slices come and go, and their history is removed.
    testbed.control.kill();
    testbed.api.delete(&format!("{SLICES}/orders-1"));
    for round in 0..5 {
        testbed
            .api
            .apply(SLICES, &slice("orders-0", &testbed.hosts, round % 2));
    }
    testbed.api.compact();
    testbed.api.restart();
    testbed.control.restart();
    testbed.assert_calm("a compaction while nothing watched");
}

#[test]
#[ignore = "needs an API server: make test-kubernetes"]
fn tokens_are_rotated_without_a_gap() {
    let mut testbed = Testbed::start("discovery-tokens", &[]);
    let first = testbed.api.rotate_token(false);
    testbed.api.rotate_token(true);
    testbed.api.wait_until_refused(&first);
    // New connections need the new token.
    testbed.api.restart();
    testbed.api.delete(&format!("{SLICES}/orders-2"));
    testbed.assert_calm("a rotation of the token");
    assert_eq!(testbed.routed().len(), HOSTS - 1);
}

#[test]
#[ignore = "needs an API server: make test-kubernetes"]
fn slices_are_deleted_and_recreated_under_load() {
    let testbed = Testbed::start("discovery-slices", &[]);
    for round in 0..5 {
        for host in 0..HOSTS {
            let old = if round == 0 {
                format!("orders-{host}")
            } else {
                format!("orders-{host}-{}", round - 1)
            };
            testbed.api.delete(&format!("{SLICES}/{old}"));
            let new = format!("orders-{host}-{round}");
            testbed
                .api
                .apply(SLICES, &slice(&new, &testbed.hosts, host));
        }
    }
    testbed.assert_calm("rolling slices");
    // All at once: the endpoints stay until the controller has written new slices.
    let all = "?labelSelector=kubernetes.io/service-name=orders";
    let answer = testbed
        .api
        .request("DELETE", &format!("{SLICES}{all}"), None);
    assert_eq!(answer.status, 200, "{answer:?}");
    testbed.wait_for_requests(100);
    for host in 0..HOSTS {
        testbed.api.apply(
            SLICES,
            &slice(&format!("again-{host}"), &testbed.hosts, host),
        );
    }
    testbed.assert_calm("all slices at once");
    assert_eq!(testbed.routed().len(), HOSTS);
}

#[test]
#[ignore = "needs an API server: make test-kubernetes"]
fn an_overloaded_api_server_is_asked_again() {
    let limit = [
        "--max-requests-inflight=1",
        "--enable-priority-and-fairness=false",
    ];
    let mut testbed = Testbed::start("discovery-limit", &limit);
    let flood = Flood::start(&testbed.api);
    wait_until("the API server refuses requests", || {
        let token = std::fs::read_to_string(testbed.api.token_file()).unwrap();
        testbed.api.request_as(&token, "GET", SLICES, None).status == 429
    });
    testbed.control.kill();
    testbed.control.restart();
    testbed.wait_for_requests(500);
    drop(flood);
    testbed.api.delete(&format!("{SLICES}/orders-3"));
    testbed.assert_calm("429");
}

/// Lists in many processes at once, until dropped, with the rights of the control plane: requests
/// of an administrator are not limited.
struct Flood {
    children: Vec<std::process::Child>,
}

impl Flood {
    fn start(api: &ApiServer) -> Self {
        let url = format!("https://{}{SLICES}?resourceVersion=", api.address);
        let script = format!(
            "while :; do curl --silent --cacert {} -H 'Authorization: Bearer {}' \
             '{url}' '{url}' '{url}' '{url}' >/dev/null; done",
            api.ca_file(),
            std::fs::read_to_string(api.token_file()).unwrap(),
        );
        let start = |_| {
            let mut command = std::process::Command::new("sh");
            command.args(["-c", &script]).spawn().unwrap()
        };
        Self {
            children: (0..12).map(start).collect(),
        }
    }
}

impl Drop for Flood {
    fn drop(&mut self) {
        for child in &mut self.children {
            // The curl that runs ends by itself.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
