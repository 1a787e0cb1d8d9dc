//! TLS certificates of tests, with their own certificate authority.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

/// Writes a CA and a certificate for `localhost` into `directory`.
///
/// Returns the file of the CA and the `transport_socket` of a listener with the certificate.
pub(crate) fn issue(directory: &Path) -> (PathBuf, Value) {
    let key = rcgen::KeyPair::generate().unwrap();
    let mut params = rcgen::CertificateParams::new(vec![]).unwrap();
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    // OpenSSL looks up a CA by its name, not by its key.
    let name = &mut params.distinguished_name;
    name.push(rcgen::DnType::CommonName, "test CA");
    let authority = params.self_signed(&key).unwrap();
    let issuer = rcgen::Issuer::new(params, key);
    let key = rcgen::KeyPair::generate().unwrap();
    let params = rcgen::CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    let certificate = params.signed_by(&key, &issuer).unwrap();
    let write = |name: &str, text: String| {
        let path = directory.join(name);
        std::fs::write(&path, text).unwrap();
        path
    };
    let authority = write("authority.pem", authority.pem());
    let chain = write("chain.pem", certificate.pem());
    let key = write("key.pem", key.serialize_pem());
    let context = "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.\
                   DownstreamTlsContext";
    let socket = json!({
        "name": "tls",
        "typed_config": {
            "@type": context,
            "common_tls_context": {
                "alpn_protocols": ["h2", "http/1.1"],
                "tls_certificates": [{
                    "certificate_chain": { "filename": chain },
                    "private_key": { "filename": key },
                }],
            },
        },
    });
    (authority, socket)
}
