//! What only a kube-apiserver has: flags and kinds that depend on its version, tokens of service
//! accounts, and the controller of EndpointSlices.
//!
//! All flags exist in 1.20 as well as in 1.36, unless a version is given here.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::OnceLock;

use plimsoll_testing::Process;
use serde_json::{Value, json};

use super::{ADMIN_TOKEN, ApiServer, assets};
use crate::support::wait_until;

const ACCOUNTS: &str = "/api/v1/namespaces/plimsoll-system/serviceaccounts";
const ACCOUNT: &str = "plimsoll-control";

/// First minor version with `discovery.k8s.io/v1` and `policy/v1`.
const WITH_STABLE_KINDS: u32 = 21;
/// First minor version that evaluates `x-kubernetes-validations` of definitions, and refuses
/// unknown fields itself (`fieldValidation`).
const WITH_VALIDATION_RULES: u32 = 25;
/// First minor version in which names of controllers end with `-controller`.
const WITH_LONG_CONTROLLER_NAMES: u32 = 28;
/// First minor version with sidecar containers: init containers with probes.
const WITH_SIDECAR_CONTAINERS: u32 = 29;

/// An older API server has `discovery.k8s.io/v1beta1` only, which is turned off: this custom
/// resource takes its place. Lists and watches are real, defaults and validation are not.
const SLICES: &str = "
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  name: endpointslices.discovery.k8s.io
  annotations: {api-approved.kubernetes.io: 'unapproved, for tests'}
spec:
  group: discovery.k8s.io
  scope: Namespaced
  names: {kind: EndpointSlice, plural: endpointslices, singular: endpointslice}
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
";

/// Returns the minor version of the kube-apiserver: 36 of 1.36.
fn minor_version() -> u32 {
    static VERSION: OnceLock<u32> = OnceLock::new();
    *VERSION.get_or_init(|| {
        let program = assets().join("kube-apiserver");
        let output = Command::new(&program)
            .arg("--version")
            .output()
            .unwrap_or_else(|error| panic!("{} --version: {error}", program.display()));
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let minor = text.trim().strip_prefix("Kubernetes v1.");
        let digits = minor.and_then(|rest| rest.split('.').next());
        let parsed = digits.and_then(|digits| digits.parse().ok());
        parsed.unwrap_or_else(|| panic!("{} --version: {text:?}", program.display()))
    })
}

/// Writes the keys of service accounts and returns the arguments of the kube-apiserver.
pub(super) fn arguments(directory: &Path) -> Vec<String> {
    let file = |name: &str| directory.join(name).display().to_string();
    let key = rcgen::KeyPair::generate().unwrap();
    fs::write(directory.join("account.key"), key.serialize_pem()).unwrap();
    // The public key is not read from a private one in PKCS #8.
    fs::write(directory.join("account.pub"), key.public_key_pem()).unwrap();
    let administrator = format!("{ADMIN_TOKEN},admin,1,\"system:masters\"\n");
    fs::write(directory.join("tokens.csv"), administrator).unwrap();
    let mut arguments = vec![
        format!("--token-auth-file={}", file("tokens.csv")),
        "--authorization-mode=Node,RBAC".to_owned(),
        "--service-account-issuer=https://kubernetes.default.svc".to_owned(),
        format!("--service-account-key-file={}", file("account.pub")),
        format!("--service-account-signing-key-file={}", file("account.key")),
        "--service-cluster-ip-range=10.96.0.0/16".to_owned(),
        // Of the Service `kubernetes`: loopback is refused in endpoints.
        format!("--advertise-address={}", ApiServer::endpoint_address()),
        // Pods need a service account, which a controller would create.
        "--disable-admission-plugins=ServiceAccount".to_owned(),
    ];
    if minor_version() < WITH_STABLE_KINDS {
        arguments.push("--runtime-config=discovery.k8s.io/v1beta1=false".to_owned());
    }
    arguments
}

impl ApiServer {
    /// Whether the API server evaluates the rules of definitions and reports unknown fields. The
    /// API machinery does.
    pub(crate) fn has_validation_rules() -> bool {
        !Self::is_kube() || minor_version() >= WITH_VALIDATION_RULES
    }

