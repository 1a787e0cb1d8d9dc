//! The three commands for a laptop of docs/kubernetes.md, from an empty namespace to level zones.
//!
//! The API server is real and there is no kubelet: the processes that the manifests describe are
//! started here, with their configuration files, and EndpointSlices are written as the controller
//! does. Addresses are replaced, because everything runs on loopback.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use plimsoll_testing::http::get;
use plimsoll_testing::{kubectl, repository};
use plimsoll_xds::yaml::Document;
use serde_json::{Value, json};

use crate::support::api_server::ApiServer;
use crate::support::backends::Backends;
use crate::support::control::Control;
use crate::support::fleet::{
    ZONES, assert_fair, is_close, load_factors, measure, start_backends_on,
};
use crate::support::load::{Load, Source};
use crate::support::proxy::Proxy;
use crate::support::{scratch, wait_until};

const CLUSTER: &str = "orders.shop:80";
const TICK: Duration = Duration::from_millis(25);

/// Returns the commands of the page.
pub(super) fn commands() -> Vec<String> {
    let page = std::fs::read_to_string(repository().join("docs/kubernetes.md")).unwrap();
    let (_, section) = page.split_once("\n## On a laptop\n").unwrap();
    let (section, _) = section.split_once("\n## ").unwrap();
    let lines = section.lines().filter(|line| line.starts_with("kubectl "));
    let commands: Vec<String> = lines.map(str::to_owned).collect();
    assert_eq!(commands.len(), 3, "{commands:?}");
    commands
}

#[test]
#[ignore = "needs an API server: make test-kubernetes"]
fn three_commands_level_the_zones() {
    let directory = scratch("quick-start");
    let mut api = ApiServer::start(&directory, &[]);
    let [install, example, enforce] = commands().try_into().unwrap();
    api.run(&install);
    api.create_namespace("shop");
    api.run(&example);
    api.rotate_token(false);
    let backends = start_backends_on(ApiServer::endpoint_address());
    write_slices(&api, &backends);
    let control = Control::start(&directory, &control_file(&api, ""));
    let gateways = ZONES.map(|(zone, ..)| start_gateway(&directory, "", zone, &control));
    let load = start_load(&gateways);
    // Only measured: half of the traffic arrives in a zone with 30 % of the servers.
    wait_until("the load of zones is known", || {
        let page = control.page("load");
        let mut lines = page["load_lines"].as_array().into_iter().flatten();
        // Other Services, such as that of the API server, have lines, too.
        lines.any(|line| {
            line["cluster"] == CLUSTER
                && line["mode"] == "SHADOW"
                && line["now"]["highest_load"].as_f64() > Some(1.3)
        })
    });
    let before = load_factors(&backends, &measure(&backends, &load, 2000));
    assert!(before["zone-a"] > 1.3, "{before:?}");
    api.run(&enforce);
    wait_until("measured demand is delivered", || {
        is_close(&control.service_fractions(CLUSTER), 60)
    });
    assert_fair(&backends, &load, || {
        is_close(&control.service_fractions(CLUSTER), 30)
    });
    assert_eq!(load.failed(), 0);
}

/// Waits until the gateways serve, and starts the traffic of their zones.
pub(super) fn start_load(gateways: &[Proxy]) -> Load {
    wait_until("every gateway serves", || {
        let mut all = gateways.iter();
        all.all(|gateway| get(gateway.listener("http"), "/").is_some())
    });
    let sources = ZONES
        .iter()
        .zip(gateways)
        .map(|((zone, per_tick, ..), gateway)| Source {
            to: gateway.listener("http"),
            from: (*zone).to_owned(),
            per_tick: *per_tick,
        });
    Load::start(&sources.collect::<Vec<_>>(), TICK)
}

