//! [`Fleets`]: the proxies of each fleet (`node.cluster`), discovered from their streams.
//!
//! A node joins its fleet with its first stream and leaves some time after its last stream has
//! closed, so that a reconnect does not change the membership. Each node gets an unroutable
//! address: the assignment of a fleet is only read for its zones and weights, nobody connects to
//! these endpoints. Demand is measured in `plimsoll_core::planner`.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
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

/// Limit of endpoints in the assignment of a fleet. Proxies only read zones and weights, so a
/// sample of the nodes is sufficient, and updates of large fleets stay small.
pub const MAX_ENDPOINTS: usize = 200;

/// Protocol of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamKind {
    Ads,
    Lrs,
}

/// All fleets and their nodes.
#[derive(Debug, Default)]
pub struct Fleets {
    fleets: BTreeMap<Arc<str>, BTreeMap<Arc<str>, Member>>,
    /// Nodes without an open stream, by time of disconnection, fleet and id. A separate set,
    /// because every message checks it for nodes that must leave; it is usually small.
    disconnected: BTreeSet<(Instant, Arc<str>, Arc<str>)>,
}

/// A node of a fleet.
#[derive(Clone, Debug)]
pub struct Member {
    pub info: NodeInfo,
    pub address: SocketAddr,
    pub since: Instant,
    pub ads_streams: u32,
    pub lrs_streams: u32,
    /// Time at which the node's last stream closed; `None` while a stream is open.
    pub disconnected_since: Option<Instant>,
    /// Time at which the node opened load reporting; `None` if it has no such stream.
    pub lrs_since: Option<Instant>,
    /// Services in the node's load reports since `lrs_since`.
    pub reported: BTreeSet<Arc<str>>,
}

impl Fleets {
    /// Registers a stream of a node. Returns whether nodes or localities of its fleet changed.
    pub fn open(&mut self, info: &NodeInfo, kind: StreamKind, now: Instant) -> bool {
        let fleet = self
            .fleets
            .entry(Arc::clone(&info.node.cluster))
            .or_default();
        let mut changed = false;
        if !fleet.contains_key(&info.node.id) {
            let member = Member {
                info: info.clone(),
                address: free_address(fleet, &info.node.id),
                since: now,
                ads_streams: 0,
                lrs_streams: 0,
                disconnected_since: None,
                lrs_since: None,
                reported: BTreeSet::new(),
            };
            fleet.insert(Arc::clone(&info.node.id), member);
            changed = true;
        }
        if let Some(member) = fleet.get_mut(&info.node.id) {
            changed |= member.info.node.locality != info.node.locality;
            // On its load reporting stream, Envoy announces one more client feature: keep the
            // `NodeInfo` of the discovery stream unless the locality has changed.
            if changed || kind == StreamKind::Ads {
                member.info = info.clone();
            }
            *member.streams(kind) += 1;
            if kind == StreamKind::Lrs {
                member.lrs_since.get_or_insert(now);
            }
            if let Some(since) = member.disconnected_since.take() {
                self.disconnected
                    .remove(&disconnected_key(since, &member.info));
            }
        }
        changed
    }

    /// Unregisters a stream of a node. Returns whether it was the node's last stream of this kind.
    pub fn close(&mut self, fleet: &str, id: &str, kind: StreamKind, now: Instant) -> bool {
        let members = self.fleets.get_mut(fleet);
        let Some(member) = members.and_then(|members| members.get_mut(id)) else {
            return false;
        };
        let streams = member.streams(kind);
        *streams = streams.saturating_sub(1);
        let last = *streams == 0;
        if last && kind == StreamKind::Lrs {
            member.lrs_since = None;
            member.reported.clear();
        }
        if member.ads_streams + member.lrs_streams == 0 && member.disconnected_since.is_none() {
            member.disconnected_since = Some(now);
            self.disconnected
                .insert(disconnected_key(now, &member.info));
        }
        last
    }

    /// Records that a load report of a node has named a service.
    pub fn reported(&mut self, node: &Node, service: &Arc<str>) {
        let members = self.fleets.get_mut(&node.cluster);
        if let Some(member) = members.and_then(|members| members.get_mut(&node.id))
            && !member.reported.contains(service)
        {
            member.reported.insert(Arc::clone(service));
        }
    }

    /// Removes nodes that have been disconnected for `leave_after`; returns the fleets they left.
    pub fn expire(&mut self, leave_after: Duration, now: Instant) -> Vec<Arc<str>> {
        let mut changed = BTreeSet::new();
        while self.deadline(leave_after).is_some_and(|due| due <= now)
            && let Some((_, name, id)) = self.disconnected.pop_first()
        {
            if let Some(members) = self.fleets.get_mut(&name) {
                members.remove(&id);
                if members.is_empty() {
                    self.fleets.remove(&name);
                }
            }
            changed.insert(name);
        }
        changed.into_iter().collect()
    }

