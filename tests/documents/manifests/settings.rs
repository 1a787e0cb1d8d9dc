//! Configuration files and commands in manifests: valid, mounted where the command reads them, with
//! the ports and variables that the pod has.

use std::collections::BTreeMap;
use std::fs;
use std::net::IpAddr;
use std::path::Path;
use std::process::Command;

use plimsoll_testing::plimsoll;
use plimsoll_xds::yaml::Document;
use serde_json::{Value, json};

use super::built::{Built, all, list, ours};

/// A container of ours with the configuration file that it reads.
struct Configured<'a> {
    at: String,
    container: &'a Value,
    kind: String,
    text: String,
}

fn configured(all: &[Built]) -> Vec<Configured<'_>> {
    let mut found = Vec::new();
    for built in all {
        for workload in built.workloads() {
            let template = &workload["spec"]["template"];
            // Containers that write a file before others start have none of their own.
            let with_files = |one: &&Value| one["args"][0] != "bootstrap";
            for container in ours(template).into_iter().filter(with_files) {
                let at = format!("{}: {}", built.name, container["name"]);
                let (kind, text) = file_of(built, template, container, &at);
                found.push(Configured {
                    at,
                    container,
                    kind,
                    text,
                });
            }
        }
    }
    assert_eq!(
        found.len(),
        9,
        "one container of ours per overlay, two in the last"
    );
    found
}

/// Returns kind and text of the file that `--config` names, through mount, volume and ConfigMap.
fn file_of(built: &Built, template: &Value, container: &Value, at: &str) -> (String, String) {
    let args = list(&container["args"]);
    let mut paths = args
        .iter()
        .filter_map(|arg| arg.as_str()?.strip_prefix("--config="));
    let path = Path::new(paths.next().unwrap_or_else(|| panic!("{at}: no --config")));
    let directory = path.parent().unwrap().to_str().unwrap();
    let mut mounts = list(&container["volume_mounts"]).iter();
    let Some(mount) = mounts.find(|mount| mount["mount_path"] == directory) else {
        panic!("{at}: nothing is mounted at {directory}");
    };
    let mut volumes = list(&template["spec"]["volumes"]).iter();
    let volume = volumes.find(|one| one["name"] == mount["name"]).unwrap();
    let map = built
        .find("ConfigMap", &volume["config_map"]["name"])
        .unwrap();
    let key = path.file_name().unwrap().to_str().unwrap();
    let Some(text) = map["data"][key].as_str() else {
        panic!("{at}: the ConfigMap has no {key}");
    };
    (args[0].as_str().unwrap().to_owned(), text.to_owned())
}

fn parsed(text: &str) -> Value {
    Document::parse(text).unwrap().json()
}

/// Variables of a container with values like those of a pod.
fn environment(container: &Value) -> BTreeMap<String, String> {
    let variables = list(&container["env"]).iter();
    let value = |one: &Value| match one["value_from"]["field_ref"]["field_path"].as_str() {
        None => one["value"].as_str().unwrap().to_owned(),
        Some("metadata.name") => "gateway-0".to_owned(),
        Some("metadata.namespace") => "shop".to_owned(),
        Some("metadata.labels['topology.kubernetes.io/zone']") => "zone-a".to_owned(),
        Some(other) => panic!("the test has no value for {other}"),
    };
    variables
        .map(|one| (one["name"].as_str().unwrap().to_owned(), value(one)))
        .collect()
}

#[test]
fn configurations_are_valid_with_the_variables_of_their_container() {
    let directory = tempfile::tempdir().unwrap();
    let mounted = certificates(directory.path());
    for one in configured(&all()) {
        let file = directory.path().join("file.yaml");
        let text = one.text.replace("/etcd-certs/", &mounted);
        fs::write(&file, text.replace("/certs/", &mounted)).unwrap();
        let output = Command::new(plimsoll())
            .args(["check", "--kind", &one.kind])
            .arg(&file)
            .env_clear()
            .envs(environment(one.container))
            .output()
            .unwrap();
        let printed = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{}: {printed}", one.at);
    }
}

/// Writes certificates like those of a mounted secret; returns the directory with a `/` at its end.
fn certificates(directory: &Path) -> String {
    let key = rcgen::KeyPair::generate().unwrap();
    let params = rcgen::CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    let certificate = params.self_signed(&key).unwrap().pem();
    for (name, text) in [
        ("tls.crt", &certificate),
        ("ca.crt", &certificate),
        ("tls.key", &key.serialize_pem()),
    ] {
        fs::write(directory.join(name), text).unwrap();
    }
    format!("{}/", directory.display())
}

/// The Envoys of the overlay get a bootstrap that presents their certificate, with id and zone of
/// their pod.
#[test]
fn envoys_get_a_bootstrap_with_their_certificate() {
    let directory = tempfile::tempdir().unwrap();
    let certs = certificates(directory.path());
    let written = tempfile::tempdir().unwrap();
    let all = all();
    let built = all.iter().find(|built| built.name == "envoy").unwrap();
    let gateway = built.find("Deployment", &json!("gateway")).unwrap();
    let template = &gateway["spec"]["template"];
    let container = &template["spec"]["init_containers"][0];
    let args = list(&container["args"]).iter().map(|arg| {
        let arg = arg
            .as_str()
            .unwrap()
            .replace("=/certs", &format!("={certs}"));
        arg.replace("=/envoy", &format!("={}", written.path().display()))
    });
    let output = Command::new(plimsoll())
        .args(args)
        .env_clear()
        .envs(environment(container))
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    let file = fs::read_to_string(written.path().join("envoy.json")).unwrap();
    let bootstrap: Value = serde_json::from_str(&file).unwrap();
    assert_eq!(bootstrap["node"]["id"], "gateway-0");
    assert_eq!(bootstrap["node"]["locality"]["zone"], "zone-a");
    // The rule of the control plane lets this service account be this fleet.
    assert_eq!(
        bootstrap["node"]["cluster"],
        template["spec"]["service_account_name"]
    );
    let control = &bootstrap["static_resources"]["clusters"][0];
    assert_eq!(control["name"], "plimsoll_control");
    let context = &control["transport_socket"]["typed_config"]["common_tls_context"];
    let secrets = list(&context["tls_certificate_sds_secret_configs"]);
    assert_eq!(secrets.len(), 1, "read again when it is renewed: {context}");
    for secret in ["ca.json", "certificate.json"] {
        assert!(written.path().join(secret).exists(), "{secret}");
    }
}

