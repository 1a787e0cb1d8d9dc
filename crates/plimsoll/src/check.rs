//! Validation of configuration files and scenarios without running anything.
//!
//! Recognizes the kind of a file, then passes it to the parser that the running command uses, so
//! that `plimsoll check` and that command accept the same files. Called by `cmd::check`.

mod envoy;
mod zone_loss;

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use plimsoll_control::certificates::{self, Stage, unix_seconds};
use plimsoll_control::config::{ControlConfig, FileError};
use plimsoll_core::model::cluster::ClusterConfig;
use plimsoll_core::model::locality::Locality;
use plimsoll_proxy::config::ProxyConfig;
use plimsoll_proxy::{Overrides, RunError};
use plimsoll_serve::error_chain;
use plimsoll_xds::bootstrap::Bootstrap;
use plimsoll_xds::yaml::{
    ConfigError, Document, Location, all_faults, expand_environment, read_cluster,
    read_complete_cluster,
};
use serde_json::Value;

use crate::scenario::Scenario;
pub(crate) use zone_loss::{Loss, zone_loss};

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
    /// Bootstrap of an Envoy, as `plimsoll bootstrap envoy` prints it.
    Envoy,
}

/// What is said about a valid file.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Valid {
    pub(crate) summary: String,
    /// What works today, and should be looked at all the same.
    pub(crate) warnings: Vec<String>,
}

impl From<String> for Valid {
    fn from(summary: String) -> Self {
        Self {
            summary,
            warnings: Vec::new(),
        }
    }
}

/// What is said about a valid file, or its faults. A fault names a file if it is in another one: in
/// an included file or a certificate.
pub(crate) type Verdict = Result<Valid, Vec<FileError>>;

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
            Self::Envoy => "bootstrap of an Envoy",
        }
    }

    /// Recognizes the kind of a file from extension and top-level keys.
    pub(crate) fn recognize(path: &Path, text: &str) -> Result<Self, ConfigError> {
        if text.trim().is_empty() {
            return Err(ConfigError::new("", "the file is empty"));
        }
        let guessed = Self::guess(path, text).or_else(|| Self::guess_by_lines(text));
        guessed.ok_or_else(|| {
            let syntax = Document::parse(text).err();
            let unclear = || {
                let reason = "the kind of file is not clear from its keys; name it with --kind";
                ConfigError::new("", reason)
            };
            syntax.unwrap_or_else(unclear)
        })
    }

    /// Recognizes a control plane's file whose fields have no values or misspelt names, so that its
    /// own parser says so.
    fn guess_by_lines(text: &str) -> Option<Self> {
        // Broken syntax is a fault of its own.
        Document::parse(text).ok()?;
        let lines = text
            .lines()
            .filter(|line| line.starts_with(|first: char| first.is_ascii_alphabetic()));
        let mut keys = lines.filter_map(|line| Some(line.split_once(':')?.0));
        let is_near = |key: &str| CONTROL_KEYS.iter().any(|known| is_near(key, known));
        keys.any(is_near).then_some(Self::Control)
    }

    fn guess(path: &Path, text: &str) -> Option<Self> {
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
        } else if envoy::is_ours(&value) {
            Some(Self::Envoy)
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
            Self::Proxy => proxy(path, text),
            Self::Cluster => {
                let config = read_all(text, cluster)?;
                let (name, policy) = (config.name(), config.endpoint_policy().name());
                Ok(format!("{name}, {policy}").into())
            }
            Self::Explain => Ok(read_all(text, Scenario::read)?.title().to_owned().into()),
            Self::Sim => {
                let scenario = plimsoll_sim::Scenario::parse(text).map_err(|_| {
                    let faults = plimsoll_sim::Scenario::faults(text);
                    faults.iter().map(sim_fault).collect::<Vec<_>>()
                })?;
                let policies = count(scenario.policies().len(), "policy", "policies");
                Ok(format!("{}; {policies}", scenario.title()).into())
            }
            Self::Bootstrap => {
                read_all(text, Bootstrap::check)?;
                let bootstrap = Bootstrap::parse(text).map_err(|error| vec![error.into()])?;
                let servers = bootstrap.xds_servers.iter();
                let uris: Vec<&str> = servers.map(|server| server.server_uri.as_str()).collect();
                Ok(format!("management server {}", uris.join(", ")).into())
            }
            Self::Envoy => read_all(text, envoy::check).map(Valid::from),
        }
    }
}

