//! Node of the clients in discovery tests.

use bytes::Bytes;
use plimsoll_core::model::load_report::Node;
use plimsoll_core::model::locality::Locality;
use plimsoll_xds::ads::message::NodeMessage;
use plimsoll_xds::node::NodeInfo;

pub(crate) fn node() -> NodeMessage {
    NodeMessage {
        info: NodeInfo {
            node: Node {
                id: "n".into(),
                cluster: "fleet".into(),
                locality: Locality::default(),
            },
            user_agent_name: "envoy".to_owned(),
            user_agent_version: String::new(),
            client_features: Vec::new(),
        },
        raw: Bytes::new(),
    }
}
