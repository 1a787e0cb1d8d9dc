//! Real gRPC clients (C-core) reach backends by TLS with the certificate providers of their
//! bootstrap, as the file of the control plane says (gRFC A29, A65): they verify the authority and
//! the name of a backend, and present a certificate of their own.

use plimsoll_testing::Authority;
use serde_json::json;

use crate::support::control::Control;
use crate::support::grpc::Peer;
use crate::support::{scratch, wait_until};

#[test]
fn clients_verify_backends_and_present_their_certificate() {
    let directory = scratch("grpc-tls");
    let authority = Authority::named("backends");
    let write = |name: &str, text: &str| std::fs::write(directory.join(name), text).unwrap();
    write("ca.crt", &authority.pem);
    for (name, names) in [
        ("server", ["127.0.0.1", "spiffe://td/orders"]),
        ("client", ["localhost", "spiffe://td/checkout"]),
    ] {
        let (certificate, key) = authority.issue(&names);
        write(&format!("{name}.crt"), &certificate);
        write(&format!("{name}.key"), &key);
    }
    let (_server, port) = Peer::serve_tls(&directory, "zone-a");
    let path = |name: &str| directory.join(name).display().to_string();
    let watcher = |config| json!({ "plugin_name": "file_watcher", "config": config });
    let providers = json!({
        "backends": watcher(json!({ "ca_certificate_file": path("ca.crt") })),
        "own": watcher(json!({
            "certificate_file": path("client.crt"),
            "private_key_file": path("client.key"),
        })),
    });
    let control = Control::start(&directory, &config(port, "spiffe://td/orders"));
    let start = |zone| Peer::call_tls(&directory, &control, zone, 50, providers.clone());
    let mut client = start("zone-a");
    wait_until("calls are answered", || {
        client.counts().get("zone-a") >= Some(&100)
    });
    assert_eq!(client.counts().get(""), None, "failed calls");
    assert_eq!(
        control.type_status("checkout-zone-a", "Cluster")["nacks"],
        0
    );

    control.edit(&config(port, "spiffe://td/carts"));
    wait_until("the edit is in force", || {
        control.metric("config_reloads_total{result=\"ok\"}") > 0
    });
    // It has no connection from before.
    let mut refused = start("zone-b");
    wait_until("calls to a backend with another name fail", || {
        refused.counts().get("") >= Some(&2)
    });
    assert_eq!(refused.counts().get("zone-a"), None, "answered calls");
}

fn config(port: u16, name: &str) -> String {
    let context = "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3";
    format!(
        "services:
- cluster:
    name: orders
    transport_socket:
      name: envoy.transport_sockets.tls
      typed_config:
        '@type': {context}.UpstreamTlsContext
        common_tls_context:
          tls_certificate_provider_instance: {{instance_name: own}}
          validation_context:
            ca_certificate_provider_instance: {{instance_name: backends}}
            match_typed_subject_alt_names:
            - {{san_type: URI, matcher: {{exact: '{name}'}}}}
  endpoints:
  - {{locality: {{region: r1, zone: zone-a}}, lb_endpoints: ['127.0.0.1:{port}']}}
"
    )
}
