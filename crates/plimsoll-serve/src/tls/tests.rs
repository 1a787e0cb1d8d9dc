//! Tests of certificates in files.

use std::fs;
use std::path::Path;

use plimsoll_testing::Authority;
use plimsoll_testing::tasks::wait_until;

use super::*;

/// Certificate and key as settings name them.
pub(crate) fn sources((certificate, key): &(String, String)) -> (PemSource, PemSource) {
    let inline = |text: &String| PemSource::Inline(text.clone());
    (inline(certificate), inline(key))
}

fn settings(directory: &Path) -> ServerTlsSettings {
    let file = |name: &str| PemSource::File(directory.join(name));
    ServerTlsSettings {
        certificate: file("tls.crt"),
        key: file("tls.key"),
        client_ca: Some(file("ca.crt")),
        require_client_certificate: true,
        alpn: vec!["h2".to_owned()],
    }
}

fn write(directory: &Path, pair: &(String, String), ca: &Authority) {
    fs::write(directory.join("tls.crt"), &pair.0).unwrap();
    fs::write(directory.join("tls.key"), &pair.1).unwrap();
    fs::write(directory.join("ca.crt"), &ca.pem).unwrap();
}

fn watch(settings: &ServerTlsSettings) -> WatchedTls<ServerTls> {
    let files = settings.files().cloned().collect();
    let settings = settings.clone();
    WatchedTls::start("test", files, move || server_tls(&settings)).unwrap()
}

#[tokio::test(start_paused = true)]
async fn changed_files_are_loaded_and_bad_ones_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let ca = Authority::new();
    let (first, second) = (
        ca.issue(&["localhost", "spiffe://td/1"]),
        ca.issue(&["localhost", "spiffe://td/2"]),
    );
    write(directory.path(), &first, &ca);
    let settings = settings(directory.path());
    assert_eq!(settings.files().count(), 3);
    let tls = watch(&settings);
    let before = tls.current().certificate.clone();
    assert_eq!(tls.reloads(), (0, 0));

    // A certificate that does not belong to the key.
    fs::write(directory.path().join("tls.crt"), &second.0).unwrap();
    wait_until("the files are loaded again", async || {
        tls.reloads() == (0, 1)
    })
    .await;
    assert_eq!(tls.current().certificate, before);

    fs::write(directory.path().join("tls.key"), &second.1).unwrap();
    wait_until("the files are loaded again", async || {
        tls.reloads() == (1, 1)
    })
    .await;
    assert_ne!(tls.current().certificate, before);

    fs::remove_file(directory.path().join("ca.crt")).unwrap();
    wait_until("the files are loaded again", async || {
        tls.reloads() == (1, 2)
    })
    .await;
}

/// Kubernetes and SPIFFE helpers replace the directory behind a symbolic link.
#[tokio::test(start_paused = true)]
async fn a_swapped_symbolic_link_is_a_change() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    let ca = Authority::new();
    for version in ["1", "2"] {
        fs::create_dir(at(version)).unwrap();
        write(
            &at(version),
            &ca.issue(&["localhost", "spiffe://td/a"]),
            &ca,
        );
    }
    std::os::unix::fs::symlink("1", at("data")).unwrap();
    let tls = watch(&settings(&at("data")));
    let before = tls.current().certificate.clone();
    std::os::unix::fs::symlink("2", at("next")).unwrap();
    fs::rename(at("next"), at("data")).unwrap();
    wait_until("the files are loaded again", async || {
        tls.reloads() == (1, 0)
    })
    .await;
    assert_ne!(tls.current().certificate, before);
}

#[test]
fn errors_name_the_file_and_the_problem() {
    let directory = tempfile::tempdir().unwrap();
    let ca = Authority::new();
    let (pair, other) = (
        ca.issue(&["localhost", "spiffe://td/a"]),
        ca.issue(&["localhost", "spiffe://td/b"]),
    );
    write(directory.path(), &pair, &ca);
    let settings = settings(directory.path());
    assert!(server_tls(&settings).is_ok());
    for (file, text, problem) in [
        ("tls.crt", "", "tls.crt: no certificate"),
        (
            "tls.crt",
            "-----BEGIN CERTIFICATE-----\n",
            "tls.crt: invalid certificate",
        ),
        ("tls.key", "", "tls.key: invalid private key"),
        (
            "tls.key",
            other.1.as_str(),
            "tls.crt: unusable certificate or key",
        ),
        ("ca.crt", "", "ca.crt: no certificate"),
    ] {
        let path = directory.path().join(file);
        let good = fs::read(&path).unwrap();
        fs::write(&path, text).unwrap();
        let error = server_tls(&settings).unwrap_err().to_string();
        assert!(error.ends_with(problem), "{error}");
        fs::write(&path, good).unwrap();
    }
    fs::remove_file(directory.path().join("ca.crt")).unwrap();
    let error = server_tls(&settings).unwrap_err().to_string();
    assert!(error.ends_with("ca.crt: cannot be read"), "{error}");
}

#[tokio::test]
async fn certificates_without_files_are_not_watched() {
    let ca = Authority::new();
    let (certificate, key) = sources(&ca.issue(&["localhost", "spiffe://td/a"]));
    let settings = ClientTlsSettings {
        ca: PemSource::Inline(ca.pem.clone()),
        certificate: Some((certificate, key)),
        alpn: Vec::new(),
    };
    assert_eq!(settings.files().count(), 0);
    let tls = WatchedTls::start("test", Vec::new(), move || client_tls(&settings)).unwrap();
    assert!(tls.task.is_none());
    assert!(tls.current().client_auth_cert_resolver.has_certs());
    assert_eq!(tls.reloads(), (0, 0));
}