    /// Returns when [`Self::expire`] removes the next node.
    pub fn deadline(&self, leave_after: Duration) -> Option<Instant> {
        let (since, ..) = self.disconnected.first()?;
        Some(since.saturating_add(leave_after))
    }

    /// Iterates over all fleets and their nodes.
    pub fn iter(&self) -> impl Iterator<Item = (&Arc<str>, &BTreeMap<Arc<str>, Member>)> {
        self.fleets.iter()
    }

    /// Iterates over the nodes of a fleet.
    pub fn members(&self, fleet: &str) -> impl Iterator<Item = &Member> {
        self.fleets
            .get(fleet)
            .into_iter()
            .flat_map(BTreeMap::values)
    }

    /// Returns the number of nodes of a fleet.
    pub fn node_count(&self, fleet: &str) -> usize {
        self.fleets.get(fleet).map_or(0, BTreeMap::len)
    }

    /// Whether a fleet has a node in `locality`.
    pub fn has_locality(&self, fleet: &str, locality: &Locality) -> bool {
        self.members(fleet)
            .any(|member| member.info.node.locality == *locality)
    }

    /// Counts the nodes of a fleet by locality, all of them as healthy.
    pub fn counts(&self, fleet: &str) -> HostSetCounts {
        let mut zones: BTreeMap<&Locality, u64> = BTreeMap::new();
        for member in self.members(fleet) {
            *zones.entry(&member.info.node.locality).or_default() += 1;
        }
        let zones = zones.into_iter();
        HostSetCounts::all_healthy(zones.map(|(locality, nodes)| (locality.clone(), nodes)))
    }

    /// Returns the assignment with every node of a fleet as an endpoint; empty for unknown fleets.
    pub fn assignment(&self, fleet: &str) -> ClusterLoadAssignment {
        self.assignment_with_limit(fleet, usize::MAX)
    }

    /// Like [`Self::assignment`], with a sample of about [`MAX_ENDPOINTS`] nodes from all zones.
    pub fn representatives(&self, fleet: &str) -> ClusterLoadAssignment {
        self.assignment_with_limit(fleet, MAX_ENDPOINTS)
    }

    fn assignment_with_limit(&self, fleet: &str, limit: usize) -> ClusterLoadAssignment {
        let mut zones: BTreeMap<Locality, Vec<LbEndpoint>> = BTreeMap::new();
        for member in self.members(fleet) {
            let zone = zones.entry(member.info.node.locality.clone()).or_default();
            zone.push(LbEndpoint::new(member.address));
        }
        let all: usize = zones.values().map(Vec::len).sum();
        if all > limit {
            for endpoints in zones.values_mut() {
                endpoints.truncate((endpoints.len() * limit / all).max(1));
            }
        }
        let entry = |(locality, lb_endpoints)| LocalityParts {
            locality,
            lb_endpoints,
            ..Default::default()
        };
        ClusterLoadAssignment::try_new(AssignmentParts {
            cluster_name: fleet.to_owned(),
            endpoints: zones.into_iter().map(entry).collect(),
            ..Default::default()
        })
        .expect("addresses are distinct and nothing else is set")
    }
}

impl Member {
    const fn streams(&mut self, kind: StreamKind) -> &mut u32 {
        match kind {
            StreamKind::Ads => &mut self.ads_streams,
            StreamKind::Lrs => &mut self.lrs_streams,
        }
    }
}

fn disconnected_key(since: Instant, info: &NodeInfo) -> (Instant, Arc<str>, Arc<str>) {
    let node = &info.node;
    (since, Arc::clone(&node.cluster), Arc::clone(&node.id))
}

/// Returns an address in 240.0.0.0/4, which is not routable. It is a hash of the node id, so that a
/// restarted control plane creates the same assignment; collisions are resolved by rehashing.
fn free_address(members: &BTreeMap<Arc<str>, Member>, id: &str) -> SocketAddr {
    let mut seed = 0;
    loop {
        let hash = xxh64(id.as_bytes(), seed);
        let [a, b, c, d, high, low, ..] = hash.to_be_bytes();
        let port = u16::from_be_bytes([high, low]).max(1);
        let address = SocketAddr::from((Ipv4Addr::new(240 | (a & 7), b, c, d), port));
        if members.values().all(|member| member.address != address) {
            return address;
        }
        seed += 1;
    }
}

#[cfg(test)]
mod tests;
