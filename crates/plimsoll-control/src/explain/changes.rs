//! Finds settings of a service that receivers are sent differently than configured.
//!
//! Compares the configuration in the file with the one that receivers decode, instead of repeating
//! the decisions of `delivery`: settings without a field in a receiver's message are found as well.

use std::time::Duration;

use plimsoll_core::explain::ChangeExplanation;
use plimsoll_core::model::assignment::{ClusterLoadAssignment, LocalityLbEndpoints};
use plimsoll_core::model::cluster::{ClusterConfig, LocalityPolicy};
use plimsoll_core::model::endpoint_policy::EndpointPolicy;
use plimsoll_core::model::load_aware_locality::LoadAwareLocality;
use plimsoll_core::model::orca::EndpointLoadMetricsFormat;
use plimsoll_core::model::zone_aware::{
    CapacityBasis, DEFAULT_STALENESS_THRESHOLD, LocalityBasis, ZoneAware,
};
use plimsoll_xds::yaml::proto_json::ProtoEnum;

use crate::config::{Delivery, Service};
use crate::delivery::{NodeClass, Steering, proto_name};
use crate::view::SentResources;

/// Returns the settings of `service` that nodes of `class` are sent differently than configured.
pub(super) fn changes(
    service: &Service,
    sent: &SentResources,
    class: NodeClass,
) -> Vec<ChangeExplanation> {
    let written = &*service.config;
    let mut changes = Changes {
        reason: reason(class, sent.steering),
        found: Vec::new(),
    };
    let got = &sent.config;
    let policy = |config: &ClusterConfig| config.locality_policy().name();
    match (written.locality_policy(), got.locality_policy()) {
        (LocalityPolicy::ZoneAware(written), LocalityPolicy::ZoneAware(got)) => {
            zone_aware(&mut changes, written, got, class);
        }
        (LocalityPolicy::LoadAwareLocality(written), LocalityPolicy::LoadAwareLocality(got)) => {
            load_aware(&mut changes, written, got, class);
        }
        // Both policies are locality weights, under different names.
        _ if written.locality_weighted() && got.locality_weighted() => {}
        (was, _) => {
            let default = *was == LocalityPolicy::default();
            let [written, got] = [policy(written), policy(got)].map(str::to_owned);
            if written != got {
                let written = Some(written).filter(|_| !default);
                changes.add("locality policy", written, got, None);
            }
            if let (LocalityPolicy::ZoneAware(rules), true) = (was, sent.config.locality_weighted())
            {
                lost_in_weights(&mut changes, rules);
            }
        }
    }
    let [by, got_by] = [written, got].map(|config| config.endpoint_policy().name().to_owned());
    changes.add("endpoint policy", Some(by), got_by, unsupported_by(class));
    endpoint(&mut changes, written, got, class);
    if let Some(sampling) = written.written_locality_sampling() {
        let [written, got] = [sampling, got.locality_sampling()].map(|s| proto_name(s).to_owned());
        changes.add(
            "locality_sampling",
            Some(written),
            got,
            unsupported_by(class),
        );
    }
    if let Some(format) = written.endpoint_load_metrics_format() {
        let text = EndpointLoadMetricsFormat::header_value;
        let got = got.endpoint_load_metrics_format().map_or("not sent", text);
        changes.add(
            "endpoint_load_metrics_format",
            Some(text(format).to_owned()),
            got.to_owned(),
            match class {
                NodeClass::EnvoyModule => {
                    Some("the module asks for reports only in clusters that it balances")
                }
                _ => unsupported_by(class),
            },
        );
    }
    weights(&mut changes, &service.assignment, &sent.upstream);
    delivery(&mut changes, service, sent.steering);
    changes.found
}

