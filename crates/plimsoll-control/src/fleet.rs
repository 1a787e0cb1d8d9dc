//! [`Fleets`]: the proxies of each fleet (`node.cluster`), discovered from their streams.
//! `membership` is the owner of fleets in the state, `node_checks` and `suspects` are about nodes
//! that are not what they say.
//!
//! A node joins its fleet with its first stream and leaves some time after its last stream has
//! closed, so that a reconnect does not change the membership. Each node gets an unroutable
//! address: the assignment of a fleet is only read for its zones and weights, nobody connects to
//! these endpoints. Demand is measured in `plimsoll_core::planner`.
//!
//! Names, ids and zones come from the network, so their number is limited, and the work per stream
//! does not grow with the number of nodes. Nodes in zones that nobody configured are served, but do
//! not appear in the assignment of their fleet.

mod member;
mod membership;
mod node_checks;
mod peer;
mod refusal;
mod suspects;

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use plimsoll_core::counts::HostSetCounts;
use plimsoll_core::model::assignment::{
    AssignmentParts, ClusterLoadAssignment, LbEndpoint, LocalityParts,
};
use plimsoll_core::model::load_report::Node;
use plimsoll_core::model::locality::Locality;
use plimsoll_core::time::Instant;
use plimsoll_xds::node::NodeInfo;
use xxhash_rust::xxh64::xxh64;

use crate::delivery::NodeClass;

pub use member::{Member, StreamKind};
pub(crate) use membership::{FleetSettings, Membership};
pub use peer::Peer;
use peer::PeerCounts;
pub use refusal::OpenRefusal;
pub use suspects::{Suspects, Suspicion};

/// Limit of endpoints in the assignment of a fleet. Proxies only read zones and weights, so a
/// sample of the nodes is sufficient, and updates of large fleets stay small.
pub const MAX_ENDPOINTS: usize = 200;

/// Most nodes, fleets and zones that are known at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FleetLimits {
    pub nodes: usize,
    pub fleets: usize,
    /// Zones of one fleet beside the configured ones.
    pub zones_per_fleet: usize,
    /// Nodes that were first seen from one IPv4 address or IPv6 network of 64 bits.
    pub nodes_per_peer: usize,
    /// Fleets that were first seen from one such address.
    pub fleets_per_peer: usize,
    /// Streams of one kind of one node.
    pub streams_per_node: usize,
}

impl Default for FleetLimits {
    fn default() -> Self {
        Self {
            nodes: 50_000,
            fleets: 1000,
            zones_per_fleet: 64,
            nodes_per_peer: 10_000,
            fleets_per_peer: 200,
            streams_per_node: 256,
        }
    }
}

/// All fleets and their nodes.
#[derive(Debug, Default)]
pub struct Fleets {
    limits: FleetLimits,
    /// Zones whose nodes belong to the assignment of their fleet; `None` if all do.
    zones: Option<BTreeSet<Locality>>,
    fleets: BTreeMap<Arc<str>, Fleet>,
    /// Number of nodes of all fleets.
    nodes: usize,
    peers: PeerCounts,
    /// Nodes without an open stream, by time of disconnection, fleet and id. A separate set,
    /// because every message checks it for nodes that must leave; it is usually small.
    disconnected: BTreeSet<(Instant, Arc<str>, Arc<str>)>,
}

#[derive(Debug, Default)]
struct Fleet {
    members: BTreeMap<Arc<str>, Member>,
    /// Number of members by zone.
    zones: BTreeMap<Locality, usize>,
    addresses: BTreeSet<SocketAddr>,
    /// Address whose limit of fleets the fleet counts against.
    counted_by: Option<IpAddr>,
    /// The assignment with a sample of the members, until the next change.
    representatives: OnceLock<ClusterLoadAssignment>,
    /// Classes of the members, until the next change.
    classes: OnceLock<BTreeSet<NodeClass>>,
}

/// Fleet and id of a node.
pub type MemberKey = (Arc<str>, Arc<str>);

/// Effect of a stream that was opened.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Opened {
    /// Nodes or localities of the fleet changed.
    pub changed: bool,
    /// The node is the first of its fleet in a zone that counts.
    pub new_zone: bool,
    /// Nodes, as fleet and id, that left early, because there was no room for this one.
    pub left: Vec<MemberKey>,
}

