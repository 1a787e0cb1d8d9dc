//! Reads resources as their receiver does, and says by what it chooses the zone of a request.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use plimsoll_core::balancer::Balancer;
use plimsoll_core::model::assignment::{ClusterLoadAssignment, LbEndpoint};
use plimsoll_core::model::cluster::{ClusterConfig, ClusterConfigParts, LocalityPolicy};
use plimsoll_core::model::locality::Locality;
use plimsoll_core::model::zone_aware::{FractionSource, LocalityBasis, ZoneAware};
use plimsoll_core::time::Instant;
use plimsoll_core::units::BasisPoints;
use plimsoll_xds::error::DecodeError;
use plimsoll_xds::pb::AnyMessage;
use plimsoll_xds::pb::cluster::ClusterMessage;
use plimsoll_xds::pb::metadata::StructMessage;
use plimsoll_xds::schema::field::raw_fields;
use plimsoll_xds::schema::metadata::struct_json;
use plimsoll_xds::wire::{decode_assignment, decode_cluster};
use plimsoll_xds::yaml::{ClusterYaml, Document, cluster_config_parts};
use prost::Message as _;

use super::{Routing, Setup};
use crate::config::Delivery;
use crate::delivery::NodeClass;

/// What a proxy in zone a has received for a service.
#[derive(Clone, Debug, Default)]
pub struct Received {
    pub cluster: Bytes,
    pub assignment: Bytes,
    /// The assignment of a proxy in zone b.
    pub assignment_in_b: Bytes,
    /// The assignment of the fleet.
    pub fleet: Bytes,
    /// Demand for the service in responses to load reports.
    pub told: BTreeMap<Locality, BasisPoints>,
}

impl Received {
    /// Returns by what a proxy of a class chooses the zone of a request, and the share of its
    /// requests by upstream zone.
    pub fn read(&self, class: NodeClass) -> Result<(Routing, BTreeMap<String, f64>), String> {
        let text = |error: DecodeError| error.to_string();
        let decoded = Decoded {
            config: config(&self.cluster, class)?,
            orders: decode_assignment(&self.assignment).map_err(text)?,
            orders_in_b: decode_assignment(&self.assignment_in_b).map_err(text)?,
            fleet: decode_assignment(&self.fleet).map_err(text)?,
            told: self.told.clone(),
        };
        Ok((decoded.routing(class), decoded.split()))
    }
}

/// Resources of proxies in zone a, as they read them.
pub(super) struct Decoded {
    pub(super) config: ClusterConfig,
    pub(super) orders: ClusterLoadAssignment,
    /// The assignment of the service in zone b.
    orders_in_b: ClusterLoadAssignment,
    fleet: ClusterLoadAssignment,
    told: BTreeMap<Locality, BasisPoints>,
}

impl Setup {
    pub(super) fn decode(&self, class: NodeClass) -> Result<Decoded, String> {
        let [a, b] = ["a", "b"].map(|zone| self.sent(class, zone));
        let (a, b) = (a?, b?);
        let text = |error: DecodeError| error.to_string();
        Ok(Decoded {
            config: config(&a.cluster.body, class)?,
            orders: decode_assignment(&a.orders.body).map_err(text)?,
            orders_in_b: decode_assignment(&b.orders.body).map_err(text)?,
            fleet: decode_assignment(&a.fleet.body).map_err(text)?,
            told: self.told(class),
        })
    }
}

impl Decoded {
    /// Returns by what the receiver chooses the zone of a request.
    pub(super) fn routing(&self, class: NodeClass) -> Routing {
        if self.config.endpoint_policy().is_hash() {
            return Routing::Request;
        }
        match self.config.locality_policy() {
            LocalityPolicy::LoadAwareLocality(_) => {
                let forms = self.fractions(FractionSource::EdsField);
                if self.config.uses_demand_feed_forward() && !forms.is_empty() {
                    Routing::FeedForward(forms)
                } else {
                    Routing::Utilization
                }
            }
            LocalityPolicy::ZoneAware(rules) => self.zone_aware(rules, class),
            LocalityPolicy::Flat => Routing::AllHosts,
            LocalityPolicy::LocalityWeighted | LocalityPolicy::WrrLocality => {
                if self.orders == self.orders_in_b {
                    Routing::SameWeights
                } else {
                    Routing::Demand(BTreeSet::from([Delivery::LocalityWeights]))
                }
            }
        }
    }

