//! [`ProxyInput`]: the input of a proxy's balancer, actual or hypothetical, for what-if questions.
//!
//! Proxies and the control plane collect the input from what they know; this module changes it as
//! the question says and runs a balancer on it.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use crate::balancer::Balancer;
use crate::model::assignment::{
    AssignmentParts, ClusterLoadAssignment, LbEndpoint, LocalityLbEndpoints, LocalityParts,
};
use crate::model::cluster::ClusterConfig;
use crate::model::locality::Locality;
use crate::planner::fractions::largest_remainder_f64;
use crate::snapshot::RoutingSnapshot;
use crate::time::Instant;
use crate::units::{BASIS_POINTS, BasisPoints, FieldError};

/// Limit of hypothetical hosts over all zones.
const MAX_HOSTS: u32 = 100_000;

/// Input of a proxy's balancer.
#[derive(Clone, Debug)]
pub struct ProxyInput<'a> {
    pub config: ClusterConfig,
    pub locality: Locality,
    pub upstream: Cow<'a, ClusterLoadAssignment>,
    pub fleet: Cow<'a, ClusterLoadAssignment>,
    /// Demand by zone as basis points, from the fleet's assignment.
    pub fractions: Vec<(Locality, BasisPoints)>,
    /// Demand for this cluster from the LRS response; takes precedence over `fractions`.
    pub observed_traffic: Vec<(Locality, BasisPoints)>,
}

impl ProxyInput<'_> {
    /// Returns the input without borrowed parts.
    pub fn into_owned(self) -> ProxyInput<'static> {
        ProxyInput {
            config: self.config,
            locality: self.locality,
            upstream: Cow::Owned(self.upstream.into_owned()),
            fleet: Cow::Owned(self.fleet.into_owned()),
            fractions: self.fractions,
            observed_traffic: self.observed_traffic,
        }
    }

    /// Returns the input with a hypothetical number of hosts by zone, all healthy; zones that are
    /// not listed keep theirs.
    pub fn with_hosts(self, hosts: &BTreeMap<String, u32>) -> Result<Self, FieldError> {
        let upstream = Cow::Owned(resized(&self.upstream, hosts)?);
        Ok(Self { upstream, ..self })
    }

    /// Returns hypothetical demand by locality; zones of the fleet that are not listed have none.
    pub fn requested(
        &self,
        demand: &BTreeMap<String, f64>,
    ) -> Result<Vec<(Locality, f64)>, FieldError> {
        requested_rates(&self.fleet, demand)
    }

    /// Runs the balancer on this input, received at the origin of time, and returns its snapshot.
    /// `hosts` and `demand` replace the actual values unless they are empty. A zone is given by
    /// name or, if the name is ambiguous, as `region/zone/sub_zone`.
    pub fn snapshot(
        self,
        hosts: &BTreeMap<String, u32>,
        demand: &BTreeMap<String, f64>,
    ) -> Result<Arc<RoutingSnapshot>, FieldError> {
        let now = Instant::ORIGIN;
        let assignment = resized(&self.upstream, hosts)?;
        let fractions = if demand.is_empty() {
            let actual = self.fractions.into_iter();
            actual.map(|(zone, share)| (zone, share.get())).collect()
        } else {
            requested_demand(&self.fleet, demand)?
        };
        let originating = originating(&self.fleet, fractions)?;
        let mut balancer = Balancer::new(Arc::new(self.config), self.locality, now);
        balancer.handle_fleet_assignment(originating, now);
        if demand.is_empty() && !self.observed_traffic.is_empty() {
            balancer.handle_observed_traffic(self.observed_traffic.into_iter().collect(), now);
        }
        balancer.handle_assignment(assignment, now);
        let snapshot = balancer.poll_snapshot();
        Ok(snapshot.unwrap_or_else(|| balancer.initial_snapshot(now)))
    }
}

