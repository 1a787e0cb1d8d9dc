//! Services of a Kubernetes cluster with real Envoys: endpoints and settings come from the API
//! server alone, and none of its faults loses a request.

use std::path::Path;

use serde_json::{Value, json};

use crate::support::control::Control;
use crate::support::etcd::EtcdCluster;
use crate::support::fleet::{Testbed, TestbedSpec, start_backends};
use crate::support::kubernetes::{Kubernetes, Recorded, SERVICE, slice_name};
use crate::support::{scratch, wait_to_see, wait_until};

const SETTINGS: &str = "load_reporting: {interval: 1s}
demand: {smoothing_time_constant: 5s, material_change_bp: 10}
";
/// As in the other tests with small fleets: zone-aware routing for ten hosts.
const CLUSTER: &str = "cluster: {load_balancing_policy: {policies: [{typed_extension_config: {
  name: envoy.load_balancing_policies.round_robin, typed_config: {
  '@type': type.googleapis.com/envoy.extensions.load_balancing_policies.round_robin.v3.RoundRobin,
  locality_lb_config: {zone_aware_lb_config: {min_cluster_size: 1}}}}}]}}";

fn hosts(testbed: &Testbed) -> u64 {
    let envoys = testbed.envoys.iter();
    let hosts = envoys.map(|envoy| envoy.weights(SERVICE).values().sum());
    hosts.max().unwrap_or_default()
}

fn wait_for_hosts(testbed: &Testbed, expected: u64) {
    let counts = || -> Vec<u64> {
        let envoys = testbed.envoys.iter();
        envoys
            .map(|envoy| envoy.weights(SERVICE).values().sum())
            .collect()
    };
    let what = format!("every Envoy has {expected} hosts");
    wait_to_see(&what, counts, |seen| {
        seen.iter().all(|count| *count == expected)
    });
}

#[test]
fn endpoints_and_settings_of_kubernetes_reach_envoys_and_no_fault_loses_requests() {
    let directory = scratch("kubernetes");
    let backends = start_backends();
    let mut kubernetes = Kubernetes::start(&directory, &json!({"plimsoll.dev/mode": "Enforce"}));
    kubernetes.put_backends(&backends, 0);
    let config = format!("{SETTINGS}{}", kubernetes.config(CLUSTER));
    let spec = TestbedSpec {
        name: "kubernetes",
        ..TestbedSpec::default()
    };
    let testbed = Testbed::start_with(&spec, &directory, backends, &config);
    testbed.wait_for_fleet_weights(150);
    testbed.assert_fair();

    // A policy shows what steers, writes the zone weights for a mesh, and has health checks.
    let health_check = json!({"timeout": "1s", "interval": "0.2s", "healthy_threshold": 1,
        "unhealthy_threshold": 2, "tcp_health_check": {}});
    kubernetes.put(
        "zoneroutingpolicies",
        json!({"metadata": {"namespace": "shop", "name": "orders", "generation": 1},
            "spec": {"targetRefs": [{"group": "", "kind": "Service", "name": "orders"}],
                     "mode": "Enforce", "istio": {"distribute": "Write", "fleets": ["*"]},
                     "cluster": {"health_checks": [health_check],
                                 // Envoy would keep hosts that still answer their checks.
                                 "ignore_health_on_host_removal": true}}}),
    );
    wait_until("every Envoy checks the hosts", || {
        let checks = format!("cluster.{SERVICE}.health_check.success");
        let mut envoys = testbed.envoys.iter();
        envoys.all(|envoy| envoy.stat(&checks) >= Some(10))
    });
    let status = |kubernetes: &Kubernetes| {
        kubernetes.object("zoneroutingpolicies", "orders")["status"].clone()
    };
    wait_until("the policy says that demand steers", || {
        let conditions = status(&kubernetes)["conditions"].clone();
        let reasons = ["Accepted", "DemandSteers", "Written"];
        (0..3).all(|index| conditions[index]["reason"] == reasons[index])
    });
    let zones = || status(&kubernetes)["zones"].clone();
    wait_to_see("the status has three zones", zones, |zones| {
        zones.as_array().is_some_and(|zones| zones.len() == 3)
    });
    let rule = kubernetes.object("destinationrules", "orders");
    let distribute = "/spec/trafficPolicy/loadBalancer/localityLbSetting/distribute";
    let zones = rule.pointer(distribute).and_then(|found| found.as_array());
    for zone in zones.unwrap() {
        let to = zone["to"].as_object().unwrap().values();
        let sum: u64 = to.filter_map(Value::as_u64).sum();
        assert_eq!(sum, 100, "{rule}");
    }

    // All slices are deleted and recreated under other names, and history is compacted between.
    kubernetes.delete_backends(&testbed.backends, 0);
    kubernetes.compact();
    kubernetes.put_backends(&testbed.backends, 1);
    wait_until("all objects are listed again", || {
        let lists = testbed
            .control
            .metric("kubernetes_lists_total{kind=\"EndpointSlice\"}");
        lists >= 2
    });
    wait_for_hosts(&testbed, 10);

    // The API server goes away; afterwards one host is gone and the token is another.
    kubernetes.stop();
    wait_until("the outage is noticed", || {
        let connected = "kubernetes_connected{kind=\"EndpointSlice\"}";
        testbed.control.metric(connected) == 0
    });
    assert_eq!(hosts(&testbed), 10, "the last state stays");
    kubernetes.delete("endpointslices", &slice_name("zone-b", 4, 1));
    kubernetes.rotate_token("second");
    kubernetes.restart();
    wait_for_hosts(&testbed, 9);

    // A setting that cannot be used is refused, and the Service keeps its own.
    kubernetes.annotate(&json!({"plimsoll.dev/mode": "Enforce", "plimsoll.dev/ramp": "200"}));
    wait_until("the refusal is in the audit", || {
        let audit = testbed.control.page("audit").to_string();
        audit.contains("Service shop/orders") && audit.contains("plimsoll.dev/ramp")
    });
    wait_until("an event tells the owner", || {
        let posted = kubernetes.requests().into_iter();
        let mut events = posted.filter(|request| request.path.ends_with("/events"));
        events.any(|event| event.body["reason"] == "InvalidSetting")
    });
    let mode = |testbed: &Testbed| {
        let clusters = testbed.control.page("clusters");
        clusters["clusters"][0]["mode"].clone()
    };
    assert_eq!(mode(&testbed), "ENFORCE");
    kubernetes.delete("zoneroutingpolicies", "orders");
    kubernetes.annotate(&json!({"plimsoll.dev/mode": "Shadow"}));
    wait_until("the annotation is in force", || mode(&testbed) == "SHADOW");

    assert_eq!(testbed.load.failed(), 0);
}

