//! What a scenario file may say: raw structs, unknown fields denied.
//!
//! Numbers are checked in `hosts` and in the core, the cluster in plimsoll-xds.

use std::fmt;

use plimsoll_core::model::locality::Locality;
use plimsoll_core::units::FieldError;
use plimsoll_xds::yaml::proto_json::{Double, ProtoDuration, Uint};
use plimsoll_xds::yaml::{ClusterYaml, RuntimeYaml};
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};

/// A whole file.
#[derive(Clone, Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ScenarioYaml {
    #[serde(default)]
    pub(super) title: String,
    #[serde(default)]
    pub(super) description: String,
    pub(super) own_locality: LocalityYaml,
    /// The proxies; without them no originating cluster is known.
    pub(super) fleet: Option<FleetYaml>,
    pub(super) upstream: UpstreamYaml,
    /// How long ago the fractions of the fleet arrived.
    pub(super) fractions_age: Option<ProtoDuration>,
    pub(super) cluster: ClusterYaml,
    #[serde(default)]
    pub(super) runtime: RuntimeYaml,
}

/// The proxies, per locality.
#[derive(Clone, Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct FleetYaml {
    pub(super) localities: Vec<FleetLocalityYaml>,
}

/// The proxies of one locality.
#[derive(Clone, Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct FleetLocalityYaml {
    pub(super) locality: LocalityYaml,
    pub(super) hosts: Uint<u64>,
    pub(super) healthy: Option<Uint<u64>>,
    #[serde(default)]
    pub(super) weights: WeightsYaml,
    pub(super) observed_traffic_fraction: Option<Uint<u64>>,
    pub(super) metadata_traffic_fraction: Option<Double>,
}

/// The upstream cluster, per priority and locality.
#[derive(Clone, Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct UpstreamYaml {
    pub(super) localities: Vec<UpstreamLocalityYaml>,
    pub(super) overprovisioning_factor: Option<Uint<u32>>,
    #[serde(default)]
    pub(super) weighted_priority_health: bool,
}

/// The upstream hosts of one locality at one priority.
#[derive(Clone, Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct UpstreamLocalityYaml {
    pub(super) locality: LocalityYaml,
    #[serde(default)]
    pub(super) priority: Uint<u32>,
    pub(super) hosts: Uint<u64>,
    pub(super) healthy: Option<Uint<u64>>,
    #[serde(default)]
    pub(super) degraded: Uint<u64>,
    #[serde(default)]
    pub(super) draining: Uint<u64>,
    #[serde(default)]
    pub(super) weights: WeightsYaml,
    pub(super) load_balancing_weight: Option<Uint<u32>>,
    /// What every healthy host reports, 0 to 1; without it nobody does.
    pub(super) utilization: Option<Double>,
}

/// `{region, zone, sub_zone}`, or only the zone as a string.
#[derive(Clone, Debug, Default, serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct LocalityFields {
    #[serde(default)]
    region: String,
    zone: String,
    #[serde(default)]
    sub_zone: String,
}

/// Where something is.
#[derive(Clone, Debug)]
pub(super) struct LocalityYaml(LocalityFields);

impl LocalityYaml {
    /// The locality; one without a zone would be no locality at all to Envoy.
    pub(super) fn checked(&self, path: &str) -> Result<Locality, FieldError> {
        let Self(LocalityFields {
            region,
            zone,
            sub_zone,
        }) = self;
        if zone.is_empty() {
            return Err(FieldError::new(format!("{path}.zone"), "must not be empty"));
        }
        Ok(Locality::new(region, zone, sub_zone))
    }
}

impl<'de> Deserialize<'de> for LocalityYaml {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct LocalityVisitor;

        impl<'de> Visitor<'de> for LocalityVisitor {
            type Value = LocalityFields;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a zone or {region, zone, sub_zone}")
            }

            fn visit_str<E: Error>(self, zone: &str) -> Result<LocalityFields, E> {
                Ok(LocalityFields {
                    zone: zone.to_owned(),
                    ..Default::default()
                })
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<LocalityFields, A::Error> {
                LocalityFields::deserialize(MapAccessDeserializer::new(map))
            }
        }

        deserializer.deserialize_any(LocalityVisitor).map(Self)
    }
}

/// Weights of hosts.
#[derive(Clone, Debug, Default)]
pub(super) enum WeightsYaml {
    /// Not said: 1 each.
    #[default]
    Unset,
    /// One number for every host.
    Same(u32),
    /// One number per host.
    Each(Vec<u32>),
}

impl<'de> Deserialize<'de> for WeightsYaml {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct WeightsVisitor;

        impl<'de> Visitor<'de> for WeightsVisitor {
            type Value = WeightsYaml;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("one weight or a list of weights")
            }

            fn visit_u64<E: Error>(self, weight: u64) -> Result<WeightsYaml, E> {
                let weight = u32::try_from(weight).map_err(|_| {
                    E::custom(format_args!(
                        "{weight} is not a whole number from 1 to {}",
                        u32::MAX
                    ))
                })?;
                Ok(WeightsYaml::Same(weight))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<WeightsYaml, A::Error> {
                let mut weights = Vec::new();
                while let Some(Uint(weight)) = list.next_element()? {
                    weights.push(weight);
                }
                Ok(WeightsYaml::Each(weights))
            }
        }

        deserializer.deserialize_any(WeightsVisitor)
    }
}
