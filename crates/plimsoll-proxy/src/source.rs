//! Loads the bootstrap file and watches it and its certificates for changes.

use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use plimsoll_serve::{ConfigFile, Files};
use plimsoll_xds::yaml::{ConfigError, Document, expand_environment};
use serde_json::Value;

use crate::config::ProxyConfig;

/// A configuration error and the file that has it.
pub type FileError = plimsoll_serve::FileError<ConfigError>;

/// A parsed bootstrap file, with its JSON and the time at which it was loaded.
#[derive(Debug)]
pub struct Loaded {
    pub config: Arc<ProxyConfig>,
    /// The bootstrap file as JSON, for `/config_dump`.
    pub json: Value,
    pub last_updated: SystemTime,
}

/// Settings of the command line, which take precedence over the file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Overrides {
    /// Bootstrap in YAML that is merged into the file (`--config-yaml`).
    pub config_yaml: Option<String>,
    pub node: NodeOverrides,
}

/// Identity of the proxy from the command line; `None` keeps that of the file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeOverrides {
    /// Value of `--service-node`, which replaces `node.id`.
    pub id: Option<String>,
    /// Value of `--service-cluster`, which replaces `node.cluster`.
    pub cluster: Option<String>,
    /// Value of `--service-zone`, which replaces `node.locality.zone`.
    pub zone: Option<String>,
}

/// Loads the bootstrap file; with an empty path, only what `overrides` has. Certificates are
/// watched for changes, but not read here.
pub fn load(path: &Path, overrides: &Overrides, files: &mut Files) -> Result<Loaded, FileError> {
    let mut file = match &overrides.config_yaml {
        Some(text) if path.as_os_str().is_empty() => ConfigFile {
            name: "--config-yaml".to_owned(),
            text: text.clone(),
        },
        _ => files.read(path)?,
    };
    file.text = match expand_environment(&file.text) {
        Ok(text) => text.into_owned(),
        Err(error) => return Err(file.error(error)),
    };
    if let Some(text) = &overrides.config_yaml {
        let parse = |text: &str| Document::parse(text).map(|document| document.json());
        let mut merged = parse(&file.text).map_err(|error| file.error(error))?;
        let in_argument = |error| FileError {
            file: "--config-yaml".to_owned(),
            error,
        };
        if !path.as_os_str().is_empty() {
            let argument = expand_environment(text).and_then(|text| parse(&text));
            merge(&mut merged, argument.map_err(in_argument)?);
            // Positions in the merged text would mislead, so it has a single line.
            file.text = merged.to_string();
        }
    }
    let config =
        ProxyConfig::parse_with(&file.text, &overrides.node).map_err(|error| file.error(error))?;
    let document = Document::parse(&file.text).map_err(|error| file.error(error))?;
    let listeners = config.listeners.iter();
    for path in listeners.flat_map(|listener| listener.tls_files()) {
        files.watch(path);
    }
    Ok(Loaded {
        config: Arc::new(config),
        json: document.json(),
        last_updated: SystemTime::now(),
    })
}

