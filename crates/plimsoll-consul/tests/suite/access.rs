//! ACL tokens, and TLS.

use std::fs;

use plimsoll_consul::ConsulAccess;
use plimsoll_serve::PemSource;
use plimsoll_serve::http_client::HttpServer;
use plimsoll_testing::{Authority, Consul};
use serde_json::{Value, json};

use crate::watched::{Watched, host, options};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_token_is_needed_and_losing_it_removes_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let (certificate, key) = Authority::new().issue(&["127.0.0.1"]);
    let path = |name: &str| directory.path().join(name);
    let authority = Authority::new();
    let (own, own_key) = authority.issue(&["consul.example"]);
    for (name, text) in [
        ("ca.pem", &authority.pem),
        ("cert.pem", &own),
        ("key.pem", &own_key),
        ("other.pem", &certificate),
        ("other-key.pem", &key),
    ] {
        fs::write(path(name), text).unwrap();
    }
    let agent = Consul::start(
        directory.path(),
        &json!({
            "acl": {"enabled": true, "default_policy": "deny", "tokens": {"master": "root"}},
            "cert_file": path("cert.pem"), "key_file": path("key.pem"), "ca_file": path("ca.pem"),
        }),
    );
    agent.register("orders", "o1", host(1), json!({}));
    let rules = "service_prefix \"\" { policy = \"read\" } node_prefix \"\" { policy = \"read\" }";
    let policy = json!({"Name": "plimsoll", "Rules": rules});
    agent.put("/v1/acl/policy", &policy);
    let created = agent.put(
        "/v1/acl/token",
        &json!({"Policies": [{"Name": "plimsoll"}]}),
    );
    let token: Value = serde_json::from_str(&created).unwrap();
    let secret = token["SecretID"].as_str().unwrap();
    let token_file = path("token");
    fs::write(&token_file, "00000000-0000-0000-0000-000000000007").unwrap();

    let access = |ca: &str, name: &str| {
        let address = format!("https://{}", agent.address("https"));
        let ca = Some(PemSource::File(path(ca)));
        let server = HttpServer::parse(&address, ca, None).unwrap();
        ConsulAccess {
            server: HttpServer {
                server_name: Some(name.to_owned()),
                ..server
            },
            token_file: Some(token_file.clone()),
        }
    };
    for (ca, name) in [("other.pem", "consul.example"), ("ca.pem", "other.example")] {
        let mut options = options(agent.http());
        options.access = access(ca, name);
        let reason = Watched::start(options).wait_failing(true).await;
        assert!(reason.contains("certificate"), "{reason}");
    }
    let mut options = options(agent.http());
    options.access = access("ca.pem", "consul.example");
    options.wait = std::time::Duration::from_secs(1);
    let mut watched = Watched::start(options);
    let reason = watched.wait_failing(true).await;
    assert!(reason.contains("403"), "{reason}");
    fs::write(&token_file, secret).unwrap();
    watched.wait_for("orders", Some("1 dc1/- ready 1")).await;
    watched.wait_failing(false).await;

    // A token that was revoked: the last state stays.
    fs::write(&token_file, "00000000-0000-0000-0000-000000000007").unwrap();
    let reason = watched.wait_failing(true).await;
    assert!(reason.contains("ACL not found"), "{reason}");
    fs::write(&token_file, secret).unwrap();
    watched.wait_failing(false).await;
    assert_eq!(watched.seen["orders"], "1 dc1/- ready 1");
}