/// Adds the form of demand if it is another than the service asks for.
fn delivery(changes: &mut Changes, service: &Service, steering: Steering) {
    let (Steering::Demand(form) | Steering::FeedForward(form)) = steering else {
        return;
    };
    if service.delivery == Delivery::Auto {
        return;
    }
    let reason = match form {
        Delivery::LocalityWeights if service.ramp < 100 => {
            "below 100 a ramp is delivered as locality weights"
        }
        Delivery::LocalityWeights | Delivery::LrsResponse if service.has_own_plan => {
            "what is on the fleet's assignment is shared by all services, and this one has a plan \
             of its own: it has an objective, or fleets with different demand"
        }
        _ => "these nodes do not get demand in that form with this policy",
    };
    let [written, sent] = [service.delivery, form].map(|form| proto_name(form).to_owned());
    changes.add("delivery", Some(written), sent, Some(reason));
}

struct Changes {
    /// Reason of changed settings that have no more specific reason.
    reason: &'static str,
    found: Vec<ChangeExplanation>,
}

impl Changes {
    fn add(
        &mut self,
        setting: &str,
        written: Option<String>,
        sent: String,
        reason: Option<&'static str>,
    ) {
        if written.as_ref() != Some(&sent) {
            self.found.push(ChangeExplanation {
                setting: setting.to_owned(),
                written,
                sent,
                reason: reason.unwrap_or(self.reason).to_owned(),
            });
        }
    }
}

fn zone_aware(changes: &mut Changes, written: &ZoneAware, got: &ZoneAware, class: NodeClass) {
    if written.locality_basis() != got.locality_basis() {
        let basis = written
            .written_locality_basis()
            .map(|basis| proto_name(basis).to_owned());
        let sent = proto_name(got.locality_basis()).to_owned();
        changes.add("locality_basis", basis, sent, None);
    }
    if written.min_cluster_size() != got.min_cluster_size() {
        let size = written
            .written_min_cluster_size()
            .map(|size| size.to_string());
        let reason = match size {
            None => Some(
                "the default of 6 guards against estimates from host counts, which demand is not",
            ),
            Some(_) => unsupported_by(class),
        };
        let sent = got.min_cluster_size().to_string();
        changes.add("min_cluster_size", size, sent, reason);
    }
    let measured = got.locality_basis() == LocalityBasis::LrsReportedRate;
    if measured && written.fraction_source() != got.fraction_source() {
        let source = written_value(written.fraction_source());
        let sent = proto_name(got.fraction_source()).to_owned();
        changes.add("fraction_source", source, sent, None);
    }
    if capacity(written) != capacity(got) {
        let one_basis = Some(match class {
            NodeClass::Plimsoll | NodeClass::EnvoyModule => {
                "capacity is that of a host of weight 1, times its weight"
            }
            NodeClass::Grpc | NodeClass::Envoy => {
                "a stock Envoy has one basis for demand and capacity"
            }
        });
        let by = written_value(capacity(written));
        let sent = proto_name(capacity(got)).to_owned();
        changes.add("upstream_locality_basis", by, sent, one_basis);
    }
    let forced = |rules: &ZoneAware| match rules.force_local_zone() {
        Some(size) => format!("min_size {size}"),
        None => "unset".to_owned(),
    };
    let staleness = |rules: &ZoneAware| seconds(rules.staleness_threshold());
    let values = |rules: &ZoneAware| {
        [
            ("all_priorities", rules.all_priorities().to_string()),
            ("routing_enabled", format!("{} %", rules.routing_enabled())),
            (
                "fail_traffic_on_panic",
                rules.fail_traffic_on_panic().to_string(),
            ),
            ("force_local_zone", forced(rules)),
            ("staleness_threshold", staleness(rules)),
            ("dead_band_bp", dead_band(rules)),
            (
                "observed_load_period",
                seconds(rules.observed_load_period()),
            ),
        ]
    };
    for ((setting, written), (_, got)) in values(written).into_iter().zip(values(got)) {
        changes.add(setting, Some(written), got, unsupported_by(class));
    }
}