fn resized(
    upstream: &ClusterLoadAssignment,
    hosts: &BTreeMap<String, u32>,
) -> Result<ClusterLoadAssignment, FieldError> {
    if hosts.is_empty() {
        return Ok(upstream.clone());
    }
    let total: u64 = hosts.values().map(|&hosts| u64::from(hosts)).sum();
    if total > u64::from(MAX_HOSTS) {
        let reason = format!("{total} hosts exceed the limit of {MAX_HOSTS}");
        return Err(FieldError::new("hosts", reason));
    }
    let mut entries: Vec<LocalityParts> = Vec::new();
    let first = upstream.endpoints().iter();
    for entry in first.filter(|entry| entry.priority == 0) {
        entries.push(parts(entry));
    }
    let mut known = KnownLocalities::new(entries.iter().map(|entry| &entry.locality));
    let mut indexes: BTreeMap<Locality, usize> = BTreeMap::new();
    for (index, entry) in entries.iter().enumerate() {
        indexes.entry(entry.locality.clone()).or_insert(index);
    }
    let weight = typical_weight(upstream);
    for (zone, &hosts) in hosts {
        let field = format!("hosts.{zone}");
        let locality = known.find_or_create(&field, zone)?;
        let index = *indexes.entry(locality).or_insert_with_key(|locality| {
            known.insert(locality);
            entries.push(LocalityParts {
                locality: locality.clone(),
                ..Default::default()
            });
            entries.len() - 1
        });
        resize(&mut entries[index], hosts, weight);
    }
    assign_addresses(&mut entries);
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

/// Returns the weight that a new host would have: that of the median.
fn typical_weight(upstream: &ClusterLoadAssignment) -> Option<u32> {
    let entries = upstream.endpoints().iter();
    let mut weights: Vec<Option<u32>> = entries
        .flat_map(|entry| &entry.lb_endpoints)
        .map(|host| host.load_balancing_weight)
        .collect();
    weights.sort_unstable();
    weights.get(weights.len() / 2).copied().flatten()
}

fn resize(entry: &mut LocalityParts, hosts: u32, weight: Option<u32>) {
    let count = usize::try_from(hosts).unwrap_or(usize::MAX);
    let placeholder = LbEndpoint {
        load_balancing_weight: weight,
        ..LbEndpoint::new(SocketAddr::from((Ipv4Addr::LOCALHOST, 1)))
    };
    entry.lb_endpoints.resize(count, placeholder);
}

/// Assigns distinct addresses to endpoints; the balancer needs no real ones.
fn assign_addresses(entries: &mut [LocalityParts]) {
    let endpoints = entries.iter_mut().flat_map(|entry| &mut entry.lb_endpoints);
    for (index, endpoint) in (0_u32..).zip(endpoints) {
        let ip = Ipv4Addr::from(u32::from(Ipv4Addr::new(240, 0, 0, 0)) | index);
        endpoint.address = SocketAddr::from((ip, 1));
    }
}

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
        // Set both as field and as metadata, as the control plane sends fractions.
        entry.metadata_traffic_fraction = u32::try_from(fraction).ok().map(f64::from);
    }
    ClusterLoadAssignment::try_new(AssignmentParts {
        cluster_name: "fleet".to_owned(),
        endpoints: entries.into_values().collect(),
        ..Default::default()
    })
}

/// Returns the shares of zones.
fn requested_demand(
    fleet: &ClusterLoadAssignment,
    demand: &BTreeMap<String, f64>,
) -> Result<Vec<(Locality, u64)>, FieldError> {
    let rates = requested_rates(fleet, demand)?;
    let shares = rates.iter().map(|(_, rate)| *rate).collect::<Vec<_>>();
    let shares = largest_remainder_f64(&shares, BASIS_POINTS)
        .ok_or_else(|| FieldError::new("demand", "must be above zero in at least one zone"))?;
    let zones = rates.into_iter().map(|(locality, _)| locality);
    Ok(zones.zip(shares).collect())
}

