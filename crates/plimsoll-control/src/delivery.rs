//! Selects how measured demand is delivered to a node, by what it supports (decision 0028).
//!
//! Invariant: fields that only Plimsoll data planes understand are only sent to nodes that
//! announced support for them. `view` encodes the selected delivery; the admin API shows it.

use std::time::Duration;

use plimsoll_core::model::cluster::{ClusterConfig, LocalityPolicy};
use plimsoll_core::model::endpoint_policy::EndpointPolicy;
use plimsoll_core::model::zone_aware::{CapacityBasis, FractionSource, LocalityBasis, ZoneAware};
use plimsoll_core::planner::steered::{DemandInput, steered};
use plimsoll_core::units::FieldError;
use plimsoll_xds::node::NodeInfo;
use plimsoll_xds::yaml::proto_json::ProtoEnum;

use crate::config::{ControlConfig, Delivery, Mode, Service};

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
    /// Shadow mode: measured demand is shown, but nodes get the cluster as written. Only a written
    /// basis of measured demand becomes host counts.
    HostCounts,
    /// Steered by demand with one of the deliveries of decision 0028; never [`Delivery::Auto`].
    Demand(Delivery),
    /// Requests to a zone of the service fail: nodes use host counts, by the rules that demand
    /// would steer by, until it recovers (decision 0038).
    ZoneFails,
    /// ORCA load reports of hosts decide, with demand as feed-forward (decision 0027), delivered by
    /// [`Delivery::LrsResponse`], or by [`Delivery::EdsField`] alone.
    FeedForward(Delivery),
}

/// Reasons why a service is not steered by measured demand.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum NotSteeredReason {
    ModeOff,
    /// Shadow mode, where no basis is replaced by host counts.
    ModeShadow,
    /// The cluster has an explicit `locality_basis` other than measured demand.
    ExplicitBasis,
    /// Consistent hashing selects hosts by the request, not by the zone.
    Hashing,
    /// `load_aware_locality` is controlled by load reports of backends, and its configuration or
    /// the node does not support feed-forward of demand.
    LoadAwareLocality,
    /// Demand could only be delivered as locality weights, which subsets ignore by default.
    Subsets,
    /// Demand could only be delivered as locality weights, and the endpoints of the cluster do not
    /// come from EDS, so that a relay cannot weight them.
    WithoutEds,
    /// Demand could only be delivered as locality weights, and another cluster has the same
    /// assignment (`eds_cluster_config.service_name`): they would be its weights, too.
    SharedEndpoints,
    /// Requests to a zone of the service fail, so that feed-forward is off.
    ZoneFails,
}

impl NotSteeredReason {
    /// Returns the reason as a clause, for errors, conditions and the reference.
    pub const fn text(self) -> &'static str {
        match self {
            Self::ModeOff => "the service is in mode OFF",
            Self::ModeShadow => "the service is in mode SHADOW",
            Self::ExplicitBasis => {
                "the cluster has an explicit locality_basis, which is not overridden"
            }
            Self::Hashing => "consistent hashing chooses the host by the request, not by the zone",
            Self::LoadAwareLocality => {
                "load reports of hosts decide; demand is feed-forward with CONVERGENT and \
                 demand_feed_forward, in Plimsoll's data planes and its module"
            }
            Self::Subsets => {
                "demand would need locality weights, which subsets use only with \
                 locality_weight_aware"
            }
            Self::WithoutEds => {
                "demand would need locality weights, and the endpoints do not come from EDS"
            }
            Self::SharedEndpoints => {
                "demand would need locality weights, and another cluster has the same endpoints \
                 (service_name)"
            }
            Self::ZoneFails => "requests to a zone of the service fail",
        }
    }
}

