//! `load_balancing_policy`: a list of typed policies, of which the first supported one wins.
//!
//! Here lives the list, the dispatch by `@type` and `wrr_locality`; the other messages live in
//! `endpoint`, `client_side_weighted_round_robin`, `subset` and `load_aware_locality`, which reads
//! the list of its children in its own way. A policy that Envoy has and we do not is skipped while
//! a later one is supported, as xDS asks; a type that nobody knows is an error everywhere. Entries
//! behind the winner are checked all the same.

#[cfg(feature = "schema")]
mod schema;

use std::fmt;

use plimsoll_core::model::cluster::LocalityPolicy;
use plimsoll_core::model::endpoint_policy::EndpointPolicy;
use plimsoll_core::model::subset::LbSubsetConfig;
use plimsoll_core::units::FieldError;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserialize, Deserializer, Error, IgnoredAny, MapAccess, Visitor};

use super::client_side_weighted_round_robin::ClientSideWeightedRoundRobinYaml;
use super::endpoint::{
    LeastRequestMessage, MaglevMessage, RandomMessage, RingHashMessage, RoundRobinMessage, Typed,
};
use super::load_aware_locality::LoadAwareLocalityMessage;
use super::subset::SubsetYaml;

/// `envoy.config.cluster.v3.LoadBalancingPolicy`.
#[derive(Clone, Debug, serde::Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(super) struct LoadBalancingPolicy {
    /// Policies; the first supported one counts.
    policies: Vec<Policy>,
}

/// One entry of a list.
#[derive(Clone, Debug, serde::Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(super) struct Policy {
    /// The policy and its name.
    typed_extension_config: TypedExtensionConfig,
}

#[derive(Clone, Debug, serde::Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
struct TypedExtensionConfig {
    /// Any name that is not empty.
    name: String,
    /// The policy, by its `@type`.
    typed_config: TypedConfig,
}

/// `typed_config`, by its `@type`.
#[derive(Clone, Debug)]
enum TypedConfig {
    ClientSideWeightedRoundRobin(ClientSideWeightedRoundRobinYaml),
    LeastRequest(LeastRequestMessage),
    LoadAwareLocality(LoadAwareLocalityMessage),
    Maglev(MaglevMessage),
    Random(RandomMessage),
    RingHash(RingHashMessage),
    RoundRobin(RoundRobinMessage),
    Subset(Box<SubsetYaml>),
    /// Nobody has it; this is the `@type`.
    Unknown(String),
    /// Envoy has it, we do not.
    Unsupported(&'static str),
    WrrLocality(WrrLocality),
}

/// `wrr_locality.v3.WrrLocality`. Envoy takes only `client_side_weighted_round_robin` as the child
/// and gRPC also `round_robin`; we take every endpoint policy we have.
#[derive(Clone, Debug, serde::Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
struct WrrLocality {
    /// How a host is chosen within the locality.
    endpoint_picking_policy: LoadBalancingPolicy,
}

const PREFIX: &str = "envoy.extensions.load_balancing_policies.";

/// Policies we have, for error messages.
pub(super) const SUPPORTED: &str = "round_robin, least_request, random, ring_hash, maglev, \
                                    client_side_weighted_round_robin, wrr_locality, \
                                    load_aware_locality, subset";

/// Policies that Envoy has and we do not (yet), as `package.version.Message`.
const UNSUPPORTED: [&str; 5] = [
    "cluster_provided.v3.ClusterProvided",
    "dynamic_forward_proxy.v3.DynamicForwardProxy",
    "dynamic_modules.v3.DynamicModulesLoadBalancerConfig",
    "override_host.v3.OverrideHost",
    "pick_first.v3.PickFirst",
];

impl LoadBalancingPolicy {
    /// The first supported policy; the path of an error starts inside this message.
    pub(super) fn checked(self) -> Result<Typed, FieldError> {
        self.first(Policy::checked)
    }

    /// The same where the policy may divide hosts into subsets first.
    pub(super) fn outermost(self) -> Result<(Option<LbSubsetConfig>, Typed), FieldError> {
        self.first(Policy::outermost)
    }