fn requested_rates(
    fleet: &ClusterLoadAssignment,
    demand: &BTreeMap<String, f64>,
) -> Result<Vec<(Locality, f64)>, FieldError> {
    if let Some((zone, rate)) = demand
        .iter()
        .find(|(_, rate)| !rate.is_finite() || **rate < 0.0)
    {
        let reason = format!("must be a number of at least 0, not {rate}");
        return Err(FieldError::new(format!("demand.{zone}"), reason));
    }
    if demand.values().sum::<f64>() <= 0.0 {
        return Err(FieldError::new(
            "demand",
            "must be above zero in at least one zone",
        ));
    }
    let known = fleet.endpoints();
    // Zones that are not listed in `demand` have zero demand, not unknown demand.
    let mut rates: BTreeMap<Locality, f64> = known
        .iter()
        .map(|entry| (entry.locality.clone(), 0.0))
        .collect();
    let index = KnownLocalities::new(known.iter().map(|entry| &entry.locality));
    let mut requested = BTreeSet::new();
    for (zone, rate) in demand {
        let field = format!("demand.{zone}");
        let locality = index.find_or_create(&field, zone)?;
        if !requested.insert(locality.clone()) {
            return Err(FieldError::new(field, "is the same zone as another entry"));
        }
        rates.insert(locality, *rate);
    }
    Ok(rates.into_iter().collect())
}

/// Localities by the names that a question may use for them.
#[derive(Debug, Default)]
pub struct KnownLocalities {
    by_name: BTreeMap<String, Locality>,
    by_zone: BTreeMap<String, BTreeSet<Locality>>,
    regions: BTreeSet<String>,
}

impl KnownLocalities {
    /// Creates the names of these localities.
    pub fn new<'a>(localities: impl Iterator<Item = &'a Locality>) -> Self {
        let mut known = Self::default();
        localities.for_each(|locality| known.insert(locality));
        known
    }

    fn insert(&mut self, locality: &Locality) {
        self.by_name.insert(locality.to_string(), locality.clone());
        self.by_zone
            .entry(locality.zone().to_owned())
            .or_default()
            .insert(locality.clone());
        self.regions.insert(locality.region().to_owned());
    }

    /// Finds a locality by `region/zone/sub_zone`, or by its zone if only one locality has it.
    pub fn find(&self, field: &str, name: &str) -> Result<Option<Locality>, FieldError> {
        if let Some(exact) = self.by_name.get(name) {
            return Ok(Some(exact.clone()));
        }
        let mut matching = self.by_zone.get(name).into_iter().flatten();
        match (matching.next(), matching.next()) {
            (Some(one), Some(other)) => Err(FieldError::new(
                field,
                format!("is ambiguous: {one} or {other}"),
            )),
            (one, _) => Ok(one.cloned()),
        }
    }

    /// Finds a locality or creates one from `zone`, `region/zone` or `region/zone/sub_zone`. A new
    /// zone without a region gets the region of the known localities if all have the same.
    fn find_or_create(&self, field: &str, name: &str) -> Result<Locality, FieldError> {
        if let Some(found) = self.find(field, name)? {
            return Ok(found);
        }
        let parts: Vec<&str> = name.split('/').collect();
        if parts.iter().any(|part| part.is_empty()) {
            return Err(FieldError::new(field, "has an empty part"));
        }
        match *parts.as_slice() {
            [zone] => {
                let common = self.regions.first().filter(|_| self.regions.len() == 1);
                let region = common.map_or("", String::as_str);
                Ok(Locality::new(region, zone, ""))
            }
            [region, zone] => Ok(Locality::new(region, zone, "")),
            [region, zone, sub_zone] => Ok(Locality::new(region, zone, sub_zone)),
            _ => Err(FieldError::new(field, "is not region/zone/sub_zone")),
        }
    }
}

#[cfg(test)]
mod tests;
