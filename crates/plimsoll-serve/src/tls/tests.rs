//! Tests of certificates in files, and the certificate authority of tests.

use std::fs;
use std::path::Path;
use std::time::Duration;

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair, SanType};

use super::*;

/// A certificate authority of a test.
pub(crate) struct Authority {
    pub(crate) pem: String,
    issuer: Issuer<'static, KeyPair>,
}

/// A certificate and its key in PEM format.
pub(crate) struct Pair {
    pub(crate) certificate: String,
    pub(crate) key: String,
}

impl Authority {
    pub(crate) fn new() -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let pem = params.self_signed(&key).unwrap().pem();
        Self {
            pem,
            issuer: Issuer::new(params, key),
        }
    }

    /// Issues a certificate for `localhost` with a URI.
    pub(crate) fn issue(&self, uri: &str) -> Pair {
        let mut params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        let uri = SanType::URI(uri.try_into().unwrap());
        params.subject_alt_names.push(uri);
        self.sign(params)
    }

    pub(crate) fn sign(&self, params: CertificateParams) -> Pair {
        let key = KeyPair::generate().unwrap();
        Pair {
            certificate: params.signed_by(&key, &self.issuer).unwrap().pem(),
            key: key.serialize_pem(),
        }
    }
}

impl Pair {
    pub(crate) fn sources(&self) -> (PemSource, PemSource) {
        let inline = |text: &String| PemSource::Inline(text.clone());
        (inline(&self.certificate), inline(&self.key))
    }
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

fn write(directory: &Path, pair: &Pair, ca: &Authority) {
    fs::write(directory.join("tls.crt"), &pair.certificate).unwrap();
    fs::write(directory.join("tls.key"), &pair.key).unwrap();
    fs::write(directory.join("ca.crt"), &ca.pem).unwrap();
}

fn watch(settings: &ServerTlsSettings) -> WatchedTls<ServerTls> {
    let files = settings.files().cloned().collect();
    let settings = settings.clone();
    WatchedTls::start("test", files, move || server_tls(&settings)).unwrap()
}

async fn wait_until(check: impl Fn() -> bool) {
    let waiting = async {
        while !check() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(3600), waiting)
        .await
        .expect("the files are loaded again");
}

#[tokio::test(start_paused = true)]
async fn changed_files_are_loaded_and_bad_ones_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let ca = Authority::new();
    let (first, second) = (ca.issue("spiffe://td/1"), ca.issue("spiffe://td/2"));
    write(directory.path(), &first, &ca);
    let settings = settings(directory.path());
    assert_eq!(settings.files().count(), 3);
    let tls = watch(&settings);
    let before = tls.current().certificate.clone();
    assert_eq!(tls.reloads(), (0, 0));

    // A certificate that does not belong to the key.
    fs::write(directory.path().join("tls.crt"), &second.certificate).unwrap();
    wait_until(|| tls.reloads() == (0, 1)).await;
    assert_eq!(tls.current().certificate, before);

    fs::write(directory.path().join("tls.key"), &second.key).unwrap();
    wait_until(|| tls.reloads() == (1, 1)).await;
    assert_ne!(tls.current().certificate, before);

    fs::remove_file(directory.path().join("ca.crt")).unwrap();
    wait_until(|| tls.reloads() == (1, 2)).await;
}

/// Kubernetes and SPIFFE helpers replace the directory behind a symbolic link.
#[tokio::test(start_paused = true)]
async fn a_swapped_symbolic_link_is_a_change() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    let ca = Authority::new();
    for version in ["1", "2"] {
        fs::create_dir(at(version)).unwrap();
        write(&at(version), &ca.issue("spiffe://td/a"), &ca);
    }
    std::os::unix::fs::symlink("1", at("data")).unwrap();
    let tls = watch(&settings(&at("data")));
    let before = tls.current().certificate.clone();
    std::os::unix::fs::symlink("2", at("next")).unwrap();
    fs::rename(at("next"), at("data")).unwrap();
    wait_until(|| tls.reloads() == (1, 0)).await;
    assert_ne!(tls.current().certificate, before);
}

#[test]
fn errors_name_the_file_and_the_problem() {
    let directory = tempfile::tempdir().unwrap();
    let ca = Authority::new();
    let (pair, other) = (ca.issue("spiffe://td/a"), ca.issue("spiffe://td/b"));
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
            other.key.as_str(),
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
    let (certificate, key) = ca.issue("spiffe://td/a").sources();
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
