//! Identity of this process: id and zone of a proxy, from the command line or its environment.
//!
//! Every pod of a Deployment has the same file and the same command line, so that what differs
//! between them, their name and their zone, comes from variables, a file of the downward API, or
//! the Node that the pod runs on.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, anyhow, bail};
use plimsoll_kubernetes::ApiAccess;
use plimsoll_kubernetes::node::{ZONE_LABEL, zone_of_node};

/// Variable with the zone, for example from `fieldRef` of the pod's zone label.
pub(crate) const ZONE: &str = "PLIMSOLL_ZONE";
/// Variable with the node id, for example the name of the pod.
pub(crate) const NODE_ID: &str = "PLIMSOLL_NODE_ID";
/// Variable with the name of the Node whose zone label is read, `spec.nodeName` of the pod.
const NODE_NAME: &str = "PLIMSOLL_NODE_NAME";

/// Where the zone of this process may be written; the first place that has it wins.
#[derive(Debug, Default)]
pub(crate) struct ZonePlaces {
    pub(crate) flag: Option<String>,
    /// A file of the downward API.
    pub(crate) file: Option<PathBuf>,
}

impl ZonePlaces {
    /// Returns the zone: of the flag, of the variable `PLIMSOLL_ZONE`, of the file, or of the Node
    /// that `PLIMSOLL_NODE_NAME` names.
    pub(crate) fn find(
        &self,
        variable: impl Fn(&str) -> Option<String>,
    ) -> anyhow::Result<Option<String>> {
        if let Some(zone) = &self.flag {
            return Ok(Some(zone.clone()));
        }
        // A pod without the label has the variable without a value.
        let set = |name: &str| variable(name).filter(|value| !value.is_empty());
        if let Some(zone) = set(ZONE) {
            return Ok(Some(zone));
        }
        if let Some(file) = &self.file {
            return read_zone_file(file).map(Some);
        }
        let Some(node) = set(NODE_NAME) else {
            return Ok(None);
        };
        let kubeconfig = set("KUBECONFIG").map(|path| ApiAccess::Kubeconfig {
            path: path.into(),
            context: None,
        });
        ask_node(&kubeconfig.unwrap_or_default(), &node).map(Some)
    }
}

/// Asks the API server for the zone of a Node.
fn ask_node(access: &ApiAccess, node: &str) -> anyhow::Result<String> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start the async runtime")?;
    let answer = runtime.block_on(zone_of_node(access, node));
    let zone = answer.map_err(|failure| anyhow!("{NODE_NAME} {node}: {}", failure.text()))?;
    zone.with_context(|| format!("{NODE_NAME} {node}: the Node has no label {ZONE_LABEL}"))
}

/// Returns a variable of this process.
pub(crate) fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

/// Returns the node id of the flag, or of the variable `PLIMSOLL_NODE_ID`.
pub(crate) fn node_id(
    flag: Option<&String>,
    variable: impl Fn(&str) -> Option<String>,
) -> Option<String> {
    let set = || variable(NODE_ID).filter(|id| !id.is_empty());
    flag.cloned().or_else(set)
}

/// Reads a file of a downward API volume: the zone alone, or all labels of the pod, one
/// `name="value"` per line.
fn read_zone_file(path: &Path) -> anyhow::Result<String> {
    let name = || format!("--zone-file {}", path.display());
    let text = plimsoll_serve::read_file(path).with_context(name)?;
    let labeled = text.lines().find_map(|line| {
        let (label, value) = line.split_once('=')?;
        (label == ZONE_LABEL).then_some(value)
    });
    let zone = match labeled {
        Some(quoted) => serde_json::from_str(quoted).with_context(name)?,
        None => text.trim().to_owned(),
    };
    if zone.is_empty() || zone.contains(['\n', '=']) {
        bail!("{}: has neither a zone nor a label {ZONE_LABEL}", name());
    }
    Ok(zone)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unset(_: &str) -> Option<String> {
        None
    }

    fn in_file(text: &str) -> anyhow::Result<Option<String>> {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("zone");
        std::fs::write(&path, text).unwrap();
        let places = ZonePlaces {
            flag: None,
            file: Some(path),
        };
        places.find(unset)
    }

    #[test]
    fn the_flag_wins_over_the_variable_and_that_over_the_file() {
        let set = |name: &str| (name == ZONE).then(|| "from-variable".to_owned());
        let places = ZonePlaces {
            flag: Some("from-flag".to_owned()),
            file: Some(PathBuf::from("missing")),
        };
        assert_eq!(places.find(set).unwrap().as_deref(), Some("from-flag"));
        let places = ZonePlaces {
            flag: None,
            ..places
        };
        assert_eq!(places.find(set).unwrap().as_deref(), Some("from-variable"));
        assert!(
            places.find(|_| Some(String::new())).is_err(),
            "the file is missing"
        );
        assert_eq!(ZonePlaces::default().find(unset).unwrap(), None);
    }

    #[test]
    fn a_node_is_asked_if_nothing_else_has_the_zone() {
        let set = |name: &str| match name {
            NODE_NAME => Some("worker-1".to_owned()),
            "KUBECONFIG" => Some("/no/such/kubeconfig".to_owned()),
            _ => None,
        };
        let error = ZonePlaces::default().find(set).unwrap_err().to_string();
        assert!(
            error.starts_with("PLIMSOLL_NODE_NAME worker-1: "),
            "{error}"
        );
        assert!(error.contains("/no/such/kubeconfig"), "{error}");
        let wrong = |name: &str| (name == NODE_NAME).then(|| "../secrets".to_owned());
        let error = ZonePlaces::default().find(wrong).unwrap_err().to_string();
        assert!(error.contains("is not a name of a Node"), "{error}");
    }

    #[test]
    fn a_file_has_the_zone_or_the_labels_of_the_pod() {
        assert_eq!(in_file("zone-a\n").unwrap().as_deref(), Some("zone-a"));
        let labels = "app=\"x\"\ntopology.kubernetes.io/zone=\"zone-b\"\n";
        assert_eq!(in_file(labels).unwrap().as_deref(), Some("zone-b"));
        for wrong in ["", "\n", "app=\"x\"\n", "app=\"x\"\nb=\"y\"\n"] {
            let error = in_file(wrong).unwrap_err().to_string();
            assert!(error.contains("neither a zone nor a label"), "{error}");
        }
    }

    #[test]
    fn the_id_is_that_of_the_flag_or_the_variable() {
        let set = |name: &str| (name == NODE_ID).then(|| "pod-1".to_owned());
        let flag = "flag".to_owned();
        assert_eq!(node_id(Some(&flag), set).as_deref(), Some("flag"));
        assert_eq!(node_id(None, set).as_deref(), Some("pod-1"));
        assert_eq!(node_id(None, |_| Some(String::new())), None);
    }
}
