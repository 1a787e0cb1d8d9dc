//! Validation of configuration files and scenarios without running anything.
//!
//! Recognizes the kind of a file, then passes it to the parser that the running command uses, so
//! that `plimsoll check` and that command accept the same files. Called by `cmd::check`.

use std::path::Path;

use plimsoll_control::config::FileError;
use plimsoll_proxy::{Overrides, RunError};
use plimsoll_serve::{Files, error_chain};
use plimsoll_xds::bootstrap::Bootstrap;
use plimsoll_xds::yaml::{ConfigError, Document, parse_cluster, parse_upstream_cluster};
use serde_json::Value;

use crate::scenario::Scenario;

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Kind {
    /// Configuration of `plimsoll control`, with the files it includes.
    Control,
    /// Configuration of `plimsoll proxy`.
    Proxy,
    /// One cluster in Envoy's YAML.
    Cluster,
    /// Scenario of `plimsoll explain`.
    Explain,
    /// Scenario of `plimsoll sim`.
    Sim,
    /// Bootstrap of a gRPC client.
    Bootstrap,
}

/// Summary of a valid file, or its error. The error names a file if it is in another one: in an
/// included file or a certificate.
pub(crate) type Verdict = Result<String, FileError>;

impl Kind {
    /// Name of the kind in the text output.
    pub(crate) const fn title(self) -> &'static str {
        match self {
            Self::Control => "control plane",
            Self::Proxy => "proxy",
            Self::Cluster => "cluster",
            Self::Explain => "scenario of explain",
            Self::Sim => "scenario of sim",
            Self::Bootstrap => "bootstrap of a gRPC client",
        }
    }

    /// Recognizes the kind of a file from extension and top-level keys; `None` if it is unclear.
    pub(crate) fn recognize(path: &Path, text: &str) -> Option<Self> {
        if path
            .extension()
            .is_some_and(|extension| extension == "toml")
        {
            return Some(Self::Sim);
        }
        // Text that is not valid YAML has no keys to recognize.
        let value: Value = Document::parse(text).ok()?.read().ok()?;
        let has = |keys: &[&str]| keys.iter().any(|key| value.get(key).is_some());
        let admin_is_text = value.get("admin").is_some_and(Value::is_string);
        if has(&["xds_servers"]) {
            Some(Self::Bootstrap)
        } else if has(&["own_locality", "upstream", "fractions_age"]) {
            Some(Self::Explain)
        } else if has(&["static_resources", "dynamic_resources", "cluster_manager"]) {
            Some(Self::Proxy)
        } else if has(&CONTROL_KEYS) || admin_is_text {
            Some(Self::Control)
        } else {
            has(&["name"]).then_some(Self::Cluster)
        }
    }

    /// Validates a file whose text has been read already.
    pub(crate) fn check(self, path: &Path, text: &str) -> Verdict {
        match self {
            Self::Control => control(path),
            Self::Proxy => proxy(path),
            Self::Cluster => cluster(text),
            Self::Explain => {
                let scenario = Scenario::parse(text)?;
                Ok(scenario.title().to_owned())
            }
            Self::Sim => {
                let scenario = plimsoll_sim::Scenario::parse(text).map_err(ConfigError::from)?;
                let policies = count(scenario.policies().len(), "policy", "policies");
                Ok(format!("{}; {policies}", scenario.title()))
            }
            Self::Bootstrap => {
                let bootstrap = Bootstrap::parse(text)?;
                let servers = bootstrap.xds_servers.iter();
                let uris: Vec<&str> = servers.map(|server| server.server_uri.as_str()).collect();
                Ok(format!("management server {}", uris.join(", ")))
            }
        }
    }
}

/// Top-level keys that occur only in a control plane's file and the files it includes.
const CONTROL_KEYS: [&str; 8] = [
    "demand",
    "fleets",
    "include",
    "listen",
    "listeners",
    "load_reporting",
    "relay",
    "services",
];

fn control(path: &Path) -> Verdict {
    let loaded = plimsoll_control::source::load(path, &mut Files::default());
    let config = loaded.map_err(|error| without_own_name(error, path))?;
    if let Some(error) = config.heartbeat_error {
        return Err(without_own_name(error, path));
    }
    let services = count(config.services.len(), "service", "services");
    let listeners = count(config.listeners.len(), "listener", "listeners");
    Ok(format!("{services}, {listeners}"))
}