/// Returns how `service` is steered at nodes of `class`. Nothing but the service itself decides. A
/// `ramp` below 100 needs weights on its own assignment: the fleet's assignment has one set of
/// weights and fractions for all services, and with fractions alone the first percent would also
/// switch to the rules that demand steers by.
pub fn steering(service: &Service, class: NodeClass) -> Steering {
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
                return Steering::FeedForward(feed_forward_delivery(service));
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
    let needs_own_weights = matches!(
        policy,
        LocalityPolicy::LocalityWeighted | LocalityPolicy::WrrLocality
    );
    let delivery = match class {
        NodeClass::Grpc => Delivery::LocalityWeights,
        _ if service.ramp < 100 || service.goal.needs_rows() => Delivery::LocalityWeights,
        NodeClass::EnvoyModule => module_delivery(service),
        // The LRS response has demand by service.
        NodeClass::Plimsoll if service.delivery == Delivery::LrsResponse => Delivery::LrsResponse,
        _ if needs_own_weights => Delivery::LocalityWeights,
        NodeClass::Plimsoll => match service.delivery {
            Delivery::LocalityWeights => Delivery::LocalityWeights,
            _ if service.has_own_plan => Delivery::LrsResponse,
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
        NodeClass::Envoy if needs_weights_of_its_own(service) => Delivery::LocalityWeights,
        NodeClass::Envoy => Delivery::FleetWeights,
    };
    // gRPC clients ignore subsets, so locality weights work for them.
    if delivery == Delivery::LocalityWeights
        && class != NodeClass::Grpc
        && ignores_locality_weights(service)
    {
        return Steering::AsConfigured(NotSteeredReason::Subsets);
    }
    if delivery == Delivery::LocalityWeights
        && let Some(reason) = service.no_weights
    {
        return Steering::AsConfigured(reason);
    }
    Steering::Demand(delivery)
}

/// Whether stock Envoys get the service's own plan as locality weights. Where they cannot, demand
/// of several fleets is delivered fleet by fleet; an objective is not.
fn needs_weights_of_its_own(service: &Service) -> bool {
    service.has_own_plan
        && !ignores_locality_weights(service)
        && (service.no_weights.is_none() || service.goal.needs_plan())
}

/// Returns how a service is steered while requests to one of its zones fail. What is delivered for
/// the service alone carries host counts then; fractions and weights on the fleet's assignment go
/// on for other services, so its cluster must not follow them.
pub(crate) const fn while_a_zone_fails(steering: Steering, class: NodeClass) -> Steering {
    match (class, steering) {
        (_, Steering::Demand(Delivery::LocalityWeights)) | (NodeClass::EnvoyModule, _) => steering,
        (_, Steering::Demand(_)) => Steering::ZoneFails,
        (_, Steering::FeedForward(_)) => Steering::AsConfigured(NotSteeredReason::ZoneFails),
        _ => steering,
    }
}

/// Returns why demand would steer a service at no node of `classes`, if its mode were ENFORCE;
/// `None` if it would at some.
pub(crate) fn not_steered(
    service: &Service,
    classes: impl IntoIterator<Item = NodeClass>,
) -> Option<NotSteeredReason> {
    let enforced = Service {
        mode: Mode::Enforce,
        ..Service::clone(service)
    };
    let mut first = None;
    for class in classes {
        match steering(&enforced, class) {
            Steering::AsConfigured(reason) => first = first.or(Some(reason)),
            _ => return None,
        }
    }
    first
}

/// Returns the form in which nodes of `classes` get demand, if none of them gets it in the form
/// that the service asks for, whatever its ramp.
pub(crate) fn replaced_delivery(
    service: &Service,
    classes: impl IntoIterator<Item = NodeClass>,
) -> Option<Delivery> {
    let whole = Service {
        ramp: 100,
        ..Service::clone(service)
    };
    let form = |class| match steering(&whole, class) {
        Steering::Demand(form) | Steering::FeedForward(form) => Some(form),
        _ => None,
    };
    let forms: Vec<Delivery> = classes.into_iter().filter_map(form).collect();
    let is_met = service.delivery == Delivery::Auto || forms.contains(&service.delivery);
    forms.first().copied().filter(|_| !is_met)
}

/// Rejects a field that requests measured demand if demand cannot steer the service: it would have
/// no effect. Files are checked with this; a ZoneRoutingPolicy is accepted, and its condition
/// `ZoneRouting` says the same by [`not_steered`].
pub(crate) fn refuse_without_effect(service: &Service) -> Result<(), FieldError> {
    let Some(field) = service.demand_field else {
        return Ok(());
    };
    if service.mode == Mode::Off {
        return Ok(());
    }
    let error = |field: &str, reason: NotSteeredReason| {
        let text = reason.text();
        let reason = format!("requests measured demand, but {text}; remove one of the two");
        Err(FieldError::new(field, reason))
    };
    // gRPC clients have no subsets, so that weights work for them, as they do by default.
    let classes = NodeClass::ALL.into_iter();
    if ramps_from_observed_load(service) {
        return error("ramp", NotSteeredReason::ExplicitBasis);
    }
    if let Some(reason) = not_steered(service, classes.filter(|class| *class != NodeClass::Grpc)) {
        return error(field, reason);
    }
    if service.ramp < 100 && ignores_locality_weights(service) {
        return error("ramp", NotSteeredReason::Subsets);
    }
    if service.has_own_plan && ignores_locality_weights(service) {
        let field = if service.goal.needs_rows() {
            "cost"
        } else {
            "objective"
        };
        return error(field, NotSteeredReason::Subsets);
    }
    if field == "cost" && uses_feed_forward(service) {
        return error(field, NotSteeredReason::LoadAwareLocality);
    }
    Ok(())
}

/// Returns how demand is delivered to the module inside an Envoy. It does not see fractions on
/// assignments, and its own stream has demand by service. It has no subsets: Envoy's own policy
/// gets locality weights then.
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
            Steering::HostCounts | Steering::ZoneFails => false,
        }
}

