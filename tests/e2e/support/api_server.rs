//! A Kubernetes API server with its etcd on loopback, and requests to it.
//!
//! It is the API machinery of Kubernetes that `scripts/deps.sh test-kubernetes` builds
//! (`peers/kubernetes/apiserver`), or with `KUBEBUILDER_ASSETS` the kube-apiserver in that
//! directory, by the convention of envtest. The latter checks RBAC; requests of tests are those of
//! an administrator, those of the control plane have a token of its service account.

mod kube;

use std::fs;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::Command;

use plimsoll_testing::{Authority, Process, etcd, free_address, kubectl, repository, target};
use serde_json::{Value, json};

use super::{wait_for, wait_until};

/// Variable with the directory of `kube-apiserver`, `etcd` and `kubectl`.
const ASSETS: &str = "KUBEBUILDER_ASSETS";
/// Token of the tests themselves.
const ADMIN_TOKEN: &str = "administrator";

/// Running API server and etcd; killed when dropped.
pub(crate) struct ApiServer {
    pub(crate) address: SocketAddr,
    directory: PathBuf,
    arguments: Vec<String>,
    etcd_address: SocketAddr,
    /// Tokens that were issued so far.
    tokens: usize,
    server: Process,
    etcd: Process,
}

/// Answer of the API server.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) body: Value,
}

impl ApiServer {
    /// Starts both with additional arguments of the API server, such as its request limit.
    pub(crate) fn start(directory: &Path, arguments: &[&str]) -> Self {
        let (etcd_address, address) = (free_address(), free_address());
        let authority = Authority::named("kubernetes");
        fs::write(directory.join("ca.crt"), &authority.pem).unwrap();
        let (certificate, key) = authority.issue(&["127.0.0.1"]);
        fs::write(directory.join("apiserver.crt"), certificate).unwrap();
        fs::write(directory.join("apiserver.key"), key).unwrap();
        let etcd = start_etcd(directory, etcd_address);
        let mut all = shared_arguments(directory, address, etcd_address);
        all.extend(kind_arguments(directory));
        all.extend(arguments.iter().map(|argument| (*argument).to_owned()));
        let server = start_server(directory, &all);
        let api = Self {
            address,
            directory: directory.to_owned(),
            arguments: all,
            etcd_address,
            tokens: 0,
            server,
            etcd,
        };
        api.wait_until_ready();
        api.install_slices();
        api
    }

    /// Whether this is a kube-apiserver, with RBAC, defaults and validation.
    pub(crate) fn is_kube() -> bool {
        std::env::var_os(ASSETS).is_some()
    }

    /// Returns an address of this machine that slices may have: a kube-apiserver refuses loopback.
    /// Packets to it do not leave the machine.
    pub(crate) fn endpoint_address() -> IpAddr {
        if !Self::is_kube() {
            return Ipv4Addr::LOCALHOST.into();
        }
        // Connecting a UDP socket sends nothing, but chooses the address of this side.
        let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
        let connected = socket
            .connect("192.0.2.1:9")
            .and_then(|()| socket.local_addr());
        connected
            .expect("this machine has an address beside loopback")
            .ip()
    }

    /// Runs kubectl as an administrator, in the root of the repository.
    pub(crate) fn kubectl(&self, arguments: &[&str]) -> std::process::Output {
        let asset = assets().join("kubectl");
        Command::new(if asset.is_file() { asset } else { kubectl() })
            .arg(format!("--server=https://{}", self.address))
            .arg(format!("--certificate-authority={}", self.ca_file()))
            .arg(format!("--token={ADMIN_TOKEN}"))
            .arg(format!(
                "--cache-dir={}",
                self.directory.join("cache").display()
            ))
            .args(arguments)
            .current_dir(repository())
            .env("KUBECONFIG", "/dev/null")
            .output()
            .unwrap_or_else(|error| panic!("kubectl: {error}"))
    }

    /// Returns the file of the authority that issued the server's certificate.
    pub(crate) fn ca_file(&self) -> String {
        self.directory.join("ca.crt").display().to_string()
    }

    /// Returns the file with the token of the control plane.
    pub(crate) fn token_file(&self) -> String {
        self.directory.join("token").display().to_string()
    }