impl Fleets {
    /// Sets the limits. They apply to nodes that connect from now on.
    pub const fn set_limits(&mut self, limits: FleetLimits) {
        self.limits = limits;
    }

    /// Sets the zones whose nodes belong to the assignment of their fleet; `None` for all.
    pub fn set_zones(&mut self, zones: Option<BTreeSet<Locality>>) {
        if self.zones != zones {
            self.zones = zones;
            self.fleets
                .values_mut()
                .for_each(Fleet::forget_representatives);
        }
    }

    /// Whether nodes in a zone belong to the assignment of their fleet.
    pub fn counts_zone(&self, locality: &Locality) -> bool {
        let zones = self.zones.as_ref();
        zones.is_none_or(|zones| zones.contains(locality))
    }

    /// Registers a stream of a node, or says why it is refused.
    pub fn open(
        &mut self,
        info: &NodeInfo,
        kind: StreamKind,
        peer: &Peer,
        now: Instant,
    ) -> Result<Opened, OpenRefusal> {
        let left = self.admit(info, peer)?;
        self.check_streams(info, kind)?;
        // On its load reporting stream, Envoy announces one more client feature: keep the
        // `NodeInfo` of the discovery stream unless the locality has changed.
        let opened = self.enter(info, kind == StreamKind::Ads, peer, now);
        if let Some(fleet) = self.fleets.get_mut(&info.node.cluster)
            && let Some(member) = fleet.members.get_mut(&info.node.id)
        {
            let class = NodeClass::of(&member.info);
            member.opened(info, kind, peer, now);
            if class != NodeClass::of(&member.info) {
                fleet.classes = OnceLock::new();
            }
        }
        Ok(Opened { left, ..opened })
    }

    /// Registers a node that another replica serves, or says why it is refused. A node that also
    /// has a stream to this replica stays as it is. Limits of its peer are checked there.
    pub fn share(&mut self, info: &NodeInfo, now: Instant) -> Result<Opened, OpenRefusal> {
        let unknown = Peer::default();
        let left = self.admit(info, &unknown)?;
        let (fleet, id) = (&info.node.cluster, &info.node.id);
        let opened = match self.member_mut(fleet, id) {
            Some(member) if member.has_stream() => Opened::default(),
            _ => self.enter(info, true, &unknown, now),
        };
        if let Some(member) = self.member_mut(fleet, id) {
            member.is_shared = true;
        }
        Ok(Opened { left, ..opened })
    }

    /// Records that no other replica serves a node. Without a stream to this one it leaves: at
    /// once if `gone`, else like a node whose last stream has closed. Returns whether it left.
    pub fn remove_shared(
        &mut self,
        fleet: &Arc<str>,
        id: &Arc<str>,
        gone: bool,
        now: Instant,
    ) -> bool {
        let Some(member) = self.member_mut(fleet, id) else {
            return false;
        };
        member.is_shared = false;
        if member.has_stream() {
            return false;
        }
        if gone {
            if let Some(since) = member.disconnected_since {
                let key = disconnected_key(since, &member.info);
                self.disconnected.remove(&key);
            }
            self.remove(fleet, id);
            return true;
        }
        self.disconnect(fleet, id, now);
        false
    }

    /// Lets nodes without a stream start over to wait until they leave.
    pub fn restart_leaving(&mut self, now: Instant) {
        for (_, fleet, id) in std::mem::take(&mut self.disconnected) {
            if let Some(member) = self.member_mut(&fleet, &id) {
                member.disconnected_since = Some(now);
                self.disconnected.insert((now, fleet, id));
            }
        }
    }

