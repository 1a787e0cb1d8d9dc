//! [`ClusterLoadAssignment`]: the endpoints of a cluster by priority and locality (EDS).
//!
//! Converters fill in [`AssignmentParts`]; [`ClusterLoadAssignment::try_new`] checks them. It
//! merges and sorts the entries (priority, locality, address), so that the order in a message has
//! no effect, and ensures that every weight and fraction is in range.

use std::cmp::Reverse;
use std::collections::binary_heap::PeekMut;
use std::collections::{BTreeMap, BinaryHeap};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use super::health::HealthStatus;
use super::locality::Locality;
use super::metadata::Metadata;
use super::zone_aware::FractionSource;
use crate::units::{BasisPoints, FieldError};

/// Highest priority that xDS allows.
pub const MAX_PRIORITY: u32 = 128;
/// Default of `policy.overprovisioning_factor` (Envoy): 140 %.
pub const DEFAULT_OVERPROVISIONING_FACTOR: u32 = 140;

/// One endpoint (`LbEndpoint`), unchecked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LbEndpoint {
    pub address: SocketAddr,
    pub hostname: Arc<str>,
    pub health_status: HealthStatus,
    /// At least 1 when set; unset counts as 1.
    pub load_balancing_weight: Option<u32>,
    /// `filter_metadata["envoy.lb"].hash_key`: overrides the key of consistent hashing.
    pub hash_key: Option<Arc<str>>,
    /// `filter_metadata["envoy.lb"]`, for subsets. The host keeps its identity if this changes.
    pub metadata: Metadata,
}

impl LbEndpoint {
    /// Creates a healthy endpoint of weight 1 without name, hash key or metadata.
    pub fn new(address: SocketAddr) -> Self {
        Self {
            address,
            hostname: "".into(),
            health_status: HealthStatus::Unknown,
            load_balancing_weight: None,
            hash_key: None,
            metadata: Metadata::default(),
        }
    }

    /// Returns the weight, 1 if it is unset.
    pub fn weight(&self) -> u32 {
        self.load_balancing_weight.unwrap_or(1)
    }
}

/// One entry of an assignment (`LocalityLbEndpoints`), unchecked.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LocalityParts {
    pub locality: Locality,
    /// 0 is the highest priority; at most 128.
    pub priority: u32,
    /// At least 1 when set; unset = no traffic from locality-weighted balancing.
    pub load_balancing_weight: Option<u32>,
    pub lb_endpoints: Vec<LbEndpoint>,
    /// `observed_traffic_fraction`, basis points; unset is unknown, not 0 (decision 0023).
    pub observed_traffic_fraction: Option<u64>,
    /// The fraction in `filter_metadata["envoy.lb"]`, where numbers are doubles.
    pub metadata_traffic_fraction: Option<f64>,
    /// Keeps literals open for new fields: write `..Default::default()`.
    #[doc(hidden)]
    pub _non_exhaustive: (),
}

impl LocalityParts {
    /// Creates an entry of priority 0 with healthy endpoints of weight 1.
    pub fn new(locality: Locality, addresses: impl IntoIterator<Item = SocketAddr>) -> Self {
        Self {
            locality,
            lb_endpoints: addresses.into_iter().map(LbEndpoint::new).collect(),
            ..Self::default()
        }
    }
}

/// An entry of `policy.drop_overloads`, unchecked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DropOverloadParts {
    /// Name under which drops are counted.
    pub category: String,
    pub numerator: u32,
    /// `drop_percentage.denominator`: 100, 10000 or 1000000.
    pub denominator: u32,
}

/// The endpoints of a cluster, unchecked.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AssignmentParts {
    pub cluster_name: String,
    /// Localities in any order.
    pub endpoints: Vec<LocalityParts>,
    pub drop_overloads: Vec<DropOverloadParts>,
    /// Percent; default 140, above 0.
    pub overprovisioning_factor: Option<u32>,
    pub weighted_priority_health: bool,
    /// Endpoints are dropped after this time without an update; zero = never.
    pub endpoint_stale_after: Option<Duration>,
    /// Keeps literals open for new fields: write `..Default::default()`.
    #[doc(hidden)]
    pub _non_exhaustive: (),
}

impl AssignmentParts {
    /// Creates an assignment with these localities and defaults for the rest.
    pub fn new(
        cluster_name: impl Into<String>,
        endpoints: impl IntoIterator<Item = LocalityParts>,
    ) -> Self {
        Self {
            cluster_name: cluster_name.into(),
            endpoints: endpoints.into_iter().collect(),
            ..Self::default()
        }
    }
}