    fn first<T>(
        self,
        checked: impl Fn(Policy, usize) -> Result<T, FieldError>,
    ) -> Result<T, FieldError> {
        let mut first = None;
        let mut unsupported = None;
        for (index, policy) in self.policies.into_iter().enumerate() {
            if let TypedConfig::Unsupported(name) = policy.typed_extension_config.typed_config {
                unsupported = unsupported.or(Some((index, name)));
                continue;
            }
            let typed = checked(policy, index)?;
            first = first.or(Some(typed));
        }
        if let Some(typed) = first {
            return Ok(typed);
        }
        Err(match unsupported {
            Some((index, name)) => {
                let reason = format!(
                    "{name} is not supported yet, and no other policy is given; supported are \
                     {SUPPORTED}"
                );
                FieldError::new(format!("{}.typed_config.@type", path(index)), reason)
            }
            None => FieldError::new("policies", "must have at least one policy"),
        })
    }
}

impl Policy {
    /// Whether we have it.
    pub(super) const fn is_supported(&self) -> bool {
        !matches!(
            self.typed_extension_config.typed_config,
            TypedConfig::Unknown(_) | TypedConfig::Unsupported(_)
        )
    }

    pub(super) const fn is_load_aware_locality(&self) -> bool {
        let config = &self.typed_extension_config.typed_config;
        matches!(config, TypedConfig::LoadAwareLocality(_))
    }

    /// What it says; `index` is its place in the list, for the path of an error.
    pub(super) fn checked(self, index: usize) -> Result<Typed, FieldError> {
        self.read(index, TypedConfig::checked)
    }

    /// The same where it may divide hosts into subsets first.
    fn outermost(self, index: usize) -> Result<(Option<LbSubsetConfig>, Typed), FieldError> {
        self.read(index, |config| match config {
            TypedConfig::Subset(message) => {
                let (subsets, typed) = message.checked()?;
                Ok((Some(subsets), typed))
            }
            other => Ok((None, other.checked()?)),
        })
    }

    fn read<T>(
        self,
        index: usize,
        checked: impl FnOnce(TypedConfig) -> Result<T, FieldError>,
    ) -> Result<T, FieldError> {
        let config = self.typed_extension_config;
        let typed = if config.name.is_empty() {
            Err(FieldError::new("name", "must not be empty"))
        } else {
            let typed = checked(config.typed_config);
            typed.map_err(|error| error.under("typed_config"))
        };
        typed.map_err(|error| error.under(&path(index)))
    }
}

fn path(index: usize) -> String {
    format!("policies[{index}].typed_extension_config")
}

impl TypedConfig {
    fn checked(self) -> Result<Typed, FieldError> {
        match self {
            Self::ClientSideWeightedRoundRobin(message) => message.checked(),
            Self::LeastRequest(message) => message.checked(),
            Self::LoadAwareLocality(message) => message.checked(),
            Self::Maglev(message) => message.checked(),
            Self::Random(message) => message.checked(),
            Self::RingHash(message) => message.checked(),
            Self::RoundRobin(message) => message.checked(),
            Self::Subset(_) => {
                let reason = "subsets are made by the outermost policy only";
                Err(FieldError::new("", reason))
            }
            Self::Unknown(url) => {
                let reason = format!(
                    "unknown type {url:?}, expected type.googleapis.com/{PREFIX}* of {SUPPORTED}"
                );
                Err(FieldError::new("@type", reason))
            }
            Self::Unsupported(name) => {
                let reason = format!("{name} is not supported yet");
                Err(FieldError::new("@type", reason))
            }
            Self::WrrLocality(message) => message.checked(),
        }
    }
}

/// The endpoint policy of a child of `parent`, which has chosen the locality already.
pub(super) fn child_of(
    parent: &str,
    (endpoint, locality): Typed,
) -> Result<EndpointPolicy, FieldError> {
    if locality.is_some() {
        let reason = format!("the child chooses a locality, but {parent} has done that already");
        return Err(FieldError::new("", reason));
    }
    Ok(endpoint)
}

impl WrrLocality {
    fn checked(self) -> Result<Typed, FieldError> {
        let child = self.endpoint_picking_policy.checked();
        let endpoint = child.and_then(|child| child_of("wrr_locality", child));
        let endpoint = endpoint.map_err(|error| error.under("endpoint_picking_policy"))?;
        Ok((endpoint, Some(LocalityPolicy::WrrLocality)))
    }
}

impl<'de> Deserialize<'de> for TypedConfig {
    /// Needs `@type` before the other fields, as `de` hands it out.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TypedConfigVisitor;

