//! Restarts of `plimsoll proxy` under load: every process hands its sockets to the next one, and no
//! client of HTTP/1.1, HTTP/2 or WebSocket notices.

use std::io::{BufReader, Read as _};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{ChildStdout, Command};

use plimsoll_testing::Process;
use serde_json::{Value, json};

use crate::support::echo::Echo;
use crate::support::http2_load::Http2Load;
use crate::support::proxy::{Proxy, cluster, file, listener};
use crate::support::{peers, scratch, wait_until};

const PEER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/peers/restart_load.py");
const RESTARTS: u32 = 10;

fn start(directory: &Path, name: &str, args: &[&str]) -> (Process, BufReader<ChildStdout>) {
    let mut command = Command::new(peers().join("venv/bin/python"));
    command.arg(PEER).args(args);
    let mut process = Process::start(command, &directory.join(format!("{name}.log")));
    let stdout = process.child.stdout.take().unwrap();
    (process, BufReader::new(stdout))
}

fn line(from: &mut impl std::io::BufRead) -> String {
    let mut line = String::new();
    from.read_line(&mut line).unwrap();
    line.trim().to_owned()
}

fn config(websockets: SocketAddr) -> Value {
    let echo = Echo::start();
    let routes = json!([
        { "match": { "prefix": "/ws" }, "route": { "cluster": "websockets", "timeout": "0s" } },
        { "match": { "prefix": "/" }, "route": { "cluster": "echo" } },
    ]);
    let mut front = listener("front", &routes);
    let manager = &mut front["filter_chains"][0]["filters"][0]["typed_config"];
    manager["upgrade_configs"] = json!([{ "upgrade_type": "websocket" }]);
    let clusters = [
        cluster("echo", &[("zone-a", &[echo.address])]),
        cluster("websockets", &[("zone-a", &[websockets])]),
    ];
    file("zone-a", &[front], &clusters)
}

/// Gives the listener and the admin pages the ports that a first process got.
fn with_ports(mut config: Value, listener: SocketAddr, admin: SocketAddr) -> Value {
    let port = |address: &mut Value, port: u16| {
        address["address"]["socket_address"]["port_value"] = port.into();
    };
    port(&mut config["admin"], admin.port());
    let listeners = &mut config["static_resources"]["listeners"];
    port(&mut listeners[0], listener.port());
    config
}

#[test]
fn no_client_notices_ten_restarts() {
    let directory = scratch("restarts");
    let (_backend, mut output) = start(&directory, "websockets", &["serve"]);
    let port: u16 = line(&mut output).parse().unwrap();
    let config = config(([127, 0, 0, 1], port).into());
    let first = Proxy::start(&directory, "ports", &config);
    let (address, admin) = (first.listener("front"), first.admin);
    drop(first);
    let config = with_ports(config, address, admin);
    let mut proxy = Proxy::start(&directory, "proxy", &config);
    let port = address.port().to_string();
    let (mut load, mut output) = start(&directory, "load", &[&port, "200", "50"]);
    assert_eq!(line(&mut output), "started");
    let http2 = Http2Load::start(address, 20);
    for epoch in 1..=RESTARTS {
        let epoch = epoch.to_string();
        let args = ["--restart-epoch", &epoch, "--workers", "2"];
        let next = Proxy::start_with(&directory, "proxy", &config, &args);
        assert_eq!((next.listener("front"), next.admin), (address, admin));
        wait_until("the previous process has drained", || !proxy.is_alive());
        proxy = next;
    }
    let http2 = http2.stop();
    drop(load.child.stdin.take());
    let mut text = String::new();
    output.read_to_string(&mut text).unwrap();
    let result: Value = serde_json::from_str(&text).unwrap();
    eprintln!("{RESTARTS} restarts: {result}, HTTP/2: {http2:?}");
    assert_eq!(result["failures"], json!([]), "{result}");
    assert_eq!(http2.failures, [""; 0]);
    assert!(http2.connections > 20, "HTTP/2 connections move");
    for (kind, clients) in [("http1", 200), ("websocket", 50)] {
        let connections = result["connections"][kind].as_u64().unwrap();
        assert!(connections > clients, "{kind} connections move: {result}");
    }
}