/// One locality at one priority, checked.
#[derive(Clone, Debug, PartialEq)]
pub struct LocalityLbEndpoints {
    pub locality: Locality,
    pub priority: u32,
    /// 0 = no weight is set.
    pub load_balancing_weight: u32,
    /// Endpoints sorted by address; all addresses are distinct.
    pub lb_endpoints: Vec<LbEndpoint>,
}

/// A share of requests to drop, by category.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DropOverload {
    pub category: Arc<str>,
    pub per_million: u32,
}

/// The endpoints of a cluster, checked and in canonical order.
#[derive(Clone, Debug, PartialEq)]
pub struct ClusterLoadAssignment {
    cluster_name: Arc<str>,
    /// Shared, because the assignment of a fleet goes to the balancer of every cluster.
    endpoints: Arc<[LocalityLbEndpoints]>,
    eds_fractions: Arc<BTreeMap<Locality, BasisPoints>>,
    metadata_fractions: Arc<BTreeMap<Locality, BasisPoints>>,
    drop_overloads: Vec<DropOverload>,
    overprovisioning_factor: u32,
    weighted_priority_health: bool,
    endpoint_stale_after: Option<Duration>,
}

impl ClusterLoadAssignment {
    /// Checks, merges and sorts the entries. The error names the field.
    pub fn try_new(parts: AssignmentParts) -> Result<Self, FieldError> {
        let overprovisioning_factor = parts
            .overprovisioning_factor
            .unwrap_or(DEFAULT_OVERPROVISIONING_FACTOR);
        if overprovisioning_factor == 0 {
            return Err(FieldError::new(
                "policy.overprovisioning_factor",
                "must be above 0",
            ));
        }
        let mut eds_fractions = Fractions::default();
        let mut metadata_fractions = Fractions::default();
        for (index, entry) in parts.endpoints.iter().enumerate() {
            check_entry(index, entry)?;
            if let Some(value) = entry.observed_traffic_fraction {
                let path = format!("endpoints[{index}].observed_traffic_fraction");
                eds_fractions.insert(&entry.locality, value, path)?;
            }
            if let Some(value) = entry.metadata_traffic_fraction {
                let path = format!(
                    "endpoints[{index}].metadata.filter_metadata[envoy.lb].observed_traffic_fraction"
                );
                let whole = whole_number(value, &path)?;
                metadata_fractions.insert(&entry.locality, whole, path)?;
            }
        }
        check_distinct(&parts.endpoints)?;
        let endpoints = merge(parts.endpoints)?;
        check_weight_sums(&endpoints)?;
        Ok(Self {
            cluster_name: parts.cluster_name.into(),
            endpoints: endpoints.into(),
            eds_fractions: Arc::new(eds_fractions.0),
            metadata_fractions: Arc::new(metadata_fractions.0),
            drop_overloads: check_drops(parts.drop_overloads)?,
            overprovisioning_factor,
            weighted_priority_health: parts.weighted_priority_health,
            endpoint_stale_after: parts.endpoint_stale_after.filter(|time| !time.is_zero()),
        })
    }

    /// Creates an assignment without endpoints, with default settings.
    pub fn empty(cluster_name: &str) -> Self {
        Self {
            cluster_name: cluster_name.into(),
            endpoints: Arc::default(),
            eds_fractions: Arc::default(),
            metadata_fractions: Arc::default(),
            drop_overloads: Vec::new(),
            overprovisioning_factor: DEFAULT_OVERPROVISIONING_FACTOR,
            weighted_priority_health: false,
            endpoint_stale_after: None,
        }
    }

    getters! {
        /// Name of the cluster.
        cluster_name: &Arc<str>,
        /// Entries sorted by priority, then locality.
        endpoints: &[LocalityLbEndpoints],
        /// Shares of requests to drop.
        drop_overloads: &[DropOverload],
        /// Overprovisioning factor in percent, above 0.
        overprovisioning_factor: u32,
        /// Whether priority health is computed from host weights.
        weighted_priority_health: bool,
        /// How long the endpoints may be used without an update; `None` = forever.
        endpoint_stale_after: Option<Duration>,
    }

    /// Returns the fractions in the assignment; a locality without one is unknown (decision 0023).
    /// Shared, because they change far more often than the hosts.
    pub fn fractions(&self, source: FractionSource) -> &Arc<BTreeMap<Locality, BasisPoints>> {
        match source {
            FractionSource::EdsField => &self.eds_fractions,
            FractionSource::LocalityMetadata => &self.metadata_fractions,
        }
    }

    /// Returns the assignment with other endpoints at the same places: entries and endpoints may be
    /// left out, not added.
    #[must_use]
    pub(crate) fn with_endpoints(&self, endpoints: Vec<LocalityLbEndpoints>) -> Self {
        Self {
            endpoints: endpoints.into(),
            ..self.clone()
        }
    }

