//! The small commands from outside: `check`, `completions` and `top`.
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

fn written(directory: &Path, name: &str, content: &str) -> String {
    let path = directory.join(name);
    fs::write(&path, content).unwrap();
    path.display().to_string()
}

#[test]
fn shipped_files_are_fine_and_recognized() {
    let mut files = vec![("examples/control/control.yaml".to_owned(), "control")];
    for (folder, ending, kind) in [
        ("examples/explain", "yaml", "explain"),
        ("crates/plimsoll-sim/scenarios", "toml", "sim"),
        ("examples/control/services.d", "yaml", "control"),
    ] {
        for entry in fs::read_dir(Path::new(ROOT).join(folder)).unwrap() {
            let name = entry.unwrap().file_name().into_string().unwrap();
            if name.ends_with(ending) {
                files.push((format!("{folder}/{name}"), kind));
            }
        }
    }
    assert!(files.len() > 40, "only {} files were found", files.len());
    let mut args = vec!["check", "--json"];
    args.extend(files.iter().map(|(file, _)| file.as_str()));
    let output = plimsoll(&args);
    let verdicts: Vec<Value> = serde_json::from_slice(&output.stdout).unwrap();
    for ((file, kind), verdict) in files.iter().zip(&verdicts) {
        assert_eq!(verdict["file"], json!(file));
        assert_eq!(verdict["kind"], json!(kind), "{verdict}");
        assert_eq!(verdict["fine"], json!(true), "{verdict}");
    }
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(verdicts.len(), files.len());
}

#[test]
fn our_own_bootstrap_is_fine() {
    let directory = tempfile::tempdir().unwrap();
    let made = plimsoll(&["bootstrap", "grpc", "--zone", "a"]);
    let file = written(directory.path(), "bootstrap.json", &text(&made.stdout));
    let output = plimsoll(&["check", &file]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stdout));
    let said = text(&output.stdout);
    assert!(
        said.contains("bootstrap of a gRPC client: management server"),
        "{said}"
    );
}

#[test]
fn a_fault_is_named_with_path_and_place_and_ends_with_1() {
    let directory = tempfile::tempdir().unwrap();
    let fine = written(
        directory.path(),
        "fine.yaml",
        "name: a\nlb_policy: RANDOM\n",
    );
    let bad = "services:\n- cluster: {name: orders}\n  rampe: 10\n";
    let included = written(directory.path(), "orders.yaml", bad);
    let main = written(directory.path(), "control.yaml", "include: [orders.yaml]\n");
    let output = plimsoll(&["check", &fine, &main]);
    assert_eq!(output.status.code(), Some(1));
    let said = text(&output.stdout);
    assert!(
        said.contains("fine.yaml: fine (cluster: a, random)"),
        "{said}"
    );
    let fault = format!("{main}: not fine (control plane): {included}: services[0].rampe");
    assert!(said.contains(&fault), "{said}");
    assert!(said.trim_end().ends_with("(at 3:3)"), "{said}");

    let output = plimsoll(&["check", "--json", &main]);
    assert_eq!(output.status.code(), Some(1));
    let verdict: Value = serde_json::from_slice(&output.stdout).unwrap();
    let fault = &verdict[0]["fault"];
    assert_eq!(fault["path"], "services[0].rampe");
    assert_eq!((&fault["line"], &fault["column"]), (&json!(3), &json!(3)));
    assert_eq!(fault["file"], json!(included));
}

#[test]
fn a_heartbeat_that_lets_demand_go_stale_is_a_fault() {
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
        let file = written(directory.path(), "control.yaml", &main(heartbeat));
        let output = plimsoll(&["check", &file]);
        (output.status.code(), text(&output.stdout))
    };
    let (code, said) = check("heartbeat: 6s");
    assert_eq!(code, Some(1), "{said}");
    assert!(
        said.contains("demand.heartbeat: 6s is too long for service orders"),
        "{said}"
    );
    assert!(said.contains("at most 5s (at 1:"), "{said}");
    assert_eq!(check("heartbeat: 5s").0, Some(0));
    let (code, said) = check("");
    assert_eq!(code, Some(0), "the default follows the services: {said}");
}

#[test]
fn what_cannot_be_told_ends_with_2() {
    let directory = tempfile::tempdir().unwrap();
    let empty = written(directory.path(), "empty.yaml", "{}\n");
    for (args, reason) in [
        (&["check"][..], "<FILE>"),
        (&["check", &empty], "--kind"),
        (&["check", "no-such-file.yaml"], "no-such-file.yaml"),
        (&["check", "--kind", "nonsense", &empty], "nonsense"),
    ] {
        let output = plimsoll(args);
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        assert!(
            text(&output.stderr).contains(reason),
            "{}",
            text(&output.stderr)
        );
    }
    let output = plimsoll(&["check", "--kind", "control", &empty]);
    assert_eq!(
        output.status.code(),
        Some(0),
        "an empty control plane is one"
    );
}

#[test]
fn every_shell_gets_completions_of_every_command() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let output = plimsoll(&["completions", shell]);
        assert_eq!(output.status.code(), Some(0), "{shell}");
        let script = text(&output.stdout);
        for word in ["explain", "bootstrap", "log-format"] {
            assert!(script.contains(word), "{shell} lacks {word}");
        }
    }
    assert_eq!(plimsoll(&["completions", "tcsh"]).status.code(), Some(2));
}

/// Answers one request with `status` and `body`; says which path was asked for.
fn answer_once(status: &str, body: &str) -> (String, thread::JoinHandle<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let length = body.len();
    let answer = format!("HTTP/1.1 {status}\r\ncontent-length: {length}\r\n\r\n{body}");
    let server = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut request = Vec::new();
        let mut buffer = [0; 1024];
        while !request.windows(4).any(|end| end == b"\r\n\r\n") {
            let read = stream.read(&mut buffer).unwrap();
            assert!(read > 0, "the request ended early");
            request.extend_from_slice(&buffer[..read]);
        }
        stream.write_all(answer.as_bytes()).unwrap();
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
fn top_shows_a_page_once() {
    let (address, server) = answer_once("200 OK", &document());
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
    assert!(
        !page.contains('\u{1b}'),
        "colour belongs on a terminal only"
    );
}

#[test]
fn top_prints_the_document_for_programs() {
    let (address, server) = answer_once("200 OK", &document());
    let output = plimsoll(&["top", &address, "--once", "--json", "--cluster", "search"]);
    server.join().unwrap();
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(document["clusters"].as_array().unwrap().len(), 1);
    assert_eq!(document["clusters"][0]["cluster"], "search");
    assert_eq!(document["clusters"][0]["zones"][0]["load"], 1.67);
}

#[test]
fn top_says_who_does_not_answer() {
    let (address, server) = answer_once("404 Not Found", "");
    let output = plimsoll(&["top", &address, "--once"]);
    server.join().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let said = text(&output.stderr);
    assert!(said.contains(&address) && said.contains("404"), "{said}");

    // Bound and closed again: nobody listens there.
    let nobody = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let output = plimsoll(&["top", &nobody.to_string(), "--once"]);
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