    /// Whether this is a kube-apiserver with sidecar containers.
    pub(crate) fn has_sidecar_containers() -> bool {
        Self::is_kube() && minor_version() >= WITH_SIDECAR_CONTAINERS
    }

    /// Installs EndpointSlices if this version has them not.
    pub(super) fn install_slices(&self) {
        if Self::is_kube() && minor_version() < WITH_STABLE_KINDS {
            self.install(SLICES);
        }
    }

    /// Applies an overlay with kubectl. For a version without some of its kinds and fields, the
    /// older kinds are used, and fields that the server does not know are left to it.
    pub(crate) fn apply_overlay(&self, overlay: &str, arguments: &[&str]) {
        let applied = if Self::has_validation_rules() {
            self.kubectl(&[&["apply"], arguments, &["-k", overlay]].concat())
        } else {
            let built = self.kubectl(&["kustomize", overlay]);
            assert!(built.status.success(), "{overlay}: {built:?}");
            let text = String::from_utf8(built.stdout).unwrap();
            let older = text.replace("apiVersion: policy/v1\n", "apiVersion: policy/v1beta1\n");
            let file = self.directory.join("overlay.yaml");
            fs::write(&file, older).unwrap();
            let file = file.display().to_string();
            self.kubectl(&[&["apply", "--validate=false"], arguments, &["-f", &file]].concat())
        };
        let errors = String::from_utf8_lossy(&applied.stderr);
        assert!(applied.status.success(), "{overlay}: {errors}");
    }

    /// Issues a token of the control plane's service account, as the kubelet does for a pod.
    /// Revoking replaces the account: tokens are those of an object, not of its name.
    pub(super) fn issue_account_token(&self, revoke: bool) -> String {
        self.create_namespace("plimsoll-system");
        let account = json!({"apiVersion": "v1", "kind": "ServiceAccount",
                             "metadata": {"name": ACCOUNT, "namespace": "plimsoll-system"}});
        if revoke {
            self.delete(&format!("{ACCOUNTS}/{ACCOUNT}"));
        }
        let created = self.request("POST", ACCOUNTS, Some(&account));
        assert!(matches!(created.status, 201 | 409), "{created:?}");
        let request = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
                             "spec": {"expirationSeconds": 3600}});
        let path = format!("{ACCOUNTS}/{ACCOUNT}/token");
        let issued = self.request("POST", &path, Some(&request));
        assert_eq!(issued.status, 201, "{issued:?}");
        issued.body["status"]["token"].as_str().unwrap().to_owned()
    }

    /// Whether there is a kube-controller-manager that writes slices of the version `v1`.
    pub(crate) fn has_slice_controller() -> bool {
        let program = assets().join("kube-controller-manager");
        Self::is_kube() && minor_version() >= WITH_STABLE_KINDS && program.is_file()
    }

    /// Starts the controller of EndpointSlices.
    pub(crate) fn start_slice_controller(&self) -> Process {
        let kubeconfig = self.directory.join("controller.kubeconfig");
        fs::write(&kubeconfig, self.kubeconfig(ADMIN_TOKEN).to_string()).unwrap();
        let controller = if minor_version() < WITH_LONG_CONTROLLER_NAMES {
            "endpointslice"
        } else {
            "endpointslice-controller"
        };
        let mut command = Command::new(assets().join("kube-controller-manager"));
        command.arg(format!("--kubeconfig={}", kubeconfig.display()));
        command.args([
            &format!("--controllers={controller}"),
            "--leader-elect=false",
            "--secure-port=0",
        ]);
        let log = self.directory.join("controller.log");
        Process::start(command, &log)
    }

    /// Waits until a token is refused; the API server remembers accepted ones for ten seconds.
    pub(crate) fn wait_until_refused(&self, token: &str) {
        wait_until("the token is refused", || {
            self.request_as(token, "GET", "/apis", None).status == 401
        });
    }

    /// Returns a kubeconfig with a token.
    pub(crate) fn kubeconfig(&self, token: &str) -> Value {
        json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "test",
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
            "clusters": [{"name": "test", "cluster": {
                "server": format!("https://{}", self.address),
                "certificate-authority": self.ca_file()}}],
            "users": [{"name": "test", "user": {"token": token}}],
        })
    }
}
