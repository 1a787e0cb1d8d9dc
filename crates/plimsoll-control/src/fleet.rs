//! [`Fleets`]: the proxies that were seen, by fleet, without anybody writing them down.
//!
//! A node belongs to its fleet from its first stream on and leaves some time after its last one
//! closed, so that a reconnect is not a change of membership. Each gets an address that nobody
//! answers: the assignment of a fleet is read for its zones and weights, never dialled. Demand does
//! not live here but in `plimsoll_core::planner`.

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

/// Endpoints of a fleet that are sent at most. Proxies read zones and weights, so a few stand for
/// many, and an update does not grow with the fleet it is sent to.
pub const MAX_ENDPOINTS: usize = 200;

/// What a stream carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamKind {
    /// Discovery.
    Ads,
    /// Load reports.
    Lrs,
}

/// All fleets.
#[derive(Debug, Default)]
pub struct Fleets {
    fleets: BTreeMap<Arc<str>, BTreeMap<Arc<str>, Member>>,
    /// Members without an open stream: since when, fleet, id. They are few, and looked for with
    /// every message.
    silent: BTreeSet<(Instant, Arc<str>, Arc<str>)>,
}

/// One proxy.
#[derive(Clone, Debug)]
pub struct Member {
    /// What it said of itself.
    pub info: NodeInfo,
    /// Its place in the fleet's assignment.
    pub address: SocketAddr,
    /// When it was first seen.
    pub since: Instant,
    /// Open discovery streams.
    pub ads_streams: u32,
    /// Open reporting streams.
    pub lrs_streams: u32,
    /// When its last stream closed, if none is open.
    pub silent_since: Option<Instant>,
    /// Since when it has a reporting stream, if one is open.
    pub lrs_since: Option<Instant>,
    /// Services that it named in a load report since then.
    pub reported: BTreeSet<Arc<str>>,
}

impl Fleets {
    /// A stream of a node opened. Returns whether its fleet looks different now.
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
                silent_since: None,
                lrs_since: None,
                reported: BTreeSet::new(),
            };
            fleet.insert(Arc::clone(&info.node.id), member);
            changed = true;
        }
        if let Some(member) = fleet.get_mut(&info.node.id) {
            changed |= member.info.node.locality != info.node.locality;
            // The reporting stream of an Envoy announces a feature that discovery does not: what
            // was said last about the same place is kept whole.
            if changed || kind == StreamKind::Ads {
                member.info = info.clone();
            }
            *member.streams(kind) += 1;
            if kind == StreamKind::Lrs {
                member.lrs_since.get_or_insert(now);
            }
            if let Some(since) = member.silent_since.take() {
                self.silent.remove(&silent_key(since, &member.info));
            }
        }
        changed
    }

    /// A stream of a node closed. Returns whether it was the last one of its kind.
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
        if member.ads_streams + member.lrs_streams == 0 && member.silent_since.is_none() {
            member.silent_since = Some(now);
            self.silent.insert(silent_key(now, &member.info));
        }
        last
    }

    /// A node named a service in a load report.
    pub fn reported(&mut self, node: &Node, service: &Arc<str>) {
        let members = self.fleets.get_mut(&node.cluster);
        if let Some(member) = members.and_then(|members| members.get_mut(&node.id))
            && !member.reported.contains(service)
        {
            member.reported.insert(Arc::clone(service));
        }
    }

    /// Takes out who has been silent for `leave_after`; returns the fleets that look different.
    pub fn expire(&mut self, leave_after: Duration, now: Instant) -> Vec<Arc<str>> {
        let mut changed = BTreeSet::new();
        while self.deadline(leave_after).is_some_and(|due| due <= now)
            && let Some((_, name, id)) = self.silent.pop_first()
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

    /// When the next one leaves.
    pub fn deadline(&self, leave_after: Duration) -> Option<Instant> {
        let (since, ..) = self.silent.first()?;
        Some(since.saturating_add(leave_after))
    }

    /// Every fleet and its members.
    pub fn iter(&self) -> impl Iterator<Item = (&Arc<str>, &BTreeMap<Arc<str>, Member>)> {
        self.fleets.iter()
    }

    /// The members of a fleet.
    pub fn members(&self, fleet: &str) -> impl Iterator<Item = &Member> {
        self.fleets
            .get(fleet)
            .into_iter()
            .flat_map(BTreeMap::values)
    }

    /// How many members a fleet has.
    pub fn len_of(&self, fleet: &str) -> usize {
        self.fleets.get(fleet).map_or(0, BTreeMap::len)
    }

    /// Whether a fleet has a member at `locality`.
    pub fn is_in(&self, fleet: &str, locality: &Locality) -> bool {
        self.members(fleet)
            .any(|member| member.info.node.locality == *locality)
    }

    /// The members of a fleet, counted by locality; all of them are healthy.
    pub fn counts(&self, fleet: &str) -> HostSetCounts {
        let mut zones: BTreeMap<&Locality, u64> = BTreeMap::new();
        for member in self.members(fleet) {
            *zones.entry(&member.info.node.locality).or_default() += 1;
        }
        let zones = zones.into_iter();
        HostSetCounts::all_healthy(zones.map(|(locality, nodes)| (locality.clone(), nodes)))
    }

    /// Every member of a fleet as an endpoint; a fleet nobody has seen is empty.
    pub fn assignment(&self, fleet: &str) -> ClusterLoadAssignment {
        self.up_to(fleet, usize::MAX)
    }

    /// The same with [`MAX_ENDPOINTS`] at most, each zone in proportion and none without.
    pub fn representatives(&self, fleet: &str) -> ClusterLoadAssignment {
        self.up_to(fleet, MAX_ENDPOINTS)
    }

    fn up_to(&self, fleet: &str, limit: usize) -> ClusterLoadAssignment {
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

fn silent_key(since: Instant, info: &NodeInfo) -> (Instant, Arc<str>, Arc<str>) {
    let node = &info.node;
    (since, Arc::clone(&node.cluster), Arc::clone(&node.id))
}

/// An address of 240.0.0.0/4, which is routed nowhere. It follows from the id, so that a control
/// plane that restarts makes the same assignment; of two ids with one address the later gives way.
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
