//! [`Consul`]: an agent of Consul on loopback, in developer mode: a server whose data is in memory.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::process::Signal;
use serde_json::{Value, json};

use super::http::Connection;
use super::{Process, free_address, peers, wait_for, wait_until};

/// Addresses that a start may find in use.
const ATTEMPTS: usize = 5;

/// Running agent; killed when dropped.
#[derive(Debug)]
pub struct Consul {
    process: Process,
    directory: PathBuf,
    config: Value,
    token: Option<String>,
}

impl Consul {
    /// Starts an agent with these settings beside its addresses, and waits for its leader.
    ///
    /// # Panics
    /// If it is not installed, or does not start.
    pub fn start(directory: &Path, settings: &Value) -> Self {
        let master = settings["acl"]["tokens"]["master"].as_str();
        let token = master.map(str::to_owned);
        let directory = directory.to_owned();
        for _ in 0..ATTEMPTS {
            let config = config(settings);
            let process = start(&directory, &config);
            let mut agent = Self {
                process,
                directory: directory.clone(),
                config,
                token: token.clone(),
            };
            if agent.wait_for_leader() {
                return agent;
            }
        }
        panic!(
            "Consul found no free addresses, see {}",
            directory.display()
        );
    }

    /// Returns the address of the HTTP API.
    pub fn http(&self) -> SocketAddr {
        self.address("http")
    }

    /// Returns the address of one of its ports, as its configuration names them.
    pub fn address(&self, port: &str) -> SocketAddr {
        let port = self.config["ports"][port].as_u64();
        let port = port.and_then(|port| port.try_into().ok()).unwrap();
        SocketAddr::from(([127, 0, 0, 1], port))
    }

    /// Sends a PUT request, and returns the body of its answer.
    ///
    /// # Panics
    /// If it has no success.
    pub fn put(&self, path: &str, body: &Value) -> String {
        let (status, body) = self.request("PUT", path, body).unwrap();
        assert_eq!(status, 200, "{path}: {body}");
        body
    }

    /// Registers an instance of a service, with `more` fields.
    pub fn register(&self, service: &str, id: &str, address: SocketAddr, more: Value) {
        let mut body = json!({
            "Name": service, "ID": id, "Address": address.ip().to_string(), "Port": address.port(),
        });
        if let (Some(fields), Value::Object(more)) = (body.as_object_mut(), more) {
            fields.extend(more);
        }
        self.put("/v1/agent/service/register", &body);
    }

    /// Removes an instance that was registered with this id.
    pub fn deregister(&self, id: &str) {
        self.put(&format!("/v1/agent/service/deregister/{id}"), &json!(null));
    }

    /// Kills the agent, which loses its data.
    pub fn kill(&mut self) {
        self.process.kill();
    }

    /// Starts a killed agent at the same addresses, without data.
    ///
    /// # Panics
    /// If it does not start.
    pub fn restart(&mut self) {
        self.process = start(&self.directory, &self.config);
        assert!(self.wait_for_leader(), "Consul did not start again");
    }

    pub fn signal(&self, signal: Signal) {
        self.process.signal(signal);
    }

    /// Waits until `other`, of another datacenter, is known.
    pub fn wait_for_datacenter(&self, name: &str) {
        wait_until(&format!("datacenter {name} is known"), || {
            let path = format!("/v1/catalog/nodes?dc={name}");
            let answer = self.request("GET", &path, &json!(null));
            answer.is_some_and(|(status, _)| status == 200)
        });
    }

    /// Returns whether it has a leader and knows itself; not if it exited.
    fn wait_for_leader(&mut self) -> bool {
        wait_for("Consul has a leader", || {
            if !self.process.is_alive() {
                return Some(false);
            }
            let (_, nodes) = self.request("GET", "/v1/catalog/nodes", &json!(null))?;
            nodes.contains("\"Node\"").then_some(true)
        })
    }

    fn request(&self, method: &str, path: &str, body: &Value) -> Option<(u16, String)> {
        let body = if body.is_null() {
            String::new()
        } else {
            body.to_string()
        };
        let token = self.token.as_ref();
        let token = token.map_or_else(String::new, |token| format!("x-consul-token: {token}\r\n"));
        let head = format!(
            "{method} {path} HTTP/1.1\r\nhost: test\r\nconnection: close\r\n{token}\
             content-length: {}\r\n\r\n{body}",
            body.len()
        );
        let mut connection = Connection::open(self.http()).ok()?;
        let (status, body) = connection.request(&head).ok()?;
        Some((status, String::from_utf8(body).unwrap()))
    }
}

fn config(settings: &Value) -> Value {
    let port = || free_address().port();
    let mut config = json!({
        "bind_addr": "127.0.0.1", "log_level": "warn", "disable_update_check": true,
        "ports": {"dns": port(), "grpc": -1, "http": port(), "serf_lan": port(), "serf_wan": port(),
                  "server": port(), "https": port()},
    });
    // Without certificates, an agent does not open this port.
    if settings.get("cert_file").is_none() {
        config["ports"]["https"] = json!(-1);
    }
    let fields = config.as_object_mut().unwrap();
    fields.extend(settings.as_object().unwrap().clone());
    config
}

fn start(directory: &Path, config: &Value) -> Process {
    let file = directory.join("consul.json");
    fs::write(&file, config.to_string()).unwrap();
    let mut command = Command::new(peers().join("consul/consul"));
    command.args(["agent", "-dev", "-config-file"]).arg(&file);
    Process::start(command, &directory.join("consul.log"))
}
