//! Identity and features of the node at the other end of a stream.
//!
//! `convert::node` decodes it from `envoy.config.core.v3.Node` and skips the 60 KB of extensions
//! that Envoy sends. The control plane decides what to deliver to which node.

use plimsoll_core::model::load_report::Node;

use crate::lrs::SUPPORTS_SEND_ALL_CLUSTERS;

/// Entry of `node.client_features` that plimsoll data planes announce (decision 0028).
pub const PLIMSOLL_FEATURE: &str = "plimsoll.lrs_reported_rate";

/// Entry of `node.client_features` that announces Plimsoll's module inside an Envoy. The Envoy's
/// bootstrap has it, and so has the module on its own load reporting stream, there together with
/// [`PLIMSOLL_FEATURE`].
pub const ENVOY_MODULE_FEATURE: &str = "plimsoll.envoy_module";

/// Features that servers act on.
const USED_FEATURES: [&str; 3] = [
    ENVOY_MODULE_FEATURE,
    PLIMSOLL_FEATURE,
    SUPPORTS_SEND_ALL_CLUSTERS,
];

/// Node with its software and features.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeInfo {
    /// Id, cluster (fleet) and locality.
    pub node: Node,
    /// For example `envoy` or `gRPC C-core`.
    pub user_agent_name: String,
    /// `user_agent_version`, or the build version as `major.minor.patch`; may be empty.
    pub user_agent_version: String,
    pub client_features: Vec<String>,
}

impl NodeInfo {
    /// Returns whether the node supports Plimsoll's extensions.
    pub fn is_plimsoll(&self) -> bool {
        self.client_features
            .iter()
            .any(|feature| feature == PLIMSOLL_FEATURE)
    }

    /// Returns whether this is an Envoy with Plimsoll's module, or the module in it.
    pub fn is_envoy_module(&self) -> bool {
        self.client_features
            .iter()
            .any(|feature| feature == ENVOY_MODULE_FEATURE)
    }

    /// Returns whether the load reporting client supports `send_all_clusters`. Announced on load
    /// reporting streams only.
    pub fn supports_send_all_clusters(&self) -> bool {
        self.client_features
            .iter()
            .any(|feature| feature == SUPPORTS_SEND_ALL_CLUSTERS)
    }

    /// Keeps the client features that servers act on. What a node announces is kept as long as the
    /// node is known, so the others would only take memory.
    pub fn drop_unused_features(&mut self) {
        self.client_features
            .retain(|feature| USED_FEATURES.contains(&&**feature));
        self.client_features.sort_unstable();
        self.client_features.dedup();
        self.client_features.shrink_to_fit();
    }

    /// Returns whether this is a gRPC library, which has no zone-aware routing and ignores
    /// localities without a weight.
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
    fn features_that_matter_are_kept_once() {
        let features = [
            "x",
            PLIMSOLL_FEATURE,
            "",
            SUPPORTS_SEND_ALL_CLUSTERS,
            PLIMSOLL_FEATURE,
        ];
        let mut node = node("envoy", &features);
        node.drop_unused_features();
        assert_eq!(
            node.client_features,
            [SUPPORTS_SEND_ALL_CLUSTERS, PLIMSOLL_FEATURE]
        );
        assert!(node.is_plimsoll() && node.supports_send_all_clusters());
    }

    #[test]
    fn grpc_libraries_say_so() {
        for name in ["gRPC C-core", "gRPC Go", "gRPC Java", "grpc-node"] {
            assert!(node(name, &[]).is_grpc(), "{name}");
        }
        assert!(!node("envoy", &[]).is_grpc());
    }
}
