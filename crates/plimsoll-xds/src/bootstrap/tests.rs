//! Valid bootstrap files, and errors with their field paths.

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

fn parse_error(text: &str) -> ConfigError {
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
    assert_eq!(first.channel_creds, tls, "the first supported one");
    assert_eq!(first.server_features, ["xds_v3", "trusted_xds_server"]);
    assert_eq!(second.channel_creds, ChannelCreds::Insecure);
    assert_eq!(bootstrap.node.id.as_ref(), "client-1");
    assert_eq!(bootstrap.node.cluster.as_ref(), "shop");
    assert_eq!(bootstrap.node.locality, Locality::new("r", "a", "1"));
    assert_eq!(bootstrap.metadata["nested"]["n"], 1);
    assert_eq!(bootstrap.metadata["teamName"], "x", "not normalized");
    assert_eq!(bootstrap.listener_name("orders"), "shop/orders/listener");
}

#[test]
fn errors_have_path_and_location() {
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
        let error = parse_error(&FULL.replace(from, to));
        assert_eq!(error.path(), path, "{error}");
    }
    let google = parse_error(&FULL.replace("\"insecure\"}]}", "\"google_default\"}]}"));
    assert!(
        google.to_string().contains("supported are insecure, tls"),
        "{google}"
    );
    assert!(google.location().is_some());
    assert_eq!(parse_error(r#"{"xds_servers": []}"#).path(), "xds_servers");
    // YAML that is not JSON is rejected.
    assert!(
        !parse_error(&format!("# not JSON\n{FULL}"))
            .reason()
            .is_empty()
    );
}

/// Truncated text is an error, never a panic.
#[test]
fn truncated_text_is_an_error() {
    for (index, _) in FULL.char_indices().skip(1) {
        assert!(!parse_error(&FULL[..index]).reason().is_empty());
    }
}
