//! Tests of `plimsoll check`, `completions` and `top`.
#![expect(clippy::unwrap_used, reason = "tests")]

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Output};
use std::thread;

use serde_json::{Value, json};

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

fn plimsoll(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_plimsoll"));
    command.args(args).current_dir(ROOT).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

fn write_file(directory: &Path, name: &str, content: &str) -> String {
    let path = directory.join(name);
    fs::write(&path, content).unwrap();
    path.display().to_string()
}

#[test]
fn shipped_files_are_valid_and_recognized() {
    let mut files = ["control.yaml", "consul.yaml"]
        .map(|name| (format!("examples/control/{name}"), "control"))
        .to_vec();
    for (directory, extension, kind) in [
        ("examples/explain", "yaml", "explain"),
        ("crates/plimsoll-sim/scenarios", "toml", "sim"),
        ("examples/control/services.d", "yaml", "control"),
    ] {
        for entry in fs::read_dir(Path::new(ROOT).join(directory)).unwrap() {
            let name = entry.unwrap().file_name().into_string().unwrap();
            if name.ends_with(extension) {
                files.push((format!("{directory}/{name}"), kind));
            }
        }
    }
    assert!(files.len() > 40, "only {} files were found", files.len());
    let mut args = vec!["check", "--json"];
    args.extend(files.iter().map(|(file, _)| file.as_str()));
    let output = plimsoll(&args);
    let results: Vec<Value> = serde_json::from_slice(&output.stdout).unwrap();
    for ((file, kind), result) in files.iter().zip(&results) {
        assert_eq!(result["file"], json!(file));
        assert_eq!(result["kind"], json!(kind), "{result}");
        assert_eq!(result["fine"], json!(true), "{result}");
    }
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(results.len(), files.len());
}

#[test]
fn our_own_bootstrap_is_valid() {
    let directory = tempfile::tempdir().unwrap();
    let printed = plimsoll(&["bootstrap", "grpc", "--zone", "a"]);
    let file = write_file(directory.path(), "bootstrap.json", &text(&printed.stdout));
    let output = plimsoll(&["check", &file]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stdout));
    let output = text(&output.stdout);
    assert!(
        output.contains("bootstrap of a gRPC client: management server"),
        "{output}"
    );
}

#[test]
fn an_error_has_path_and_location_and_exits_with_1() {
    let directory = tempfile::tempdir().unwrap();
    let valid = write_file(
        directory.path(),
        "valid.yaml",
        "name: a\nlb_policy: RANDOM\n",
    );
    let bad = "services:\n- cluster: {name: orders}\n  rampe: 10\n";
    let included = write_file(directory.path(), "orders.yaml", bad);
    let main = write_file(directory.path(), "control.yaml", "include: [orders.yaml]\n");
    let output = plimsoll(&["check", &valid, &main]);
    assert_eq!(output.status.code(), Some(1));
    let output = text(&output.stdout);
    assert!(
        output.contains("valid.yaml: ok (cluster: a, random)"),
        "{output}"
    );
    let fault = format!("{included}:3:3: services[0].rampe: unknown field, did you mean ramp?\n");
    assert!(output.contains(&fault), "{output}");

    let output = plimsoll(&["check", "--json", &main]);
    assert_eq!(output.status.code(), Some(1));
    let result: Value = serde_json::from_slice(&output.stdout).unwrap();
    let fault = &result[0]["faults"][0];
    assert_eq!(fault["path"], "services[0].rampe");
    assert_eq!((&fault["line"], &fault["column"]), (&json!(3), &json!(3)));
    assert_eq!(fault["file"], json!(included));
}

