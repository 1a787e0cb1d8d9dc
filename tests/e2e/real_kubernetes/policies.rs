//! The API server validates policies: what cannot work is refused when it is written, with the
//! field.

use serde_json::{Value, json};

use crate::support::api_server::{Answer, ApiServer};
use crate::support::scratch;

const PATH: &str = "/apis/plimsoll.dev/v1alpha1/namespaces/shop/zoneroutingpolicies";

fn policy(name: &str, spec: &Value) -> Value {
    json!({
        "apiVersion": "plimsoll.dev/v1alpha1",
        "kind": "ZoneRoutingPolicy",
        "metadata": {"name": name, "namespace": "shop"},
        "spec": spec,
    })
}

fn target() -> Value {
    json!([{"group": "", "kind": "Service", "name": "orders"}])
}

/// Whether the API server names this field as a cause. Before 1.25 it names fields of lists without
/// their index.
fn names(answer: &Answer, field: &str) -> bool {
    let field = if ApiServer::has_validation_rules() {
        field.to_owned()
    } else {
        field.replace("[0]", "")
    };
    let mut causes = answer.body["details"]["causes"]
        .as_array()
        .into_iter()
        .flatten();
    causes.any(|cause| cause["field"].as_str().is_some_and(|one| one == field))
}

fn started(name: &str) -> ApiServer {
    let api = ApiServer::start(&scratch(name), &[]);
    api.install_definition();
    api.create_namespace("shop");
    api
}

#[test]
#[ignore = "needs an API server: make test-kubernetes"]
fn policies_are_validated() {
    let api = started("policies");
    let accepted = [
        json!({"targetRefs": target()}),
        json!({"targetRefs": target(), "mode": "Shadow", "ramp": 20, "delivery": "Auto",
               "istio": {"distribute": "DryRun"},
               "cluster": {"lb_policy": "LEAST_REQUEST", "connect_timeout": "1s"}}),
        json!({"targetRefs": [
            {"group": "", "kind": "Service", "name": "orders", "sectionName": "http"},
            {"group": "", "kind": "Service", "name": "orders", "sectionName": "grpc"},
        ]}),
    ];
    for (index, spec) in accepted.iter().enumerate() {
        let answer = api.request("POST", PATH, Some(&policy(&format!("good-{index}"), spec)));
        assert_eq!(answer.status, 201, "{spec}: {answer:?}");
    }
    let stored = api.request("GET", &format!("{PATH}/good-1"), None).body;
    assert_eq!(
        stored["spec"]["cluster"]["lb_policy"], "LEAST_REQUEST",
        "unknown fields stay"
    );
    let refused = [
        (json!({}), "spec.targetRefs"),
        (json!({"targetRefs": []}), "spec.targetRefs"),
        (
            json!({"targetRefs": [{"group": "", "kind": "Pod", "name": "x"}]}),
            "spec.targetRefs[0].kind",
        ),
        (
            json!({"targetRefs": [{"group": "apps", "kind": "Service", "name": "x"}]}),
            "spec.targetRefs[0].group",
        ),
        (
            json!({"targetRefs": [{"group": "", "kind": "Service"}]}),
            "spec.targetRefs[0].name",
        ),
        (
            json!({"targetRefs": [{"group": "", "kind": "Service", "name": "x",
                                   "sectionName": "A_"}]}),
            "spec.targetRefs[0].sectionName",
        ),
        (
            json!({"targetRefs": target(), "mode": "ENFORCE"}),
            "spec.mode",
        ),
        (json!({"targetRefs": target(), "ramp": 101}), "spec.ramp"),
        (json!({"targetRefs": target(), "ramp": -1}), "spec.ramp"),
        (json!({"targetRefs": target(), "ramp": "20%"}), "spec.ramp"),
        (
            json!({"targetRefs": target(), "delivery": "Weights"}),
            "spec.delivery",
        ),
        (
            json!({"targetRefs": target(), "istio": {"distribute": "On"}}),
            "spec.istio.distribute",
        ),
        (
            json!({"targetRefs": target(), "cluster": "x"}),
            "spec.cluster",
        ),
    ];
    assert_refused(&api, &refused);
}

