//! `load_balancing_policy`: a list of typed policies, of which the first supported one wins.
//!
//! Here lives the list, the dispatch by `@type` and `wrr_locality`; the other messages live in
//! `endpoint`. A policy that Envoy has and we do not is skipped while a later one is supported, as
//! xDS asks; a type that nobody knows is an error wherever it stands. Entries behind the winner are
//! checked all the same.

use std::fmt;

use plimsoll_core::model::cluster::LocalityPolicy;
use plimsoll_core::model::endpoint_policy::EndpointPolicy;
use plimsoll_core::units::FieldError;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserialize, Deserializer, Error, IgnoredAny, MapAccess, Visitor};

use super::endpoint::{
    LeastRequestMessage, MaglevMessage, RandomMessage, RingHashMessage, RoundRobinMessage, Typed,
};

/// `envoy.config.cluster.v3.LoadBalancingPolicy`.
#[derive(Clone, Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct LoadBalancingPolicy {
    policies: Vec<Policy>,
}

#[derive(Clone, Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Policy {
    typed_extension_config: TypedExtensionConfig,
}

#[derive(Clone, Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct TypedExtensionConfig {
    name: String,
    typed_config: TypedConfig,
}

/// `typed_config`, by its `@type`.
#[derive(Clone, Debug)]
enum TypedConfig {
    LeastRequest(LeastRequestMessage),
    Maglev(MaglevMessage),
    Random(RandomMessage),
    RingHash(RingHashMessage),
    RoundRobin(RoundRobinMessage),
    /// Envoy has it, we do not.
    Unsupported(&'static str),
    WrrLocality(WrrLocality),
}

/// `wrr_locality.v3.WrrLocality`. Envoy takes only `client_side_weighted_round_robin` as the child
/// and gRPC also `round_robin`; we take every endpoint policy we have.
#[derive(Clone, Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct WrrLocality {
    endpoint_picking_policy: LoadBalancingPolicy,
}

const PREFIX: &str = "envoy.extensions.load_balancing_policies.";

/// Policies we have, for error messages.
const SUPPORTED: &str = "round_robin, least_request, random, ring_hash, maglev, wrr_locality";

/// Policies that Envoy has and we do not (yet), as `package.version.Message`.
const UNSUPPORTED: [&str; 8] = [
    "client_side_weighted_round_robin.v3.ClientSideWeightedRoundRobin",
    "cluster_provided.v3.ClusterProvided",
    "dynamic_forward_proxy.v3.DynamicForwardProxy",
    "dynamic_modules.v3.DynamicModulesLoadBalancerConfig",
    "load_aware_locality.v3.LoadAwareLocality",
    "override_host.v3.OverrideHost",
    "pick_first.v3.PickFirst",
    "subset.v3.Subset",
];

impl LoadBalancingPolicy {
    /// The first supported policy; the path of an error starts inside this message.
    pub(super) fn checked(self) -> Result<Typed, FieldError> {
        let mut first = None;
        let mut unsupported = None;
        for (index, policy) in self.policies.into_iter().enumerate() {
            let path = format!("policies[{index}].typed_extension_config");
            let config = policy.typed_extension_config;
            if config.name.is_empty() {
                return Err(FieldError::new("name", "must not be empty").under(&path));
            }
            let checked = config.typed_config.checked();
            match checked.map_err(|error| error.under("typed_config").under(&path))? {
                Ok(typed) => first = first.or(Some(typed)),
                Err(name) => unsupported = unsupported.or(Some((path, name))),
            }
        }
        if let Some(typed) = first {
            return Ok(typed);
        }
        Err(match unsupported {
            Some((path, name)) => {
                let reason = format!(
                    "{name} is not supported yet, and no other policy is given; supported are \
                     {SUPPORTED}"
                );
                FieldError::new(format!("{path}.typed_config.@type"), reason)
            }
            None => FieldError::new("policies", "must have at least one policy"),
        })
    }
}

impl TypedConfig {
    /// The inner error is the name of a policy that we do not have.
    fn checked(self) -> Result<Result<Typed, &'static str>, FieldError> {
        match self {
            Self::LeastRequest(message) => message.checked().map(Ok),
            Self::Maglev(message) => message.checked().map(Ok),
            Self::Random(message) => message.checked().map(Ok),
            Self::RingHash(message) => message.checked().map(Ok),
            Self::RoundRobin(message) => message.checked().map(Ok),
            Self::Unsupported(name) => Ok(Err(name)),
            Self::WrrLocality(message) => message.checked().map(Ok),
        }
    }
}

impl WrrLocality {
    fn checked(self) -> Result<Typed, FieldError> {
        let under = |error: FieldError| error.under("endpoint_picking_policy");
        let (endpoint, locality): (EndpointPolicy, _) =
            self.endpoint_picking_policy.checked().map_err(under)?;
        if locality.is_some() {
            let reason = "the child chooses a locality, but wrr_locality has done that already";
            return Err(under(FieldError::new("", reason)));
        }
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
                    Message::WrrLocality => {
                        Deserialize::deserialize(fields).map(TypedConfig::WrrLocality)
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
    LeastRequest,
    Maglev,
    Random,
    RingHash,
    RoundRobin,
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
        message.map(Self).ok_or_else(|| {
            D::Error::custom(format_args!(
                "unknown type {url:?}, expected type.googleapis.com/{PREFIX}* of {SUPPORTED}"
            ))
        })
    }
}

fn known_message(name: &str) -> Option<Message> {
    Some(match name {
        "least_request.v3.LeastRequest" => Message::LeastRequest,
        "maglev.v3.Maglev" => Message::Maglev,
        "random.v3.Random" => Message::Random,
        "ring_hash.v3.RingHash" => Message::RingHash,
        "round_robin.v3.RoundRobin" => Message::RoundRobin,
        "wrr_locality.v3.WrrLocality" => Message::WrrLocality,
        other => {
            let name = UNSUPPORTED.into_iter().find(|&name| name == other)?;
            Message::Unsupported(name.split('.').next().unwrap_or(name))
        }
    })
}
