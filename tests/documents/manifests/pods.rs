//! Pods run with few privileges and bounded resources, and say whether they work.

use std::fs;

use plimsoll_testing::repository;
use serde_json::{Value, json};

use super::built::{all, containers, ours};

/// User and group of the image.
fn image_user() -> Vec<u64> {
    let image = fs::read_to_string(repository().join("deploy/docker/Dockerfile")).unwrap();
    let mut users = image.lines().filter_map(|line| line.strip_prefix("USER "));
    let user = users.next_back().unwrap();
    let ids = user.split(':').map(|id| id.parse().ok());
    let ids: Option<Vec<u64>> = ids.collect();
    let ids = ids.unwrap_or_else(|| panic!("USER of the image must be UID:GID: {user}"));
    assert!(ids.len() == 2 && !ids.contains(&0), "root: {ids:?}");
    ids
}

#[test]
fn pods_meet_the_restricted_standard() {
    let user = image_user();
    let mut pods = 0;
    for built in all() {
        for workload in built.workloads() {
            let at = format!("{}: {}", built.name, workload["metadata"]["name"]);
            let template = &workload["spec"]["template"];
            let security = &template["spec"]["security_context"];
            assert_eq!(security["run_as_non_root"], true, "{at}");
            assert_eq!(security["run_as_user"], user[0], "{at}");
            assert_eq!(security["run_as_group"], user[1], "{at}");
            assert_eq!(
                security["seccomp_profile"]["type"], "RuntimeDefault",
                "{at}"
            );
            for container in containers(template) {
                let expected = json!({
                    "allow_privilege_escalation": false,
                    "read_only_root_filesystem": true,
                    "capabilities": {"drop": ["ALL"]},
                });
                assert_eq!(container["security_context"], expected, "{at}");
                let resources = &container["resources"];
                assert!(resources["requests"]["cpu"].is_string(), "{at}");
                assert!(resources["requests"]["memory"].is_string(), "{at}");
                assert!(resources["limits"]["memory"].is_string(), "{at}");
            }
            pods += 1;
        }
    }
    assert_eq!(pods, 12);
}

/// Only the control plane talks to the API server.
#[test]
fn only_the_control_plane_gets_a_token() {
    for built in all() {
        for workload in built.workloads() {
            let name = &workload["metadata"]["name"];
            let mounted = &workload["spec"]["template"]["spec"]["automount_service_account_token"];
            assert_eq!(
                *mounted,
                *name == json!("plimsoll-control"),
                "{}: {name}",
                built.name
            );
        }
    }
}

#[test]
fn containers_of_ours_have_probes_of_pages_that_exist() {
    let path = repository().join("docs/reference/admin-api.md");
    let reference = fs::read_to_string(path).unwrap();
    let (_, sections) = reference.split_once("\n## The control plane\n").unwrap();
    let (control, proxy) = sections.split_once("\n## The proxy\n").unwrap();
    let mut probes = 0;
    for built in all() {
        for workload in built.workloads() {
            for container in ours(&workload["spec"]["template"]) {
                let is_control = container["args"][0] == "control";
                let page = if is_control { control } else { proxy };
                for probe in ["startup_probe", "readiness_probe", "liveness_probe"] {
                    let path = &container[probe]["http_get"]["path"];
                    if let Value::String(path) = path {
                        let row = format!("| GET | `{path}` |");
                        assert!(page.contains(&row), "{}: {path}", built.name);
                        probes += 1;
                    }
                }
            }
        }
    }
    assert_eq!(
        probes, 16,
        "three in each control plane and two in each gateway"
    );
}