    /// Returns the same assignment with other endpoint weights. An error if a weight is 0, or if
    /// sums do not fit 32 bits.
    pub fn with_endpoint_weights(
        &self,
        mut weight: impl FnMut(&LbEndpoint) -> u32,
    ) -> Result<Self, FieldError> {
        let mut endpoints = self.endpoints.to_vec();
        for entry in &mut endpoints {
            for endpoint in &mut entry.lb_endpoints {
                let weight = weight(endpoint);
                if weight == 0 {
                    let path = format!("endpoints[{}].load_balancing_weight", endpoint.address);
                    return Err(FieldError::new(path, "must be at least 1 when set"));
                }
                endpoint.load_balancing_weight = Some(weight);
            }
        }
        check_weight_sums(&endpoints)?;
        Ok(self.with_endpoints(endpoints))
    }

    /// Whether only fractions may differ: a fraction-only update leaves all host lists as they are.
    pub fn same_hosts(&self, other: &Self) -> bool {
        self.cluster_name == other.cluster_name
            && self.overprovisioning_factor == other.overprovisioning_factor
            && self.weighted_priority_health == other.weighted_priority_health
            && self.drop_overloads == other.drop_overloads
            && (Arc::ptr_eq(&self.endpoints, &other.endpoints) || self.endpoints == other.endpoints)
    }
}

#[derive(Default)]
struct Fractions(BTreeMap<Locality, BasisPoints>);

impl Fractions {
    fn insert(&mut self, locality: &Locality, value: u64, path: String) -> Result<(), FieldError> {
        let fraction = BasisPoints::new(value, &path)?;
        match self.0.insert(locality.clone(), fraction) {
            Some(other) if other != fraction => Err(FieldError::new(
                path,
                format!(
                    "{value} contradicts {} of another entry of {locality}",
                    other.get()
                ),
            )),
            _ => Ok(()),
        }
    }
}

/// Converts a fraction from metadata, where numbers are doubles.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "checked just above"
)]
fn whole_number(value: f64, path: &str) -> Result<u64, FieldError> {
    let whole = value.is_finite() && value >= 0.0 && value.fract() == 0.0 && value <= 1e9;
    if !whole {
        return Err(FieldError::new(
            path,
            format!("{value} is not a whole number of basis points"),
        ));
    }
    Ok(value as u64)
}

fn check_entry(index: usize, entry: &LocalityParts) -> Result<(), FieldError> {
    let error = |field: &str, reason: String| {
        Err(FieldError::new(
            format!("endpoints[{index}].{field}"),
            reason,
        ))
    };
    if entry.priority > MAX_PRIORITY {
        return error(
            "priority",
            format!("{} is above {MAX_PRIORITY}", entry.priority),
        );
    }
    if entry.load_balancing_weight == Some(0) {
        return error(
            "load_balancing_weight",
            "must be at least 1 when set".into(),
        );
    }
    for (position, endpoint) in entry.lb_endpoints.iter().enumerate() {
        if endpoint.load_balancing_weight == Some(0) {
            let field = format!("lb_endpoints[{position}].load_balancing_weight");
            return error(&field, "must be at least 1 when set".into());
        }
        if endpoint.address.port() == 0 {
            let field = format!("lb_endpoints[{position}].endpoint.address");
            return error(&field, format!("{} has port 0", endpoint.address));
        }
    }
    Ok(())
}

/// Rejects duplicate addresses, which would have two weights or two health states.
fn check_distinct(entries: &[LocalityParts]) -> Result<(), FieldError> {
    let lists = entries.iter().map(|entry| &entry.lb_endpoints);
    // Most servers list endpoints in order, so that nothing needs to be copied.
    let mut in_order = lists.clone();
    let twice = if in_order.all(|list| list.is_sorted_by_key(|endpoint| endpoint.address)) {
        first_duplicate(merged(entries))
    } else {
        let mut addresses: Vec<SocketAddr> = lists.flatten().map(|one| one.address).collect();
        addresses.sort_unstable();
        first_duplicate(addresses.into_iter())
    };
    twice.map_or(Ok(()), |address| Err(duplicate_address(entries, address)))
}

fn first_duplicate(mut sorted: impl Iterator<Item = SocketAddr>) -> Option<SocketAddr> {
    let mut last = sorted.next()?;
    sorted.find(|&address| std::mem::replace(&mut last, address) == address)
}

fn merged(entries: &[LocalityParts]) -> impl Iterator<Item = SocketAddr> {
    let mut rest: Vec<_> = entries
        .iter()
        .map(|entry| entry.lb_endpoints.iter())
        .collect();
    let mut heads: BinaryHeap<_> = rest
        .iter_mut()
        .enumerate()
        .filter_map(|(entry, rest)| Some(Reverse((rest.next()?.address, entry))))
        .collect();
    std::iter::from_fn(move || {
        let mut head = heads.peek_mut()?;
        let Reverse((address, entry)) = *head;
        match rest[entry].next() {
            Some(next) => *head = Reverse((next.address, entry)),
            None => drop(PeekMut::pop(head)),
        }
        Some(address)
    })
}

