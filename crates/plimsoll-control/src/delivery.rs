//! Selects how measured demand is delivered to a node, by what it supports (decision 0028).
//!
//! Invariant: fields that only Plimsoll data planes understand are only sent to nodes that
//! announced support for them. `view` encodes the selected delivery; the admin API shows it.

use std::time::Duration;

use plimsoll_core::model::cluster::{ClusterConfig, LocalityPolicy};
use plimsoll_core::model::endpoint_policy::EndpointPolicy;
use plimsoll_core::model::zone_aware::{FractionSource, LocalityBasis, ZoneAware};
use plimsoll_core::units::FieldError;
use plimsoll_xds::node::NodeInfo;
use plimsoll_xds::yaml::proto_json::ProtoEnum;

use crate::config::{Delivery, Mode, Service};

/// Classes of nodes by their capabilities.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum NodeClass {
    /// A node that announced support for measured demand.
    Plimsoll,
    /// An Envoy that announced Plimsoll's module: the module gets demand on a stream of its own.
    EnvoyModule,
    /// A gRPC library: follows locality weights and requires them.
    Grpc,
    /// Any other node is treated as a stock Envoy.
    Envoy,
}

impl NodeClass {
    /// All classes, from the most capable to the least.
    pub const ALL: [Self; 4] = [Self::Plimsoll, Self::EnvoyModule, Self::Grpc, Self::Envoy];

    /// Returns the class of a node.
    pub fn of(node: &NodeInfo) -> Self {
        if node.is_envoy_module() {
            Self::EnvoyModule
        } else if node.is_plimsoll() {
            Self::Plimsoll
        } else if node.is_grpc() {
            Self::Grpc
        } else {
            Self::Envoy
        }
    }
}

/// How one service is steered at nodes of one class.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Steering {
    /// Not steered by demand: the load-balancing policy is delivered as configured.
    AsConfigured(NotSteeredReason),
    /// Shadow mode: measured demand is shown, but nodes use host counts.
    HostCounts,
    /// Steered by demand with one of the deliveries of decision 0028; never [`Delivery::Auto`].
    Demand(Delivery),
    /// ORCA load reports of hosts decide, with demand as feed-forward (decision 0027), delivered by
    /// [`Delivery::LrsResponse`], or by [`Delivery::EdsField`] alone.
    FeedForward(Delivery),
}

/// Reasons why a service is not steered by measured demand.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum NotSteeredReason {
    ModeOff,
    /// The cluster has an explicit `locality_basis` other than measured demand.
    ExplicitBasis,
    /// Consistent hashing selects hosts by the request, not by the zone.
    Hashing,
    /// `load_aware_locality` is controlled by load reports of backends, and its configuration or
    /// the node does not support feed-forward of demand.
    LoadAwareLocality,
    /// Demand could only be delivered as locality weights, which subsets ignore by default.
    Subsets,
}

/// Returns how `service` is steered at nodes of `class`. `fleet_ramp` is the ramp of weights and
/// fractions on the fleet's assignment, which all services share: a service with another `ramp`
/// needs locality weights on its own assignment.
pub fn steering(service: &Service, class: NodeClass, fleet_ramp: u32) -> Steering {
    if service.mode == Mode::Off {
        return Steering::AsConfigured(NotSteeredReason::ModeOff);
    }
    if service.config.endpoint_policy().is_hash() {
        return Steering::AsConfigured(NotSteeredReason::Hashing);
    }
    let policy = service.config.locality_policy();
    if matches!(policy, LocalityPolicy::LoadAwareLocality(_)) {
        match class {
            NodeClass::Plimsoll if uses_feed_forward(service) => {
                return Steering::FeedForward(feed_forward_delivery(service, fleet_ramp));
            }
            NodeClass::EnvoyModule if uses_feed_forward(service) && !has_subsets(service) => {
                return Steering::FeedForward(Delivery::LrsResponse);
            }
            _ => {}
        }
        return Steering::AsConfigured(NotSteeredReason::LoadAwareLocality);
    }
    if explicit_basis(service).is_some() {
        return Steering::AsConfigured(NotSteeredReason::ExplicitBasis);
    }
    if service.mode == Mode::Shadow {
        return Steering::HostCounts;
    }
    let needs_own_weights = service.ramp != fleet_ramp
        || matches!(
            policy,
            LocalityPolicy::LocalityWeighted | LocalityPolicy::WrrLocality
        );
    let delivery = match class {
        NodeClass::Grpc => Delivery::LocalityWeights,
        NodeClass::EnvoyModule => module_delivery(service),
        // The LRS response has demand by service, with the `ramp` of that service applied.
        NodeClass::Plimsoll if service.delivery == Delivery::LrsResponse => Delivery::LrsResponse,
        _ if needs_own_weights => Delivery::LocalityWeights,
        NodeClass::Plimsoll => match service.delivery {
            Delivery::Auto if reads_metadata(&service.config) => Delivery::LocalityMetadata,
            // Fleet weights are for nodes that do not understand fractions.
            Delivery::Auto | Delivery::FleetWeights => Delivery::EdsField,
            delivery => delivery,
        },
        // Stock Envoys have no zone-aware settings for client-side weighted round robin
        // (envoy#41992): it would use host counts.
        NodeClass::Envoy if uses_orca_weights(service) => Delivery::LocalityWeights,
        NodeClass::Envoy if service.delivery == Delivery::LocalityWeights => {
            Delivery::LocalityWeights
        }
        NodeClass::Envoy => Delivery::FleetWeights,
    };
    // gRPC clients ignore subsets, so locality weights work for them.
    if delivery == Delivery::LocalityWeights
        && class != NodeClass::Grpc
        && ignores_locality_weights(service)
    {
        return Steering::AsConfigured(NotSteeredReason::Subsets);
    }
    Steering::Demand(delivery)
}

