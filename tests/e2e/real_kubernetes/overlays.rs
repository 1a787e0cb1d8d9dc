//! A kube-apiserver accepts what the overlays install. The API machinery alone has no Deployments,
//! so that this is skipped without a kube-apiserver.

use crate::support::api_server::ApiServer;
use crate::support::scratch;

/// Overlays, with the namespace if it is chosen by the command.
const OVERLAYS: [(&str, Option<&str>); 8] = [
    ("single", None),
    ("replicas", None),
    ("mtls", None),
    ("replicas-mtls", None),
    ("envoy", None),
    ("sidecar", Some("shop")),
    ("gateway", Some("shop")),
    ("example", Some("shop")),
];
/// Stand for the definitions that cert-manager installs.
const CERT_MANAGER: [(&str, &str); 2] = [("Certificate", "certificates"), ("Issuer", "issuers")];

fn install_cert_manager(api: &ApiServer) {
    for (kind, plural) in CERT_MANAGER {
        let singular = kind.to_lowercase();
        api.install(&format!(
            "
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {{name: {plural}.cert-manager.io}}
spec:
  group: cert-manager.io
  scope: Namespaced
  names: {{kind: {kind}, plural: {plural}, singular: {singular}}}
  versions:
  - name: v1
    served: true
    storage: true
    schema: {{openAPIV3Schema: {{type: object, x-kubernetes-preserve-unknown-fields: true}}}}
"
        ));
    }
}

#[test]
#[ignore = "needs an API server: make test-kubernetes"]
fn overlays_are_accepted() {
    if !ApiServer::is_kube() {
        eprintln!("skipped: KUBEBUILDER_ASSETS is not set");
        return;
    }
    let api = ApiServer::start(&scratch("overlays"), &[]);
    for namespace in ["plimsoll-system", "shop"] {
        api.create_namespace(namespace);
    }
    install_cert_manager(&api);
    for (overlay, namespace) in OVERLAYS {
        if overlay == "sidecar" && !ApiServer::has_sidecar_containers() {
            eprintln!("skipped: sidecar containers need Kubernetes 1.29");
            continue;
        }
        let mut arguments = vec!["--dry-run=server"];
        if ApiServer::has_validation_rules() {
            // Older ones apply Services only if each port has a protocol.
            arguments.extend(["--server-side", "--force-conflicts"]);
        }
        arguments.extend(namespace.iter().flat_map(|name| ["--namespace", name]));
        api.apply_overlay(&format!("deploy/kubernetes/overlays/{overlay}"), &arguments);
    }
    // Compiled by the API server: a mistake in an expression is refused.
    api.apply_overlay("deploy/kubernetes/admission", &["--dry-run=server"]);
}