fn proxy(path: &Path) -> Verdict {
    let config =
        plimsoll_proxy::check(path, &Overrides::default()).map_err(|error| match error {
            RunError::Config(error) => without_own_name(error, path),
            other => ConfigError::new("", error_chain(&other)).into(),
        })?;
    let listeners = count(config.listeners.len(), "listener", "listeners");
    let clusters = count(config.clusters.len(), "cluster", "clusters");
    Ok(format!("{listeners}, {clusters}"))
}

/// Removes the name of the checked file from its error: the output line begins with the name.
fn without_own_name(mut error: FileError, checked: &Path) -> FileError {
    if Path::new(&error.file) == checked {
        error.file.clear();
    }
    error
}

/// Validates one cluster. Without `type` and `load_assignment` it is parsed like
/// `services[].cluster` in a control plane's file, which has its endpoints elsewhere.
fn cluster(text: &str) -> Verdict {
    let value: Value = Document::parse(text)?.read()?;
    let endpoints_elsewhere = ["type", "load_assignment"]
        .iter()
        .all(|key| value.get(key).is_none());
    let config = if endpoints_elsewhere {
        parse_cluster(text)?
    } else {
        parse_upstream_cluster(text)?.config
    };
    Ok(format!(
        "{}, {}",
        config.name(),
        config.endpoint_policy().name()
    ))
}

fn count(number: usize, singular: &str, plural: &str) -> String {
    format!("{number} {}", if number == 1 { singular } else { plural })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recognized(name: &str, text: &str) -> Option<Kind> {
        Kind::recognize(Path::new(name), text)
    }

    #[test]
    fn files_are_recognized_by_their_top_level_keys() {
        for (text, kind) in [
            ("services: []", Kind::Control),
            ("admin: 127.0.0.1:1", Kind::Control),
            ("admin: {address: {}}\nstatic_resources: {}", Kind::Proxy),
            ("name: orders\nlb_policy: RANDOM", Kind::Cluster),
            ("own_locality: a\ncluster: {name: x}", Kind::Explain),
            ("{\"xds_servers\": [], \"node\": {}}", Kind::Bootstrap),
        ] {
            assert_eq!(recognized("x.yaml", text), Some(kind), "{text}");
        }
        assert_eq!(recognized("x.toml", "nonsense ["), Some(Kind::Sim));
        for text in ["{}", "[services]", "services", "services: [", ""] {
            assert_eq!(recognized("x.yaml", text), None, "{text}");
        }
    }

    #[test]
    fn an_error_names_field_reason_and_location() {
        let result = Kind::Cluster.check(Path::new("x"), "name: a\nlb_polici: RANDOM\n");
        let error = result.unwrap_err();
        assert_eq!(error.error.path(), "lb_polici");
        assert!(error.to_string().starts_with("lb_polici: "), "{error}");
        assert!(error.to_string().ends_with("(at 2:1)"), "{error}");
        let elsewhere = FileError {
            file: "b.yaml".to_owned(),
            ..error
        };
        let kept = without_own_name(elsewhere.clone(), Path::new("a.yaml"));
        assert_eq!(kept, elsewhere);
        assert!(
            kept.to_string().starts_with("b.yaml: lb_polici: "),
            "{kept}"
        );
        let here = without_own_name(elsewhere, Path::new("b.yaml"));
        assert!(
            here.file.is_empty(),
            "the output line begins with it already"
        );
    }

    #[test]
    fn a_valid_file_is_summarized() {
        let check = |kind: Kind, text: &str| kind.check(Path::new("x"), text);
        assert_eq!(
            check(Kind::Cluster, "name: a"),
            Ok("a, round_robin".to_owned())
        );
        let typed = check(Kind::Cluster, "name: a\ntype: STATIC").unwrap_err();
        assert_eq!(
            typed.error.path(),
            "load_assignment",
            "with a type the cluster must be complete"
        );
        let bootstrap = r#"{"xds_servers": [{"server_uri": "xds:1",
            "channel_creds": [{"type": "insecure"}]}], "node": {"id": "x"}}"#;
        let summary = "management server xds:1".to_owned();
        assert_eq!(check(Kind::Bootstrap, bootstrap), Ok(summary));
        assert_eq!(count(1, "policy", "policies"), "1 policy");
        assert_eq!(count(0, "policy", "policies"), "0 policies");
    }
}
