//! What a scenario file may say: raw structs, unknown fields denied.
//!
//! Numbers are checked in `hosts` and in the core, the cluster in plimsoll-xds.

use std::borrow::Cow;
use std::fmt;

use plimsoll_core::model::locality::Locality;
use plimsoll_core::units::FieldError;
use plimsoll_xds::yaml::proto_json::{Double, ProtoDuration, Uint};
use plimsoll_xds::yaml::{ClusterYaml, RuntimeYaml, StructYaml};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};

/// A whole file.
#[derive(Clone, Debug, JsonSchema, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ScenarioYaml {
    /// One line.
    #[serde(default)]
    pub(super) title: String,
    /// What the scenario shows.
    #[serde(default)]
    pub(super) description: String,
    /// Where the proxy is.
    pub(super) own_locality: LocalityYaml,
    /// The proxies; without them no originating cluster is known.
    pub(super) fleet: Option<FleetYaml>,
    /// The hosts that requests may go to.
    pub(super) upstream: UpstreamYaml,
    /// Explain this subset instead of the whole cluster: the metadata that its hosts share.
    pub(super) subset: Option<StructYaml>,
    /// How long ago the fractions of the fleet arrived.
    pub(super) fractions_age: Option<ProtoDuration>,
    /// The cluster as in an Envoy.
    pub(super) cluster: ClusterYaml,
    /// Runtime keys of Envoy.
    #[serde(default)]
    pub(super) runtime: RuntimeYaml,
}

/// The proxies, per locality.
#[derive(Clone, Debug, JsonSchema, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct FleetYaml {
    /// Localities.
    pub(super) localities: Vec<FleetLocalityYaml>,
}

/// The proxies of one locality.
#[derive(Clone, Debug, JsonSchema, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct FleetLocalityYaml {
    /// Where they are.
    pub(super) locality: LocalityYaml,
    /// How many.
    pub(super) hosts: Uint<u64>,
    /// How many of them are healthy. Default all.
    pub(super) healthy: Option<Uint<u64>>,
    /// Their weights: one number for all, or a list. Default 1.
    #[serde(default)]
    pub(super) weights: WeightsYaml,
    /// Measured share of demand in basis points; left out it is not known.
    pub(super) observed_traffic_fraction: Option<Uint<u64>>,
    /// The same, as metadata of the locality has it.
    pub(super) metadata_traffic_fraction: Option<Double>,
}

/// The upstream cluster, per priority and locality.
#[derive(Clone, Debug, JsonSchema, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct UpstreamYaml {
    /// Localities.
    pub(super) localities: Vec<UpstreamLocalityYaml>,
    /// Percent by which healthy hosts may stand for others, above 0. Default 140.
    pub(super) overprovisioning_factor: Option<Uint<u32>>,
    /// Health of a priority by weights instead of by number of hosts.
    #[serde(default)]
    pub(super) weighted_priority_health: bool,
}

/// The upstream hosts of one locality at one priority.
#[derive(Clone, Debug, JsonSchema, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct UpstreamLocalityYaml {
    /// Where they are.
    pub(super) locality: LocalityYaml,
    /// 0 is used first. Default 0.
    #[serde(default)]
    pub(super) priority: Uint<u32>,
    /// How many.
    pub(super) hosts: Uint<u64>,
    /// How many of them are healthy. Default all that are not degraded.
    pub(super) healthy: Option<Uint<u64>>,
    /// How many of them are degraded. Default 0.
    #[serde(default)]
    pub(super) degraded: Uint<u64>,
    /// How many of them are draining. Default 0.
    #[serde(default)]
    pub(super) draining: Uint<u64>,
    /// Their weights: one number for all, or a list. Default 1.
    #[serde(default)]
    pub(super) weights: WeightsYaml,
    /// Weight of the locality, where localities are chosen by weights.
    pub(super) load_balancing_weight: Option<Uint<u32>>,
    /// What every healthy host reports, 0 to 1; without it nobody does.
    pub(super) utilization: Option<Double>,
    /// Metadata of every host, which subsets are made of; hosts with other metadata are another
    /// entry of the same locality.
    #[serde(default)]
    pub(super) metadata: StructYaml,
}

/// `{region, zone, sub_zone}`, or only the zone as a string.
#[derive(Clone, Debug, Default, JsonSchema, serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct LocalityFields {
    /// Region.
    #[serde(default)]
    region: String,
    /// Zone.
    zone: String,
    /// Part of the zone.
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

impl JsonSchema for LocalityYaml {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Locality".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let long = generator.subschema_for::<LocalityFields>();
        json_schema!({ "oneOf": [{ "type": "string" }, long] })
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

impl JsonSchema for WeightsYaml {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Weights".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let list = generator.subschema_for::<Vec<Uint<u32>>>();
        json_schema!({ "oneOf": [{ "type": "integer", "minimum": 0, "maximum": u32::MAX }, list] })
    }
}