/// Returns how demand is delivered to the module inside an Envoy. It does not see fractions on
/// assignments, and its own stream has demand by service, with the `ramp` of that service applied.
/// It has no subsets: Envoy's own policy gets locality weights then.
fn module_delivery(service: &Service) -> Delivery {
    let follows_weights = matches!(
        service.config.locality_policy(),
        LocalityPolicy::LocalityWeighted | LocalityPolicy::WrrLocality
    );
    if follows_weights || has_subsets(service) || service.delivery == Delivery::LocalityWeights {
        return Delivery::LocalityWeights;
    }
    Delivery::LrsResponse
}

/// Whether the module inside an Envoy balances `service`, not one of Envoy's own policies: only
/// where it can do more than these.
pub(crate) fn uses_module(service: &Service, class: NodeClass, steering: Steering) -> bool {
    class == NodeClass::EnvoyModule
        && !has_subsets(service)
        && match steering {
            Steering::Demand(delivery) | Steering::FeedForward(delivery) => {
                delivery == Delivery::LrsResponse
            }
            Steering::AsConfigured(_) => {
                let config = &service.config;
                let by_load = config.load_aware_locality().is_some()
                    || explicit_basis(service) == Some(LocalityBasis::ObservedLoad);
                by_load && !config.endpoint_policy().is_hash()
            }
            Steering::HostCounts => false,
        }
}

fn has_subsets(service: &Service) -> bool {
    service.config.lb_subset_config().is_some()
}

fn ignores_locality_weights(service: &Service) -> bool {
    let subsets = service.config.lb_subset_config();
    subsets.is_some_and(|subsets| !subsets.locality_weight_aware())
}

/// Returns the ramp of demand on a fleet's assignment: the highest `ramp` of the services that use
/// that assignment, or 100 if none does.
pub fn fleet_ramp<'a>(services: impl IntoIterator<Item = &'a Service>) -> u32 {
    let uses_fleet_assignment = |service: &&Service| {
        service.mode == Mode::Enforce
            && !service.config.endpoint_policy().is_hash()
            && explicit_basis(service).is_none()
            && (uses_feed_forward(service)
                || matches!(
                    service.config.locality_policy(),
                    LocalityPolicy::ZoneAware(_)
                ))
            && service.delivery != Delivery::LocalityWeights
    };
    let ramps = services
        .into_iter()
        .filter(uses_fleet_assignment)
        .map(|service| service.ramp);
    ramps.max().unwrap_or(100)
}

/// Whether nodes of `class` get the demand for `service` with the LRS response, alone or as well.
pub(crate) fn sends_lrs_traffic(service: &Service, class: NodeClass, steering: Steering) -> bool {
    match steering {
        Steering::Demand(delivery) if class == NodeClass::EnvoyModule => {
            delivery == Delivery::LrsResponse
        }
        Steering::FeedForward(delivery) => delivery == Delivery::LrsResponse,
        Steering::Demand(_) => {
            matches!(service.delivery, Delivery::Auto | Delivery::LrsResponse)
        }
        Steering::AsConfigured(_) | Steering::HostCounts => false,
    }
}

fn uses_feed_forward(service: &Service) -> bool {
    service.mode == Mode::Enforce && service.config.uses_demand_feed_forward()
}

/// Returns how feed-forward demand is delivered. The fleet's assignment has it in any case; the LRS
/// response additionally has the demand of each service with that service's ramp applied.
fn feed_forward_delivery(service: &Service, fleet_ramp: u32) -> Delivery {
    match service.delivery {
        Delivery::EdsField | Delivery::LocalityMetadata if service.ramp == fleet_ramp => {
            Delivery::EdsField
        }
        _ => Delivery::LrsResponse,
    }
}