/// Whether two keys are equal but for one letter that one of them lacks.
fn is_near(one: &str, other: &str) -> bool {
    let lacks = |short: &str, long: &str| {
        let mut at = 0..long.len();
        long.is_ascii() && at.any(|at| [&long[..at], &long[at + 1..]].concat() == short)
    };
    one == other || lacks(one, other) || lacks(other, one)
}

/// Reads a text, and finds all its faults if there are any.
fn read_all<T>(
    text: &str,
    read: impl Fn(&Document) -> Result<T, ConfigError>,
) -> Result<T, Vec<FileError>> {
    let first = match Document::parse(text).and_then(|document| read(&document)) {
        Ok(value) => return Ok(value),
        Err(error) => error,
    };
    let faults = all_faults(text, |document| read(document).map(drop));
    let faults = if faults.is_empty() {
        vec![first]
    } else {
        faults
    };
    Err(faults.into_iter().map(FileError::from).collect())
}

fn sim_fault(error: &plimsoll_sim::ScenarioError) -> FileError {
    let fault = ConfigError::new(error.field.path(), error.field.reason());
    match error.position {
        Some((line, column)) => fault.at(Location { line, column }).into(),
        None => fault.into(),
    }
}

/// Top-level keys that occur only in a control plane's file and the files it includes.
const CONTROL_KEYS: [&str; 15] = [
    "admin_tls",
    "demand",
    "fleets",
    "identities",
    "include",
    "insecure",
    "limits",
    "listen",
    "listeners",
    "load_reporting",
    "read_only",
    "relay",
    "reload",
    "services",
    "store",
];

fn control(path: &Path) -> Verdict {
    let config = plimsoll_control::source::check(path).map_err(|faults| own(faults, path))?;
    let services = count(config.services.len(), "service", "services");
    let listeners = count(config.listeners.len(), "listener", "listeners");
    let now = unix_seconds();
    let mut certificates = certificates::configured(&config);
    certificates.retain(|each| each.stage(now) != Stage::Fine);
    let ending = certificates.iter().map(|each| each.text(now));
    let warnings = ending.chain(mixed_regions(&config)).collect();
    Ok(Valid {
        summary: format!("{services}, {listeners}"),
        warnings,
    })
}

/// Warns of localities of which some have a region and some have none: no proxy is in both kinds.
fn mixed_regions(config: &ControlConfig) -> Option<String> {
    let services = config.services.values();
    let localities = services.flat_map(|service| service.assignment.endpoints());
    let all: BTreeSet<&Locality> = localities.map(|entry| &entry.locality).collect();
    let with = all.iter().find(|one| !one.region().is_empty())?;
    let without = all
        .iter()
        .find(|one| one.region().is_empty() && !one.is_unset())?;
    Some(format!(
        "{with} has a region and {without} has none: proxies with one are never local to the \
         other; write the same fields everywhere"
    ))
}

fn proxy(path: &Path, text: &str) -> Verdict {
    let overrides = Overrides::default();
    let expanded = expand_environment(text).map_err(|error| vec![error.into()])?;
    read_all(&expanded, |document| {
        ProxyConfig::read(document, &overrides.node)
    })?;
    let config = plimsoll_proxy::check(path, &overrides).map_err(|error| match error {
        RunError::Config(error) => own(vec![error], path),
        other => vec![ConfigError::new("", error_chain(&other)).into()],
    })?;
    let listeners = count(config.listeners.len(), "listener", "listeners");
    let clusters = count(config.clusters.len(), "cluster", "clusters");
    Ok(format!("{listeners}, {clusters}").into())
}

/// Removes the name of the checked file from its faults: the output line begins with the name.
fn own(mut faults: Vec<FileError>, checked: &Path) -> Vec<FileError> {
    for fault in &mut faults {
        if Path::new(&fault.file) == checked {
            fault.file.clear();
        }
    }
    faults
}

/// Validates one cluster. Without `type` and `load_assignment` it is parsed like
/// `services[].cluster` in a control plane's file, which has its endpoints elsewhere.
fn cluster(document: &Document) -> Result<Arc<ClusterConfig>, ConfigError> {
    let value: Value = document.read()?;
    let endpoints_elsewhere = ["type", "load_assignment"]
        .iter()
        .all(|key| value.get(key).is_none());
    if endpoints_elsewhere {
        read_cluster(document).map(Arc::new)
    } else {
        read_complete_cluster(document).map(|cluster| Arc::new(cluster.config))
    }
}

