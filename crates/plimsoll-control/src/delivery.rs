//! What a node gets: the deliveries of decisions D9, chosen by what it can take.
//!
//! The rule that no version of anything breaks: what only plimsoll data planes understand goes to
//! nodes that announced it, and to nobody else. Encoding the choice lives in `view`; the admin API
//! shows it.

use std::time::Duration;

use plimsoll_core::model::cluster::{ClusterConfig, LocalityPolicy};
use plimsoll_core::model::endpoint_policy::EndpointPolicy;
use plimsoll_core::model::zone_aware::{FractionSource, LocalityBasis, ZoneAware};
use plimsoll_core::units::FieldError;
use plimsoll_xds::node::NodeInfo;
use plimsoll_xds::yaml::proto_json::ProtoEnum;

use crate::config::{Delivery, Mode, Service};

/// Kinds of receivers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Class {
    /// Announced that it understands measured demand.
    Plimsoll,
    /// A gRPC library: follows locality weights, and needs them.
    Grpc,
    /// Everybody else is treated as a stock Envoy.
    Envoy,
}

impl Class {
    /// The class of a node.
    pub fn of(node: &NodeInfo) -> Self {
        if node.is_plimsoll() {
            Self::Plimsoll
        } else if node.is_grpc() {
            Self::Grpc
        } else {
            Self::Envoy
        }
    }
}

/// How one service is steered at one class of receivers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Steering {
    /// Not at all: the policy is delivered as it is written.
    AsConfigured(WhyNot),
    /// Shadow: measured demand is shown, receivers go by host counts.
    HostCounts,
    /// By one of D9; never [`Delivery::Auto`].
    Demand(Delivery),
    /// Reports of hosts decide, and measured demand leads them (decisions D8): by
    /// [`Delivery::LrsResponse`], or by [`Delivery::EdsField`] alone.
    FeedForward(Delivery),
}

/// Why measured demand plays no part.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum WhyNot {
    /// `mode: OFF`.
    ModeOff,
    /// The service wrote down a `locality_basis` that is not measured demand, which stays.
    BasisWritten,
    /// Consistent hashing decides by the request, not by the zone.
    Hashing,
    /// `load_aware_locality` steers by what backends report, and neither its rule nor this receiver
    /// can be led by demand.
    LoadAwareLocality,
    /// Only weights of localities could carry it, and subsets do not look at them without
    /// `locality_weight_aware`.
    Subsets,
}

/// How `service` is steered at receivers of `class`. `fleet_ramp` is the ramp that weights and
/// fractions on the fleet's assignment have: one for all services, so a service on another step
/// needs weights of its own.
pub fn steering(service: &Service, class: Class, fleet_ramp: u32) -> Steering {
    if service.mode == Mode::Off {
        return Steering::AsConfigured(WhyNot::ModeOff);
    }
    if service.config.endpoint_policy().is_hash() {
        return Steering::AsConfigured(WhyNot::Hashing);
    }
    let policy = service.config.locality_policy();
    if matches!(policy, LocalityPolicy::LoadAwareLocality(_)) {
        return match is_led(service) && class == Class::Plimsoll {
            true => Steering::FeedForward(leading(service, fleet_ramp)),
            false => Steering::AsConfigured(WhyNot::LoadAwareLocality),
        };
    }
    if written_basis(service).is_some() {
        return Steering::AsConfigured(WhyNot::BasisWritten);
    }
    if service.mode == Mode::Shadow {
        return Steering::HostCounts;
    }
    let own_weights = service.ramp != fleet_ramp
        || matches!(
            policy,
            LocalityPolicy::LocalityWeighted | LocalityPolicy::WrrLocality
        );
    let delivery = match class {
        Class::Grpc => Delivery::LocalityWeights,
        // The LRS response is per service, so every step fits.
        Class::Plimsoll if service.delivery == Delivery::LrsResponse => Delivery::LrsResponse,
        _ if own_weights => Delivery::LocalityWeights,
        Class::Plimsoll => match service.delivery {
            Delivery::Auto if reads_metadata(&service.config) => Delivery::LocalityMetadata,
            // Weights of the fleet are for those who cannot read fractions.
            Delivery::Auto | Delivery::FleetWeights => Delivery::EdsField,
            delivery => delivery,
        },
        // In a stock Envoy zone-aware routing under weights from ORCA has no settings (its issue
        // 41992): it goes by host counts.
        Class::Envoy if is_weighted_by_orca(service) => Delivery::LocalityWeights,
        Class::Envoy if service.delivery == Delivery::LocalityWeights => Delivery::LocalityWeights,
        Class::Envoy => Delivery::FleetWeights,
    };
    // gRPC clients have no subsets and go by the weights.
    if delivery == Delivery::LocalityWeights && class != Class::Grpc && hides_weights(service) {
        return Steering::AsConfigured(WhyNot::Subsets);
    }
    Steering::Demand(delivery)
}

