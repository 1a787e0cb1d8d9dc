//! Tests of `plimsoll certs`, and of `plimsoll bootstrap` with what it writes.
#![expect(clippy::unwrap_used, reason = "tests")]

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Output};
use std::sync::Arc;

use plimsoll_serve::{ClientTlsSettings, PemSource, client_tls};
use serde_json::Value;
use tempfile::TempDir;
use tokio_rustls::rustls::crypto::{CryptoProvider, ring};
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::{RootCertStore, ServerConfig};
use tokio_rustls::{TlsAcceptor, TlsConnector};

const ZONE_A: &str = "spiffe://example.org/fleet/gateway/zone/zone-a";

fn plimsoll(directory: &Path, args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_plimsoll"));
    command.args(args).current_dir(directory).output().unwrap()
}

fn succeeds(directory: &Path, args: &[&str]) -> String {
    let output = plimsoll(directory, args);
    assert!(output.status.success(), "{args:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// Runs a command that is refused, and returns why.
fn refused(directory: &Path, args: &[&str]) -> String {
    let output = plimsoll(directory, args);
    assert_eq!(output.status.code(), Some(2), "{args:?}: {output:?}");
    String::from_utf8(output.stderr).unwrap()
}

/// A directory with `certs` for a control plane on 127.0.0.1 and a client of zone-a.
fn issued() -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    let args = [
        "certs",
        "certs",
        "--server",
        "127.0.0.1",
        "--client",
        ZONE_A,
    ];
    succeeds(directory.path(), &args);
    directory
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[test]
fn keys_are_private_and_nothing_is_overwritten() {
    let directory = issued();
    let certs = directory.path().join("certs");
    for (name, expected) in [
        ("", 0o700),
        ("ca.key", 0o600),
        ("server", 0o700),
        ("server/tls.key", 0o600),
        ("zone-a/tls.key", 0o600),
    ] {
        assert_eq!(mode(&certs.join(name)), expected, "{name}");
    }
    let ca = fs::read_to_string(certs.join("ca.crt")).unwrap();
    for one in ["server", "zone-a"] {
        assert_eq!(
            fs::read_to_string(certs.join(one).join("ca.crt")).unwrap(),
            ca
        );
    }
    let key = fs::read_to_string(certs.join("zone-a/tls.key")).unwrap();
    // One of two exists: the other one is not written either.
    let zone_b = "zone-b=spiffe://example.org/b";
    let args = ["certs", "certs", "--client", zone_b, "--client", ZONE_A];
    let why = refused(directory.path(), &args);
    assert!(
        why.contains("certs/zone-a/ca.crt exists; nothing was written"),
        "{why}"
    );
    assert!(!certs.join("zone-b").exists());
    assert_eq!(
        fs::read_to_string(certs.join("zone-a/tls.key")).unwrap(),
        key
    );
}

#[test]
fn mistakes_are_named() {
    let directory = issued();
    let at = directory.path();
    for (args, expected) in [
        (&["certs", "x"][..], "--server or --client is required"),
        (&["certs", "x", "--server", ZONE_A], "is a URI"),
        (
            &["certs", "x", "--client", "..=spiffe://x/y"],
            "is no name of a directory",
        ),
        (
            &[
                "certs",
                "x",
                "--client",
                "spiffe://x/a",
                "--client",
                "spiffe://y/a",
            ],
            "LABEL=NAME",
        ),
        (
            &["certs", "x", "--client", "server", "--server", "localhost"],
            "LABEL=NAME",
        ),
        (&["certs", "x", "--client", "a="], "has no name"),
        (
            &["certs", "x", "--client", "a=two words"],
            "is not a DNS name",
        ),
        (
            &["certs", "x", "--client", "../a=spiffe://x/y"],
            "is not a URI",
        ),
        (&["certs", "x", "--server", "a_b/c"], "is not a DNS name"),
        (
            &["certs", "x", "--server", "localhost", "--days", "0"],
            "--days",
        ),
    ] {
        let why = refused(at, args);
        assert!(why.contains(expected), "{args:?}: {why}");
    }
    let certs = at.join("certs");
    let other = issued();
    let key = other.path().join("certs/ca.key");
    fs::copy(key, certs.join("ca.key")).unwrap();
    let why = refused(at, &["certs", "certs", "--client", "b=spiffe://x/b"]);
    assert!(why.contains("does not belong to the certificate"), "{why}");
    fs::remove_file(certs.join("ca.key")).unwrap();
    let why = refused(at, &["certs", "certs", "--client", "b=spiffe://x/b"]);
    assert!(
        why.contains("ca.key is missing beside certs/ca.crt"),
        "{why}"
    );
}

fn pem(path: &Path) -> PemSource {
    PemSource::Inline(fs::read_to_string(path).unwrap())
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

fn acceptor(certs: &Path) -> TlsAcceptor {
    let mut roots = RootCertStore::empty();
    let ca = CertificateDer::from_pem_file(certs.join("ca.crt")).unwrap();
    roots.add(ca).unwrap();
    let clients = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider()).build();
    let chain = CertificateDer::from_pem_file(certs.join("server/tls.crt")).unwrap();
    let key = PrivateKeyDer::from_pem_file(certs.join("server/tls.key")).unwrap();
    let config = ServerConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_client_cert_verifier(clients.unwrap())
        .with_single_cert(vec![chain], key);
    TlsAcceptor::from(Arc::new(config.unwrap()))
}

/// Both sides accept each other: the client of the first call, and one of a second call, which
/// signs with the key of the first. A client of another authority is refused.
#[tokio::test]
async fn both_sides_accept_each_other() {
    let directory = issued();
    let certs = directory.path().join("certs");
    succeeds(
        directory.path(),
        &[
            "certs",
            "certs",
            "--client",
            "late=spiffe://example.org/late",
        ],
    );
    let other = issued();
    let handshake = async |client: &Path| {
        let config = client_tls(&ClientTlsSettings {
            ca: pem(&certs.join("ca.crt")),
            certificate: Some((pem(&client.join("tls.crt")), pem(&client.join("tls.key")))),
            alpn: Vec::new(),
        });
        let connector = TlsConnector::from(config.unwrap());
        let name = ServerName::try_from("127.0.0.1").unwrap();
        let (near, far) = tokio::io::duplex(65_536);
        let acceptor = acceptor(&certs);
        let (connected, accepted) =
            tokio::join!(connector.connect(name, near), acceptor.accept(far));
        connected.is_ok() && accepted.is_ok()
    };
    assert!(handshake(&certs.join("zone-a")).await);
    assert!(handshake(&certs.join("late")).await);
    assert!(!handshake(&other.path().join("certs/zone-a")).await);
}

#[test]
fn a_bootstrap_is_written_with_files_that_are_right_or_not_at_all() {
    let directory = issued();
    let at = directory.path();
    let args = [
        "bootstrap",
        "envoy",
        "--zone",
        "zone-a",
        "--tls-directory",
        "certs/zone-a",
        "--tls-secrets",
        "secrets",
        "--output",
        "envoy.json",
    ];
    assert_eq!(succeeds(at, &args), "");
    let written = fs::read_to_string(at.join("envoy.json")).unwrap();
    let json: Value = serde_json::from_str(&written).unwrap();
    let socket = &json["static_resources"]["clusters"][0]["transport_socket"];
    assert!(socket.is_object(), "{json}");
    for (file, field) in [
        ("ca.json", "validation_context"),
        ("certificate.json", "tls_certificate"),
    ] {
        let secret = fs::read_to_string(at.join("secrets").join(file)).unwrap();
        let secret: Value = serde_json::from_str(&secret).unwrap();
        let text = secret["resources"][0][field].to_string();
        let path = fs::canonicalize(at.join("certs/zone-a")).unwrap();
        assert!(text.contains(&*path.to_string_lossy()), "{text}");
    }
    fs::write(at.join("certs/zone-a/tls.crt"), "").unwrap();
    let why = refused(at, &args);
    assert!(
        why.contains("tls.crt has no BEGIN CERTIFICATE in PEM format"),
        "{why}"
    );
    fs::remove_file(at.join("certs/zone-a/ca.crt")).unwrap();
    let why = refused(at, &args);
    assert!(why.contains("certs/zone-a/ca.crt"), "{why}");
    assert_eq!(fs::read_to_string(at.join("envoy.json")).unwrap(), written);
    // The flags for single files are another way to say the same.
    let why = refused(at, &[&args[..], &["--tls-ca", "ca.crt"]].concat());
    assert!(why.contains("--tls-ca"), "{why}");
}