/// Returns the service with the shortest `staleness_threshold` among those whose receivers get
/// fractions: these must be confirmed three times within the threshold (decision 0024).
pub fn shortest_staleness_threshold<'a>(
    services: impl Iterator<Item = &'a Service> + Clone,
) -> Option<(&'a Service, Duration)> {
    let ramp = fleet_ramp(services.clone());
    let threshold = |service: &'a Service| {
        let steering = steering(service, NodeClass::Plimsoll, ramp);
        let config = steered_config(service, steering);
        Some((service, config.staleness_threshold()?))
    };
    services
        .filter_map(threshold)
        .min_by_key(|(_, threshold)| *threshold)
}

/// Returns the explicit `locality_basis` in the cluster of a service if it is not measured demand.
/// Such a service is not steered, even if the value is the default. With a relay it is the relayed
/// server's value, and a configuration file that requests demand overrides it.
pub(crate) fn explicit_basis(service: &Service) -> Option<LocalityBasis> {
    let LocalityPolicy::ZoneAware(rules) = service.config.locality_policy() else {
        return None;
    };
    if service.demand_field.is_some() && !service.has_explicit_policy {
        return None;
    }
    let written = rules.written_locality_basis();
    written.filter(|basis| *basis != LocalityBasis::LrsReportedRate)
}

fn reads_metadata(config: &ClusterConfig) -> bool {
    let rules = config.zone_aware();
    rules.is_some_and(|rules| rules.fraction_source() == FractionSource::LocalityMetadata)
}

/// Rejects contradictory settings: a field that requests measured demand together with a cluster
/// that has an explicit other setting. Overriding one of them would go unnoticed.
pub(crate) fn check(service: &Service) -> Result<(), FieldError> {
    if service.mode == Mode::Off {
        return Ok(());
    }
    if let (Some(field), Some(basis)) = (service.demand_field, explicit_basis(service)) {
        let reason = format!(
            "requests measured demand, but the cluster has an explicit locality_basis: {}, which \
             is not overridden; remove one of the two",
            proto_name(basis)
        );
        return Err(FieldError::new(field, reason));
    }
    if service.delivery == Delivery::EdsField && reads_metadata(&service.config) {
        let reason = "is EDS_FIELD, but the cluster has fraction_source: LOCALITY_METADATA; remove \
                      one of the two";
        return Err(FieldError::new("delivery", reason));
    }
    Ok(())
}

/// Returns the name of a protobuf enum value as in configuration files.
pub fn proto_name<T: ProtoEnum + PartialEq>(value: T) -> &'static str {
    let found = T::VALUES.iter().find(|(_, _, known)| *known == value);
    found.map_or("", |(name, _, _)| name)
}

/// Returns the cluster configuration of a service for Plimsoll data planes.
pub(crate) fn steered_config(service: &Service, steering: Steering) -> ClusterConfig {
    let written = service.config.zone_aware().cloned().unwrap_or_default();
    let (basis, source) = match steering {
        // The fleet's assignment has demand for other services, which must not influence this one.
        Steering::AsConfigured(_) => return service.config.without_demand_feed_forward(),
        Steering::FeedForward(_) => return ClusterConfig::clone(&service.config),
        Steering::HostCounts => {
            let source = written.fraction_source();
            let rules = written.with_locality_basis(LocalityBasis::HealthyHostsNum, source);
            return service.config.with_zone_aware(rules);
        }
        Steering::Demand(Delivery::LocalityMetadata) => (
            LocalityBasis::LrsReportedRate,
            FractionSource::LocalityMetadata,
        ),
        Steering::Demand(Delivery::FleetWeights) => {
            (LocalityBasis::HealthyHostsWeight, FractionSource::EdsField)
        }
        // Fractions in the LRS response are used whatever `fraction_source` is.
        Steering::Demand(Delivery::LrsResponse) => {
            (LocalityBasis::LrsReportedRate, written.fraction_source())
        }
        Steering::Demand(_) => (LocalityBasis::LrsReportedRate, FractionSource::EdsField),
    };
    let rules = steered_rules(service).with_locality_basis(basis, source);
    service.config.with_zone_aware(rules)
}

/// Returns the zone-aware rules of a service that is steered. Envoy's default minimum of 6 upstream
/// hosts protects against estimates from host counts; with measured demand small services can be
/// routed by zone as well, so the minimum only applies if it is explicit.
pub(crate) fn steered_rules(service: &Service) -> ZoneAware {
    let written = service.config.zone_aware().cloned().unwrap_or_default();
    match written.written_min_cluster_size() {
        None => written.with_min_cluster_size(1),
        Some(_) => written,
    }
}

fn uses_orca_weights(service: &Service) -> bool {
    matches!(
        service.config.endpoint_policy(),
        EndpointPolicy::ClientSideWeightedRoundRobin(_)
    )
}

#[cfg(test)]
mod tests;
