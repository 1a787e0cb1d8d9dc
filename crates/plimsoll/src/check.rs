//! Files that people write, checked without running anything: what kind a file is, and whether the
//! part of Plimsoll that would read it takes it.
//!
//! Every kind is read by its own reader, so that what is fine here is fine there. Only recognizing
//! a kind lives here. Called by `cmd::check`.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, anyhow};
use plimsoll_control::config::FileError;
use plimsoll_control::source::FileSource;
use plimsoll_core::units::FieldError;
use plimsoll_proxy::RunError;
use plimsoll_xds::bootstrap::Bootstrap;
use plimsoll_xds::yaml::{ConfigError, Document, Location, parse_cluster, parse_upstream_cluster};
use serde_json::Value;

use crate::scenario::Scenario;

/// The largest file that is read: a mistake should not eat the memory.
const MAX_FILE_BYTES: u64 = 64 << 20;

/// What a file is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Kind {
    /// Configuration of `plimsoll control`, with all that it includes.
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

/// Whether a file is fine.
pub(crate) type Verdict = Result<String, Fault>;

/// What is wrong, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    /// The file, when it is another one: an included file, a certificate.
    pub(crate) file: Option<String>,
    /// The field; empty when the text cannot be read at all.
    pub(crate) path: String,
    /// What is wrong with it.
    pub(crate) reason: String,
    /// Where it stands, if known.
    pub(crate) location: Option<Location>,
}

impl Kind {
    /// For people.
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

    /// What the file looks like; `None` when nothing tells.
    pub(crate) fn recognize(path: &Path, text: &str) -> Option<Self> {
        if path
            .extension()
            .is_some_and(|extension| extension == "toml")
        {
            return Some(Self::Sim);
        }
        // A text that is no YAML has no keys to go by.
        let value: Value = Document::parse(text).ok()?.read().ok()?;
        let has = |keys: &[&str]| keys.iter().any(|key| value.get(key).is_some());
        let admin_is_text = value.get("admin").is_some_and(Value::is_string);
        match () {
            () if has(&["xds_servers"]) => Some(Self::Bootstrap),
            () if has(&["own_locality", "upstream", "fractions_age"]) => Some(Self::Explain),
            () if has(&["static_resources", "dynamic_resources", "cluster_manager"]) => {
                Some(Self::Proxy)
            }
            () if has(&CONTROL_KEYS) || admin_is_text => Some(Self::Control),
            () if has(&["name"]) => Some(Self::Cluster),
            () => None,
        }
    }

    /// Checks one file. An error is a file that cannot be read; a fault is in what it says.
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
                let scenario = plimsoll_sim::Scenario::parse(text)?;
                let policies = count(scenario.policies().len(), "policy", "policies");
                Ok(format!("{}; {policies}", scenario.title()))
            }
            Self::Bootstrap => {
                let bootstrap = Bootstrap::parse(text)?;
                let servers = bootstrap.xds_servers.iter();
                let servers: Vec<&str> = servers.map(|one| one.server_uri.as_str()).collect();
                Ok(format!("management server {}", servers.join(", ")))
            }
        }
    }
}

/// Keys that only the file of a control plane, or one that it includes, has at the top.
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

/// Reads a file, unless it is too large or no text.
pub(crate) fn read(path: &Path) -> anyhow::Result<String> {
    let name = || path.display().to_string();
    let metadata = fs::metadata(path).with_context(name)?;
    if metadata.len() > MAX_FILE_BYTES {
        let bytes = metadata.len();
        return Err(anyhow!(
            "{}: {bytes} bytes are more than {MAX_FILE_BYTES}",
            name()
        ));
    }
    fs::read_to_string(path).with_context(name)
}

fn control(path: &Path) -> Verdict {
    let loaded = FileSource::new(path).load();
    let fault = |error: FileError| Fault::from(error.error).in_file(error.file, path);
    let (config, _) = loaded.map_err(fault)?;
    if let Some(error) = config.heartbeat_fault {
        return Err(fault(error));
    }
    let services = count(config.services.len(), "service", "services");
    let listeners = count(config.listeners.len(), "listener", "listeners");
    Ok(format!("{services}, {listeners}"))
}

