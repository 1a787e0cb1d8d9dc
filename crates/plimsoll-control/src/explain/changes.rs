//! What reaches receivers otherwise than the service wrote it, and why.
//!
//! Found by comparing the two configurations, not by repeating what `delivery` decides: a setting
//! that has no place in a receiver's message shows up here too.

use plimsoll_core::explain::ChangeExplanation;
use plimsoll_core::model::assignment::{ClusterLoadAssignment, LocalityLbEndpoints};
use plimsoll_core::model::cluster::{ClusterConfig, LocalityPolicy};
use plimsoll_core::model::endpoint_policy::EndpointPolicy;
use plimsoll_core::model::load_aware_locality::LoadAwareLocality;
use plimsoll_core::model::zone_aware::{CapacityBasis, LocalityBasis, ZoneAware};
use plimsoll_xds::yaml::proto_json::ProtoEnum;

use crate::config::{Delivery, Service};
use crate::delivery::{Class, Steering, name_of};
use crate::view::Sent;

/// Settings of `service` that receivers of `class` have otherwise.
pub(super) fn changes(service: &Service, sent: &Sent, class: Class) -> Vec<ChangeExplanation> {
    let written = &*service.config;
    let mut found = Found {
        reason: reason(class, sent.steering),
        changes: Vec::new(),
    };
    let got = &sent.config;
    let policy = |config: &ClusterConfig| config.locality_policy().name();
    match (written.locality_policy(), got.locality_policy()) {
        (LocalityPolicy::ZoneAware(written), LocalityPolicy::ZoneAware(got)) => {
            zone_aware(&mut found, written, got, class);
        }
        (LocalityPolicy::LoadAwareLocality(written), LocalityPolicy::LoadAwareLocality(got)) => {
            load_aware(&mut found, written, got, class);
        }
        // Locality weights by another name.
        _ if written.locality_weighted() && got.locality_weighted() => {}
        (was, _) => {
            let default = *was == LocalityPolicy::default();
            let [written, got] = [policy(written), policy(got)].map(str::to_owned);
            if written != got {
                let written = Some(written).filter(|_| !default);
                found.note("locality policy", written, got, None);
            }
        }
    }
    let [by, got_by] = [written, got].map(|config| config.endpoint_policy().name().to_owned());
    found.note("endpoint policy", Some(by), got_by, unknown_to(class));
    endpoint(&mut found, written, got, class);
    if let Some(sampling) = written.written_locality_sampling() {
        let [written, got] = [sampling, got.locality_sampling()].map(|s| name_of(s).to_owned());
        found.note("locality_sampling", Some(written), got, unknown_to(class));
    }
    weights(&mut found, &service.assignment, &sent.upstream);
    found.changes
}

struct Found {
    /// Why, unless there is a better reason.
    reason: &'static str,
    changes: Vec<ChangeExplanation>,
}

impl Found {
    /// Notes a setting, if it is not the same.
    fn note(
        &mut self,
        setting: &str,
        written: Option<String>,
        sent: String,
        reason: Option<&'static str>,
    ) {
        if written.as_ref() != Some(&sent) {
            self.changes.push(ChangeExplanation {
                setting: setting.to_owned(),
                written,
                sent,
                reason: reason.unwrap_or(self.reason).to_owned(),
            });
        }
    }
}

fn zone_aware(found: &mut Found, written: &ZoneAware, got: &ZoneAware, class: Class) {
    if written.locality_basis() != got.locality_basis() {
        let basis = written.written_locality_basis();
        let basis = basis.map(|basis| name_of(basis).to_owned());
        let sent = name_of(got.locality_basis()).to_owned();
        found.note("locality_basis", basis, sent, None);
    }
    if written.min_cluster_size() != got.min_cluster_size() {
        let size = written.written_min_cluster_size();
        let size = size.map(|size| size.to_string());
        let reason = match size {
            None => Some("measured demand is no guess from host counts, which 6 guards against"),
            Some(_) => unknown_to(class),
        };
        let sent = got.min_cluster_size().to_string();
        found.note("min_cluster_size", size, sent, reason);
    }
    let measured = got.locality_basis() == LocalityBasis::LrsReportedRate;
    if measured && written.fraction_source() != got.fraction_source() {
        let source = written_value(written.fraction_source());
        let sent = name_of(got.fraction_source()).to_owned();
        found.note("fraction_source", source, sent, None);
    }
    if capacity(written) != capacity(got) {
        let one_basis = Some("a stock Envoy has one basis for demand and capacity");
        let by = written_value(capacity(written));
        let sent = name_of(capacity(got)).to_owned();
        found.note("upstream_locality_basis", by, sent, one_basis);
    }
    let everywhere = |rules: &ZoneAware| rules.all_priorities().to_string();
    let priorities = (everywhere(written), everywhere(got));
    found.note(
        "all_priorities",
        Some(priorities.0),
        priorities.1,
        unknown_to(class),
    );
}

