//! [`NodeInfo`]: who is at the other end of a stream, as far as anybody needs to know.
//!
//! Made by `convert::node` from `envoy.config.core.v3.Node` without building the 60 KB of
//! extensions that Envoy sends along. What to deliver to whom is not decided here but in the
//! control plane.

use plimsoll_core::model::load_report::Node;

use crate::lrs::SUPPORTS_SEND_ALL_CLUSTERS;

/// What a plimsoll data plane announces in `node.client_features` (decisions D9).
pub const PLIMSOLL_FEATURE: &str = "plimsoll.lrs_reported_rate";

/// A node and what is known of its software.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeInfo {
    /// Id, fleet and locality.
    pub node: Node,
    /// `user_agent_name`: `envoy`, `gRPC C-core`, …
    pub user_agent_name: String,
    /// `user_agent_version`, or the build version as `major.minor.patch`; may be empty.
    pub user_agent_version: String,
    /// `client_features`, in order.
    pub client_features: Vec<String>,
}

impl NodeInfo {
    /// Whether this node understands what only plimsoll data planes understand.
    pub fn is_plimsoll(&self) -> bool {
        self.client_features
            .iter()
            .any(|feature| feature == PLIMSOLL_FEATURE)
    }

    /// Whether its load reporting client understands `send_all_clusters`. Announced on load
    /// reporting streams only.
    pub fn supports_send_all_clusters(&self) -> bool {
        self.client_features
            .iter()
            .any(|feature| feature == SUPPORTS_SEND_ALL_CLUSTERS)
    }

    /// Whether this is a gRPC library, which has no zone-aware routing and drops localities without
    /// a weight.
    pub fn is_grpc(&self) -> bool {
        self.user_agent_name.starts_with("gRPC") || self.user_agent_name.starts_with("grpc")
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_core::model::locality::Locality;

    use super::*;

    fn node(user_agent_name: &str, features: &[&str]) -> NodeInfo {
        NodeInfo {
            node: Node {
                id: "n".into(),
                cluster: "fleet".into(),
                locality: Locality::default(),
            },
            user_agent_name: user_agent_name.to_owned(),
            user_agent_version: String::new(),
            client_features: features.iter().map(|&name| name.to_owned()).collect(),
        }
    }

    #[test]
    fn the_feature_makes_a_plimsoll_data_plane() {
        assert!(node("envoy", &["x", PLIMSOLL_FEATURE]).is_plimsoll());
        assert!(!node("plimsoll", &["plimsoll.lrs_reported_rat"]).is_plimsoll());
    }

    #[test]
    fn grpc_libraries_say_so() {
        for name in ["gRPC C-core", "gRPC Go", "gRPC Java", "grpc-node"] {
            assert!(node(name, &[]).is_grpc(), "{name}");
        }
        assert!(!node("envoy", &[]).is_grpc());
    }
}