    /// Adds a node to its fleet, or updates it if it moved or `replace` is set.
    fn enter(&mut self, info: &NodeInfo, replace: bool, peer: &Peer, now: Instant) -> Opened {
        let counts_zone = self.counts_zone(&info.node.locality);
        let counted_by = peer.counted_by();
        let fleet = self
            .fleets
            .entry(Arc::clone(&info.node.cluster))
            .or_default();
        let new_zone = counts_zone && !fleet.zones.contains_key(&info.node.locality);
        let mut changed = false;
        if !fleet.members.contains_key(&info.node.id) {
            if fleet.members.is_empty() {
                fleet.counted_by = counted_by;
                self.peers.add_fleet(counted_by);
            }
            fleet.insert(info, counted_by, now);
            self.nodes += 1;
            self.peers.add_node(counted_by);
            changed = true;
        }
        if let Some(member) = fleet.members.get_mut(&info.node.id) {
            let from = member.info.node.locality.clone();
            let moved = from != info.node.locality;
            changed |= moved;
            if changed || replace {
                member.info = info.clone();
                fleet.classes = OnceLock::new();
            }
            if let Some(since) = member.disconnected_since.take() {
                self.disconnected
                    .remove(&disconnected_key(since, &member.info));
            }
            if moved {
                fleet.moved(&from, &info.node.locality);
            }
        }
        Opened {
            changed,
            new_zone,
            left: Vec::new(),
        }
    }

    /// Checks the limits. If there is no room, nodes without a stream leave, the oldest first;
    /// returns them.
    fn admit(&mut self, info: &NodeInfo, peer: &Peer) -> Result<Vec<MemberKey>, OpenRefusal> {
        let node = &info.node;
        let fleet = self.fleets.get(&node.cluster);
        if let Some(fleet) = fleet {
            self.check_zone(fleet, node)?;
            if let Some(member) = fleet.members.get(&node.id) {
                member.check_peer(peer)?;
                return Ok(Vec::new());
            }
        }
        let is_known = fleet.is_some();
        let mut left = Vec::new();
        let limits = self.limits;
        self.peers.check(peer.counted_by(), !is_known, &limits)?;
        while self.nodes >= limits.nodes || !is_known && self.fleets.len() >= limits.fleets {
            let Some((_, name, id)) = self.disconnected.pop_first() else {
                return Err(if self.nodes >= limits.nodes {
                    OpenRefusal::Nodes(limits.nodes)
                } else {
                    OpenRefusal::Fleets(limits.fleets)
                });
            };
            self.remove(&name, &id);
            left.push((name, id));
        }
        Ok(left)
    }

    /// Refuses further streams of a node that has many: one id must not take those of all others.
    fn check_streams(&self, info: &NodeInfo, kind: StreamKind) -> Result<(), OpenRefusal> {
        let most = self.limits.streams_per_node;
        let fleet = self.fleets.get(&info.node.cluster);
        let member = fleet.and_then(|fleet| fleet.members.get(&info.node.id));
        if member.is_some_and(|member| member.streams_of(kind) as usize >= most) {
            return Err(OpenRefusal::StreamsOfNode(most));
        }
        Ok(())
    }

    fn check_zone(&self, fleet: &Fleet, node: &Node) -> Result<(), OpenRefusal> {
        let configured = |zone: &Locality| self.zones.is_some() && self.counts_zone(zone);
        if fleet.zones.contains_key(&node.locality) || configured(&node.locality) {
            return Ok(());
        }
        let others = fleet.zones.keys().filter(|zone| !configured(zone)).count();
        let limit = self.limits.zones_per_fleet;
        if others >= limit {
            return Err(OpenRefusal::Zones(limit));
        }
        Ok(())
    }

    fn remove(&mut self, fleet: &Arc<str>, id: &Arc<str>) {
        let Some(members) = self.fleets.get_mut(fleet) else {
            return;
        };
        if let Some(member) = members.remove(id) {
            self.nodes -= 1;
            self.peers.remove_node(member.counted_by);
        }
        if members.members.is_empty() {
            self.peers.remove_fleet(members.counted_by);
            self.fleets.remove(fleet);
        }
    }

    /// Unregisters a stream of a node. Returns whether it was the node's last stream of this kind.
    pub fn close(&mut self, fleet: &str, id: &str, kind: StreamKind, now: Instant) -> bool {
        let Some(member) = self.member_mut(fleet, id) else {
            return false;
        };
        let last = member.closed(kind);
        if !member.has_stream() && !member.is_shared {
            self.disconnect(fleet, id, now);
        }
        last
    }

    fn disconnect(&mut self, fleet: &str, id: &str, now: Instant) {
        let Some(member) = self.member_mut(fleet, id) else {
            return;
        };
        if member.disconnected_since.is_none() {
            member.disconnected_since = Some(now);
            let key = disconnected_key(now, &member.info);
            self.disconnected.insert(key);
        }
    }

