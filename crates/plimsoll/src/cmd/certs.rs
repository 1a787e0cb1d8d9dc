//! `plimsoll certs`: writes a certificate authority, and certificates for a control plane and for
//! proxies. `certificates` makes them.

use std::collections::BTreeSet;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};

use super::{Exit, ignore_broken_pipe};
use crate::certificates::{Authority, Pair, Use};

/// Write certificates for mutual TLS between proxies and the control plane
///
/// For tests and small sites: an authority in `ca.crt` and `ca.key`, and a directory with
/// `tls.crt`, `tls.key` and `ca.crt` for the control plane and for each client. Called again with
/// the same directory, it signs with the authority that is there. It never overwrites a file. In
/// production, let cert-manager, SPIRE or your own authority issue certificates that are renewed.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Args {
    /// Directory to write to; created with mode 0700
    #[arg(value_name = "DIRECTORY")]
    directory: PathBuf,
    /// DNS name or IP address of the control plane, as clients dial it; repeatable. Written to
    /// DIRECTORY/server
    #[arg(long, value_name = "NAME")]
    server: Vec<String>,
    /// Name of a client: a SPIFFE ID or another URI, or a DNS name; repeatable. Written to
    /// DIRECTORY/LABEL; the label is the last part of the name if it is not given
    #[arg(long, value_name = "[LABEL=]NAME")]
    client: Vec<String>,
    /// Days for which certificates of the control plane and of clients are valid
    #[arg(long, value_name = "DAYS", default_value_t = 365)]
    days: u32,
}

const AFTER_HELP: &str = "\
Examples:
  plimsoll certs certs --server control.internal \\
      --client spiffe://example.org/fleet/gateway/zone/zone-a
  plimsoll bootstrap envoy --zone zone-a --control control.internal:18000 \\
      --tls-directory certs/zone-a --output envoy.json
  plimsoll certs certs --client checkout-b=spiffe://example.org/fleet/checkout/zone/zone-b
                                      one more client of the same authority

Keep ca.key away from machines that do not issue certificates. Private keys have mode 0600.

Exit codes: 0 success, 2 wrong usage, or a file that exists.";

/// Days for which the authority is valid: its certificate is on every machine.
const AUTHORITY_DAYS: u32 = 3650;
/// Directory of the control plane's certificate.
const SERVER: &str = "server";

pub(crate) fn run(args: &Args, out: &mut impl Write) -> anyhow::Result<Exit> {
    let wanted = args.wanted()?;
    if wanted.is_empty() {
        bail!("--server or --client is required");
    }
    let root = &args.directory;
    // Before anything is written: half of the files would be in the way of the next call.
    for one in &wanted {
        for name in ["ca.crt", "tls.crt", "tls.key"] {
            refuse_existing(&root.join(&one.label).join(name))?;
        }
    }
    let authority = authority(root)?;
    let ca = fs::read_to_string(root.join("ca.crt"))
        .with_context(|| root.join("ca.crt").display().to_string())?;
    for one in &wanted {
        let names: Vec<&str> = one.names.iter().map(String::as_str).collect();
        let pair = authority.issue(&names, one.usage, args.days)?;
        let directory = root.join(&one.label);
        create_directory(&directory)?;
        write_pair(&directory, "tls", &pair)?;
        write_new(&directory.join("ca.crt"), &ca, 0o644)?;
        let line = writeln!(out, "{}: {}", directory.display(), one.names.join(", "));
        ignore_broken_pipe(line)?;
    }
    Ok(Exit::Ok)
}

/// A certificate to issue.
struct Wanted {
    label: String,
    names: Vec<String>,
    usage: Use,
}

