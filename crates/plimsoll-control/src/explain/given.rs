//! [`Given`]: what a proxy is given, or would be, as the balancer that it makes of it.
//!
//! Knows neither the control plane's state nor who asks: a proxy answers its own what-ifs with it,
//! too. Which words and weights a proxy is given is decided in `explain`.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use plimsoll_core::balancer::Balancer;
use plimsoll_core::model::assignment::{
    AssignmentParts, ClusterLoadAssignment, LbEndpoint, LocalityLbEndpoints, LocalityParts,
};
use plimsoll_core::model::cluster::ClusterConfig;
use plimsoll_core::model::locality::Locality;
use plimsoll_core::planner::fractions::largest_remainder_of_shares;
use plimsoll_core::snapshot::RoutingSnapshot;
use plimsoll_core::time::Instant;
use plimsoll_core::units::{BASIS_POINTS, BasisPoints, FieldError};

/// Most hosts that a what-if may ask for, in all zones together.
const MAX_HOSTS: u32 = 100_000;

/// What a proxy is given.
#[derive(Clone, Debug)]
pub struct Given<'a> {
    /// The cluster.
    pub config: ClusterConfig,
    /// Where the proxy is.
    pub locality: Locality,
    /// The hosts of the cluster.
    pub upstream: Cow<'a, ClusterLoadAssignment>,
    /// The proxies.
    pub fleet: Cow<'a, ClusterLoadAssignment>,
    /// Demand by zone, on the assignment of the fleet.
    pub fractions: Vec<(Locality, BasisPoints)>,
    /// Demand for this very cluster, which counts for more.
    pub observed_traffic: Vec<(Locality, BasisPoints)>,
}

impl Given<'_> {
    /// What the proxy makes of it, received at the origin of time; with other hosts per zone or
    /// other demand where that is asked for. A zone goes by its name or, where that is not clear,
    /// by `region/zone/sub_zone`.
    pub fn snapshot(
        self,
        hosts: &BTreeMap<String, u32>,
        demand: &BTreeMap<String, f64>,
    ) -> Result<Arc<RoutingSnapshot>, FieldError> {
        let now = Instant::ORIGIN;
        let assignment = resized(&self.upstream, hosts)?;
        let fractions = match demand.is_empty() {
            true => {
                let known = self.fractions.into_iter();
                known.map(|(zone, share)| (zone, share.get())).collect()
            }
            false => asked_demand(&self.fleet, demand)?,
        };
        let originating = originating(&self.fleet, fractions)?;
        let mut balancer = Balancer::new(Arc::new(self.config), self.locality, now);
        balancer.handle_originating(originating, now);
        if demand.is_empty() && !self.observed_traffic.is_empty() {
            balancer.handle_observed_traffic(self.observed_traffic.into_iter().collect(), now);
        }
        balancer.handle_assignment(assignment, now);
        let snapshot = balancer.poll_snapshot();
        Ok(snapshot.unwrap_or_else(|| balancer.initial_snapshot(now)))
    }
}

/// The endpoints there are, or as many per zone as were asked for.
fn resized(
    upstream: &ClusterLoadAssignment,
    hosts: &BTreeMap<String, u32>,
) -> Result<ClusterLoadAssignment, FieldError> {
    if hosts.is_empty() {
        return Ok(upstream.clone());
    }
    let total: u64 = hosts.values().map(|&hosts| u64::from(hosts)).sum();
    if total > u64::from(MAX_HOSTS) {
        let reason = format!("{total} hosts are more than {MAX_HOSTS}");
        return Err(FieldError::new("hosts", reason));
    }
    let mut entries: Vec<LocalityParts> = Vec::new();
    let first = upstream.endpoints().iter();
    for entry in first.filter(|entry| entry.priority == 0) {
        entries.push(parts(entry));
    }
    for (zone, &hosts) in hosts {
        let field = format!("hosts.{zone}");
        let locality = found_or_new(&field, zone, entries.iter().map(|entry| &entry.locality))?;
        let index = entries.iter().position(|entry| entry.locality == locality);
        let index = index.unwrap_or_else(|| {
            entries.push(LocalityParts {
                locality,
                ..Default::default()
            });
            entries.len() - 1
        });
        resize(&mut entries[index], hosts);
    }
    number(&mut entries);
    ClusterLoadAssignment::try_new(AssignmentParts {
        cluster_name: upstream.cluster_name().to_string(),
        endpoints: entries,
        ..Default::default()
    })
}

fn parts(entry: &LocalityLbEndpoints) -> LocalityParts {
    LocalityParts {
        locality: entry.locality.clone(),
        lb_endpoints: entry.lb_endpoints.clone(),
        ..Default::default()
    }
}

