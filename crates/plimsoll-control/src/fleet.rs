//! [`Fleets`]: the proxies that were seen, by fleet, without anybody writing them down.
//!
//! A node belongs to its fleet from its first stream on and leaves some time after its last one
//! closed, so that a reconnect is not a change of membership. Each gets an address that nobody
//! answers: the assignment of a fleet is read for its zones and weights, never dialled. Demand does
//! not live here but in `plimsoll_core::planner`.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use plimsoll_core::model::assignment::{
    AssignmentParts, ClusterLoadAssignment, LbEndpoint, LocalityParts,
};
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
            member.silent_since = None;
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
        if member.ads_streams + member.lrs_streams == 0 {
            member.silent_since = Some(now);
        }
        last
    }

    /// Takes out who has been silent for `leave_after`; returns the fleets that look different.
    pub fn expire(&mut self, leave_after: Duration, now: Instant) -> Vec<Arc<str>> {
        let mut changed = Vec::new();
        for (name, members) in &mut self.fleets {
            let before = members.len();
            members.retain(|_, member| member.deadline(leave_after).is_none_or(|due| due > now));
            if members.len() < before {
                changed.push(Arc::clone(name));
            }
        }
        self.fleets.retain(|_, members| !members.is_empty());
        changed
    }

    /// When the next one leaves.
    pub fn deadline(&self, leave_after: Duration) -> Option<Instant> {
        let members = self.fleets.values().flat_map(BTreeMap::values);
        members
            .filter_map(|member| member.deadline(leave_after))
            .min()
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

    /// Whether a fleet has a member at `locality`.
    pub fn is_in(&self, fleet: &str, locality: &Locality) -> bool {
        self.members(fleet)
            .any(|member| member.info.node.locality == *locality)
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

    fn deadline(&self, leave_after: Duration) -> Option<Instant> {
        self.silent_since
            .map(|since| since.saturating_add(leave_after))
    }
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