/// Adds the zone-aware settings that locality weights cannot carry. The other ones decide the
/// weights: `routing_enabled`, `min_cluster_size`, `force_local_zone` and the bases.
fn lost_in_weights(changes: &mut Changes, written: &ZoneAware) {
    let mut add = |setting, written: String, sent: &str, reason| {
        changes.add(setting, Some(written), sent.to_owned(), Some(reason));
    };
    let in_panic = "receivers of locality weights send to all hosts in panic";
    let priority = "locality weights follow demand at priority 0 only";
    let expire = "locality weights do not expire";
    let band = "locality weights have no state that a band would keep from flipping";
    let panic = written.fail_traffic_on_panic().to_string();
    add("fail_traffic_on_panic", panic, "false", in_panic);
    let everywhere = written.all_priorities().to_string();
    add("all_priorities", everywhere, "false", priority);
    if written.staleness_threshold() != DEFAULT_STALENESS_THRESHOLD {
        let threshold = seconds(written.staleness_threshold());
        add("staleness_threshold", threshold, "never", expire);
    }
    if written.written_dead_band().is_some() {
        add("dead_band_bp", dead_band(written), "0", band);
    }
}

fn seconds(duration: Duration) -> String {
    format!("{}s", duration.as_secs_f64())
}

fn dead_band(rules: &ZoneAware) -> String {
    let written = rules.written_dead_band();
    written.map_or_else(|| "the default".to_owned(), |band| band.get().to_string())
}

fn load_aware(
    changes: &mut Changes,
    written: &LoadAwareLocality,
    got: &LoadAwareLocality,
    class: NodeClass,
) {
    let [by, sent] = [written, got].map(|rules| proto_name(rules.spill_controller()).to_owned());
    changes.add("spill_controller", Some(by), sent, unsupported_by(class));
    let engine = matches!(class, NodeClass::Plimsoll | NodeClass::EnvoyModule);
    let [by, sent] = [written, got].map(LoadAwareLocality::demand_feed_forward_percent);
    if engine && sent == 0 && by > 0 {
        let reason =
            "the service is not steered, and demand of other services must not influence it";
        changes.add(
            "demand_feed_forward",
            None,
            "false".to_owned(),
            Some(reason),
        );
    } else if engine {
        let [by, sent] = [by, sent].map(|percent| percent.to_string());
        let (setting, reason) = (
            "demand_feed_forward_percent",
            "it is the ramp of the service",
        );
        changes.add(setting, Some(by), sent, Some(reason));
    }
}

/// Returns the name of a value; `None` for the default, as it may mean an unset field.
fn written_value<T: ProtoEnum + PartialEq + Default>(value: T) -> Option<String> {
    (value != T::default()).then(|| proto_name(value).to_owned())
}

/// Returns the basis of capacity, which `HEALTHY_HOSTS_*` values of `locality_basis` imply.
fn capacity(rules: &ZoneAware) -> CapacityBasis {
    match rules.written_locality_basis() {
        Some(LocalityBasis::HealthyHostsNum) => CapacityBasis::HealthyHostsNum,
        Some(LocalityBasis::HealthyHostsWeight) => CapacityBasis::HealthyHostsWeight,
        Some(LocalityBasis::LrsReportedRate | LocalityBasis::ObservedLoad) | None => {
            rules.upstream_locality_basis()
        }
    }
}

fn endpoint(changes: &mut Changes, written: &ClusterConfig, got: &ClusterConfig, class: NodeClass) {
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
        let [written, got] = precedences.map(|precedence| proto_name(precedence).to_owned());
        changes.add(
            "utilization_precedence",
            Some(written),
            got,
            unsupported_by(class),
        );
    }
}

fn weights(changes: &mut Changes, written: &ClusterLoadAssignment, sent: &ClusterLoadAssignment) {
    // Localities that stand by for gRPC clients have left priority 0.
    let weight_in = |assignment: &ClusterLoadAssignment, entry: &LocalityLbEndpoints| {
        let same = |other: &&LocalityLbEndpoints| {
            other.locality == entry.locality && (other.priority == 0) == (entry.priority == 0)
        };
        let found = assignment.endpoints().iter().find(same);
        found.map_or(0, |other| other.load_balancing_weight)
    };
    let localities = written.endpoints();
    if localities
        .iter()
        .any(|entry| entry.load_balancing_weight > 0)
    {
        let [written, sent] = [written, sent].map(|assignment| {
            let weights = localities.iter().map(|entry| weight_in(assignment, entry));
            let weights: Vec<_> = weights.map(|weight| weight.to_string()).collect();
            weights.join("/")
        });
        changes.add("load_balancing_weight", Some(written), sent, None);
    }
}