    /// Issues a new token and writes it where the control plane reads it; returns it. `revoke`
    /// refuses all older ones from then on, as an expiry does.
    pub(crate) fn rotate_token(&mut self, revoke: bool) -> String {
        let file = self.directory.join("token");
        let token = if Self::is_kube() {
            self.issue_account_token(revoke)
        } else {
            self.tokens += 1;
            let token = format!("token-{}", self.tokens);
            let older = fs::read_to_string(&file).unwrap_or_default();
            let older = if revoke { "" } else { older.as_str() };
            write_tokens(&self.directory, &[older, &token]);
            token
        };
        let next = self.directory.join("token.next");
        fs::write(&next, &token).unwrap();
        fs::rename(next, file).unwrap();
        token
    }

    /// Kills the API server with SIGKILL; etcd keeps running.
    pub(crate) fn kill(&mut self) {
        self.server.kill();
    }

    /// Starts the API server again, on the same address.
    pub(crate) fn restart(&mut self) {
        self.server.kill();
        self.server = start_server(&self.directory, &self.arguments);
        self.wait_until_ready();
    }

    /// Removes the history of etcd: watches from an older version than now get 410.
    pub(crate) fn compact(&self) {
        let etcd = |path: &str, body: &Value| {
            let url = format!("http://{}/v3/{path}", self.etcd_address);
            let (status, answer) = curl(&["-X", "POST", "-d", &body.to_string(), &url]);
            assert_eq!(status, 200, "{answer}");
            answer
        };
        let range = etcd("kv/range", &json!({"key": "AA=="}));
        let revision = range["header"]["revision"].clone();
        etcd(
            "kv/compaction",
            &json!({"revision": revision, "physical": true}),
        );
    }

    /// Sends a request as an administrator.
    pub(crate) fn request(&self, method: &str, path: &str, body: Option<&Value>) -> Answer {
        self.request_as(ADMIN_TOKEN, method, path, body)
    }

    /// Sends a request with a token.
    pub(crate) fn request_as(
        &self,
        token: &str,
        method: &str,
        path: &str,
        body: Option<&Value>,
    ) -> Answer {
        let url = format!("https://{}{path}", self.address);
        let authorization = format!("Authorization: Bearer {token}");
        let ca = self.ca_file();
        let mut arguments = vec!["-X", method, "--cacert", &ca, "-H", &authorization];
        let text = body.map(ToString::to_string);
        let kind = if method == "PATCH" {
            "Content-Type: application/merge-patch+json"
        } else {
            "Content-Type: application/json"
        };
        if let Some(text) = &text {
            arguments.extend(["-H", kind, "-d", text]);
        }
        arguments.push(&url);
        let (status, body) = curl(&arguments);
        Answer { status, body }
    }

    /// Creates an object or replaces it.
    pub(crate) fn apply(&self, path: &str, object: &Value) {
        let created = self.request("POST", path, Some(object));
        if created.status == 201 {
            return;
        }
        assert_eq!(created.status, 409, "{created:?}");
        let name = object["metadata"]["name"].as_str().unwrap();
        let mut next = object.clone();
        let at = format!("{path}/{name}");
        let current = self.request("GET", &at, None).body;
        next["metadata"]["resourceVersion"] = current["metadata"]["resourceVersion"].clone();
        let replaced = self.request("PUT", &at, Some(&next));
        assert_eq!(replaced.status, 200, "{replaced:?}");
    }

    /// Deletes an object, which must exist.
    pub(crate) fn delete(&self, path: &str) {
        let answer = self.request("DELETE", path, None);
        assert_eq!(answer.status, 200, "{answer:?}");
    }

    /// Installs what the control plane needs: the definition of policies, and its rights if they
    /// are checked.
    pub(crate) fn install_control_plane(&self) {
        if !Self::is_kube() {
            return self.install_definition();
        }
        self.apply_overlay("deploy/kubernetes/overlays/single", &[]);
    }

    /// Installs the definition of policies, as `deploy/kubernetes/crd` has it.
    pub(crate) fn install_definition(&self) {
        let path = repository().join("deploy/kubernetes/crd/zoneroutingpolicies.yaml");
        self.install(&fs::read_to_string(path).unwrap());
    }

    /// Creates an object that is written in YAML; returns it.
    pub(crate) fn create_yaml(&self, path: &str, yaml: &str) -> Value {
        let url = format!("https://{}{path}", self.address);
        let authorization = format!("Authorization: Bearer {ADMIN_TOKEN}");
        let kind = "Content-Type: application/yaml";
        let headers = ["-H", &authorization, "-H", kind, "--data-binary", yaml];
        let ca = self.ca_file();
        let arguments = [&["--cacert", &*ca][..], &headers, &[&url]].concat();
        let (status, body) = curl(&arguments);
        assert_eq!(status, 201, "{body}");
        body
    }