#[cold]
fn duplicate_address(entries: &[LocalityParts], address: SocketAddr) -> FieldError {
    let endpoints = entries.iter().enumerate().flat_map(|(index, entry)| {
        let endpoints = entry.lb_endpoints.iter().enumerate();
        endpoints.map(move |(position, endpoint)| (index, position, endpoint.address))
    });
    let paths: Vec<String> = endpoints
        .filter(|&(.., other)| other == address)
        .map(|(index, position, _)| format!("endpoints[{index}].lb_endpoints[{position}]"))
        .take(2)
        .collect();
    let (first, second) = (&paths[0], &paths[1]);
    let reason = format!("{address} is already {first}");
    FieldError::new(format!("{second}.endpoint.address"), reason)
}

/// Sorts the entries and joins those of one locality at one priority, as Envoy does.
fn merge(entries: Vec<LocalityParts>) -> Result<Vec<LocalityLbEndpoints>, FieldError> {
    let mut order: Vec<(usize, LocalityParts)> = entries.into_iter().enumerate().collect();
    order.sort_by(|(_, a), (_, b)| (a.priority, &a.locality).cmp(&(b.priority, &b.locality)));
    let mut merged: Vec<LocalityLbEndpoints> = Vec::with_capacity(order.len());
    for (index, entry) in order {
        let weight = entry.load_balancing_weight.unwrap_or(0);
        match merged.last_mut() {
            Some(last) if last.priority == entry.priority && last.locality == entry.locality => {
                if last.load_balancing_weight != weight {
                    return Err(FieldError::new(
                        format!("endpoints[{index}].load_balancing_weight"),
                        format!("{weight} contradicts another entry of {}", entry.locality),
                    ));
                }
                last.lb_endpoints.extend(entry.lb_endpoints);
            }
            _ => merged.push(LocalityLbEndpoints {
                locality: entry.locality,
                priority: entry.priority,
                load_balancing_weight: weight,
                lb_endpoints: entry.lb_endpoints,
            }),
        }
    }
    for entry in &mut merged {
        // The addresses are distinct, so an unstable sort is enough.
        let endpoints = &mut entry.lb_endpoints;
        endpoints.sort_unstable_by_key(|endpoint| endpoint.address);
    }
    Ok(merged)
}

/// Rejects weight sums above 32 bits, which would wrap in other implementations.
fn check_weight_sums(entries: &[LocalityLbEndpoints]) -> Result<(), FieldError> {
    let mut by_priority: BTreeMap<u32, u64> = BTreeMap::new();
    for entry in entries {
        let hosts: u64 = entry
            .lb_endpoints
            .iter()
            .map(|e| u64::from(e.weight()))
            .sum();
        if hosts > u64::from(u32::MAX) {
            return Err(FieldError::new(
                format!("endpoints[{}].lb_endpoints", entry.locality),
                format!("sum of load_balancing_weight {hosts} does not fit 32 bits"),
            ));
        }
        let sum = by_priority.entry(entry.priority).or_default();
        *sum += u64::from(entry.load_balancing_weight);
        if *sum > u64::from(u32::MAX) {
            return Err(FieldError::new(
                format!("endpoints[{}].load_balancing_weight", entry.locality),
                format!(
                    "sum over priority {} is {sum}: does not fit 32 bits",
                    entry.priority
                ),
            ));
        }
    }
    Ok(())
}

fn check_drops(drops: Vec<DropOverloadParts>) -> Result<Vec<DropOverload>, FieldError> {
    let mut checked = Vec::with_capacity(drops.len());
    for (index, drop) in drops.into_iter().enumerate() {
        let path = format!("policy.drop_overloads[{index}]");
        if drop.category.is_empty() {
            return Err(FieldError::new(
                format!("{path}.category"),
                "must not be empty",
            ));
        }
        let scale = match drop.denominator {
            100 => 10_000,
            10_000 => 100,
            1_000_000 => 1,
            other => {
                return Err(FieldError::new(
                    format!("{path}.drop_percentage.denominator"),
                    format!("{other} is not 100, 10000 or 1000000"),
                ));
            }
        };
        // More than 100 % means 100 %, as in Envoy and gRPC.
        let per_million = drop.numerator.saturating_mul(scale).min(1_000_000);
        checked.push(DropOverload {
            category: drop.category.into(),
            per_million,
        });
    }
    Ok(checked)
}

#[cfg(test)]
mod tests;