fn assert_refused(api: &ApiServer, refused: &[(Value, &str)]) {
    for (spec, field) in refused {
        let answer = api.request("POST", PATH, Some(&policy("bad", spec)));
        assert_eq!(answer.status, 422, "{spec}: {answer:?}");
        assert!(names(&answer, field), "{spec}: {answer:?}");
    }
}

#[test]
#[ignore = "needs an API server: make test-kubernetes"]
fn rules_of_the_definition_are_evaluated() {
    if !ApiServer::has_validation_rules() {
        eprintln!("skipped: this kube-apiserver is older than 1.25");
        return;
    }
    let api = started("policy-rules");
    let refused = [
        (
            json!({"targetRefs": [target()[0], target()[0]]}),
            "spec.targetRefs",
        ),
        (
            json!({"targetRefs": target(), "mode": "Off", "ramp": 20}),
            "spec.ramp",
        ),
    ];
    assert_refused(&api, &refused);
    let typo = policy("typo", &json!({"targetRefs": target(), "moed": "Off"}));
    let strict = format!("{PATH}?fieldValidation=Strict");
    let answer = api.request("POST", &strict, Some(&typo));
    assert_eq!(answer.status, 400, "{answer:?}");
    assert!(
        answer.body["message"]
            .as_str()
            .unwrap()
            .contains("spec.moed"),
        "{answer:?}"
    );
}

#[test]
#[ignore = "needs an API server: make test-kubernetes"]
fn the_status_is_a_part_of_its_own() {
    let api = started("policy-status");
    let object = policy(
        "orders",
        &json!({"targetRefs": target(), "mode": "Enforce"}),
    );
    api.apply(PATH, &object);
    let status = json!({"status": {
        "observedGeneration": 1,
        "conditions": [{
            "type": "ZoneRouting", "status": "False", "reason": "NoReports",
            "message": "no proxy reports load", "lastTransitionTime": "2026-01-01T00:00:00Z",
            "observedGeneration": 1,
        }],
        "zones": [{"zone": "zone-a", "demandPercent": 60, "capacityPercent": 33, "load": "1.80"}],
    }});
    let at = format!("{PATH}/orders");
    let ignored = api.request("PATCH", &at, Some(&status));
    assert_eq!(ignored.status, 200, "{ignored:?}");
    assert!(
        ignored.body.get("status").is_none(),
        "owners cannot write the status"
    );
    let written = api.request("PATCH", &format!("{at}/status"), Some(&status));
    assert_eq!(written.status, 200, "{written:?}");
    assert_eq!(written.body["status"], status["status"]);
    assert_eq!(
        written.body["metadata"]["generation"], 1,
        "a status is no new generation"
    );
    let wrong = json!({"status": {"conditions": [{"type": "Accepted", "status": "Maybe"}]}});
    let refused = api.request("PATCH", &format!("{at}/status"), Some(&wrong));
    assert_eq!(refused.status, 422, "{refused:?}");
    let field = "status.conditions[0].status";
    assert!(names(&refused, field), "{refused:?}");
    assert_columns(&api);
}

/// What `kubectl get zrp` shows.
fn assert_columns(api: &ApiServer) {
    let output = api.kubectl(&["get", "zrp", "--namespace", "shop", "--output", "wide"]);
    let text = String::from_utf8_lossy(&output.stdout);
    let mut lines = text.lines();
    let words = |line: Option<&str>| -> Vec<String> {
        let line = line.unwrap_or_default();
        line.split_whitespace().map(str::to_owned).collect()
    };
    let header = words(lines.next());
    let expected = [
        "NAME", "TARGET", "MODE", "RAMP", "ACCEPTED", "ZONE", "ROUTING", "REASON", "AGE",
    ];
    assert_eq!(
        header,
        expected,
        "{text}{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let row = words(lines.next());
    assert_eq!(row[..3], ["orders", "orders", "Enforce"], "{text}");
    assert!(row.contains(&"NoReports".to_owned()), "{text}");
}