#[test]
fn a_control_plane_without_api_server_is_not_ready_and_refuses_proxies() {
    let directory = scratch("kubernetes-start");
    let backends = start_backends();
    let mut kubernetes = Kubernetes::start(&directory, &json!({}));
    kubernetes.put_backends(&backends, 0);
    kubernetes.stop();
    let config = format!("{SETTINGS}{}", kubernetes.config(""));
    let control = Control::start(&directory, &config);
    let ready = || plimsoll_testing::http::get(control.admin, "/readyz").unwrap_or_default();
    wait_until("the reason is shown", || {
        let notices = control.page("status");
        !notices.is_null() && !ready().starts_with("ready")
    });
    kubernetes.restart();
    wait_until("it is ready", || ready().contains("kubernetes: connected"));
    let mode = || control.page("clusters")["clusters"][0]["mode"].clone();
    wait_to_see("the service is known", mode, |mode| mode == "SHADOW");
}

/// Starts a replica whose requests have its name as token.
fn start_replica(
    directory: &Path,
    kubernetes: &Kubernetes,
    etcd: &EtcdCluster,
    name: &str,
    mode: &str,
) -> Control {
    let own = directory.join(name);
    std::fs::create_dir(&own).unwrap();
    let token = own.join("token");
    std::fs::write(&token, name).unwrap();
    let store = json!({"etcd": {"endpoints": etcd.endpoints(), "lease_ttl": "5s"}});
    let section = kubernetes.replica_config(&token, &format!("mode: {mode}"));
    let config = format!("{section}store: {store}\n");
    Control::start_replica(&own, &config, name)
}

/// Tokens of the requests that match, in their order.
fn tokens(kubernetes: &Kubernetes, matches: impl Fn(&Recorded) -> bool) -> Vec<String> {
    let requests = kubernetes.requests().into_iter();
    let matching = requests.filter(matches);
    matching.filter_map(|request| request.token).collect()
}

#[test]
fn one_of_several_replicas_writes_the_status() {
    let directory = scratch("kubernetes-replicas");
    let kubernetes = Kubernetes::start(&directory, &json!({}));
    let etcd = EtcdCluster::start(&directory);
    // They disagree about the status, as replicas do for a while after a change.
    let mut first = start_replica(&directory, &kubernetes, &etcd, "r0", "SHADOW");
    let second = start_replica(&directory, &kubernetes, &etcd, "r1", "ENFORCE");
    let wait_for_both = |first: &Control| {
        wait_until("the replicas know each other", || {
            let mut both = [first, &second].into_iter();
            both.all(|one| {
                let known = one.page("replicas")["replicas"].as_array().map(Vec::len);
                known == Some(2)
            })
        });
    };
    wait_for_both(&first);
    kubernetes.put(
        "zoneroutingpolicies",
        json!({"metadata": {"namespace": "shop", "name": "orders", "generation": 1},
            "spec": {"targetRefs": [{"group": "", "kind": "Service", "name": "orders"}]}}),
    );
    let wait_for_reason = |reason: &str| {
        wait_until(&format!("the status says {reason}"), || {
            let policy = kubernetes.object("zoneroutingpolicies", "orders");
            policy["status"]["conditions"][1]["reason"] == reason
        });
    };
    let writers = || tokens(&kubernetes, |request| request.path.ends_with("/status"));
    wait_for_reason("ModeShadow");
    // Three more watches of each kind take longer than two of its reports.
    let wait_for_watches = |replica: &str| {
        let watches = || {
            let all = tokens(&kubernetes, Recorded::is_watch);
            all.iter().filter(|token| *token == replica).count()
        };
        let from = watches();
        wait_until("the other replica had the time to write", || {
            watches() >= from + 9
        });
    };
    wait_for_watches("r1");
    assert_eq!(
        writers(),
        ["r0"],
        "the one that started first writes, and once"
    );
    first.kill();
    wait_for_reason("NoEndpoints");
    assert_eq!(writers(), ["r0", "r1"], "the other one takes over");
    first.restart();
    wait_for_both(&first);
    wait_for_watches("r0");
    assert_eq!(
        writers(),
        ["r0", "r1"],
        "it goes on beside one that returns"
    );
}