/// Merges a bootstrap into another as protobuf does: messages field by field, lists by appending;
/// other values are replaced.
fn merge(into: &mut Value, from: Value) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            for (name, value) in from {
                match into.get_mut(&name) {
                    Some(existing) => merge(existing, value),
                    None => drop(into.insert(name, value)),
                }
            }
        }
        (Value::Array(into), Value::Array(from)) => into.extend(from),
        (into, from) => *into = from,
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_serve::FileSource;

    use super::*;

    #[test]
    fn the_command_line_takes_precedence_over_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("proxy.yaml");
        let text = "node: {id: file, cluster: edge, locality: {region: r, zone: a}}\n\
                    static_resources: {clusters: [{name: one, type: STATIC, \
                    load_assignment: {cluster_name: one}}]}\n";
        std::fs::write(&path, text).unwrap();
        let load = |overrides: &Overrides| load(&path, overrides, &mut Files::default());
        let none = load(&Overrides::default()).unwrap();
        assert_eq!(none.config.node.id, "file");
        let overrides = Overrides {
            config_yaml: Some(
                "{node: {cluster: merged}, static_resources: {clusters: [{name: two, type: STATIC, \
                 load_assignment: {cluster_name: two}}]}}"
                    .to_owned(),
            ),
            node: NodeOverrides {
                id: Some("line".to_owned()),
                cluster: None,
                zone: Some("b".to_owned()),
            },
        };
        let loaded = load(&overrides).unwrap();
        let node = &loaded.config.node;
        assert_eq!((&*node.id, &*node.cluster), ("line", "merged"));
        assert_eq!((node.locality.region(), node.locality.zone()), ("r", "b"));
        let clusters = loaded.config.clusters.iter();
        let names: Vec<&str> = clusters.map(|one| &**one.config.name()).collect();
        assert_eq!(names, ["one", "two"]);
        let wrong = Overrides {
            config_yaml: Some("{nodes: {}}".to_owned()),
            ..Overrides::default()
        };
        let error = load(&wrong).unwrap_err();
        assert!(
            error.to_string().contains("nodes: unknown field"),
            "{error}"
        );
        let only = super::load(Path::new(""), &overrides, &mut Files::default()).unwrap();
        assert_eq!(only.config.clusters.len(), 1);
    }

    #[test]
    fn variables_are_replaced_in_file_and_argument() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("proxy.yaml");
        let text = "node: {id: '${CARGO_PKG_NAME}', cluster: edge}\nstatic_resources: {}\n";
        std::fs::write(&path, text).unwrap();
        let overrides = Overrides {
            config_yaml: Some("{node: {cluster: '${NO_SUCH_VARIABLE:-merged}'}}".to_owned()),
            ..Overrides::default()
        };
        let loaded = load(&path, &overrides, &mut Files::default()).unwrap();
        let node = &loaded.config.node;
        assert_eq!((&*node.id, &*node.cluster), ("plimsoll-proxy", "merged"));
        std::fs::write(&path, text.replace("CARGO_PKG_NAME", "NO_SUCH_VARIABLE")).unwrap();
        let error = load(&path, &Overrides::default(), &mut Files::default()).unwrap_err();
        let expected = "node.id: the environment variable NO_SUCH_VARIABLE is not set (at 1:12)";
        assert!(error.to_string().ends_with(expected), "{error}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_missing_certificate_is_reported_once() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("proxy.yaml");
        let listener = |certificate: &str| {
            let tls = "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.\
                       DownstreamTlsContext";
            let manager = "type.googleapis.com/envoy.extensions.filters.network.\
                           http_connection_manager.v3.HttpConnectionManager";
            format!(
                "{{static_resources: {{listeners: [{{name: l, address: {{socket_address: \
                 {{address: 127.0.0.1, port_value: 0}}}}, filter_chains: [{{transport_socket: \
                 {{typed_config: {{'@type': {tls}, common_tls_context: {{tls_certificates: \
                 [{{certificate_chain: {{filename: {certificate}}}, private_key: {{filename: \
                 {certificate}}}}}]}}}}}}, filters: [{{typed_config: {{'@type': {manager}, \
                 stat_prefix: l, route_config: {{virtual_hosts: []}}}}}}]}}]}}]}}}}"
            )
        };
        std::fs::write(&path, listener("first.pem")).unwrap();
        let overrides = Overrides::default();
        let mut source = FileSource::new(&path, move |path: &_, files: &mut _| {
            load(path, &overrides, files)
        });
        source.load().unwrap();
        let missing = folder.path().join("missing.pem");
        std::fs::write(&path, listener(&missing.display().to_string())).unwrap();
        assert!(source.poll().await.is_none(), "the file may be incomplete");
        assert!(source.poll().await.is_some());
        for _ in 0..4 {
            assert!(source.poll().await.is_none(), "the edit was loaded before");
        }
        std::fs::write(&missing, "").unwrap();
        assert!(source.poll().await.is_none());
        assert!(source.poll().await.is_some(), "the certificate is there");
    }
}
