//! Decoding and encoding of the records that replicas of a control plane share.

use bytes::Bytes;
use prost::Message;

use super::load_report::{decode_load_stats_request, encode_load_stats_request};
use crate::lrs::message::LoadStatsRequest;
use crate::replica::{NodeRecord, ReplicaRecord};
use plimsoll_schema::error::DecodeError;
use plimsoll_schema::pb::replica::{NodeRecordMessage, ReplicaRecordMessage};

/// Decodes the record of a node.
pub fn decode_node_record(bytes: &[u8]) -> Result<NodeRecord, DecodeError> {
    let message = NodeRecordMessage::decode(bytes)?;
    let report = decode_load_stats_request(message.report);
    let report = report.map_err(|error| error.under("report"))?;
    let node = report
        .node
        .ok_or_else(|| DecodeError::new("report.node", "is missing"))?;
    Ok(NodeRecord {
        replica: message.replica.into(),
        instance: message.instance,
        node,
        cluster_stats: report.cluster_stats,
    })
}

/// Encodes the record of a node.
pub fn encode_node_record(record: &NodeRecord) -> Vec<u8> {
    let report = LoadStatsRequest {
        node: Some(record.node.clone()),
        cluster_stats: record.cluster_stats.clone(),
    };
    let message = NodeRecordMessage {
        replica: record.replica.as_ref().to_owned(),
        instance: record.instance,
        report: Bytes::from(encode_load_stats_request(&report)),
    };
    message.encode_to_vec()
}

/// Decodes the record of a replica.
pub fn decode_replica_record(bytes: &[u8]) -> Result<ReplicaRecord, DecodeError> {
    let message = ReplicaRecordMessage::decode(bytes)?;
    Ok(ReplicaRecord {
        replica: message.replica,
        instance: message.instance,
        listen: message.listen,
        version: message.version,
        configuration: message.configuration,
        started_unix_ms: message.started_unix_ms,
        nodes: message.nodes,
    })
}

/// Encodes the record of a replica.
pub fn encode_replica_record(record: &ReplicaRecord) -> Vec<u8> {
    let message = ReplicaRecordMessage {
        replica: record.replica.clone(),
        instance: record.instance,
        listen: record.listen.clone(),
        version: record.version.clone(),
        configuration: record.configuration,
        started_unix_ms: record.started_unix_ms,
        nodes: record.nodes,
    };
    message.encode_to_vec()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use plimsoll_core::model::load_report::{ClusterStats, Node, UpstreamLocalityStats};
    use plimsoll_core::model::locality::Locality;

    use super::*;
    use crate::node::NodeInfo;

    fn record() -> NodeRecord {
        NodeRecord {
            replica: "r1".into(),
            instance: u64::MAX,
            node: NodeInfo {
                node: Node {
                    id: "proxy-1".into(),
                    cluster: "edge".into(),
                    locality: Locality::new("r", "a", ""),
                },
                user_agent_name: "envoy".into(),
                user_agent_version: "1.40.0".into(),
                client_features: vec!["x".into()],
            },
            cluster_stats: vec![ClusterStats {
                cluster_name: "orders".into(),
                upstream_locality_stats: vec![UpstreamLocalityStats {
                    locality: Locality::zone_only("b"),
                    total_issued_requests: 600,
                    ..Default::default()
                }],
                total_dropped_requests: 3,
                load_report_interval: Duration::from_millis(9_998),
            }],
        }
    }

    #[test]
    fn a_node_survives_a_round_trip() {
        let bytes = encode_node_record(&record());
        assert_eq!(decode_node_record(&bytes).unwrap(), record());
        let silent = NodeRecord {
            cluster_stats: Vec::new(),
            ..record()
        };
        let bytes = encode_node_record(&silent);
        assert_eq!(decode_node_record(&bytes).unwrap(), silent);
    }

    #[test]
    fn a_record_without_a_node_is_an_error() {
        let error = decode_node_record(&[]).unwrap_err();
        assert_eq!(error.to_string(), "report.node: is missing");
        assert!(decode_node_record(&[0xff]).is_err());
    }

    #[test]
    fn a_replica_survives_a_round_trip() {
        let replica = ReplicaRecord {
            replica: "r1".into(),
            instance: 7,
            listen: "10.0.0.1:18000".into(),
            version: "0.1.0".into(),
            configuration: 0xfeed,
            started_unix_ms: 1_800_000_000_000,
            nodes: 5000,
        };
        let bytes = encode_replica_record(&replica);
        assert_eq!(decode_replica_record(&bytes).unwrap(), replica);
        assert!(decode_replica_record(&[0xff]).is_err());
    }
}
