//! [`Member`]: a node of a fleet with its open streams.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use plimsoll_core::time::Instant;
use plimsoll_xds::node::NodeInfo;

use super::{OpenRefusal, Peer};

/// Protocol of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamKind {
    Ads,
    Lrs,
    /// LRS of the module inside an Envoy, which only receives demand: the Envoy reports on its own
    /// stream.
    Module,
}

impl StreamKind {
    /// Returns the kind of a load reporting stream of `node`. An Envoy may announce its module as
    /// well, but only the module announces that it understands demand.
    pub fn of_lrs(node: &NodeInfo) -> Self {
        if node.is_envoy_module() && node.is_plimsoll() {
            Self::Module
        } else {
            Self::Lrs
        }
    }
}

/// A node of a fleet.
#[derive(Clone, Debug)]
pub struct Member {
    pub info: NodeInfo,
    pub address: SocketAddr,
    pub since: Instant,
    pub ads_streams: u32,
    pub lrs_streams: u32,
    /// Streams of the module inside the Envoy.
    pub module_streams: u32,
    /// Peer that opened the latest stream. While a stream is open, others are refused.
    peer: Peer,
    /// Address whose limit of nodes the node counts against.
    pub(super) counted_by: Option<IpAddr>,
    /// Time at which the node's last stream closed; `None` while a stream is open.
    pub disconnected_since: Option<Instant>,
    /// Time at which the node opened load reporting; `None` if it has no such stream.
    pub lrs_since: Option<Instant>,
    /// Services in the node's load reports since `lrs_since`.
    pub reported: BTreeSet<Arc<str>>,
    /// Another replica serves the node, so that it stays without a stream to this one.
    pub is_shared: bool,
}

impl Member {
    pub(super) fn new(
        info: &NodeInfo,
        address: SocketAddr,
        counted_by: Option<IpAddr>,
        now: Instant,
    ) -> Self {
        Self {
            info: info.clone(),
            address,
            since: now,
            ads_streams: 0,
            lrs_streams: 0,
            module_streams: 0,
            peer: Peer::default(),
            counted_by,
            disconnected_since: None,
            lrs_since: None,
            reported: BTreeSet::new(),
            is_shared: false,
        }
    }

    /// Counts a stream that was opened, and completes what is known about the node. The discovery
    /// stream decides its class: it gets the clusters. Without one, a module inside the Envoy does.
    pub(super) fn opened(&mut self, info: &NodeInfo, kind: StreamKind, peer: &Peer, now: Instant) {
        *self.streams(kind) += 1;
        self.peer.clone_from(peer);
        match kind {
            StreamKind::Ads => {}
            StreamKind::Lrs => {
                self.lrs_since.get_or_insert(now);
                if self.info.user_agent_version.is_empty() {
                    let version = &info.user_agent_version;
                    self.info.user_agent_version.clone_from(version);
                }
            }
            StreamKind::Module if self.ads_streams == 0 && !self.info.is_envoy_module() => {
                self.info.client_features.clone_from(&info.client_features);
            }
            StreamKind::Module => {}
        }
    }

    /// Counts a stream that was closed. Returns whether it was the last one of its kind.
    pub(super) fn closed(&mut self, kind: StreamKind) -> bool {
        let streams = self.streams(kind);
        *streams = streams.saturating_sub(1);
        let last = *streams == 0;
        if last && kind == StreamKind::Lrs {
            self.lrs_since = None;
            self.reported.clear();
        }
        last
    }

    /// Whether the node has a stream to this replica.
    pub const fn has_stream(&self) -> bool {
        self.ads_streams + self.lrs_streams + self.module_streams > 0
    }

    pub(super) const fn streams_of(&self, kind: StreamKind) -> u32 {
        match kind {
            StreamKind::Ads => self.ads_streams,
            StreamKind::Lrs => self.lrs_streams,
            StreamKind::Module => self.module_streams,
        }
    }

    const fn streams(&mut self, kind: StreamKind) -> &mut u32 {
        match kind {
            StreamKind::Ads => &mut self.ads_streams,
            StreamKind::Lrs => &mut self.lrs_streams,
            StreamKind::Module => &mut self.module_streams,
        }
    }