/// Keeps the first ones and invents what is missing.
fn resize(entry: &mut LocalityParts, hosts: u32) {
    let wanted = usize::try_from(hosts).unwrap_or(usize::MAX);
    let invented = LbEndpoint::new(SocketAddr::from((Ipv4Addr::LOCALHOST, 1)));
    entry.lb_endpoints.resize(wanted, invented);
}

/// Addresses do not matter here but must differ.
fn number(entries: &mut [LocalityParts]) {
    let endpoints = entries.iter_mut().flat_map(|entry| &mut entry.lb_endpoints);
    for (index, endpoint) in (0_u32..).zip(endpoints) {
        let ip = Ipv4Addr::from(u32::from(Ipv4Addr::new(240, 0, 0, 0)) | index);
        endpoint.address = SocketAddr::from((ip, 1));
    }
}

/// The fleet with the demand that is delivered to it, or the one that was asked for.
fn originating(
    fleet: &ClusterLoadAssignment,
    fractions: Vec<(Locality, u64)>,
) -> Result<ClusterLoadAssignment, FieldError> {
    let mut entries: BTreeMap<Locality, LocalityParts> = fleet
        .endpoints()
        .iter()
        .map(|entry| (entry.locality.clone(), parts(entry)))
        .collect();
    for (locality, fraction) in fractions {
        let entry = entries
            .entry(locality.clone())
            .or_insert_with(|| LocalityParts {
                locality,
                ..Default::default()
            });
        entry.observed_traffic_fraction = Some(fraction);
        // By both roads, as it is sent.
        entry.metadata_traffic_fraction = u32::try_from(fraction).ok().map(f64::from);
    }
    ClusterLoadAssignment::try_new(AssignmentParts {
        cluster_name: "fleet".to_owned(),
        endpoints: entries.into_values().collect(),
        ..Default::default()
    })
}

fn asked_demand(
    fleet: &ClusterLoadAssignment,
    demand: &BTreeMap<String, f64>,
) -> Result<Vec<(Locality, u64)>, FieldError> {
    if let Some((zone, rate)) = demand
        .iter()
        .find(|(_, rate)| !rate.is_finite() || **rate < 0.0)
    {
        let reason = format!("{rate} is not a rate");
        return Err(FieldError::new(format!("demand.{zone}"), reason));
    }
    let rates: Vec<f64> = demand.values().copied().collect();
    let shares = largest_remainder_of_shares(&rates, BASIS_POINTS)
        .ok_or_else(|| FieldError::new("demand", "is zero everywhere"))?;
    let known = fleet.endpoints();
    // Zones that are left out have no demand, which is not the same as being unknown.
    let mut fractions: BTreeMap<Locality, u64> = known
        .iter()
        .map(|entry| (entry.locality.clone(), 0))
        .collect();
    let mut asked = BTreeSet::new();
    for (zone, share) in demand.keys().zip(shares) {
        let field = format!("demand.{zone}");
        let locality = found_or_new(&field, zone, known.iter().map(|entry| &entry.locality))?;
        if !asked.insert(locality.clone()) {
            return Err(FieldError::new(field, "is the same zone as another entry"));
        }
        fractions.insert(locality, share);
    }
    Ok(fractions.into_iter().collect())
}

/// The locality that goes by `name`: the whole of it, or the zone where only one has it.
pub(super) fn find<'a>(
    field: &str,
    name: &str,
    known: impl Iterator<Item = &'a Locality> + Clone,
) -> Result<Option<Locality>, FieldError> {
    if let Some(exact) = known.clone().find(|locality| locality.to_string() == name) {
        return Ok(Some(exact.clone()));
    }
    let mut matching = known.filter(|locality| locality.zone() == name);
    match (matching.next(), matching.next()) {
        (Some(one), Some(other)) => Err(FieldError::new(
            field,
            format!("is not clear: {one} or {other}?"),
        )),
        (one, _) => Ok(one.cloned()),
    }
}

/// The same, or a new locality: `zone`, `region/zone` or `region/zone/sub_zone`. A new zone without
/// region is in that of the others, if they have one in common.
fn found_or_new<'a>(
    field: &str,
    name: &str,
    known: impl Iterator<Item = &'a Locality> + Clone,
) -> Result<Locality, FieldError> {
    if let Some(found) = find(field, name, known.clone())? {
        return Ok(found);
    }
    let parts: Vec<&str> = name.split('/').collect();
    if parts.iter().any(|part| part.is_empty()) {
        return Err(FieldError::new(field, "has an empty part"));
    }
    match *parts.as_slice() {
        [zone] => {
            let mut regions = known.map(Locality::region);
            let region = regions.next().unwrap_or_default();
            let common = regions.all(|other| other == region);
            Ok(Locality::new(if common { region } else { "" }, zone, ""))
        }
        [region, zone] => Ok(Locality::new(region, zone, "")),
        [region, zone, sub_zone] => Ok(Locality::new(region, zone, sub_zone)),
        _ => Err(FieldError::new(field, "is not region/zone/sub_zone")),
    }
}