const fn reason(class: NodeClass, steering: Steering) -> &'static str {
    match (class, steering) {
        (_, Steering::Demand(Delivery::LocalityWeights)) => {
            "the service is steered by measured demand, delivered as locality weights"
        }
        (_, Steering::Demand(Delivery::FleetWeights)) => {
            "the service is steered by measured demand, delivered as weights of the fleet"
        }
        (_, Steering::Demand(_)) => "the service is steered by measured demand (mode: ENFORCE)",
        (NodeClass::Grpc, _) => "a gRPC client supports no policy but locality weights",
        (_, Steering::HostCounts) => "mode: SHADOW leaves measured demand out",
        (_, Steering::ZoneFails) => "requests to a zone of the service fail",
        (NodeClass::Envoy, Steering::AsConfigured(_) | Steering::FeedForward(_)) => {
            "a stock Envoy does not support it"
        }
        (
            NodeClass::Plimsoll | NodeClass::EnvoyModule,
            Steering::AsConfigured(_) | Steering::FeedForward(_),
        ) => "the message has no field for it",
    }
}

/// Returns why receivers of `class` lack a setting; `None` if they support all settings.
const fn unsupported_by(class: NodeClass) -> Option<&'static str> {
    match class {
        NodeClass::Plimsoll | NodeClass::EnvoyModule => None,
        NodeClass::Grpc => Some("a gRPC client does not have this setting"),
        NodeClass::Envoy => Some("a stock Envoy does not have this setting here"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::delivery::NotSteeredReason;

    #[test]
    fn every_class_and_steering_has_a_reason() {
        let as_configured = Steering::AsConfigured(NotSteeredReason::ModeOff);
        let demand = Steering::Demand;
        for (class, steering, text) in [
            (
                NodeClass::Grpc,
                demand(Delivery::LocalityWeights),
                "the service is steered by measured demand, delivered as locality weights",
            ),
            (
                NodeClass::Envoy,
                demand(Delivery::FleetWeights),
                "the service is steered by measured demand, delivered as weights of the fleet",
            ),
            (
                NodeClass::Plimsoll,
                demand(Delivery::EdsField),
                "the service is steered by measured demand (mode: ENFORCE)",
            ),
            (
                NodeClass::Grpc,
                Steering::HostCounts,
                "a gRPC client supports no policy but locality weights",
            ),
            (
                NodeClass::Envoy,
                Steering::HostCounts,
                "mode: SHADOW leaves measured demand out",
            ),
            (
                NodeClass::Envoy,
                as_configured,
                "a stock Envoy does not support it",
            ),
            (
                NodeClass::EnvoyModule,
                Steering::FeedForward(Delivery::LrsResponse),
                "the message has no field for it",
            ),
        ] {
            assert_eq!(reason(class, steering), text);
        }
        let missing = NodeClass::ALL.map(unsupported_by);
        let expected = [
            None,
            None,
            Some("a gRPC client does not have this setting"),
            Some("a stock Envoy does not have this setting here"),
        ];
        assert_eq!(missing, expected);
    }

    #[test]
    fn a_specific_reason_replaces_the_general_one() {
        let mut changes = Changes {
            reason: "general",
            found: Vec::new(),
        };
        changes.add("same", Some("1".to_owned()), "1".to_owned(), None);
        changes.add("unset", None, "2".to_owned(), None);
        changes.add(
            "other",
            Some("1".to_owned()),
            "2".to_owned(),
            Some("specific"),
        );
        let found = changes.found.iter();
        let found: Vec<_> = found.map(|one| (&*one.setting, &*one.reason)).collect();
        assert_eq!(found, [("unset", "general"), ("other", "specific")]);
    }
}