    /// Refuses a stream of another peer while one of any kind is open. Two processes with one id
    /// would overwrite each other's load reports, and a peer that knows an id could move its node
    /// to another zone or replace its demand. A process that reconnects takes over.
    pub(super) fn check_peer(&self, peer: &Peer) -> Result<(), OpenRefusal> {
        if self.has_stream() && !self.peer.is_same(peer) {
            return Err(OpenRefusal::DuplicateId {
                first: self.peer.clone(),
                second: peer.clone(),
            });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_core::model::load_report::Node;
    use plimsoll_core::model::locality::Locality;
    use plimsoll_xds::node::{ENVOY_MODULE_FEATURE, PLIMSOLL_FEATURE};

    use super::*;

    fn info(version: &str, features: &[&str]) -> NodeInfo {
        NodeInfo {
            node: Node {
                id: "n1".into(),
                cluster: "fleet".into(),
                locality: Locality::default(),
            },
            user_agent_name: "envoy".to_owned(),
            user_agent_version: version.to_owned(),
            client_features: features.iter().map(|&one| one.to_owned()).collect(),
        }
    }

    fn member(info: &NodeInfo) -> Member {
        Member::new(info, ([10, 0, 0, 1], 1).into(), None, at(0))
    }

    fn at(seconds: u64) -> Instant {
        Instant::from_nanos(seconds * 1_000_000_000)
    }

    const BOTH: [&str; 2] = [ENVOY_MODULE_FEATURE, PLIMSOLL_FEATURE];

    #[test]
    fn only_the_module_understands_demand_within_an_envoy() {
        for (features, kind) in [
            (&BOTH[..], StreamKind::Module),
            (&BOTH[..1], StreamKind::Lrs),
            (&BOTH[1..], StreamKind::Lrs),
            (&[], StreamKind::Lrs),
        ] {
            assert_eq!(StreamKind::of_lrs(&info("", features)), kind);
        }
    }

    #[test]
    fn streams_are_counted_by_kind_and_load_reporting_ends_with_its_last() {
        let plain = info("", &[]);
        let mut member = member(&plain);
        assert!(!member.has_stream());
        for (kind, seconds) in [
            (StreamKind::Ads, 1),
            (StreamKind::Lrs, 2),
            (StreamKind::Lrs, 3),
            (StreamKind::Module, 4),
        ] {
            member.opened(&plain, kind, &Peer::default(), at(seconds));
            assert!(member.has_stream());
        }
        let counts = (
            member.ads_streams,
            member.lrs_streams,
            member.module_streams,
        );
        assert_eq!(counts, (1, 2, 1));
        assert_eq!(member.lrs_since, Some(at(2)), "since the first");
        member.reported.insert("orders".into());
        assert!(member.closed(StreamKind::Ads));
        assert!(!member.closed(StreamKind::Lrs), "one is left");
        assert_eq!((member.lrs_since, member.reported.len()), (Some(at(2)), 1));
        assert!(member.closed(StreamKind::Module));
        assert_eq!(member.lrs_since, Some(at(2)));
        assert!(member.has_stream());
        assert!(member.closed(StreamKind::Lrs));
        assert_eq!((member.lrs_since, member.reported.len()), (None, 0));
        assert!(!member.has_stream());
    }

    #[test]
    fn the_discovery_stream_decides_the_class_of_a_node() {
        let module = info("1.2.3", &BOTH);
        let mut bare = member(&info("", &[]));
        bare.opened(&module, StreamKind::Module, &Peer::default(), at(1));
        assert!(bare.info.is_plimsoll(), "no other stream is known");
        assert!(bare.info.user_agent_version.is_empty());
        bare.opened(&module, StreamKind::Lrs, &Peer::default(), at(1));
        assert_eq!(bare.info.user_agent_version, "1.2.3");
        bare.opened(
            &info("4.5.6", &[]),
            StreamKind::Lrs,
            &Peer::default(),
            at(1),
        );
        assert_eq!(bare.info.user_agent_version, "1.2.3", "the first one stays");
        let mut discovering = member(&info("", &[]));
        discovering.opened(&info("", &[]), StreamKind::Ads, &Peer::default(), at(1));
        discovering.opened(&module, StreamKind::Module, &Peer::default(), at(1));
        assert!(!discovering.info.is_plimsoll());
        let mut envoy = member(&info("", &BOTH[..1]));
        envoy.opened(&module, StreamKind::Module, &Peer::default(), at(1));
        assert!(!envoy.info.is_plimsoll(), "it has announced its module");
    }

    #[test]
    fn a_second_peer_is_refused_while_the_first_has_a_stream_of_any_kind() {
        const KINDS: [StreamKind; 3] = [StreamKind::Ads, StreamKind::Lrs, StreamKind::Module];
        let [first, second] = [1, 2].map(|last| Peer::from(IpAddr::from([10, 0, 0, last])));
        for (kind, other) in KINDS.into_iter().zip(KINDS.into_iter().rev()) {
            let plain = info("", &[]);
            let mut member = member(&plain);
            assert_eq!(member.check_peer(&first), Ok(()));
            member.opened(&plain, kind, &first, at(1));
            assert_eq!(member.check_peer(&first), Ok(()));
            assert_eq!(member.check_peer(&Peer::default()), Ok(()));
            let refused = OpenRefusal::DuplicateId {
                first: first.clone(),
                second: second.clone(),
            };
            assert_eq!(member.check_peer(&second), Err(refused));
            member.opened(&plain, other, &first, at(1));
            member.closed(kind);
            assert!(member.check_peer(&second).is_err(), "one is left");
            member.closed(other);
            assert_eq!(member.check_peer(&second), Ok(()));
        }
    }
}