impl Args {
    fn wanted(&self) -> anyhow::Result<Vec<Wanted>> {
        let server = (!self.server.is_empty()).then(|| Wanted {
            label: SERVER.to_owned(),
            names: self.server.clone(),
            usage: Use::Server,
        });
        for name in &self.server {
            check_name("--server", name)?;
        }
        if let Some(uri) = self.server.iter().find(|name| name.contains("://")) {
            bail!("--server: {uri:?} is a URI; clients check the DNS name or IP address they dial");
        }
        let mut all: Vec<Wanted> = server.into_iter().collect();
        for client in &self.client {
            all.push(wanted_client(client)?);
        }
        let mut labels = BTreeSet::new();
        for one in &all {
            if !labels.insert(&one.label) {
                let label = &one.label;
                bail!("--client: two certificates have the label {label:?}; write LABEL=NAME");
            }
        }
        Ok(all)
    }
}

fn wanted_client(client: &str) -> anyhow::Result<Wanted> {
    // A `=` in the path of a URI is part of the name.
    let (label, name) = match client.split_once('=') {
        Some((label, name)) if !label.contains(['/', ':']) => (label, name),
        _ => (client.rsplit('/').next().unwrap_or_default(), client),
    };
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if !label.chars().all(is_plain) || label.trim_matches('.').is_empty() {
        bail!("--client: {label:?} is no name of a directory; write LABEL=NAME");
    }
    if name.is_empty() {
        bail!("--client: {client:?} has no name after the label");
    }
    check_name("--client", name)?;
    Ok(Wanted {
        label: label.to_owned(),
        names: vec![name.to_owned()],
        usage: Use::Client,
    })
}

/// Checks that a name is a URI, a DNS name or an IP address: nothing else matches what a peer
/// expects.
fn check_name(flag: &str, name: &str) -> anyhow::Result<()> {
    if let Some((scheme, rest)) = name.split_once("://") {
        let is_scheme = |c: char| c.is_ascii_alphanumeric() || matches!(c, '+' | '-');
        if scheme.is_empty() || rest.is_empty() || !scheme.chars().all(is_scheme) {
            bail!("{flag}: {name:?} is not a URI");
        }
        return Ok(());
    }
    let is_host = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | ':' | '*');
    if name.is_empty() || !name.chars().all(is_host) {
        bail!("{flag}: {name:?} is not a DNS name or IP address");
    }
    Ok(())
}

/// Reads the authority in a directory, or creates one.
fn authority(root: &Path) -> anyhow::Result<Authority> {
    let (certificate, key) = (root.join("ca.crt"), root.join("ca.key"));
    match (certificate.exists(), key.exists()) {
        (true, true) => {
            let read =
                |path: &Path| fs::read_to_string(path).with_context(|| path.display().to_string());
            let authority = Authority::read(&read(&certificate)?, &read(&key)?);
            authority.with_context(|| key.display().to_string())
        }
        (false, false) => {
            create_directory(root)?;
            let (authority, pair) = Authority::create(AUTHORITY_DAYS)?;
            write_pair(root, "ca", &pair)?;
            Ok(authority)
        }
        (true, false) => bail!(
            "{} is missing beside {}",
            key.display(),
            certificate.display()
        ),
        (false, true) => bail!(
            "{} is missing beside {}",
            certificate.display(),
            key.display()
        ),
    }
}

fn write_pair(directory: &Path, name: &str, pair: &Pair) -> anyhow::Result<()> {
    write_new(&directory.join(format!("{name}.key")), &pair.key, 0o600)?;
    write_new(
        &directory.join(format!("{name}.crt")),
        &pair.certificate,
        0o644,
    )
}

fn create_directory(path: &Path) -> anyhow::Result<()> {
    let mut builder = fs::DirBuilder::new();
    let created = builder.recursive(true).mode(0o700).create(path);
    created.with_context(|| format!("cannot create {}", path.display()))
}

fn refuse_existing(path: &Path) -> anyhow::Result<()> {
    if path.exists() {
        bail!("{} exists; nothing was written", path.display());
    }
    Ok(())
}

fn write_new(path: &Path, text: &str, mode: u32) -> anyhow::Result<()> {
    let mut options = OpenOptions::new();
    let file = options.write(true).create_new(true).mode(mode).open(path);
    let written = file.and_then(|mut file| {
        file.write_all(text.as_bytes())?;
        file.sync_all()
    });
    written.with_context(|| format!("cannot write {}", path.display()))
}
