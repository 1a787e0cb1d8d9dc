//! Zone weights in Istio's DestinationRule, with the field ownership of a real API server.

use plimsoll_testing::repository;
use serde_json::{Value, json};

use super::quick_start::{commands, control_file, start_gateway, start_load, write_slices};
use crate::support::api_server::ApiServer;
use crate::support::control::Control;
use crate::support::fleet::{ZONES, start_backends_on};
use crate::support::{scratch, wait_for};

const RULES: &str = "/apis/networking.istio.io/v1/namespaces/shop/destinationrules";
const POLICIES: &str = "/apis/plimsoll.dev/v1alpha1/namespaces/shop/zoneroutingpolicies";
/// Stands for the definition that Istio installs.
const DEFINITION: &str = "
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: destinationrules.networking.istio.io}
spec:
  group: networking.istio.io
  scope: Namespaced
  names: {kind: DestinationRule, plural: destinationrules, singular: destinationrule}
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
";

fn rule(distribute: &Value) -> Value {
    json!({
        "apiVersion": "networking.istio.io/v1", "kind": "DestinationRule",
        "metadata": {"name": "orders-rule", "namespace": "shop"},
        "spec": {"host": "orders.shop.svc.cluster.local", "trafficPolicy": {"loadBalancer": {
            "simple": "LEAST_REQUEST", "localityLbSetting": {"distribute": distribute}}}},
    })
}

/// Waits for a reason of the condition `IstioDistribute`; returns its message.
fn wait_for_reason(api: &ApiServer, reason: &str) -> String {
    wait_for(reason, || {
        let policy = api.request("GET", &format!("{POLICIES}/orders"), None).body;
        let conditions = policy["status"]["conditions"].as_array()?;
        let own = conditions
            .iter()
            .find(|one| one["type"] == "IstioDistribute")?;
        let message = own["message"].as_str()?.to_owned();
        (own["reason"] == reason).then_some(message)
    })
}

#[test]
#[ignore = "needs an API server: make test-kubernetes"]
fn weights_are_written_unless_somebody_else_owns_them() {
    let directory = scratch("destination-rules");
    let mut api = ApiServer::start(&directory, &[]);
    let [install, example, _] = commands().try_into().unwrap();
    api.run(&install);
    api.create_namespace("shop");
    api.run(&example);
    api.install(DEFINITION);
    api.grant_istio();
    api.rotate_token(false);
    let backends = start_backends_on(ApiServer::endpoint_address());
    write_slices(&api, &backends);
    let control = Control::start(&directory, &control_file(&api, "r1"));
    let gateways = ZONES.map(|(zone, ..)| start_gateway(&directory, "r1", zone, &control));
    let load = start_load(&gateways);
    let foreign = json!([{"from": "r1/*", "to": {"r1/zone-a/*": 100}}]);
    api.apply(RULES, &rule(&foreign));
    let target = json!([{"group": "", "kind": "Service", "name": "orders"}]);
    let policy = |mode: &str, distribute: &str| {
        json!({
            "apiVersion": "plimsoll.dev/v1alpha1", "kind": "ZoneRoutingPolicy",
            "metadata": {"name": "orders", "namespace": "shop"},
            "spec": {"targetRefs": target, "mode": mode,
                     "istio": {"distribute": distribute, "fleets": ["*"]}},
        })
    };
    for (mode, distribute, reason) in [
        ("Enforce", "DryRun", "DryRun"),
        ("Shadow", "Write", "ModeShadow"),
    ] {
        api.apply(POLICIES, &policy(mode, distribute));
        let message = wait_for_reason(&api, reason);
        assert!(message.starts_with("would write "), "{message}");
    }
    api.apply(POLICIES, &policy("Enforce", "Write"));
    let message = wait_for_reason(&api, "Conflict");
    assert!(
        message.contains("curl"),
        "the message names the other manager: {message}"
    );
    let written = || {
        api.request("GET", &format!("{RULES}/orders-rule"), None)
            .body
    };
    let distribute = "/spec/trafficPolicy/loadBalancer/localityLbSetting/distribute";
    assert_eq!(
        written().pointer(distribute),
        Some(&foreign),
        "nothing is overwritten"
    );
    // The other manager gives the field up.
    let given_up =
        json!({"spec": {"trafficPolicy": {"loadBalancer": {"localityLbSetting": null}}}});
    let patched = api.request("PATCH", &format!("{RULES}/orders-rule"), Some(&given_up));
    assert_eq!(patched.status, 200, "{patched:?}");
    wait_for_reason(&api, "Written");
    let rule = written();
    assert_eq!(
        rule["spec"]["trafficPolicy"]["loadBalancer"]["simple"],
        "LEAST_REQUEST"
    );
    let entries = rule
        .pointer(distribute)
        .unwrap()
        .as_array()
        .unwrap()
        .clone();
    assert_eq!(entries.len(), ZONES.len(), "{rule}");
    for entry in &entries {
        let shares = entry["to"].as_object().unwrap().values();
        let sum: u64 = shares.map(|share| share.as_u64().unwrap()).sum();
        assert_eq!(sum, 100, "{entry}");
    }
    assert_eq!(load.failed(), 0);
}

impl ApiServer {
    /// Grants the rights of `components/istio` to the control plane, if rights are checked.
    fn grant_istio(&self) {
        if Self::is_kube() {
            let file = "deploy/kubernetes/components/istio/rbac.yaml";
            let text = std::fs::read_to_string(repository().join(file)).unwrap();
            let installed = text.replace("namespace: default", "namespace: plimsoll-system");
            let (role, binding) = installed.split_once("\n---\n").unwrap();
            let path = "/apis/rbac.authorization.k8s.io/v1";
            self.create_yaml(&format!("{path}/clusterroles"), role);
            self.create_yaml(&format!("{path}/clusterrolebindings"), binding);
        }
    }
}
