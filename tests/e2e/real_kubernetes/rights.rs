//! The control plane with a token of its service account and the ClusterRole of the overlays: it
//! works with these rights, each of them is needed, and nothing else is allowed. The API machinery
//! alone has no RBAC, so that this is skipped without a kube-apiserver.

use plimsoll_testing::http::get;
use serde_json::{Value, json};

use crate::support::api_server::ApiServer;
use crate::support::control::Control;
use crate::support::{scratch, wait_until};

const ROLES: &str = "/apis/rbac.authorization.k8s.io/v1/clusterroles";
const POLICIES: &str = "/apis/plimsoll.dev/v1alpha1/namespaces/shop/zoneroutingpolicies";
const EVENTS: &str = "/api/v1/namespaces/shop/events";

/// One verb of one rule of the role.
#[derive(Debug)]
struct Right {
    group: String,
    resource: String,
    verb: String,
}

impl Right {
    /// Returns all rights of a role.
    fn all(role: &Value) -> Vec<Self> {
        let texts = |value: &Value| -> Vec<String> {
            let all = value.as_array().unwrap().iter();
            all.map(|one| one.as_str().unwrap().to_owned()).collect()
        };
        let mut rights = Vec::new();
        for rule in role["rules"].as_array().unwrap() {
            let (groups, resources) = (texts(&rule["apiGroups"]), texts(&rule["resources"]));
            assert_eq!((groups.len(), resources.len()), (1, 1), "{rule}");
            for verb in texts(&rule["verbs"]) {
                rights.push(Self {
                    group: groups[0].clone(),
                    resource: resources[0].clone(),
                    verb,
                });
            }
        }
        rights
    }

    /// Returns the role without this right.
    fn removed_from(&self, role: &Value) -> Value {
        let mut less = role.clone();
        for rule in less["rules"].as_array_mut().unwrap() {
            if rule["resources"][0] == self.resource {
                let verbs = rule["verbs"].as_array_mut().unwrap();
                verbs.retain(|verb| *verb != self.verb);
            }
        }
        // A rule needs a verb.
        let rules = less["rules"].as_array_mut().unwrap();
        rules.retain(|rule| {
            rule["verbs"]
                .as_array()
                .is_some_and(|verbs| !verbs.is_empty())
        });
        less
    }

    /// Asks the API server whether a token has the right.
    fn is_granted(&self, api: &ApiServer, token: &str) -> bool {
        let (resource, subresource) = self
            .resource
            .split_once('/')
            .unwrap_or((&self.resource, ""));
        let attributes = json!({"group": self.group, "resource": resource,
                                "subresource": subresource, "verb": self.verb,
                                "namespace": "shop"});
        let review = json!({"apiVersion": "authorization.k8s.io/v1",
                            "kind": "SelfSubjectAccessReview",
                            "spec": {"resourceAttributes": attributes}});
        let path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
        let answer = api.request_as(token, "POST", path, Some(&review));
        assert_eq!(answer.status, 201, "{answer:?}");
        answer.body["status"]["allowed"] == true
    }
}

/// A Service whose annotation cannot be used, and a policy for it: the control plane has to write
/// an event and a status.
fn put_objects(api: &ApiServer) {
    let service = json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {"name": "orders", "namespace": "shop",
                     "annotations": {"plimsoll.dev/ramp": "many"}},
        "spec": {"ports": [{"name": "http", "port": 80, "protocol": "TCP"}]},
    });
    api.apply("/api/v1/namespaces/shop/services", &service);
    let target = json!([{"group": "", "kind": "Service", "name": "orders"}]);
    let policy = json!({
        "apiVersion": "plimsoll.dev/v1alpha1", "kind": "ZoneRoutingPolicy",
        "metadata": {"name": "orders", "namespace": "shop"}, "spec": {"targetRefs": target},
    });
    api.apply(POLICIES, &policy);
}

/// Deletes what a control plane wrote.
fn delete_written(api: &ApiServer) {
    for path in [EVENTS, POLICIES, "/api/v1/namespaces/shop/services"] {
        let list = api.request("GET", path, None).body;
        for object in list["items"].as_array().unwrap() {
            api.delete(&format!(
                "{path}/{}",
                object["metadata"]["name"].as_str().unwrap()
            ));
        }
    }
}

fn config(api: &ApiServer) -> String {
    json!({"kubernetes": {
        "api_server": format!("https://{}", api.address),
        "ca_file": api.ca_file(), "token_file": api.token_file(), "namespaces": ["shop"],
    }})
    .to_string()
}

