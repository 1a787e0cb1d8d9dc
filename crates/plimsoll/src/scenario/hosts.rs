//! Converts numbers of hosts per locality to assignments with synthetic addresses.
//!
//! Hosts are created in the order healthy, degraded, draining, unhealthy. Addresses count up from
//! 10.0.0.1 over the whole scenario, so they are unique. Error paths are those of the file.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use plimsoll_core::model::assignment::{
    AssignmentParts, ClusterLoadAssignment, LbEndpoint, LocalityParts,
};
use plimsoll_core::model::health::HealthStatus;
use plimsoll_core::units::{BASIS_POINTS, FieldError};
use plimsoll_xds::yaml::proto_json::{BasisPointShare, Share, Uint};

use super::yaml::{FleetLocalityYaml, FleetYaml, UpstreamLocalityYaml, UpstreamYaml, WeightsYaml};

/// Maximum number of hosts in a scenario: more than any real fleet, but fits into memory.
const MAX_HOSTS: u64 = 1_000_000;

/// Number of hosts created so far.
#[derive(Debug, Default)]
pub(super) struct Budget(u64);

/// Utilization that each host reports, by address.
pub(super) type Reports = BTreeMap<SocketAddr, f64>;

impl FleetYaml {
    pub(super) fn assignment(
        &self,
        budget: &mut Budget,
    ) -> Result<ClusterLoadAssignment, FieldError> {
        let mut endpoints = Vec::with_capacity(self.localities.len());
        for (index, entry) in self.localities.iter().enumerate() {
            let path = format!("fleet.localities[{index}]");
            endpoints.push(entry.parts(&path, budget)?);
        }
        self.check_fractions()?;
        let parts = AssignmentParts {
            cluster_name: "fleet".into(),
            endpoints,
            ..Default::default()
        };
        ClusterLoadAssignment::try_new(parts).map_err(|error| in_file(&error, "fleet"))
    }
}

impl FleetYaml {
    /// Rejects shares of demand that are more than the whole.
    fn check_fractions(&self) -> Result<(), FieldError> {
        let mut sum: u64 = 0;
        for (index, entry) in self.localities.iter().enumerate() {
            let Some(BasisPointShare(share)) = entry.observed_traffic_fraction else {
                continue;
            };
            sum = sum.saturating_add(share);
            if sum > BASIS_POINTS {
                let percent = format!("{}.{:02}", sum / 100, sum % 100);
                let reason =
                    format!("the shares of demand up to here are {percent} %, more than all of it");
                let path = format!("fleet.localities[{index}].observed_traffic_fraction");
                return Err(FieldError::new(path, reason));
            }
        }
        Ok(())
    }
}

impl FleetLocalityYaml {
    fn parts(&self, path: &str, budget: &mut Budget) -> Result<LocalityParts, FieldError> {
        let hosts = Hosts {
            hosts: self.hosts.0,
            healthy: self.healthy,
            degraded: 0,
            draining: 0,
            weights: &self.weights,
        };
        Ok(LocalityParts {
            locality: self.locality.validated(&format!("{path}.locality"))?,
            lb_endpoints: hosts.endpoints(budget).map_err(|error| error.under(path))?,
            observed_traffic_fraction: self.observed_traffic_fraction.map(|fraction| fraction.0),
            metadata_traffic_fraction: self.metadata_traffic_fraction.map(|fraction| fraction.0),
            ..Default::default()
        })
    }
}

impl UpstreamYaml {
    /// Returns the assignment of the upstream cluster and the load reports of its hosts.
    pub(super) fn assignment(
        &self,
        cluster_name: &str,
        budget: &mut Budget,
    ) -> Result<(ClusterLoadAssignment, Reports), FieldError> {
        let mut endpoints = Vec::with_capacity(self.localities.len());
        let mut reports = Reports::new();
        for (index, entry) in self.localities.iter().enumerate() {
            let path = format!("upstream.localities[{index}]");
            let parts = entry.parts(&path, budget)?;
            if let Some(utilization) = entry.utilization(&path)? {
                let hosts = parts.lb_endpoints.iter();
                let healthy = hosts.filter(|host| host.health_status == HealthStatus::Healthy);
                reports.extend(healthy.map(|host| (host.address, utilization)));
            }
            endpoints.push(parts);
        }
        let parts = AssignmentParts {
            cluster_name: cluster_name.into(),
            endpoints,
            overprovisioning_factor: self.overprovisioning_factor.map(|factor| factor.0),
            weighted_priority_health: self.weighted_priority_health,
            ..Default::default()
        };
        let assignment =
            ClusterLoadAssignment::try_new(parts).map_err(|error| in_file(&error, "upstream"))?;
        Ok((assignment, reports))
    }
}