fn load_aware(
    found: &mut Found,
    written: &LoadAwareLocality,
    got: &LoadAwareLocality,
    class: Class,
) {
    let [by, sent] = [written, got].map(|rules| name_of(rules.spill_controller()).to_owned());
    found.note("spill_controller", Some(by), sent, unknown_to(class));
    if class == Class::Plimsoll && written.demand_feed_forward() != got.demand_feed_forward() {
        let reason = "the service is not steered, and demand of others must not lead it";
        let sent = got.demand_feed_forward().to_string();
        found.note("demand_feed_forward", None, sent, Some(reason));
    }
}

/// The name of a value, unless it is the default, which is as good as not written.
fn written_value<T: ProtoEnum + PartialEq + Default>(value: T) -> Option<String> {
    (value != T::default()).then(|| name_of(value).to_owned())
}

/// What stands for capacity: the classic bases have one word for both sides.
fn capacity(rules: &ZoneAware) -> CapacityBasis {
    match rules.written_locality_basis() {
        Some(LocalityBasis::HealthyHostsNum) => CapacityBasis::HealthyHostsNum,
        Some(LocalityBasis::HealthyHostsWeight) => CapacityBasis::HealthyHostsWeight,
        Some(LocalityBasis::LrsReportedRate | LocalityBasis::ObservedLoad) | None => {
            rules.upstream_locality_basis()
        }
    }
}

fn endpoint(found: &mut Found, written: &ClusterConfig, got: &ClusterConfig, class: Class) {
    let policies = (written.endpoint_policy(), got.endpoint_policy());
    if let (
        EndpointPolicy::ClientSideWeightedRoundRobin(written),
        EndpointPolicy::ClientSideWeightedRoundRobin(got),
    ) = policies
    {
        let precedences = [
            written.utilization_precedence(),
            got.utilization_precedence(),
        ];
        let [written, got] = precedences.map(|precedence| name_of(precedence).to_owned());
        found.note(
            "utilization_precedence",
            Some(written),
            got,
            unknown_to(class),
        );
    }
}

/// Locality weights that are written down and not sent.
fn weights(found: &mut Found, written: &ClusterLoadAssignment, sent: &ClusterLoadAssignment) {
    let weights = |assignment: &ClusterLoadAssignment| -> Vec<String> {
        let localities = assignment.endpoints().iter();
        let weight = |entry: &LocalityLbEndpoints| entry.load_balancing_weight.to_string();
        localities.map(weight).collect()
    };
    let is_written = |entry: &LocalityLbEndpoints| entry.load_balancing_weight > 0;
    if written.endpoints().iter().any(is_written) {
        let [written, sent] = [written, sent].map(|assignment| weights(assignment).join("/"));
        found.note("load_balancing_weight", Some(written), sent, None);
    }
}

/// Why a basis or a policy is another one.
const fn reason(class: Class, steering: Steering) -> &'static str {
    match (class, steering) {
        (_, Steering::Demand(Delivery::LocalityWeights)) => {
            "the service is steered by measured demand, delivered as locality weights"
        }
        (_, Steering::Demand(Delivery::FleetWeights)) => {
            "the service is steered by measured demand, delivered as weights of the fleet"
        }
        (_, Steering::Demand(_)) => "the service is steered by measured demand (mode: ENFORCE)",
        (Class::Grpc, _) => "a gRPC client follows locality weights and knows nothing else",
        (_, Steering::HostCounts) => "mode: SHADOW goes by host counts",
        (Class::Envoy, Steering::AsConfigured(_) | Steering::FeedForward(_)) => {
            "a stock Envoy does not know it"
        }
        (Class::Plimsoll, Steering::AsConfigured(_) | Steering::FeedForward(_)) => {
            "it has no place in the message"
        }
    }
}

/// Why a setting does not arrive; `None` where every setting does.
const fn unknown_to(class: Class) -> Option<&'static str> {
    match class {
        Class::Plimsoll => None,
        Class::Grpc => Some("a gRPC client has no such setting"),
        Class::Envoy => Some("a stock Envoy has no such setting here"),
    }
}