    fn zone_aware(&self, rules: &ZoneAware, class: NodeClass) -> Routing {
        match rules.locality_basis() {
            LocalityBasis::LrsReportedRate => {
                let forms = self.fractions(rules.fraction_source());
                if forms.is_empty() {
                    Routing::HostCounts
                } else {
                    Routing::Demand(forms)
                }
            }
            LocalityBasis::HealthyHostsNum => Routing::HostCounts,
            LocalityBasis::HealthyHostsWeight if self.has_fleet_weights() => {
                Routing::Demand(BTreeSet::from([Delivery::FleetWeights]))
            }
            LocalityBasis::HealthyHostsWeight => Routing::HostWeights,
            // Others read it as Envoy's default.
            LocalityBasis::ObservedLoad if matches!(class, NodeClass::Grpc | NodeClass::Envoy) => {
                Routing::HostCounts
            }
            LocalityBasis::ObservedLoad => Routing::ObservedLoad,
        }
    }

    /// Returns the forms in which the receiver has fractions.
    fn fractions(&self, source: FractionSource) -> BTreeSet<Delivery> {
        let in_fleet = match source {
            FractionSource::EdsField => Delivery::EdsField,
            FractionSource::LocalityMetadata => Delivery::LocalityMetadata,
        };
        let forms = [
            (in_fleet, !self.fleet.fractions(source).is_empty()),
            (Delivery::LrsResponse, !self.told.is_empty()),
        ];
        let present = forms.into_iter().filter(|(_, is_present)| *is_present);
        present.map(|(form, _)| form).collect()
    }

    /// Whether the weights of the fleet's zones differ from the numbers of its proxies.
    fn has_fleet_weights(&self) -> bool {
        let weight = |host: &LbEndpoint| host.load_balancing_weight.unwrap_or(1);
        let zones = self.fleet.endpoints().iter();
        let sums: BTreeSet<u32> = zones
            .map(|zone| zone.lb_endpoints.iter().map(weight).sum())
            .collect();
        sums.len() > 1
    }

    /// Runs a balancer; returns the share of requests by upstream zone.
    pub(super) fn split(&self) -> BTreeMap<String, f64> {
        let now = Instant::ORIGIN;
        let own = Locality::zone_only("a");
        let mut balancer = Balancer::new(Arc::new(self.config.clone()), own, now);
        balancer.handle_fleet_assignment(self.fleet.clone(), now);
        balancer.handle_observed_traffic(self.told.clone(), now);
        balancer.handle_assignment(self.orders.clone(), now);
        let snapshot = balancer.poll_snapshot();
        let explained = snapshot.map(|snapshot| snapshot.explain_at(now));
        let rows = explained.into_iter().flat_map(|all| all.localities);
        rows.map(|row| (row.zone, row.expected_share)).collect()
    }
}

/// Reads a cluster as nodes of a class do.
fn config(body: &[u8], class: NodeClass) -> Result<ClusterConfig, String> {
    let config = match module_config(body) {
        Some(config) if class == NodeClass::EnvoyModule => config?,
        Some(_) => return Err("names the module".to_owned()),
        None => {
            decode_cluster(body)
                .map_err(|error| error.to_string())?
                .config
        }
    };
    Ok(match class {
        // They always choose localities by weight.
        NodeClass::Grpc => config.with_locality_weights(),
        _ => config,
    })
}

/// Returns the settings in the first policy of a cluster, as the module inside an Envoy reads them;
/// `None` if that is another policy.
fn module_config(body: &[u8]) -> Option<Result<ClusterConfig, String>> {
    let message = ClusterMessage::decode(body).ok()?;
    let policies = message.load_balancing_policy?.policies;
    let typed = policies.first()?.typed_extension_config.clone()?;
    if typed.name != "envoy.load_balancing_policies.dynamic_modules" {
        return None;
    }
    let last = raw_fields(&typed.typed_config?.value)
        .last()?
        .ok()?
        .value
        .to_vec();
    let settings: StructMessage = AnyMessage::decode(&*last).ok()?.unpack().ok()?;
    let text = struct_json(&settings)["cluster"].to_string();
    Some(read_module(&text, message.name))
}

fn read_module(text: &str, name: String) -> Result<ClusterConfig, String> {
    let document = Document::parse(text).map_err(|error| error.to_string())?;
    let yaml: ClusterYaml = document.read().map_err(|error| error.to_string())?;
    let parts = cluster_config_parts(&yaml).map_err(|error| error.to_string())?;
    // The name is Envoy's.
    let named = ClusterConfigParts { name, ..parts };
    ClusterConfig::try_new(named).map_err(|error| error.to_string())
}
