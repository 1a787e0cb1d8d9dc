//! Slices that the EndpointSlice controller of Kubernetes writes, from Pods and Nodes. There is no
//! kubelet: the test reports the status of Pods. Skipped without a kube-controller-manager.

use serde_json::{Value, json};

use super::discovery::{HOSTS, Testbed, ZONES, listed};
use crate::support::api_server::ApiServer;
use crate::support::hosts::Hosts;
use crate::support::wait_until;

const PODS: &str = "/api/v1/namespaces/default/pods";

fn node(zone: &str) -> Value {
    let labels = json!({"topology.kubernetes.io/zone": zone});
    json!({"apiVersion": "v1", "kind": "Node",
           "metadata": {"name": format!("node-{zone}"), "labels": labels}})
}

/// The controller looks the port up by its name in each Pod.
fn service() -> Value {
    json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {"name": "orders", "namespace": "default"},
        "spec": {"selector": {"app": "orders"},
                 "ports": [{"name": "http", "port": 80, "targetPort": "http", "protocol": "TCP"}]},
    })
}

fn pod(hosts: &Hosts, host: usize) -> Value {
    let ports = json!([{"name": "http", "containerPort": hosts.addresses()[host].port()}]);
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": format!("orders-{host}"), "namespace": "default",
                     "labels": {"app": "orders"}},
        "spec": {"nodeName": format!("node-{}", ZONES[host % 3]),
                 "containers": [{"name": "orders", "image": "orders", "ports": ports}]},
    })
}

/// Reports the status of a Pod, as its kubelet would.
fn report(api: &ApiServer, host: usize, is_ready: bool) {
    let ip = ApiServer::endpoint_address().to_string();
    let status = if is_ready { "True" } else { "False" };
    let body = json!({"status": {
        "phase": "Running", "podIP": ip, "podIPs": [{"ip": ip}],
        "conditions": [{"type": "Ready", "status": status}],
    }});
    let path = format!("{PODS}/orders-{host}/status");
    let answer = api.request("PATCH", &path, Some(&body));
    assert_eq!(answer.status, 200, "{answer:?}");
}

fn write_pods(api: &ApiServer, hosts: &Hosts) {
    for zone in ZONES {
        api.apply("/api/v1/nodes", &node(zone));
    }
    api.apply("/api/v1/namespaces/default/services", &service());
    for host in 0..HOSTS {
        api.apply(PODS, &pod(hosts, host));
        report(api, host, true);
    }
    wait_until("the controller has written all endpoints", || {
        listed(api).len() == HOSTS
    });
}

#[test]
#[ignore = "needs an API server: make test-kubernetes"]
fn slices_of_the_controller_are_followed() {
    if !ApiServer::has_slice_controller() {
        eprintln!("skipped: no kube-controller-manager of Kubernetes 1.21 or later");
        return;
    }
    let mut controller = None;
    let testbed = Testbed::start_with("controller", &[], |api, hosts| {
        controller = Some(api.start_slice_controller());
        write_pods(api, hosts);
    });
    let wait_for = |count: usize| {
        wait_until("the Envoy has as many endpoints as Pods are ready", || {
            testbed.routed().len() == count
        });
    };
    let zones = testbed.routed().into_iter().map(|(_, zone)| zone);
    assert!(zones.into_iter().all(|zone| ZONES.contains(&&*zone)));
    report(&testbed.api, 0, false);
    wait_for(HOSTS - 1);
    report(&testbed.api, 0, true);
    wait_for(HOSTS);
    testbed
        .api
        .delete(&format!("{PODS}/orders-1?gracePeriodSeconds=0"));
    wait_for(HOSTS - 1);
    testbed.assert_calm("changes of Pods");
    drop(controller);
}