        impl<'de> Visitor<'de> for TypedConfigVisitor {
            type Value = TypedConfig;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a message with \"@type\"")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<TypedConfig, A::Error> {
                match map.next_key::<String>()?.as_deref() {
                    Some("@type") => {}
                    _ => return Err(A::Error::missing_field("@type")),
                }
                let message = map.next_value::<TypeUrl>()?.0;
                let fields = MapAccessDeserializer::new(map);
                match message {
                    Message::ClientSideWeightedRoundRobin => Deserialize::deserialize(fields)
                        .map(TypedConfig::ClientSideWeightedRoundRobin),
                    Message::LoadAwareLocality => {
                        Deserialize::deserialize(fields).map(TypedConfig::LoadAwareLocality)
                    }
                    Message::LeastRequest => {
                        Deserialize::deserialize(fields).map(TypedConfig::LeastRequest)
                    }
                    Message::Maglev => Deserialize::deserialize(fields).map(TypedConfig::Maglev),
                    Message::Random => Deserialize::deserialize(fields).map(TypedConfig::Random),
                    Message::RingHash => {
                        Deserialize::deserialize(fields).map(TypedConfig::RingHash)
                    }
                    Message::RoundRobin => {
                        Deserialize::deserialize(fields).map(TypedConfig::RoundRobin)
                    }
                    Message::Subset => Deserialize::deserialize(fields).map(TypedConfig::Subset),
                    Message::WrrLocality => {
                        Deserialize::deserialize(fields).map(TypedConfig::WrrLocality)
                    }
                    Message::Unknown(url) => {
                        IgnoredAny::deserialize(fields).map(|_| TypedConfig::Unknown(url))
                    }
                    Message::Unsupported(name) => {
                        IgnoredAny::deserialize(fields).map(|_| TypedConfig::Unsupported(name))
                    }
                }
            }
        }

        deserializer.deserialize_any(TypedConfigVisitor)
    }
}

/// The message that an `@type` names.
enum Message {
    ClientSideWeightedRoundRobin,
    LeastRequest,
    LoadAwareLocality,
    Maglev,
    Random,
    RingHash,
    RoundRobin,
    Subset,
    Unknown(String),
    Unsupported(&'static str),
    WrrLocality,
}

/// `type.googleapis.com/<package>.<Message>`.
struct TypeUrl(Message);

impl<'de> Deserialize<'de> for TypeUrl {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let url = String::deserialize(deserializer)?;
        let name = url.rsplit_once('/').map(|(_, name)| name);
        let message = name
            .and_then(|name| name.strip_prefix(PREFIX))
            .and_then(known_message);
        Ok(Self(message.unwrap_or(Message::Unknown(url))))
    }
}

fn known_message(name: &str) -> Option<Message> {
    Some(match name {
        "client_side_weighted_round_robin.v3.ClientSideWeightedRoundRobin" => {
            Message::ClientSideWeightedRoundRobin
        }
        "least_request.v3.LeastRequest" => Message::LeastRequest,
        "load_aware_locality.v3.LoadAwareLocality" => Message::LoadAwareLocality,
        "maglev.v3.Maglev" => Message::Maglev,
        "random.v3.Random" => Message::Random,
        "ring_hash.v3.RingHash" => Message::RingHash,
        "round_robin.v3.RoundRobin" => Message::RoundRobin,
        "subset.v3.Subset" => Message::Subset,
        "wrr_locality.v3.WrrLocality" => Message::WrrLocality,
        other => {
            let name = UNSUPPORTED.into_iter().find(|&name| name == other)?;
            Message::Unsupported(name.split('.').next().unwrap_or(name))
        }
    })
}
