//! Tests of certificates, rules and limits in the configuration file.

use super::*;
use crate::config::{ConfigFile, ControlConfig};

fn parse(text: &str) -> Result<ControlConfig, String> {
    let file = ConfigFile {
        name: "control.yaml".to_owned(),
        text: text.to_owned(),
    };
    ControlConfig::parse(&file, &[]).map_err(|error| error.to_string())
}

fn assert_error(text: &str, expected: &str) {
    let error = parse(text).unwrap_err();
    assert!(error.contains(expected), "{error}");
}

const TLS: &str = "tls: {certificate: a.crt, private_key: a.key, client_ca: ca.crt}";

#[test]
fn an_address_beyond_loopback_needs_tls_or_an_explicit_setting() {
    for address in ["0.0.0.0:18000", "10.0.0.1:18000", "'[::]:18000'"] {
        let listen = format!("listen: {address}");
        assert_error(&listen, "listen: other machines can connect");
        assert!(parse(&format!("{listen}\n{TLS}")).is_ok());
        let config = parse(&format!("{listen}\ninsecure: true")).unwrap();
        assert!(config.insecure_listeners().xds);
    }
    for address in [
        "127.0.0.1:1",
        "127.1.2.3:1",
        "'[::1]:1'",
        "'[::ffff:127.0.0.1]:1'",
    ] {
        let config = parse(&format!("listen: {address}")).unwrap();
        assert!(!config.insecure_listeners().any(), "{address}");
    }
    assert!(
        !parse(&format!("listen: 0.0.0.0:1\n{TLS}"))
            .unwrap()
            .insecure_listeners()
            .any()
    );
}

#[test]
fn the_admin_api_beyond_loopback_needs_tls_or_an_explicit_setting() {
    for address in ["0.0.0.0:18001", "10.0.0.1:18001", "'[::]:18001'"] {
        let admin = format!("admin: {address}");
        assert_error(&admin, "admin: other machines can connect");
        let tls = "admin_tls: {certificate: b, private_key: c}";
        let config = parse(&format!("{admin}\n{tls}")).unwrap();
        assert!(!config.insecure_listeners().any());
        let config = parse(&format!("{admin}\ninsecure: true")).unwrap();
        let insecure = config.insecure_listeners();
        assert!(insecure.admin && !insecure.xds);
    }
    // Certificates of ADS and LRS are none of the admin API.
    assert_error(&format!("admin: 0.0.0.0:1\n{TLS}"), "set admin_tls");
    // Pages for reading have no secrets.
    let config = parse("{admin: '', read_only: '0.0.0.0:1'}").unwrap();
    assert!(!config.insecure_listeners().any());
}

#[test]
fn certificates_are_files() {
    let config = parse(&format!(
        "{TLS}\nadmin_tls: {{certificate: b, private_key: c}}"
    ))
    .unwrap();
    let tls = config.addresses.tls.unwrap();
    assert_eq!(tls.certificate, PemSource::File("a.crt".into()));
    assert_eq!(tls.key, PemSource::File("a.key".into()));
    assert_eq!(tls.client_ca, Some(PemSource::File("ca.crt".into())));
    assert!(tls.require_client_certificate);
    assert_eq!(tls.alpn, ["h2"]);
    let admin = config.addresses.admin_tls.unwrap();
    assert!(!admin.require_client_certificate);
    assert_eq!(
        (admin.client_ca, admin.alpn),
        (None, vec!["http/1.1".to_owned()])
    );
}

#[test]
fn limits_have_defaults_and_bounds() {
    let limits = parse("{}").unwrap().operation.limits.incoming;
    assert_eq!(limits.connections.connections, 20_000);
    assert_eq!(limits.connections.per_peer, 1_000);
    assert_eq!(limits.handshake_timeout, Duration::from_secs(10));
    let text = "limits: {connections: 7, connections_per_peer: 3, handshake_timeout: 0.1s}";
    let limits = parse(text).unwrap().operation.limits.incoming;
    assert_eq!(
        (limits.connections.connections, limits.connections.per_peer),
        (7, 3)
    );
    assert_eq!(limits.handshake_timeout, Duration::from_millis(100));
    assert_error(
        "limits: {connections: 0}",
        "limits.connections: must be at least 1",
    );
    let field = "limits.connections_per_peer: must be at least 1";
    assert_error("limits: {connections_per_peer: 0}", field);
    for time in ["0.099s", "3601s"] {
        let text = format!("limits: {{handshake_timeout: {time}}}");
        assert_error(&text, "limits.handshake_timeout: ");
    }
}

#[test]
fn the_age_of_connections_has_a_default_and_bounds() {
    let age = |text: &str| {
        parse(text)
            .unwrap()
            .operation
            .limits
            .incoming
            .connection_age
    };
    assert_eq!(age("{}"), Some(Duration::from_secs(1800)));
    assert_eq!(age("limits: {connection_age: 0s}"), None);
    for (written, seconds) in [("1s", 1), ("604800s", 604_800)] {
        let text = format!("limits: {{connection_age: {written}}}");
        assert_eq!(age(&text), Some(Duration::from_secs(seconds)));
    }
    for written in ["0.9s", "604801s"] {
        let text = format!("limits: {{connection_age: {written}}}");
        assert_error(&text, "limits.connection_age: ");
    }
}

