//! Zone of a Node, by one request: for Pods that do not have the zone label of their Node, which
//! they get since Kubernetes 1.35. Needs the right to `get` the resource `nodes`.

use std::collections::BTreeMap;

use http::Method;
use serde::Deserialize;

use crate::access::ApiAccess;
use crate::reflector::Failure;
use crate::session::Session;

/// Label of Nodes with their zone.
pub const ZONE_LABEL: &str = "topology.kubernetes.io/zone";

#[derive(Deserialize)]
struct NodeJson {
    metadata: MetadataJson,
}

#[derive(Default, Deserialize)]
struct MetadataJson {
    #[serde(default)]
    labels: BTreeMap<String, String>,
}

/// Returns the zone of a Node; `None` if it has no zone label.
pub async fn zone_of_node(access: &ApiAccess, name: &str) -> Result<Option<String>, Failure> {
    // The API server refuses other names; a path must not lead elsewhere.
    let is_name = |letter: char| letter.is_ascii_alphanumeric() || "-.".contains(letter);
    if name.is_empty() || !name.chars().all(is_name) {
        return Err(Failure::Transport(format!(
            "{name:?} is not a name of a Node"
        )));
    }
    let mut session = Session::new(access.clone());
    let target = format!("/api/v1/nodes/{name}");
    let body = session.send_and_read(Method::GET, &target, None).await?;
    let node: NodeJson = serde_json::from_slice(&body)
        .map_err(|error| Failure::Transport(format!("invalid Node: {error}")))?;
    let mut labels = node.metadata.labels;
    Ok(labels.remove(ZONE_LABEL).filter(|zone| !zone.is_empty()))
}
