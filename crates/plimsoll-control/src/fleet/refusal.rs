//! [`OpenRefusal`]: why a stream of a node is not accepted.

use std::fmt;
use std::net::IpAddr;

use tonic::Status;

use super::Peer;

/// Why a stream is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OpenRefusal {
    /// There are this many nodes, all with a stream.
    Nodes(usize),
    /// There are this many fleets, all with a connected node.
    Fleets(usize),
    /// The fleet has nodes in this many zones that are not configured.
    Zones(usize),
    /// There are this many nodes of one peer.
    NodesOfPeer { most: usize, peer: IpAddr },
    /// There are this many fleets of one peer.
    FleetsOfPeer { most: usize, peer: IpAddr },
    /// The node has this many streams of the same kind.
    StreamsOfNode(usize),
    /// A stream of the same node is open from another peer.
    DuplicateId {
        /// Peer whose stream is open.
        first: Peer,
        /// Peer whose stream is refused.
        second: Peer,
    },
}

impl OpenRefusal {
    /// Every limit that can refuse a stream.
    pub(crate) const LIMITS: [&str; 6] = [
        "nodes",
        "fleets",
        "zones_per_fleet",
        "nodes_per_peer",
        "fleets_per_peer",
        "streams_per_node",
    ];

    /// Returns the name of the limit in the configuration file and in metrics.
    pub const fn limit(&self) -> &'static str {
        match self {
            Self::Nodes(_) => "nodes",
            Self::Fleets(_) => "fleets",
            Self::Zones(_) => "zones_per_fleet",
            Self::NodesOfPeer { .. } => "nodes_per_peer",
            Self::FleetsOfPeer { .. } => "fleets_per_peer",
            Self::StreamsOfNode(_) => "streams_per_node",
            Self::DuplicateId { .. } => "duplicate_id",
        }
    }

    /// Returns the status for the peer. It does not learn who another one is.
    pub fn status(&self) -> Status {
        match self {
            Self::DuplicateId { .. } => Status::already_exists(
                "node.id: a node with this id and node.cluster is connected from another peer; \
                 ids must be unique within a fleet",
            ),
            _ => Status::resource_exhausted(self.to_string()),
        }
    }
}

impl fmt::Display for OpenRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nodes(most) => write!(f, "{most} nodes are connected (limits.nodes)"),
            Self::Fleets(most) => {
                write!(
                    f,
                    "node.cluster: {most} fleets are connected (limits.fleets)"
                )
            }
            Self::Zones(most) => write!(
                f,
                "node.locality: the fleet has nodes in {most} zones without endpoints \
                 (limits.zones_per_fleet)"
            ),
            Self::NodesOfPeer { most, peer } => write!(
                f,
                "{most} nodes are connected from {peer} (limits.nodes_per_peer)"
            ),
            Self::FleetsOfPeer { most, peer } => write!(
                f,
                "node.cluster: {most} fleets are connected from {peer} (limits.fleets_per_peer)"
            ),
            Self::StreamsOfNode(most) => write!(
                f,
                "node.id: {most} streams of this kind are open (limits.streams_per_node)"
            ),
            Self::DuplicateId { first, second } => {
                write!(
                    f,
                    "node.id: used from {second} while connected from {first}"
                )
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use tonic::Code;

    use super::*;

    #[test]
    fn statuses_name_field_and_limit() {
        let cases = [
            (
                OpenRefusal::Nodes(2),
                "nodes",
                "2 nodes are connected (limits.nodes)",
            ),
            (
                OpenRefusal::Fleets(3),
                "fleets",
                "node.cluster: 3 fleets are connected (limits.fleets)",
            ),
            (
                OpenRefusal::Zones(4),
                "zones_per_fleet",
                "node.locality: the fleet has nodes in 4 zones without endpoints \
                 (limits.zones_per_fleet)",
            ),
            (
                OpenRefusal::NodesOfPeer {
                    most: 5,
                    peer: [10, 0, 0, 1].into(),
                },
                "nodes_per_peer",
                "5 nodes are connected from 10.0.0.1 (limits.nodes_per_peer)",
            ),
            (
                OpenRefusal::FleetsOfPeer {
                    most: 6,
                    peer: [10, 0, 0, 1].into(),
                },
                "fleets_per_peer",
                "node.cluster: 6 fleets are connected from 10.0.0.1 (limits.fleets_per_peer)",
            ),
            (
                OpenRefusal::StreamsOfNode(7),
                "streams_per_node",
                "node.id: 7 streams of this kind are open (limits.streams_per_node)",
            ),
        ];
        for (refusal, limit, text) in cases {
            assert_eq!(refusal.limit(), limit);
            let status = refusal.status();
            assert_eq!(
                (status.code(), status.message()),
                (Code::ResourceExhausted, text)
            );
        }
    }

    #[test]
    fn a_duplicate_does_not_learn_the_address_of_the_other() {
        let refusal = OpenRefusal::DuplicateId {
            first: IpAddr::from([10, 0, 0, 1]).into(),
            second: IpAddr::from([10, 0, 0, 2]).into(),
        };
        assert_eq!(refusal.limit(), "duplicate_id");
        assert_eq!(refusal.status().code(), Code::AlreadyExists);
        assert!(!refusal.status().message().contains("10.0.0.1"));
        let text = "node.id: used from 10.0.0.2 while connected from 10.0.0.1";
        assert_eq!(refusal.to_string(), text);
    }
}
