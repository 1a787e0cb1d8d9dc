//! [`ApiAccess`]: where the API server is and how to authenticate: as a Pod, with a kubeconfig, or
//! with explicit files. Everything is read again for each connection, so that rotated certificates
//! and tokens need no restart.

mod kubeconfig;

use std::path::{Path, PathBuf};

use plimsoll_serve::PemSource;
use plimsoll_serve::http_client::HttpServer;

const SERVICE_ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// How the API server is found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ApiAccess {
    /// As a Pod: environment variables and the service account's files.
    #[default]
    InCluster,
    /// A kubeconfig file; `None` for its current context.
    Kubeconfig {
        path: PathBuf,
        context: Option<String>,
    },
    Explicit {
        /// `https://host:port`, or `http://` for `kubectl proxy`.
        server: String,
        ca_file: Option<PathBuf>,
        token_file: Option<PathBuf>,
    },
}

/// An API server, as of one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiServer {
    pub server: HttpServer,
    pub token: Token,
}

/// Where the bearer token comes from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Token {
    #[default]
    None,
    /// Read for every request: the kubelet replaces it before it expires.
    File(PathBuf),
    Value(String),
}

/// Reason why the API server cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("{place}: {reason}")]
pub struct AccessError {
    place: String,
    reason: String,
}

impl AccessError {
    pub(crate) fn new(place: impl Into<String>, reason: impl Into<String>) -> Self {
        Self {
            place: place.into(),
            reason: reason.into(),
        }
    }
}

impl ApiAccess {
    /// Returns the API server.
    pub fn resolve(&self) -> Result<ApiServer, AccessError> {
        match self {
            Self::InCluster => {
                let variable = |name: &str| std::env::var(name).ok();
                in_cluster(variable, Path::new(SERVICE_ACCOUNT))
            }
            Self::Kubeconfig { path, context } => kubeconfig::read(path, context.as_deref()),
            Self::Explicit {
                server,
                ca_file,
                token_file,
            } => {
                let token = token_file.clone().map_or(Token::None, Token::File);
                let ca = ca_file.clone().map(PemSource::File);
                ApiServer::new(server, ca, None, token)
                    .map_err(|reason| AccessError::new("kubernetes.api_server", reason))
            }
        }
    }
}

fn in_cluster(
    variable: impl Fn(&str) -> Option<String>,
    account: &Path,
) -> Result<ApiServer, AccessError> {
    let read = |name: &str| {
        variable(name).ok_or_else(|| {
            let reason = "is not set: this is not a Pod; set kubernetes.kubeconfig or \
                          kubernetes.api_server";
            AccessError::new(name, reason)
        })
    };
    let host = read("KUBERNETES_SERVICE_HOST")?;
    let port = read("KUBERNETES_SERVICE_PORT")?;
    let host = if host.contains(':') {
        format!("[{host}]")
    } else {
        host
    };
    let ca = Some(PemSource::File(account.join("ca.crt")));
    let token = Token::File(account.join("token"));
    ApiServer::new(&format!("https://{host}:{port}"), ca, None, token)
        .map_err(|reason| AccessError::new("KUBERNETES_SERVICE_HOST", reason))
}

impl ApiServer {
    /// Parses the address of an API server. TLS needs the certificate authorities in `ca`.
    fn new(
        address: &str,
        ca: Option<PemSource>,
        certificate: Option<(PemSource, PemSource)>,
        token: Token,
    ) -> Result<Self, String> {
        let server = HttpServer::parse(address, ca, certificate)?;
        Ok(Self { server, token })
    }
}

impl Token {
    /// Reads the token as it is now.
    pub(crate) fn read(&self) -> Result<Option<String>, AccessError> {
        match self {
            Self::None => Ok(None),
            Self::Value(token) => Ok(Some(token.clone())),
            Self::File(path) => {
                let place = path.display().to_string();
                let text = std::fs::read_to_string(path).map_err(|error| {
                    AccessError::new(&place, format!("cannot be read: {error}"))
                })?;
                let token = text.trim();
                if token.is_empty() {
                    return Err(AccessError::new(place, "is empty"));
                }
                Ok(Some(token.to_owned()))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_uses_its_environment_and_service_account() {
        let variable = |name: &str| match name {
            "KUBERNETES_SERVICE_HOST" => Some("10.0.0.1".to_owned()),
            "KUBERNETES_SERVICE_PORT" => Some("443".to_owned()),
            _ => None,
        };
        let server = in_cluster(variable, Path::new("/account")).unwrap();
        assert_eq!(server.server.authority(), "10.0.0.1:443");
        assert_eq!(server.token, Token::File("/account/token".into()));
        let ca = PemSource::File("/account/ca.crt".into());
        assert_eq!(server.server.tls.unwrap().ca, ca);
        let error = in_cluster(|_| None, Path::new("/account")).unwrap_err();
        assert!(
            error.to_string().contains("KUBERNETES_SERVICE_HOST"),
            "{error}"
        );
        let six = |name: &str| {
            Some(
                if name.ends_with("HOST") {
                    "fd00::1"
                } else {
                    "6443"
                }
                .to_owned(),
            )
        };
        let server = in_cluster(six, Path::new("/account")).unwrap();
        assert_eq!(server.server.authority(), "[fd00::1]:6443");
    }

    #[test]
    fn a_token_file_is_read_each_time() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("token");
        let token = Token::File(path.clone());
        assert!(token.read().is_err());
        for text in ["one\n", "two"] {
            std::fs::write(&path, text).unwrap();
            assert_eq!(token.read().unwrap().as_deref(), Some(text.trim()));
        }
        std::fs::write(&path, " \n").unwrap();
        assert!(token.read().unwrap_err().to_string().ends_with("is empty"));
        assert_eq!(Token::None.read().unwrap(), None);
    }
}
