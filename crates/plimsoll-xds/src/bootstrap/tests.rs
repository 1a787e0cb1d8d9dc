//! Bootstraps as people write them, and what is refused.

use super::*;

const FULL: &str = r#"{
  "xds_servers": [
    {
      "server_uri": "dns:///xds.example:443",
      "channel_creds": [
        {"type": "google_default"},
        {"type": "tls", "config": {
          "ca_certificate_file": "ca.pem",
          "certificate_file": "cert.pem",
          "private_key_file": "key.pem",
          "refresh_interval": "600s"
        }},
        {"type": "insecure"}
      ],
      "server_features": ["xds_v3", "trusted_xds_server"]
    },
    {"server_uri": "fallback:80", "channel_creds": [{"type": "insecure"}]}
  ],
  "node": {
    "id": "client-1",
    "cluster": "shop",
    "locality": {"region": "r", "zone": "a", "sub_zone": "1"},
    "metadata": {"teamName": "x", "nested": {"n": 1, "none": null}}
  },
  "certificate_providers": {"p": {"plugin_name": "file_watcher"}},
  "authorities": {},
  "client_default_listener_resource_name_template": "shop/%s/listener"
}"#;

fn refused(text: &str) -> ConfigError {
    Bootstrap::parse(text).unwrap_err()
}

#[test]
fn every_field_is_read() {
    let bootstrap = Bootstrap::parse(FULL).unwrap();
    let [first, second] = &bootstrap.xds_servers[..] else {
        panic!("{bootstrap:?}")
    };
    assert_eq!(first.server_uri, "dns:///xds.example:443");
    let tls = ChannelCreds::Tls {
        ca_certificate_file: Some("ca.pem".into()),
        certificate_file: Some("cert.pem".into()),
        private_key_file: Some("key.pem".into()),
    };
    assert_eq!(first.channel_creds, tls, "the first that is supported");
    assert_eq!(first.server_features, ["xds_v3", "trusted_xds_server"]);
    assert_eq!(second.channel_creds, ChannelCreds::Insecure);
    assert_eq!(bootstrap.node.id.as_ref(), "client-1");
    assert_eq!(bootstrap.node.cluster.as_ref(), "shop");
    assert_eq!(bootstrap.node.locality, Locality::new("r", "a", "1"));
    assert_eq!(bootstrap.metadata["nested"]["n"], 1);
    assert_eq!(bootstrap.metadata["teamName"], "x", "spelt as written");
    assert_eq!(bootstrap.listener_name("orders"), "shop/orders/listener");
}

#[test]
fn what_is_wrong_is_named_with_its_place() {
    let cases = [
        (
            "\"authorities\": {}",
            "\"authorities\": {\"x\": {}}",
            "authorities",
        ),
        ("\"xds_servers\"", "\"xds_server\"", "xds_servers"),
        (
            "\"dns:///xds.example:443\"",
            "\"\"",
            "xds_servers[0].server_uri",
        ),
        (
            "\"dns:///xds.example:443\"",
            "7",
            "xds_servers[0].server_uri",
        ),
        (
            "\"type\": \"insecure\"}]}",
            "\"type\": \"google_default\"}]}",
            "xds_servers[1].channel_creds",
        ),
        (
            "\"private_key_file\": \"key.pem\",",
            "",
            "xds_servers[0].channel_creds[1].config.private_key_file",
        ),
        (
            "shop/%s",
            "xdstp://x/%s",
            "client_default_listener_resource_name_template",
        ),
        ("\"zone\": \"a\"", "\"zone\": 1", "node.locality.zone"),
    ];
    for (from, to, path) in cases {
        assert!(FULL.contains(from), "{from}");
        let error = refused(&FULL.replace(from, to));
        assert_eq!(error.path(), path, "{error}");
    }
    let google = refused(&FULL.replace("\"insecure\"}]}", "\"google_default\"}]}"));
    assert!(
        google.to_string().contains("supported are insecure, tls"),
        "{google}"
    );
    assert!(google.location().is_some());
    assert_eq!(refused(r#"{"xds_servers": []}"#).path(), "xds_servers");
    // YAML is not enough.
    assert!(!refused(&format!("# no JSON\n{FULL}")).reason().is_empty());
}

/// Cut anywhere: a bootstrap or an error, never a panic.
#[test]
fn a_cut_text_does_no_harm() {
    for (index, _) in FULL.char_indices().skip(1) {
        assert!(!refused(&FULL[..index]).reason().is_empty());
    }
}