fn has_subsets(service: &Service) -> bool {
    service.config.lb_subset_config().is_some()
}

/// Whether subsets keep locality weights from having an effect.
pub(crate) fn ignores_locality_weights(service: &Service) -> bool {
    let subsets = service.config.lb_subset_config();
    subsets.is_some_and(|subsets| !subsets.locality_weight_aware())
}

/// Whether the demand of a service may be delivered on the fleet's own assignment.
pub(crate) fn uses_fleet_assignment(service: &Service) -> bool {
    service.mode == Mode::Enforce
        && service.ramp >= 100
        && !service.has_own_plan
        && !service.config.endpoint_policy().is_hash()
        && explicit_basis(service).is_none()
        && (uses_feed_forward(service)
            || matches!(
                service.config.locality_policy(),
                LocalityPolicy::ZoneAware(_)
            ))
        && service.delivery != Delivery::LocalityWeights
}

/// Whether the fleets' own assignments have demand: not if no service would use it there, so that
/// nothing is sent when demand moves. A relay without services cannot exempt clusters one by one,
/// and a policy of the relayed server may follow demand by itself.
pub(crate) fn delivers_to_fleets(config: &ControlConfig) -> bool {
    let follows = |service: &Service| {
        let rules = service.config.zone_aware();
        let basis = rules.map(ZoneAware::locality_basis);
        !service.has_explicit_policy && basis == Some(LocalityBasis::LrsReportedRate)
    };
    let mut services = config.services.values();
    match &config.relay {
        Some(_) if config.services.is_empty() => true,
        Some(_) => services.any(|service| uses_fleet_assignment(service) || follows(service)),
        None => services.any(|service| uses_fleet_assignment(service)),
    }
}

/// Whether nodes of `class` get the demand for `service` with the LRS response, alone or as well.
pub(crate) fn sends_lrs_traffic(service: &Service, class: NodeClass, steering: Steering) -> bool {
    match steering {
        Steering::Demand(delivery) if class == NodeClass::EnvoyModule => {
            delivery == Delivery::LrsResponse
        }
        Steering::FeedForward(delivery) => delivery == Delivery::LrsResponse,
        Steering::Demand(Delivery::LrsResponse) => true,
        Steering::Demand(_) => {
            matches!(service.delivery, Delivery::Auto | Delivery::LrsResponse)
        }
        Steering::AsConfigured(_) | Steering::HostCounts | Steering::ZoneFails => false,
    }
}

/// Whether measured demand leads the load reports of hosts, with the ramp of the service in its
/// cluster: it is the data plane that knows how far demand moves its shares.
pub(crate) fn uses_feed_forward(service: &Service) -> bool {
    service.mode == Mode::Enforce && service.config.uses_demand_feed_forward()
}

