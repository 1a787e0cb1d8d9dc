//! File format of scenarios: plain structs that reject unknown fields. Values are validated in
//! `hosts` and in the core, the cluster in plimsoll-xds.

use std::borrow::Cow;
use std::fmt;

use plimsoll_core::model::locality::Locality;
use plimsoll_core::units::FieldError;
use plimsoll_xds::pb::LocalityMessage;
use plimsoll_xds::schema::file::FileMessage;
use plimsoll_xds::yaml::proto_json::{BasisPointShare, Double, ProtoDuration, Share, Uint};
use plimsoll_xds::yaml::{ClusterYaml, RuntimeYaml, StructYaml};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};

/// Content of a scenario file.
#[derive(Clone, Debug, JsonSchema, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ScenarioYaml {
    /// Title of the page, one line.
    #[serde(default)]
    pub(super) title: String,
    /// Text below the title.
    #[serde(default)]
    pub(super) description: String,
    /// Locality of the proxy.
    pub(super) own_locality: LocalityYaml,
    /// The fleet of proxies; without it there is no local (originating) cluster.
    pub(super) fleet: Option<FleetYaml>,
    /// Hosts of the upstream cluster.
    pub(super) upstream: UpstreamYaml,
    /// Explain this subset instead of the whole cluster, given by the metadata its hosts share.
    pub(super) subset: Option<StructYaml>,
    /// Time since the traffic fractions of the fleet arrived.
    pub(super) fractions_age: Option<ProtoDuration>,
    /// The cluster, as in an Envoy configuration.
    pub(super) cluster: ClusterYaml,
    /// Values of Envoy's runtime keys.
    #[serde(default)]
    pub(super) runtime: RuntimeYaml,
}

/// The proxies, by locality.
#[derive(Clone, Debug, JsonSchema, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct FleetYaml {
    /// Localities with their proxies.
    pub(super) localities: Vec<FleetLocalityYaml>,
}

/// The proxies of one locality.
#[derive(Clone, Debug, JsonSchema, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct FleetLocalityYaml {
    /// Locality of the proxies.
    pub(super) locality: LocalityYaml,
    /// Number of proxies in the locality.
    pub(super) hosts: Uint<u64>,
    /// Number of healthy proxies. Default all.
    pub(super) healthy: Option<Uint<u64>>,
    /// Weights of the proxies: one number for all, or a list. Default 1.
    #[serde(default)]
    pub(super) weights: WeightsYaml,
    /// Measured share of demand in basis points, or as a percentage (`55%`); unknown if not set.
    pub(super) observed_traffic_fraction: Option<BasisPointShare>,
    /// Measured share of demand in basis points, as sent in metadata of the locality.
    pub(super) metadata_traffic_fraction: Option<Double>,
}

/// The upstream cluster, by priority and locality.
#[derive(Clone, Debug, JsonSchema, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct UpstreamYaml {
    /// Localities with their hosts.
    pub(super) localities: Vec<UpstreamLocalityYaml>,
    /// Overprovisioning factor in percent, above 0. Default 140.
    pub(super) overprovisioning_factor: Option<Uint<u32>>,
    /// Compute the health of a priority from weights instead of numbers of hosts.
    #[serde(default)]
    pub(super) weighted_priority_health: bool,
}

/// The upstream hosts of one locality at one priority.
#[derive(Clone, Debug, JsonSchema, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct UpstreamLocalityYaml {
    /// Locality of the hosts.
    pub(super) locality: LocalityYaml,
    /// Priority; 0 is used first. Default 0.
    #[serde(default)]
    pub(super) priority: Uint<u32>,
    /// Number of hosts in the locality.
    pub(super) hosts: Uint<u64>,
    /// Number of healthy hosts. Default all that are not degraded or draining.
    pub(super) healthy: Option<Uint<u64>>,
    /// Number of degraded hosts. Default 0.
    #[serde(default)]
    pub(super) degraded: Uint<u64>,
    /// Number of draining hosts. Default 0.
    #[serde(default)]
    pub(super) draining: Uint<u64>,
    /// Weights of the hosts: one number for all, or a list. Default 1.
    #[serde(default)]
    pub(super) weights: WeightsYaml,
    /// Weight of the locality, for policies that choose localities by weight.
    pub(super) load_balancing_weight: Option<Uint<u32>>,
    /// Utilization that every healthy host reports, 0 to 1 or as a percentage (`60%`); without it
    /// hosts do not report.
    pub(super) utilization: Option<Share>,
    /// Metadata of every host, which selects its subset. Hosts with other metadata need another
    /// entry of the same locality.
    #[serde(default)]
    pub(super) metadata: StructYaml,
}

/// Locality: `{region, zone, sub_zone}`, or the zone as a string.
#[derive(Clone, Debug)]
pub(super) struct LocalityYaml(FileMessage<LocalityMessage>);

impl LocalityYaml {
    /// Returns the locality; the zone must not be empty, because Envoy would ignore the locality.
    pub(super) fn validated(&self, path: &str) -> Result<Locality, FieldError> {
        let message = self.0.message().map_err(|error| error.under(path))?;
        if message.zone.is_empty() {
            return Err(FieldError::new(format!("{path}.zone"), "must not be empty"));
        }
        Ok(message.into())
    }
}

impl<'de> Deserialize<'de> for LocalityYaml {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct LocalityVisitor;

        impl<'de> Visitor<'de> for LocalityVisitor {
            type Value = FileMessage<LocalityMessage>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a zone or {region, zone, sub_zone}")
            }

            fn visit_str<E: Error>(self, zone: &str) -> Result<Self::Value, E> {
                Ok(FileMessage::from(&LocalityMessage {
                    zone: zone.to_owned(),
                    ..Default::default()
                }))
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
                FileMessage::deserialize(MapAccessDeserializer::new(map))
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
        let long = generator.subschema_for::<FileMessage<LocalityMessage>>();
        json_schema!({ "oneOf": [{ "type": "string" }, long] })
    }
}

/// Weights of hosts in a locality.
#[derive(Clone, Debug, Default)]
pub(super) enum WeightsYaml {
    /// Not set: 1 each.
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
