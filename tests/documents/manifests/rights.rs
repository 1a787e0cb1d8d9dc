//! The rights of the control plane are what its requests need, and nothing else.

use std::collections::BTreeSet;
use std::fs;

use plimsoll_testing::repository;
use plimsoll_xds::yaml::Document;
use serde_json::{Value, json};

use super::built::{Built, all, list};

/// Requests of the control plane: API group, resource, verbs.
const NEEDED: [(&str, &str, &[&str]); 5] = [
    ("", "services", &["list", "watch"]),
    ("discovery.k8s.io", "endpointslices", &["list", "watch"]),
    ("plimsoll.dev", "zoneroutingpolicies", &["list", "watch"]),
    ("plimsoll.dev", "zoneroutingpolicies/status", &["patch"]),
    ("", "events", &["create", "get", "patch"]),
];

/// Returns (group, resource, verb) of all rules of a role.
fn rights(role: &Value) -> BTreeSet<(String, String, String)> {
    let strings = |value: &Value| -> Vec<String> {
        let all = list(value).iter();
        all.map(|one| one.as_str().unwrap().to_owned()).collect()
    };
    let mut found = BTreeSet::new();
    for rule in list(&role["rules"]) {
        assert!(rule.get("non_resource_urls").is_none(), "{rule}");
        for group in strings(&rule["api_groups"]) {
            for resource in strings(&rule["resources"]) {
                for verb in strings(&rule["verbs"]) {
                    found.insert((group.clone(), resource.clone(), verb));
                }
            }
        }
    }
    found
}

/// Returns the rights of all roles that are bound to the account of the control plane.
fn granted(built: &Built) -> BTreeSet<(String, String, String)> {
    let bindings = built
        .of("ClusterRoleBinding")
        .chain(built.of("RoleBinding"));
    let roles = bindings.map(|binding| {
        assert_eq!(binding["subjects"][0]["name"], "plimsoll-control");
        built
            .find("ClusterRole", &binding["role_ref"]["name"])
            .unwrap()
    });
    roles.flat_map(rights).collect()
}

#[test]
fn the_control_plane_may_do_what_it_does_and_nothing_else() {
    let needed: BTreeSet<_> = NEEDED
        .iter()
        .flat_map(|(group, resource, verbs)| {
            let right = move |verb: &&str| {
                (
                    (*group).to_owned(),
                    (*resource).to_owned(),
                    (*verb).to_owned(),
                )
            };
            verbs.iter().map(right)
        })
        .collect();
    for built in all() {
        if built.of("ClusterRoleBinding").next().is_some() {
            assert_eq!(granted(&built), needed, "{}", built.name);
        }
    }
}

/// What writing DestinationRules needs in addition: applying one on the server may create it.
#[test]
fn the_component_for_istio_adds_what_destination_rules_need() {
    let path = repository().join("deploy/kubernetes/components/istio/rbac.yaml");
    let text = fs::read_to_string(path).unwrap();
    let (role, _) = text.split_once("\n---\n").unwrap();
    let role: Value = Document::parse(role).unwrap().json();
    let right = |verb: &str| {
        let group = "networking.istio.io".to_owned();
        (group, "destinationrules".to_owned(), verb.to_owned())
    };
    assert_eq!(rights(&role), ["create", "list", "patch"].map(right).into());
}

#[test]
fn people_with_the_role_edit_may_edit_policies_but_not_their_status() {
    let all = all();
    let role = all[0].find("ClusterRole", &json!("plimsoll-edit")).unwrap();
    let labels = &role["metadata"]["labels"];
    assert_eq!(
        labels["rbac.authorization.k8s.io/aggregate-to-edit"],
        "true"
    );
    assert!(rights(role).iter().all(|(group, resource, _)| {
        (group.as_str(), resource.as_str()) == ("plimsoll.dev", "zoneroutingpolicies")
    }));
}