impl UpstreamLocalityYaml {
    fn parts(&self, path: &str, budget: &mut Budget) -> Result<LocalityParts, FieldError> {
        let hosts = Hosts {
            hosts: self.hosts.0,
            healthy: self.healthy,
            degraded: self.degraded.0,
            draining: self.draining.0,
            weights: &self.weights,
        };
        let mut lb_endpoints = hosts.endpoints(budget).map_err(|error| error.under(path))?;
        for endpoint in &mut lb_endpoints {
            endpoint.metadata = self.metadata.0.clone();
        }
        Ok(LocalityParts {
            locality: self.locality.validated(&format!("{path}.locality"))?,
            priority: self.priority.0,
            load_balancing_weight: self.load_balancing_weight.map(|weight| weight.0),
            lb_endpoints,
            ..Default::default()
        })
    }

    fn utilization(&self, path: &str) -> Result<Option<f64>, FieldError> {
        match self.utilization {
            Some(Share(value)) if !(0.0..=1.0).contains(&value) => {
                let reason = match value {
                    2.0..=100.0 => format!(
                        "{value} is more than all of a host; write {} or \"{value}%\"",
                        value / 100.0
                    ),
                    _ => format!("{value} is outside 0 to 1"),
                };
                Err(FieldError::new(format!("{path}.utilization"), reason))
            }
            other => Ok(other.map(|Share(value)| value)),
        }
    }
}

struct Hosts<'a> {
    hosts: u64,
    healthy: Option<Uint<u64>>,
    degraded: u64,
    draining: u64,
    weights: &'a WeightsYaml,
}

impl Hosts<'_> {
    fn endpoints(&self, budget: &mut Budget) -> Result<Vec<LbEndpoint>, FieldError> {
        let healthy = self.healthy()?;
        let weights = self.weights(healthy)?;
        let first = budget.0;
        budget.0 = first.saturating_add(self.hosts);
        if budget.0 > MAX_HOSTS {
            let reason = format!("more than {MAX_HOSTS} hosts in total");
            return Err(FieldError::new("hosts", reason));
        }
        let degraded = healthy + self.degraded;
        let draining = degraded + self.draining;
        let endpoint = |index: u64| LbEndpoint {
            health_status: match index {
                index if index < healthy => HealthStatus::Healthy,
                index if index < degraded => HealthStatus::Degraded,
                index if index < draining => HealthStatus::Draining,
                _ => HealthStatus::Unhealthy,
            },
            load_balancing_weight: weights(index),
            ..LbEndpoint::new(address(first + index))
        };
        Ok((0..self.hosts).map(endpoint).collect())
    }

    /// Returns the number of healthy hosts; by default all hosts that are neither degraded nor
    /// draining.
    fn healthy(&self) -> Result<u64, FieldError> {
        let others = self.degraded.saturating_add(self.draining);
        let left = self.hosts.checked_sub(others).ok_or_else(|| {
            let reason = format!("{} is less than degraded + draining = {others}", self.hosts);
            FieldError::new("hosts", reason)
        })?;
        match self.healthy {
            Some(Uint(healthy)) if healthy > left => Err(FieldError::new(
                "healthy",
                format!(
                    "{healthy} is more than the {left} hosts that are not degraded or draining"
                ),
            )),
            Some(Uint(healthy)) => Ok(healthy),
            None => Ok(left),
        }
    }

    /// Returns the weight of each host by its index; a list has either one weight per healthy host
    /// or one per host.
    fn weights(&self, healthy: u64) -> Result<impl Fn(u64) -> Option<u32>, FieldError> {
        let zero = |path: String| FieldError::new(path, "must be at least 1");
        let (same, each) = match self.weights {
            WeightsYaml::Unset => (None, &[][..]),
            WeightsYaml::Same(0) => return Err(zero("weights".into())),
            WeightsYaml::Same(weight) => (Some(*weight), &[][..]),
            WeightsYaml::Each(weights) => {
                let length = weights.len() as u64;
                if length != healthy && length != self.hosts {
                    let hosts = self.hosts;
                    let reason =
                        format!("{length} weights for {healthy} healthy hosts ({hosts} in total)");
                    return Err(FieldError::new("weights", reason));
                }
                if let Some(index) = weights.iter().position(|&weight| weight == 0) {
                    return Err(zero(format!("weights[{index}]")));
                }
                (None, weights.as_slice())
            }
        };
        Ok(move |index: u64| {
            let index = usize::try_from(index).ok()?;
            each.get(index).copied().or(same)
        })
    }
}

/// Returns the address of a host by its number in the scenario.
fn address(number: u64) -> SocketAddr {
    const FIRST: u32 = 0x0a00_0001;
    let offset = u32::try_from(number).unwrap_or(u32::MAX);
    SocketAddr::new(
        IpAddr::V4(Ipv4Addr::from(FIRST.saturating_add(offset))),
        8080,
    )
}

/// Translates the path of an assignment's error to the path in the scenario file.
fn in_file(error: &FieldError, block: &str) -> FieldError {
    let path = error.path();
    let path = match path.strip_prefix("endpoints") {
        Some(rest) => rest
            .replace(
                ".metadata.filter_metadata[envoy.lb].observed_",
                ".metadata_",
            )
            .replace(".lb_endpoints", ".weights"),
        None => {
            let policy = path.strip_prefix("policy.").unwrap_or(path);
            return FieldError::new(policy, error.reason()).under(block);
        }
    };
    FieldError::new(path, error.reason())
        .under("localities")
        .under(block)
}
