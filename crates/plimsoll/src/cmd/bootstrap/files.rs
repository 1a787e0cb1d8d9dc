//! Files of `plimsoll bootstrap`: certificates that are checked before a bootstrap names them, and
//! outputs that are written as a whole or not at all.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use plimsoll_control::bootstrap::{BootstrapTls, EnvoySecret};

/// Returns the certificates in a directory. Each must be there and have what its name says: an
/// Envoy that starts with an empty file reports no more than a "remote connection failure".
pub(super) fn directory(directory: &Path) -> anyhow::Result<BootstrapTls> {
    let absolute = std::path::absolute(directory);
    let directory = absolute.with_context(|| directory.display().to_string())?;
    let file = |name: &str, content: &str| {
        let path = directory.join(name);
        let text = fs::read_to_string(&path);
        let text = text.with_context(|| format!("--tls-directory: {}", path.display()))?;
        if !text.contains(content) {
            let path = path.display();
            bail!("--tls-directory: {path} has no {content} in PEM format");
        }
        Ok(path.display().to_string())
    };
    let ca = file("ca.crt", "BEGIN CERTIFICATE")?;
    let certificate = file("tls.crt", "BEGIN CERTIFICATE")?;
    Ok(BootstrapTls {
        ca,
        certificate: Some((certificate, file("tls.key", "PRIVATE KEY")?)),
        ..BootstrapTls::default()
    })
}

/// Writes the files of secrets into the directory that the bootstrap names.
pub(super) fn write_secrets(tls: &BootstrapTls) -> anyhow::Result<()> {
    let Some(directory) = &tls.envoy_secrets else {
        return Ok(());
    };
    let directory = PathBuf::from(directory);
    let created = fs::create_dir_all(&directory);
    created.with_context(|| format!("--tls-secrets: {}", directory.display()))?;
    for secret in [EnvoySecret::Ca, EnvoySecret::Certificate] {
        if let Some(json) = tls.envoy_secret(secret) {
            replace(&directory.join(secret.file_name()), &format!("{json:#}\n"))?;
        }
    }
    Ok(())
}

/// Writes a file as a whole: a reader sees the previous text or the new one.
pub(super) fn replace(path: &Path, text: &str) -> anyhow::Result<()> {
    let mut name = path.file_name().context("--output is no file")?.to_owned();
    name.push(".new");
    let new = path.with_file_name(name);
    let written = fs::write(&new, text).and_then(|()| fs::rename(&new, path));
    written.with_context(|| format!("cannot write {}", path.display()))
}
