//! TLS of listeners: files to rustls settings.
//!
//! Looking whether files changed is `run`'s business, which calls [`server_config`] again.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};

use crate::config::{Codec, Source, TlsConfig};

/// What rustls needs; errors name the file.
pub(crate) fn server_config(config: &TlsConfig, codec: Codec) -> Result<Arc<ServerConfig>, String> {
    let chain = certificates(&config.certificate)?;
    let key = read(&config.key)?;
    let key = PrivateKeyDer::from_pem_slice(&key)
        .map_err(|error| format!("{}: no private key: {error}", name(&config.key)))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?;
    let builder = match &config.client_ca {
        None => builder.with_no_client_auth(),
        Some(ca) => {
            let mut roots = RootCertStore::empty();
            for certificate in certificates(ca)? {
                let added = roots.add(certificate);
                added.map_err(|error| format!("{}: {error}", name(ca)))?;
            }
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
            let verifier = match config.require_client_certificate {
                true => verifier,
                false => verifier.allow_unauthenticated(),
            };
            let verifier = verifier
                .build()
                .map_err(|error| format!("{}: {error}", name(ca)))?;
            builder.with_client_cert_verifier(verifier)
        }
    };
    let mut server = builder
        .with_single_cert(chain, key)
        .map_err(|error| format!("{}: {error}", name(&config.certificate)))?;
    server.alpn_protocols = alpn(config, codec);
    Ok(Arc::new(server))
}

fn alpn(config: &TlsConfig, codec: Codec) -> Vec<Vec<u8>> {
    let own = config.alpn.iter().map(|name| name.as_bytes().to_vec());
    match (config.alpn.is_empty(), codec) {
        (false, _) => own.collect(),
        (true, Codec::Auto) => vec![b"h2".to_vec(), b"http/1.1".to_vec()],
        (true, Codec::Http1) => vec![b"http/1.1".to_vec()],
        (true, Codec::Http2) => vec![b"h2".to_vec()],
    }
}

/// Files that a configuration names.
pub(crate) fn files(config: &TlsConfig) -> impl Iterator<Item = &PathBuf> {
    let sources = [
        Some(&config.certificate),
        Some(&config.key),
        config.client_ca.as_ref(),
    ];
    sources
        .into_iter()
        .flatten()
        .filter_map(|source| match source {
            Source::File(path) => Some(path),
            Source::Inline(_) => None,
        })
}

fn certificates(source: &Source) -> Result<Vec<CertificateDer<'static>>, String> {
    let text = read(source)?;
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&text).collect();
    let found = found.map_err(|error| format!("{}: {error}", name(source)))?;
    if found.is_empty() {
        return Err(format!("{}: no certificate", name(source)));
    }
    Ok(found)
}

fn read(source: &Source) -> Result<Vec<u8>, String> {
    match source {
        Source::Inline(text) => Ok(text.as_bytes().to_vec()),
        Source::File(path) => {
            let read = |path: &Path| -> io::Result<Vec<u8>> { fs::read(path) };
            read(path).map_err(|error| format!("{}: {error}", path.display()))
        }
    }
}

fn name(source: &Source) -> String {
    match source {
        Source::Inline(_) => "inline_string".to_owned(),
        Source::File(path) => path.display().to_string(),
    }
}
