//! Names in manifests resolve: selectors, ports, volumes, accounts, roles, issuers, members of
//! etcd.

use serde_json::{Value, json};

use super::built::{Built, all, containers, list};

/// Whether a container of one of the pods has a port with this name or number.
fn has_port(pods: &[&Value], port: &Value) -> bool {
    let mut ports = pods
        .iter()
        .flat_map(|pod| containers(pod))
        .flat_map(|container| list(&container["ports"]));
    ports.any(|one| one["name"] == *port || one["container_port"] == *port)
}

#[test]
fn services_find_pods_and_ports() {
    let mut checked = 0;
    for built in all() {
        for service in built.of("Service") {
            let name = &service["metadata"]["name"];
            let pods = built.selected(&service["spec"]["selector"]);
            assert_eq!(pods.len(), 1, "{}: Service {name}", built.name);
            for port in list(&service["spec"]["ports"]) {
                assert!(
                    has_port(&pods, &port["target_port"]),
                    "{}: Service {name} leads to a port that no container has: {port}",
                    built.name
                );
                checked += 1;
            }
        }
    }
    assert!(checked >= 8, "only {checked} ports found");
}

#[test]
fn network_policies_and_budgets_are_about_pods_of_the_overlay() {
    for built in all() {
        for policy in built.of("NetworkPolicy") {
            let pods = built.selected(&policy["spec"]["pod_selector"]);
            assert_eq!(pods.len(), 1, "{}: {policy}", built.name);
            let rules = list(&policy["spec"]["ingress"]);
            for port in rules.iter().flat_map(|rule| list(&rule["ports"])) {
                assert!(has_port(&pods, &port["port"]), "{}: {port}", built.name);
            }
        }
        for workload in built.workloads() {
            let labels = &workload["spec"]["template"]["metadata"]["labels"];
            let mut budgets = built.of("PodDisruptionBudget");
            let name = labels["app.kubernetes.io/name"].clone();
            let budget = budgets.find(|one| {
                one["spec"]["selector"]["match_labels"] == json!({"app.kubernetes.io/name": name})
            });
            let budget = budget.unwrap_or_else(|| panic!("{}: no budget for {name}", built.name));
            assert_eq!(
                budget["spec"]["max_unavailable"], 1,
                "{}: a budget must not keep nodes from being drained",
                built.name
            );
        }
    }
}

#[test]
fn volumes_accounts_and_probes_exist() {
    for built in all() {
        for workload in built.workloads() {
            let template = &workload["spec"]["template"];
            let at = format!("{}: {}", built.name, workload["metadata"]["name"]);
            let claims = list(&workload["spec"]["volume_claim_templates"]);
            let mut volumes: Vec<&Value> = claims
                .iter()
                .map(|claim| &claim["metadata"]["name"])
                .collect();
            for volume in list(&template["spec"]["volumes"]) {
                assert_volume(&built, volume, &at);
                volumes.push(&volume["name"]);
            }
            if let account @ Value::String(_) = &template["spec"]["service_account_name"] {
                assert!(built.find("ServiceAccount", account).is_some(), "{at}");
            }
            for container in containers(template) {
                for mount in list(&container["volume_mounts"]) {
                    assert!(volumes.contains(&&mount["name"]), "{at}: {mount}");
                }
                assert_probes(container, template, &at);
            }
            assert_scraped_port(template, &at);
        }
    }
}

fn assert_volume(built: &Built, volume: &Value, at: &str) {
    if let name @ Value::String(_) = &volume["config_map"]["name"] {
        assert!(built.find("ConfigMap", name).is_some(), "{at}: {volume}");
    }
    if let name @ Value::String(_) = &volume["secret"]["secret_name"] {
        let mut certificates = built.of("Certificate");
        assert!(
            certificates.any(|one| one["spec"]["secret_name"] == *name),
            "{at}: no certificate has the secret {name}"
        );
    }
}

fn assert_probes(container: &Value, template: &Value, at: &str) {
    for probe in ["startup_probe", "readiness_probe", "liveness_probe"] {
        let port = &container[probe]["http_get"]["port"];
        if !port.is_null() {
            assert!(has_port(&[template], port), "{at}: {probe} of {port}");
        }
    }
}

/// The annotation for Prometheus names a port of a container.
fn assert_scraped_port(template: &Value, at: &str) {
    let annotations = &template["metadata"]["annotations"];
    if let Some(port) = annotations["prometheus.io/port"].as_str() {
        let port: u16 = port.parse().unwrap();
        assert!(has_port(&[template], &json!(port)), "{at}: {port}");
        assert_eq!(annotations["prometheus.io/scrape"], "true", "{at}");
    }
}

#[test]
fn role_bindings_lead_from_an_account_of_a_pod_to_a_role() {
    let mut bindings = 0;
    for built in all() {
        for binding in built.of("ClusterRoleBinding") {
            let role = &binding["role_ref"]["name"];
            assert!(built.find("ClusterRole", role).is_some(), "{binding}");
            let subject = &binding["subjects"][0];
            let account = built.find("ServiceAccount", &subject["name"]).unwrap();
            assert_eq!(account["metadata"]["namespace"], subject["namespace"]);
            let used = built.workloads().any(|one| {
                one["spec"]["template"]["spec"]["service_account_name"] == subject["name"]
            });
            assert!(used, "{}: no pod uses {subject}", built.name);
            bindings += 1;
        }
    }
    assert_eq!(bindings, 4, "one per control plane");
}