#[test]
fn a_heartbeat_longer_than_the_staleness_threshold_is_an_error() {
    let directory = tempfile::tempdir().unwrap();
    let main = |heartbeat: &str| {
        format!(
            "demand: {{{heartbeat}}}
services:
- cluster:
    name: orders
    load_balancing_policy:
      policies:
      - typed_extension_config:
          name: envoy.load_balancing_policies.round_robin
          typed_config:
            '@type': type.googleapis.com/envoy.extensions.load_balancing_policies.round_robin.v3\
             .RoundRobin
            locality_lb_config:
              zone_aware_lb_config:
                locality_basis: LRS_REPORTED_RATE
                lrs_rate_config: {{staleness_threshold: 15s}}
"
        )
    };
    let check = |heartbeat: &str| {
        let file = write_file(directory.path(), "control.yaml", &main(heartbeat));
        let output = plimsoll(&["check", &file]);
        (output.status.code(), text(&output.stdout))
    };
    let (code, output) = check("heartbeat: 6s");
    assert_eq!(code, Some(1), "{output}");
    assert!(
        output.contains("demand.heartbeat: 6s is too long for service orders"),
        "{output}"
    );
    assert!(output.contains("control.yaml:1:"), "{output}");
    assert_eq!(check("heartbeat: 5s").0, Some(0));
    let (code, output) = check("");
    assert_eq!(code, Some(0), "the default follows the services: {output}");
}

#[test]
fn an_unrecognized_file_exits_with_2() {
    let directory = tempfile::tempdir().unwrap();
    let empty = write_file(directory.path(), "empty.yaml", "{}\n");
    for (args, reason) in [
        (&["check"][..], "<FILE>"),
        (&["check", &empty], "--kind"),
        (
            &["check", "no-such-file.yaml"],
            "no-such-file.yaml: cannot be read",
        ),
        (&["check", "--kind", "nonsense", &empty], "nonsense"),
    ] {
        let output = plimsoll(args);
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        let all = text(&output.stdout) + &text(&output.stderr);
        assert!(all.contains(reason), "{all}");
    }
    // Every file is checked, whatever the others are.
    let valid = write_file(directory.path(), "valid.yaml", "name: a\n");
    let nothing = write_file(directory.path(), "nothing.yaml", "");
    let output = plimsoll(&["check", "no-such-file.yaml", &nothing, &valid]);
    assert_eq!(output.status.code(), Some(2));
    let lines = text(&output.stdout);
    assert!(
        lines.contains("nothing.yaml: the file is empty\n"),
        "{lines}"
    );
    assert!(
        lines.contains("valid.yaml: ok (cluster: a, round_robin)"),
        "{lines}"
    );
    let output = plimsoll(&["check", "--kind", "control", &empty]);
    assert_eq!(
        output.status.code(),
        Some(0),
        "an empty control plane configuration is valid"
    );
}

#[test]
fn every_fault_of_every_file_has_a_line() {
    let directory = tempfile::tempdir().unwrap();
    let services = "services:\n- {cluster: {name: orders}, mode: SHADO}\n\
                    - {cluster: {name: search, connect_timeot: 1s}, ramp: 150}\n";
    let services = write_file(directory.path(), "services.yaml", services);
    let main = "listen: 127.0.0.1:18001\nload_reporting: {interval: 5}\n\
                include: [services.yaml, missing.yaml]\n";
    let main = write_file(directory.path(), "control.yaml", main);
    let output = plimsoll(&["check", &main]);
    assert_eq!(output.status.code(), Some(1));
    let printed = text(&output.stdout);
    let lines: Vec<&str> = printed.lines().collect();
    for expected in [
        format!("{main}:2:28: load_reporting.interval: 5 has no unit; write for example"),
        format!("{main}:1:9: listen: 127.0.0.1:18001 is already the address of admin"),
        format!("{services}:2:35: services[0].mode: unknown value SHADO, expected one of ENFORCE"),
        format!("{services}:3:28: services[1].cluster.connect_timeot: unknown field, did you mean"),
        format!("{services}:3:55: services[1].ramp: 150 is not a percentage between 0 and 100"),
    ] {
        assert!(
            lines.iter().any(|line| line.starts_with(&expected)),
            "{expected:?} is missing:\n{printed}"
        );
    }
    assert!(
        printed.contains("missing.yaml: cannot be read"),
        "{printed}"
    );
    assert_eq!(lines.len(), 6, "{printed}");
}