    /// Creates a namespace unless it exists; only a kube-apiserver requires it.
    pub(crate) fn create_namespace(&self, name: &str) {
        if Self::is_kube() {
            let object =
                json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
            let created = self.request("POST", "/api/v1/namespaces", Some(&object));
            assert!(matches!(created.status, 201 | 409), "{created:?}");
        }
    }

    /// Installs a definition in YAML and waits until it is served.
    pub(crate) fn install(&self, yaml: &str) {
        const PATH: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
        let body = self.create_yaml(PATH, yaml);
        let name = body["metadata"]["name"].as_str().unwrap();
        let at = format!("{PATH}/{name}");
        let conditions = wait_for("the definition is established", || {
            let body = self.request("GET", &at, None).body;
            let conditions = body["status"]["conditions"].as_array()?.clone();
            let has = |kind: &str| {
                let mut all = conditions.iter();
                all.any(|one| one["type"] == kind && one["status"] == "True")
            };
            has("Established").then_some(conditions)
        });
        let violated =
            |one: &Value| one["type"] == "NonStructuralSchema" && one["status"] == "True";
        assert!(!conditions.iter().any(violated), "{conditions:?}");
    }

    fn wait_until_ready(&self) {
        wait_until("the API server is ready", || {
            let answer = self.request("GET", "/readyz", None);
            answer.status == 200
        });
    }
}

impl Drop for ApiServer {
    /// In this order: an API server without etcd logs errors until it ends.
    fn drop(&mut self) {
        self.server.kill();
        self.etcd.kill();
    }
}

fn assets() -> PathBuf {
    if let Some(assets) = std::env::var_os(ASSETS) {
        return assets.into();
    }
    let built = target().join("kubernetes");
    assert!(
        built.join("apiserver").is_file(),
        "there is no API server: run `make test-kubernetes`, or set {ASSETS}"
    );
    built
}

fn start_etcd(directory: &Path, client: SocketAddr) -> Process {
    let peer = free_address();
    let (program, data) = (assets().join("etcd"), directory.join("etcd"));
    let (client, peer) = (format!("http://{client}"), format!("http://{peer}"));
    let mut command = etcd(&program, &data, &client, &peer);
    command.args([
        "--initial-cluster",
        &format!("default={peer}"),
        "--unsafe-no-fsync",
        "--log-level=error",
    ]);
    Process::start(command, &directory.join("etcd.log"))
}

fn start_server(directory: &Path, arguments: &[String]) -> Process {
    let program = if ApiServer::is_kube() {
        "kube-apiserver"
    } else {
        "apiserver"
    };
    let mut command = Command::new(assets().join(program));
    command.args(arguments);
    Process::start(command, &directory.join("apiserver.log"))
}

fn shared_arguments(directory: &Path, address: SocketAddr, etcd: SocketAddr) -> Vec<String> {
    let file = |name: &str| directory.join(name).display().to_string();
    vec![
        format!("--etcd-servers=http://{etcd}"),
        "--bind-address=127.0.0.1".to_owned(),
        format!("--secure-port={}", address.port()),
        format!("--tls-cert-file={}", file("apiserver.crt")),
        format!("--tls-private-key-file={}", file("apiserver.key")),
    ]
}

/// Arguments that only one of both kinds of servers knows, with the files that they name.
fn kind_arguments(directory: &Path) -> Vec<String> {
    if ApiServer::is_kube() {
        return kube::arguments(directory);
    }
    write_tokens(directory, &[]);
    let tokens = directory.join("tokens");
    vec![format!("--token-file={}", tokens.display())]
}

/// Writes the tokens that the API machinery accepts, beside that of the tests.
fn write_tokens(directory: &Path, tokens: &[&str]) {
    let all = [&[ADMIN_TOKEN][..], tokens].concat();
    fs::write(directory.join("tokens"), all.join("\n")).unwrap();
}

/// Runs curl; returns the status, 0 if there was no response, and the body as JSON or text.
fn curl(arguments: &[&str]) -> (u16, Value) {
    let output = Command::new("curl")
        .args([
            "--silent",
            "--max-time",
            "30",
            "--write-out",
            "\n%{http_code}",
        ])
        .args(arguments)
        .output()
        .unwrap_or_else(|error| panic!("curl: {error}"));
    let text = String::from_utf8_lossy(&output.stdout);
    let (body, status) = text.rsplit_once('\n').unwrap_or(("", "0"));
    let json = serde_json::from_str(body).unwrap_or_else(|_| json!(body));
    (status.parse().unwrap_or(0), json)
}
