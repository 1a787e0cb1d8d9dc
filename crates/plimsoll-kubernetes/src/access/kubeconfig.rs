//! Kubeconfig files: the address, certificates and token of one context.

use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use plimsoll_serve::PemSource;
use serde::Deserialize;

use super::{AccessError, ApiServer, Token};

#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Kubeconfig {
    #[serde(default)]
    current_context: String,
    #[serde(default)]
    contexts: Vec<NamedContext>,
    #[serde(default)]
    clusters: Vec<NamedCluster>,
    #[serde(default)]
    users: Vec<NamedUser>,
}

#[derive(Debug, Deserialize)]
struct NamedContext {
    name: String,
    context: Context,
}

#[derive(Debug, Deserialize)]
struct Context {
    cluster: String,
    #[serde(default)]
    user: String,
}

#[derive(Debug, Deserialize)]
struct NamedCluster {
    name: String,
    cluster: Cluster,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Cluster {
    server: String,
    certificate_authority: Option<PathBuf>,
    certificate_authority_data: Option<String>,
    tls_server_name: Option<String>,
    #[serde(default)]
    insecure_skip_tls_verify: bool,
}

#[derive(Debug, Deserialize)]
struct NamedUser {
    name: String,
    #[serde(default)]
    user: User,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
struct User {
    token: Option<String>,
    #[serde(rename = "tokenFile")]
    token_file: Option<PathBuf>,
    client_certificate: Option<PathBuf>,
    client_certificate_data: Option<String>,
    client_key: Option<PathBuf>,
    client_key_data: Option<String>,
    exec: Option<serde_json::Value>,
    auth_provider: Option<serde_json::Value>,
}

/// Reads the API server of a context; without one, of the current context.
pub(super) fn read(path: &Path, context: Option<&str>) -> Result<ApiServer, AccessError> {
    let place = path.display().to_string();
    let error = |reason: String| AccessError::new(&place, reason);
    let text =
        std::fs::read_to_string(path).map_err(|io| error(format!("cannot be read: {io}")))?;
    let base = path.parent().unwrap_or(Path::new(""));
    parse(&text, context, base).map_err(error)
}

fn parse(text: &str, context: Option<&str>, base: &Path) -> Result<ApiServer, String> {
    let config: Kubeconfig = serde_saphyr::from_str(text).map_err(|error| error.to_string())?;
    let name = context.unwrap_or(&config.current_context);
    let found = config.contexts.iter().find(|one| one.name == name);
    let context = &found
        .ok_or_else(|| format!("has no context {name:?}"))?
        .context;
    let found = config
        .clusters
        .iter()
        .find(|one| one.name == context.cluster);
    let cluster = &found
        .ok_or_else(|| format!("has no cluster {:?}", context.cluster))?
        .cluster;
    if cluster.insecure_skip_tls_verify {
        return Err("insecure-skip-tls-verify is not supported; set certificate-authority".into());
    }
    let found = config.users.iter().find(|one| one.name == context.user);
    let nobody = User::default();
    let user = found.map_or(&nobody, |found| &found.user);
    if user.exec.is_some() || user.auth_provider.is_some() {
        return Err(format!(
            "user {:?} runs a program to log in, which is not supported; use a token file",
            context.user
        ));
    }
    let ca = pem(
        base,
        cluster.certificate_authority.as_deref(),
        cluster.certificate_authority_data.as_deref(),
    )?;
    let certificate = pem(
        base,
        user.client_certificate.as_deref(),
        user.client_certificate_data.as_deref(),
    )?;
    let key = pem(
        base,
        user.client_key.as_deref(),
        user.client_key_data.as_deref(),
    )?;
    let token = match (&user.token, &user.token_file) {
        (_, Some(file)) => Token::File(base.join(file)),
        (Some(token), None) => Token::Value(token.clone()),
        (None, None) => Token::None,
    };
    let pair = certificate.zip(key);
    let mut server = ApiServer::new(&cluster.server, ca, pair, token)?;
    server
        .server
        .server_name
        .clone_from(&cluster.tls_server_name);
    Ok(server)
}

/// Returns a certificate or key; the data inside the file wins over a path, as in kubectl.
fn pem(base: &Path, file: Option<&Path>, data: Option<&str>) -> Result<Option<PemSource>, String> {
    let Some(data) = data else {
        return Ok(file.map(|file| PemSource::File(base.join(file))));
    };
    let decoded = STANDARD
        .decode(data)
        .map_err(|error| format!("certificate or key is not base64: {error}"))?;
    let text =
        String::from_utf8(decoded).map_err(|_| "certificate or key is not PEM".to_owned())?;
    Ok(Some(PemSource::Inline(text)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "
apiVersion: v1
kind: Config
current-context: prod
contexts:
- {name: prod, context: {cluster: c1, user: u1, namespace: x}}
- {name: dev, context: {cluster: c2, user: u2}}
- {name: login, context: {cluster: c2, user: u3}}
- {name: open, context: {cluster: c3, user: ''}}
clusters:
- name: c1
  cluster: {server: 'https://prod:6443', certificate-authority: ca.crt, tls-server-name: api}
- {name: c2, cluster: {server: 'https://dev', certificate-authority-data: Q0E=}}
- {name: c3, cluster: {server: 'https://open', insecure-skip-tls-verify: true}}
users:
- {name: u1, user: {tokenFile: token}}
- {name: u2, user: {token: t, client-certificate-data: Q1JU, client-key-data: S0VZ}}
- {name: u3, user: {exec: {command: login}}}
";

    #[test]
    fn contexts_are_read() {
        let base = Path::new("base");
        let prod = parse(TEXT, None, base).unwrap();
        assert_eq!(prod.server.authority(), "prod:6443");
        assert_eq!(prod.server.server_name.as_deref(), Some("api"));
        assert_eq!(prod.token, Token::File("base/token".into()));
        let ca = PemSource::File("base/ca.crt".into());
        assert_eq!(prod.server.tls.unwrap().ca, ca);
        let dev = parse(TEXT, Some("dev"), base).unwrap();
        assert_eq!(dev.token, Token::Value("t".to_owned()));
        let tls = dev.server.tls.unwrap();
        assert_eq!(tls.ca, PemSource::Inline("CA".to_owned()));
        let inline = |text: &str| PemSource::Inline(text.to_owned());
        assert_eq!(tls.certificate, Some((inline("CRT"), inline("KEY"))));
    }

    #[test]
    fn errors_say_what_is_missing() {
        let base = Path::new("");
        for (context, part) in [
            ("none", "has no context \"none\""),
            ("login", "runs a program to log in"),
            ("open", "insecure-skip-tls-verify"),
        ] {
            let error = parse(TEXT, Some(context), base).unwrap_err();
            assert!(error.contains(part), "{error}");
        }
        let error = read(Path::new("/nonexistent"), None).unwrap_err();
        assert!(
            error
                .to_string()
                .starts_with("/nonexistent: cannot be read")
        );
    }
}
