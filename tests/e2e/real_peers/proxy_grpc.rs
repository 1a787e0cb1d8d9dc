//! gRPC through `plimsoll proxy`, between a C-core client and a C-core server (Python).

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

use plimsoll_testing::Process;
use serde_json::{Value, json};

use crate::support::proxy::{Proxy, cluster, file, listener};
use crate::support::{certificate, peers, scratch};

const PEER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/peers/grpc_interop.py");

#[test]
fn every_kind_of_call_succeeds() {
    let directory = scratch("proxy-grpc");
    let (_server, backend) = serve(&directory);
    let (authority, tls) = certificate::issue(&directory);
    let routes = json!([
        { "match": { "prefix": "/plimsoll.test.Interop/", "grpc": {} },
          "route": { "cluster": "grpc", "timeout": "0s" } },
    ]);
    let mut secured = listener("secured", &routes);
    secured["filter_chains"][0]["transport_socket"] = tls;
    let mut upstream = cluster("grpc", &[("zone-a", &[backend])]);
    upstream["http2_protocol_options"] = json!({});
    let config = file(
        "zone-a",
        &[listener("plain", &routes), secured],
        &[upstream],
    );
    let proxy = Proxy::start(&directory, "proxy", &config);

    let plain = call(&directory, &proxy.listener("plain").to_string(), None);
    assert_outcomes(&plain);
    let name = format!("localhost:{}", proxy.listener("secured").port());
    let secured = call(&directory, &name, Some(&authority));
    assert_outcomes(&secured);
}

#[test]
fn an_unreachable_server_is_unavailable() {
    let directory = scratch("proxy-grpc-gone");
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = closed.local_addr().unwrap();
    drop(closed);
    let mut upstream = cluster("grpc", &[("zone-a", &[address])]);
    upstream["http2_protocol_options"] = json!({});
    let routes = json!([{ "match": { "prefix": "/" }, "route": { "cluster": "grpc" } }]);
    let config = file("zone-a", &[listener("plain", &routes)], &[upstream]);
    let proxy = Proxy::start(&directory, "proxy", &config);
    let mut command = python();
    command.args(["fail", &proxy.listener("plain").to_string()]);
    let outcome = output(command, &directory);
    assert_eq!(outcome["code"], "UNAVAILABLE", "{outcome}");
    let details = outcome["details"].as_str().unwrap();
    assert!(details.contains("connection failure"), "{details}");
}

fn assert_outcomes(outcomes: &Value) {
    let expected = json!({
        "reply": "hello",
        "initial": "where, to?",
        "trailing": [0, 255, 16],
        "code": "OK",
    });
    assert_eq!(outcomes["unary"], expected);
    assert_eq!(outcomes["empty_message"], "");
    assert_eq!(outcomes["large_message"], true);
    let numbers: Vec<u64> = (0..1000).collect();
    assert_eq!(outcomes["server_stream"], json!(numbers));
    assert_eq!(outcomes["client_stream"], 499_500);
    let words: Vec<_> = (0..100).map(|number| format!("WORD-{number}")).collect();
    assert_eq!(outcomes["both_streams"], json!(words));
    let failure = json!({
        "code": "FAILED_PRECONDITION",
        "details": "not today, señor: 100 %",
        "why": "because",
    });
    assert_eq!(outcomes["failure"], failure);
    let late = &outcomes["failure_after_a_message"];
    assert_eq!(late["replies"], json!(["one"]), "{late}");
    assert_eq!(late["code"], "DATA_LOSS", "{late}");
    assert_eq!(late["details"], "the rest is lost", "{late}");
    assert_eq!(outcomes["unknown_method"]["code"], "UNIMPLEMENTED");
    assert_eq!(outcomes["no_route"]["code"], "UNIMPLEMENTED");
    let deadline = json!({ "code": "DEADLINE_EXCEEDED", "server_saw_it": "yes" });
    assert_eq!(outcomes["deadline"], deadline);
    assert_eq!(outcomes["cancelled"], "CANCELLED");
    assert_eq!(outcomes["many_at_once"], 19_900);
}

/// Starts a C-core server and returns its address.
fn serve(directory: &Path) -> (Process, SocketAddr) {
    let mut command = python();
    command.arg("serve");
    let mut process = Process::start(command, &directory.join("server.log"));
    let mut line = String::new();
    let stdout = process.child.stdout.take().unwrap();
    BufReader::new(stdout).read_line(&mut line).unwrap();
    let port: u16 = line.trim().parse().unwrap();
    (process, SocketAddr::from(([127, 0, 0, 1], port)))
}

/// Runs a C-core client and returns the results of its calls.
fn call(directory: &Path, target: &str, authority: Option<&Path>) -> Value {
    let mut command = python();
    command.args(["call", target]).args(authority);
    output(command, directory)
}

fn output(command: Command, directory: &Path) -> Value {
    let mut process = Process::start(command, &directory.join("client.log"));
    let mut line = String::new();
    let stdout = process.child.stdout.take().unwrap();
    BufReader::new(stdout).read_line(&mut line).unwrap();
    serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line:?}"))
}

fn python() -> Command {
    let mut command = Command::new(peers().join("venv/bin/python"));
    command.arg(PEER);
    command
}