/// Returns how feed-forward demand is delivered. The fleet's assignment has that of all services;
/// the LRS response has the demand of each service.
fn feed_forward_delivery(service: &Service) -> Delivery {
    match service.delivery {
        Delivery::EdsField | Delivery::LocalityMetadata if service.ramp >= 100 => {
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
    let threshold = |service: &'a Service| {
        let steering = steering(service, NodeClass::Plimsoll);
        let config = steered_config(service, steering);
        Some((service, config.staleness_threshold()?))
    };
    services
        .filter_map(threshold)
        .min_by_key(|(_, threshold)| *threshold)
}

/// Returns the explicit `locality_basis` in the cluster of a service if it is not measured demand.
/// Such a service is not steered, even if the value is the default. With a relay it is the relayed
/// server's value, and a configuration file that requests demand overrides it, but with a ramp not
/// `OBSERVED_LOAD`.
pub(crate) fn explicit_basis(service: &Service) -> Option<LocalityBasis> {
    let written = written_basis(service)?;
    let overrides = service.demand_field.is_some() && !service.has_explicit_policy;
    (!overrides || ramps_from_observed_load(service)).then_some(written)
}

/// Returns the `locality_basis` in the policy of a service if it is not measured demand.
pub(crate) fn written_basis(service: &Service) -> Option<LocalityBasis> {
    let LocalityPolicy::ZoneAware(rules) = service.config.locality_policy() else {
        return None;
    };
    let written = rules.written_locality_basis();
    written.filter(|basis| *basis != LocalityBasis::LrsReportedRate)
}

/// Whether a ramp would start from `OBSERVED_LOAD`. Only proxies know where that sends requests, so
/// no weights continue it, and the first percent would be a jump to host counts.
fn ramps_from_observed_load(service: &Service) -> bool {
    service.ramp < 100
        && !service.is_trial
        && written_basis(service) == Some(LocalityBasis::ObservedLoad)
}

fn reads_metadata(config: &ClusterConfig) -> bool {
    let rules = config.zone_aware();
    rules.is_some_and(|rules| rules.fraction_source() == FractionSource::LocalityMetadata)
}

/// Rejects a contradiction between the delivery of a service and its cluster. Overriding one of
/// them would go unnoticed.
pub(crate) fn check(service: &Service) -> Result<(), FieldError> {
    // Data planes that compute zones themselves divide what leaves a zone over all others alike.
    let needs_rows = service.goal.needs_rows()
        && !matches!(service.delivery, Delivery::Auto | Delivery::LocalityWeights);
    if needs_rows && service.mode != Mode::Off {
        let reason = "cannot carry a plan for more than one price (`cost`): use AUTO or \
                      LOCALITY_WEIGHTS, or one price";
        return Err(FieldError::new("delivery", reason));
    }
    let contradicts = service.delivery == Delivery::EdsField && reads_metadata(&service.config);
    if contradicts && service.mode != Mode::Off {
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
pub fn steered_config(service: &Service, steering: Steering) -> ClusterConfig {
    let input = match steering {
        Steering::AsConfigured(_) | Steering::HostCounts => DemandInput::AsWritten,
        Steering::FeedForward(_) => DemandInput::FeedForward(service.ramp),
        Steering::Demand(Delivery::LocalityMetadata) => {
            DemandInput::Fractions(FractionSource::LocalityMetadata)
        }
        Steering::ZoneFails => DemandInput::ZoneFails,
        Steering::Demand(Delivery::FleetWeights) => DemandInput::FleetWeights,
        Steering::Demand(Delivery::LrsResponse) => DemandInput::LrsResponse,
        Steering::Demand(_) => DemandInput::Fractions(FractionSource::EdsField),
    };
    let config = steered(&service.config, input);
    match (steering, config.zone_aware()) {
        (Steering::Demand(_), Some(rules))
            if service.goal.needs_plan() || service.learning.is_some() =>
        {
            config.with_zone_aware(with_capacity_of(service, rules.clone()))
        }
        _ => config,
    }
}

/// Returns zone-aware rules that measure capacity as the objective of a service does, or as it is
/// learned: by the weights of hosts.
pub(crate) fn with_capacity_of(service: &Service, rules: ZoneAware) -> ZoneAware {
    if service.goal.needs_plan() || service.learning.is_some() {
        return rules.with_upstream_locality_basis(CapacityBasis::HealthyHostsWeight);
    }
    rules
}

pub(crate) fn uses_orca_weights(service: &Service) -> bool {
    matches!(
        service.config.endpoint_policy(),
        EndpointPolicy::ClientSideWeightedRoundRobin(_)
    )
}

#[cfg(test)]
mod tests;