#[test]
fn errors_of_rules_name_the_field() {
    let identities = |rule: &str| format!("{TLS}\nidentities: [{rule}]");
    assert_error("identities: []", "identities: needs tls.client_ca");
    let without_ca = "tls: {certificate: a, private_key: b}\nidentities: []";
    assert_error(without_ca, "identities: needs tls.client_ca");
    for (rule, expected) in [
        ("{}", "identities[0].uri: exactly one of uri and dns"),
        (
            "{uri: a, dns: b}",
            "identities[0].uri: exactly one of uri and dns",
        ),
        ("{uri: ''}", "identities[0].uri: is empty"),
        ("{dns: '{'}", "identities[0].dns: has a { or }"),
        (
            "{uri: a, fleets: ['**']}",
            "identities[0].fleets[0]: has two placeholders",
        ),
        (
            "{uri: a, zones: [b, '{z}']}",
            "identities[0].zones[1]: {z} is not in `uri`",
        ),
        (
            "{uri: a, node_ids: ['']}",
            "identities[0].node_ids[0]: is empty",
        ),
        (
            "{uri: a}, {uri: a, services: ['}']}",
            "identities[1].services[0]: has a { or }",
        ),
    ] {
        assert_error(&identities(rule), expected);
    }
}

#[test]
fn the_relayed_server_may_have_tls() {
    let relay = |more: &str| {
        let text = format!("relay: {{address: 'control:1', {more}}}");
        parse(&text).map(|config| config.relay.unwrap())
    };
    let plain = relay("").unwrap();
    assert_eq!((plain.tls, plain.max_connections), (None, 10_000));
    let tls = relay("tls: {ca: c, certificate: a, private_key: b, server_name: n}").unwrap();
    let tls = tls.tls.unwrap();
    assert_eq!(tls.server_name.as_deref(), Some("n"));
    assert_eq!(tls.settings.ca, PemSource::File("c".into()));
    assert_eq!(tls.settings.files().count(), 3);
    assert_eq!(tls.settings.alpn, ["h2"]);
    assert_eq!(
        relay("tls: {ca: c}")
            .unwrap()
            .tls
            .unwrap()
            .settings
            .certificate,
        None
    );
    assert_eq!(relay("max_connections: 5").unwrap().max_connections, 5);
    let error = relay("tls: {ca: c, certificate: a}").unwrap_err();
    assert!(
        error.contains("relay.tls.certificate: needs private_key"),
        "{error}"
    );
    let error = relay("tls: {ca: c, private_key: a}").unwrap_err();
    assert!(
        error.contains("relay.tls.private_key: needs certificate"),
        "{error}"
    );
    let error = relay("max_connections: 0").unwrap_err();
    assert!(
        error.contains("relay.max_connections: must be at least 1"),
        "{error}"
    );
}

#[test]
fn settings_of_security_belong_to_the_main_file() {
    let main = ConfigFile {
        name: "control.yaml".to_owned(),
        text: "{}".to_owned(),
    };
    for text in [
        TLS,
        "insecure: true",
        "identities: []",
        "limits: {connections: 1}",
        "limits: {connections_per_peer: 1}",
        "limits: {handshake_timeout: 1s}",
        "admin_tls: {certificate: a, private_key: b}",
        "admin_identities: []",
        "read_only: 127.0.0.1:1",
    ] {
        let included = ConfigFile {
            name: "more.yaml".to_owned(),
            text: text.to_owned(),
        };
        let error = ControlConfig::parse(&main, &[included])
            .unwrap_err()
            .to_string();
        assert!(error.contains("only allowed in the main file"), "{error}");
    }
}

#[test]
fn the_read_only_address_is_optional() {
    assert_eq!(parse("{}").unwrap().addresses.read_only, None);
    assert_eq!(parse("read_only: ''").unwrap().addresses.read_only, None);
    let address = parse("read_only: 0.0.0.0:18002")
        .unwrap()
        .addresses
        .read_only;
    assert_eq!(address, Some("0.0.0.0:18002".parse().unwrap()));
    assert_error("read_only: here", "read_only: \"here\" is not an address");
}

#[test]
fn administrators_are_named_where_clients_of_the_admin_api_have_certificates() {
    const ADMIN: &str = "admin_tls: {certificate: a, private_key: b, client_ca: c}";
    assert_error(ADMIN, "admin_tls.client_ca: needs admin_identities");
    assert_error(
        "admin_identities: [{uri: 'spiffe://td/ops'}]",
        "admin_identities: needs admin_tls.client_ca",
    );
    for (one, error) in [
        ("{}", "admin_identities[0].uri: exactly one"),
        ("{uri: a, dns: b}", "admin_identities[0].uri: exactly one"),
        ("{uri: 'spiffe://{x'}", "admin_identities[0].uri: "),
    ] {
        assert_error(&format!("{ADMIN}\nadmin_identities: [{one}]"), error);
    }
    let identities = "[{uri: 'spiffe://td/ops/*'}, {dns: 'Ops.example'}]";
    let rules = parse(&format!("{ADMIN}\nadmin_identities: {identities}"));
    let rules = rules.unwrap().rules;
    let is_administrator = |uris: &[&str], dns: &[&str]| {
        let owned = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect();
        let identity = plimsoll_xds::driver::ClientIdentity {
            uris: owned(uris),
            dns_names: owned(dns),
        };
        rules.is_administrator(&identity)
    };
    assert!(is_administrator(&["spiffe://td/ops/ann"], &[]));
    assert!(is_administrator(&[], &["ops.EXAMPLE"]));
    assert!(!is_administrator(
        &["spiffe://td/gateway"],
        &["gateway.example"]
    ));
    assert!(!is_administrator(
        &["spiffe://td/ops/ann", "spiffe://td/x"],
        &[]
    ));
    assert!(!is_administrator(&[], &[]));
}