#[test]
fn certificates_have_issuers_and_the_name_that_clients_dial() {
    let all = all();
    for (name, expected) in [("mtls", 2), ("replicas-mtls", 4)] {
        let built = all.iter().find(|built| built.name == name).unwrap();
        assert_certificates(built, expected);
    }
}

fn assert_certificates(built: &Built, expected: usize) {
    let mut certificates = 0;
    for certificate in built.of("Certificate") {
        let issuer = &certificate["spec"]["issuer_ref"]["name"];
        assert!(built.find("Issuer", issuer).is_some(), "{certificate}");
        certificates += 1;
    }
    assert_eq!(certificates, expected);
    let control = built.find("Certificate", &json!("plimsoll-control"));
    let names = list(&control.unwrap()["spec"]["dns_names"]);
    assert!(names.contains(&json!("plimsoll-control.plimsoll-system")));
    let issuer = built.find("Issuer", &json!("plimsoll-ca")).unwrap();
    let authority = built.find("Certificate", &json!("plimsoll-ca")).unwrap();
    assert_eq!(
        issuer["spec"]["ca"]["secret_name"],
        authority["spec"]["secret_name"]
    );
}

#[test]
fn members_of_etcd_know_each_other_and_replicas_know_them() {
    let all = all();
    for (name, scheme) in [("replicas", "http"), ("replicas-mtls", "https")] {
        let built = all.iter().find(|built| built.name == name).unwrap();
        assert_members(built, scheme);
    }
}

fn assert_members(built: &Built, scheme: &str) {
    let set = built.find("StatefulSet", &json!("plimsoll-etcd")).unwrap();
    let service = set["spec"]["service_name"].as_str().unwrap();
    let headless = built.find("Service", &json!(service)).unwrap();
    assert_eq!(headless["spec"]["cluster_i_p"], "None");
    assert_eq!(headless["spec"]["publish_not_ready_addresses"], true);
    let count = set["spec"]["replicas"].as_u64().unwrap();
    let pods: Vec<String> = (0..count).map(|at| format!("plimsoll-etcd-{at}")).collect();
    let members = pods
        .iter()
        .map(|pod| format!("{pod}={scheme}://{pod}.{service}:2380"));
    let expected = format!(
        "--initial-cluster={}",
        members.collect::<Vec<_>>().join(",")
    );
    let command = list(&set["spec"]["template"]["spec"]["containers"][0]["command"]);
    assert!(command.contains(&json!(expected)), "{command:?}");
    let map = built.find("ConfigMap", &json!("plimsoll-control")).unwrap();
    let file = map["data"]["control.yaml"].as_str().unwrap();
    for pod in &pods {
        assert!(
            file.contains(&format!("- {pod}.{service}:2379\n")),
            "{file}"
        );
    }
    assert!(
        file.contains("compaction_interval: 300s\n"),
        "nothing else compacts the history of this etcd: {file}"
    );
    let control = built
        .find("Deployment", &json!("plimsoll-control"))
        .unwrap();
    assert_eq!(control["spec"]["replicas"], 3);
    let container = &control["spec"]["template"]["spec"]["containers"][0];
    assert!(
        list(&container["args"]).contains(&json!("--replica-id=$(POD_NAME)")),
        "replicas with one id would overwrite the records of each other"
    );
}

/// A member whose certificate lacks its name is refused by the others, and a client without one for
/// clients by all.
#[test]
fn certificates_of_etcd_fit_its_members_and_the_control_plane() {
    let all = all();
    let mut overlays = all.iter();
    let built = overlays
        .find(|built| built.name == "replicas-mtls")
        .unwrap();
    let set = built.find("StatefulSet", &json!("plimsoll-etcd")).unwrap();
    let command = list(&set["spec"]["template"]["spec"]["containers"][0]["command"]);
    let peers = command.iter().filter_map(|argument| {
        let members = argument.as_str()?.strip_prefix("--initial-cluster=")?;
        Some(members.split(',').map(|member| {
            let (_, url) = member.split_once("=https://").unwrap();
            json!(url.strip_suffix(":2380").unwrap())
        }))
    });
    let peers: Vec<Value> = peers.flatten().collect();
    let member = built.find("Certificate", &json!("plimsoll-etcd")).unwrap();
    assert_eq!(list(&member["spec"]["dns_names"]), peers);
    let usages = json!(["server auth", "client auth"]);
    assert_eq!(member["spec"]["usages"], usages);
    for required in ["--client-cert-auth", "--peer-client-cert-auth"] {
        assert!(command.contains(&json!(required)), "{command:?}");
    }
    let client = json!("plimsoll-etcd-client");
    let client = built.find("Certificate", &client).unwrap();
    assert_eq!(client["spec"]["usages"], json!(["client auth"]));
}
