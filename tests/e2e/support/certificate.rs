//! Files of TLS certificates.

use std::path::{Path, PathBuf};

use plimsoll_testing::Authority;
use serde_json::{Value, json};

/// Writes a CA and a certificate for `localhost` into `directory`.
///
/// Returns the file of the CA and the `transport_socket` of a listener with the certificate.
pub(crate) fn issue(directory: &Path) -> (PathBuf, Value) {
    let authority = Authority::new();
    let (certificate, key) = authority.issue(&["localhost"]);
    let write = |name: &str, text: &str| {
        let path = directory.join(name);
        std::fs::write(&path, text).unwrap();
        path
    };
    let authority = write("authority.pem", &authority.pem);
    let chain = write("chain.pem", &certificate);
    let key = write("key.pem", &key);
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

/// Files of a certificate, its key and the trusted authorities in one directory, which are replaced
/// as Kubernetes does: they are links through `..data`, which another link replaces. Envoy watches
/// the directory for that.
#[derive(Clone, Debug)]
pub(crate) struct Files {
    directory: PathBuf,
    versions: usize,
}

impl Files {
    /// Start of a control plane's file: these certificates, and one rule that takes fleet and zone
    /// from the name of a client.
    pub(crate) fn control_config(&self) -> String {
        let (certificate, key) = (self.path("tls.crt"), self.path("tls.key"));
        let ca = self.path("ca.crt");
        format!(
            "tls: {{certificate: {certificate}, private_key: {key}, client_ca: {ca}}}
identities:
- name: fleets
  uri: spiffe://td/fleet/{{fleet}}/zone/{{zone}}
  fleets: ['{{fleet}}']
  zones: ['{{zone}}']
load_reporting: {{interval: 1s}}
"
        )
    }

    /// Writes the files into a new directory.
    pub(crate) fn new(directory: PathBuf, pair: &(String, String), trusted: &str) -> Self {
        std::fs::create_dir_all(&directory).unwrap();
        for name in ["tls.crt", "tls.key", "ca.crt"] {
            let data = Path::new("..data").join(name);
            std::os::unix::fs::symlink(data, directory.join(name)).unwrap();
        }
        let mut files = Self {
            directory,
            versions: 0,
        };
        files.replace(pair, trusted);
        files
    }

    /// Replaces all files at once.
    pub(crate) fn replace(&mut self, pair: &(String, String), trusted: &str) {
        self.versions += 1;
        let version = format!("..v{}", self.versions);
        let at = |name: &str| self.directory.join(&version).join(name);
        std::fs::create_dir(self.directory.join(&version)).unwrap();
        for (name, text) in [
            ("tls.crt", &*pair.0),
            ("tls.key", &*pair.1),
            ("ca.crt", trusted),
        ] {
            std::fs::write(at(name), text).unwrap();
        }
        let next = self.directory.join("..data_tmp");
        std::os::unix::fs::symlink(&version, &next).unwrap();
        std::fs::rename(next, self.directory.join("..data")).unwrap();
    }

    /// Returns the path of `tls.crt`, `tls.key` or `ca.crt`.
    pub(crate) fn path(&self, name: &str) -> String {
        self.directory.join(name).display().to_string()
    }

    /// Arguments of `plimsoll bootstrap`.
    pub(crate) fn arguments(&self) -> Vec<String> {
        let files = [
            ("--tls-ca", "ca.crt"),
            ("--tls-certificate", "tls.crt"),
            ("--tls-private-key", "tls.key"),
        ];
        let argument = |(flag, name): (&str, &str)| [flag.to_owned(), self.path(name)];
        files.into_iter().flat_map(argument).collect()
    }
}