#[test]
fn what_a_control_plane_cannot_use_is_a_fault() {
    let directory = tempfile::tempdir().unwrap();
    let check = |text_of: &str| {
        let file = write_file(directory.path(), "control.yaml", text_of);
        let output = plimsoll(&["check", &file]);
        (output.status.code(), text(&output.stdout))
    };
    let (code, output) = check("admin: 127.0.0.1:18000\n");
    assert_eq!(code, Some(1), "{output}");
    assert!(
        output.contains("control.yaml:1:8: admin: 127.0.0.1:18000 is already"),
        "{output}"
    );
    let (code, output) =
        check("listen: 127.0.0.1:1\ntls: {certificate: no.crt, private_key: no.key}\n");
    assert_eq!(code, Some(1), "{output}");
    assert!(output.contains("no.crt"), "{output}");
}

#[test]
fn our_own_envoy_bootstrap_is_valid() {
    let directory = tempfile::tempdir().unwrap();
    let printed = plimsoll(&["bootstrap", "envoy", "--zone", "a", "--id", "gateway-1"]);
    let file = write_file(directory.path(), "envoy.json", &text(&printed.stdout));
    let output = plimsoll(&["check", &file]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stdout));
    let output = text(&output.stdout);
    assert!(
        output.contains("bootstrap of an Envoy: node gateway-1 of fleet gateway in zone a"),
        "{output}"
    );
}

#[test]
fn the_examples_in_the_help_match_files() {
    let help = text(&plimsoll(&["check", "--help"]).stdout);
    assert!(
        help.contains("plimsoll check --json examples/*/*.yaml"),
        "{help}"
    );
    let shell = format!("{} check examples/*/*.yaml", env!("CARGO_BIN_EXE_plimsoll"));
    let output = Command::new("sh")
        .args(["-c", &shell])
        .current_dir(ROOT)
        .output()
        .unwrap();
    assert!(text(&output.stdout).contains("examples/control/control.yaml: ok"));
}

#[test]
fn the_configuration_in_the_help_of_the_proxy_is_valid() {
    let directory = tempfile::tempdir().unwrap();
    let help = text(&plimsoll(&["proxy", "--help"]).stdout);
    let (_, sample) = help.split_once("A configuration:\n").unwrap();
    let (sample, _) = sample.split_once("\n\n").unwrap();
    let wide = sample.lines().find(|line| line.chars().count() > 80);
    assert_eq!(wide, None, "a terminal would wrap it");
    let sample: String = sample
        .lines()
        .map(|line| format!("{}\n", &line[2..]))
        .collect();
    let file = write_file(directory.path(), "proxy.yaml", &sample);
    let output = plimsoll(&["check", &file]);
    assert_eq!(
        output.status.code(),
        Some(0),
        "{}\n{sample}",
        text(&output.stdout)
    );
}

#[test]
fn check_names_every_certificate_that_cannot_be_used() {
    let directory = tempfile::tempdir().unwrap();
    let file = write_file(
        directory.path(),
        "control.yaml",
        "services: []\n\
         tls: {certificate: /nowhere/tls.crt, private_key: /nowhere/tls.key}\n\
         relay: {address: 'a:1', tls: {ca: /nowhere/relay.crt}}\n\
         otlp: {endpoint: 'https://collector:4317', tls: {ca: /nowhere/otlp.crt}}\n",
    );
    let output = plimsoll(&["check", &file]);
    assert_eq!(output.status.code(), Some(1));
    let page = text(&output.stdout);
    for (position, field, certificate) in [
        ("2:6", "tls", "/nowhere/tls.crt"),
        ("3:30", "relay.tls", "/nowhere/relay.crt"),
        ("4:49", "otlp.tls", "/nowhere/otlp.crt"),
    ] {
        let start = format!("{file}:{position}: {field}: cannot use a certificate: ");
        let found = page.lines().find(|line| line.starts_with(&start));
        let line = found.unwrap_or_else(|| panic!("{start:?} is missing:\n{page}"));
        assert!(line.contains(certificate), "{line}");
    }
    assert_eq!(page.lines().count(), 3, "{page}");
}

#[test]
fn completions_cover_every_shell_and_command() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let output = plimsoll(&["completions", shell]);
        assert_eq!(output.status.code(), Some(0), "{shell}");
        let script = text(&output.stdout);
        for word in ["explain", "bootstrap", "log-format"] {
            assert!(script.contains(word), "{shell}: {word} is missing");
        }
    }
    assert_eq!(plimsoll(&["completions", "tcsh"]).status.code(), Some(2));
}