fn is_ready(control: &Control) -> bool {
    get(control.admin, "/readyz").is_some_and(|page| page.starts_with("ready"))
}

/// Waits until status and event are there.
fn wait_until_written(api: &ApiServer) {
    wait_until("the status of the policy is written", || {
        let policy = api.request("GET", &format!("{POLICIES}/orders"), None).body;
        policy["status"]["conditions"][0]["type"] == "Accepted"
    });
    wait_until("the event is written", || {
        let events = api.request("GET", EVENTS, None).body;
        let mut all = events["items"].as_array().unwrap().iter();
        all.any(|event| {
            let message = event["message"].as_str().unwrap_or_default();
            event["reason"] == "InvalidSetting"
                && event["involvedObject"]["name"] == "orders"
                && message.contains("plimsoll.dev/ramp")
        })
    });
}

#[test]
#[ignore = "needs an API server: make test-kubernetes"]
fn the_rights_of_the_overlays_are_enough_and_each_is_needed() {
    if !ApiServer::is_kube() {
        eprintln!("skipped: KUBEBUILDER_ASSETS is not set");
        return;
    }
    let directory = scratch("rights");
    let mut api = ApiServer::start(&directory, &[]);
    api.install_control_plane();
    api.create_namespace("shop");
    let token = api.rotate_token(false);
    put_objects(&api);
    let path = format!("{ROLES}/plimsoll-control");
    let mut role = api.request("GET", &path, None).body;
    role["metadata"] = json!({"name": "plimsoll-control"});
    let rights = Right::all(&role);
    assert_eq!(rights.len(), 10, "{rights:?}");
    for right in &rights {
        assert!(right.is_granted(&api, &token), "{right:?}");
    }
    {
        let control = Control::start(&directory, &config(&api));
        wait_until("the control plane is ready", || is_ready(&control));
        wait_until_written(&api);
        let log = control.log();
        assert!(!log.contains("403"), "{log}");
    }
    for right in &rights {
        delete_written(&api);
        api.apply(ROLES, &right.removed_from(&role));
        wait_until("the right is gone", || !right.is_granted(&api, &token));
        put_objects(&api);
        let own = directory.join(format!(
            "without-{}-{}",
            right.verb,
            right.resource.replace('/', "-")
        ));
        std::fs::create_dir(&own).unwrap();
        if right.resource == "events" && right.verb != "create" {
            // What is missed is to count an event that is there already.
            let before = own.join("before");
            std::fs::create_dir(&before).unwrap();
            let control = Control::start(&before, &config(&api));
            wait_until_written(&api);
            drop(control);
        }
        let control = Control::start(&own, &config(&api));
        let (resource, _) = right
            .resource
            .split_once('/')
            .unwrap_or((&right.resource, ""));
        let denied = format!("cannot {} resource", right.verb);
        wait_until(&format!("{right:?} is missed"), || {
            let log = control.log();
            let mut lines = log.lines();
            lines.any(|line| {
                line.contains("403") && line.contains(&denied) && line.contains(resource)
            })
        });
        if right.verb == "list" {
            assert!(!is_ready(&control), "{right:?}");
        }
        drop(control);
        api.apply(ROLES, &role);
        wait_until("the right is back", || right.is_granted(&api, &token));
    }
}

#[test]
#[ignore = "needs an API server: make test-kubernetes"]
fn the_account_of_the_control_plane_may_do_nothing_else() {
    if !ApiServer::is_kube() {
        eprintln!("skipped: KUBEBUILDER_ASSETS is not set");
        return;
    }
    let mut api = ApiServer::start(&scratch("no-other-rights"), &[]);
    api.install_control_plane();
    let token = api.rotate_token(false);
    let one = "/apis/plimsoll.dev/v1alpha1/namespaces/default/zoneroutingpolicies/one";
    let empty = json!({});
    for (method, path) in [
        ("GET", "/api/v1/secrets"),
        ("GET", "/api/v1/pods"),
        ("GET", "/api/v1/nodes"),
        ("GET", "/api/v1/namespaces/default/services/kubernetes"),
        ("PATCH", "/api/v1/namespaces/default/services/kubernetes"),
        ("GET", one),
        ("PATCH", one),
        ("DELETE", one),
        ("GET", "/apis/networking.istio.io/v1/destinationrules"),
    ] {
        let body = (method == "PATCH").then_some(&empty);
        let answer = api.request_as(&token, method, path, body);
        assert_eq!(answer.status, 403, "{method} {path}: {answer:?}");
    }
}