    /// Returns a node of a fleet.
    pub fn member(&self, fleet: &str, id: &str) -> Option<&Member> {
        self.fleets.get(fleet)?.members.get(id)
    }

    fn member_mut(&mut self, fleet: &str, id: &str) -> Option<&mut Member> {
        self.fleets.get_mut(fleet)?.members.get_mut(id)
    }

    /// Records that a load report of a node has named a service.
    pub fn reported(&mut self, node: &Node, service: &Arc<str>) {
        let fleet = self.fleets.get_mut(&node.cluster);
        if let Some(member) = fleet.and_then(|fleet| fleet.members.get_mut(&node.id))
            && !member.reported.contains(service)
        {
            member.reported.insert(Arc::clone(service));
        }
    }

    /// Removes nodes that have been disconnected for `leave_after`; returns their fleets and ids.
    pub fn expire(&mut self, leave_after: Duration, now: Instant) -> Vec<MemberKey> {
        let mut left = Vec::new();
        while self.deadline(leave_after).is_some_and(|due| due <= now)
            && let Some((_, name, id)) = self.disconnected.pop_first()
        {
            self.remove(&name, &id);
            left.push((name, id));
        }
        left
    }

    /// Returns when [`Self::expire`] removes the next node.
    pub fn deadline(&self, leave_after: Duration) -> Option<Instant> {
        let (since, ..) = self.disconnected.first()?;
        Some(since.saturating_add(leave_after))
    }

    /// Iterates over all fleets and their nodes.
    pub fn iter(&self) -> impl Iterator<Item = (&Arc<str>, &BTreeMap<Arc<str>, Member>)> {
        self.fleets
            .iter()
            .map(|(name, fleet)| (name, &fleet.members))
    }

    /// Iterates over the nodes of a fleet.
    pub fn members(&self, fleet: &str) -> impl Iterator<Item = &Member> {
        let fleet = self.fleets.get(fleet).into_iter();
        fleet.flat_map(|fleet| fleet.members.values())
    }

    /// Returns the number of nodes of a fleet.
    pub fn node_count(&self, fleet: &str) -> usize {
        self.fleets
            .get(fleet)
            .map_or(0, |fleet| fleet.members.len())
    }

    /// Returns the number of nodes of a fleet in zones that count.
    pub fn counted_nodes(&self, fleet: &str) -> usize {
        self.counted_zones(fleet).map(|(_, nodes)| nodes).sum()
    }

    /// Iterates over fleets, localities and numbers of nodes that do not count: of nodes without a
    /// locality, or in one that is not known.
    pub fn unknown_localities(&self) -> impl Iterator<Item = (&Arc<str>, &Locality, usize)> {
        self.fleets.iter().flat_map(|(name, fleet)| {
            let zones = fleet.zones.iter();
            zones
                .filter(|(zone, _)| zone.is_unset() || !self.counts_zone(zone))
                .map(move |(zone, nodes)| (name, zone, *nodes))
        })
    }

    /// Whether a fleet has a node in `locality`.
    pub fn has_locality(&self, fleet: &str, locality: &Locality) -> bool {
        let fleet = self.fleets.get(fleet);
        fleet.is_some_and(|fleet| fleet.zones.contains_key(locality))
    }

    /// Counts the nodes of a fleet by locality, all of them as healthy.
    pub fn counts(&self, fleet: &str) -> HostSetCounts {
        let zones = self.counted_zones(fleet);
        HostSetCounts::all_healthy(zones.map(|(locality, nodes)| (locality.clone(), nodes as u64)))
    }

    /// Returns the classes of a fleet's nodes, sorted.
    pub fn classes(&self, fleet: &str) -> impl Iterator<Item = NodeClass> {
        let fleet = self.fleets.get(fleet).into_iter();
        let classes = fleet.flat_map(|fleet| {
            let of = |member: &Member| NodeClass::of(&member.info);
            let classes = &fleet.classes;
            classes.get_or_init(|| fleet.members.values().map(of).collect())
        });
        classes.copied()
    }

    /// Returns the assignment with a sample of about [`MAX_ENDPOINTS`] nodes of a fleet from all
    /// zones that count, as endpoints; empty for unknown fleets.
    pub fn representatives(&self, fleet: &str) -> ClusterLoadAssignment {
        match self.fleets.get(fleet) {
            Some(known) => known
                .representatives
                .get_or_init(|| self.sample(fleet, known))
                .clone(),
            None => assignment(fleet, BTreeMap::new()),
        }
    }