/// Writes one slice per server, because their ports differ.
pub(super) fn write_slices(api: &ApiServer, backends: &Backends) {
    let path = "/apis/discovery.k8s.io/v1/namespaces/shop/endpointslices";
    for (zone, addresses) in backends.addresses() {
        for (index, address) in addresses.iter().enumerate() {
            let slice = json!({
                "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
                "metadata": {"name": format!("orders-{zone}-{index}"), "namespace": "shop",
                             "labels": {"kubernetes.io/service-name": "orders"}},
                "addressType": "IPv4",
                "ports": [{"name": "http", "port": address.port(), "protocol": "TCP"}],
                "endpoints": [{"addresses": [address.ip().to_string()], "zone": zone,
                               "conditions": {"ready": true}}],
            });
            api.apply(path, &slice);
        }
    }
}

/// Returns a file of an overlay.
fn file(path: &str) -> Value {
    let text = std::fs::read_to_string(repository().join("deploy/kubernetes").join(path)).unwrap();
    Document::parse(&text).unwrap().json()
}

/// The file of the control plane: it is outside of the cluster here, and reports come sooner.
pub(super) fn control_file(api: &ApiServer, region: &str) -> String {
    let mut file = file("base/control.yaml");
    file["kubernetes"]["region"] = json!(region);
    file["read_only"] = json!("127.0.0.1:0");
    file["load_reporting"] = json!({"interval": "1s"});
    file["demand"] = json!({"smoothing_time_constant": "5s", "material_change_bp": 10});
    file["kubernetes"]["api_server"] = json!(format!("https://{}", api.address));
    file["kubernetes"]["ca_file"] = json!(api.ca_file());
    file["kubernetes"]["token_file"] = json!(api.token_file());
    file.to_string()
}

/// Starts the proxy of a pod of the gateway in a zone.
pub(super) fn start_gateway(
    directory: &Path,
    region: &str,
    zone: &str,
    control: &Control,
) -> Proxy {
    let mut file = file("overlays/gateway/proxy.yaml");
    if !region.is_empty() {
        file["node"]["locality"] = json!({"region": region});
    }
    let any = json!({"address": "127.0.0.1", "port_value": 0});
    file["admin"]["address"]["socket_address"] = any.clone();
    file["static_resources"]["listeners"][0]["address"]["socket_address"] = any;
    let management = &mut file["static_resources"]["clusters"][0];
    assert_eq!(management["name"], "plimsoll_control");
    management["type"] = json!("STATIC");
    let endpoint = &mut management["load_assignment"]["endpoints"][0]["lb_endpoints"][0];
    endpoint["endpoint"]["address"]["socket_address"] =
        json!({"address": "127.0.0.1", "port_value": control.xds.port()});
    let pod = format!("gateway-{zone}");
    let variables = [
        ("POD_NAME", pod.as_str()),
        ("POD_NAMESPACE", "shop"),
        ("PLIMSOLL_ZONE", zone),
    ];
    Proxy::start_in(directory, &pod, &file.to_string(), &variables)
}

impl ApiServer {
    /// Runs a command of the page. The API machinery alone does not have all kinds: of what `apply`
    /// would create, it gets those that the control plane reads.
    pub(super) fn run(&self, command: &str) {
        let words: Vec<&str> = command.split_whitespace().skip(1).collect();
        if words[0] != "apply" {
            let output = self.kubectl(&words);
            let errors = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{command}: {errors}");
            return;
        }
        let [.., "-k", overlay] = words[..] else {
            panic!("{command}: applies no overlay");
        };
        if Self::is_kube() {
            return self.apply_overlay(overlay, &words[1..words.len() - 2]);
        }
        let built = Command::new(kubectl())
            .args(["kustomize", overlay])
            .current_dir(repository())
            .output()
            .unwrap();
        assert!(built.status.success(), "{command}");
        let text = String::from_utf8(built.stdout).unwrap();
        let mut used = 0;
        for object in text.split("\n---\n") {
            if object.contains("\nkind: CustomResourceDefinition\n") {
                self.install(object);
                used += 1;
            } else if object.contains("\nkind: Service\n") {
                let given = words.iter().position(|word| *word == "--namespace");
                let namespace = given.map_or("plimsoll-system", |at| words[at + 1]);
                self.create_yaml(&format!("/api/v1/namespaces/{namespace}/services"), object);
                used += 1;
            }
        }
        assert!(used >= 2, "{command}");
    }
}