fn count(number: usize, singular: &str, plural: &str) -> String {
    format!("{number} {}", if number == 1 { singular } else { plural })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recognized(name: &str, text: &str) -> Option<Kind> {
        Kind::recognize(Path::new(name), text).ok()
    }

    fn faults(kind: Kind, text: &str) -> Vec<String> {
        let faults = kind.check(Path::new("x"), text).unwrap_err();
        faults.iter().map(ToString::to_string).collect()
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
        for text in [
            "services:",
            "servics:\n- cluster: {name: x}",
            "services:\n- mode:",
        ] {
            assert_eq!(recognized("x.yaml", text), Some(Kind::Control), "{text}");
        }
        assert_eq!(recognized("x.toml", "nonsense ["), Some(Kind::Sim));
        for text in ["{}", "[services]", "services", "services: [", ""] {
            assert_eq!(recognized("x.yaml", text), None, "{text}");
        }
        let reason = |text| {
            Kind::recognize(Path::new("x"), text)
                .unwrap_err()
                .to_string()
        };
        assert_eq!(reason(" \n"), "the file is empty");
        assert!(reason("{}").contains("--kind"), "{}", reason("{}"));
        assert!(
            reason("services: [").contains("(at 1:"),
            "syntax comes first"
        );
    }

    #[test]
    fn all_faults_of_a_file_are_named() {
        let text = "name: a\nlb_polici: RANDOM\nconnect_timeot: 1s\n\
                    common_lb_config: {healthy_panic_threshold: {value: 200}}\n";
        assert_eq!(
            faults(Kind::Cluster, text),
            [
                "lb_polici: unknown field, did you mean lb_policy? (at 2:1)",
                "connect_timeot: unknown field, did you mean connect_timeout? (at 3:1)",
                "common_lb_config.healthy_panic_threshold.value: 200 is not a percentage between \
                 0 and 100 (at 4:53)",
            ]
        );
    }

    #[test]
    fn all_faults_of_scenarios_and_bootstraps_are_named() {
        let scenario = "durationn = 5\n[host]\nservers = 0\n[[zone]]\nname = 3\n";
        let found = faults(Kind::Sim, scenario);
        for start in ["durationn: ", "host.servers: ", "zone[0].name: "] {
            let is_there = found.iter().any(|fault| fault.starts_with(start));
            assert!(is_there, "{start} {found:#?}");
        }
        let bootstrap = "{\"xds_servers\": [\n{\"server_uri\": 5, \"channel_creds\": [{\"type\": \
                         \"alts\"}]},\n{\"server_uri\": \"a:1\", \"channel_creds\": [{\"type\": \
                         \"alts\"}]}],\n\"node\": {\"id\": [1]}}";
        let found = faults(Kind::Bootstrap, bootstrap);
        for (field, line) in [
            ("xds_servers[0].server_uri", "(at 2:"),
            ("xds_servers[1].channel_creds", "(at 3:"),
            ("node.id", "(at 4:"),
        ] {
            let is_there = |fault: &&String| fault.starts_with(field) && fault.contains(line);
            assert!(
                found.iter().any(|fault| is_there(&fault)),
                "{field} {found:#?}"
            );
        }
    }

    #[test]
    fn a_fault_of_another_file_keeps_its_name() {
        let fault = |file: &str| FileError {
            file: file.to_owned(),
            error: ConfigError::new("lb_policy", "no"),
        };
        let kept = own(vec![fault("b.yaml"), fault("a.yaml")], Path::new("a.yaml"));
        assert_eq!(kept, [fault("b.yaml"), fault("")]);
    }

    #[test]
    fn a_valid_file_is_summarized() {
        let check = |kind: Kind, text: &str| kind.check(Path::new("x"), text);
        assert_eq!(
            check(Kind::Cluster, "name: a"),
            Ok("a, round_robin".to_owned().into())
        );
        let typed = check(Kind::Cluster, "name: a\ntype: STATIC").unwrap_err();
        assert_eq!(
            typed[0].error.path(),
            "load_assignment",
            "with a type the cluster must be complete"
        );
        let bootstrap = r#"{"xds_servers": [{"server_uri": "xds:1",
            "channel_creds": [{"type": "insecure"}]}], "node": {"id": "x"}}"#;
        let summary = "management server xds:1".to_owned();
        assert_eq!(check(Kind::Bootstrap, bootstrap), Ok(summary.into()));
        assert_eq!(count(1, "policy", "policies"), "1 policy");
        assert_eq!(count(0, "policy", "policies"), "0 policies");
    }
}