    fn counted_zones(&self, fleet: &str) -> impl Iterator<Item = (&Locality, usize)> {
        let fleet = self.fleets.get(fleet).into_iter();
        let zones = fleet.flat_map(|fleet| &fleet.zones);
        zones
            .filter(|(zone, _)| self.counts_zone(zone))
            .map(|(zone, nodes)| (zone, *nodes))
    }

    fn sample(&self, name: &str, fleet: &Fleet) -> ClusterLoadAssignment {
        let all = self.counted_nodes(name);
        let room = |nodes: usize| {
            if all > MAX_ENDPOINTS {
                (nodes * MAX_ENDPOINTS / all).max(1)
            } else {
                nodes
            }
        };
        let zones = self.counted_zones(name);
        let mut zones: BTreeMap<Locality, (usize, Vec<LbEndpoint>)> = zones
            .map(|(zone, nodes)| (zone.clone(), (room(nodes), Vec::new())))
            .collect();
        for member in fleet.members.values() {
            if let Some((room, endpoints)) = zones.get_mut(&member.info.node.locality)
                && endpoints.len() < *room
            {
                endpoints.push(LbEndpoint::new(member.address));
            }
        }
        let zones = zones.into_iter();
        assignment(name, zones.map(|(zone, (_, all))| (zone, all)).collect())
    }
}

impl Fleet {
    fn insert(&mut self, info: &NodeInfo, counted_by: Option<IpAddr>, now: Instant) {
        let address = self.free_address(&info.node.id);
        self.addresses.insert(address);
        *self.zones.entry(info.node.locality.clone()).or_default() += 1;
        let member = Member::new(info, address, counted_by, now);
        self.members.insert(Arc::clone(&info.node.id), member);
        self.forget_representatives();
    }

    fn remove(&mut self, id: &str) -> Option<Member> {
        let member = self.members.remove(id)?;
        self.addresses.remove(&member.address);
        self.leave_zone(&member.info.node.locality);
        self.forget_representatives();
        Some(member)
    }

    fn moved(&mut self, from: &Locality, to: &Locality) {
        self.leave_zone(from);
        *self.zones.entry(to.clone()).or_default() += 1;
        self.forget_representatives();
    }

    fn leave_zone(&mut self, zone: &Locality) {
        if let Some(nodes) = self.zones.get_mut(zone) {
            *nodes -= 1;
            if *nodes == 0 {
                self.zones.remove(zone);
            }
        }
    }

    fn forget_representatives(&mut self) {
        self.representatives = OnceLock::new();
        self.classes = OnceLock::new();
    }

    /// Returns an address in 240.0.0.0/4, which is not routable. It is a hash of the node id, so
    /// that a restarted control plane creates the same assignment; collisions are resolved by
    /// rehashing.
    fn free_address(&self, id: &str) -> SocketAddr {
        let mut seed = 0;
        loop {
            let hash = xxh64(id.as_bytes(), seed);
            let [a, b, c, d, high, low, ..] = hash.to_be_bytes();
            let port = u16::from_be_bytes([high, low]).max(1);
            let address = SocketAddr::from((Ipv4Addr::new(240 | (a & 7), b, c, d), port));
            if !self.addresses.contains(&address) {
                return address;
            }
            seed += 1;
        }
    }
}

fn assignment(name: &str, zones: BTreeMap<Locality, Vec<LbEndpoint>>) -> ClusterLoadAssignment {
    let entry = |(locality, lb_endpoints)| LocalityParts {
        locality,
        lb_endpoints,
        ..Default::default()
    };
    ClusterLoadAssignment::try_new(AssignmentParts {
        cluster_name: name.to_owned(),
        endpoints: zones.into_iter().map(entry).collect(),
        ..Default::default()
    })
    .expect("addresses are distinct and nothing else is set")
}

fn disconnected_key(since: Instant, info: &NodeInfo) -> (Instant, Arc<str>, Arc<str>) {
    let node = &info.node;
    (since, Arc::clone(&node.cluster), Arc::clone(&node.id))
}

#[cfg(test)]
mod tests;