/// Whether receivers ignore weights of localities, because subsets do.
fn hides_weights(service: &Service) -> bool {
    let subsets = service.config.lb_subset_config();
    subsets.is_some_and(|subsets| !subsets.locality_weight_aware())
}

/// The ramp of everything that travels on a fleet's assignment: the furthest of the services that
/// could use it. 100 when there is none.
pub fn fleet_ramp<'a>(services: impl IntoIterator<Item = &'a Service>) -> u32 {
    let by_fleet = |service: &&Service| {
        service.mode == Mode::Enforce
            && !service.config.endpoint_policy().is_hash()
            && written_basis(service).is_none()
            && (is_led(service)
                || matches!(
                    service.config.locality_policy(),
                    LocalityPolicy::ZoneAware(_)
                ))
            && service.delivery != Delivery::LocalityWeights
    };
    let ramps = services
        .into_iter()
        .filter(by_fleet)
        .map(|service| service.ramp);
    ramps.max().unwrap_or(100)
}

/// Whether plimsoll data planes hear the demand for `service` with the LRS response too.
pub(crate) fn takes_lrs(service: &Service, steering: Steering) -> bool {
    match steering {
        Steering::FeedForward(delivery) => delivery == Delivery::LrsResponse,
        Steering::Demand(_) => {
            matches!(service.delivery, Delivery::Auto | Delivery::LrsResponse)
        }
        Steering::AsConfigured(_) | Steering::HostCounts => false,
    }
}

/// Whether measured demand leads the service's load_aware_locality, where a receiver knows how.
fn is_led(service: &Service) -> bool {
    service.mode == Mode::Enforce && service.config.uses_demand_feed_forward()
}

/// How demand that leads arrives. It is on the fleet's assignment in any case; with the LRS
/// response a service has its own demand and its own step of the ramp.
fn leading(service: &Service, fleet_ramp: u32) -> Delivery {
    match service.delivery {
        Delivery::EdsField | Delivery::LocalityMetadata if service.ramp == fleet_ramp => {
            Delivery::EdsField
        }
        _ => Delivery::LrsResponse,
    }
}

/// The smallest `staleness_threshold` of those who are sent fractions, and which service has it:
/// they must be confirmed three times as often (decisions D3).
pub fn shortest_staleness<'a>(
    services: impl Iterator<Item = &'a Service> + Clone,
) -> Option<(&'a Service, Duration)> {
    let ramp = fleet_ramp(services.clone());
    let threshold = |service: &'a Service| {
        let steering = steering(service, Class::Plimsoll, ramp);
        let config = steered_config(service, steering);
        Some((service, config.staleness_threshold()?))
    };
    services
        .filter_map(threshold)
        .min_by_key(|(_, threshold)| *threshold)
}

