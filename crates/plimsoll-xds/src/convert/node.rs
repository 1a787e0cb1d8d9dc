//! Decoding and encoding of `envoy.config.core.v3.Node`.
//!
//! Metadata and extensions are skipped without allocating: an Envoy lists 516 extensions in 61 KB.
//! Called by `discovery` and `load_report`, and through `wire`.

use bytes::Bytes;
use plimsoll_core::model::load_report::Node;
use prost::Message;

use crate::node::NodeInfo;
use plimsoll_schema::error::DecodeError;
use plimsoll_schema::pb::discovery::{BuildVersionMessage, NodeFields};

/// Decodes a node message.
pub fn decode_node(bytes: &[u8]) -> Result<NodeInfo, DecodeError> {
    let fields = NodeFields::decode(bytes)?;
    let user_agent_version = match fields.user_agent_build_version {
        Some(build) if fields.user_agent_version.is_empty() => text(&build),
        _ => fields.user_agent_version,
    };
    Ok(NodeInfo {
        node: Node {
            id: fields.id.into(),
            cluster: fields.cluster.into(),
            locality: fields.locality.map(Into::into).unwrap_or_default(),
        },
        user_agent_name: fields.user_agent_name,
        user_agent_version,
        client_features: fields.client_features,
    })
}

/// Encodes a node message; an empty locality is omitted.
pub fn encode_node(info: &NodeInfo) -> Bytes {
    let locality = &info.node.locality;
    let fields = NodeFields {
        id: info.node.id.as_ref().to_owned(),
        cluster: info.node.cluster.as_ref().to_owned(),
        locality: (!locality.is_unset()).then(|| locality.into()),
        user_agent_name: info.user_agent_name.clone(),
        user_agent_version: info.user_agent_version.clone(),
        user_agent_build_version: None,
        client_features: info.client_features.clone(),
    };
    fields.encode_to_vec().into()
}

fn text(build: &BuildVersionMessage) -> String {
    build.version.as_ref().map_or_else(String::new, |version| {
        format!(
            "{}.{}.{}",
            version.major_number, version.minor_number, version.patch
        )
    })
}

#[cfg(test)]
mod tests {
    use plimsoll_core::model::locality::Locality;

    use super::*;

    fn info() -> NodeInfo {
        NodeInfo {
            node: Node {
                id: "n1".into(),
                cluster: "fleet".into(),
                locality: Locality::new("r1", "a", "s"),
            },
            user_agent_name: "plimsoll".into(),
            user_agent_version: "0.1.0".into(),
            client_features: vec!["x".into(), "y".into()],
        }
    }

    #[test]
    fn a_node_survives_a_round_trip() {
        assert_eq!(decode_node(&encode_node(&info())).unwrap(), info());
        let mut bare = info();
        bare.node.locality = Locality::default();
        let bytes = encode_node(&bare);
        assert!(!bytes.contains(&0x22), "no locality, no field 4");
        assert_eq!(decode_node(&bytes).unwrap(), bare);
    }

    #[test]
    fn the_build_version_is_used_and_extensions_are_skipped() {
        // id "e", extensions [{name "f"}] (9), user_agent_build_version 1.40.0 (8).
        let bytes = [
            0x0a, 1, b'e', 0x4a, 3, 0x0a, 1, b'f', 0x42, 6, 0x0a, 4, 0x08, 1, 0x10, 40,
        ];
        let read = decode_node(&bytes).unwrap();
        assert_eq!(read.node.id.as_ref(), "e");
        assert_eq!(read.user_agent_version, "1.40.0");
        assert!(read.node.locality.is_unset());
    }

    #[test]
    fn malformed_nodes_are_rejected() {
        assert!(decode_node(&[0x0a, 9, b'e']).is_err());
        assert!(decode_node(&[0x0a, 1, 0xff]).is_err(), "not UTF-8");
    }
}