fn proxy(path: &Path) -> Verdict {
    let config = plimsoll_proxy::check(path).map_err(|error| match error {
        RunError::Config(error) => Fault::from(error.error).in_file(error.file, path),
        other => ConfigError::new("", other.to_string()).into(),
    })?;
    let listeners = count(config.listeners.len(), "listener", "listeners");
    let clusters = count(config.clusters.len(), "cluster", "clusters");
    Ok(format!("{listeners}, {clusters}"))
}

/// A cluster that names neither type nor endpoints is one whose endpoints come from elsewhere, as
/// in a service of a control plane.
fn cluster(text: &str) -> Verdict {
    let value: Value = Document::parse(text)?.read()?;
    let elsewhere = ["type", "load_assignment"]
        .iter()
        .all(|key| value.get(key).is_none());
    let config = if elsewhere {
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

fn count(number: usize, one: &str, many: &str) -> String {
    format!("{number} {}", if number == 1 { one } else { many })
}

impl Fault {
    /// The same fault, in the file that has it.
    fn in_file(mut self, file: String, checked: &Path) -> Self {
        let other = !file.is_empty() && Path::new(&file) != checked;
        self.file = other.then_some(file);
        self
    }
}

impl From<ConfigError> for Fault {
    fn from(error: ConfigError) -> Self {
        Self {
            file: None,
            path: error.path().to_owned(),
            reason: error.reason().to_owned(),
            location: error.location(),
        }
    }
}

impl From<FieldError> for Fault {
    fn from(error: FieldError) -> Self {
        ConfigError::from(error).into()
    }
}

impl std::fmt::Display for Fault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for part in [self.file.as_deref(), Some(&*self.path)]
            .into_iter()
            .flatten()
        {
            if !part.is_empty() {
                write!(f, "{part}: ")?;
            }
        }
        f.write_str(&self.reason)?;
        match self.location {
            Some(location) => write!(f, " (at {location})"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recognized(name: &str, text: &str) -> Option<Kind> {
        Kind::recognize(Path::new(name), text)
    }

    #[test]
    fn files_are_recognized_by_what_only_they_have() {
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
    fn a_fault_names_field_reason_and_place() {
        let fault = Kind::Cluster.check(Path::new("x"), "name: a\nlb_polici: RANDOM\n");
        let fault = fault.unwrap_err();
        assert_eq!(fault.path, "lb_polici");
        assert!(fault.to_string().starts_with("lb_polici: "), "{fault}");
        assert!(fault.to_string().ends_with("(at 2:1)"), "{fault}");
        let elsewhere = fault.in_file("b.yaml".to_owned(), Path::new("a.yaml"));
        assert!(
            elsewhere.to_string().starts_with("b.yaml: lb_polici: "),
            "{elsewhere}"
        );
        let here = elsewhere.in_file("a.yaml".to_owned(), Path::new("a.yaml"));
        assert_eq!(
            here.file, None,
            "the name of the file stands in front already"
        );
    }

    #[test]
    fn what_is_fine_is_summed_up() {
        let said = |kind: Kind, text: &str| kind.check(Path::new("x"), text);
        assert_eq!(
            said(Kind::Cluster, "name: a"),
            Ok("a, round_robin".to_owned())
        );
        let typed = said(Kind::Cluster, "name: a\ntype: STATIC").unwrap_err();
        assert_eq!(
            typed.path, "load_assignment",
            "whoever says a type means all of a cluster"
        );
        let bootstrap = r#"{"xds_servers": [{"server_uri": "xds:1",
            "channel_creds": [{"type": "insecure"}]}], "node": {"id": "x"}}"#;
        let fine = "management server xds:1".to_owned();
        assert_eq!(said(Kind::Bootstrap, bootstrap), Ok(fine));
        assert_eq!(count(1, "policy", "policies"), "1 policy");
        assert_eq!(count(0, "policy", "policies"), "0 policies");
    }
}