/// The basis that the cluster of a service wrote down, if it is another than measured demand:
/// nothing is steered there. That holds for the default too, if it is written. Behind a relay it is
/// another server's word, and a file that asks for demand has the last one.
pub(crate) fn written_basis(service: &Service) -> Option<LocalityBasis> {
    let LocalityPolicy::ZoneAware(rules) = service.config.locality_policy() else {
        return None;
    };
    if service.asks_for_demand.is_some() && !service.is_policy_written {
        return None;
    }
    let written = rules.written_locality_basis();
    written.filter(|basis| *basis != LocalityBasis::LrsReportedRate)
}

fn reads_metadata(config: &ClusterConfig) -> bool {
    let rules = config.zone_aware();
    rules.is_some_and(|rules| rules.fraction_source() == FractionSource::LocalityMetadata)
}

/// Whether the settings of a service contradict each other: what asks for measured demand beside a
/// cluster that wrote down that it goes by something else. Replacing either would be silent.
pub(crate) fn check(service: &Service) -> Result<(), FieldError> {
    if service.mode == Mode::Off {
        return Ok(());
    }
    if let (Some(field), Some(basis)) = (service.asks_for_demand, written_basis(service)) {
        let reason = format!(
            "asks for measured demand, but the cluster says locality_basis: {}, which stays as it \
             is written; remove one of the two",
            name_of(basis)
        );
        return Err(FieldError::new(field, reason));
    }
    if service.delivery == Delivery::EdsField && reads_metadata(&service.config) {
        let reason = "EDS_FIELD, but the cluster says fraction_source: LOCALITY_METADATA; remove \
                      one of the two";
        return Err(FieldError::new("delivery", reason));
    }
    Ok(())
}

/// The name of a value, as files spell it.
pub fn name_of<T: ProtoEnum + PartialEq>(value: T) -> &'static str {
    let found = T::VALUES.iter().find(|(_, _, known)| *known == value);
    found.map_or("", |(name, _, _)| name)
}

/// The cluster of a service as a data plane that understands measured demand must have it.
pub(crate) fn steered_config(service: &Service, steering: Steering) -> ClusterConfig {
    let written = service.config.zone_aware().cloned().unwrap_or_default();
    let (basis, source) = match steering {
        // The fleet's assignment has fractions for other services: those must not lead this one.
        Steering::AsConfigured(_) => return service.config.without_demand_feed_forward(),
        Steering::FeedForward(_) => return ClusterConfig::clone(&service.config),
        Steering::HostCounts => {
            let source = written.fraction_source();
            let rules = written.on_basis(LocalityBasis::HealthyHostsNum, source);
            return service.config.with_zone_aware(rules);
        }
        Steering::Demand(Delivery::LocalityMetadata) => (
            LocalityBasis::LrsReportedRate,
            FractionSource::LocalityMetadata,
        ),
        Steering::Demand(Delivery::FleetWeights) => {
            (LocalityBasis::HealthyHostsWeight, FractionSource::EdsField)
        }
        // Fractions that come with the answer to load reports need no place in an assignment.
        Steering::Demand(Delivery::LrsResponse) => {
            (LocalityBasis::LrsReportedRate, written.fraction_source())
        }
        Steering::Demand(_) => (LocalityBasis::LrsReportedRate, FractionSource::EdsField),
    };
    let rules = steered_rules(service).on_basis(basis, source);
    service.config.with_zone_aware(rules)
}

/// The zone-aware settings of a service that is steered. Envoy's default minimum of 6 upstream
/// hosts guards against guesses from host counts; with measured demand a small service can be
/// routed by zone too, so it holds only where somebody wrote it down.
pub(crate) fn steered_rules(service: &Service) -> ZoneAware {
    let written = service.config.zone_aware().cloned().unwrap_or_default();
    match written.written_min_cluster_size() {
        None => written.with_min_cluster_size(1),
        Some(_) => written,
    }
}

fn is_weighted_by_orca(service: &Service) -> bool {
    matches!(
        service.config.endpoint_policy(),
        EndpointPolicy::ClientSideWeightedRoundRobin(_)
    )
}

#[cfg(test)]
mod tests;
