//! [`Start`]: from where the ramp of a service starts, which is what `mode: OFF` delivers.
//!
//! `ServicePlan` blends it with where demand sends requests; `view` encodes the result.

use plimsoll_core::model::cluster::LocalityPolicy;
use plimsoll_core::model::locality::Locality;
use plimsoll_core::model::zone_aware::{LocalityBasis, ZoneAware};
use plimsoll_core::planner::weights::RampStart;

use crate::config::Service;
use crate::delivery::{NodeClass, uses_orca_weights};
use crate::view::assignment::{availability, locality_weights};

/// How nodes of a class spread requests to a service without measured demand.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Start {
    Hosts,
    /// Weights of the zones at priority 0 as receivers apply them.
    Weights(Vec<(Locality, f64)>),
    HostCounts(ZoneAware),
}

impl Start {
    pub(super) fn of(service: &Service, class: NodeClass) -> Self {
        let config = &service.config;
        if class == NodeClass::Grpc {
            return Self::Weights(weights(service, class));
        }
        let is_weighted = matches!(
            config.locality_policy(),
            LocalityPolicy::LocalityWeighted | LocalityPolicy::WrrLocality
        );
        if is_weighted && has_weights(service) {
            return Self::Weights(weights(service, class));
        }
        match config.zone_aware() {
            None => Self::Hosts,
            // Stock Envoys have no zone-aware settings for this policy and use the defaults.
            Some(_) if class != NodeClass::Plimsoll && uses_orca_weights(service) => {
                Self::HostCounts(ZoneAware::default())
            }
            Some(rules) if rules.locality_basis() == LocalityBasis::LrsReportedRate => {
                let (source, rules) = (rules.fraction_source(), rules.clone());
                let basis = LocalityBasis::HealthyHostsNum;
                Self::HostCounts(rules.with_locality_basis(basis, source))
            }
            Some(rules) => Self::HostCounts(rules.clone()),
        }
    }

    pub(super) fn as_ramp_start(&self) -> RampStart<'_> {
        match self {
            Self::Hosts => RampStart::Hosts,
            Self::Weights(weights) => RampStart::Weights(weights),
            Self::HostCounts(rules) => RampStart::HostCounts(rules),
        }
    }
}

fn has_weights(service: &Service) -> bool {
    let mut first = service.assignment.endpoints().iter();
    first.any(|entry| entry.priority == 0 && entry.load_balancing_weight > 0)
}

/// Returns the weights that a service without measured demand is sent, reduced as receivers reduce
/// them while hosts are unhealthy; gRPC clients do not.
fn weights(service: &Service, class: NodeClass) -> Vec<(Locality, f64)> {
    let assignment = &service.assignment;
    let weight = locality_weights(assignment, None, class);
    let first = assignment.endpoints().iter();
    first
        .filter(|entry| entry.priority == 0)
        .map(|entry| {
            let reduced = match class {
                NodeClass::Grpc => 1.0,
                _ => availability(assignment, entry),
            };
            let weight = f64::from(weight(entry).unwrap_or(0));
            (entry.locality.clone(), weight * reduced)
        })
        .collect()
}
