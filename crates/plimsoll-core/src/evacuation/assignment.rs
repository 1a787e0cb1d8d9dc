//! What is left of an assignment while zones are drained.
//!
//! Hosts leave, a share of each locality at a time: then every form of delivery and every policy
//! follows, and each host that is left serves what it served before. Which hosts leave first
//! depends on their addresses only, so replicas and restarts agree.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use xxhash_rust::xxh64::xxh64;

use super::{Drained, WHOLE};
use crate::model::assignment::{ClusterLoadAssignment, LbEndpoint, LocalityLbEndpoints};
use crate::model::health::HealthStatus;

/// Returns the assignment without the hosts that are drained; `None` if none is. A zone without
/// which the service would have no host keeps its own.
pub fn without_drained(
    assignment: &ClusterLoadAssignment,
    drained: &Drained,
) -> Option<ClusterLoadAssignment> {
    let entries = assignment.endpoints();
    let points = |entry: &LocalityLbEndpoints| drained.points(&entry.locality);
    if drained.is_empty() || entries.iter().all(|entry| points(entry) == 0) {
        return None;
    }
    let others = entries.iter().filter(|entry| points(entry) == 0);
    if !others.flat_map(|entry| &entry.lb_endpoints).any(is_usable) {
        return None;
    }
    let left = entries
        .iter()
        .filter_map(|entry| left(entry, points(entry)));
    Some(assignment.with_endpoints(left.collect()))
}

/// Whether a host takes requests by its health in the assignment.
pub(super) fn is_usable(endpoint: &LbEndpoint) -> bool {
    matches!(
        endpoint.health_status,
        HealthStatus::Unknown | HealthStatus::Healthy | HealthStatus::Degraded
    )
}

/// Returns a locality without its drained hosts; `None` if none is left. Its weight falls with the
/// number of its hosts: it is the share of all of them.
fn left(entry: &LocalityLbEndpoints, points: u32) -> Option<LocalityLbEndpoints> {
    if points == 0 {
        return Some(entry.clone());
    }
    let all = entry.lb_endpoints.len();
    // Rounded up: the last host leaves with the last point.
    let kept = (all * (WHOLE.saturating_sub(points)) as usize).div_ceil(WHOLE as usize);
    if kept == 0 {
        return None;
    }
    let mut ranked: Vec<(u64, SocketAddr)> = entry
        .lb_endpoints
        .iter()
        .map(|endpoint| (rank(endpoint.address), endpoint.address))
        .collect();
    ranked.sort_unstable();
    let staying: BTreeSet<SocketAddr> = ranked.iter().take(kept).map(|(_, host)| *host).collect();
    let hosts = entry.lb_endpoints.iter();
    let left = hosts.filter(|host| staying.contains(&host.address));
    let weight = (u64::from(entry.load_balancing_weight) * kept as u64).div_ceil(all as u64);
    Some(LocalityLbEndpoints {
        locality: entry.locality.clone(),
        priority: entry.priority,
        load_balancing_weight: u32::try_from(weight).unwrap_or(u32::MAX),
        lb_endpoints: left.cloned().collect(),
    })
}

/// Order in which hosts come back: by a hash, so that neighbors in a rack do not go together.
fn rank(address: SocketAddr) -> u64 {
    xxh64(address.to_string().as_bytes(), 0)
}