/// Starts a server that answers one request with `status` and `body`, and returns its path.
fn respond_once(status: &str, body: &str) -> (String, thread::JoinHandle<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let length = body.len();
    let response = format!("HTTP/1.1 {status}\r\ncontent-length: {length}\r\n\r\n{body}");
    let server = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut request = Vec::new();
        let mut buffer = [0; 1024];
        while !request.windows(4).any(|end| end == b"\r\n\r\n") {
            let read = stream.read(&mut buffer).unwrap();
            assert!(read > 0, "the request ended early");
            request.extend_from_slice(&buffer[..read]);
        }
        stream.write_all(response.as_bytes()).unwrap();
        text(&request).split(' ').nth(1).unwrap().to_owned()
    });
    (address, server)
}

fn document() -> String {
    let zone = json!({"locality": {"zone": "a"}, "healthy_hosts": 3, "hosts": 3, "load": 1.67,
                      "state": "LocalityDirect"});
    let clusters = ["orders", "search"].map(|name| json!({"cluster": name, "zones": [zone]}));
    json!({"title": "plimsoll control", "version": "9.9.9", "clusters": clusters}).to_string()
}

#[test]
fn top_once_prints_a_page() {
    let (address, server) = respond_once("200 OK", &document());
    let output = plimsoll(&["top", &format!("http://{address}/"), "--once"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert_eq!(server.join().unwrap(), "/dashboard/state");
    let page = text(&output.stdout);
    for part in [
        "plimsoll control 9.9.9",
        "orders",
        "search",
        "1.67  ████████│█████▍··",
    ] {
        assert!(page.contains(part), "{part:?} is missing:\n{page}");
    }
    assert!(!page.contains('\u{1b}'), "color is for terminals only");
}

#[test]
fn top_json_prints_the_document() {
    let (address, server) = respond_once("200 OK", &document());
    let output = plimsoll(&["top", &address, "--once", "--json", "--cluster", "search"]);
    server.join().unwrap();
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(document["clusters"].as_array().unwrap().len(), 1);
    assert_eq!(document["clusters"][0]["cluster"], "search");
    assert_eq!(document["clusters"][0]["zones"][0]["load"], 1.67);
}

#[test]
fn top_fails_for_a_cluster_that_does_not_exist() {
    for once in [&["--once"][..], &[]] {
        let (address, server) = respond_once("200 OK", &document());
        let args = [&["top", &address, "--cluster", "nope"], once].concat();
        let output = plimsoll(&args);
        server.join().unwrap();
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        assert!(output.stdout.is_empty(), "{args:?}");
        let error = text(&output.stderr);
        assert!(error.contains("\"nope\" is not a cluster"), "{error}");
        assert!(error.contains("known are orders, search"), "{error}");
    }
}

#[test]
fn top_explains_an_address_that_does_not_speak_http_1() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let server = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        // What an HTTP/2 server answers first: SETTINGS.
        stream.write_all(b"\0\0\0\x04\0\0\0\0\0").unwrap();
        let _ = stream.read(&mut [0; 1024]);
    });
    let output = plimsoll(&["top", &address, "--once"]);
    server.join().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let error = text(&output.stderr);
    assert!(error.contains("this may be the xDS address"), "{error}");
}

#[test]
fn top_names_the_address_that_does_not_answer() {
    let (address, server) = respond_once("404 Not Found", "");
    let output = plimsoll(&["top", &address, "--once"]);
    server.join().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let output = text(&output.stderr);
    assert!(
        output.contains(&address) && output.contains("404"),
        "{output}"
    );

    // Bound and closed again: connections to this port are refused.
    let closed = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let output = plimsoll(&["top", &closed.to_string(), "--once"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(output.stdout.is_empty());

    let output = plimsoll(&["top", "nonsense", "--once"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(
        text(&output.stderr).contains("HOST:PORT"),
        "{}",
        text(&output.stderr)
    );
}