/// `--help` at the end: every flag before it must exist, and nothing is started.
#[test]
fn commands_have_flags_that_exist_and_variables_that_are_set() {
    for one in configured(&all()) {
        let variables = environment(one.container);
        let args: Vec<&str> = list(&one.container["args"])
            .iter()
            .map(|arg| arg.as_str().unwrap())
            .collect();
        for arg in &args {
            for (_, rest) in arg.match_indices("$(").map(|(at, _)| arg.split_at(at + 2)) {
                let name = rest.split(')').next().unwrap();
                assert!(variables.contains_key(name), "{}: {arg}", one.at);
            }
        }
        let output = Command::new(plimsoll())
            .args(&args)
            .arg("--help")
            .output()
            .unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{}: {errors}", one.at);
    }
}

#[test]
fn containers_have_the_ports_of_their_files() {
    for one in configured(&all()) {
        let file = parsed(&one.text);
        let ports: BTreeMap<&str, u64> = list(&one.container["ports"])
            .iter()
            .map(|port| {
                (
                    port["name"].as_str().unwrap(),
                    port["container_port"].as_u64().unwrap(),
                )
            })
            .collect();
        let expected: BTreeMap<&str, u64> = if one.kind == "control" {
            let port = |field: &str| {
                let (_, port) = file[field].as_str().unwrap().rsplit_once(':').unwrap();
                port.parse().unwrap()
            };
            [("xds", port("listen")), ("read-only", port("read_only"))].into()
        } else {
            let listener = &file["static_resources"]["listeners"][0];
            let listening = [
                (listener["name"].as_str().unwrap(), listener),
                ("admin", &file["admin"]),
            ];
            let reached = listening.into_iter().filter_map(|(name, one)| {
                let address = &one["address"]["socket_address"];
                let reached = address["address"] != "127.0.0.1";
                reached.then(|| (name, address["port_value"].as_u64().unwrap()))
            });
            reached.collect()
        };
        assert_eq!(ports, expected, "{}", one.at);
    }
}

/// Pages that change state are reached from the pod itself only: by their address, or because the
/// proxy refuses changes from elsewhere and a network policy leaves reading to monitoring.
#[test]
fn admin_pages_are_not_open_to_other_pods() {
    let all = all();
    for one in configured(&all) {
        let file = parsed(&one.text);
        let admin = &file["admin"];
        let address = match admin.as_str() {
            Some(address) => address.rsplit_once(':').unwrap().0,
            None => admin["address"]["socket_address"]["address"]
                .as_str()
                .unwrap(),
        };
        let address: IpAddr = address.parse().unwrap();
        if address.is_loopback() {
            continue;
        }
        assert_eq!(one.kind, "proxy", "{}: admin on {address}", one.at);
        let own = all.iter().filter(|built| one.at.starts_with(built.name));
        let policies = own.flat_map(|built| built.of("NetworkPolicy"));
        let rules = policies.flat_map(|policy| list(&policy["spec"]["ingress"]));
        let of_admin: Vec<_> = rules
            .filter(|rule| list(&rule["ports"]).contains(&json!({"port": "admin"})))
            .collect();
        assert_eq!(of_admin.len(), 1, "{}", one.at);
        assert!(
            of_admin[0]["from"].is_array(),
            "{}: open to everybody",
            one.at
        );
    }
}

#[test]
fn proxies_have_the_names_of_their_pods_and_dial_a_service_that_exists() {
    let all = all();
    let single = all.iter().find(|built| built.name == "single").unwrap();
    let service = single.find("Service", &json!("plimsoll-control")).unwrap();
    let metadata = &service["metadata"];
    let name = format!(
        "plimsoll-control.{}",
        metadata["namespace"].as_str().unwrap()
    );
    let mut proxies = 0;
    for one in configured(&all) {
        let file = parsed(&one.text);
        // The servers of the example are no clients of the control plane.
        if one.kind != "proxy" || file.get("dynamic_resources").is_none() {
            continue;
        }
        proxies += 1;
        assert_eq!(
            file["node"]["id"], "${POD_NAME}",
            "{}: replicas with one node id would overwrite the demand of each other",
            one.at
        );
        let pod_name = json!({
            "name": "POD_NAME",
            "value_from": {"field_ref": {"field_path": "metadata.name"}},
        });
        assert!(
            list(&one.container["env"]).contains(&pod_name),
            "{}",
            one.at
        );
        let control = &file["static_resources"]["clusters"][0];
        assert_eq!(control["name"], "plimsoll_control", "{}", one.at);
        let endpoint = &control["load_assignment"]["endpoints"][0]["lb_endpoints"][0]["endpoint"];
        let address = &endpoint["address"]["socket_address"];
        assert_eq!(address["address"], json!(name), "{}", one.at);
        assert_eq!(address["port_value"], service["spec"]["ports"][0]["port"]);
    }
    assert_eq!(proxies, 3);
}
